# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What modules of the collection have set, and what another program made of it since."""

from __future__ import annotations

import pytest

from lab.steps import Steps

from .._trace import test_cures as scenes
from .auditing import apply, audited, findings
from .troubles import OFF

DRIFT = "own-drift"
RULES = [{"priority": 700, "to": "192.0.2.0/24", "table": "77"}, {"priority": 701, "fwmark": "0x40/0x40", "table": "77"}]
ROUTES = [
    {"table": "77", "to": "default", "via": scenes.ENIS[0].gateway, "dev": "eth1", "onlink": True},
    {"table": "77", "to": "192.0.2.0/24", "dev": "eth2"},
]


@pytest.mark.parametrize(
    ("command", "line"),
    [
        ("rule del priority 701", "701: from all fwmark 0x40/0x40 lookup 77"),
        ("route del default table 77", "default via 10.0.1.1 dev eth1 table 77"),
        ("link set eth2 down", ""),
    ],
    ids=["rule", "route", "link that is down"],
)
def test_what_another_program_removed_is_found_and_put_back(command: str, line: str) -> None:
    with scenes.shared_enis(OFF) as (_lab, node):
        assert findings(node, DRIFT) == []
        Steps(node, "policy_routes", {"rules": RULES, "routes": ROUTES}).run()
        assert findings(node, DRIFT) == []
        node.ip([command])
        found = findings(node, DRIFT)
        assert [(finding["subject"], finding["evidence"]) for finding in found] == ([("protocol 75", [line])] if line else [])
        for finding in found:
            assert finding["severity"] == "note"
            apply(node, finding["remedy"])
        assert findings(node, DRIFT) == []


def test_a_route_that_another_program_replaced_is_for_that_program_to_remove() -> None:
    with scenes.shared_enis(OFF) as (_lab, node):
        Steps(node, "policy_routes", {"rules": RULES, "routes": ROUTES}).run()
        node.ip(["route change 192.0.2.0/24 dev eth1 table 77"])
        (finding,) = findings(node, DRIFT)
        assert finding["evidence"] == ["192.0.2.0/24 dev eth2 table 77"]
        assert finding["remedy"]["operator"].startswith("Have the other program remove its routes")


def test_a_rule_of_another_program_that_means_the_same_is_no_drift() -> None:
    with scenes.shared_enis(OFF) as (_lab, node):
        node.ip(["rule add to 192.0.2.0/24 lookup 77 priority 700 protocol 99"])
        Steps(node, "policy_routes", {"rules": RULES, "routes": ROUTES}).run()
        assert findings(node, DRIFT) == []


def test_a_filter_that_another_program_changed() -> None:
    with scenes.shared_enis(OFF) as (_lab, node):
        Steps(node, "rp_filter", {"interfaces": ["eth0", "eth1"], "mode": "loose"}).run()
        assert findings(node, DRIFT) == []
        node.run(["sysctl", "-qw", "net.ipv4.conf.eth1.rp_filter=1"])
        (finding,) = findings(node, DRIFT)
        assert finding["subject"] == "net.ipv4.conf.eth1.rp_filter"
        apply(node, finding["remedy"])
        assert findings(node, DRIFT) == []


def test_a_record_that_cannot_be_read_leaves_it_open() -> None:
    with scenes.shared_enis(OFF) as (_lab, node):
        node.write("/etc/kubenode/policy-routes-80.json", "{")
        (finding,) = findings(node, DRIFT)
        assert finding["state"] == "cannot_tell" and finding["ask"].startswith("head -v -n 9999 /run/kubenode/")


def test_a_table_that_the_cni_has_filled_is_no_drift_after_the_profile() -> None:
    with scenes.shared_enis(scenes.STRICT) as (_lab, node):
        node.ip(["route add 10.0.1.1 dev eth1 scope link table 1001", "route replace default via 10.0.1.1 dev eth1 table 1001"])
        need = audited(node)["profile"]
        options = {name.removeprefix(f"{need['name']}_"): value for name, value in need["variables"].items()}
        assert options["layout"] == "custom"
        Steps(node, "profile", {"name": need["name"], "options": {**options, "mode": "runtime"}}).run()
        assert findings(node, DRIFT) == []


SATISFIED = {
    "a route that is on the link without a flag": (
        ["route add 10.1.2.1 dev eth1 scope link table 77", "route add default via 10.1.2.1 dev eth1 table 77"],
        {"routes": [{"table": "77", "to": "default", "via": "10.1.2.1", "dev": "eth1", "onlink": True}]},
    ),
    "a route with a metric that decides nothing": (
        [f"route add default via {scenes.ENIS[0].gateway} dev eth1 table 77 onlink advmss 1400"],
        {"routes": [{"table": "77", "to": "default", "via": scenes.ENIS[0].gateway, "dev": "eth1", "onlink": True}]},
    ),
    "a rule whose table has another number": (
        [
            f"route add default via {scenes.ENIS[0].gateway} dev eth1 table 10001 onlink",
            "rule add from 10.0.1.77 lookup 10001 priority 700",
        ],
        {
            "rules": [{"priority": 700, "from": "10.0.1.77", "table": "77"}],
            "routes": [{"table": "77", "to": "default", "via": scenes.ENIS[0].gateway, "dev": "eth1", "onlink": True}],
        },
    ),
}


@pytest.mark.parametrize("case", SATISFIED)
def test_what_satisfies_policy_routes_is_no_drift(case: str) -> None:
    commands, options = SATISFIED[case]
    with scenes.shared_enis(OFF) as (_lab, node):
        node.ip(commands)
        run = Steps(node, "policy_routes", options).run()
        assert [*run["rules"]["satisfied_by"], *run["routes"]["satisfied_by"]]
        assert findings(node, DRIFT) == []
