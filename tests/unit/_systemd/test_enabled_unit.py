# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A unit is placed, enabled, and seen active; its state after the start decides the result of the run."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._core.converge import converge
from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Failure
from ansible_collections.kubenode.datapath.plugins.module_utils._core.plan import Outcome, Plane
from ansible_collections.kubenode.datapath.plugins.module_utils._listener import policy_unit
from ansible_collections.kubenode.datapath.plugins.module_utils._nftables import table_unit
from ansible_collections.kubenode.datapath.plugins.module_utils._systemd import units
from ansible_collections.kubenode.datapath.plugins.module_utils._systemd.boot_unit import (
    BootUnit,
    UnitState,
    UnitVerdict,
    interpreter,
    loaded_path,
)
from ansible_collections.kubenode.datapath.plugins.module_utils._systemd.unit_resource import EnabledUnit
from unit.fakes import Broken, FakeUnits, RootedFiles

PYTHON = "/usr/bin/python3"
TABLE = table_unit.unit("ip6", "t", "/etc/t")
ASKING = table_unit.unit("ip6", "t", "/etc/t", table_unit.BootCondition("imds", "eth0", PYTHON, "/etc/t.pyz"))
ROUTES = policy_unit.unit(75, "/etc/x", PYTHON, "/etc/x.pyz", "1")
RESET = "[Service]\nExecStart=\nExecStart={}\n"


class Node:
    """A root, and the systemd that runs it."""

    def __init__(self, root: Path, is_running: bool = True) -> None:
        self.root = root
        self.units = FakeUnits(root, is_running)

    def hold(
        self, unit: BootUnit, *, desired: bool = True, starts: bool = True, check: bool = False, fails: bool = False
    ) -> Outcome:
        self.units.systemd.asked.clear()
        is_resident = unit.name == ROUTES.name
        current = EnabledUnit(RootedFiles(self.root), self.units, unit, desired, starts, is_resident)
        return converge([current, *([Broken()] if fails else [])], {Plane.PERMANENT}, check=check)

    @property
    def asked(self) -> list[str]:
        return [words for words in self.units.systemd.asked if not words.startswith("reset-failed")]

    def drop_in(self, unit: BootUnit, text: str) -> None:
        path = self.root / f"etc/systemd/system/{unit.name}.d/operator.conf"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)

    def files(self) -> set[str]:
        return {str(path.relative_to(self.root)) for path in self.root.rglob("*.service") if not path.is_dir()}


@pytest.fixture
def node(tmp_path: Path) -> Node:
    (tmp_path / "etc/systemd/system").mkdir(parents=True)
    return Node(tmp_path)


UNITS = pytest.mark.parametrize("unit", [TABLE, ASKING, ROUTES], ids=["table", "table with a condition", "routes"])


@UNITS
def test_a_unit_is_placed_started_and_then_left(node: Node, unit: BootUnit) -> None:
    assert node.hold(unit).changed
    assert node.asked == ["daemon-reload", f"start {unit.name}"]
    assert node.units.verdict(unit.name) is UnitVerdict.ACTIVE
    assert not node.hold(unit).changed and node.units.systemd.asked == []


@UNITS
def test_a_unit_that_fails_at_its_start_fails_the_run_and_nothing_of_it_is_left(node: Node, unit: BootUnit) -> None:
    node.drop_in(unit, RESET.format("/bin/false"))
    before = node.files()
    with pytest.raises(Failure) as failed:
        node.hold(unit)
    assert f"{unit.name} was started and should be active, but is " in str(failed.value)
    assert "exit-code" in str(failed.value) and "journal" in str(failed.value)
    assert node.files() == before
    assert node.units.systemd.states == {}


@UNITS
def test_a_unit_that_failed_after_a_good_run_is_drift_and_is_mended(node: Node, unit: BootUnit) -> None:
    node.hold(unit)
    node.units.systemd.states[unit.name] = UnitState("failed", "failed", "exit-code", "0")
    foreseen = node.hold(unit, check=True)
    assert node.units.systemd.asked == []
    assert foreseen.diff()[0]["before"] == f"# {unit.name}: failed\n"
    result = node.hold(unit)
    assert result.changed and result.diff() == foreseen.diff()
    assert not node.hold(unit).changed


