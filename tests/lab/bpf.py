# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""BPF programs on a link of a machine, as Cilium and Microsoft attach theirs: by traffic control, by tcx or as XDP.

A program either passes each packet on, or hands IPv6 TCP packets to another link before the node's network stack sees them.
"""

from __future__ import annotations

import ctypes
import ipaddress
import json
import socket
import struct
from typing import Literal

from ansible_collections.kubenode.datapath.plugins.module_utils._bpf import attaching, attachments, loader
from ansible_collections.kubenode.datapath.plugins.module_utils._bpf import instructions as i
from lab.machine import Machine

Hook = Literal["ingress", "egress", "tcx", "tcx egress", "XDP"]

# Runs on the machine, with its arguments as JSON. Numbers are of linux/bpf.h, linux/if_link.h and linux/pkt_cls.h.
SCRIPT = """
import ctypes, json, os, socket, struct, sys

hook, link, name, to, priority = json.loads({arguments!r})
index = socket.if_nametoindex(link)

def bpf(command, attributes):
    buffer = ctypes.create_string_buffer(attributes.ljust(128, b"\\0"), 128)
    number = {{"x86_64": 321, "aarch64": 280}}[os.uname().machine]
    answer = ctypes.CDLL(None, use_errno=True).syscall(number, command, buffer, 128)
    assert answer >= 0, os.strerror(ctypes.get_errno())
    return answer

def instruction(code, to=0, of=0, offset=0, number=0):
    return struct.pack("<BBhi", code, to | of << 4, offset, number)

