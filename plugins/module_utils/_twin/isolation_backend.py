# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs a function in a process of its own, behind the wall of privilege, with two network namespaces.

The kernel removes the namespaces with their last process, and kills this process and the programs that it starts if the run is
killed. So nothing of a twin outlives the run.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import glob
import json
import os
import resource
import select
import signal
import socket
import sys
import time
import traceback
import typing as t
from pathlib import Path

from .._core import errors
from .._core.errors import DatapathError, Failure, Refusal
from .._ebtables.ebtables_options import EBTABLES
from .._netfilter.rule_words import IPTABLES
from .._netlink import wire
from .._platform import memory_group, process
from . import wall_backend
from .blueprint import PERMITTED_SETTINGS
from .wall_backend import Gate, Root, Unavailable

EVERY_PROTOCOL = socket.htons(3)  # ETH_P_ALL
KINDS = (errors.Invalid, errors.MissingLibrary, errors.MissingProgram, errors.Refusal, errors.Failure)
# What a twin starts, and what these programs need.
PROGRAMS = (
    "bridge", "ebtables-nft", "ebtables-nft-restore", "ebtables-nft-save", "ip", "ip6tables-nft", "ip6tables-nft-restore",
    "ip6tables-nft-save", "ipset", "iptables-nft", "iptables-nft-restore", "iptables-nft-save", "nft",
)  # fmt: skip
LIBRARIES = ("/lib", "/lib32", "/lib64", "/usr/lib", "/usr/lib32", "/usr/lib64", "/etc/ld.so.cache")
NAMES = ("/etc/ethertypes", "/etc/iproute2", "/etc/protocols", "/etc/services", "/usr/share/iproute2")
LOCAL = "/usr/local"  # its libraries are needed only by its programs
SETTINGS_FOLDERS = ("net/bridge/", "net/ipv4/", "net/ipv6/")  # in which every setting is one of the namespace
EXTENSIONS = ("/usr/lib*/xtables", "/usr/lib/*/xtables")  # of iptables and ebtables
FORBIDDING = {  # settings by which a machine forbids user namespaces, to all users or to those that are not root, and their value
    "user/max_user_namespaces": "0",
    "kernel/unprivileged_userns_clone": "0",  # of Debian
    "kernel/apparmor_restrict_unprivileged_userns": "1",  # of Ubuntu
}
MEMORY = wall_backend.LIMITS[resource.RLIMIT_AS]
# A twin has the files of the matches and targets of iptables and ebtables that a rule may name. Not named after them are the
# policies and verdicts, and the translations of addresses.
_SHARED_EXTENSIONS = ("standard", "NAT")
_EXTENSIONS = frozenset((*IPTABLES.matches, *IPTABLES.targets, *EBTABLES.matches, *EBTABLES.targets, *_SHARED_EXTENSIONS))
_EXTENSION_PREFIXES = ("libxt_", "libipt_", "libip6t_", "libebt_")


class Hang(Failure):
    """A twin gave no answer in time. What was to be tried in it is open: another run may tell."""


class Isolated(t.NamedTuple):
    """Access to a second network namespace, the world, for the function: a packet socket, a netlink socket, and a descriptor.

    tell: takes what the function does next, for the message about a twin that does not end.
    """

    packets: socket.socket
    netlink: socket.socket
    world: int
    tell: t.Callable[[str], None]


