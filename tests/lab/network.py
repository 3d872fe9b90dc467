# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Networks of machines by their configuration, and real TCP connections and echo requests through them.

Each machine accepts connections at PORT of any of its addresses. What a machine's kernel answers is the truth.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import select
import socket
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from lab.machine import Machine
from lab.namespace import FORWARDING_NETWORK, Namespace

PORT = 8080
FREEBIND = {4: (socket.IPPROTO_IP, 15, 1), 6: (socket.IPPROTO_IPV6, 78, 1)}  # include/uapi/linux/in.h, in6.h
# Options that forbid to divide a packet, as ping's -M do (IP_PMTUDISC_DO; include/uapi/linux/in.h, in6.h).
WHOLE = {4: [(socket.IPPROTO_IP, 10, 2)], 6: [(socket.IPPROTO_IPV6, 23, 2), (socket.IPPROTO_IPV6, 62, 1)]}
ECHO = {4: (8, 0), 6: (128, 129)}  # types of a request and of its answer
PATIENCE = 0.25  # seconds for a connection: a lost packet is sent again after one
# What a kernel has learned: neighbours, and the sizes of paths. No flush removes those of IPv6, so they expire at once.
FORGET = "echo 0 > /proc/sys/net/ipv6/route/mtu_expires; ip -4 route flush cache; exec ip neigh flush all"


class Connection(NamedTuple):
    """sender: a machine. source: empty where the machine's kernel chooses. link: of the node, by which the packet comes in.

    length: of an echo request, which no router may divide and which has no port; 0 for a connection of TCP. mark: of the socket.
    """

    sender: str
    source: str
    destination: str
    port: int
    link: str
    length: int = 0
    mark: int = 0

    @property
    def packet(self) -> dict[str, Any]:
        """The packet as the trace takes it."""
        packet = {"source": self.source, "destination": self.destination, "interface": self.link}
        kind = {"protocol": "icmp", "length": self.length, "df": True}
        kind = kind if self.length else {"protocol": "tcp", "destination_port": self.port}
        packet["mark"] = hex(self.mark) if self.mark else ""
        return {**{key: value for key, value in packet.items() if value}, **kind}

    @property
    def version(self) -> int:
        return 6 if ":" in self.destination else 4


class Cable(NamedTuple):
    """A pair of links: of a machine, and of another one."""

    machine: str
    link: str
    far: str
    far_link: str


class Network:
    """Machines and their cables, with lines for ``ip`` and settings, each by machine.

    lines: must be accepted. late: run after all of them and may fail, as ``ip`` may not know a kind of link; so may tc, of the
    node. commands: lines of the shell, which must be accepted. rules: of the node, as nft takes them. saves: of the node, as
    iptables-save prints them, by the program that takes them.
    """

    routers: tuple[str, ...] = ("node", "world")

    def __init__(self, cables: Sequence[Cable]) -> None:
        self.cables = [*cables]
        self.machines = [*dict.fromkeys(name for cable in cables for name in (cable.machine, cable.far))]
        self.lines: dict[str, list[str]] = {name: [] for name in self.machines}
        self.late: dict[str, list[str]] = {name: [] for name in self.machines}
        self.commands: dict[str, list[str]] = {name: [] for name in self.machines}
        self.settings: dict[str, dict[str, int]] = {name: {} for name in self.machines}
        self.rules: list[str] = []
        self.saves: dict[str, str] = {}
        self.tc: list[str] = []

    @contextlib.contextmanager
    def _running(self, _machines: Mapping[str, Machine]) -> Iterator[None]:
        """Run what must be running before the machines are configured."""
        yield


@contextlib.contextmanager
def built(network: Network) -> Iterator[Mapping[str, Machine]]:
    """Build the machines, with a process that holds each."""
    namespaces = {name: Namespace.network(name) for name in network.machines}
    try:
        for namespace in namespaces.values():
            namespace.wait()
        machines = {name: Machine(name, namespace.pid) for name, namespace in namespaces.items()}
        _connect(network, machines)
        with network._running(machines):
            for name, machine in machines.items():
                _configure(network, name, machine)
            for name, machine in machines.items():
                _configure_late(network, name, machine)
            yield machines
    finally:
        for namespace in namespaces.values():
            namespace.end()
        for namespace in namespaces.values():
            namespace.close()


