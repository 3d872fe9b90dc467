# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The record of a checkpoint's end: written in place, into space that was allocated before the first change."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._checkpoint import checkpoint_backend
from ansible_collections.kubenode.datapath.plugins.module_utils._checkpoint.checkpoint import (
    Armed,
    Closed,
    FailedRollBack,
    Outcome,
    RolledBack,
)
from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Failure
from ansible_collections.kubenode.datapath.plugins.module_utils._platform import lock

ARMED = Armed("id", "policy_routes", 0.0, 30, 0.0, (1, 1), (1, 1), (1, 0))
ROLLED_BACK = RolledBack("id", "policy_routes", 0.0, 30.0, 30.0, "it was not confirmed", 3)
PATHS = ("PROGRAM", "COMMAND", "ARMED", "OUTCOME", "JOURNAL", "LOCK", "RESERVE")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of an armed checkpoint, under the lock."""
    folder = tmp_path / "checkpoint"
    for name in PATHS:
        path = getattr(checkpoint_backend, name).replace(checkpoint_backend.FOLDER, str(folder))
        monkeypatch.setattr(checkpoint_backend, name, path)
    monkeypatch.setattr(checkpoint_backend, "FOLDER", str(folder))
    monkeypatch.setattr(lock, "PATH", str(tmp_path / "lock"))
    (tmp_path / "lock").touch()
    checkpoint_backend.prepare("program", [10, 5000])
    checkpoint_backend.arm(ARMED)
    return folder


@pytest.mark.parametrize(
    ("end", "is_armed"),
    [
        (ROLLED_BACK, False),
        (Closed("id"), False),
        (FailedRollBack("id", 1.0, "no lock"), True),
        (ROLLED_BACK._replace(identity="of another checkpoint"), True),
        (Closed("of another checkpoint"), True),
    ],
    ids=str,
)
def test_a_checkpoint_is_armed_until_its_own_end_is_recorded(end: Outcome, is_armed: bool) -> None:
    assert checkpoint_backend.armed() == ARMED and checkpoint_backend.outcome() is None
    checkpoint_backend.record(end, ARMED)
    assert checkpoint_backend.outcome() == end
    assert checkpoint_backend.armed() == (ARMED if is_armed else None)


def test_a_record_takes_no_space_and_no_inode(folder: Path) -> None:
    before = (folder / "outcome.json").stat()
    checkpoint_backend.record(ROLLED_BACK, ARMED)
    after = (folder / "outcome.json").stat()
    assert (after.st_ino, after.st_size, after.st_blocks) == (before.st_ino, before.st_size, before.st_blocks)
    assert before.st_blocks * 512 >= checkpoint_backend.SPACE


@pytest.mark.parametrize("writes", [0, 1, 2])
def test_a_record_whose_writer_was_killed_does_not_count(monkeypatch: pytest.MonkeyPatch, writes: int) -> None:
    checkpoint_backend.record(FailedRollBack("id", 1.0, "no lock"), ARMED)
    write, rest = os.pwrite, iter(range(writes))

    def die(descriptor: int, part: bytes, position: int) -> int:
        if next(rest, None) is None:
            raise SystemExit
        return write(descriptor, part, position)

    monkeypatch.setattr(os, "pwrite", die)
    with pytest.raises(SystemExit):
        checkpoint_backend.record(ROLLED_BACK, ARMED)
    assert checkpoint_backend.armed() == ARMED


@pytest.mark.parametrize("count", [1, 500, 100_000])
def test_a_report_that_is_longer_than_its_space_is_cut_and_says_so(count: int) -> None:
    checkpoint_backend.record(ROLLED_BACK._replace(left=("changed",), failed=("step: an error",) * count), ARMED)
    report = checkpoint_backend.outcome()
    assert isinstance(report, RolledBack) and report.steps == 3 and report.failed[0] == "step: an error"
    assert (report.failed[-1] == "and more, see the syslog") == (len(report.failed) < count)
    assert report.left == ("changed",)


def test_the_reserve_and_the_lock_of_a_checkpoint_go_at_its_end(folder: Path, tmp_path: Path) -> None:
    reserve = list((folder / "reserve").iterdir())
    assert sorted(path.stat().st_size for path in reserve) == [10, 5000]
    assert (tmp_path / "lock").stat().st_nlink == 2
    checkpoint_backend.spend_reserve()
    checkpoint_backend.settle(ROLLED_BACK, ARMED)
    assert sorted(path.name for path in folder.iterdir()) == ["outcome.json", "rollback", "rollback.pyz"]
    assert (tmp_path / "lock").stat().st_nlink == 1
    checkpoint_backend.clear_unless_armed()
    assert not folder.exists()


def test_a_journal_that_is_gone_is_no_empty_journal(folder: Path) -> None:
    (folder / "journal").unlink()
    with pytest.raises(Failure, match="journal: No such file or directory"):
        checkpoint_backend.entries()


def test_a_run_that_cannot_note_a_step_gives_its_undo_the_reserve(folder: Path) -> None:
    (folder / "journal").unlink()
    with pytest.raises(Failure, match="No such file"):
        checkpoint_backend.note("{}")
    assert not (folder / "reserve").exists()
