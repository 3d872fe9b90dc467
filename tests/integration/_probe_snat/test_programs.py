# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The BPF programs change a packet as the table does: random frames through both, compared byte for byte."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import random
import socket
import struct
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._bpf import instructions, loader
from ansible_collections.kubenode.datapath.plugins.module_utils._probe_snat import probe_programs
from ansible_collections.kubenode.datapath.plugins.module_utils._probe_snat.probe_programs import EGRESS, INGRESS
from ansible_collections.kubenode.datapath.plugins.module_utils._probe_snat.probe_table import AZURE_PROBE, Probe, ProbeSnat
from lab import bpf
from lab.load_balancer import PROBE_TRANSLATED
from lab.machine import Machine
from lab.namespace import machine
from lab.netfilter_log import GROUP, LONGEST, NetfilterLog

FRAMES = 20_000
BATCH = 200  # frames between two readings of the log
ETHERNET, IPV6 = 14, 40
WITH_EXTENSIONS = (0, 43, 44, 51, 60)  # which the programs do not touch
MAC, PEER_MAC = "02:00:00:00:00:01", "02:00:00:00:00:02"
PROBES = (AZURE_PROBE, Probe(ipaddress.IPv6Address("fe80::10"), ipaddress.IPv6Address("2001:db8:ffff::10")))
NEAR = ["fe80::1234:5678:9abd", "fe80:0:0:1:0:1234:5678:9abc", "2001:db8:9::9"]  # one bit or one half beside a probe
OWN = "2001:db8:1::4"
# What the table leaves of a packet in each direction, in a table of its own.
LOGGER = f"""
table ip6 logger {{{{}}}}
delete table ip6 logger
table ip6 logger {{{{
  chain logged {{{{ {{chain}} log group {GROUP} snaplen {LONGEST} queue-threshold 1
  }}}}
}}}}
"""
LOGGED = {
    INGRESS: "type filter hook prerouting priority -299; iifname eth0",
    EGRESS: "type filter hook postrouting priority -299; oifname eth0",
}


class Loaded(NamedTuple):
    programs: dict[str, int]
    maps: dict[str, int]

    def through(self, direction: str, frame: bytes) -> bytes:
        verdict, after = bpf.try_out(self.programs[direction], frame)
        is_last = direction == EGRESS and after != frame
        assert verdict == (0 if is_last else 0xFFFFFFFF), "the next program decides, but not on a reply to a probe"
        return after


@pytest.fixture(scope="module")
def loaded() -> Iterator[Loaded]:
    contents = probe_programs.maps(PROBES)
    maps = {name: loader.create_map(name, value, name == probe_programs.PROBES) for name, value in contents.items()}
    maps |= {name: loader.create_memory(name, *sizes) for name, sizes in probe_programs.CONNECTIONS.items()}
    programs = {}
    for direction in (INGRESS, EGRESS):
        lines = probe_programs.program(direction, len(PROBES))
        programs[direction] = loader.load(f"probe_{direction}", instructions.assembled(lines, maps))
    yield Loaded(programs, maps)
    for descriptor in (*programs.values(), *maps.values()):
        os.close(descriptor)


@pytest.fixture(scope="module")
def node() -> Iterator[Machine]:
    """A node with the table, whose eth0 is a cable to another end in the same network."""
    with machine("programs") as running:
        running.set_sysctls({"net.ipv6.conf.all.forwarding": 1, "net.ipv6.auto_flowlabels": 0})
        running.ip(
            [
                f"link add eth0 address {MAC} type veth peer name wire address {PEER_MAC}",
                "link set eth0 up",
                "link set wire up",
                f"addr add {OWN}/64 dev eth0 nodad",
                "neigh add 2001:db8:1::1 lladdr 02:00:00:00:00:03 dev eth0",
                "route add default via 2001:db8:1::1 dev eth0",
            ]
        )
        table = ProbeSnat(probes=PROBES).table()
        running.run(["nft", "-f", "-"], table.text())
        yield running


