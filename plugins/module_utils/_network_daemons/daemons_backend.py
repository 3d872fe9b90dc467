# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reads the network daemons and cloud agents of a node, and what systemd-networkd manages; restarts systemd-networkd."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import sys
import time
import typing as t
from pathlib import Path

from .._core.errors import Failure, Uncertain
from .._core.plan import UndoBackend
from .._files import files
from .._platform import kernel, process, processes
from .._systemd.unit_files import FOLDERS
from .._systemd.units import Units
from . import known_daemons, networkd

UNIT = "systemd-networkd.service"
# The kernel keeps 15 bytes of a name (TASK_COMM_LEN).
_PROCESS = "systemd-network"
_PROGRAM = "systemd/systemd-networkd"
_LIBRARIES = ("usr/lib/systemd", "usr/lib/*/systemd", "usr/lib64/systemd", "lib/systemd")
_LINKS, _LEASES = "run/systemd/netif/links", "run/systemd/netif/leases"
_MAIN_TABLE = "proc/net/route"  # IPv4 only; reading it needs neither a process nor a dump of all tables
# systemd.network(5): networkd then keeps static addresses and routes when it starts.
_KEEPING = "[Network]\nKeepConfiguration=static\n"
_KEEPING_NAME = "kubenode-restart.conf"


class File(t.NamedTuple):
    """changed: when the file was installed, in seconds since 1970 (ctime, which archives and packages cannot set)."""

    text: str
    changed: float


class DhcpRoute(t.NamedTuple):
    """A default route in table main by a link with a lease. file: by which networkd manages the link."""

    metric: int
    link: str
    gateway: str
    file: str


class Restart(t.NamedTuple):
    """Restart systemd-networkd, so that it reads its configuration."""


class Start(t.NamedTuple):
    """Start systemd-networkd if it does not run."""


Operation = t.Union[Restart, Start]