def _connect(network: Network, machines: Mapping[str, Machine]) -> None:
    for name in network.routers:
        # A new namespace takes its settings from the machine that the tests run on.
        machines[name].run_from_host(["sh", "-c", f"{FORWARDING_NETWORK}\necho 1 > /proc/sys/net/ipv4/nexthop_compat_mode"])
    ends: dict[str, list[str]] = {name: [] for name in machines}
    makers: dict[str, list[str]] = {}
    for name, link, far, far_link in network.cables:
        makers.setdefault(name, []).append(f"link add {link} type veth peer name {far_link} netns {machines[far].pid}")
        ends[name].append(link)
        ends[far].append(far_link)
    for name, lines in makers.items():
        machines[name].ip(lines)
    for name, links in ends.items():
        machines[name].ip(f"link set {link} up" for link in (*links, "lo"))


def _configure(network: Network, name: str, machine: Machine) -> None:
    lines = network.lines[name]
    machine.ip(line for line in lines if not line.startswith("-6 "))
    ipv6 = [line.removeprefix("-6 ") for line in lines if line.startswith("-6 ")]
    if ipv6:
        machine.run_from_host(["ip", "-6", "-batch", "-"], "\n".join([*ipv6, ""]))
    if settings := network.settings[name]:
        machine.run_from_host(["sysctl", "-q", "-e", "-w", *(f"{key}={value}" for key, value in settings.items())])
    if commands := network.commands[name]:
        machine.run_from_host(["sh", "-ec", "\n".join(commands)])


def _configure_late(network: Network, name: str, machine: Machine) -> None:
    late = [f"ip {line}" for line in network.late[name]]
    if name == "node":
        late += [f"tc {line}" for line in network.tc]
    if late:
        machine.run(["sh", "-c", "\n".join(late)], check=False)
    if name == "node":
        for program, save in network.saves.items():
            machine.run_from_host([program, "--noflush"], save)
        if network.rules:
            machine.run_from_host(["nft", "-f", "-"], "\n".join([*network.rules, ""]))


@contextlib.contextmanager
def listening(machines: Mapping[str, Machine]) -> Iterator[list[socket.socket]]:
    """Let each machine accept connections at PORT of all of its addresses, as the kernel does for a socket that listens."""
    with contextlib.ExitStack() as stack:
        sockets = []
        for machine in machines.values():
            sock = stack.enter_context(machine.socket(socket.AF_INET6, socket.SOCK_STREAM))
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            sock.bind(("::", PORT))
            sock.listen(1024)
            sock.setblocking(False)
            sockets.append(sock)
        yield sockets


def connect(machines: Mapping[str, Machine], connections: Sequence[Connection]) -> dict[Connection, bool]:
    """Return which connections are made, each by machines that have learned nothing from another one."""
    return {connection: _is_answered(machines, connection) for connection in connections}


def _is_answered(machines: Mapping[str, Machine], connection: Connection) -> bool:
    for machine in machines.values():
        machine.run_from_host(["sh", "-c", FORGET])
    with contextlib.ExitStack() as stack:
        for sock, _connection in _begun(machines, [connection], stack).values():
            if connection.length:
                return _is_echoed(sock, connection)
            poll = select.poll()
            poll.register(sock, select.POLLOUT)
            return bool(poll.poll(PATIENCE * 1000)) and sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
    return False


def _is_echoed(sock: socket.socket, connection: Connection) -> bool:
    """Send an echo request, and return whether its answer comes."""
    version = connection.version
    kind, answer = ECHO[version]
    # The kernel computes the checksum of IPv6 alone.
    head = struct.pack("!BBHHH", kind, 0, ~(kind << 8) & 0xFFFF if version == 4 else 0, 0, 0)
    for option in WHOLE[version]:
        sock.setsockopt(*option)
    sock.settimeout(PATIENCE)
    with contextlib.suppress(OSError):
        sock.send(head.ljust(connection.length - (20 if version == 4 else 40), b"\0"))
        while True:
            if sock.recv(1 << 16)[20 if version == 4 else 0] == answer:
                return True
    return False


