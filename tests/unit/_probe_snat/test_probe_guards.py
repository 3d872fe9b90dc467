# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A unit of AgentBaker that loads the table, and whether a node needs the table, by the CNI and the programs observed on it."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._core.converge import converge
from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Failure, Refusal
from ansible_collections.kubenode.datapath.plugins.module_utils._core.plan import Outcome, Plane
from ansible_collections.kubenode.datapath.plugins.module_utils._nftables.nft_table import UNREAD, Table
from ansible_collections.kubenode.datapath.plugins.module_utils._nftables.table_resource import HandedOverTable, LiveTable
from ansible_collections.kubenode.datapath.plugins.module_utils._probe_snat import agentbaker_resource
from ansible_collections.kubenode.datapath.plugins.module_utils._probe_snat.agentbaker_resource import UNIT, ReplacedUnit
from ansible_collections.kubenode.datapath.plugins.module_utils._probe_snat.probe_guards import (
    Cilium,
    NodeFacts,
    agent_baker,
    need,
    unknown,
)
from ansible_collections.kubenode.datapath.plugins.module_utils._probe_snat.probe_table import ProbeSnat
from unit.fakes import Broken, FakeUnits, RootedFiles

OURS = "kubenode-nft-ip6-azureSLBProbe.service"
SYSTEM = "etc/systemd/system"
DROP_IN = f"{SYSTEM}/{UNIT}.d/kubenode-nft-ip6-azureSLBProbe.conf"
TEXT = "[Service]\nExecStart={}\nRemainAfterExit=yes\nRestart=on-failure\n"


class Image:
    """A root with AgentBaker's unit, enabled and active, and the systemd that runs it."""

    def __init__(self, root: Path, is_running: bool = True, command: str = "/bin/true") -> None:
        self.root = root
        (root / SYSTEM / "multi-user.target.wants").mkdir(parents=True)
        (root / SYSTEM / UNIT).write_text(TEXT.format(command))
        (root / SYSTEM / "multi-user.target.wants" / UNIT).symlink_to(f"../{UNIT}")  # resolves below the root
        self.files, self.units = RootedFiles(root), FakeUnits(root, is_running)
        if is_running:
            self.units.systemctl("daemon-reload")
            self.units.systemctl("start", UNIT)

    def hold(self, desired: bool, starts: bool = True, check: bool = False, fails: bool = False) -> Outcome:
        self.units.systemd.asked.clear()
        resources: list[t.Any] = [ReplacedUnit(self.files, self.units, OURS, desired, starts)]
        return converge([*resources, *([Broken()] if fails else [])], {Plane.PERMANENT}, check=check)

    @property
    def asked(self) -> list[str]:
        return [words for words in self.units.systemd.asked if not words.startswith("reset-failed")]

    def tree(self) -> dict[str, str]:
        return {str(path): path.read_text() for path in self.root.rglob("*") if path.is_file()}


@pytest.fixture
def image(tmp_path: Path) -> Image:
    return Image(tmp_path)


# The files on the node


def test_the_units_links_and_then_its_files_tell_what_the_image_has(image: Image) -> None:
    assert agentbaker_resource.state(image.files, image.units) == "enabled"
    (image.root / SYSTEM / "multi-user.target.wants" / UNIT).unlink()
    assert agentbaker_resource.state(image.files, image.units) == "disabled"
    (image.root / SYSTEM / UNIT).unlink()
    assert agentbaker_resource.state(image.files, image.units) == "absent"


@pytest.mark.parametrize("path", agentbaker_resource.FILES)
def test_each_of_its_files_alone_is_recognised(tmp_path: Path, path: str) -> None:
    (tmp_path / path[1:]).parent.mkdir(parents=True)
    (tmp_path / path[1:]).write_text("")
    assert agentbaker_resource.state(RootedFiles(tmp_path), FakeUnits(tmp_path)) == "disabled"


