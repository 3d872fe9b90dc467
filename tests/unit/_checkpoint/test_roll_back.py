# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A step of a roll-back counts as undone when the node, read again, shows the former state."""

from __future__ import annotations

import json
import time
import typing as t
from pathlib import Path

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._checkpoint import checkpoint_backend, rollback_program
from ansible_collections.kubenode.datapath.plugins.module_utils._checkpoint.checkpoint import Armed, RolledBack
from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Failure, ForeignChange
from ansible_collections.kubenode.datapath.plugins.module_utils._core.plan import UndoBackend
from ansible_collections.kubenode.datapath.plugins.module_utils._files import files
from ansible_collections.kubenode.datapath.plugins.module_utils._nftables import nft_backend
from ansible_collections.kubenode.datapath.plugins.module_utils._platform import process, sysctl
from unit import journals

ARMED = Armed("id", "policy_routes", 0.0, 30, 0.0, (1, 1), (1, 1), (1, 1))


def replay(monkeypatch: pytest.MonkeyPatch, *operations: t.Any) -> RolledBack:
    """The roll-back of steps that are named by their numbers."""
    entries = [journals.entry(f"step {number}", one) for number, one in enumerate(operations)]
    monkeypatch.setattr(checkpoint_backend, "entries", lambda: entries)
    return rollback_program.replay(ARMED, "it was not confirmed")


def test_the_objects_that_are_restored_are_counted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "other").write_text("ours")
    put, remove = files.Put(f"{tmp_path}/one", files.Target("x")), files.Remove(f"{tmp_path}/other")
    told = replay(monkeypatch, put, remove)
    assert (told.steps, told.left, told.failed) == (2, (), ())


@pytest.mark.parametrize("jump", [-7200, 7200])
def test_a_clock_that_jumps_changes_the_age_of_no_checkpoint(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], jump: float
) -> None:
    """The controller compares the age with a span of its own."""
    armed = ARMED._replace(since=time.time(), deadline=time.monotonic() + ARMED.seconds)
    told = replay(monkeypatch)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + jump)
    records: t.Iterator[Armed | None] = iter([armed, None])
    monkeypatch.setattr(checkpoint_backend, "armed", lambda: next(records))
    monkeypatch.setattr(checkpoint_backend, "outcome", lambda: told)
    for _record in range(2):
        rollback_program.status()
        assert 0 <= json.loads(capsys.readouterr().out)["age"] < 60


def test_a_step_whose_undo_had_no_effect_is_named_and_not_counted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(files.Files, "perform", lambda self, operation: None)
    told = replay(monkeypatch, files.Put(f"{tmp_path}/one", files.Target("x")), files.Remove(f"{tmp_path}/two"))
    assert (told.steps, told.failed) == (1, (f"step 0: {tmp_path}/one is not there",))


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that a roll-back would wait."""
    waited: list[float] = []
    monkeypatch.setattr(time, "sleep", waited.append)
    return waited


@pytest.mark.parametrize("failures", [0, 1, 4])
def test_a_step_whose_error_passes_is_tried_again_and_counted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, pauses: list[float], failures: int
) -> None:
    perform, errors = files.Files.perform, iter(range(failures))

    def flaky(self: files.Files, operation: files.Operation) -> None:
        if operation.path.endswith("flaky") and next(errors, None) is not None:
            raise Failure("Cannot allocate memory")
        perform(self, operation)

    monkeypatch.setattr(files.Files, "perform", flaky)
    steady, flaky_step = (files.Put(f"{tmp_path}/{name}", files.Target("x")) for name in ("steady", "flaky"))
    told = replay(monkeypatch, steady, flaky_step)
    assert (told.steps, told.failed) == (2, ())
    assert pauses == [0.0, *rollback_program.STEP_PAUSES[:failures]]


def test_a_step_that_keeps_failing_is_given_up_before_the_controller_gives_up(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, pauses: list[float]
) -> None:
    told = replay(monkeypatch, files.Put(f"{tmp_path}/missing folder/x", files.Target("x")))
    assert told.steps == 0 and len(told.failed) == 1 and "No such file or directory" in told.failed[0]
    assert sum(pauses) < 4  # of the 8 s in which the controller asks after the deadline


@pytest.mark.parametrize("is_restored", [True, False])
def test_a_backup_goes_only_if_all_is_restored(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, pauses: list[float], is_restored: bool
) -> None:
    kept, moved = tmp_path / "backup", tmp_path / "moved" if is_restored else tmp_path / "missing folder/moved"
    kept.write_text("kept")
    backup = journals.entry("write the backup", files.Remove(str(kept)), is_backup=True)
    entries = [backup, journals.entry("move", files.Put(str(moved), files.Target("x")))]
    monkeypatch.setattr(checkpoint_backend, "entries", lambda: entries)
    told = rollback_program.replay(ARMED, "it was not confirmed")
    assert kept.exists() is not is_restored
    assert told.left == ("write the backup: it may have objects that could not be restored",) * (not is_restored)


def test_what_others_have_changed_is_left_and_what_differs_besides_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def leave(self: t.Any, operation: t.Any) -> None:
        raise ForeignChange("a route of another program")

    monkeypatch.setattr(sysctl.Sysctl, "perform", leave)
    monkeypatch.setattr(sysctl.Sysctl, "read", lambda self, key: 1)
    told = replay(monkeypatch, sysctl.Restore("net/x", 0, 1), sysctl.Restore("net/x", 0, 2))
    assert (told.steps, told.left) == (0, ("a route of another program",) * 2)
    assert told.failed == ("step 0: net.x is 1 and not 0",)


@pytest.mark.parametrize(
    "name", ["_platform.sysctl.Sysctl", "_files.files.Put", "_files.files.Missing", "subprocess.Popen", "_lock.lock", ""]
)
def test_only_a_backend_that_has_the_operation_performs_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str) -> None:
    kept = tmp_path / "kept"
    kept.write_text("kept")
    line = journals.entry("write it", files.Remove(str(kept))).replace("_files.files.Files", name)
    monkeypatch.setattr(checkpoint_backend, "entries", lambda: [line])
    told = rollback_program.replay(ARMED, "it was not confirmed")
    assert (told.steps, told.failed) == (0, (f"write it: {name} is no backend of this roll-back that performs Remove",))
    assert kept.exists()


@pytest.mark.parametrize("kind", journals.BACKENDS)
def test_every_backend_works_without_ansible(kind: type[UndoBackend]) -> None:
    assert isinstance(kind.standalone(process.run, print), kind)


TABLE = "table ip x {\n\tchain y {\n\t\tcounter packets %d bytes 7\n\t}\n}\n"


@pytest.mark.parametrize(
    ("shown", "wanted", "differences"),
    [
        (TABLE % 1, TABLE % 9, []),
        (TABLE % 1, "table ip x {\n}\n", ["table ip x is not as it was"]),
        (TABLE % 1, "", ["table ip x is still there"]),
        ("", TABLE % 1, ["table ip x is not there"]),
        ("", "", []),
    ],
)
def test_a_table_is_compared_without_its_counters(
    monkeypatch: pytest.MonkeyPatch, shown: str, wanted: str, differences: list[str]
) -> None:
    backend = nft_backend.Nft(lambda argv, stdin: process.Completed(0, "", ""), lambda sentence: None)
    monkeypatch.setattr(backend, "read", lambda family, name: shown or None)
    monkeypatch.setattr(backend, "unread", lambda family, name: shown or None)
    monkeypatch.setattr(backend, "text", lambda family, name: shown)
    assert backend.verify(nft_backend.Replace("ip", "x", wanted)) == differences
