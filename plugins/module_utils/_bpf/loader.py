# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Loads BPF programs and their maps by bpf(2), and reads them back.

What is loaded lasts as long as a descriptor, or a link of the node, holds it.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import resource
import struct
import typing as t

from .._core.errors import Failure

# The number of bpf(2) by machine, for 64-bit programs (arch/*/kernel/syscalls/*.tbl, include/uapi/asm-generic/unistd.h).
SYSCALL = {"x86_64": 321, "aarch64": 280, "riscv64": 280, "ppc64le": 361, "s390x": 351}
# include/uapi/linux/bpf.h
MAP_CREATE, MAP_LOOKUP, MAP_UPDATE, PROG_LOAD = 0, 1, 2, 5
PROG_GET_FD_BY_ID, MAP_GET_FD_BY_ID, OBJ_GET_INFO_BY_FD, MAP_FREEZE = 13, 14, 15, 22
ARRAY, LRU_HASH, SCHED_CLS = 2, 9, 3  # BPF_MAP_TYPE_ARRAY, BPF_MAP_TYPE_LRU_HASH, BPF_PROG_TYPE_SCHED_CLS
CONSTANT = 1 << 7  # BPF_F_RDONLY_PROG
NAME = 15  # characters
LOG = 1 << 16  # bytes of the verifier's reasons
PROGRAM = struct.Struct("=II8s36xIQ16s")  # bpf_prog_info: type, ID, tag, ..., number of maps, address of their IDs, name
MAP = struct.Struct("=IIIIII16s")  # bpf_map_info: type, ID, sizes of key and value, entries, flags, name
MOST_MAPS = 64  # MAX_USED_MAPS
LICENCE = b"GPL"


class LoadedProgram(t.NamedTuple):
    """A program in the kernel. tag: see instructions.tags(). maps: the IDs of its maps."""

    number: int
    name: str
    tag: str
    maps: tuple[int, ...] = ()


class LoadedMap(t.NamedTuple):
    """A map with one entry."""

    number: int
    name: str
    value: bytes


@contextlib.contextmanager
def opened(descriptor: int) -> t.Iterator[int]:
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def create_map(name: str, value: bytes, is_constant: bool = False) -> int:
    """Create a map with one entry. Returns its descriptor. Raises Failure."""
    with _refused(f"the map {name}"):
        descriptor = _new_map(name, ARRAY, 4, len(value), 1, CONSTANT if is_constant else 0)
        try:
            key, held = ctypes.create_string_buffer(4), ctypes.create_string_buffer(value, len(value))
            bpf(MAP_UPDATE, struct.pack("=IxxxxQQQ", descriptor, ctypes.addressof(key), ctypes.addressof(held), 0))
            if is_constant:
                bpf(MAP_FREEZE, struct.pack("=I", descriptor))
        except OSError:
            os.close(descriptor)
            raise
    return descriptor


def create_memory(name: str, key: int, value: int, entries: int) -> int:
    """Create a map of which the kernel forgets the oldest entries. Returns its descriptor. Raises Failure.

    key, value: their lengths in bytes.
    """
    with _refused(f"the map {name}"):
        return _new_map(name, LRU_HASH, key, value, entries, 0)


def _new_map(name: str, kind: int, key: int, value: int, entries: int, flags: int) -> int:
    _permit_memory()
    return bpf(MAP_CREATE, struct.pack("=IIIIIII16s", kind, key, value, entries, flags, 0, 0, name[:NAME].encode()))


