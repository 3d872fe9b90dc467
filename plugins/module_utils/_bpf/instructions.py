# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A small assembler of BPF instructions, so that a node needs no compiler, and a reviewer reads what the kernel runs.

The set of instructions is that of RFC 9669. Registers: R0 has what a call returns, R1 to R5 what it takes,
R6 to R9 outlast it, and R10 is the end of the stack.
"""

from __future__ import annotations

import hashlib
import struct
import sys
import typing as t


class Register(int):
    def __str__(self) -> str:
        return f"r{int(self)}"


R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10 = map(Register, range(11))
Operand = t.Union[Register, int]

OWN_PROGRAMS = "kubenode_"  # how the names of this collection's programs begin
# RFC 9669, sections 4.1, 4.3 and 5: class, operation and size
ADD, AND, MOVE, SWAP = 0x07, 0x57, 0xB7, 0xDC  # of 64 bits with a number; SWAP is between the packet's order and the node's
FROM_REGISTER = 0x08
JUMP, CALL, EXIT, WIDE = 0x05, 0x85, 0x95, 0x18
CONDITIONS = {"==": 0x15, ">": 0x25, "!=": 0x55, "<": 0xA5}
LOAD, STORE_NUMBER, STORE, ATOMIC = 0x61, 0x62, 0x63, 0xDB
SIZES = {1: 0x10, 2: 0x08, 4: 0x00, 8: 0x18}  # in bytes
# include/uapi/linux/bpf.h, BPF_PSEUDO_*: a map, and the address of what its first entry has, from Linux 5.2 on
MAP, MAP_VALUE = 1, 2
ENCODED = struct.Struct("=BBhi")
SIGNED = 1 << 31


class Instruction(t.NamedTuple):
    """text: as an operator reads it. target: the label to which it jumps. place: the map whose value it addresses. further: the
    second half of a wide instruction.
    """

    code: int
    text: str
    to: int = 0
    of: int = 0
    offset: int = 0
    number: int = 0
    target: str = ""
    place: str = ""
    further: int | None = None

    @property
    def size(self) -> int:
        return 1 if self.further is None else 2


class Label(t.NamedTuple):
    name: str


Line = t.Union[Instruction, Label]


def load(to: Register, size: int, base: Register, offset: int) -> Instruction:
    return Instruction(LOAD + SIZES[size], f"{to} = {_at(size, base, offset)}", to, base, offset)


def store(size: int, base: Register, offset: int, value: Operand) -> Instruction:
    text = f"{_at(size, base, offset)} = {value}"
    if isinstance(value, Register):
        return Instruction(STORE + SIZES[size], text, base, value, offset)
    return Instruction(STORE_NUMBER + SIZES[size], text, base, 0, offset, value)


def count(base: Register, offset: int, value: Register) -> Instruction:
    """Add to a number of 8 bytes, as one operation."""
    return Instruction(ATOMIC, f"lock {_at(8, base, offset)} += {value}", base, value, offset)


def move(to: Register, value: Operand) -> Instruction:
    return _computed(MOVE, "=", to, value)


def add(to: Register, value: Operand) -> Instruction:
    return _computed(ADD, "+=", to, value)


def keep_bits(to: Register, value: int) -> Instruction:
    return Instruction(AND, f"{to} &= {value:#x}", to, number=value)


def swap(to: Register, bits: int) -> Instruction:
    """Turn a number of a packet into the node's order, or back, and leave out all bits above."""
    return Instruction(SWAP, f"{to} = be{bits} {to}", to, number=bits)


def address(to: Register, place: str, offset: int = 0) -> Instruction:
    """Get the address of a byte of what a map has. place: the map's name."""
    return Instruction(WIDE, f"{to} = {place}[0] + {offset}", to, MAP_VALUE, place=place, further=offset)


def reference(to: Register, place: str) -> Instruction:
    """Get a map, for a function. place: its name."""
    return Instruction(WIDE, f"{to} = map {place}", to, MAP, place=place, further=0)


def jump(target: str) -> Instruction:
    return Instruction(JUMP, f"goto {target}", target=target)


def jump_if(of: Register, condition: str, value: Operand, target: str) -> Instruction:
    code, text = CONDITIONS[condition], f"if {of} {condition} {value} goto {target}"
    if isinstance(value, Register):
        return Instruction(code | FROM_REGISTER, text, of, value, target=target)
    return Instruction(code, text, of, number=value, target=target)


def call(number: int, name: str) -> Instruction:
    """Call a function of the kernel (include/uapi/linux/bpf.h, ___BPF_FUNC_MAPPER)."""
    return Instruction(CALL, f"call {name}#{number}", number=number)


def leave() -> Instruction:
    return Instruction(EXIT, "exit")


def listing(lines: t.Iterable[Line]) -> str:
    """Return the program as text, a line for each instruction and label."""
    return "".join(f"{line.name}:\n" if isinstance(line, Label) else f"  {line.text}\n" for line in lines)


def assembled(lines: t.Sequence[Line], maps: t.Mapping[str, int]) -> bytes:
    """Return the program as the kernel loads it. maps: the descriptors of the maps by name."""
    places: dict[str, int] = {}
    end = 0
    for line in lines:
        if isinstance(line, Label):
            places[line.name] = end
        else:
            end += line.size
    code, position = b"", 0
    for line in lines:
        if isinstance(line, Instruction):
            position += line.size
            offset = places[line.target] - position if line.target else line.offset
            number = maps[line.place] if line.place else line.number
            code += _encoded(line.code, line.to, line.of, offset, number)
            code += b"" if line.further is None else _encoded(0, 0, 0, 0, line.further)
    return code


def tags(lines: t.Sequence[Line]) -> tuple[str, ...]:
    """Return the program's tag, by which the kernel identifies its instructions: with SHA-1, and with SHA-256 since Linux 6.18.

    The kernel computes it without maps (kernel/bpf/core.c, bpf_prog_calc_tag).
    """
    plain = [line._replace(further=0) if isinstance(line, Instruction) and line.place else line for line in lines]
    code = assembled(plain, {line.place: 0 for line in lines if isinstance(line, Instruction)})
    return hashlib.sha1(code).hexdigest()[:16], hashlib.sha256(code).hexdigest()[:16]


def _computed(code: int, sign: str, to: Register, value: Operand) -> Instruction:
    text = f"{to} {sign} {value}"
    if isinstance(value, Register):
        return Instruction(code | FROM_REGISTER, text, to, value)
    return Instruction(code, text, to, number=value)


def _at(size: int, base: Register, offset: int) -> str:
    return f"*(u{8 * size} *)({base} {offset:+})"


def _encoded(code: int, to: int, of: int, offset: int, number: int) -> bytes:
    registers = to | of << 4 if sys.byteorder == "little" else to << 4 | of
    return ENCODED.pack(code, registers, offset, number - 2 * SIGNED if number >= SIGNED else number)
