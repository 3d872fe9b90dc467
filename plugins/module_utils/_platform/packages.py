# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The node's package manager, through its command line: one interface, and a table of each manager's commands.

The manager, which knows the index, installs and upgrades packages. dpkg or rpm, which never remove anything else, removes
them. Files alone tell which manager the node has, so that no program is started before an operation needs it.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import re
import struct
import time
import typing as t

from .._core import version
from .._core.errors import Failure, Refusal, Uncertain
from .._core.plan import UndoBackend
from .._files import files
from . import process

PAUSE = 0.5  # seconds between two looks at a lock
OS_RELEASE = ("/etc/os-release", "/usr/lib/os-release")  # os-release(5)
FLOCK = struct.Struct("hhqqi4x")  # struct flock of 64-bit Linux: type, whence, start, length, process

# The operator is not asked questions, and daemons are not restarted: needrestart is apt's hook for that on Ubuntu.
ENVIRONMENT = (
    "LC_ALL=C",
    f"PATH={process.SEARCH_PATH}",  # dpkg refuses to work without the folders named sbin
    "DEBIAN_FRONTEND=noninteractive",
    "APT_LISTCHANGES_FRONTEND=none",
    "NEEDRESTART_SUSPEND=1",
    "NEEDRESTART_MODE=l",
)
OFFLINE = ("SYSTEMD_OFFLINE=1",)  # systemctl then starts nothing and contacts no systemd: docs/ENVIRONMENT.md there
LOCKED = re.compile(r"could not get lock|unable to acquire|locked by|transaction lock", re.IGNORECASE)
OUTDATED = re.compile(
    r"\b404\b|failed to fetch|unable to fetch|hash sum mismatch|cannot download|error downloading|curl", re.IGNORECASE
)
ALTERED = re.compile(r"^..5\S* +c ", re.MULTILINE)  # dpkg --verify: another checksum, and a configuration file


class Refresh(t.NamedTuple):
    """Refresh the package index. Fails if it then has no ``package`` of at least version ``minimum``."""

    package: str
    minimum: version.Version


class Install(t.NamedTuple):
    """Install a package and its dependencies."""

    package: str


class Upgrade(t.NamedTuple):
    """Upgrade a package to the newest version."""

    package: str


class Downgrade(t.NamedTuple):
    """Restore an older version. No index is sure to have that version still, so this only names the operator's next step."""

    package: str
    version: str


class Remove(t.NamedTuple):
    """Remove a package, and nothing else, if it is installed. A configuration file that was changed stays."""

    package: str


class Wait(t.NamedTuple):
    """Wait until no package manager is at work."""


Operation = t.Union[Refresh, Install, Upgrade, Downgrade, Remove, Wait]


class Manager(t.NamedTuple):
    """A package manager's name and commands; the package's name is appended to each command.

    families: IDs in os-release that select this manager if others are installed as well.
    locks: files that it holds a lock on (fcntl) while it changes anything; listing_locks: also while it only lists.
    installed: prints a word and the version. available: prints lines in which ``version`` finds the versions.
    verify: prints the package's files that were changed. remove keeps changed configuration files, purge does not.
    """

    name: str
    programs: tuple[str, ...]
    families: frozenset[str]
    locks: tuple[str, ...]
    installed: tuple[str, ...]
    available: tuple[str, ...]
    version: t.Pattern[str]
    refresh: tuple[str, ...]
    install: tuple[str, ...]
    upgrade: tuple[str, ...]
    remove: tuple[str, ...]
    purge: tuple[str, ...]
    rehearse: tuple[str, ...]
    verify: tuple[str, ...] = ()
    listing_locks: tuple[str, ...] = ()


