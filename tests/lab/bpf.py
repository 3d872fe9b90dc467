# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""BPF programs on a link of a machine, as Cilium and Microsoft attach theirs: by traffic control, by tcx or as XDP.

A program either passes each packet on, or hands IPv6 TCP packets to another link before the node's network stack sees them.
"""

from __future__ import annotations

import json
import socket
from typing import Literal

from ansible_collections.kubenode.datapath.plugins.module_utils._bpf import attaching, attachments
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


def detach(machine: Machine, hook: Hook, name: str, link: str = "eth0") -> None:
    """Detaches the programs of a name, as an agent does that ends or is upgraded."""
    direction = "egress" if hook.endswith("egress") else "ingress"

    def detach_inside() -> None:
        index = socket.if_nametoindex(link)
        for place in attachments.places(index, direction):
            if place.name == name:
                attaching.detach(index, direction, place)

    machine.in_network(detach_inside)