class Networkd(UndoBackend):
    """The backend. ``root`` differs from "/" in tests only."""

    OPERATIONS = t.get_args(Operation)

    @classmethod
    def standalone(cls, run: process.Runner, warn: t.Callable[[str], None]) -> Networkd:
        return cls(run)

    def __init__(self, run: process.Runner, root: str = "/") -> None:
        self._run = run
        self._root = Path(root)

    def is_installed(self) -> bool:
        return any((self._root / folder / _PROGRAM).is_file() for folder in ("usr/lib", "lib"))

    def version(self) -> int | None:
        """Return the major version; None if the name of systemd's library does not contain it."""
        names = (path.name for folder in _LIBRARIES for path in self._root.glob(f"{folder}/libsystemd-shared-*.so"))
        return max(filter(None, map(networkd.in_library_name, names)), default=None)

    def configuration(self) -> dict[str, File]:
        """Return all configuration files by path. A file that cannot be read is left out."""
        paths = [*networkd.MAIN_FILES]
        for folder in networkd.DROP_IN_FOLDERS:
            paths += [f"{folder}/{path.name}" for path in self._root.joinpath(folder[1:]).glob("[!.]*.conf")]
        return {path: file for path in paths for file in self._file(path)}

    def _file(self, path: str) -> t.Iterator[File]:
        with contextlib.suppress(OSError), files.regular(str(self._root / path[1:])) as file:
            yield File(file.read(), os.fstat(file.fileno()).st_ctime)

    def started(self) -> float | None:
        """Return the start time of this network namespace's networkd, in seconds since 1970; None if none runs.

        Files that are older, by the clock of today and by that of the start, have been read.
        """
        namespace = processes.network_namespace()
        pids = (pid for pid in processes.named((_PROCESS,)) if any(namespace) and processes.network_namespace(pid) == namespace)
        ticks = next(filter(None, (processes.find(int(pid))[1] for pid in pids)), None)
        booted = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
        # The ticks are rounded down.
        if ticks is None:
            return None
        return kernel.by_either_clock(booted + (ticks + 1) / os.sysconf("SC_CLK_TCK"), UNIT)

    def managing(self, ifindex: int) -> str:
        """Return the path of the file by which networkd manages a link; empty if it does not manage the link."""
        state = self._root / _LINKS / str(ifindex)
        is_left = any("ADMIN_STATE=unmanaged\n" in text for text in _text(state))
        return "" if is_left else "".join(map(str, _managing(state)))

    def dhcp_defaults(self) -> list[DhcpRoute]:
        """Return the IPv4 default routes whose links have a lease of networkd with a router, the preferred one first."""
        leases = self._root / _LEASES
        links = {name: number for number, name in socket.if_nameindex()} if any(leases.glob("*")) else {}
        routers = {name for name, number in links.items() for text in _text(leases / str(number)) if "ROUTER=" in text}
        lines = (line.split() for text in (_text(self._root / _MAIN_TABLE) if routers else ()) for line in text.splitlines())
        defaults = (words for words in lines if words[1:2] == words[7:8] == ["00000000"] and words[0] in routers)
        return sorted(DhcpRoute(int(words[6]), words[0], _dotted(words[2]), self.managing(links[words[0]])) for words in defaults)

    def perform(self, operation: Operation) -> None:
        """Restart or start networkd. Foreign addresses and routes stay on the links that it manages. Raises Failure.

        Without _keeping(), systemd 252 removes all addresses of such a link and adds its own again. With the last address
        the kernel removes the link's routes, and no program restores foreign ones. Any version removes foreign addresses.
        """
        verb = "restart" if isinstance(operation, Restart) else "start"
        self._renew()
        with contextlib.ExitStack() as ending:
            for network in sorted(self._networks()):
                ending.enter_context(self._keeping(network))
            completed = self._run([process.find("systemctl") or "systemctl", verb, UNIT], None)
        if completed.rc != 0:
            raise Uncertain(f"systemctl {verb} {UNIT}: {completed.stderr.strip() or completed.rc}")

    def _renew(self) -> None:
        """Give the drop-in a change time of today's clock: after the clock was set back, it would be younger than any start."""
        path = self._root / networkd.PATH[1:]
        with contextlib.suppress(FileNotFoundError):
            status = path.stat()
            if status.st_ctime > time.time():
                path.chmod(stat.S_IMODE(status.st_mode))

    def verify(self, _operation: Operation) -> list[str]:
        """Find no differences: an operation either fails or is complete, as systemd waits until networkd has read its
        configuration."""
        return []

    def _networks(self) -> set[str]:
        """Return the names of the files by which networkd manages links, without files that set KeepConfiguration= themselves."""
        paths = {path for state in self._root.joinpath(_LINKS).glob("*") for path in _managing(state)}
        return {path.name for path in paths if not any("KeepConfiguration=" in text for text in self._texts(path))}

    def _texts(self, network: Path) -> t.Iterator[str]:
        """Yield the texts of a file and of its drop-ins, without a drop-in that a killed run left."""
        folders = [self._root / folder[1:] / "network" for folder in networkd.FOLDERS]
        drop_ins = (path for folder in folders for path in folder.glob(f"{network.name}.d/*.conf"))
        for path in (network, *drop_ins):
            if path.name != _KEEPING_NAME:
                yield from _text(path)

    @contextlib.contextmanager
    def _keeping(self, network: str) -> t.Iterator[None]:
        """Keep a drop-in in /run during the restart. networkd reads its files before it tells systemd that it has started."""
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


def _dotted(word: str) -> str:
    """Return an address in /proc/net/route, which has the bytes in the order of the processor."""
    return socket.inet_ntoa(int(word, 16).to_bytes(4, sys.byteorder))


def _managing(state: Path) -> t.Iterator[Path]:
    for text in _text(state):
        yield from (Path(line[len("NETWORK_FILE=") :]) for line in text.splitlines() if line.startswith("NETWORK_FILE=/"))


def _text(path: Path) -> t.Iterator[str]:
    with contextlib.suppress(OSError):
        yield files.text(str(path))


_NETPLAN_FILES = ("etc/netplan/*.yaml", "run/netplan/*.yaml", "lib/netplan/*.yaml", "usr/lib/netplan/*.yaml")
_DISABLED = "etc/cloud/cloud-init.disabled"
_UDEV_FOLDERS = (
    "etc/udev/rules.d",
    "run/udev/rules.d",
    "usr/local/lib/udev/rules.d",
    "usr/lib/udev/rules.d",
    "lib/udev/rules.d",
)


