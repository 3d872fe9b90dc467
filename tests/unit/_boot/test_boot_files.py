# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The files that a unit loads: wherever a run is killed, the next one completes or undoes it. On a real file system."""

from __future__ import annotations

import os
import re
import shutil
import typing as t
from pathlib import Path

import pytest
from sampling import sampled

from ansible_collections.kubenode.datapath.plugins.module_utils._boot import boot_files
from ansible_collections.kubenode.datapath.plugins.module_utils._core import names
from ansible_collections.kubenode.datapath.plugins.module_utils._core.converge import converge
from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Failure, Invalid, Refusal
from ansible_collections.kubenode.datapath.plugins.module_utils._core.plan import Plane, Resource
from ansible_collections.kubenode.datapath.plugins.module_utils._files import files
from ansible_collections.kubenode.datapath.plugins.module_utils._listener import boot_policy
from ansible_collections.kubenode.datapath.plugins.module_utils._listener.boot_policy import BootPolicy
from ansible_collections.kubenode.datapath.plugins.module_utils._nftables import nft_backend, table_unit
from ansible_collections.kubenode.datapath.plugins.module_utils._nftables.table_resource import BootTable
from ansible_collections.kubenode.datapath.plugins.module_utils._routing import policy
from ansible_collections.kubenode.datapath.plugins.module_utils._systemd import units
from unit.fakes import FakeUnits, RootedFiles
from unit.killed_run import Killed, Mortal

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="files are given to root")

RULES = [{"priority": 700, "from": "10.0.1.5", "table": "1003"}]
TABLE_UNIT = "kubenode-nft-ip6-probe.service"
ROUTES_UNIT = "kubenode-policy-routes-75.service"


@pytest.fixture(autouse=True)
def cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test needs files to survive a crash, and none runs the program."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    monkeypatch.setattr(boot_policy, "archive", lambda name: "program")
    monkeypatch.setattr(units, "rehearse", lambda operation: None)


class Accepting:
    """An nft that finds every script right."""

    OPERATIONS = (nft_backend.Check,)

    def checking(self, text: str) -> nft_backend.Check:
        return nft_backend.Check(text)

    def perform(self, operation: nft_backend.Check) -> None:
        """Accept the script."""


def table(root: Path, path: str, is_present: bool, script: str = "one", is_asking: bool = True) -> list[Resource]:
    """The table of the module that also has a boot program. is_asking: whether the program decides at boot."""
    systemd = t.cast(units.Units, FakeUnits(root, is_running=False))
    boot = BootTable(RootedFiles(root), systemd, "ip6", "probe", path)
    asks = table_unit.BootCondition("address", "eth0", "/usr/bin/python3", boot.program)
    text = f"table ip6 probe {{}}\n# {script}\n" if is_present else None
    accepting = t.cast(nft_backend.Nft, Accepting())
    condition, program = (asks, "program") if is_present and is_asking else (None, None)
    return boot.resources(text, accepting, starts=False, condition=condition, program=program)


def routes(root: Path, path: str, is_present: bool) -> list[Resource]:
    systemd = t.cast(units.Units, FakeUnits(root, is_running=False))
    desired = policy.from_options(75, RULES if is_present else [], [], {})
    return BootPolicy(RootedFiles(root), systemd, 75, path, {}).resources(desired, starts=False)


Build = t.Callable[[Path, str, bool], list[Resource]]


def run(resources: list[Resource]) -> bool:
    return converge(resources, {Plane.PERMANENT}).changed


def tree(root: Path) -> dict[str, tuple[int, str]]:
    """Every path below a root, with its mode, and its text or target."""

    def content(path: Path) -> str:
        if path.is_symlink():
            return os.readlink(path)
        return path.read_text() if path.is_file() else ""

    return {str(path.relative_to(root)): (path.lstat().st_mode, content(path)) for path in sorted(root.rglob("*"))}


ONE, BESIDE, ELSEWHERE = "/etc/kubenode/one", "/etc/kubenode/two", "/etc/elsewhere/one"
WITHIN, OPERATORS, THIRD = "/etc/kubenode/within/one", "/etc/operators/one", "/etc/third/one"

