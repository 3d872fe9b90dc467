# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A table with azure-vnet's chain SWIFT among foreign rules, and the rules that a clean-up removes."""

from __future__ import annotations

from ansible_collections.kubenode.datapath.plugins.module_utils._netfilter import chain, iptables
from ansible_collections.kubenode.datapath.plugins.module_utils._netfilter.iptables import Table, TableRemoval

NAT = Table("ip", "nat", "nft")
DNS = (
    "-s 10.241.0.0/16 -d 168.63.129.16/32 -p udp -m addrtype ! --dst-type LOCAL -m udp --dport 53 -j SNAT --to-source 10.240.0.4"
)
SAVED = f"""\
*nat
:POSTROUTING ACCEPT [0:0]
:SWIFT - [0:0]
-A POSTROUTING -s 10.9.0.0/16 -j MASQUERADE
-A POSTROUTING -j SWIFT
-A POSTROUTING -o eth0 -j RETURN
-A SWIFT {DNS}
COMMIT
"""


def taken() -> TableRemoval:
    chains = {NAT.at(name): rules for name, rules in iptables.chains(SAVED).items()}
    rules = {(place, rule.text) for place, listed in chains.items() for rule in listed}
    theirs = {(place, text) for place, text in rules if "SWIFT" in (place.chain, text.split()[-1])}
    (removal,) = iptables.by_table(chain.removals(chains, theirs), {NAT: ["SWIFT"]})
    return removal