_APT_INSTALL = (
    *("apt-get", "--quiet", "--yes", "--no-remove", "--no-install-recommends"),
    *("--option=Dpkg::Options::=--force-confdef", "--option=Dpkg::Options::=--force-confold"),
    *("--option=Dpkg::Use-Pty=0", "--option=APT::Keep-Downloaded-Packages=false", "install"),
)
APT = Manager(
    name="apt",
    programs=("apt-get", "dpkg"),
    families=frozenset({"debian", "ubuntu"}),
    # dpkg's locks, and apt's own two, which apt's option DPkg::Lock::Timeout does not cover.
    locks=(
        *("/var/lib/dpkg/lock-frontend", "/var/lib/dpkg/lock"),
        *("/var/lib/apt/lists/lock", "/var/cache/apt/archives/lock"),
    ),
    installed=("dpkg-query", "--show", "--showformat=${db:Status-Status} ${Version}\\n"),
    # Without its caches on disk, which it would write.
    available=("apt-cache", "--option=Dir::Cache::pkgcache=", "--option=Dir::Cache::srcpkgcache=", "policy"),
    version=re.compile(r"^  Candidate: (\d\S*)", re.MULTILINE),
    refresh=("apt-get", "--quiet", "update"),
    install=_APT_INSTALL,
    upgrade=_APT_INSTALL,
    remove=("dpkg", "--remove"),
    purge=("dpkg", "--purge"),
    rehearse=("dpkg", "--no-act", "--purge"),
    verify=("dpkg", "--verify"),
)

_RPM_LOCKS = ("/var/lib/rpm/.rpm.lock", "/usr/lib/sysimage/rpm/.rpm.lock")
_RPM_INSTALLED = ("rpm", "--query", "--queryformat", "installed %{EVR}\\n")
_RPM_REMOVE = ("rpm", "--erase")
_RPM_REHEARSE = ("rpm", "--erase", "--test")
_LISTED = re.compile(r"^[^\s.]+\.\S+\s+(\d\S*)", re.MULTILINE)  # nftables.x86_64  1:1.0.9-2.azl3  repository

# tdnf waits for its lock forever, so it is not started before the lock is free.
_TDNF_LOCK = "/run/.tdnf-instance-lockfile"
TDNF = Manager(
    name="tdnf",
    programs=("tdnf", "rpm"),
    families=frozenset({"azurelinux", "mariner", "photon"}),
    locks=(_TDNF_LOCK, *_RPM_LOCKS),
    listing_locks=(_TDNF_LOCK,),
    installed=_RPM_INSTALLED,
    available=("tdnf", "--quiet", "--cacheonly", "list", "available"),
    version=_LISTED,
    refresh=("tdnf", "--quiet", "--refresh", "makecache"),
    install=("tdnf", "--quiet", "--assumeyes", "install"),
    upgrade=("tdnf", "--quiet", "--assumeyes", "update"),
    remove=_RPM_REMOVE,
    purge=_RPM_REMOVE,
    rehearse=_RPM_REHEARSE,
)

# dnf would wait for its locks forever, too; with exit_on_lock it fails and says that they are held.
_DNF = ("dnf", "--quiet", "--assumeyes", "--setopt=exit_on_lock=True", "--setopt=install_weak_deps=False")
DNF = Manager(
    name="dnf",
    programs=("dnf", "rpm"),
    families=frozenset({"fedora", "rhel", "centos"}),
    locks=_RPM_LOCKS,
    installed=_RPM_INSTALLED,
    available=(*_DNF, "--cacheonly", "list", "--available"),
    version=_LISTED,
    refresh=(*_DNF, "--refresh", "makecache"),
    install=(*_DNF, "install"),
    upgrade=(*_DNF, "upgrade"),
    remove=_RPM_REMOVE,
    purge=_RPM_REMOVE,
    rehearse=_RPM_REHEARSE,
)
MANAGERS = (APT, TDNF, DNF)