# The replacement


def test_the_unit_is_stopped_and_skipped_while_ours_is_enabled(image: Image) -> None:
    foreseen = image.hold(True, check=True)
    assert image.asked == []
    result = image.hold(True)
    assert result.changed and result.diff() == foreseen.diff()
    assert image.asked == ["daemon-reload", f"stop {UNIT}"]
    condition = (image.root / DROP_IN).read_text().splitlines()[1:]
    assert condition == ["[Unit]", f"ConditionPathExists=!/{SYSTEM}/multi-user.target.wants/{OURS}"]
    assert not image.hold(True).changed and image.asked == []


def test_the_way_back_starts_the_unit_before_its_record_goes(image: Image) -> None:
    before = image.tree()
    image.hold(True)
    assert image.hold(False).changed
    assert image.asked == [f"start {UNIT}", "daemon-reload"]
    assert image.tree() == before
    assert not image.hold(False).changed and image.asked == []


def test_a_unit_that_runs_beside_ours_again_is_drift(image: Image) -> None:
    image.hold(True)
    image.units.systemctl("start", UNIT)
    foreseen = image.hold(True, check=True).diff()
    assert (foreseen[0]["before"], foreseen[0]["after"]) == (f"# {UNIT}: active\n", f"# {UNIT}: inactive\n")
    assert image.hold(True).changed and image.asked == [f"stop {UNIT}"]


def test_a_run_that_fails_starts_the_unit_again(image: Image) -> None:
    before = image.tree()
    with pytest.raises(Failure, match="All changes were undone"):
        image.hold(True, fails=True)
    assert image.tree() == before and image.units.is_active(UNIT)


def test_a_way_back_that_fails_replaces_the_unit_again(image: Image) -> None:
    image.hold(True)
    before = image.tree()
    with pytest.raises(Failure, match="All changes were undone"):
        image.hold(False, fails=True)
    assert image.tree() == before and not image.units.is_active(UNIT)


def test_a_start_that_fails_does_not_fail_the_way_back(tmp_path: Path) -> None:
    image = Image(tmp_path, command="/bin/false")
    image.hold(True)
    assert image.hold(False).changed and not (tmp_path / DROP_IN).exists()
    assert image.units.state(UNIT).waits_to_try_again
    assert not image.hold(False).changed


def test_a_unit_that_was_disabled_meanwhile_is_not_started(image: Image) -> None:
    image.hold(True)
    (image.root / SYSTEM / "multi-user.target.wants" / UNIT).unlink()
    assert image.hold(False).changed and image.asked == ["daemon-reload"]


def test_without_starts_only_the_next_boot_changes(image: Image) -> None:
    image.hold(True, starts=False)
    assert image.asked == ["daemon-reload"] and image.units.is_active(UNIT)
    assert not image.hold(True, starts=False).changed
    image.units.systemctl("stop", UNIT)
    image.hold(False, starts=False)
    assert image.asked == ["daemon-reload"]


def test_an_image_needs_no_systemd(tmp_path: Path) -> None:
    image = Image(tmp_path, is_running=False)
    before = image.tree()
    assert image.hold(True).changed and not image.hold(True).changed
    assert image.hold(False).changed and image.tree() == before
    assert image.asked == []


def test_a_drop_in_of_the_operator_is_not_replaced(image: Image) -> None:
    path = image.root / DROP_IN
    path.parent.mkdir()
    path.write_text("[Service]\n")
    with pytest.raises(Refusal, match="set agentbaker to report"):
        image.hold(True)
    assert not image.hold(False).changed and path.exists()


# The refusal beside AgentBaker's unit, and the table that it takes over


