# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Files that other programs may have placed: whatever is at a file's path, a run reads it or says why not, and goes on."""

from __future__ import annotations

import os
import signal
import stat
import typing as t
from pathlib import Path

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._cni import cni_backend
from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Failure
from ansible_collections.kubenode.datapath.plugins.module_utils._files import files
from ansible_collections.kubenode.datapath.plugins.module_utils._kubelet import kubelet_backend
from ansible_collections.kubenode.datapath.plugins.module_utils._network_daemons import daemons_backend
from ansible_collections.kubenode.datapath.plugins.module_utils._platform import packages, process, sysctl
from ansible_collections.kubenode.datapath.plugins.module_utils._routing import rt_tables_backend
from ansible_collections.kubenode.datapath.plugins.module_utils._systemd import units


@pytest.fixture(autouse=True)
def _time_limit() -> t.Iterator[None]:
    """A reader that waits for a FIFO's writer would wait for ever."""

    def fail(_number: int, _frame: object) -> None:
        pytest.fail("it waits")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(5)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def place_fifo(path: Path) -> None:
    os.mkfifo(path)


def place_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def place_socket(path: Path) -> None:
    os.mknod(path, stat.S_IFSOCK | 0o600)  # not bound: a socket's path has at most 107 bytes, unix(7)


def place_huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(2**40)


ODD = {
    "a FIFO": (place_fifo, "no regular file, but a FIFO"),
    "a device": (place_device, "no regular file, but a device or the like"),
    "a socket": (place_socket, "no regular file, but a device or the like"),
    "a folder": (Path.mkdir, "no regular file, but a folder"),
    "a terabyte": (place_huge, "has 1099511627776 bytes"),
}
odd = pytest.mark.parametrize(("place", "reason"), ODD.values(), ids=ODD.keys())
Place = t.Callable[[Path], None]


@odd
def test_a_path_that_is_no_regular_file_is_not_read_and_named(tmp_path: Path, place: Place, reason: str) -> None:
    place(tmp_path / "x")
    with pytest.raises(files.NotRegular, match=reason):
        files.text(str(tmp_path / "x"))


def test_a_file_is_read_also_by_a_link_and_a_masked_one_is_empty(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"a\r\nb\xff")
    (tmp_path / "link").symlink_to("x")
    (tmp_path / "masked").symlink_to("/dev/null")
    assert files.text(str(tmp_path / "x")) == files.text(str(tmp_path / "link")) == "a\nb\ufffd"
    assert files.text(str(tmp_path / "x"), errors="surrogateescape") == "a\nb\udcff"
    assert files.text(str(tmp_path / "masked")) == ""


def test_a_file_that_turns_into_a_fifo_while_it_is_looked_at_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, regular = tmp_path / "x", tmp_path / "y"
    os.mkfifo(path)
    regular.touch()
    look = os.stat
    for name in ("stat", "lstat"):
        monkeypatch.setattr(os, name, lambda _path, **_options: look(regular))
    with pytest.raises(files.NotRegular):
        files.text(str(path))
    with pytest.raises(Failure, match=f"{path}: it is no regular file, but a FIFO"):
        files.Files().read(str(path))


@pytest.mark.parametrize(("place", "kind"), [(place_fifo, "FIFO"), (place_socket, "device or the like"), (Path.mkdir, "folder")])
def test_another_kind_of_object_in_the_place_of_a_file_of_ours_is_told(tmp_path: Path, place: Place, kind: str) -> None:
    place(tmp_path / "x")
    assert files.Files().read(str(tmp_path / "x")) == files.Other(kind)


def run(argv: t.Sequence[str], stdin: str | None = None) -> process.Completed:
    raise AssertionError(argv)


