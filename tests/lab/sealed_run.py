# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs a function as root in an enclosure in which each change that it makes, each secret that it prints, and its costs show.

The enclosure has namespaces of its own, and an overlay on each folder of the root, so other programs of the machine
change nothing in it. It has secrets: files, a host name, a link and a table of nft whose texts no output may contain.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ansible_collections.kubenode.datapath.plugins.module_utils._platform import memory_group

SECRET = "CANARY7"  # also valid as the first word of a line for ip, nft and iptables
SECRET_FILES = ("/root/.kube/config", "/etc/kubenode/policy.nft", "/var/lib/kubenode/backup/rules", "/tmp/canary")
SECONDS, BYTES = 60, 2 << 30  # the most that a run may take
PATIENCE = 30  # seconds more, after which it is killed
OWN = ("proc", "sys", "dev")  # folders of the root that are no files of the machine
NAMESPACES = 0x00020000 | 0x04000000 | 0x08000000 | 0x20000000 | 0x40000000  # mount, UTS, IPC, PID, network
MS_PRIVATE, MS_REC = 0x40000, 0x4000
# Settings of which the kernel or other programs change the values all the time.
CHANGING = ("fs/", "kernel/random/", "kernel/ns_last_pid", "kernel/pty/", "kernel/tainted", "kernel/perf_event_max_sample_rate",
            "net/netfilter/nf_conntrack_count", "vm/", "kernel/keys", "dev/")  # fmt: skip
# The kernel itself loads the modules of matches, of sets and of links.
OF_PACKETS = ("nf", "xt", "x_tables", "ip", "ebt", "arp", "bridge", "br_", "veth", "8021q", "stp", "llc", "dummy", "libcrc32c")
COMMANDS = ("nft list ruleset", "ip -d link", "ip addr", "ip rule", "ip route show table all", "ip neigh", "ipset save")
_libc = ctypes.CDLL(None, use_errno=True)


class Run(NamedTuple):
    """said: standard output and error. violations: a sentence for each."""

    said: str
    violations: list[str]


def run(work: Callable[[], object], prepare: Callable[[], object] = lambda: None) -> Run:
    """Calls a function in the enclosure. Its process ends with the function. prepare: makes what the function finds there."""
    with tempfile.TemporaryDirectory() as place, tempfile.TemporaryFile("w+") as answer:
        start_reading, start_writing = os.pipe()
        child = os.fork()
        if not child:
            _enclosed(work, prepare, Path(place), answer.fileno(), start_reading)
        group = memory_group.confine(child, 2 * BYTES)
        os.write(start_writing, b"x")
        started = time.monotonic()
        is_late = not _ends(child, SECONDS + PATIENCE)
        seconds = time.monotonic() - started
        if is_late:
            os.kill(child, signal.SIGKILL)
        _pid, _status, usage = os.wait4(child, 0)
        os.close(start_reading)
        os.close(start_writing)
        most = (group.peak() if group else None) or usage.ru_maxrss << 10
        if group:
            group.remove()
        answer.seek(0)
        text = answer.read()
    said, violations = json.loads(text) if text else ("", ["it was killed"])
    if seconds > SECONDS:
        violations.append(f"it took {seconds:.0f} s, and {SECONDS} are the bound")
    if most > BYTES:
        violations.append(f"it took {most >> 20} MiB of memory, and {BYTES >> 20} are the bound")
    return Run(said, violations + list(_unprintable(said)))


def _ends(pid: int, seconds: float) -> bool:
    descriptor = os.pidfd_open(pid)
    try:
        return bool(select.select([descriptor], [], [], seconds)[0])
    finally:
        os.close(descriptor)


def _unprintable(said: str) -> Iterator[str]:
    """What a terminal must not get, in the text itself and in the texts of a module's result."""
    with contextlib.suppress(ValueError):
        said += "\n".join(_texts(json.loads(said)))
    odd = next((sign for sign in said if not sign.isprintable() and sign not in "\n\t"), None)
    if odd:
        yield f"it printed {odd!r}"
    place = said.find(SECRET)
    if place >= 0:
        yield f"it printed a secret: {said[max(0, place - 200) : place + 40]!r}"


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _texts(key)
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)


def _enclosed(work: Callable[[], object], prepare: Callable[[], object], place: Path, answer: int, start: int) -> None:
    """The process that makes the enclosure. It never returns."""
    try:
        os.read(start, 1)
        _call(_libc.unshare(NAMESPACES))
        first = os.fork()
        if not first:
            _first(work, prepare, place, answer)
        os.waitpid(first, 0)
    except BaseException:
        traceback.print_exc()
    os._exit(0)


