# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The three backup files that release 1.0.0 wrote are restored, and move into the one file of today."""

from __future__ import annotations

import os
from typing import Any

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._leftovers import backup_backend
from lab import azure_vnet
from lab.azure_vnet import BRIDGE, AzurePod
from lab.node import NamespaceNode
from lab.steps import Steps
from lab.waiting import until
from unit._leftovers.backups import BACKUP, FORMER

from .azure_rules import AZURE, AZURE6, NODE, apply, saved
from .test_iptables_cleanup import BACKUP as PATH
from .test_iptables_cleanup import BRIDGE as NAT_BRIDGE
from .test_iptables_cleanup import GATEWAY, PAIR, state_of

POD = AzurePod(21)
FOREIGN = "-t nat -A PREROUTING -p IPv4 -i eth0 --ip-dst 10.99.0.1 -j dnat --to-dst 02:aa:00:00:00:01 --dnat-target ACCEPT"
PATHS = [PATH.replace(".json", f"{kind}.json") for kind in ("", "-iptables", "-links")]


def state(node: NamespaceNode) -> dict[str, Any]:
    return {**state_of(node), "iptables": saved(node), "ebtables": azure_vnet.listing(node), "files": node.snapshot()["files"]}


@pytest.mark.parametrize("is_moved", [False, True], ids=["restored at once", "restored after another clean-up"])
def test_what_release_1_0_0_removed_is_restored(node: NamespaceNode, is_moved: bool) -> None:
    azure_vnet.past(node, node.place.mac(), [POD])
    azure_vnet.ebtables(node, [FOREIGN])
    node.ip([f"address add {GATEWAY} dev {BRIDGE} nodad", *NAT_BRIDGE, *PAIR, f"route add {POD.address}/32 dev {BRIDGE}"])
    node.ip([f"address add {NODE}/32 dev lo", "address add fd00:10:240::4/128 dev lo nodad"])
    node.set_sysctls({"net.ipv4.conf.azSnatbr.proxy_arp": 1})
    apply(node, "iptables-nft", ["-t nat -A POSTROUTING -s 10.9.0.0/16 -j MASQUERADE", *AZURE[:5]])
    apply(node, "ip6tables-nft", AZURE6)
    until("no address is tentative", lambda: "tentative" not in node.run(["ip", "address"]).stdout)
    before, steps = state(node), Steps(node, "ebtables_cleanup", {"iptables": True, "links": True})
    steps.run()
    current = backup_backend.from_text(node.read(PATH))
    boot = current.runs[0].boot.replace("\n", "\\n")
    for path, text in zip(PATHS, FORMER):
        (run,) = backup_backend.from_text(text).runs
        own_backup = text.replace(BACKUP.node.machine, current.node.machine).replace(BACKUP.node.macs[0], node.place.mac())
        node.write(path, own_backup.replace(run.boot.replace("\n", "\\n"), boot), 0o600)
    assert not steps.run()["changed"]
    if is_moved:
        azure_vnet.restore(node, POD.rules)  # azure-vnet has added the rules again
        steps.four()
        assert [node.exists(path) for path in PATHS] == [True, False, False]
    restored = steps.four(state="restored")
    assert restored["differences"] == []
    until("all is restored", lambda: state(node), expected=before)
    assert not any(map(node.exists, PATHS)) and not node.exists(os.path.dirname(PATH))