def load(name: str, code: bytes) -> int:
    """Load a program for packets of links. Returns its descriptor. Raises Failure, with the verifier's reasons."""
    _permit_memory()
    program, licence = ctypes.create_string_buffer(code, len(code)), ctypes.create_string_buffer(LICENCE)
    log = ctypes.create_string_buffer(LOG)

    def attributes(level: int) -> bytes:
        return struct.pack(
            *("=IIQQIIQII16s", SCHED_CLS, len(code) // 8, ctypes.addressof(program), ctypes.addressof(licence)),
            *(level, LOG if level else 0, ctypes.addressof(log) if level else 0, 0, 0, name[:NAME].encode()),
        )

    try:
        return bpf(PROG_LOAD, attributes(0))
    except OSError as error:
        with contextlib.suppress(OSError):  # a log that is too short for a long program would be an error by itself
            os.close(bpf(PROG_LOAD, attributes(1)))
        said = log.value.decode(errors="replace").strip().splitlines()
        reasons = f": {' '.join(said[-3:])}" if said else ""
        raise Failure(f"the kernel refused the BPF program {name}: {error.strerror}{reasons}") from error


def program(number: int) -> LoadedProgram | None:
    """Return a program by its ID; None if it has ended since. Raises OSError."""
    descriptor = _by_number(PROG_GET_FD_BY_ID, number)
    if descriptor is None:
        return None
    with opened(descriptor):
        numbers = (ctypes.c_uint32 * MOST_MAPS)()
        asked = PROGRAM.pack(0, 0, b"", MOST_MAPS, ctypes.addressof(numbers), b"")
        _kind, _number, tag, count, _address, name = PROGRAM.unpack(_info(descriptor, asked))
    return LoadedProgram(number, _text(name), tag.hex(), tuple(numbers[: min(count, MOST_MAPS)]))


def read_map(number: int) -> LoadedMap | None:
    """Return a map by its ID; None if it has ended since, or is none of one entry. Raises OSError."""
    descriptor = _by_number(MAP_GET_FD_BY_ID, number)
    if descriptor is None:
        return None
    with opened(descriptor):
        kind, _number, length, size, entries, _flags, name = MAP.unpack(_info(descriptor, bytes(MAP.size)))
        if (kind, length, entries) != (ARRAY, 4, 1):
            return None
        key, value = ctypes.create_string_buffer(4), ctypes.create_string_buffer(size)
        bpf(MAP_LOOKUP, struct.pack("=IxxxxQQQ", descriptor, ctypes.addressof(key), ctypes.addressof(value), 0))
    return LoadedMap(number, _text(name), value.raw)


def memory(number: int, name: str, key: int, value: int, entries: int) -> int | None:
    """Return a descriptor of a map of create_memory() by its ID; None if it has ended, or is another one. Raises OSError."""
    descriptor = _by_number(MAP_GET_FD_BY_ID, number)
    if descriptor is None:
        return None
    kind, _number, *sizes, _flags, found = MAP.unpack(_info(descriptor, bytes(MAP.size)))
    if (kind, sizes, _text(found)) == (LRU_HASH, [key, value, entries], name):
        return descriptor
    os.close(descriptor)
    return None


def _by_number(command: int, number: int) -> int | None:
    """Return a descriptor of a program or map by its ID; None if it has ended since. Raises OSError."""
    try:
        return bpf(command, struct.pack("=III", number, 0, 0))
    except FileNotFoundError:
        return None


def bpf(command: int, attributes: bytes) -> int:
    """Call bpf(2). Raises OSError."""
    return call(command, ctypes.create_string_buffer(attributes, len(attributes)))


def call(command: int, attributes: ctypes.Array[ctypes.c_char]) -> int:
    """Call bpf(2), which may write its answer into the attributes. Raises OSError."""
    syscall = SYSCALL.get(os.uname().machine)
    if syscall is None or struct.calcsize("P") != 8:  # a 32-bit program has other numbers
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    answer = ctypes.CDLL(None, use_errno=True).syscall(syscall, command, attributes, len(attributes))
    if answer < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return int(answer)


def _info(descriptor: int, asked: bytes) -> bytes:
    info = ctypes.create_string_buffer(asked, len(asked))
    bpf(OBJ_GET_INFO_BY_FD, struct.pack("=IIQ", descriptor, len(asked), ctypes.addressof(info)))
    return info.raw


def _text(name: bytes) -> str:
    return name.rstrip(b"\0").decode(errors="replace")


def _permit_memory() -> None:
    """Lift the bound of locked memory, under which kernels before Linux 5.11 count what is loaded."""
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


@contextlib.contextmanager
def _refused(thing: str) -> t.Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Failure(f"the kernel refused {thing}: {error.strerror}") from error
