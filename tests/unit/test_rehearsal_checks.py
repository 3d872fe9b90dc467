# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The checks that a node itself makes are packets of its rehearsal."""

from __future__ import annotations

import json
import typing as t

import pytest

pytest.importorskip("ansible")

from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Invalid
from ansible_collections.kubenode.datapath.plugins.plugin_utils._changes import packets, packets_of_checks

OWN = {"address": "10.0.1.11", "port": 8080}
PACKET = {"destination": "10.0.0.10", "protocol": "icmp"}
SENT = {"destination": "10.0.1.11", "destination_port": 8080}


@pytest.mark.parametrize(
    ("checks", "expected"),
    [
        (None, []),
        ("", []),
        ([OWN], [SENT]),
        ('[{"address": "10.0.1.11", "port": 8080}]', [SENT]),
        ([{"address": "2001:db8::1", "port": "80"}], [{"destination": "2001:db8::1", "destination_port": "80"}]),
        ([{**OWN, "from": "node1", "before": True}], [SENT]),
        ([{**OWN, "from": "node2"}, {**OWN, "from": "localhost"}], []),
        ([{**OWN, "address": "pod.example.com"}, {**OWN, "address": "ff02::1"}, {**OWN, "address": "0.0.0.0"}, {}], []),
    ],
)
def test_the_checks_of_the_node_itself_are_packets(checks: t.Any, expected: list[t.Any]) -> None:
    assert packets_of_checks(checks, "node1") == expected


@pytest.mark.parametrize("checks", [{"address": "::1"}, "[", ["::1"], 7])
def test_what_is_no_list_of_checks_is_refused(checks: t.Any) -> None:
    with pytest.raises(Invalid, match="^rehearse_checks must be a list of dictionaries, or JSON text of such a list; .* given$"):
        packets_of_checks(checks, "node1")


@pytest.mark.parametrize(
    ("listed", "expected"),
    [(None, []), ("", []), ([PACKET], [PACKET]), (json.dumps([PACKET]), [PACKET]), (["icmp ::1 > ::2"], ["icmp ::1 > ::2"])],
)
def test_the_checks_follow_the_packets_of_the_task(listed: t.Any, expected: list[t.Any]) -> None:
    assert packets({"rehearse_packets": listed, "rehearse_checks": [OWN]}, "node1") == [*expected, SENT]


@pytest.mark.parametrize("listed", [PACKET, "[", "icmp", 7])
def test_what_is_no_list_of_packets_is_refused(listed: t.Any) -> None:
    with pytest.raises(Invalid, match="^rehearse_packets must be a list of packets, or JSON text of such a list; .* given$"):
        packets({"rehearse_packets": listed}, "node1")