@pytest.mark.parametrize("desired", [ProbeSnat(name="other"), ProbeSnat(interface="eth1"), ProbeSnat(priority=-290)])
def test_another_table_beside_the_unit_is_refused_with_both_ways_out(desired: ProbeSnat) -> None:
    assert list(agent_baker(ProbeSnat(), None)) == []
    with pytest.raises(Refusal, match="set agentbaker to take_over, permanent to true and table to azureSLBProbe") as refused:
        list(agent_baker(desired, None))
    assert desired.summary() in str(refused.value)


class Tables:
    """An nft that lists one table. An exception stands for a listing that fails."""

    def __init__(self, table: Table | Failure | None, text: str = "table\n") -> None:
        self._table = table
        self._text = text

    def read(self, _family: str, _name: str) -> Table | None:
        if isinstance(self._table, Failure):
            raise self._table
        return self._table

    def text(self, _family: str, _name: str) -> str:
        return self._text


THEIRS = ProbeSnat().table()


@pytest.mark.parametrize(
    ("found", "text", "expected"),
    [
        (ProbeSnat(priority=-290).table(), "table\n", ["replace table ip6 azureSLBProbe"]),
        (THEIRS, "table\n", []),
        (None, "", []),
        (Table("ip6", "azureSLBProbe", frozenset(), frozenset({UNREAD})), "", []),  # nft is not installed
        (Failure("broken"), "", []),
    ],
    ids=["another", "theirs", "none", "no nft", "unreadable"],
)
def test_a_table_is_handed_over_only_if_it_is_loaded_and_differs(
    found: Table | Failure | None, text: str, expected: list[str]
) -> None:
    current: LiveTable = HandedOverTable(t.cast(t.Any, Tables(found, text)), "ip6", "azureSLBProbe", THEIRS)
    assert [step.summary for step in current.plan(current.observe()).steps] == expected


ADDRESSES = {"eth0": ["2001:db8::1"]}
NODE = NodeFacts("eth0", ADDRESSES, [], None, None)
TAKING = Cilium("the source", True, ("tc cil_from_netdev-eth0",))

VERDICTS: list[tuple[dict[str, t.Any], str, list[str]]] = [
    ({}, "possible", ["eth0 has a global IPv6 address.", "was not looked at"]),
    ({"owner": "a.service"}, "possible", ["eth0 has", "a.service of the node's image loads the table.", "was not looked at"]),
    ({"addresses": {"br-ex": ["2001:db8::2"]}}, "possible", ["eth0 has no global IPv6 address", "was not looked at"]),
    ({"addresses": {}}, "unneeded", ["No link of the node has a global IPv6 address"]),
    ({"translators": ["a sign"]}, "unneeded", ["known by a sign."]),
    ({"translators": ["a sign"], "cilium": TAKING}, "unneeded", ["known by a sign.", "the table has no effect."]),
    ({"cilium": TAKING}, "ineffective", ["eth0 carries Cilium's BPF programs tc cil_from_netdev-eth0, and by the source"]),
    ({"cilium": TAKING._replace(serves_ipv6_node_ports=False)}, "possible", ["eth0 has", "was not looked at"]),
    ({"cilium": Cilium("the source", True, ())}, "possible", ["eth0 has", "none of its BPF programs", "was not looked at"]),
    ({"cilium": Cilium("", None, ())}, "possible", ["eth0 has", "was not looked at"]),
    ({"cilium": Cilium("", None, ("tcx a",))}, "possible", ["eth0 has", "options were not found", "was not looked at"]),
]


@pytest.mark.parametrize(("seen", "verdict", "parts"), VERDICTS)
def test_the_verdict_and_its_reasons(seen: dict[str, t.Any], verdict: str, parts: list[str]) -> None:
    found = need(NODE._replace(**seen))
    assert found.verdict == verdict
    assert len(found.reasons) == len(parts) and all(part in reason for part, reason in zip(parts, found.reasons))


def test_nothing_is_said_of_what_was_not_looked_at() -> None:
    found = unknown("a reason")
    assert found.verdict == "unknown" and found.reasons == ["The node's addresses and BPF programs were not looked at: a reason."]
