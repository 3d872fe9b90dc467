# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node's state as plain data that can be compared: its objects, and not the times at which they were made.

Left out on purpose, because they change by themselves: counters, handles, expiry and lifetime seconds, the detection of
duplicate addresses and the local and anycast routes that the kernel adds at its end (a second after the address, addrconf.c:
addrconf_dad_completed), times of files, neighbours, numbers of links; ansible's temporary folder and the lab's own tools;
sysctls that cannot be read; VOLATILE.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import socket
import stat
import struct
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from lab.machine import Machine
from lab.namespace import TOOLS

_PASSING = re.compile(r" (?:expires|valid_lft|preferred_lft) (?:-?\d+sec|forever)| tentative")
_DETECTED = re.compile(r"^[24] \S+:\S* dev \S+ table 255 proto 2 ")  # local or anycast, the kernel's, and of IPv6
_LINK_NUMBERS = re.compile(r"^\d+: |@if\d+|link-netnsid \d+ ?")
_PROGRAM_NUMBER = re.compile(r" id \d+")
_FIELD = re.compile(r"^(Package|Status|Version|Auto)(?:-Installed)?: (.*)$", re.MULTILINE)
_FAMILIES = ("-4", "-6")
_PART = "\0"  # no listing has this character
_COMMANDS = {
    "links": "ip -o link",  # first: the kernel adds routes once a link has a carrier
    "nft": "nft --stateless list ruleset",
    **{f"rules {family}": f"ip -N {family} rule" for family in _FAMILIES},
    **{f"routes {family}": f"ip -N {family} route show table all" for family in _FAMILIES},
    "addresses": "ip -o address",
    "filters": "tc qdisc show | sed -n 's/^qdisc clsact .* dev \\([^ ]*\\) .*/\\1/p' | while read -r link; do"
    ' for way in ingress egress; do echo "$link $way"; tc filter show dev "$link" "$way"; done; done',
    "sysctls": "cd /proc/sys/net; grep -rs . ipv4/ip_forward ipv4/conf ipv6/conf || true",
}
_READ = "\n".join(f"printf '\\000%s\\n' '{name}'; {command}" for name, command in _COMMANDS.items())

KEPT = ("/etc", "/run/systemd/system", "/var/lib")
"""What ``tree`` looks into: what outlives a boot, and units that are changed until the next one."""

VOLATILE = (
    "/etc/.pwd.lock", "/etc/ld.so.cache", "/etc/machine-id", "/etc/mtab", "/etc/resolv.conf", "/var/lib/dbus/machine-id",
    "/var/lib/apt/extended_states", "/var/lib/apt/lists", "/var/lib/apt/periodic", "/var/lib/containerd", "/var/lib/dpkg",
    "/var/lib/systemd",
)  # fmt: skip
"""What ``tree`` leaves out, with all below: the notes of systemd and of a package manager, of which ``packages`` tells what is
there, and images, which containerd removes when it likes."""

_TURNING = re.compile(r"<NO-CARRIER,\S*LOWER_UP>")  # a carrier that the state of the link does not follow yet
_TRIES = 30


def network(machine: Machine) -> dict[str, Any]:
    """nft's ruleset, rules and routes of both families and all tables, links, addresses and their sysctls, BPF programs.

    Read with the host's own programs, so that no replaced program on the node is counted or called; by one process that enters
    the node, as tests take hundreds of snapshots.
    """
    printed = _settled(machine)
    read = dict(part.split("\n", 1) for part in printed.split(_PART)[1:])
    state: dict[str, Any] = {"nft": read["nft"]}
    for family in _FAMILIES:
        state[f"rules {family}"] = _lines(read[f"rules {family}"])
        routes = _lines(read[f"routes {family}"])
        state[f"routes {family}"] = sorted(route for route in routes if not _DETECTED.match(route))
    state["links"] = _unnumbered(read["links"])
    state["addresses"] = _unnumbered(read["addresses"])
    state["sysctls"] = sorted(_lines(read["sysctls"]))
    state["filters"] = _lines(_PROGRAM_NUMBER.sub("", read["filters"]))
    state["bpf"] = machine.in_network(_programs)
    return state


def _programs() -> list[str]:
    """The BPF programs that are attached by tcx, in the order in which packets meet them, with their tags. tc lists its own."""
    lines = []
    for index, link in socket.if_nameindex():
        for direction, kind in (("ingress", 46), ("egress", 47)):  # linux/bpf.h: BPF_TCX_INGRESS, BPF_TCX_EGRESS
            numbers = (ctypes.c_uint32 * 64)()
            query = struct.pack("=IIIIQI36x", index, kind, 0, 0, ctypes.addressof(numbers), len(numbers))
            answer = _bpf(16, query)  # BPF_PROG_QUERY
            for number in numbers[: struct.unpack_from("=I", answer, 24)[0]]:
                lines.append(f"{link} {direction} {_program(number)}")
    return lines


def _program(number: int) -> str:
    """The name and tag of a program."""
    info = ctypes.create_string_buffer(80)
    descriptor = _bpf(13, struct.pack("=III", number, 0, 0))  # BPF_PROG_GET_FD_BY_ID
    opened = struct.unpack_from("=i", descriptor, len(descriptor) - 4)[0]
    try:
        _bpf(15, struct.pack("=IIQ", opened, len(info), ctypes.addressof(info)))  # BPF_OBJ_GET_INFO_BY_FD
    finally:
        os.close(opened)
    return f"{info.raw[64:80].rstrip(bytes(1)).decode()} {info.raw[8:16].hex()}"


