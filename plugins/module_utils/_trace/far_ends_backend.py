# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The other ends of a twin's links: sends packets in, answers for neighbours, and records the frames and the kernel's
messages."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import typing as t

from .._core import fields
from .._core.errors import Failure
from .._core.fields import IPV6
from .._netlink import nfnetlink, wire
from .._netlink.attributes import messages
from .._snapshot import proc_net
from .._twin import link_messages
from . import frame, kernel_events
from .frame import Frame, Request, Resolution
from .kernel_events import DROPS, TELLING, Event, Observation, Solicitation
from .packet import TCP, UDP, Packet

NETLINK_ADD_MEMBERSHIP, NFNLGRP_NFTRACE = 1, 9
PACKET_OUTGOING = 4  # include/uapi/linux/if_packet.h
IP_TRANSPARENT, IPV6_TRANSPARENT, SO_MARK, SO_RCVBUFFORCE = 19, 75, 36, 33
IP_MTU_DISCOVER, IPV6_MTU_DISCOVER, PMTUDISC_DONT, PMTUDISC_DO = 10, 23, 0, 2
UDP_HEADER = 8  # bytes
LOOK = 2  # milliseconds of a look at what arrives; of a busy machine it is longer, where a clock would end the wait too early
# Looks at which nothing arrives: behind what explains how the packet's way ends, and without that.
QUIET, PATIENCE = 1, 200
# A processor takes the frames of its queue in order (net/core/dev.c, enqueue_to_backlog). Frames that this process sends itself
# come back behind those that the packet has caused; between two of them, it passes a link at least, and the longest way has a
# dozen. No protocol reads them: ETH_P_802_EX1 is for experiments.
ECHOES, LOOPBACK = 32, "lo"
ECHO = bytes(12) + b"\x88\xb5"
MOST_LOOKS, MOST_MESSAGES = 2500, 50_000  # for a packet with all packets that it causes
BUFFER = 8 << 20  # bytes; a packet through thousands of rules is traced by as many messages