# The paths of earlier runs, and the path of the run that is killed; None for absent.
CHANGES: dict[str, tuple[list[str], str | None]] = {
    "create": ([], ONE),
    "move within the folder": ([ONE], BESIDE),
    "move to another folder": ([ONE], ELSEWHERE),
    "move to a folder within": ([ONE], WITHIN),
    "move from a folder within": ([ONE, WITHIN], ONE),
    "move to an operator's folder": ([ONE], OPERATORS),
    "move to the program's place": ([ONE], f"{ONE}.pyz"),
    "absent": ([ONE], None),
    "absent in an operator's folder": ([OPERATORS], None),
    "absent in a folder within": ([ONE, WITHIN], None),
}


# For these, every next run is tried after each kill; for the others, one next run.
THOROUGH = ("create", "move within the folder", "move to another folder", "absent")


class Machine:
    """A node with an operator's folder that is not empty."""

    def __init__(self, root: Path, build: Build) -> None:
        self.root = root
        self._build = build
        for folder in ("etc/systemd/system", "etc/operators"):
            (root / folder).mkdir(parents=True)
        (root / "etc/operators/site").write_text("mine\n")

    def resources(self, path: str | None, at: str = ONE) -> list[Resource]:
        """at: the path with which absent runs."""
        return self._build(self.root, path or at, path is not None)

    def prepare(self, paths: t.Iterable[str]) -> Machine:
        for path in paths:
            self.hold(path)
        return self

    def hold(self, path: str | None, at: str = ONE) -> bool:
        return run(self.resources(path, at))


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("build", "change"),
    [
        *((table, change) for change in CHANGES),
        (routes, "create"),
        (routes, "move to another folder"),
        (routes, "absent"),
    ],
)
def test_a_run_killed_at_any_system_call_is_completed_or_undone_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, build: Build, change: str
) -> None:
    """The next run is the same one, absent with any path or none, or present with a third path."""
    former, path = CHANGES[change]
    goals: dict[str | None, dict[str, tuple[int, str]]] = {}
    for target in dict.fromkeys((None, path, THIRD)):
        machine = Machine(tmp_path / f"goal {len(goals)}", build).prepare(former)
        machine.hold(target)
        goals[target] = tree(machine.root)
    given = [*former[-1:], *([path] if path else []), THIRD]
    ways: list[tuple[str | None, str]] = [(path, given[0]), (THIRD, given[0]), *((None, at) for at in given)]
    last, lived = 0, False
    while not lived:
        last += 1
        for number, (target, at) in enumerate(ways if change in THOROUGH else [ways[last % len(ways)]]):
            machine = Machine(tmp_path / f"{last} {number}", build).prepare(former)
            lived = Mortal(monkeypatch, last).lives(run, machine.resources(path, given[0]))
            machine.hold(target, at)
            assert tree(machine.root) == goals[target], f"killed at call {last}, then {target} with {at}"
            assert not machine.hold(target, at)
            shutil.rmtree(machine.root)
    assert last > 10


@pytest.mark.parametrize(("build", "call"), [(table, 19), (routes, 7)])
def test_a_foreign_file_is_left_where_a_killed_run_was_about_to_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, build: Build, call: int
) -> None:
    machine = Machine(tmp_path, build)
    clean = tree(tmp_path)
    assert not Mortal(monkeypatch, call).lives(run, machine.resources(OPERATORS))
    assert (tmp_path / boot_files.record(TABLE_UNIT if build is table else ROUTES_UNIT)[1:]).exists()
    theirs = tmp_path / OPERATORS[1:]
    theirs.unlink(missing_ok=True)
    theirs.write_text("mine\n")
    machine.hold(None)
    assert theirs.read_text() == "mine\n"
    theirs.unlink()
    assert tree(tmp_path) == clean


@pytest.mark.parametrize("build", [table, routes])
def test_a_folder_stays_with_what_an_operator_put_into_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, build: Build) -> None:
    last, lived = 0, False
    while not lived:
        last += 1
        machine = Machine(tmp_path / str(last), build)
        machine.hold(ONE)
        theirs = machine.root / "etc/kubenode/site"
        theirs.write_text("mine\n")
        lived = Mortal(monkeypatch, last).lives(run, machine.resources(ELSEWHERE))
        machine.hold(None)
        remaining = {path for path in tree(machine.root / "etc") if path.startswith(("kubenode", "elsewhere"))}
        assert remaining == {"kubenode", "kubenode/.kubenode", "kubenode/site"} and theirs.read_text() == "mine\n"
        assert not machine.hold(None)