def _bpf(command: int, attributes: bytes) -> bytes:
    """What bpf(2) leaves of the attributes, and behind them its result; zeros where the kernel has no such command."""
    buffer = ctypes.create_string_buffer(attributes, len(attributes))
    number = {"x86_64": 321, "aarch64": 280}[os.uname().machine]
    result = ctypes.CDLL(None, use_errno=True).syscall(number, command, buffer, len(attributes))
    return (buffer.raw if result >= 0 else bytes(len(attributes))) + struct.pack("=i", result)


def _settled(machine: Machine) -> str:
    """What the programs print once the kernel has told all of itself that a link has a carrier, in up to a second."""
    for _try in range(_TRIES):
        printed = machine.run_from_host(["sh", "-ec", _READ])
        if not _TURNING.search(printed):
            break
        time.sleep(0.1)
    return printed


def differences(left: dict[str, Any], right: dict[str, Any]) -> list[str]:
    """What two snapshots do not share, one line for each object or line."""
    lines = []
    for part in sorted({*left, *right}):
        old, new = (_objects(state.get(part)) for state in (left, right))
        lines += [f"left alone, {part}: {entry}" for entry in old if entry not in new]
        lines += [f"right alone, {part}: {entry}" for entry in new if entry not in old]
        if old != new and {*old} == {*new}:
            lines.append(f"another order, {part}: {new}")
    return lines


def _objects(value: Any) -> list[str]:
    if isinstance(value, str):
        return value.splitlines()
    if isinstance(value, dict):
        return [f"{key} {entry}" for key, entry in value.items()]
    return [str(entry) for entry in value or ()]


def files(layers: Path, folders: tuple[str, ...]) -> dict[str, str]:
    """How a node's folders differ from the host's: path -> the object there, ``absent`` if it was deleted.

    ``layers`` contains overlay's upper folders. A file there that equals the host's is no difference: it was changed and changed
    back.
    """
    differences = {}
    for folder in folders:
        for path in _touched(layers, folder):
            here = describe(Path(f"{layers}{path}"))
            if here != describe(Path(path)):
                differences[path] = here
    return differences


def tree(root: Path, below: Sequence[str] = KEPT) -> dict[str, str]:
    """The files of a node that shares none with the host: path -> the object there. ``root`` is the node's, seen from here."""
    prefix, objects = str(root).rstrip("/"), {}
    for top in below:
        for current, folders, names in os.walk(f"{prefix}{top}"):
            path = current.removeprefix(prefix)
            folders[:] = [name for name in folders if f"{path}/{name}" not in VOLATILE]
            for name in [*folders, *names]:
                if f"{path}/{name}" not in VOLATILE:
                    objects[f"{path}/{name}"] = describe(Path(current, name))
    return objects


def packages(root: Path) -> list[str]:
    """The packages that were installed by name, as name=version.

    Packages that were installed as dependencies are left out: apt keeps them when the others are removed (``apt autoremove``).
    """
    automatic = {entry["Package"] for entry in _stanzas(root / "var/lib/apt/extended_states") if entry["Auto"] == "1"}
    return [
        f"{entry['Package']}={entry['Version']}"
        for entry in _stanzas(root / "var/lib/dpkg/status")
        if entry["Status"].endswith(" installed") and entry["Package"] not in automatic
    ]


def _stanzas(path: Path) -> Iterator[dict[str, str]]:
    """The stanzas of a file of dpkg or apt; none if there is no such file."""
    for stanza in path.read_text().split("\n\n") if path.exists() else ():
        if stanza.strip():
            yield dict(_FIELD.findall(stanza))


def describe(path: Path) -> str:
    """Type, mode, owner and content of one file, folder or symlink; ``absent`` if there is none."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return "absent"
    kind = stat.S_IFMT(status.st_mode)
    if kind == stat.S_IFCHR and status.st_rdev == 0:  # overlay's mark of a deleted name
        return "absent"
    owner = f"{stat.filemode(status.st_mode)} {status.st_uid}:{status.st_gid}"
    if kind == stat.S_IFREG:
        return f"{owner} sha256 {hashlib.sha256(path.read_bytes()).hexdigest()}"
    if kind == stat.S_IFLNK:
        return f"{owner} -> {os.readlink(path)}"
    return owner


def _lines(text: str) -> list[str]:
    """One entry per line, in the given order, which matters for rules of one priority."""
    return [_PASSING.sub("", line).rstrip() for line in text.splitlines()]


def _unnumbered(text: str) -> list[str]:
    """Lines without the numbers of links and namespaces, which differ after each boot."""
    return sorted(_LINK_NUMBERS.sub("", line) for line in _lines(text))


def _touched(layers: Path, folder: str) -> Iterator[str]:
    """Paths that the node has written or deleted, and those of the host that a replaced folder hides."""
    for current, folders, names in os.walk(f"{layers}{folder}"):
        path = current.removeprefix(str(layers))
        if path == TOOLS:
            folders.clear()
            continue
        yield path
        yield from (f"{path}/{name}" for name in names)
        yield from (f"{path}/{name}" for name in folders if os.path.islink(f"{current}/{name}"))
        if _is_opaque(current):
            hidden = set(os.listdir(path)) - set(os.listdir(current)) if os.path.isdir(path) else set()
            yield from (f"{path}/{name}" for name in sorted(hidden))


def _is_opaque(folder: str) -> bool:
    """A folder that was deleted and made anew hides all of the host's (overlayfs.rst, "Whiteouts and opaque directories")."""
    try:
        return os.getxattr(folder, "trusted.overlay.opaque") == b"y"
    except OSError:
        return False