PASS = [instruction(0xB7, 0, number=2 if hook == "XDP" else 0), instruction(0x95)]  # r0 = XDP_PASS or TC_ACT_OK; exit
REDIRECT = [
    instruction(0x61, 2, 1, 16),  # r2 = the packet's protocol
    instruction(0x55, 2, offset=11, number=socket.htons(0x86DD)),  # not IPv6: pass
    instruction(0x61, 3, 1, 76), instruction(0x61, 4, 1, 80),  # r3, r4 = the packet's begin and end
    instruction(0xBF, 5, 3), instruction(0x07, 5, number=54),
    instruction(0x2D, 5, 4, 7),  # shorter than 54 bytes: pass
    instruction(0x71, 5, 3, 20),  # r5 = next header
    instruction(0x55, 5, offset=5, number=socket.IPPROTO_TCP),
    instruction(0xB7, 1, number=socket.if_nametoindex(to) if to else 0),
    instruction(0xB7, 2), instruction(0xB7, 3), instruction(0xB7, 4),
    instruction(0x85, number=152),  # bpf_redirect_neigh()
    instruction(0x95),
]
REDIRECT[1] = instruction(0x55, 2, offset=len(REDIRECT) - 2, number=socket.htons(0x86DD))
REDIRECT[6] = instruction(0x2D, 5, 4, len(REDIRECT) - 7)
REDIRECT[8] = instruction(0x55, 5, offset=len(REDIRECT) - 9, number=socket.IPPROTO_TCP)
code = b"".join((REDIRECT if to else []) + PASS)
program, license = ctypes.create_string_buffer(code), ctypes.create_string_buffer(b"GPL")
kind = 6 if hook == "XDP" else 3
load = struct.pack("=IIQQIIQII", kind, len(code) // 8, ctypes.addressof(program), ctypes.addressof(license), 0, 0, 0, 0, 0)
fd = bpf(5, load + name[:15].encode().ljust(16, b"\\0"))

def attribute(kind, data):
    return struct.pack("HH", 4 + len(data), kind) + data + b"\\0" * (-len(data) % 4)

def send(kind, flags, body):
    netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
    netlink.send(struct.pack("IHHII", 16 + len(body), kind, 5 | flags, 1, 0) + body)
    (error,) = struct.unpack_from("i", netlink.recv(4096), 16)
    assert error == 0, os.strerror(-error)

if hook.startswith("tcx"):
    bpf(8, struct.pack("=IIII", index, fd, 46 + (hook == "tcx egress"), 1 << 4))  # BPF_F_AFTER all others, as Cilium does
elif hook == "XDP":
    program = attribute(1, struct.pack("i", fd)) + attribute(3, struct.pack("I", 2))
    send(19, 0, struct.pack("BxHiII", 0, 0, index, 0, 0) + attribute(43, program))
else:
    parent = {{"ingress": 0xFFFFFFF2, "egress": 0xFFFFFFF3}}[hook]
    options = attribute(6, struct.pack("I", fd)) + attribute(7, name.encode() + b"\\0") + attribute(8, struct.pack("I", 1))
    body = struct.pack("BxxxiIII", 0, index, 1, parent, priority << 16 | socket.htons(3)) + attribute(1, b"bpf\\0")
    send(44, 0x600, body + attribute(2, options))
"""


def attach(machine: Machine, hook: Hook, name: str, link: str = "eth0", to: str = "", priority: int = 1) -> None:
    """Loads a program and attaches it. to: the link that gets IPv6 TCP packets; passes all packets on without it.

    priority: of a filter of traffic control. By tcx the program comes after those that are there.
    """
    if hook in ("ingress", "egress"):
        machine.run(["tc", "qdisc", "replace", "dev", link, "clsact"])
    arguments = json.dumps([hook, link, name, to, priority])
    machine.run(["/usr/bin/python3", "-"], SCRIPT.format(arguments=arguments))


def counts(machine: Machine, name: str, link: str = "eth0") -> list[tuple[int, int]]:
    """The packets and bytes that a program's map ``counts`` has, in its order."""

    def read_inside() -> list[tuple[int, int]]:
        places = attachments.places(socket.if_nametoindex(link), "ingress")
        programs = [loader.program(place.number) for place in places if place.name == name]
        maps = [loader.read_map(number) for program in programs if program for number in program.maps]
        return [entry for each in maps if each and each.name == "counts" for entry in struct.iter_unpack("=QQ", each.value)]

    return machine.in_network(read_inside)


def try_out(descriptor: int, frame: bytes) -> tuple[int, bytes]:
    """Runs a program on a frame, which no link sees (BPF_PROG_TEST_RUN). Its verdict, and the frame after it."""
    given, result = ctypes.create_string_buffer(frame, len(frame)), ctypes.create_string_buffer(len(frame) + 256)
    attributes = struct.pack(
        *("=IIIIQQIIIIQQ", descriptor, 0, len(frame), len(result), ctypes.addressof(given), ctypes.addressof(result)),
        *(0, 0, 0, 0, 0, 0),
    )
    buffer = ctypes.create_string_buffer(attributes, len(attributes))
    loader.call(10, buffer)
    _descriptor, verdict, _size, length = struct.unpack_from("=IIII", buffer.raw)
    return verdict, result.raw[:length]


def detach(machine: Machine, hook: Hook, name: str, link: str = "eth0") -> None:
    """Detaches the programs of a name, as an agent does that ends or is upgraded."""
    direction = "egress" if hook.endswith("egress") else "ingress"

    def detach_inside() -> None:
        index = socket.if_nametoindex(link)
        for place in attachments.places(index, direction):
            if place.name == name:
                attaching.detach(index, direction, place)

    machine.in_network(detach_inside)


def attach_node_port(machine: Machine, node: str, pod: str, link: str, port: int) -> None:
    """Attaches programs that translate connections by TCP to an address of the node, as Cilium does for a node port.

    At ingress they hand a packet to the pod by its link. At egress they give a reply the node's address again, if it is for a
    client that ingress has seen (bpf/lib/nodeport_egress.h), and let no further program see it. port: of the pod; that of the
    node is PORT.
    """
    addresses = [ipaddress.IPv6Address(address).packed for address in (node, pod)]
    ports = b"".join(struct.pack(">HH", number, 0) for number in (PORT, port))

    def attach_inside() -> None:
        maps = {"pair": loader.create_map("pair", b"".join(addresses) + ports), "client": loader.create_map("client", bytes(16))}
        lines = {"ingress": _to_pod(socket.if_nametoindex(link)), "egress": _from_pod()}
        for direction, program in lines.items():
            name = {"ingress": "cil_from_netdev", "egress": "cil_to_netdev"}[direction]
            descriptor = loader.load(name, i.assembled(program, maps))
            kind = attachments.ATTACHMENTS[direction]
            loader.bpf(8, struct.pack("=IIII", socket.if_nametoindex("eth0"), descriptor, kind, 1 << 4))  # as above

    machine.in_network(attach_inside)


PORT = 30080
_HEADER, _PORTS = -40, -48  # on the stack
_SOURCE, _DESTINATION = 8, 24


def _to_pod(index: int) -> list[i.Line]:
    seen = [line for half in (0, 8) for line in (i.load(i.R1, 8, i.R10, _HEADER + _SOURCE + half), i.store(8, i.R8, half, i.R1))]
    handed = [*(i.move(register, value) for register, value in ((i.R1, index), (i.R2, 0), (i.R3, 0), (i.R4, 0)))]
    is_ours = [*_unlike(i.R7, 0, _DESTINATION), *_unlike_port(2, 32)]
    return [*_begun(), *is_ours, *seen, *_replaced(_DESTINATION, 0, 2), *handed, i.call(152, "redirect_neigh"), i.leave(), *_END]


def _from_pod() -> list[i.Line]:
    is_ours = [*_unlike(i.R7, 16, _SOURCE), *_unlike_port(0, 36), *_unlike(i.R8, 0, _DESTINATION)]
    return [*_begun(), *is_ours, *_replaced(_SOURCE, 16, 0), *_END]


def _copied(place: int, offset: int, length: int) -> list[i.Line]:
    call = [i.move(i.R1, i.R6), i.move(i.R2, offset), i.move(i.R3, i.R10), i.add(i.R3, place), i.move(i.R4, length)]
    return [*call, i.call(26, "skb_load_bytes"), i.jump_if(i.R0, "!=", 0, "pass")]


def _begun() -> list[i.Line]:
    protocol = [i.move(i.R6, i.R1), i.load(i.R0, 4, i.R6, 16), i.jump_if(i.R0, "!=", socket.htons(0x86DD), "pass")]
    tcp = [i.load(i.R0, 1, i.R10, _HEADER + 6), i.jump_if(i.R0, "!=", socket.IPPROTO_TCP, "pass")]
    return [
        *protocol,
        *_copied(_HEADER, 14, 40),
        *tcp,
        *_copied(_PORTS, 54, 4),
        i.address(i.R7, "pair"),
        i.address(i.R8, "client"),
    ]


def _unlike(base: i.Register, offset: int, field: int) -> list[i.Line]:
    parts = ((i.load(i.R1, 8, i.R10, _HEADER + field + half), i.load(i.R2, 8, base, offset + half)) for half in (0, 8))
    return [line for loads in parts for line in (*loads, i.jump_if(i.R1, "!=", i.R2, "pass"))]


def _unlike_port(field: int, offset: int) -> list[i.Line]:
    return [i.load(i.R1, 2, i.R10, _PORTS + field), i.load(i.R2, 2, i.R7, offset), i.jump_if(i.R1, "!=", i.R2, "pass")]


def _replaced(field: int, old: int, port: int) -> list[i.Line]:
    """Gives the packet the other address and port of the pair. port: its offset in the header of TCP."""
    new, (old_port, new_port) = 16 - old, (32, 36) if old == 0 else (36, 32)
    difference = [i.move(i.R1, i.R7), i.add(i.R1, old), i.move(i.R2, 16), i.move(i.R3, i.R7), i.add(i.R3, new), i.move(i.R4, 16)]
    checksum = [i.move(i.R1, i.R6), i.move(i.R2, 70)]
    return [
        *difference, i.move(i.R5, 0), i.call(28, "csum_diff"),
        i.move(i.R4, i.R0), i.move(i.R3, 0), *checksum, i.move(i.R5, 0x10), i.call(11, "l4_csum_replace"),
        i.load(i.R3, 2, i.R7, old_port), i.load(i.R4, 2, i.R7, new_port), *checksum, i.move(i.R5, 2),
        i.call(11, "l4_csum_replace"),
        *_stored(14 + field, new, 16), *_stored(54 + port, new_port, 2),
    ]  # fmt: skip


def _stored(offset: int, place: int, length: int) -> list[i.Line]:
    call = [
        i.move(i.R1, i.R6),
        i.move(i.R2, offset),
        i.move(i.R3, i.R7),
        i.add(i.R3, place),
        i.move(i.R4, length),
        i.move(i.R5, 0),
    ]
    return [*call, i.call(9, "skb_store_bytes")]


_END: list[i.Line] = [i.Label("pass"), i.move(i.R0, 0), i.leave()]  # TC_ACT_OK