def manager_of(release: t.Mapping[str, str]) -> Manager | None:
    """Return the node's manager: its distribution's own, else the first whose programs are installed. Starts no program."""
    ids = {release.get("ID", ""), *release.get("ID_LIKE", "").split()}
    if release.get("VARIANT_ID") == "azurecontainerlinux" or "flatcar" in ids:
        return None  # /usr is read-only, although the ID is azurelinux
    usable = [manager for manager in MANAGERS if all(process.find(program) for program in manager.programs)]
    return next((manager for manager in usable if manager.families & ids), usable[0] if usable else None)


def os_release() -> dict[str, str]:
    """Return the node's os-release(5), without quotes."""
    for path in OS_RELEASE:
        with contextlib.suppress(OSError), files.regular(path) as file:
            pairs = (line.strip().partition("=") for line in file if not line.startswith("#"))
            return {name: value.strip("\"'") for name, separator, value in pairs if separator}
    return {}


class Packages(UndoBackend):
    """The backend. patience: how long, in seconds, each command waits for a lock that another program holds.

    is_offline: systemd does not manage this root, and packages' scripts must not reach the systemd of an image's builder.
    """

    OPERATIONS = t.get_args(Operation)

    @classmethod
    def standalone(cls, run: t.Callable[..., t.Any], warn: t.Callable[[str], None]) -> Packages:
        return cls(functools.partial(run, seconds=1800, completes=True), os_release(), 300)

    def __init__(self, run: process.Runner, release: t.Mapping[str, str], patience: float, is_offline: bool = False) -> None:
        self._run = run
        self._system = release.get("PRETTY_NAME") or release.get("ID") or "a system without os-release"
        self._known = manager_of(release)
        self._patience = patience
        self._environment = (*ENVIRONMENT, *(OFFLINE if is_offline else ()))
        self._is_fresh = False  # whether this run has refreshed the index

    @property
    def name(self) -> str | None:
        """Return the package manager: apt, tdnf or dnf; None where the node has none that can be used."""
        return self._known.name if self._known else None

    @property
    def _manager(self) -> Manager:
        if self._known is None:
            raise Refusal(
                f"this is {self._system}, where neither apt, tdnf nor dnf can install a package. Nothing was changed."
                " Use a node image that has the package"
            )
        return self._known

    def installed(self, package: str) -> str:
        """Return the package's version with epoch and revision; empty if it is not installed. Does not wait for locks."""
        completed = self._run(self._line(self._manager.installed, package), None)
        status, _blank, installed = completed.stdout.strip().partition(" ")
        return installed if completed.rc == 0 and status not in ("not-installed", "config-files") else ""

    def candidate(self, package: str) -> str:
        """Return the newest version in the index on the node; empty if it has none. Does not refresh the index."""
        listing = self._start(self._manager.available, package, locks=self._manager.listing_locks)
        found = self._manager.version.findall(listing.stdout)
        versions = [(number, text) for text in found if (number := version.of_package(text))]
        return max(versions)[1] if versions else ""

    def obstacle(self, package: str) -> str:
        """Return why the package could not be removed alone, in the manager's words; empty if it could."""
        completed = self._start(self._manager.rehearse, package, locks=self._manager.locks)
        return "" if completed.rc == 0 else _complaint(completed)

    def perform(self, operation: Operation) -> None:
        """Perform one operation. Raises Failure with the manager's answer."""
        if isinstance(operation, Refresh):
            self._refresh(operation)
        elif isinstance(operation, Wait):
            _wait_for(self._manager.locks, self._deadline())
        elif isinstance(operation, Downgrade):
            raise Failure(f"{operation.package} {operation.version} is not restored: the newer version stays")
        elif isinstance(operation, Remove):
            self._remove(operation.package)
        else:
            self._bring(self._manager.install if isinstance(operation, Install) else self._manager.upgrade, operation.package)

    def verify(self, operation: Operation) -> list[str]:
        """Describe how the node differs from the result of a removal. Other operations fail unless they are complete."""
        if isinstance(operation, Remove) and (installed := self.installed(operation.package)):
            return [f"package {operation.package} {installed} is installed"]
        return []

    def _refresh(self, operation: Refresh) -> None:
        """Refresh the index. A source that does not answer matters only if no other source has the package."""
        completed = self._start(self._manager.refresh)
        self._is_fresh = True
        available = self.candidate(operation.package)
        candidate = version.of_package(available)
        if candidate is None or candidate < operation.minimum:
            trouble = "" if completed.rc == 0 else f". The refresh itself failed: {_complaint(completed)}"
            raise Failure(
                f"minimum_version is {operation.minimum}, but {self._manager.name} on this node has"
                f" {operation.package} {available or 'in no version'}{trouble}"
            )

    def _bring(self, command: tuple[str, ...], package: str) -> None:
        completed = self._start(command, package)
        if completed.rc != 0 and not self._is_fresh and OUTDATED.search(completed.stdout + completed.stderr):
            self._start(self._manager.refresh)  # the index names a file that its source has replaced
            completed = self._start(command, package)
        _expect_success(command, completed)

    def _remove(self, package: str) -> None:
        if not self.installed(package):
            return
        verify = self._manager.verify
        is_altered = bool(verify and ALTERED.search(self._start(verify, package).stdout))
        command = self._manager.remove if is_altered else self._manager.purge
        _expect_success(command, self._start(command, package))

    def _start(self, command: tuple[str, ...], *package: str, locks: tuple[str, ...] | None = None) -> process.Completed:
        """Run a command when its locks are free, and again if another program took one of them first."""
        deadline = self._deadline()
        while True:
            _wait_for(self._manager.locks if locks is None else locks, deadline)
            try:
                completed = self._run(self._line(command, *package), None)
            except Uncertain as unended:
                raise Uncertain(f"{unended}, or raise command_timeout") from unended
            if completed.rc == 0 or not LOCKED.search(completed.stdout + completed.stderr):
                return completed
            if time.monotonic() > deadline:
                raise Failure(f"{_complaint(completed)}. Wait for its holder to end, or raise lock_timeout")
            time.sleep(PAUSE)

    def _deadline(self) -> float:
        return time.monotonic() + self._patience

    def _line(self, command: tuple[str, ...], *package: str) -> list[str]:
        return [process.find("env") or "env", *self._environment, *command, *package]


