# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which packet stands for the controller's connection, and which loss refuses a change. The twins are in tests/integration."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Refusal
from ansible_collections.kubenode.datapath.plugins.module_utils._platform.processes import SshConnection
from ansible_collections.kubenode.datapath.plugins.module_utils._trace import rehearsal_backend
from ansible_collections.kubenode.datapath.plugins.module_utils._trace.answer import Answer, Branch, Way
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