class FarEnds:
    """packets: a packet socket in the world. names: links by index, which is the same in the world.

    answer: returns the MAC address that answers a request on a link, None if none does, and that to which the answer is sent.
    quiet: looks without a sign of the packet after which its way is over; 0 for the first sign that explains how it ends, after
    which a copy may come.
    """

    def __init__(
        self,
        packets: socket.socket,
        names: t.Mapping[int, str],
        answer: t.Callable[[str, Request], tuple[bytes | None, bytes]],
        quiet: int = QUIET,
    ) -> None:
        self._packets, self._quiet = packets, quiet
        self._names = names
        self._indexes = {name: index for index, name in names.items()}
        self._answer = answer
        self._trace = wire.open_socket(wire.NETFILTER)
        for sock in (self._packets, self._trace):
            with contextlib.suppress(OSError):  # without root the usual size must suffice
                sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER)
            sock.setblocking(False)
        self._trace.bind((0, 0))  # a socket without an address is taken for the sender, which gets no copy
        self._trace.setsockopt(wire.SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, NFNLGRP_NFTRACE)
        self._poll = select.poll()
        self._poll.register(self._packets, select.POLLIN)
        self._poll.register(self._trace, select.POLLIN)
        self._echoes = 0  # frames of this process itself that have come back since anything else arrived
        self._open: list[socket.socket] = []
        self._resolved: dict[tuple[str, bytes], Resolution] = {}  # by link and address

    def forget(self) -> None:
        """End all connections, so that the next packet is the first of its connection."""
        for sock in self._open:
            sock.close()
        self._open.clear()
        with contextlib.suppress(Failure):  # a kernel without connection tracking
            nfnetlink.delete_connections()
        self._drain([], [], [])

    def resolve(self, link: str, request: Request, mac: bytes) -> tuple[bytes | None, list[Event]]:
        """Ask on a link, as the machine at its other end. Return the MAC address that answers, None if none does, and the rules
        that requests and answers met.

        mac: of the node there. Its neighbour for who asks may have been learned, and changes with the request.
        """
        events: list[Event] = []
        self._drain([], [], [])
        self._resolved.clear()
        for data in frame.requests(request, mac):
            self._write(link, data)
        quiet = 0
        for _look in range(MOST_LOOKS):
            if (link, request.target) in self._resolved or quiet >= PATIENCE:
                break
            if not self._drain([], [], events):
                quiet += not self._poll.poll(LOOK)
        answer = self._resolved.get((link, request.target))
        return answer.mac if answer and (answer.mac == mac or answer.is_for(request.mac)) else None, events

    def send(self, packet: Packet, source_mac: bytes = b"", destination_mac: bytes = b"") -> Observation:
        """Send the packet into its interface, or from the node itself, and wait until nothing more happens."""
        with _one_processor():
            return self._sent(packet, source_mac, destination_mac)

    def _sent(self, packet: Packet, source_mac: bytes, destination_mac: bytes) -> Observation:
        frames, solicitations, events = list[tuple[str, Frame]](), list[Solicitation](), list[Event]()
        self._drain([], [], [])
        self._echoes, before, error = 0, _counters(), ""
        if packet.interface:
            self._write(packet.interface, frame.build(packet, source_mac, destination_mac))
        else:
            try:
                packet = self._send_from_node(packet)
            except OSError as problem:
                error = problem.strerror or str(problem)
        looks = quiet = messages = 0
        while True:
            arrived = self._drain(frames, solicitations, events)
            looks, messages = looks + 1, messages + arrived
            quiet = 0 if arrived else quiet
            is_over = looks > MOST_LOOKS or messages > MOST_MESSAGES or self._echoes >= ECHOES
            if is_over or quiet >= self._quiet:
                seen = tuple(frames), tuple(solicitations), tuple(events)
                observation = Observation(packet, *seen, _moved(before), error)
                if is_over or quiet >= PATIENCE or is_explained(observation):
                    break
            with contextlib.suppress(OSError):  # the loopback is down
                self._packets.sendto(ECHO, (LOOPBACK, 0))
            quiet += not self._poll.poll(LOOK)
        unanswered = [solicitation for solicitation in solicitations if not solicitation.is_answered]
        wire.exchange(
            [
                link_messages.delete_neighbour(solicitation.request.target, self._indexes[solicitation.link])
                for solicitation in unanswered
            ]
        )
        return observation

    def _drain(self, frames: list[tuple[str, Frame]], solicitations: list[Solicitation], events: list[Event]) -> int:
        """Read what has arrived, and answer requests. Return how many frames and messages it was."""
        count = 0
        while count < MOST_MESSAGES:
            try:
                data, (name, _protocol, direction, *_rest) = self._packets.recvfrom(65535)
            except BlockingIOError:
                break
            link = self._names.get(int(name[1:])) if name[1:].isdigit() else None
            if direction == PACKET_OUTGOING or link is None:
                self._echoes += direction != PACKET_OUTGOING and data == ECHO
                continue
            count += 1
            received = frame.read(data)
            if isinstance(received, Request):
                mac, to = self._answer(link, received)
                solicitations.append(Solicitation(link, received, mac is not None and to == received.mac))
                if mac is not None:
                    self._write(link, frame.answer(received, mac, to))
            elif isinstance(received, Resolution):
                self._resolved[link, received.target] = received
            elif received:
                frames.append((link, received))
        with contextlib.suppress(BlockingIOError):
            while count < MOST_MESSAGES:
                for message in messages(self._receive()):
                    if message.kind == nfnetlink.TRACE:
                        count += 1
                        events.append(kernel_events.event(message.body))
        self._echoes = 0 if count else self._echoes
        return count

    def _receive(self) -> bytes:
        try:
            return self._trace.recv(wire.BUFFER)
        except OSError as error:
            if isinstance(error, BlockingIOError):
                raise
            return b""  # ENOBUFS: messages were lost

    def _write(self, link: str, data: bytes) -> None:
        with contextlib.suppress(OSError):  # the link is down
            self._packets.sendto(data, (f"w{self._indexes[link]}", 0))

    def _send_from_node(self, packet: Packet) -> Packet:
        """Send from a socket of the node. Return the packet with the source that the kernel chose. Raises OSError."""
        kinds = {TCP: socket.SOCK_STREAM, UDP: socket.SOCK_DGRAM}
        kind = kinds.get(packet.protocol, socket.SOCK_RAW)
        number = packet.protocol if kind == socket.SOCK_RAW else 0
        sock = socket.socket(packet.family, kind | socket.SOCK_NONBLOCK, number)
        self._open.append(sock)
        level, transparent = (
            (socket.IPPROTO_IPV6, IPV6_TRANSPARENT) if packet.family == IPV6 else (socket.IPPROTO_IP, IP_TRANSPARENT)
        )
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if kind == socket.SOCK_STREAM:  # a reply completes the connection, whose ports must be free again when forget() ends it
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if packet.mark:
            sock.setsockopt(socket.SOL_SOCKET, SO_MARK, packet.mark)
        if packet.source:
            sock.setsockopt(level, transparent, 1)
        if packet.length:
            discover = IPV6_MTU_DISCOVER if packet.family == IPV6 else IP_MTU_DISCOVER
            sock.setsockopt(level, discover, PMTUDISC_DO if packet.is_whole else PMTUDISC_DONT)
        port = 0 if kind == socket.SOCK_RAW else packet.source_port
        sock.bind((fields.show(packet.source) if packet.source else "", port))
        place = (fields.show(packet.destination), packet.destination_port if kind != socket.SOCK_RAW else 0)
        scope = (0, self._scope(packet)) if packet.family == IPV6 else ()
        with contextlib.suppress(BlockingIOError):
            sock.connect((*place, *scope))
        address, *_rest = sock.getsockname()
        packet = packet._replace(source=fields.address(address.partition("%")[0])[1])
        if kind == socket.SOCK_DGRAM:
            sock.send(frame.payload(packet)[UDP_HEADER:])
        elif kind == socket.SOCK_RAW:
            sock.send(frame.payload(packet))
        return packet

    def _scope(self, packet: Packet) -> int:
        """Return the index of the first link but the loopback for a link-local destination, and 0 for any other."""
        return min((index for index in self._names if index > 1), default=0) if fields.is_link_local(packet.destination) else 0