def root(writable: t.Iterable[str] = (), files: t.Mapping[str, bytes] | None = None) -> Root:
    """Return the root with the programs of a twin, and the code of Python and the collection, which a function may import later.

    writable, files: see Root.
    """
    programs = {path: os.path.realpath(path) for path in map(process.find, PROGRAMS) if path}
    local = [f"{LOCAL}/lib"] if any(path.startswith(f"{LOCAL}/") for path in programs.values()) else []
    bound = [*LIBRARIES, *NAMES, *local]
    python = os.path.dirname(os.__file__)
    if not python.startswith(tuple(f"{path}/" for path in bound)):
        bound.append(python)
    archive = getattr(globals()["__loader__"], "archive", "")
    folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if os.path.isdir(folder):  # or else it is an archive, or in memory
        bound.append(folder)
    code = {archive: Path(archive).read_bytes()} if archive else {}
    extensions = {
        path: [name for name in os.listdir(path) if is_permitted(name)]
        for pattern in EXTENSIONS
        for path in glob.glob(pattern)
        if not os.path.islink(path)
    }
    settings = (*SETTINGS_FOLDERS, *(setting for setting in PERMITTED_SETTINGS if not setting.startswith(SETTINGS_FOLDERS)))
    return Root(tuple(bound), programs, settings, extensions, tuple(writable), {**code, **(files or {})})


def run(work: t.Callable[[Isolated], dict[str, t.Any]], seconds: float, within: Root | None = None) -> dict[str, t.Any]:
    """Call ``work`` behind the wall, and return its result, which is plain data. Raises the DatapathError that it raised.

    seconds: after which the process is killed, and Hang is raised. within: the root that it gets; None for root().
    """
    within = within or root()
    reading, writing = os.pipe2(os.O_CLOEXEC)
    inside, outside = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    run_pid = os.getpid()
    child = process.fork(lambda: _child(work, run_pid, within, outside, writing))
    os.close(writing)
    outside.close()
    gate, end = Gate(child, inside), time.monotonic() + seconds
    # The child waits for the gate before it starts others, so they are in the group, too.
    group = memory_group.confine(child, MEMORY)
    try:
        answer = _answer(gate, reading, end)
    except Unavailable as error:
        raise Refusal(_unavailable(error)) from error
    finally:
        os.close(reading)
        gate.end()
        inside.close()
        is_too_large = bool(group and group.is_exceeded())
        if group:
            group.remove()
    if is_too_large or (answer and answer.get("kind") == MemoryError.__name__):
        raise Failure(_too_large(gate.stage))
    if answer is None:
        is_late = time.monotonic() >= end
        raise (Hang if is_late else Failure)(_unanswered(gate.stage, seconds, is_late))
    sys.stderr.write(answer.get("traceback", ""))
    if "error" in answer:
        kind = next((error_class for error_class in KINDS if error_class.__name__ == answer["kind"]), Failure)
        raise kind(*answer["error"])
    return t.cast("dict[str, t.Any]", answer["result"])


def _too_large(step: str) -> str:
    return (
        f"the twin needed more than {MEMORY >> 20} MiB of memory, which is its bound, and was removed. Its last step was:"
        f" {step or 'enter its namespaces'}. Leave out of the snapshot what this step handles"
    )


def _unanswered(step: str, seconds: float, is_late: bool) -> str:
    ending = (
        f"gave no answer within {seconds:.3g} s and was removed" if is_late else "was killed, as the kernel does without memory"
    )
    return (
        f"the twin {ending}. Its last step was: {step or 'enter its namespaces'}. Run again when the machine is less busy; if it"
        " ends at the same step, leave out of the snapshot what this step handles"
    )


def _answer(gate: Gate, reading: int, end: float) -> dict[str, t.Any] | None:
    """Return the text that the child wrote; None if it wrote nothing in time, or ended without an answer."""
    parts = list[bytes]()
    while True:
        poll = select.poll()
        for descriptor in (reading, *gate.descriptors):
            poll.register(descriptor, select.POLLIN)
        ready = poll.poll(max(0.0, end - time.monotonic()) * 1000)
        if not ready:
            return None
        for descriptor, _event in ready:
            if descriptor != reading:
                gate.serve(descriptor)
                continue
            part = os.read(reading, 1 << 20)
            if not part:
                with contextlib.suppress(ValueError):  # it was killed while it wrote
                    return t.cast("dict[str, t.Any]", json.loads(b"".join(parts)))
                return None
            parts.append(part)