def sysctl_files(root: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    monkeypatch.setattr(sysctl, "FOLDERS", (str(root),))
    monkeypatch.setattr(sysctl, "LAST_OF_PROCPS", str(root / "none"))
    return [Path(path).name for path in sysctl.configuration(lambda sentence: None)]


def routing_tables(root: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    monkeypatch.setattr(rt_tables_backend, "FOLDERS", (str(root),))
    return [name for name in rt_tables_backend.tables() if name == "mine"]


def os_release(root: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    monkeypatch.setattr(packages, "OS_RELEASE", (str(root / "odd"), str(root / "os-release")))
    return packages.os_release()


# The reader; the paths of an odd file and of a good one beside it; the text of the good one, and its result alone.
READERS: dict[str, tuple[t.Callable[[Path, pytest.MonkeyPatch], object], str, str, str, object]] = {
    "sysctl.d": (sysctl_files, "10-odd.conf", "20-good.conf", "a=1\n", ["20-good.conf"]),
    "rt_tables.d": (routing_tables, "rt_tables.d/odd.conf", "rt_tables.d/good.conf", "7 mine\n", ["mine"]),
    "networkd.conf.d": (
        lambda root, _patch: [*daemons_backend.Networkd(run, str(root)).configuration()],
        "etc/systemd/networkd.conf.d/odd.conf",
        "etc/systemd/networkd.conf.d/good.conf",
        "",
        ["/etc/systemd/networkd.conf.d/good.conf"],
    ),
    "netplan": (
        lambda root, _patch: daemons_backend.agents(units.Units(run), str(root)),
        "etc/netplan/50-cloud-init.yaml",
        "usr/bin/cloud-init",
        "",
        {"cloud-init": True, "cloud-init hotplug": False},
    ),
    "kubelet": (
        lambda root, _patch: kubelet_backend.has_label("a=b", f"{root}/"),
        "etc/default/kubelet",
        "etc/sysconfig/kubelet",
        "--node-labels=a=b",
        True,
    ),
    "CNI": (
        lambda root, _patch: [
            one.plugins for one in cni_backend.configurations(str(root)).values() if one.plugins and not one.is_inert
        ],
        "odd.conf",
        "good.conf",
        '{"type": "bridge"}',
        [("bridge",)],
    ),
    "os-release": (os_release, "odd", "os-release", "ID=debian\n", {"ID": "debian"}),
}


@odd
@pytest.mark.parametrize(("read", "where", "beside", "text", "expected"), READERS.values(), ids=READERS.keys())
def test_a_reader_goes_on_without_a_file_that_cannot_be_read(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    place: Place,
    reason: str,
    read: t.Callable[[Path, pytest.MonkeyPatch], object],
    where: str,
    beside: str,
    text: str,
    expected: object,
) -> None:
    for path in (tmp_path / where, tmp_path / beside):
        path.parent.mkdir(parents=True, exist_ok=True)
    place(tmp_path / where)
    (tmp_path / beside).write_text(text)
    assert read(tmp_path, monkeypatch) == expected


@odd
def test_the_operator_hears_of_what_keeps_systemd_sysctl_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: Place, reason: str
) -> None:
    monkeypatch.setattr(sysctl, "FOLDERS", (str(tmp_path),))
    monkeypatch.setattr(sysctl, "LAST_OF_PROCPS", str(tmp_path / "none"))
    place(tmp_path / "10-odd.conf")
    (tmp_path / "20-masked.conf").symlink_to("/dev/null")
    warnings: list[str] = []
    assert sysctl.configuration(warnings.append) == {f"{tmp_path}/20-masked.conf": ""}
    if place is Path.mkdir:  # systemd-sysctl does not wait for a folder
        assert warnings == []
    else:
        (warning,) = warnings
        assert warning.startswith(f"{tmp_path}/10-odd.conf was not read: it ") and reason in warning


@pytest.mark.parametrize("desired", [files.Content("text", 0o640), files.Target("elsewhere")], ids=["file", "link"])
def test_a_file_that_is_in_place_is_not_written_again(tmp_path: Path, desired: files.Content | files.Target) -> None:
    """The undo of a step that was not performed, such as a removal from a read-only folder, writes nothing."""
    path = tmp_path / "file"
    put = files.Put(str(path), desired)
    files.Files().perform(put)
    before = path.lstat()
    files.Files().perform(put)
    assert (path.lstat().st_ino, path.lstat().st_ctime_ns) == (before.st_ino, before.st_ctime_ns)
    if isinstance(desired, files.Content):
        path.chmod(0o600)
        files.Files().perform(put)
        assert path.lstat().st_ino != before.st_ino and stat.S_IMODE(path.stat().st_mode) == 0o640
