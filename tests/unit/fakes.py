# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Fake backends of a node. They have state: a change that is made is read back."""

from __future__ import annotations

import typing as t
from pathlib import Path

from ansible_collections.kubenode.datapath.plugins.module_utils._core import version
from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Failure
from ansible_collections.kubenode.datapath.plugins.module_utils._core.plan import Plan, Plane, Step
from ansible_collections.kubenode.datapath.plugins.module_utils._files import files
from ansible_collections.kubenode.datapath.plugins.module_utils._platform import packages, process, sysctl, sysctl_files
from ansible_collections.kubenode.datapath.plugins.module_utils._systemd import units
from ansible_collections.kubenode.datapath.plugins.module_utils._systemd.boot_order import BootOrder
from ansible_collections.kubenode.datapath.plugins.module_utils._systemd.boot_unit import BootUnit, UnitState


class RootedFiles(files.Files):
    """The real backend, below ``root``. The targets of links are not changed."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def _at(self, path: str) -> str:
        return path if path.startswith(f"{self._root}/") else f"{self._root}{path}"

    def read(self, path: str) -> files.State | None:
        return super().read(self._at(path))

    def is_folder(self, path: str) -> bool:
        return super().is_folder(self._at(path))

    def is_ours(self, folder: str) -> bool:
        return super().is_ours(self._at(folder))

    def entries(self, folder: str) -> set[str]:
        return super().entries(self._at(folder))

    def read_only_at(self, folder: str) -> str:
        return super().read_only_at(self._at(folder))

    def is_left_over(self, path: str) -> bool:
        return super().is_left_over(self._at(path))

    def perform(self, operation: t.Any) -> None:
        super().perform(operation._replace(path=self._at(operation.path)))


class Broken:
    """A resource whose only step fails."""

    name = "broken"
    plane = Plane.PERMANENT
    OPERATIONS = (str,)

    @property
    def backends(self) -> tuple[t.Any, ...]:
        return (self,)

    def observe(self) -> None: ...

    def plan(self, _observed: None) -> Plan:
        return Plan((Step("fail", "fail"),))

    def perform(self, operation: t.Any) -> None:
        raise Failure("no")


class FakeSystemd:
    """A service manager in memory, as far as systemctl and journalctl reach it. It is a runner for units.Units.

    It knows the unit files and drop-ins below ``root`` as they were at the last reload. The result of a start follows from
    the unit's last ExecStart= and ExecCondition= after the last empty one:

    /bin/false      fails; as the condition, skips the unit
    /bin/sleep      does not end
    anything else   succeeds

    is_booting: systemd starts the node's units; jobs wait until ``boot`` is called.
    asked: the command lines, each without the program, that changed anything.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._texts: dict[str, str] = {}
        self._queue: dict[str, str] = {}
        self._journal: list[str] = []
        self.loaded: set[str] = set()
        self.states: dict[str, UnitState] = {}
        self.is_booting = False
        self.asked: list[str] = []

    def __call__(self, argv: t.Sequence[str], stdin: str | None = None) -> process.Completed:
        program, words = Path(argv[0]).name, [word for word in argv[1:] if not word.startswith("--no-block")]
        if program == "journalctl":
            lines = [line for line in self._journal if f"--unit={line.split(':')[0]}" in words]
            return process.Completed(0, "".join(f"{line}\n" for line in lines), "")
        verb, *rest = words
        if verb == "show":
            return process.Completed(0, self._show(*rest), "")
        self.asked.append(" ".join(words))
        verbs: dict[str, t.Callable[..., str]] = {
            "daemon-reload": self._reload, "start": self._start, "restart": self._restart,
            "stop": self._stop, "reset-failed": self._reset_failed,
        }  # fmt: skip
        complaint = verbs[verb](*rest)
        return process.Completed(1 if complaint else 0, "", complaint)

    def boot(self) -> None:
        """The units for which the queued jobs wait have started."""
        self.is_booting = False
        for unit in list(self._queue):
            self._run(unit)

    def state(self, unit: str) -> UnitState:
        found = self.states.get(unit, UnitState("inactive", "dead", "success", "0"))
        return found._replace(job="7") if unit in self._queue else found

    def _show(self, properties: str, unit: str = "") -> str:
        state = self.state(unit)
        found = {
            "ActiveState": state.active, "SubState": state.sub, "Result": state.result, "Job": state.job,
            "SystemState": "starting" if self.is_booting else "running",
        }  # fmt: skip
        return "".join(f"{name}={found[name]}\n" for name in properties.partition("=")[2].split(","))

    def _reload(self) -> str:
        folders = [self._root / folder for folder in ("run/systemd/system", "etc/systemd/system")]
        found = [path for folder in folders for path in sorted(folder.glob("*.service")) if path.is_file()]
        self._texts = {path.name: path.read_text() for path in found}
        drop_ins = [path for folder in folders for path in sorted(folder.glob("*.service.d/*.conf"))]
        for path in drop_ins:
            name = path.parent.name[: -len(".d")]
            if name in self._texts:
                self._texts[name] += path.read_text()
        self.loaded = {f"/{path.relative_to(self._root)}" for path in drop_ins}
        return ""

    def _start(self, unit: str) -> str:
        if unit not in self._texts:
            return f"Failed to start {unit}: Unit {unit} not found."
        if self.state(unit).active == "active":
            return ""
        self._queue[unit] = "start"
        if not self.is_booting:
            self._run(unit)
        return ""  # --no-block: the unit's state shows the result

    def _restart(self, unit: str) -> str:
        if unit in self._texts:
            self.states.pop(unit, None)
        return self._start(unit)

    def _run(self, unit: str) -> None:
        del self._queue[unit]
        text = self._texts[unit]
        if self._command(text, "ExecCondition") == "/bin/false":
            self.states[unit] = UnitState("inactive", "dead", "exec-condition", "0")
            return
        command = self._command(text, "ExecStart")
        if command == "/bin/false":
            again = UnitState("activating", "auto-restart", "exit-code", "0")
            self.states[unit] = again if "\nRestart=" in text else UnitState("failed", "failed", "exit-code", "0")
            self._journal.append(f"{unit}: Main process exited, code=exited, status=1/FAILURE")
        elif command == "/bin/sleep":
            self.states[unit] = UnitState("activating", "start", "success", "0")
        else:
            is_left = "\nRemainAfterExit=yes" in text
            self.states[unit] = UnitState("active", "exited" if is_left else "running", "success", "0")

    def _command(self, text: str, setting: str) -> str:
        found = [line.partition("=")[2] for line in text.splitlines() if line.startswith(f"{setting}=")]
        return (found[-1].split() or [""])[0] if found else ""

    def _stop(self, unit: str) -> str:
        self._queue.pop(unit, None)
        if unit not in self._texts and unit not in self.states:
            return f"Failed to stop {unit}: Unit {unit} not loaded."
        if self.state(unit).active != "failed":
            self.states.pop(unit, None)
        return ""

    def _reset_failed(self, unit: str) -> str:
        if unit not in self._texts and unit not in self.states:
            return f"Failed to reset failed state of unit {unit}: Unit {unit} not loaded."
        if self.state(unit).active == "failed":
            del self.states[unit]
        return ""


