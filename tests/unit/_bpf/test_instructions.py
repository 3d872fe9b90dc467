# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The assembler of BPF instructions; tests/integration/_probe_snat/test_programs.py has the kernel run what it makes."""

from __future__ import annotations

import sys

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._bpf import instructions as i
from ansible_collections.kubenode.datapath.plugins.module_utils._bpf.instructions import R0, R1, R2, R10, Instruction, Label

# By RFC 9669, sections 3 to 5.
ENCODED: list[tuple[Instruction, str, str]] = [
    (i.move(R0, -1), "b7 00 00 00 ff ff ff ff", "r0 = -1"),
    (i.move(R2, R1), "bf 12 00 00 00 00 00 00", "r2 = r1"),
    (i.add(R2, 14), "07 02 00 00 0e 00 00 00", "r2 += 14"),
    (i.keep_bits(R1, 0xFFC0), "57 01 00 00 c0 ff 00 00", "r1 &= 0xffc0"),
    (i.swap(R1, 16), "dc 01 00 00 10 00 00 00", "r1 = be16 r1"),
    (i.load(R1, 8, R10, -32), "79 a1 e0 ff 00 00 00 00", "r1 = *(u64 *)(r10 -32)"),
    (i.load(R0, 1, R10, -34), "71 a0 de ff 00 00 00 00", "r0 = *(u8 *)(r10 -34)"),
    (i.count(R2, 8, R1), "db 12 08 00 00 00 00 00", "lock *(u64 *)(r2 +8) += r1"),
    (i.store(2, R10, -74, 0), "6a 0a b6 ff 00 00 00 00", "*(u16 *)(r10 -74) = 0"),
    (i.store(4, R10, -72, R1), "63 1a b8 ff 00 00 00 00", "*(u32 *)(r10 -72) = r1"),
    (i.call(26, "skb_load_bytes"), "85 00 00 00 1a 00 00 00", "call skb_load_bytes#26"),
    (i.leave(), "95 00 00 00 00 00 00 00", "exit"),
]


@pytest.mark.skipif(sys.byteorder != "little", reason="the encodings are those of little-endian machines")
@pytest.mark.parametrize(("instruction", "encoded", "text"), ENCODED, ids=[text for _instruction, _encoded, text in ENCODED])
def test_an_instruction_is_encoded_as_the_kernel_reads_it(instruction: Instruction, encoded: str, text: str) -> None:
    assert i.assembled([instruction], {}).hex(" ") == encoded and i.listing([instruction]) == f"  {text}\n"


def test_a_jump_counts_the_instructions_up_to_its_label() -> None:
    lines: list[i.Line] = [
        i.jump_if(R0, "!=", 0, "end"),
        i.address(R1, "map", 8),
        i.jump("end"),
        i.leave(),
        Label("end"),
        i.leave(),
    ]
    code = i.assembled(lines, {"map": 7})
    assert [int.from_bytes(code[place + 2 : place + 4], sys.byteorder) for place in (0, 24)] == [4, 1]  # an address is two
    assert code[12:16] == (7).to_bytes(4, sys.byteorder) and code[20:24] == (8).to_bytes(4, sys.byteorder)


def test_a_tag_is_of_the_instructions_and_not_of_the_maps() -> None:
    lines = [i.address(R1, "map", 8), i.leave()]
    assert i.tags(lines) == i.tags([i.address(R1, "map", 16), i.leave()]) != i.tags([i.address(R2, "map", 8), i.leave()])