def _child(
    work: t.Callable[[Isolated], dict[str, t.Any]], run_pid: int, within: Root, outside: socket.socket, writing: int
) -> None:
    gc.freeze()  # no object of the run may close its descriptor once the number is another file's
    process.share_nothing()
    _close_all_but(outside.fileno(), writing)
    ctypes.CDLL(None).prctl(process.PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != run_pid:
        os._exit(1)
    try:
        answer: dict[str, t.Any] = {"result": work(_isolated(within, outside))}
    except errors.Invalid as error:
        answer = {"kind": "Invalid", "error": error.values}
    except errors.MissingLibrary as error:
        answer = {"kind": "MissingLibrary", "error": [error.library, error.minimum]}
    except DatapathError as error:
        answer = {"kind": type(error).__name__, "error": [f"{error}{_memory_of_programs()}"]}
    except MemoryError:
        answer = {"kind": MemoryError.__name__}
    except Unavailable as error:
        answer = {"kind": "Refusal", "error": [_unavailable(error)]}
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        sentence = f"the twin failed ({reason}). This is an error of the collection: report it"
        answer = {"kind": "Failure", "error": [sentence], "traceback": traceback.format_exc()}
    data = json.dumps(answer).encode()
    while data:
        data = data[os.write(writing, data) :]


def _memory_of_programs() -> str:
    """Return what an error adds if a program came so near to the bound that the bound may be the cause."""
    most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss << 10
    if most < MEMORY // 2:  # a buffer that grows to twice its size needs both
        return ""
    return f". One of its programs took {most >> 20} MiB of memory; the bound is {MEMORY >> 20} MiB"


def _unavailable(error: Unavailable) -> str:
    forbids = f" ({setting})" if (setting := _forbidding()) else ""
    permit = f"Change {setting.partition(' ')[0]}, or run" if setting else "Run"
    return (
        f"the kernel refused {error.filename} for a twin: {error.strerror}{forbids}. A twin is built only behind a wall of"
        f" namespaces. {permit} outside of a container, in a privileged one or as root, or trace the node's snapshot or outputs"
        " on another machine"
    )


def _forbidding() -> str:
    """Return the setting that forbids user namespaces, with its value; empty if none does. Root is refused by the first alone."""
    for number, (name, value) in enumerate(FORBIDDING.items()):
        with contextlib.suppress(OSError), open(f"/proc/sys/{name}") as file:
            if file.read().strip() == value and (number == 0 or os.geteuid()):
                return f"{name.replace('/', '.')} is {value}"
    return ""


def _close_all_but(*descriptors: int) -> None:
    """Close the run's descriptors, which are no business of the twin: a folder among them would be a way out."""
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    first = 3
    for descriptor in sorted(descriptors):
        os.closerange(first, descriptor)
        first = descriptor + 1
    os.closerange(first, os.sysconf("SC_OPEN_MAX"))


def _isolated(within: Root, outside: socket.socket) -> Isolated:
    """Enter the wall, and return the twin's namespaces. Raises Unavailable."""
    sources = wall_backend.enter(within, outside)
    # The world needs no addresses: links that are created later take this setting, which a kernel without IPv6 lacks. Text would
    # need a codec, which a Python that only root may read cannot import behind the wall.
    with contextlib.suppress(OSError), open("/proc/sys/net/ipv6/conf/default/disable_ipv6", "wb") as file:
        file.write(b"1")
    packets = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, EVERY_PROTOCOL)
    world = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    netlink = wire.open_socket()
    wall_backend.another_network()
    wall_backend.close(within, sources, outside)
    return Isolated(packets, netlink, world, lambda step: _tell(outside, step))


def _tell(outside: socket.socket, step: str) -> None:
    outside.send(step.encode(errors="replace")[: wall_backend.WORD])


def is_permitted(file: str) -> bool:
    """Return whether a file in the folder of extensions is of a permitted match or target. file: such as libxt_comment.so."""
    prefix = next((start for start in _EXTENSION_PREFIXES if file.startswith(start)), "")
    return bool(prefix) and file[len(prefix) :].partition(".so")[0] in _EXTENSIONS