class FakeUnits(units.Units):
    """The real backend on a FakeSystemd, or on a root without systemd.

    enabled, active: units of the node besides those below ``root``. warnings: for the operator. order: of each boot.
    """

    def __init__(self, root: Path, is_running: bool = True) -> None:
        self.systemd = FakeSystemd(root)
        self.warnings: list[str] = []
        super().__init__(self.systemd, self.warnings.append, patience=0.05)
        self._root = root
        self._is_running = is_running
        self.enabled: set[str] = set()
        self.active: set[str] = set()
        self.order = BootOrder(True)

    def boot_order(self, unit: BootUnit, is_placed: bool = False) -> BootOrder:
        return self.order

    def own_texts(self) -> dict[str, str]:
        return {path.name: path.read_text() for path in self._root.glob("etc/systemd/system/kubenode-*.service")}

    @property
    def loaded(self) -> set[str]:
        """The drop-ins that systemd knows: those that were there at the last reload."""
        return self.systemd.loaded

    def is_running(self) -> bool:
        return self._is_running

    def is_enabled(self, unit: str) -> bool:
        return unit in self.enabled or any(self._root.glob(f"etc/systemd/system/*.wants/{unit}"))

    def named(self, pattern: str) -> set[str]:
        return {path.name for path in self._root.glob(f"etc/systemd/system/{pattern}")}

    def is_active(self, unit: str) -> bool:
        state = self.systemd.state(unit)
        return unit in self.active or (state.active in ("active", "activating") and not state.waits_to_try_again)

    def _get(self, names: t.Sequence[str], *unit: str) -> list[str]:
        """Never uses the socket, because it belongs to the machine that runs the tests."""
        return self._show(names, *unit)

    def perform(self, operation: units.Operation) -> None:
        assert self._is_running or isinstance(operation, (units.Rehearse, units.CheckOrder)), (
            f"{operation} where systemd does not run"
        )
        super().perform(operation)


class FakePackages:
    """A package manager, its index, and the mirror that the index was read from.

    installed, index, mirror: versions by package. nft: the output of ``nft --version`` by the version of the package.
    changing: called before a package changes, as its maintainer scripts are.
    """

    OPERATIONS = packages.Packages.OPERATIONS
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
            raise Failure(f"{operation.version} is not restored")
        elif isinstance(operation, (packages.Install, packages.Upgrade)):
            self.packages[operation.package] = self.index[operation.package]

    def nft(self, argv: t.Sequence[str], stdin: str | None = None) -> process.Completed:
        """The runner, for ``nft --version``."""
        assert list(argv[1:]) == ["--version"]
        found = version.of_package(self.packages["nftables"])
        return process.Completed(0, f"nftables v{found} (Lester Gooch #5)\n", "")


class Script:
    """A runner with the answers to command lines, which records the command lines in order.

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
    """The kernel's reverse-path settings: links have an index, and a value that was never written follows conf/default.

    As in the kernel, a link that is made after conf/default was written does not follow it.

    fails: names that cannot be written. written: the names that were written, in order.
    applied: paths of files that the last boot, or udev for a link that came, has read as they are.
    """

    OPERATIONS = sysctl.Sysctl.OPERATIONS

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
        """The settings of a kernel that has just started, after systemd-sysctl."""
        self.__init__([link for link in self._indices if link != "lo"])  # type: ignore[misc]
        configuration = sysctl_files.by_systemd(files)
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