@pytest.mark.parametrize("build", [table, routes])
def test_a_run_that_waited_for_another_knows_what_that_one_has_placed(tmp_path: Path, build: Build) -> None:
    """Both runs have observed the node before either changed it."""
    machine = Machine(tmp_path, build)
    machine.hold(ONE)
    waiting = machine.resources(ELSEWHERE)
    for resource in waiting:
        resource.observe()
    machine.hold(BESIDE)
    run(waiting)
    assert {path for path in tree(tmp_path / "etc") if "/one" in path or "/two" in path} == {
        "elsewhere/one",
        "elsewhere/one.pyz",
    }


def test_a_unit_of_a_former_version_is_known_by_its_text(tmp_path: Path) -> None:
    machine = Machine(tmp_path, table)
    clean = tree(tmp_path)
    machine.hold(ELSEWHERE)
    assert not [path for path in tree(tmp_path) if path.endswith(".files")]  # the unit alone names the file
    machine.hold(None)
    assert tree(tmp_path) == clean


def test_what_the_unit_loads_goes_whatever_is_in_it(tmp_path: Path) -> None:
    machine = Machine(tmp_path, table)
    clean = tree(tmp_path)
    machine.hold(ELSEWHERE)
    (tmp_path / ELSEWHERE[1:]).write_text("edited")
    machine.hold(None)
    assert tree(tmp_path) == clean


@pytest.mark.parametrize("text", ["", "\0", "nonsense\n/etc/../x\n/run/x\n/etc/systemd/system/x\n", '{"a": 1}'])
def test_a_record_that_cannot_be_read_stops_no_run(tmp_path: Path, text: str) -> None:
    machine = Machine(tmp_path, table)
    clean = tree(tmp_path)
    record = tmp_path / boot_files.record(TABLE_UNIT)[1:]
    for target in (ONE, None):
        record.write_text(text)
        assert machine.hold(target) and not record.exists()
        assert not machine.hold(target)
    assert tree(tmp_path) == clean


REFUSED = ("/run/former/one", "/etc/former.d/one", "/etc/udev/one", "/etc/systemd/system/one", "/usr/lib/systemd/former/one")


@pytest.mark.parametrize("path", sampled(REFUSED, lambda path: path == REFUSED[0]))
@pytest.mark.parametrize("build", [table, routes])
def test_absent_removes_ours_where_present_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, build: Build, path: str
) -> None:
    """A version without this refusal has placed the file; the unit loads it, or the record of a killed run names it."""
    last, lived = 0, False
    while not lived:
        last += 1
        machine = Machine(tmp_path / str(last), build)
        for folder in ("run", "etc/udev", "usr/lib/systemd"):
            (machine.root / folder).mkdir(parents=True)
        clean = tree(machine.root)
        with pytest.raises(Invalid, match="path must be in or below a folder that is named kubenode"):
            names.boot_path(path, is_present=True)
        assert names.boot_path(path, is_present=False) == path and not machine.hold(None, path)
        lived = Mortal(monkeypatch, last).lives(run, machine.resources(path))
        machine.hold(None, path if last % 2 else ONE)
        assert tree(machine.root) == clean, f"killed at call {last}"
    assert last > 10


@pytest.mark.parametrize("path", REFUSED)
@pytest.mark.parametrize("build", [table, routes])
def test_absent_leaves_a_foreign_file_where_present_is_refused(tmp_path: Path, build: Build, path: str) -> None:
    machine = Machine(tmp_path, build)
    theirs = tmp_path / path[1:]
    theirs.parent.mkdir(parents=True, exist_ok=True)
    theirs.write_text("[Unit]\n")
    before = tree(tmp_path)
    assert not machine.hold(None, path) and tree(tmp_path) == before


@pytest.mark.parametrize("build", [table, routes])
@pytest.mark.parametrize("change", sampled(CHANGES, lambda change: change in ("move to another folder", "absent")))
def test_a_step_that_fails_leaves_the_node_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, build: Build, change: str
) -> None:
    former, path = CHANGES[change]
    goal = Machine(tmp_path / "goal", build).prepare(former)
    goal.hold(path)
    last, performed = 0, 0
    while performed >= last:
        last, performed = last + 1, 0
        machine = Machine(tmp_path / str(last), build).prepare(former)
        before = tree(machine.root)

        def failing(backend: RootedFiles, operation: t.Any, perform: t.Any = RootedFiles.perform, at: int = last) -> None:
            nonlocal performed
            performed += 1
            if performed == at:
                raise Failure("No space left on device")
            perform(backend, operation)

        with monkeypatch.context() as patch:
            patch.setattr(RootedFiles, "perform", failing)
            try:
                machine.hold(path)
            except Failure as failure:
                assert "No space left" in str(failure) and "Still to undo" not in str(failure)
                assert tree(machine.root) == before
            else:  # all was done, or absent went on without its record
                assert tree(machine.root) == tree(goal.root) and (performed < last or not path)
    assert last > 4


