# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which packet stands for the controller's connection, and which loss refuses a change. The twins are in tests/integration."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._cni.foreign_marks import ForeignMark
from ansible_collections.kubenode.datapath.plugins.module_utils._core import fields
from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Refusal
from ansible_collections.kubenode.datapath.plugins.module_utils._platform.processes import SshConnection
from ansible_collections.kubenode.datapath.plugins.module_utils._trace import changes_backend, packet, rehearsal_backend
from ansible_collections.kubenode.datapath.plugins.module_utils._trace.answer import Answer, Branch, Met, Way
from ansible_collections.kubenode.datapath.plugins.module_utils._trace.changes_backend import Call
from ansible_collections.kubenode.datapath.plugins.module_utils._trace.frame import Frame
from ansible_collections.kubenode.datapath.plugins.module_utils._trace.rehearsal_backend import Rehearsal, Trial

SNAPSHOT: dict[str, Any] = {
    "links": [
        {"name": "lo", "kind": "", "addresses": [{"address": "127.0.0.1/8"}, {"address": "198.51.100.7/32"}]},
        {"name": "dummy0", "kind": "dummy", "addresses": [{"address": "198.51.100.8/32"}]},
        {"name": "eth1", "kind": "", "addresses": [{"address": "10.0.1.4/24"}, {"address": "2001:db8::4/64"}]},
        {"name": "veth1", "kind": "veth", "addresses": [], "peer": {"addresses": ["10.244.0.7"]}},
    ],
    "routes": [
        {"table": "1003", "family": "ipv4", "to": "default", "dev": "eth1"},
        {"table": "254", "family": "ipv4", "to": "default", "dev": "eth0"},
    ],
}


@pytest.mark.parametrize(
    ("connection", "link", "shown"),
    [
        (("203.0.113.9", 50123, "10.0.1.4", 22), "eth1", "tcp 203.0.113.9:50123 > 10.0.1.4:22"),
        (("2001:db8::9", 50123, "2001:db8::4", 2222), "eth1", "tcp [2001:db8::9]:50123 > [2001:db8::4]:2222"),
        (("203.0.113.9", 1, "198.51.100.7", 22), "eth0", "tcp 203.0.113.9:1 > 198.51.100.7:22"),
        (("203.0.113.9", 1, "198.51.100.8", 22), "eth0", "tcp 203.0.113.9:1 > 198.51.100.8:22"),
        (("fe80::9%eth2", 1, "fe80::4%eth2", 22), "eth2", "tcp [fe80::9]:1 > [fe80::4]:22"),
        (("10.244.0.7", 1, "10.0.1.4", 22), "veth1", "tcp 10.244.0.7:1 > 10.0.1.4:22"),
        (("10.0.1.4", 1, "10.0.1.4", 22), "", "tcp 10.0.1.4:1 > 10.0.1.4:22"),
    ],
    ids=["address of a link", "IPv6", "address of the loopback", "address of a dummy", "link-local", "pod", "the node itself"],
)
def test_the_controllers_packet_comes_in_as_that_of_a_trace_or_by_the_uplink(
    connection: tuple[str, int, str, int], link: str, shown: str
) -> None:
    trial = rehearsal_backend.of_connection(SshConnection(*connection), SNAPSHOT)
    assert trial and (trial.packet.interface, str(trial.packet), trial.keeps_link) == (link, shown, True)


def test_there_is_none_if_no_link_is_known() -> None:
    assert (
        rehearsal_backend.of_connection(SshConnection("203.0.113.9", 1, "198.51.100.7", 22), {"links": [], "routes": []}) is None
    )


def found(verdict: str, reply: str, by: str = "eth0", at: str = "") -> Way:
    reason = f"{verdict}, {reply}."
    return Way(verdict, at, None, reason, None, reply=Way(reply, by, None, reason, None))


def leaving(by: str, source: str, origin: str = "") -> Way:
    """A packet that leaves the node, and whose reply is delivered to the node."""
    frame = Frame(packet.from_options({"source": source, "destination": "198.51.100.7", "destination_port": 443}), b"", b"")
    reply = Way("delivered", "", None, "", None)
    return Way("forwarded", by, None, "", None, reply=reply, met=Met(frame, origin=origin))


@pytest.mark.parametrize(
    ("before", "after", "is_lost"),
    [
        (leaving("eth0", "10.0.0.4"), leaving("eth0", "10.0.0.4"), False),
        (leaving("eth0", "10.0.0.4"), leaving("eth1", "10.0.1.4", "eth1"), True),
        (leaving("eth0", "10.0.0.4"), leaving("eth1", "10.0.0.4", "eth0"), True),
        (leaving("eth0", "10.0.0.4"), leaving("eth0", "10.0.0.5"), True),
        (leaving("eth0", "10.42.0.4"), leaving("eth1", "10.42.0.4"), True),
        (leaving("eth0", "10.0.1.4", "eth1"), leaving("eth1", "10.0.1.4", "eth1"), False),
    ],
)
def test_a_packet_keeps_its_uplink_and_its_source_unless_it_is_led_to_that_of_its_source(
    before: Way, after: Way, is_lost: bool
) -> None:
    sent = packet.from_options({"destination": "198.51.100.7", "destination_port": 443})
    for keeps_path in (True, False):
        compared = rehearsal_backend.compare(Trial("x", sent, keeps_path=keeps_path), before, Answer(after))
        assert bool(compared.loss) is (is_lost and keeps_path)


