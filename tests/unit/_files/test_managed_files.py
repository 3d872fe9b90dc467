# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The collection's files and their folder, on a real file system."""

from __future__ import annotations

import os
import typing as t
from pathlib import Path

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._core.converge import converge
from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import (
    DatapathError,
    Failure,
    Invalid,
    Refusal,
)
from ansible_collections.kubenode.datapath.plugins.module_utils._core.plan import Plane
from ansible_collections.kubenode.datapath.plugins.module_utils._files.files import MARKER, Files
from ansible_collections.kubenode.datapath.plugins.module_utils._files.managed_files import HEADING, ManagedFiles, link
from ansible_collections.kubenode.datapath.plugins.module_utils._files.managed_files import text as entry
from unit.killed_run import Mortal

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="files are given to root")


def hold(path: Path, text: str | None, **options: t.Any) -> bool:
    return converge([ManagedFiles(Files(), [entry(str(path), text, **options)])], {Plane.PERMANENT}).changed


def tree(folder: Path) -> dict[str, tuple[int, str]]:
    """Every path below a folder, with its mode and text."""
    paths = sorted(folder.rglob("*"))
    return {str(path.relative_to(folder)): (path.stat().st_mode, path.read_text() if path.is_file() else "") for path in paths}


def test_a_file_is_written_once_and_removed_with_the_folder_that_was_made_for_it(tmp_path: Path) -> None:
    path = tmp_path / "kubenode" / "file"
    assert hold(path, "text\n") and not hold(path, "text\n")
    assert tree(tmp_path)["kubenode/file"] == (0o100644, HEADING + "text\n")
    assert hold(path, None) and not hold(path, None)
    assert tree(tmp_path) == {}


@pytest.mark.parametrize("mask", [0o077, 0o000])
def test_modes_do_not_depend_on_the_umask(tmp_path: Path, mask: int) -> None:
    old = os.umask(mask)
    try:
        hold(tmp_path / "kubenode" / "file", "text\n")
    finally:
        os.umask(old)
    modes = {name: oct(mode & 0o777) for name, (mode, _text) in tree(tmp_path).items()}
    assert modes == {"kubenode": "0o755", "kubenode/file": "0o644", f"kubenode/{MARKER}": "0o644"}


@pytest.mark.parametrize("alter", ["text", "mode", "owner", "gone"])
def test_whatever_was_altered_is_put_right(tmp_path: Path, alter: str) -> None:
    path = tmp_path / "kubenode" / "file"
    hold(path, "text\n")
    good = tree(tmp_path)
    {
        "text": lambda: path.write_text(HEADING + "anything"),
        "mode": lambda: path.chmod(0o600),
        "owner": lambda: os.chown(path, 1, 1),
        "gone": path.unlink,
    }[alter]()
    assert hold(path, "text\n") and tree(tmp_path) == good
    assert path.stat().st_uid == 0


def test_a_folder_that_was_there_stays(tmp_path: Path) -> None:
    folder = tmp_path / "operators"
    folder.mkdir()
    hold(folder / "file", "text\n")
    hold(folder / "file", None)
    assert list(tree(tmp_path)) == ["operators"]


def test_a_folder_stays_as_long_as_something_is_in_it(tmp_path: Path) -> None:
    one, two = tmp_path / "kubenode" / "one", tmp_path / "kubenode" / "two"
    hold(one, "1\n")
    hold(two, "2\n")
    hold(one, None)
    assert two.exists()
    hold(two, None)
    assert tree(tmp_path) == {}


def test_a_folder_is_removed_also_if_another_program_removed_the_file(tmp_path: Path) -> None:
    path = tmp_path / "kubenode" / "file"
    hold(path, "text\n")
    path.unlink()
    assert hold(path, None) and tree(tmp_path) == {}


def test_a_foreign_file_is_refused_and_left_by_absent(tmp_path: Path) -> None:
    path = tmp_path / "nftables.conf"
    path.write_text("flush ruleset\n")
    before = tree(tmp_path)
    with pytest.raises(Refusal, match="may not be replaced by this run: its text does not begin with"):
        hold(path, "text\n")
    assert not hold(path, None)
    assert tree(tmp_path) == before


