# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The checks that a node itself makes are packets of its rehearsal."""

from __future__ import annotations

import typing as t

import pytest

pytest.importorskip("ansible")

from ansible.errors import AnsibleFilterError

from ansible_collections.kubenode.datapath.plugins.filter.with_checks import with_checks

OWN = {"address": "10.0.1.11", "port": 8080}
SENT = {"destination": "10.0.1.11", "destination_port": 8080}
PACKET = {"destination": "10.0.0.10", "protocol": "icmp"}


@pytest.mark.parametrize(
    ("packets", "checks", "expected"),
    [
        ([], [], []),
        ([PACKET], [OWN], [PACKET, SENT]),
        ('[{"destination": "10.0.0.10", "protocol": "icmp"}]', '[{"address": "10.0.1.11", "port": 8080}]', [PACKET, SENT]),
        ("", "[{address: 2001:db8::1, port: '80'}]", [{"destination": "2001:db8::1", "destination_port": "80"}]),
        (None, [{**OWN, "from": "node1", "before": True}], [SENT]),
        ([], [{**OWN, "from": "node2"}, {**OWN, "from": "localhost"}], []),
        ([], [{**OWN, "address": "pod.example.com"}, {**OWN, "address": "ff02::1"}, {**OWN, "address": "0.0.0.0"}], []),
    ],
)
def test_the_checks_of_the_node_itself_follow_the_packets(packets: t.Any, checks: t.Any, expected: list[t.Any]) -> None:
    assert with_checks(packets, checks, "node1") == expected


@pytest.mark.parametrize(
    ("packets", "checks", "name"), [("nothing", [], "packets"), ([], {"address": "::1"}, "checks"), ([], "[", "checks")]
)
def test_what_is_no_list_is_named(packets: t.Any, checks: t.Any, name: str) -> None:
    with pytest.raises(AnsibleFilterError, match=f"^{name} is .*; it must be a list"):
        with_checks(packets, checks, "node1")