@UNITS
def test_a_unit_that_still_fails_fails_each_run_and_stays_enabled(node: Node, unit: BootUnit) -> None:
    node.hold(unit)
    node.drop_in(unit, RESET.format("/bin/false"))
    node.units.perform(units.Reload())
    node.units.systemd.states[unit.name] = UnitState("failed", "failed", "exit-code", "0")
    for _run in range(3):
        assert node.hold(unit, check=True).changed
        with pytest.raises(Failure, match="but is (failed|activating)"):
            node.hold(unit)
    assert f"etc/systemd/system/{unit.name}" in node.files()


@UNITS
def test_a_unit_that_was_stopped_is_started(node: Node, unit: BootUnit) -> None:
    node.hold(unit)
    del node.units.systemd.states[unit.name]
    assert node.hold(unit).changed and not node.hold(unit).changed


def test_a_unit_that_waits_to_be_tried_again_is_not_waited_for(node: Node) -> None:
    """A start would stay queued until systemd's own next try."""
    node.hold(ROUTES)
    node.units.systemd.states[ROUTES.name] = UnitState("activating", "auto-restart", "exit-code", "0")
    assert node.hold(ROUTES).changed
    assert node.asked == [f"restart {ROUTES.name}"]


def test_a_unit_that_is_skipped_is_as_it_should_be(node: Node) -> None:
    node.drop_in(ASKING, "[Service]\nExecCondition=\nExecCondition=/bin/false\n")
    assert node.hold(ASKING).changed
    assert node.units.verdict(ASKING.name) is UnitVerdict.SKIPPED
    assert not node.hold(ASKING).changed and not node.hold(ASKING, check=True).changed


def test_a_unit_that_does_not_come_up_is_given_up(node: Node) -> None:
    node.drop_in(ROUTES, RESET.format("/bin/sleep"))
    with pytest.raises(Failure, match="activating .* after 0.05 s"):
        node.hold(ROUTES)
    assert node.units.systemd.states == {}