def agents(units: Units, root: str = "/") -> dict[str, bool]:
    """Return the daemons and agents on the node, by their names in known_daemons.AGENTS, and whether each is active.

    root: differs from "/" in tests only.
    """
    place = Path(root)
    net_utils, cloud_init = known_daemons.NET_UTILS, "cloud-init"
    if _has(place, "run/systemd/units/invocation:*policy-routes@*"):
        net_utils = f"{net_utils}, running"
    if "routing-policy:" in _text_of_file(place / "etc/netplan/50-cloud-init.yaml"):
        cloud_init = "cloud-init, with rules"
    has_cloud_init, has_hotplug = _has(place, "usr/bin/cloud-init"), _has(place, *_udev(known_daemons.HOTPLUG_RULE))
    has_ifupdown = _applies(place, known_daemons.IFUPDOWN_RULE)
    states = {
        "NetworkManager": _units(place, units, "NetworkManager.service"),
        "nm-cloud-setup": _units(place, units, "nm-cloud-setup.timer", "nm-cloud-setup.service"),
        "netplan": (_has(place, "usr/sbin/netplan", "usr/bin/netplan"), _has(place, *_NETPLAN_FILES)),
        cloud_init: (has_cloud_init, not _has(place, _DISABLED)),
        known_daemons.HOTPLUG: (has_cloud_init or has_hotplug, has_hotplug and _is_hotplug_on(place)),
        net_utils: (
            _has_unit(place, "policy-routes@.service"),
            "," in net_utils or _applies(place, known_daemons.NET_UTILS_RULE),
        ),
        known_daemons.IFUPDOWN: (
            has_ifupdown or _has(place, "etc/network/cloud-ifupdown-helper"),
            has_ifupdown and not _switches(place, known_daemons.IFUPDOWN),
        ),
        "ec2-net-utils": (_has(place, "etc/udev/rules.d/53-ec2-network-interfaces.rules"), True),
    }
    return {name: at_work for name, (is_there, at_work) in states.items() if is_there}


def _has(place: Path, *patterns: str) -> bool:
    return any(True for pattern in patterns for _path in place.glob(pattern))


def _has_unit(place: Path, name: str) -> bool:
    return _has(place, *(f"{folder[1:]}/{name}" for folder in FOLDERS))


def _units(place: Path, units: Units, *names: str) -> tuple[bool, bool]:
    at_work = any(units.is_enabled(name) or units.is_active(name) for name in names)
    return any(_has_unit(place, name) for name in names), at_work


def _udev(name: str) -> list[str]:
    return [f"{folder}/{name}" for folder in _UDEV_FOLDERS]


def _applies(place: Path, name: str) -> bool:
    """Return whether udev has rules of this name. The first file in this order hides the others, so an empty one masks them."""
    paths = (place / path for path in _udev(name))
    return known_daemons.has_rules(next((_text_of_file(path) for path in paths if path.exists()), ""))


def _is_hotplug_on(place: Path) -> bool:
    texts = [_text_of_file(path) for path in (place / known_daemons.CLOUD_FILE[1:], *_cloud_files(place))]
    return known_daemons.says_hotplug(texts) is not False and not _has(place, _DISABLED)  # on where it was installed


def overruled(root: str = "/") -> set[str]:
    """Return the agents that stay on with a switch, because they read another file after it. For root see read()."""
    place = Path(root)
    later = [_text_of_file(path) for path in _cloud_files(place) if path > place / known_daemons.HOTPLUG_SWITCH[1:]]
    return {known_daemons.HOTPLUG} if known_daemons.says_hotplug(later) else set()


def _cloud_files(place: Path) -> list[Path]:
    return sorted(place.glob(f"{known_daemons.CLOUD_FOLDER[1:]}/*.cfg"))


def _switches(place: Path, agent: str) -> bool:
    paths = (place / switch.path[1:] for switch in known_daemons.SWITCHES if switch.agent == agent)
    return any(known_daemons.has_rules(_text_of_file(path)) for path in paths)


def _text_of_file(path: Path) -> str:
    with contextlib.suppress(OSError):
        return files.text(str(path))
    return ""