def _begun(
    machines: Mapping[str, Machine], connections: Sequence[Connection], stack: contextlib.ExitStack
) -> dict[int, tuple[socket.socket, Connection]]:
    """Begin the connections that the senders' kernels do not refuse, and return their sockets by file descriptor."""
    begun = {}
    of_sender: dict[str, list[Connection]] = {}
    for connection in connections:
        of_sender.setdefault(connection.sender, []).append(connection)
    for sender, listed in of_sender.items():
        made = machines[sender].in_network(functools.partial(_sockets, listed))
        for sock, connection in zip(map(stack.enter_context, made), listed):
            sock.setblocking(False)
            try:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, connection.mark)
                if connection.source:
                    sock.setsockopt(*FREEBIND[connection.version])
                    sock.bind((connection.source, 0))
                code = sock.connect_ex((connection.destination, connection.port))
            except OSError:
                continue
            if code == (0 if connection.length else errno.EINPROGRESS):
                begun[sock.fileno()] = (sock, connection)
    return begun


def _sockets(connections: Sequence[Connection]) -> list[socket.socket]:
    kinds = {4: (socket.AF_INET, socket.IPPROTO_ICMP), 6: (socket.AF_INET6, socket.IPPROTO_ICMPV6)}
    return [
        socket.socket(
            kinds[each.version][0], *((socket.SOCK_RAW, kinds[each.version][1]) if each.length else (socket.SOCK_STREAM,))
        )
        for each in connections
    ]


class Exchange:
    """Connections on which each end sends a segment of full size, and then its end, which the other one has to receive.

    made: those that a kernel has made; complete: those that passed the segments of both directions as well.
    """

    def __init__(
        self, machines: Mapping[str, Machine], listeners: Sequence[socket.socket], connections: Sequence[Connection]
    ) -> None:
        self.made: set[Connection] = set()
        self.complete: set[Connection] = set()
        self._listeners = {sock.fileno(): sock for sock in listeners}
        self._accepted: dict[int, socket.socket] = {}
        with contextlib.ExitStack() as self._stack:
            self._poll = self._stack.enter_context(select.epoll())
            self._begun = _begun(machines, connections, self._stack)
            for number in self._listeners:
                self._poll.register(number, select.EPOLLIN)
            for number in self._begun:
                self._poll.register(number, select.EPOLLOUT)
            self._exchange()

    def _exchange(self) -> None:
        waiting = {*self._begun}
        while waiting and (events := self._poll.poll(PATIENCE)):
            for number, _event in events:
                if number in self._listeners:
                    self._accept(self._listeners[number])
                elif number in self._accepted:
                    self._answer(self._accepted[number])
                elif self._has_ended(*self._begun[number]):
                    self._poll.unregister(number)
                    waiting.discard(number)

    def _accept(self, listener: socket.socket) -> None:
        sock = self._stack.enter_context(listener.accept()[0])
        sock.setblocking(False)
        self._accepted[sock.fileno()] = sock
        self._poll.register(sock.fileno(), select.EPOLLIN)

    def _answer(self, sock: socket.socket) -> None:
        with contextlib.suppress(OSError):
            if sock.recv(1 << 16):
                return
            _send(sock)
        self._poll.unregister(sock.fileno())

    def _has_ended(self, sock: socket.socket, connection: Connection) -> bool:
        """Go on with a connection, and return whether it is at its end."""
        try:
            if connection in self.made:
                if sock.recv(1 << 16):
                    return False
                self.complete.add(connection)
            elif sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0:
                self.made.add(connection)
                _send(sock)
                self._poll.modify(sock.fileno(), select.EPOLLIN)
                return False
        except OSError:
            pass
        return True


def _send(sock: socket.socket) -> None:
    """Send a segment as large as the path is known to pass, and the end."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.send(bytes(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG)))
    sock.shutdown(socket.SHUT_WR)