class Frames:
    """Random frames, with a number in the flow label, which nothing changes."""

    def __init__(self, seed: int, direction: str) -> None:
        self._chance = random.Random(seed)
        self._is_ingress = direction == INGRESS

    def frame(self, number: int) -> bytes:
        chance = self._chance
        protocol, payload = self._payload()
        source, destination = self._addresses()
        header = struct.pack(">IHBB", 6 << 28 | number, len(payload), protocol, chance.choice([1, 2, 64, 255]))
        kind = 0x8100 if self._is_ingress and chance.random() < 0.02 else 0x86DD
        tag = struct.pack(">HH", 7, 0x86DD) if kind == 0x8100 else b""
        padding = bytes(chance.randrange(20)) if self._is_ingress and chance.random() < 0.1 else b""
        ethernet = bytes.fromhex((MAC + PEER_MAC).replace(":", "")) + struct.pack(">H", kind) + tag
        packed = [ipaddress.IPv6Address(address).packed for address in (source, destination)]
        return ethernet + header + b"".join(packed) + payload + padding

    def _addresses(self) -> tuple[str, str]:
        chance = self._chance
        if self._is_ingress:
            sources = [*(str(probe.source) for probe in PROBES)] * 4 + NEAR
            return chance.choice(sources), chance.choice(
                [OWN, "2001:db8:2::5", "fe80::1", "febf::1", "fec0::1", "ff02::1", PROBE_TRANSLATED]
            )
        return chance.choice([OWN, "2001:db8:2::5"]), chance.choice([*(str(probe.translated) for probe in PROBES)] * 4 + NEAR)

    def _payload(self) -> tuple[int, bytes]:
        chance = self._chance
        protocol = chance.choice([6, 6, 6, 17, 17, 58, 58, 58, 136, 132, 47, 50, 59, 253, *WITH_EXTENSIONS])
        payload = bytearray(chance.randbytes(chance.choice([0, 1, 3, 4, 5, 7, 8, 9, 17, 18, 19, 20, 40, 100, 1200])))
        if protocol in WITH_EXTENSIONS:
            return protocol, struct.pack(">BBHI", 6, 0, 0x0104, 0) + bytes(payload)
        if protocol == 58 and payload:
            payload[0] = chance.choice([1, 3, 128, 129, 130, 131, 133, 134, 135, 136, 137, 143])
        place = {6: 16, 17: 6, 136: 6, 58: 2}.get(protocol)
        if place is not None and len(payload) >= place + 2 and chance.random() < 0.4:
            struct.pack_into(">H", payload, place, chance.choice([0, 0xFFFF, *self._sums()]))
        return protocol, bytes(payload)

    @staticmethod
    def _sums() -> list[int]:
        """The checksums that a translation turns into 0, which nft writes as 0xffff: the differences of the addresses."""
        sums = []
        for probe in PROBES:
            before, after = (sum(struct.unpack(">8H", address.packed)) for address in probe)
            sums += [(after - before) % 0xFFFF, (before - after) % 0xFFFF]
        return sums


@pytest.mark.parametrize("direction", [INGRESS, EGRESS])
def test_random_frames_leave_the_programs_as_they_leave_the_table(node: Machine, loaded: Loaded, direction: str) -> None:
    frames = Frames(2026, direction)
    counts: Counter[str] = Counter()
    node.run(["nft", "-f", "-"], LOGGER.format(chain=LOGGED[direction]))
    with contextlib.closing(NetfilterLog(node)) as log, contextlib.closing(_sender(node, direction)) as sender:
        for first in range(1, FRAMES, BATCH):
            sent = {number: frames.frame(number) for number in range(first, first + BATCH)}
            for frame in sent.values():
                with contextlib.suppress(PermissionError):  # as for a packet to port 0
                    _send(sender, direction, frame)
            by_table = {struct.unpack_from(">I", packet)[0] & 0xFFFFF: packet for packet in log.packets()}
            for number, frame in sent.items():
                after = loaded.through(direction, frame)
                counts[_compared(frame, after, by_table.get(number))] += 1
    print(direction, dict(counts))
    assert counts["differs"] == 0
    assert counts["translated"] > FRAMES / 10 and counts["kept"] > FRAMES / 10, counts


def _sender(node: Machine, direction: str) -> socket.socket:
    if direction == INGRESS:
        sock = node.socket(socket.AF_PACKET, socket.SOCK_RAW)
        sock.bind(("wire", 0))
        return sock
    return node.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_RAW)


def _send(sock: socket.socket, direction: str, frame: bytes) -> None:
    if direction == INGRESS:
        sock.send(frame)
    else:
        sock.sendto(frame[ETHERNET:], (str(ipaddress.IPv6Address(frame[38:54])), 0))


def _compared(frame: bytes, after: bytes, by_table: bytes | None) -> str:
    """What became of a frame: "lost" if the node took it for none before the table, or else how both have left it."""
    if by_table is None:
        return "lost"
    packet = after[ETHERNET : ETHERNET + len(by_table)]
    is_kept = after == frame
    if frame[ETHERNET + 6] in WITH_EXTENSIONS:
        return "extensions" if is_kept else "differs"
    if packet == by_table:
        return "kept" if is_kept else "translated"
    print("before", frame.hex(), "\nprogram", packet.hex(), "\ntable  ", by_table.hex())
    return "differs"