def _wait_for(locks: t.Iterable[str], deadline: float) -> None:
    """Wait until all locks are free. Raises Failure with the first lock that is held, and its holder."""
    for path in locks:
        while holder := _holder(path):
            if time.monotonic() > deadline:
                raise Failure(f"{path} is held by {holder}. Wait for it to end, or raise lock_timeout")
            with process.waiting(f"waits for {path}, which {holder} holds"):
                time.sleep(PAUSE)


def _holder(path: str) -> str:
    """Return the holder of an fcntl lock on the file; empty if there is none. Does not take the lock."""
    try:
        with files.regular(path) as file:
            answer = fcntl.fcntl(file, fcntl.F_GETLK, FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    except OSError:  # no such file, so no holder
        return ""
    kind, _whence, _start, _length, pid = FLOCK.unpack(answer)
    if kind == fcntl.F_UNLCK:
        return ""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as comm:
        return f"process {pid} ({comm.read().strip()})"
    return f"process {pid}" if pid > 0 else "a process outside this root"


def _expect_success(command: tuple[str, ...], completed: process.Completed) -> None:
    if completed.rc != 0:
        raise Failure(f"{command[0]}: {_complaint(completed)}")


def _complaint(completed: process.Completed) -> str:
    """Return the program's error message, on one line."""
    lines = [line.strip() for line in (completed.stderr.strip() or completed.stdout.strip()).splitlines()]
    telling = [line for line in lines if line and not re.match(r"W:|warning", line, re.IGNORECASE)]
    return "; ".join(telling[:8]) or f"exit status {completed.rc}"