@UNITS
def test_while_the_node_boots_a_queued_start_is_said_to_be_unseen(
    node: Node, unit: BootUnit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(units, "GRACE", 0.0)
    node.units.systemd.is_booting = True
    assert node.hold(unit).changed
    assert len(node.units.warnings) == 1 and "was not seen" in node.units.warnings[0]
    assert not node.hold(unit).changed
    node.units.systemd.boot()
    assert not node.hold(unit).changed and node.units.verdict(unit.name) is UnitVerdict.ACTIVE


def test_a_unit_that_is_not_to_be_started_is_placed_alone(node: Node) -> None:
    for unit in (TABLE, ROUTES):
        assert node.hold(unit, starts=False).changed
        assert node.asked == ["daemon-reload"]
        assert not node.hold(unit, starts=False).changed


def test_without_systemd_a_unit_is_placed_alone(tmp_path: Path) -> None:
    (tmp_path / "etc/systemd/system").mkdir(parents=True)
    node = Node(tmp_path, is_running=False)
    assert node.hold(ROUTES).changed and not node.hold(ROUTES).changed
    assert node.hold(ROUTES, desired=False).changed


def test_a_resident_is_restarted_with_another_program_and_stopped(node: Node) -> None:
    other = policy_unit.unit(75, "/etc/x", PYTHON, "/etc/x.pyz", "2")
    node.hold(ROUTES)
    assert node.hold(other, starts=False).changed
    assert node.asked == ["daemon-reload"]  # the running kernel is not changed
    other = policy_unit.unit(75, "/etc/x", PYTHON, "/etc/x.pyz", "3")
    assert node.hold(other).changed
    assert node.asked == ["daemon-reload", f"restart {other.name}"]
    assert node.hold(other, desired=False).changed
    assert node.asked == ["daemon-reload", f"stop {other.name}"]
    assert node.units.systemd.states == {} and not node.files()


def test_absent_ends_a_resident_whose_file_went_with_a_killed_run(node: Node) -> None:
    node.hold(ROUTES)
    for path in [*node.root.rglob("kubenode-policy-routes-75*")]:
        path.unlink()
    assert node.hold(ROUTES, desired=False).changed
    assert not node.units.is_active(ROUTES.name)
    assert not node.hold(ROUTES, desired=False).changed


def test_a_run_that_fails_later_leaves_systemd_as_it_was(node: Node) -> None:
    with pytest.raises(Failure):
        node.hold(ROUTES, fails=True)
    assert node.units.systemd.states == {} and not node.files()
    node.hold(ROUTES)
    for change in (policy_unit.unit(75, "/etc/x", PYTHON, "/etc/x.pyz", "2"), ROUTES):
        with pytest.raises(Failure):
            node.hold(change, desired=change is not ROUTES, fails=True)
        assert node.units.verdict(ROUTES.name) is UnitVerdict.ACTIVE
        assert not node.hold(ROUTES).changed


def test_a_table_that_was_loaded_before_outlives_a_run_that_fails(node: Node) -> None:
    """The unit is stopped after its file was removed, so that its ExecStop= does not delete the former table."""
    with pytest.raises(Failure):
        node.hold(TABLE, fails=True)
    assert node.asked == ["daemon-reload", f"start {TABLE.name}", "daemon-reload", f"stop {TABLE.name}"]


def test_an_operation_on_other_objects_than_units_is_refused(node: Node) -> None:
    for nonsense in (None, "daemon-reload", ROUTES):
        with pytest.raises(TypeError, match="is no operation on units"):
            node.units.perform(nonsense)  # type: ignore[arg-type]
    with pytest.raises(Failure, match="not found"):
        node.units.perform(units.Start("unknown.service"))
    node.units.perform(units.Forget("unknown.service"))


STATES = {
    UnitState("active", "exited", "success", "0"): UnitVerdict.ACTIVE,
    UnitState("active", "running", "success", ""): UnitVerdict.ACTIVE,
    UnitState("active", "running", "success", "12"): UnitVerdict.STARTING,
    UnitState("reloading", "reload", "success", "0"): UnitVerdict.ACTIVE,
    UnitState("activating", "start-pre", "success", "12"): UnitVerdict.STARTING,
    UnitState("activating", "start", "success", "0"): UnitVerdict.STARTING,
    UnitState("activating", "auto-restart", "exit-code", "0"): UnitVerdict.FAILED,
    UnitState("activating", "auto-restart", "exit-code", "12"): UnitVerdict.STARTING,
    UnitState("activating", "auto-restart-queued", "exit-code", "12"): UnitVerdict.STARTING,
    UnitState("deactivating", "stop-sigterm", "success", "0"): UnitVerdict.STARTING,
    UnitState("failed", "failed", "timeout", "0"): UnitVerdict.FAILED,
    UnitState("failed", "failed", "timeout", "12"): UnitVerdict.STARTING,
    UnitState("inactive", "dead", "exec-condition", "0"): UnitVerdict.SKIPPED,
    UnitState("inactive", "dead", "success", "0"): UnitVerdict.INACTIVE,
    UnitState("inactive", "dead", "success", "12"): UnitVerdict.STARTING,
}


@pytest.mark.parametrize(("state", "verdict"), STATES.items(), ids=map(str, STATES))
def test_each_state_of_a_unit_has_its_verdict(state: UnitState, verdict: UnitVerdict) -> None:
    assert state.verdict is verdict


def test_units_tell_what_they_load_and_by_which_python() -> None:
    assert [(loaded_path(unit.text), interpreter(unit.text)) for unit in (TABLE, ASKING, ROUTES)] == [
        ("/etc/t", ""),
        ("/etc/t", PYTHON),
        ("/etc/x", PYTHON),
    ]


def test_the_shell_of_a_condition_gets_the_question_as_words() -> None:
    """A shell would expand ~root, which is a valid name of a link, to a folder."""
    condition = table_unit.BootCondition("address", "~root", PYTHON, "/etc/~root.pyz")
    (line,) = [line for line in table_unit.unit("ip6", "t", "/etc/t", condition).text.splitlines() if "Condition" in line]
    script, _quote, words = line.removeprefix("ExecCondition=/bin/sh -c '").rpartition("'")
    assert "root" not in script and PYTHON not in script
    assert words == f" sh {PYTHON} -I -S -B /etc/~root.pyz address ~root 30"
