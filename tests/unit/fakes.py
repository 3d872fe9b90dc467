# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Edges of a node that is nowhere. They behave: what is done to them is what they show next."""

from __future__ import annotations

import typing as t
from pathlib import Path

from ansible_collections.kubenode.datapath.plugins.module_utils._model import sysctl, version
from ansible_collections.kubenode.datapath.plugins.module_utils._model.problem import Failure
from ansible_collections.kubenode.datapath.plugins.module_utils._system import (
    files,
    packages,
    process,
    units,
)


class RootedFiles(files.Files):
    """The real edge, on a root of its own below ``root``. What a link points to is not changed."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def _at(self, path: str) -> str:
        return path if path.startswith(f"{self._root}/") else f"{self._root}{path}"

    def read(self, path: str) -> files.Found | None:
        return super().read(self._at(path))

    def is_folder(self, path: str) -> bool:
        return super().is_folder(self._at(path))

    def is_ours(self, folder: str) -> bool:
        return super().is_ours(self._at(folder))

    def entries(self, folder: str) -> set[str]:
        return super().entries(self._at(folder))

    def is_left_over(self, path: str) -> bool:
        return super().is_left_over(self._at(path))

    def perform(self, operation: t.Any) -> None:
        super().perform(operation._replace(path=self._at(operation.path)))


class FakeUnits:
    """systemd, or a root without it. ``loaded`` is what it knows: the files that were there at the last reload."""

    def __init__(self, root: Path, is_running: bool = True) -> None:
        self._root = root
        self._is_running = is_running
        self.enabled: set[str] = set()
        self.active: set[str] = set()
        self.loaded: set[str] = set()

    def is_running(self) -> bool:
        return self._is_running

    def is_enabled(self, unit: str) -> bool:
        return unit in self.enabled

    def named(self, pattern: str) -> set[str]:
        return {path.name for path in self._root.glob(f"etc/systemd/system/{pattern}")}

    def is_active(self, unit: str) -> bool:
        return unit in self.active

    def perform(self, operation: units.Operation) -> None:
        assert isinstance(operation, units.Reload)
        self.loaded = {f"/{path.relative_to(self._root)}" for path in self._root.glob("run/systemd/system/*/*.conf")}


class FakePackages:
    """A package manager, its index, and the mirror that the index was read from.

    installed, index, mirror: versions by package. nft: what ``nft --version`` says by the version of its package.
    changing: called before a package changes, as its maintainer scripts are.
    """

    name = "apt"

    def __init__(self, mirror: dict[str, str], installed: dict[str, str] | None = None) -> None:
        self.mirror = mirror
        self.index = dict(mirror)
        self.packages = installed or {}
        self.dependants: list[str] = []
        self.performed: list[t.Any] = []
        self.fails: tuple[type, ...] = ()
        self.changing: t.Callable[[], None] = lambda: None

    def installed(self, package: str) -> str:
        return self.packages.get(package, "")

    def candidate(self, package: str) -> str:
        return self.index.get(package, "")

    def obstacle(self, package: str) -> str:
        return "; ".join(f"{other} depends on {package}" for other in self.dependants)

    def perform(self, operation: t.Any) -> None:
        self.performed.append(operation)
        if isinstance(operation, (packages.Install, packages.Upgrade, packages.Remove)):
            self.changing()
        if isinstance(operation, self.fails):
            raise Failure("dpkg: no")
        if isinstance(operation, packages.Refresh):
            self.index = dict(self.mirror)
            found = version.of_package(self.candidate(operation.package))
            if found is None or found < operation.minimum:
                raise Failure(f"minimum_version is {operation.minimum}, but there is {found}")
        elif isinstance(operation, packages.Remove):
            self.packages.pop(operation.package, None)
        elif isinstance(operation, packages.Downgrade):
            raise Failure(f"{operation.version} is not put back")
        elif isinstance(operation, (packages.Install, packages.Upgrade)):
            self.packages[operation.package] = self.index[operation.package]

    def nft(self, argv: t.Sequence[str], stdin: str | None = None) -> process.Completed:
        """The runner, for ``nft --version``."""
        assert list(argv[1:]) == ["--version"]
        found = version.of_package(self.packages["nftables"])
        return process.Completed(0, f"nftables v{found} (Lester Gooch #5)\n", "")


class Script:
    """A runner that knows what each command line answers, and in which order it was asked.

    answers: by the words that a command line has to contain, one after the other; the last one is repeated.
    """

    def __init__(self, answers: dict[str, list[tuple[int, str, str]]]) -> None:
        self._answers = answers
        self.asked: list[list[str]] = []

    def __call__(self, argv: t.Sequence[str], stdin: str | None = None) -> process.Completed:
        words = [word for word in argv[1:] if "=" not in word or word.startswith("-")]  # without env and its variables
        self.asked.append(words)
        for key, answers in self._answers.items():
            if key in " ".join(words):
                return process.Completed(*(answers.pop(0) if len(answers) > 1 else answers[0]))
        return process.Completed(0, "", "")


class FakeSysctl:
    """The kernel's reverse-path settings: links have an index, and what was never written follows conf/default.

    As in the kernel, a link that is made after conf/default was written does not follow it.

    fails: names that can not be written. written: the names that were, in order.
    applied: paths of files that the last boot, or udev for a link that came, has read as they are.
    """

    def __init__(self, links: t.Iterable[str] = (), default: int = 0, all_: int = 0) -> None:
        self.applied: set[str] = set()
        self.values = {"all": all_, "default": default}
        self.pinned: set[str] = set()
        self.fails: set[str] = set()
        self.written: list[str] = []
        self._indices: dict[str, int] = {}
        self._last = 0
        for link in ("lo", *links):
            self.add(link)

    def add(self, link: str) -> None:
        self._last += 1
        self._indices[link] = self._last
        self.values[link] = self.values["default"]
        self.pinned |= {link} if "default" in self.pinned else set()

    def remove(self, link: str) -> None:
        del self._indices[link], self.values[link]
        self.pinned.discard(link)

    def rename(self, old: str, new: str) -> None:
        self._indices[new], self.values[new] = self._indices.pop(old), self.values.pop(old)
        self.pinned = {new if name == old else name for name in self.pinned}

    def write(self, name: str, value: int) -> None:
        self.values[name] = value
        self.pinned.add(name)
        if name == "default":
            self.values.update({link: value for link in self._indices if link not in self.pinned})

    def boot(self, files: t.Mapping[str, str]) -> None:
        """What systemd-sysctl leaves of a kernel that has just started."""
        self.__init__([link for link in self._indices if link != "lo"])  # type: ignore[misc]
        configuration = sysctl.by_systemd(files)
        for name in list(self.values):
            value = configuration.value(f"net/ipv4/conf/{name}/rp_filter")
            if value is not None:
                self.write(name, value)
        self.applied = {*files}

    def has_applied(self, path: str, ifindex: int) -> bool:
        return path in self.applied

    def effective(self) -> dict[str, int]:
        return {link: max(self.values["all"], self.values[link]) for link in self._indices}

    def links(self) -> dict[str, int]:
        return dict(self._indices)

    def read(self, key: str) -> int | None:
        return self.values.get(key.split("/")[3])

    def perform(self, operation: t.Any) -> None:
        name = operation.key.split("/")[3]
        if name in self.fails:
            raise Failure(f"/proc/sys/{operation.key}: Read-only file system")
        if name in self.values:
            self.written.append(name)
            self.write(name, operation.value)