@pytest.mark.parametrize(
    ("option", "remedy"),
    [
        ("path", "set permanent to false, and run this again after each boot"),
        ("permanent", "set permanent to false, and run this again after each boot"),
        ("immediate", "set immediate to false"),
        ("backup", "set backup to another folder"),
    ],
)
def test_a_change_on_a_read_only_file_system_is_refused_with_a_way_to_do_without(
    tmp_path: Path, option: str, remedy: str
) -> None:
    path = str(tmp_path / "kubenode" / "file")
    placed, gone = (ManagedFiles(Files(), [entry(path, text)], option, "set backup to another folder") for text in ("a\n", None))
    found = f"{path} cannot be changed, because the file system at /etc is read-only. Nothing was changed. Make it writable, or"
    with pytest.raises(Refusal, match=f"^{found} {remedy}$"):
        placed.plan(placed.observe()._replace(read_only_at="/etc"))
    assert not gone.plan(gone.observe()._replace(read_only_at="/etc")).steps
    converge([placed], {Plane.PERMANENT})
    assert not placed.plan(placed.observe()._replace(read_only_at="/etc")).steps
    with pytest.raises(Refusal, match=f"^{found} {remedy}$"):
        gone.plan(gone.observe()._replace(read_only_at="/etc"))


def test_a_writable_file_system_is_not_read_only(tmp_path: Path) -> None:
    assert Files().read_only_at(str(tmp_path / "no" / "folder")) == ""


