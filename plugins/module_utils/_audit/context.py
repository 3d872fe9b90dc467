# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What no node shows and its operator knows: the option ``context`` of datapath_audit."""

from __future__ import annotations

import ipaddress
import typing as t

from .._core.errors import Invalid
from .._core.option import Option
from .._twin.pod_links import Network

CLOUDS = ("azure", "aws", "alibaba", "other")
SHARED = "shared"
PROBE_MODES = (SHARED, "servicenodeport")  # clusterServiceLoadBalancerHealthProbeMode of cloud-provider-azure
AWS_VPC_CNI, CILIUM, TERWAY = "aws_vpc_cni", "cilium", "terway"
CNIS = (AWS_VPC_CNI, "azure_vnet", "calico", CILIUM, "flannel", TERWAY, "other")
Options = t.Mapping[str, t.Any]
OPTIONS: dict[str, Option] = {
    "cloud": Option("str", choices=CLOUDS),
    "probe_mode": Option("str", choices=PROBE_MODES),
    "cni": Option("str", choices=CNIS),
    "service_ranges": Option("list", elements="str", is_words=True),
    "pod_ranges": Option("list", elements="str", is_words=True),
}


class Context(t.NamedTuple):
    """cloud, probe_mode, cni: empty if the operator does not say. service_ranges, pod_ranges: those of the cluster."""

    cloud: str = ""
    probe_mode: str = ""
    cni: str = ""
    service_ranges: tuple[Network, ...] = ()
    pod_ranges: tuple[Network, ...] = ()

    @classmethod
    def from_options(cls, options: Options) -> Context:
        """Return the context. Raises Invalid."""
        return cls(
            _word(options, "cloud", CLOUDS),
            _word(options, "probe_mode", PROBE_MODES),
            _word(options, "cni", CNIS),
            _networks(options, "service_ranges"),
            _networks(options, "pod_ranges"),
        )


def _word(options: Options, name: str, choices: t.Sequence[str]) -> str:
    value = options.get(name)
    if value is not None and value not in choices:
        raise Invalid(f"context.{name}", value, f"one of {', '.join(choices)}")
    return str(value or "")


def _networks(options: Options, name: str) -> tuple[Network, ...]:
    return tuple(_network(f"context.{name}[{number}]", value) for number, value in enumerate(options.get(name) or ()))


def _network(option: str, value: object) -> Network:
    try:
        return ipaddress.ip_network(str(value))
    except ValueError:
        raise Invalid(option, value, "a network without host bits, such as 10.96.0.0/12 or fd00:10:96::/112") from None
