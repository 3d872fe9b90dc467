# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An image of a node while it is built: a root on this machine that programs enter by chroot."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

from lab import entering, host, snapshot
from lab.entering import LabError

KERNEL: Mapping[str, str] = MappingProxyType(
    {"proc": "mount -t proc proc", "sys": "mount -t sysfs sysfs", "dev": "mount --rbind /dev"}
)
"""What a builder mounts into a root, as Packer's chroot builders do."""


class Build:
    """A root folder, such as ``images.root()``, whose changes are kept under ``folder``.

    ``root`` exists only for commands of ``around()``: their mounts and processes are in separate namespaces, which end with the
    command. All other namespaces are this machine's.
    """

    def __init__(self, below: Path, folder: Path) -> None:
        self._below = below
        self.changes = folder / "changes"
        self.root = folder / "root"
        self._work = folder / "work"
        for made in (self.changes, self.root, self._work):
            made.mkdir(parents=True)
        self.changes.chmod(self._below.stat().st_mode)

    def around(self, argv: Sequence[str], kernel: Mapping[str, str] = KERNEL) -> list[str]:
        """The command line that runs a command of this machine with the root and the file systems of ``kernel`` mounted."""
        layers = f"lowerdir={self._below},upperdir={self.changes},workdir={self._work}"
        mounts = [f"mount -t overlay overlay -o {layers} {self.root}"]
        mounts += [f"{mount} {self.root}/{name}" for name, mount in kernel.items()]
        # Process 1 stays outside of the root: what runs there compares process 1's root with its own.
        return [*host.ALONE, "sh", "-c", f"{' && '.join(mounts)} && {shlex.join(argv)}; exit"]

    def run(self, argv: Sequence[str], input: str = "") -> subprocess.CompletedProcess[str]:
        """Run a command in the root."""
        return self._run(["chroot", str(self.root), *argv], input)

    def _run(self, argv: Sequence[str], input: str = "") -> subprocess.CompletedProcess[str]:
        result = subprocess.run(
            self.around(argv), input=input, capture_output=True, text=True, check=False,
            env={**entering.ENVIRONMENT, "SYSTEMD_OFFLINE": "1"},
        )  # fmt: skip
        if result.returncode != 0:
            raise LabError(f"{shlex.join(argv)} answered {result.returncode} around the root\n{result.stdout}{result.stderr}")
        return result

    def write(self, path: str, text: str, mode: int = 0o644) -> None:
        """Write a file; missing folders are made."""
        self.run(["sh", "-c", 'mkdir -p "${1%/*}/" && cat > "$1" && chmod "$2" "$1"', "sh", path, f"{mode:o}"], text)

    def remove(self, path: str) -> None:
        """Remove a file or a folder with its contents; a missing one is fine."""
        self.run(["rm", "-rf", path])

    def copy_in(self, source: Path, path: str) -> None:
        """Copy a file or a folder of this machine to a new path, whose folder exists."""
        self._run(["cp", "-r", str(source), f"{self.root}{path}"])

    def tree(self) -> dict[str, str]:
        """The changes since the beginning: path -> the object there, "absent" if it was deleted. Folders only if they are new."""
        return {
            path: snapshot.describe(self.changes / path[1:])
            for path in sorted(self._touched())
            if snapshot.describe(self.changes / path[1:]) != snapshot.describe(self._below / path[1:])
        }

    def _touched(self) -> Iterator[str]:
        for current, folders, names in os.walk(self.changes):
            for name in [*folders, *names]:
                yield f"{current}/{name}".removeprefix(str(self.changes))

    @contextmanager
    def archive(self) -> Iterator[int]:
        """The whole root as a tar file, by a descriptor to read it from."""
        tar = self.around(["tar", "-C", str(self.root), "-c", "."], kernel={})
        with subprocess.Popen(tar, stdout=subprocess.PIPE) as packing:
            assert packing.stdout is not None
            yield packing.stdout.fileno()