def test_only_a_role_that_is_applied_keeps_the_paths_of_packets() -> None:
    """What undoes a role gives replies their former uplink back."""
    role = {"name": "symmetric_routing", "options": {"state": "present"}}
    roles: list[dict[str, Any]] = [
        role,
        {"name": "eni_policy_routing"},
        {**role, "options": {"state": "absent"}},
        {"modules": []},
    ]
    calls = [*(Call("profile", options) for options in roles), Call("policy_routes", {})]
    assert list(map(changes_backend.is_role, calls)) == [True, True, False, False, False]


def test_each_mark_of_another_program_is_tried_with_a_destination_of_its_table() -> None:
    rules = [
        {"priority": 900, "family": "ipv4", "fwmark": "0x4/0x4", "table": "77", "protocol": "static"},
        {"priority": 1200, "family": "ipv4", "fwmark": "0x2/0x6", "table": "1002", "protocol": "75"},
        {"priority": 32764, "family": "ipv6", "not": True, "fwmark": "0xca6c", "table": "51820", "protocol": "boot"},
        {"priority": 32766, "family": "ipv4", "table": "254", "protocol": "kernel"},
    ]
    routes = [{"family": "ipv4", "table": "77", "to": "192.168.7.0/24", "dev": "eth1"}]
    snapshot = {"rules": rules, "routes": routes}
    wireguard = [ForeignMark(7, 2**32 - 1, "the WireGuard link wg0"), ForeignMark(4, 2**32 - 1, "the WireGuard link wg1")]
    trials = rehearsal_backend.of_marks(snapshot, [Call("policy_routes", {"protocol": 75})], wireguard)
    assert [(trial.packet.mark, fields.show(trial.packet.destination)) for trial in trials] == [
        (4, "192.168.7.1"),
        (0xCA6C, "2001:db8:ffff::7"),
        (7, "198.51.100.7"),
    ]
    assert all(trial.keeps_path and not trial.is_asked for trial in trials)


WELL = found("delivered", "forwarded")
ELSEWHERE = found("forwarded", "forwarded", at="eth1")
BY_CHANCE = Answer(ELSEWHERE, branches=(Branch(0.5, WELL), Branch(0.5, ELSEWHERE)))


@pytest.mark.parametrize(
    ("before", "after", "is_lost", "told"),
    [
        (WELL, WELL, False, ""),
        (WELL, found("delivered", "dropped"), True, ""),
        (WELL, found("rejected", ""), True, ""),
        (WELL, found("delivered", "forwarded", "eth1"), True, ""),
        (WELL, found("forwarded", "forwarded", at="eth1"), True, ""),
        (WELL, found("delivered", "forwarded", at="veth1"), True, ""),
        (found("forwarded", "delivered", "veth1"), found("forwarded", "forwarded", "eth1"), True, ""),
        (WELL, BY_CHANCE, False, ""),
        (WELL, found("delivered", "unknown"), False, "cannot be rehearsed: delivered, unknown."),
        (found("dropped", ""), WELL, False, "does not arrive: dropped, . It arrives with them."),
        (found("dropped", ""), found("delivered", "dropped"), False, "dropped, . With them, too: delivered, dropped."),
    ],
    ids=[
        *("well", "reply", "packet", "other link", "leaves the node", "other pod", "reply leaves the node", "by chance"),
        *("unknown", "mended", "lost in both"),
    ],
)
def test_only_what_arrives_before_can_be_lost(before: Way, after: Way | Answer, is_lost: bool, told: str) -> None:
    trial = rehearsal_backend.of_connection(SshConnection("203.0.113.9", 1, "10.0.1.4", 22), SNAPSHOT)
    assert trial
    rehearsed = rehearsal_backend.compare(trial, before, Answer(after) if isinstance(after, Way) else after)
    assert bool(rehearsed.loss) is is_lost
    assert told in " ".join(rehearsal_backend.warnings([rehearsed])) and bool(told) is bool(
        [*rehearsal_backend.warnings([rehearsed])]
    )
    if is_lost:
        with pytest.raises(Refusal, match="the controller's SSH connection .* Nothing was changed"):
            rehearsal_backend.refuse_losses([rehearsed])
    else:
        rehearsal_backend.refuse_losses([rehearsed])


def test_another_packet_may_leave_by_another_link() -> None:
    trial = rehearsal_backend.of_connection(SshConnection("203.0.113.9", 1, "10.0.1.4", 22), SNAPSHOT)
    assert trial
    other = Trial("packets[0]", trial.packet)
    after = Answer(found("delivered", "forwarded", "eth1"))
    assert rehearsal_backend.compare(other, WELL, after) == Rehearsal(other, WELL, after, "")
