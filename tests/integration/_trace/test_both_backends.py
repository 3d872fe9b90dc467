# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""With rules in both backends of iptables, the trace is certain only of what the node's own kernel does with packets."""

from __future__ import annotations

import json
import random
import sys

import pytest

from lab import network
from lab.collection import CHECKOUT

from .._audit.layouts import Calico
from .test_law_of_substitutions import ARRIVED, SNAPSHOT, answered

VERDICTS = ("-j DROP", "-j ACCEPT", "-j RETURN", "-j REJECT", "-j OWN", "-g OWN")
PACKETS = 8


def half(chance: random.Random, addresses: list[str]) -> str:
    """Return a table whose chains have the same names in both backends, but for the verdicts."""
    policies = [f":{chain} {chance.choice(['ACCEPT', 'ACCEPT', 'ACCEPT', 'DROP'])} [0:0]" for chain in ("FORWARD", "INPUT")]
    rules = ["-A FORWARD -j OWN", "-A INPUT -j OWN"][: chance.randint(0, 2)]
    for _rule in range(3):
        verdict = chance.choice(VERDICTS[:4])
        rules.append(f"-A OWN -{chance.choice('sd')} {chance.choice(addresses)} {verdict}")
        rules.append(f"-A {chance.choice(['FORWARD', 'INPUT'])} -s {chance.choice(addresses)} {chance.choice(VERDICTS)}")
    established = ["-A FORWARD -m conntrack --ctstate ESTABLISHED -j ACCEPT"] * chance.randint(0, 1)
    return "\n".join(["*filter", *policies, ":OUTPUT ACCEPT [0:0]", ":OWN - [0:0]", *established, *rules, "COMMIT", ""])


@pytest.mark.parametrize("seed", range(8))
def test_a_packet_passes_both_halves_as_in_the_kernel(seed: int) -> None:
    chance = random.Random(seed)
    layout = Calico()
    addresses = [*(pod[4] for pod in layout.pods.values()), layout.own[4], "198.51.100.7"]
    layout.saves = {"iptables-nft-restore": half(chance, addresses), "iptables-legacy-restore": half(chance, addresses)}
    of_ipv4 = [each for each in layout.connections() if ":" not in each.destination and each.port == network.PORT]
    connections = chance.sample(of_ipv4, PACKETS)
    with network.built(layout) as machines, network.listening(machines):
        snapshot = json.loads(machines["node"].run([sys.executable, "-c", SNAPSHOT, str(CHECKOUT)]).stdout)
        truth = network.connect(machines, connections)
    backends = [entry["backend"] for entry in snapshot["iptables"] if (entry["family"], entry["table"]) == ("ip", "filter")]
    assert sorted(backends) == ["legacy", "nft"]
    wrong = []
    for connection, is_made in truth.items():
        found = answered(snapshot, connection)
        arrives = found["verdict"] in ARRIVED and (found["reply"] or {}).get("verdict") in ARRIVED
        # Nothing but the network beyond the node is open, where pods are not masqueraded.
        is_open = {entry["fact"].partition(":")[0] for entry in found["depends_on"]} - {"answer"}
        if is_open or arrives is not is_made:
            wrong.append((connection, is_made, found["verdict"], found["reason"], found["depends_on"]))
    assert not wrong