@pytest.mark.parametrize("build", [table, routes])
def test_absent_needs_no_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, build: Build) -> None:
    clean = tree(Machine(tmp_path / "clean", build).root)
    machine = Machine(tmp_path / "full", build).prepare([ELSEWHERE])

    def full(backend: RootedFiles, operation: t.Any, perform: t.Any = RootedFiles.perform) -> None:
        if isinstance(operation, files.Put):
            raise Failure("No space left on device")
        perform(backend, operation)

    monkeypatch.setattr(RootedFiles, "perform", full)
    assert machine.hold(None) and tree(machine.root) == clean


@pytest.mark.thorough
@pytest.mark.parametrize("change", ["create", "move to another folder", "absent"])
def test_a_run_killed_while_it_undoes_what_it_did_is_completed_or_undone_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """The run fails at each operation, and is killed at each operation that undoes an earlier one."""
    former, path = CHANGES[change]
    clean = tree(Machine(tmp_path / "clean", table).root)
    fails, has_failed = 0 if path else 1, True  # absent goes on when its record cannot be written
    while has_failed:
        fails, dies, has_died = fails + 1, 0, True
        while has_died and has_failed:
            dies += 1
            machine = Machine(tmp_path / f"{fails} {dies}", table).prepare(former)
            outcome = failing_and_killed(monkeypatch, machine.resources(path), fails, dies)
            has_failed, has_died = outcome is not None, outcome is Killed
            machine.hold(None, ONE if dies % 2 else THIRD)
            assert tree(machine.root) == clean, f"failed at operation {fails}, killed {dies} after it"
            assert not machine.hold(None)
    assert fails > 4


def failing_and_killed(
    monkeypatch: pytest.MonkeyPatch, resources: list[Resource], fails: int, dies: int
) -> type[BaseException] | None:
    """The exception that ended a run whose operation ``fails`` fails, and that is killed ``dies`` operations later."""
    performed = 0
    perform = RootedFiles.perform

    def ending(backend: RootedFiles, operation: t.Any) -> None:
        nonlocal performed
        performed += 1
        if performed == fails:
            raise Failure("No space left on device")
        if performed >= fails + dies:
            raise Killed
        perform(backend, operation)

    with monkeypatch.context() as patch:
        patch.setattr(RootedFiles, "perform", ending)
        try:
            run(resources)
        except (Failure, Killed) as end:
            return type(end)
    return None


@pytest.mark.parametrize("path", [ONE, BESIDE])
@pytest.mark.parametrize("is_asking", [True, False])
def test_a_boot_never_finds_a_unit_without_what_it_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_asking: bool, path: str
) -> None:
    """The unit begins to ask, or no longer asks, whether to load; the run is killed on the way."""
    last, lived = 0, False
    while not lived:
        last += 1
        root = Machine(tmp_path / str(last), table).root
        run(table(root, ONE, True, is_asking=not is_asking))
        lived = Mortal(monkeypatch, last).lives(run, table(root, path, True, is_asking=is_asking))
        unit = (root / f"etc/systemd/system/{TABLE_UNIT}").read_text()
        paths = set(re.findall(r"/etc/kubenode/[\w.]+", unit))
        assert paths and all((root / one[1:]).exists() for one in paths)


def test_a_refused_path_leaves_no_record(tmp_path: Path) -> None:
    machine = Machine(tmp_path, table)
    machine.hold(ONE)
    before = tree(tmp_path)
    with pytest.raises(Refusal, match="/etc/operators/site may not be replaced by this run"):
        machine.hold("/etc/operators/site")
    assert tree(tmp_path) == before


def test_a_changed_text_at_the_same_path_needs_no_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(table(Machine(tmp_path, table).root, ONE, True))
    written: list[str] = []
    perform = RootedFiles.perform

    def noting(backend: RootedFiles, operation: t.Any) -> None:
        written.append(operation.path)
        perform(backend, operation)

    monkeypatch.setattr(RootedFiles, "perform", noting)
    run(table(tmp_path, ONE, True, script="two"))
    assert written == [ONE]
