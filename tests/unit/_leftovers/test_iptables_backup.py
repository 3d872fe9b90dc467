# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The backup of iptables rules holds what a run may have removed and nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._azure_vnet.backup import Backup, Damaged, Node
from ansible_collections.kubenode.datapath.plugins.module_utils._leftovers import iptables_backup
from ansible_collections.kubenode.datapath.plugins.module_utils._leftovers.iptables_backup import Run
from ansible_collections.kubenode.datapath.plugins.module_utils._netfilter import iptables
from ansible_collections.kubenode.datapath.plugins.module_utils._netfilter.iptables import Table, Taken

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


def taken() -> Taken:
    rules = iptables.rules(NAT, SAVED)
    theirs = [(rule.place, rule.text) for rule in rules if "SWIFT" in (rule.chain, rule.text.split()[-1])]
    ((one),) = iptables.taken(theirs, [(NAT, "SWIFT")], rules)
    return one


KEPT = Backup(Node("ab" * 16, ("02:00:00:00:00:01",)), (Run((taken(),), "boot"),))


def test_a_backup_is_read_as_it_was_written() -> None:
    text = iptables_backup.to_text(KEPT)
    assert text.startswith(iptables_backup.SIGNATURE) and iptables_backup.from_text(text) == KEPT


def edited(change: Callable[[dict[str, Any]], Any]) -> str:
    found = json.loads(iptables_backup.to_text(KEPT))
    change(found)
    return json.dumps(found)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "[" * 100_000,
        edited(lambda found: found.update(version=2)),
        edited(lambda found: found.pop("node")),
        edited(lambda found: found["node"].update(macs=["x"])),
        edited(lambda found: found["runs"][0].update(more=1)),
        edited(lambda found: found["runs"][0]["tables"][0].update(family="inet")),
        edited(lambda found: found["runs"][0]["tables"][0].update(name="nat -F")),
        edited(lambda found: found["runs"][0]["tables"][0].update(chains=["OWN"])),
        edited(lambda found: found["runs"][0]["tables"][0]["rules"][0].update(removed=[9])),
        edited(lambda found: found["runs"][0]["tables"][0]["rules"][0].update(removed=[-1])),
        edited(lambda found: found["runs"][0]["tables"][0]["rules"][0].update(removed=[True])),
        edited(lambda found: found["runs"][0]["tables"][0]["rules"][0].update(removed=[0])),
        edited(lambda found: found["runs"][0]["tables"][0]["rules"][0]["rules"].__setitem__(1, "-j SWIFT\nCOMMIT\n*filter")),
        edited(lambda found: found["runs"][0]["tables"][0]["rules"][0]["rules"].__setitem__(1, "-j DROP")),
        edited(lambda found: found["runs"][0]["tables"][0]["rules"][0].update(chain=["POSTROUTING"])),
        edited(lambda found: found["runs"][0]["tables"][0]["rules"][0].update(chain="INPUT")),
    ],
)
def test_anything_else_is_damaged(text: str) -> None:
    with pytest.raises(Damaged):
        iptables_backup.from_text(text)
