# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether a Cilium agent's options enable IPv6 node ports, in the spellings of each version."""

from __future__ import annotations

import json
import typing as t

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._cni import cilium

OPTIONS: list[tuple[dict[str, str], bool]] = [
    ({"kube-proxy-replacement": "true", "enable-ipv6": "true"}, True),
    ({"kube-proxy-replacement": "strict", "enable-ipv6": "true"}, True),
    ({"kube-proxy-replacement": "probe", "enable-ipv6": "true"}, True),
    ({"kube-proxy-replacement": "partial", "enable-node-port": "true", "enable-ipv6": "true"}, True),
    ({"kube-proxy-replacement": "false", "enable-node-port": "true"}, True),
    ({"kube-proxy-replacement": "true"}, True),
    ({"kube-proxy-replacement": "partial", "enable-ipv6": "true"}, False),
    ({"kube-proxy-replacement": "disabled", "enable-ipv6": "true"}, False),
    ({"kube-proxy-replacement": "false", "enable-ipv6": "true"}, False),
    ({"kube-proxy-replacement": "true", "enable-ipv6": "false"}, False),
    ({}, False),
]


@pytest.mark.parametrize(("options", "serves"), OPTIONS)
def test_options_tell_whether_bpf_serves_ipv6_node_ports(options: dict[str, str], serves: bool) -> None:
    agent = cilium.agent("here", options)
    assert agent == cilium.Agent("here", serves, replaces_kube_proxy=serves or options.get(cilium.IPV6) == "false")


@pytest.mark.parametrize(("given", "cluster"), [("200", 200), ("0", 0), ("x", 0)])
def test_options_tell_the_cluster(given: str, cluster: int) -> None:
    assert cilium.agent("here", {"cluster-id": given}).cluster == cluster


def test_options_on_a_command_line() -> None:
    words = ["cilium-agent", "--config-dir=/tmp/cilium/config-map", "--enable-node-port", "-v", "--label=a=b"]
    assert cilium.arguments(words) == {"config-dir": "/tmp/cilium/config-map", "enable-node-port": "true", "label": "a=b"}


STATES: list[tuple[t.Any, dict[str, str]]] = [
    (
        {"KubeProxyReplacement": "true", "EnableNodePort": True, "EnableIPv6": True, "MTU": 0},
        {"kube-proxy-replacement": "true", "enable-node-port": "true", "enable-ipv6": "true"},
    ),
    ({"EnableNodePort": False, "EnableIPv6": False}, {"enable-node-port": "false", "enable-ipv6": "false"}),
    ({"EnableIPv6": True}, {}),
    ([], {}),
    (None, {}),
]


@pytest.mark.parametrize(("stored", "options"), STATES)
def test_options_in_the_agents_state(stored: t.Any, options: dict[str, str]) -> None:
    assert cilium.state(json.dumps(stored)) == options


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000])
def test_a_state_that_is_no_json_tells_nothing(text: str) -> None:
    assert cilium.state(text) == {}


@pytest.mark.parametrize(
    "name", ["cil_from_netdev", "cil_from_netdev-eth0", "cil_xdp_entry", "cilium-eth0", "bpf_host.o:[from-netdev]"]
)
def test_names_of_ciliums_programs(name: str) -> None:
    assert cilium.is_program(name)


@pytest.mark.parametrize("name", ["", "cali_tc_preamble", "ipv6_hp_ingress", "retina_cil_x", "cil", "bpf_netdev.o:[to-netdev]"])
def test_names_of_other_programs(name: str) -> None:
    assert not cilium.is_program(name)
