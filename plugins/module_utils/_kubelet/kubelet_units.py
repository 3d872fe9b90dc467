# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The units that start kubelet, and the line by which a unit of this collection comes before them at boot."""

from __future__ import annotations

import re
import typing as t

from .._core.errors import Invalid
from .._core.option import Options, permitted

# systemd ignores an ordering before a unit that a node does not have.
STARTERS = (
    "kubelet.service",  # kubernetes/release, cmd/kubepkg/templates; AKS and EKS too
    "rke2-server.service",  # rancher/rke2, bundle/lib/systemd/system
    "rke2-agent.service",
    "k3s.service",  # k3s-io/k3s, install.sh
    "k3s-agent.service",
    "k0scontroller.service",  # k0sproject/k0s, pkg/install/service.go
    "k0sworker.service",
    "snap.microk8s.daemon-kubelite.service",  # canonical/microk8s, snap/snapcraft.yaml
    "snap.microk8s.daemon-kubelet.service",  # of versions without kubelite
    "snap.k8s.kubelet.service",  # canonical/k8s-snap, snap/snapcraft.yaml
    "snap.kubelet-eks.daemon.service",  # Canonical's Ubuntu images for EKS
)
# What the units of this collection come after, on each node. _systemd/boot_order.py asks the node about all other units.
EARLIER = frozenset(
    {
        "sysinit.target",
        "basic.target",
        "local-fs.target",
        "systemd-modules-load.service",
        "nftables.service",
        "network-pre.target",
        "network.target",
        "network-online.target",
    }
)
# Of this collection: they would wait for each other.
OWN = re.compile("kubenode-(addresses|bpf|nft|policy-routes)-")
LENGTH = 255  # systemd.unit(5)
BEFORE = permitted("list", [], elements="str", is_words=True, check=lambda value, _is_applied: others(value))
OPTIONS: Options = {"before": BEFORE}


def others(names: t.Iterable[str] | None) -> tuple[str, ...]:
    """Return the units of the option ``before``, sorted, without those of STARTERS. Raises Invalid."""
    units = {_checked(f"before[{number}]", name) for number, name in enumerate(names or ())}
    return tuple(sorted(units.difference(STARTERS)))


def _checked(option: str, name: str) -> str:
    word = r"[A-Za-z0-9:_.\\-]+"
    if not re.fullmatch(rf"{word}(@{word})?\.(service|target)", name) or len(name) > LENGTH:
        raise Invalid(
            option,
            name,
            f"the name of a systemd unit that ends with .service or .target, of at most {LENGTH} letters, digits and :_.\\-@",
        )
    if name in EARLIER:
        raise Invalid(option, name, f"a unit that starts later in the boot than {', '.join(sorted(EARLIER))}")
    if OWN.match(name):
        raise Invalid(option, name, "a unit that starts kubelet, and not one of this collection")
    return name


def ordering(before: t.Sequence[str]) -> str:
    """Return the line of a unit that must be complete before kubelet is started. before: units besides STARTERS, see others()."""
    return f"Before={' '.join((*STARTERS, *before))}"
