# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Leftovers of Cilium and kube-proxy after these have ended.

From the sources of cilium: pkg/datapath/iptables/iptables.go, pkg/defaults, cilium-dbg/cmd/cleanup.go.
"""

from __future__ import annotations

import re
import typing as t

from .._cni import cni
from .._netfilter.iptables import Rule, Table
from . import cni_leftovers
from .leftover import CHAIN, LINK, PROGRAM, Leftover

CILIUM, KUBE_PROXY = "cilium", "kube-proxy"
AGENT = "cilium-agent"
CHAINS = re.compile(r"(OLD_)?CILIUM_\w+")
LINKS = re.compile(r"cilium_(host|vxlan|geneve|wg0|ipip[46])|lxc_health")  # cilium_net is the other end of cilium_host
# cilium-dbg is in the agent's image. It removes links, BPF programs and routes, but no rules of iptables.
CLEANUP = "cilium-dbg post-uninstall-cleanup --all-state --force"
NO_AGENT = "no Cilium agent runs, and no runtime uses Cilium's CNI configuration"
NO_PROXY = "kube-proxy does not run; nothing tells whether it was replaced or is about to start"
OF_SERVICES = "translates or filters connections to Services as they were"


def of_cilium(
    rules: t.Sequence[Rule],
    chains: t.Sequence[tuple[Table, str]],
    links: t.Iterable[str],
    programs: t.Iterable[tuple[str, str]],
) -> list[Leftover]:
    """Return Cilium's leftovers, in an order in which the commands can be run.

    programs: link and name of each BPF program of Cilium.
    """

    def left(kind: str, place: str, text: str, command: str) -> Leftover:
        return Leftover(kind, place, text, CILIUM, NO_AGENT, True, command)

    return [
        *cni_leftovers.in_tables(CILIUM, NO_AGENT, rules, chains),
        *(left(PROGRAM, f"link {link}", name, CLEANUP) for link, name in programs),
        *(left(LINK, "links", link, f"ip link del {link}") for link in links if LINKS.fullmatch(link)),
    ]


def of_kube_proxy(chains: t.Mapping[str, t.Sequence[str]], is_running: bool) -> list[Leftover]:
    """Return one leftover for each place, which may have thousands of chains.

    Those of a kube-proxy that runs are leftovers if they are of several modes or backends: it uses one of these.

    chains: names by place; see cni.kube_proxy_chains().
    """
    modes = sorted(cni.kube_proxy_modes(chains))
    if is_running and len(modes) < 2:
        return []
    evidence = f"kube-proxy runs, and uses one of {' and '.join(modes)}" if is_running else NO_PROXY
    return [
        Leftover(CHAIN, place, _counted(names), KUBE_PROXY, evidence, False, cni.kube_proxy_removal(place), OF_SERVICES)
        for place, names in chains.items()
    ]


def _counted(names: t.Sequence[str]) -> str:
    return f"{names[0]} and {len(names) - 1} more" if len(names) > 1 else names[0]