def test_an_empty_file_is_foreign(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    with pytest.raises(Refusal, match="Move it away, or set path to another path"):
        hold(path, "text\n")
    assert not hold(path, None) and path.exists()


def test_a_claimed_file_is_ours_whatever_its_text(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("anything")
    claimed = [ManagedFiles(Files(), [entry(str(path), "text\n")], claimed=[str(path)])]
    assert converge(claimed, {Plane.PERMANENT}).changed and path.read_text() == HEADING + "text\n"


def test_one_of_ours_is_not_taken_for_another(tmp_path: Path) -> None:
    path = tmp_path / "file"
    hold(path, "for a\n", begins="for a\n")
    with pytest.raises(Refusal):
        hold(path, "for b\n", begins="for b\n")
    assert not hold(path, None, begins="for b\n") and path.exists()
    assert hold(path, None, begins="for a\n")


def test_the_marker_does_not_make_an_operators_file_ours(tmp_path: Path) -> None:
    hold(tmp_path / "kubenode" / "file", "text\n")
    theirs = tmp_path / "kubenode" / "site"
    theirs.write_text("mine\n")
    with pytest.raises(Refusal):
        hold(theirs, "text\n")
    assert not hold(theirs, None) and theirs.read_text() == "mine\n"


def test_a_link_comes_and_goes_and_a_foreign_one_stays(tmp_path: Path) -> None:
    def hold_link(target: str, desired: bool) -> bool:
        links = [link(str(tmp_path / "wants" / "unit"), target, desired)]
        return converge([ManagedFiles(Files(), links)], {Plane.PERMANENT}).changed

    assert hold_link("/there", True) and not hold_link("/there", True)
    with pytest.raises(Refusal, match="it is a link to /there"):
        hold_link("/elsewhere", True)
    assert not hold_link("/elsewhere", False)
    assert hold_link("/there", False) and not hold_link("/there", False)
    assert tree(tmp_path) == {}


def test_a_gap_two_folders_deep_is_an_error_for_present_alone(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "file"
    with pytest.raises(
        Invalid, match=f"path must be in a folder that exists or whose parent exists; {tmp_path}/a is not a folder"
    ):
        hold(path, "text\n")
    assert not hold(path, None) and tree(tmp_path) == {}


@pytest.mark.parametrize("kind", ["folder", "link", "below a file", "pipe"])
def test_a_foreign_object_at_the_path_is_refused_and_left_by_absent(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "file"
    if kind == "folder":
        path.mkdir()
    elif kind == "link":
        path.symlink_to("/dev/null")
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.touch()
        path = path / "file"
    before = sorted(tmp_path.iterdir())
    with pytest.raises((Invalid, Refusal), match=str(path)):
        hold(path, "text\n")
    assert not hold(path, None)
    assert sorted(tmp_path.iterdir()) == before


def test_a_text_that_is_not_accepted_is_not_written(tmp_path: Path) -> None:
    class Never:
        OPERATIONS = (str,)

        def checking(self, text: str) -> str:
            return text

        def perform(self, operation: str) -> None:
            raise Failure("line 3 is wrong")

    with pytest.raises(DatapathError, match="line 3 is wrong"):
        hold(tmp_path / "kubenode" / "file", "text\n", accept=Never())
    assert tree(tmp_path) == {}


@pytest.mark.parametrize("desired", ["text\n", None])
def test_temporary_files_and_folders_of_a_killed_run_are_cleared(tmp_path: Path, desired: str | None) -> None:
    path = tmp_path / "kubenode" / "file"
    hold(path, "text\n")
    (path.parent / f".file{MARKER}").write_text("half")
    (tmp_path / f".kubenode{MARKER}").mkdir()
    assert hold(path, desired) and not hold(path, desired)
    assert not [name for name in tree(tmp_path) if name.endswith(f"e{MARKER}")]


@pytest.mark.parametrize("former", [None, "text\n"])
@pytest.mark.parametrize("then", [None, "text\n"])
def test_a_run_killed_at_any_system_call_is_completed_or_undone_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, former: str | None, then: str | None
) -> None:
    """As rp_filter's file, which is found by its path."""
    path, desired = tmp_path / "kubenode" / "file", None if former else "text\n"
    last, lived = 0, False
    while not lived:
        last += 1
        hold(path, former)
        lived = Mortal(monkeypatch, last).lives(hold, path, desired)
        hold(path, then)
        assert not hold(path, then)
        assert set(tree(tmp_path)) == ({"kubenode", f"kubenode/{MARKER}", "kubenode/file"} if then else set())
    assert last > 3


def test_a_folder_that_is_reached_by_a_link_is_not_ours_to_remove(tmp_path: Path) -> None:
    hold(tmp_path / "kubenode" / "one", "1\n")
    (tmp_path / "way").symlink_to("kubenode")
    hold(tmp_path / "way" / "two", "2\n")
    assert hold(tmp_path / "way" / "two", None) and not hold(tmp_path / "way" / "two", None)
    assert (tmp_path / "kubenode" / "one").exists()


def test_a_write_that_may_not_have_reached_the_disk_is_rolled_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "kubenode" / "file"
    calls: list[int] = []

    def fails_once_written(descriptor: int) -> None:
        calls.append(descriptor)
        if path.exists() and len(calls) == 3:  # the folder is made, the file is written, the file is moved into place
            raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", fails_once_written)
    with pytest.raises(Failure, match="Input/output error.*All changes were undone"):
        hold(path, "text\n")
    assert tree(tmp_path) == {}


def test_the_diff_shows_rights_where_only_they_differ(tmp_path: Path) -> None:
    path = tmp_path / "file"
    hold(path, "text\n")
    path.chmod(0o600)
    outcome = converge([ManagedFiles(Files(), [entry(str(path), "text\n")])], {Plane.PERMANENT}, check=True)
    (entry_of_diff,) = outcome.diff()
    assert entry_of_diff["before"].startswith(f"# {path}: mode 0600") and entry_of_diff["after"].startswith(
        f"# {path}: mode 0644"
    )


def test_two_files_share_the_folder_that_is_made_for_them(tmp_path: Path) -> None:
    one, two = (str(tmp_path / "kubenode" / name) for name in ("one", "two"))

    def hold_both(first: str | None, second: str | None) -> bool:
        files = [entry(one, first), entry(two, second)]
        return converge([ManagedFiles(Files(), files)], {Plane.PERMANENT}).changed

    assert hold_both("1\n", "2\n") and not hold_both("1\n", "2\n")
    assert hold_both("1\n", None) and not hold_both("1\n", None)
    assert set(tree(tmp_path)) == {"kubenode", f"kubenode/{MARKER}", "kubenode/one"}
    assert hold_both(None, None) and not hold_both(None, None)
    assert tree(tmp_path) == {}


def test_resources_of_one_run_do_not_count_each_others_files_as_foreign(tmp_path: Path) -> None:
    paths = [tmp_path / "kubenode" / "one", tmp_path / "kubenode" / "two"]
    for path in paths:
        hold(path, "text\n")
    gone = [ManagedFiles(Files(), [entry(str(path), None)]) for path in paths]
    assert converge(gone, {Plane.PERMANENT}).changed and tree(tmp_path) == {}


@pytest.mark.parametrize("is_outer_first", [True, False])
def test_a_folder_that_was_made_in_another_of_ours_goes_with_it(tmp_path: Path, is_outer_first: bool) -> None:
    outer, inner = tmp_path / "kubenode" / "one", tmp_path / "kubenode" / "within" / "two"
    hold(outer, "text\n")
    hold(inner, "text\n")
    for path in (outer, inner) if is_outer_first else (inner, outer):
        assert hold(path, None) and not hold(path, None)
    assert tree(tmp_path) == {}


def test_a_folder_within_an_operators_folder_goes_alone(tmp_path: Path) -> None:
    (tmp_path / "operators").mkdir()
    hold(tmp_path / "operators" / "kubenode" / "file", "text\n")
    assert hold(tmp_path / "operators" / "kubenode" / "file", None)
    assert list(tree(tmp_path)) == ["operators"]


def test_the_diff_of_a_binary_file_is_its_hash(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(HEADING.encode() + b"\xff\x00")
    (entry_of_diff,) = converge([ManagedFiles(Files(), [entry(str(path), "text\n")])], {Plane.PERMANENT}).diff()
    assert entry_of_diff["before"].startswith(f"# {path}: {len(HEADING) + 2} bytes, SHA-256 ")
    assert entry_of_diff["after"] == HEADING + "text\n"
