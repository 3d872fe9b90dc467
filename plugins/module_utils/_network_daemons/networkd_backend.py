# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""systemd-networkd: its version, its configuration, since when it runs, and how to restart it. Asking starts no process."""

from __future__ import annotations

import contextlib
import os
import time
import typing as t
from pathlib import Path

from .._core.errors import Failure, Uncertain
from .._platform import files, process
from . import networkd

UNIT = "systemd-networkd.service"
# The kernel keeps 15 bytes of a name (TASK_COMM_LEN).
_PROCESS = "systemd-network"
_PROGRAM = "systemd/systemd-networkd"
_LIBRARIES = ("usr/lib/systemd", "usr/lib/*/systemd", "usr/lib64/systemd", "lib/systemd")
_LINKS = "run/systemd/netif/links"
# systemd.network(5): it then removes nothing static when it starts.
_KEEPING = "[Network]\nKeepConfiguration=static\n"
_KEEPING_NAME = "kubenode-restart.conf"


class File(t.NamedTuple):
    """changed: when it was put there, in seconds since 1970 (ctime, which no archive or package sets)."""

    text: str
    changed: float


class Restart(t.NamedTuple):
    """Restart it, so that it reads its configuration."""


class Networkd:
    """The edge. ``root`` is another one in tests only."""

    OPERATIONS = (Restart,)

    def __init__(self, run: process.Runner, root: str = "/") -> None:
        self._run = run
        self._root = Path(root)

    def is_installed(self) -> bool:
        return any((self._root / folder / _PROGRAM).is_file() for folder in ("usr/lib", "lib"))

    def version(self) -> int | None:
        """Its major version, None where the name of systemd's library does not tell."""
        names = (path.name for folder in _LIBRARIES for path in self._root.glob(f"{folder}/libsystemd-shared-*.so"))
        return max(filter(None, map(networkd.in_library_name, names)), default=None)

    def configuration(self) -> dict[str, File]:
        """All files that it may read, by path. One that can not be read has no say."""
        paths = [*networkd.MAIN_FILES]
        for folder in networkd.DROP_IN_FOLDERS:
            paths += [f"{folder}/{path.name}" for path in self._root.joinpath(folder[1:]).glob("[!.]*.conf")]
        return {path: file for path in paths for file in self._file(path)}

    def _file(self, path: str) -> t.Iterator[File]:
        with contextlib.suppress(OSError), files.regular(str(self._root / path[1:])) as file:
            yield File(file.read(), os.fstat(file.fileno()).st_ctime)

    def started(self) -> float | None:
        """When the one of this network namespace was started, in seconds since 1970; None where there is none."""
        own = _namespace("self")
        found = (name for name in os.listdir("/proc") if name.isdigit() and _name(name) == _PROCESS)
        return next((start for pid in found if own and _namespace(pid) == own for start in _started(pid)), None)

    def managing(self, ifindex: int) -> str:
        """The file by which it manages a link; empty where it does not."""
        state = self._root / _LINKS / str(ifindex)
        is_left = any("ADMIN_STATE=unmanaged\n" in text for text in _text(state))
        return "" if is_left else "".join(map(str, _managing(state)))

    def perform(self, operation: Restart) -> None:
        """Restarts it; addresses, and routes of others, stay on the links that it manages. Raises Failure.

        systemd 252 removes all addresses of such a link and adds its own again; with the last address the kernel removes
        the link's routes, which nobody adds again. Any version removes addresses that it did not set.
        """
        with contextlib.ExitStack() as ending:
            for network in sorted(self._networks()):
                ending.enter_context(self._keeping(network))
            done = self._run([process.find("systemctl") or "systemctl", "restart", UNIT], None)
        if done.rc != 0:
            raise Uncertain(f"systemctl restart {UNIT}: {done.stderr.strip() or done.rc}")

    def _networks(self) -> set[str]:
        """The names of the files by which it manages links, without those that say themselves what is kept."""
        paths = {path for state in self._root.joinpath(_LINKS).glob("*") for path in _managing(state)}
        return {path.name for path in paths if not any("KeepConfiguration=" in text for text in self._texts(path))}

    def _texts(self, network: Path) -> t.Iterator[str]:
        """A file's and those of its drop-ins, without what a killed run left."""
        folders = [self._root / folder[1:] / "network" for folder in networkd.FOLDERS]
        drop_ins = (path for folder in folders for path in folder.glob(f"{network.name}.d/*.conf"))
        for path in (network, *drop_ins):
            if path.name != _KEEPING_NAME:
                yield from _text(path)

    @contextlib.contextmanager
    def _keeping(self, network: str) -> t.Iterator[None]:
        """A drop-in in /run for as long as it takes to start: the files are read before systemd is told of the start."""
        folder = self._root / "run/systemd/network" / f"{network}.d"
        file = folder / _KEEPING_NAME
        try:
            folder.mkdir(parents=True, exist_ok=True)
            file.write_text(_KEEPING)
        except OSError as error:
            raise Failure(f"{file}: {error.strerror}") from error
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                file.unlink()
                folder.rmdir()  # refused where there is another drop-in


def _managing(state: Path) -> t.Iterator[Path]:
    for text in _text(state):
        yield from (
            Path(line[len("NETWORK_FILE=") :]) for line in text.splitlines() if line.startswith("NETWORK_FILE=/")
        )


def _text(path: Path) -> t.Iterator[str]:
    with contextlib.suppress(OSError):
        yield files.text(str(path))


def _name(pid: str) -> str:
    return "".join(_text(Path("/proc", pid, "comm"))).rstrip("\n")


def _namespace(pid: str) -> str:
    try:
        return os.readlink(f"/proc/{pid}/ns/net")
    except OSError:  # it has ended
        return ""


def _started(pid: str) -> t.Iterator[float]:
    """proc_pid_stat(5): starttime is field 22, in ticks since the boot, cut down to a whole number. None if it has ended."""
    booted = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    for text in _text(Path("/proc", pid, "stat")):
        ticks = int(text.rpartition(")")[2].split()[22 - 3]) + 1
        yield booted + ticks / os.sysconf("SC_CLK_TCK")
