# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Files of ours and their folder, on a real file system."""

from __future__ import annotations

import os
import typing as t
from pathlib import Path

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._converge import Plane, converge
from ansible_collections.kubenode.datapath.plugins.module_utils._model.problem import Failure, Invalid, Problem, Refusal
from ansible_collections.kubenode.datapath.plugins.module_utils._resources.managed_files import (
    HEADING,
    File,
    ManagedFiles,
)
from ansible_collections.kubenode.datapath.plugins.module_utils._system.files import MARKER, Files

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="files are given to root")


def hold(path: Path, text: str | None, **options: t.Any) -> bool:
    return converge([ManagedFiles(Files(), [File(str(path), text, **options)])], {Plane.PERMANENT}).changed


def tree(folder: Path) -> dict[str, tuple[int, str]]:
    """Every path below a folder, with its mode and text."""
    paths = sorted(folder.rglob("*"))
    return {
        str(path.relative_to(folder)): (path.stat().st_mode, path.read_text() if path.is_file() else "")
        for path in paths
    }


def test_a_file_is_written_once_and_removed_with_the_folder_that_was_made_for_it(tmp_path: Path) -> None:
    path = tmp_path / "kubenode" / "file"
    assert hold(path, "text\n") and not hold(path, "text\n")
    assert tree(tmp_path)["kubenode/file"] == (0o100644, HEADING + "text\n")
    assert hold(path, None) and not hold(path, None)
    assert tree(tmp_path) == {}


def test_modes_do_not_depend_on_the_umask(tmp_path: Path) -> None:
    old = os.umask(0o077)
    try:
        hold(tmp_path / "kubenode" / "file", "text\n")
    finally:
        os.umask(old)
    modes = {name: oct(mode & 0o777) for name, (mode, _text) in tree(tmp_path).items() if MARKER not in name}
    assert modes == {"kubenode": "0o755", "kubenode/file": "0o644"}


@pytest.mark.parametrize("alter", ["text", "mode", "owner", "gone"])
def test_whatever_was_altered_is_put_right(tmp_path: Path, alter: str) -> None:
    path = tmp_path / "kubenode" / "file"
    hold(path, "text\n")
    good = tree(tmp_path)
    {
        "text": lambda: path.write_text("anything"),
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


def test_a_folder_is_removed_also_when_somebody_removed_the_file(tmp_path: Path) -> None:
    path = tmp_path / "kubenode" / "file"
    hold(path, "text\n")
    path.unlink()
    assert hold(path, None) and tree(tmp_path) == {}


def test_a_strangers_file_is_refused_and_left_by_absent(tmp_path: Path) -> None:
    path = tmp_path / "nftables.conf"
    path.write_text("flush ruleset\n")
    before = tree(tmp_path)
    with pytest.raises(Refusal, match="is not a file of kubenode.datapath"):
        hold(path, "text\n")
    assert not hold(path, None)
    assert tree(tmp_path) == before


def test_an_empty_file_is_nobodys(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    assert hold(path, "text\n") and path.read_text() == HEADING + "text\n"


def test_a_gap_two_folders_deep_is_an_error_for_present_alone(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "file"
    with pytest.raises(
        Invalid, match=f"path must be in a folder that is there or whose parent is; {tmp_path}/a is not"
    ):
        hold(path, "text\n")
    assert not hold(path, None) and tree(tmp_path) == {}


@pytest.mark.parametrize("kind", ["folder", "link", "below a file"])
def test_what_is_no_regular_file_is_an_error(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "file"
    if kind == "folder":
        path.mkdir()
    elif kind == "link":
        path.symlink_to("/dev/null")
    else:
        path.touch()
        path = path / "file"
    before = tree(tmp_path)
    with pytest.raises(Invalid, match="path must be"):
        hold(path, "text\n")
    assert tree(tmp_path) == before


def test_a_text_that_is_not_accepted_is_not_written(tmp_path: Path) -> None:
    def never(text: str) -> None:
        raise Failure("line 3 is wrong")

    with pytest.raises(Problem, match="line 3 is wrong"):
        hold(tmp_path / "kubenode" / "file", "text\n", accept=never)
    assert tree(tmp_path) == {}


@pytest.mark.parametrize("wish", ["text\n", None])
def test_what_a_killed_run_left_is_cleared(tmp_path: Path, wish: str | None) -> None:
    path = tmp_path / "kubenode" / "file"
    hold(path, "text\n")
    (path.parent / f".file{MARKER}").write_text("half")
    (tmp_path / f".kubenode{MARKER}").mkdir()
    assert hold(path, wish) and not hold(path, wish)
    assert not [name for name in tree(tmp_path) if name.endswith(f"e{MARKER}")]


def test_the_diff_shows_rights_where_only_they_differ(tmp_path: Path) -> None:
    path = tmp_path / "file"
    hold(path, "text\n")
    path.chmod(0o600)
    outcome = converge([ManagedFiles(Files(), [File(str(path), "text\n")])], {Plane.PERMANENT}, check=True)
    (entry,) = outcome.diff()
    assert entry["before"].startswith(f"# {path}: mode 0600") and entry["after"].startswith(f"# {path}: mode 0644")


def test_two_files_share_the_folder_that_is_made_for_them(tmp_path: Path) -> None:
    one, two = (str(tmp_path / "kubenode" / name) for name in ("one", "two"))

    def hold_both(first: str | None, second: str | None) -> bool:
        files = [File(one, first), File(two, second)]
        return converge([ManagedFiles(Files(), files)], {Plane.PERMANENT}).changed

    assert hold_both("1\n", "2\n") and not hold_both("1\n", "2\n")
    assert hold_both("1\n", None) and not hold_both("1\n", None)
    assert set(tree(tmp_path)) == {"kubenode", f"kubenode/{MARKER}", "kubenode/one"}
    assert hold_both(None, None) and not hold_both(None, None)
    assert tree(tmp_path) == {}


def test_the_diff_of_what_nobody_reads_is_its_hash(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(HEADING.encode() + b"\xff\x00")
    (entry,) = converge([ManagedFiles(Files(), [File(str(path), "text\n")])], {Plane.PERMANENT}).diff()
    assert entry["before"].startswith(f"# {path}: {len(HEADING) + 2} bytes, SHA-256 ")
    assert entry["after"] == HEADING + "text\n"