@contextlib.contextmanager
def _one_processor() -> t.Iterator[None]:
    """Stay on one processor, so that all frames come into one queue."""
    usual = os.sched_getaffinity(0)
    with contextlib.suppress(OSError):  # a container may forbid it; then the scheduler rarely moves so short a work
        os.sched_setaffinity(0, {sorted(usual)[os.getpid() % len(usual)]})
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, usual)


def _counters() -> list[str]:
    """Return the texts of the kernel's counters."""
    texts = []
    for path in proc_net.COUNTERS:
        with contextlib.suppress(OSError), open(path) as file:
            texts.append(file.read())
    return texts


def _moved(before: t.Sequence[str]) -> dict[str, int]:
    """Return the counters that have moved, and by how much."""
    pairs = [pair for texts in zip(before, _counters()) for pair in zip(*map(str.splitlines, texts))]
    # In some files, the line before a line of values has their names.
    changed = [
        pair for number, pair in enumerate(pairs) if pair[0] != pair[1] or (pairs[number + 1 :] and len({*pairs[number + 1]}) > 1)
    ]
    return kernel_events.moved(*(proc_net.counters("\n".join(lines)) for lines in zip(*changed))) if changed else {}


def is_explained(observation: Observation) -> bool:
    """Return True if an observation explains how the packet's way ends."""
    return bool(
        observation.error
        or observation.frames
        or any(not solicitation.is_answered for solicitation in observation.solicitations)
        or any(event.verdict in DROPS for event in observation.events)
        or any(name.endswith(TELLING) for name in observation.counters)
    )
