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

from .._netfilter import iptables
from .._netfilter.iptables import Rule, Table
from .leftover import CHAIN, LINK, PROGRAM, RULE, Leftover

CILIUM, KUBE_PROXY = "cilium", "kube-proxy"
AGENT = "cilium-agent"
CHAINS = re.compile(r"(OLD_)?CILIUM_\w+")
LINKS = re.compile(r"cilium_(host|vxlan|geneve|wg0|ipip[46])|lxc_health")  # cilium_net is the other end of cilium_host
# cilium-dbg is in the agent's image. It removes links, BPF programs and routes, but no rules of iptables.
CLEANUP = "cilium-dbg post-uninstall-cleanup --all-state --force"
NO_AGENT = "no Cilium agent runs, and no runtime uses Cilium's CNI configuration"
NO_PROXY = "kube-proxy does not run; nothing tells whether it was replaced or is about to start"
TABLES = {family: ("raw", "mangle", "nat", "filter") for family in iptables.PROGRAMS}


def of_cilium(
    rules: t.Sequence[Rule],
    chains: t.Sequence[tuple[Table, str]],
    links: t.Iterable[str],
    programs: t.Iterable[tuple[str, str]],
) -> list[Leftover]:
    """Return Cilium's leftovers, in an order in which the commands can be run.

    programs: link and name of each BPF program of Cilium.
    """

    def is_within(rule: Rule) -> bool:
        return bool(CHAINS.fullmatch(rule.chain))

    def left(kind: str, place: str, text: str, command: str) -> Leftover:
        return Leftover(kind, place, text, CILIUM, NO_AGENT, True, command)

    ours = {*chains}
    mine = [rule for rule in rules if is_within(rule) or iptables.jump(rule, ours)]
    return [
        *(left(RULE, rule.place, rule.text, rule.deletion) for rule in sorted(mine, key=is_within)),
        *(left(CHAIN, str(table), chain, f"{table.program} -X {chain}") for table, chain in chains),
        *(left(PROGRAM, f"link {link}", name, CLEANUP) for link, name in programs),
        *(left(LINK, "links", link, f"ip link del {link}") for link in links if LINKS.fullmatch(link)),
    ]


def of_kube_proxy(chains: t.Mapping[str, t.Sequence[str]]) -> list[Leftover]:
    """Return one leftover for each place, which may have thousands of chains.

    chains: names by place; see cni.kube_proxy_chains().
    """
    return [
        Leftover(CHAIN, place, _counted(names), KUBE_PROXY, NO_PROXY, False, "kube-proxy --cleanup")
        for place, names in chains.items()
    ]


def _counted(names: t.Sequence[str]) -> str:
    return f"{names[0]} and {len(names) - 1} more" if len(names) > 1 else names[0]