def _first(work: Callable[[], object], prepare: Callable[[], object], place: Path, answer: int) -> None:
    """Process 1 of the enclosure. It never returns."""
    try:
        _libc.prctl(1, int(signal.SIGKILL), 0, 0, 0)
        upper = _seal(place)
        _plant()
        prepare()
        with tempfile.TemporaryFile(dir=f"/proc/self/fd/{upper}") as said:
            before = _state(upper)
            child = os.fork()
            if not child:
                _work(work, said.fileno())
            os.waitpid(child, 0)
            violations = list(_differences(before, _state(upper)))
            said.seek(0)
            text = said.read().decode(errors="surrogateescape")
        os.write(answer, json.dumps([text, violations]).encode())
    except BaseException:
        os.write(answer, json.dumps(["", [f"the enclosure failed: {traceback.format_exc()}"]]).encode())
    os._exit(0)


def _work(work: Callable[[], object], said: int) -> None:
    status = 1
    try:
        for number in (1, 2):
            os.dup2(said, number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
        _secret = os.open(SECRET_FILES[0], os.O_RDONLY)  # a descriptor of the run
        work()
        status = 0
    except SystemExit:
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(status)


def _seal(place: Path) -> int:
    """Mounts an overlay on each folder of the root. Returns a descriptor of the folder with what is written to them."""
    _mount("none", "/", None, MS_REC | MS_PRIVATE)
    _mount("tmpfs", str(place), "tmpfs", 0)
    upper = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
    for folder in sorted(
        path for path in Path("/").iterdir() if path.is_dir() and not path.is_symlink() and path.name not in OWN
    ):
        for kind in ("upper", "work"):
            (place / folder.name / kind).mkdir(parents=True)
        options = f"lowerdir={folder},upperdir={place}/{folder.name}/upper,workdir={place}/{folder.name}/work"
        _mount("overlay", str(folder), "overlay", 0, options)
        if place.is_relative_to(folder):  # behind the overlay now
            place = Path(f"/proc/self/fd/{upper}")
    _mount("proc", "/proc", "proc", 0)
    return upper


def _plant() -> None:
    for path in SECRET_FILES:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(f"{SECRET} 10.66.66.66\n")
    socket.sethostname(SECRET.lower())
    os.environ["KUBECONFIG"], os.environ["TOKEN"] = SECRET_FILES[0], SECRET
    link = f"ip link set lo up; ip link add {SECRET} type veth peer name {SECRET}p; ip link set {SECRET} up"
    table = f"nft add table inet {SECRET}; nft add chain inet {SECRET} y; ipset create {SECRET} hash:ip"
    subprocess.run(["sh", "-c", f"{link}; {table}"], check=True, capture_output=True)


def _state(upper: int) -> dict[str, Any]:
    """What a run must not change."""
    state: dict[str, Any] = {}
    for folder, folders, names in os.walk(f"/proc/self/fd/{upper}/"):
        for name in (*folders, *names):
            path = f"{folder}/{name}"
            info = os.lstat(path)
            shown = path.partition(f"/fd/{upper}/")[2].lstrip("/")
            if "/work" not in f"/{shown.partition('/')[2]}"[:5]:
                state[f"file {shown}"] = (info.st_mode, info.st_uid, info.st_size if name not in folders else 0, info.st_mtime_ns)
    for folder, _folders, names in os.walk("/proc/sys"):
        for name in names:
            path = f"{folder}/{name}"
            if not path[len("/proc/sys/") :].startswith(CHANGING):
                with contextlib.suppress(OSError):
                    state[f"setting {path}"] = Path(path).read_bytes()
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        state[f"mount {line}"] = True
    if os.path.exists("/proc/modules"):
        for line in Path("/proc/modules").read_text().splitlines():
            if not line.startswith(OF_PACKETS):
                state[f"module {line.split()[0]}"] = True
    for pid in filter(str.isdigit, os.listdir("/proc")):
        if int(pid) != os.getpid():
            state[f"process {Path(f'/proc/{pid}/comm').read_text().strip()}"] = True
    for path in ("/sys/class/xt_idletimer/timers", "/sys/class/leds", "/sys/fs/bpf"):
        state[path] = sorted(os.listdir(path)) if os.path.isdir(path) else []
    for command in COMMANDS:
        state[command] = subprocess.run(command.split(), capture_output=True, check=True, env={"PATH": os.environ["PATH"]}).stdout
    return state


def _differences(before: dict[str, Any], after: dict[str, Any]) -> Iterator[str]:
    for name in sorted(before.keys() | after.keys()):
        if before.get(name) != after.get(name):
            yield f"it changed {name}: {before.get(name)!r} became {after.get(name)!r}"


def _mount(source: str, path: str, kind: str | None, flags: int, options: str = "") -> None:
    words = [word.encode() if word else None for word in (source, path, kind)]
    _call(_libc.mount(*words, flags, options.encode() or None), path)


def _call(result: int, what: str = "") -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)
