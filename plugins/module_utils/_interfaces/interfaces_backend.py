# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reads the interfaces of all network namespaces of the node: its own and those of its pods. Starts no process."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import socket
import struct
import threading
import typing as t

from .._core import fields
from .._core.errors import Failure
from .._core.fields import IPV4, IPV6
from .._netlink import attributes, wire
from .._routing import routing_backend
from .interface import Interface
from .link_message import IFINFO, IFLA_MTU, Link, address_from, link_from

NAMED = ("/run/netns", "/run/docker/netns")  # ip-netns(8) and CRI runtimes; Docker
CLONE_NEWNET = 0x40000000  # include/uapi/linux/sched.h; Python has setns() from 3.12
IFLA_LINK, IFLA_LINK_NETNSID = 5, 37  # include/uapi/linux/if_link.h
# include/uapi/linux/rtnetlink.h, net_namespace.h
GETNSID = 90
NETNSA_NSID, NETNSA_FD = 1, 3


class Interfaces(t.NamedTuple):
    """unread: names of the namespaces that could not be read.

    peers: the names of the namespaces with the other ends of the node's links, by the indexes of these links.
    """

    interfaces: tuple[Interface, ...]
    unread: tuple[str, ...] = ()
    peers: t.Mapping[int, str] = {}


_remembered: list[tuple[Interfaces, list[Interface] | None]] = []  # those of other namespaces, and of the own one


def of_this_namespace() -> list[Interface]:
    """Ask the kernel for the interfaces of this process's network namespace. In them, ``namespace`` is empty."""
    return _of("", wire.open_socket)


def read() -> Interfaces:
    """Return all interfaces, those of the own namespace first. A namespace that disappears during the call has none."""
    elsewhere, own = _remembered[-1] if _remembered else (_of_other_namespaces(), None)
    own = of_this_namespace() if own is None else own
    here = (interface._replace(peer_namespace=elsewhere.peers.get(interface.number, "")) for interface in own)
    return Interfaces((*here, *elsewhere.interfaces), elsewhere.unread, elsewhere.peers)


@contextlib.contextmanager
def remembering(with_own: bool = False) -> t.Iterator[None]:
    """Keep the other namespaces for the block: read() has them as they are now, also in a child process that may not enter
    them. In another such block, they stay those of the outer one.

    with_own: keep the own namespace as well; it must not change in the block.
    """
    elsewhere = _remembered[-1][0] if _remembered else _of_other_namespaces()
    _remembered.append((elsewhere, of_this_namespace() if with_own else None))
    try:
        yield
    finally:
        _remembered.pop()


def _of_other_namespaces() -> Interfaces:
    interfaces: list[Interface] = []
    unread = []
    for namespace in entered():
        try:
            interfaces += _of(namespace.name, namespace.opener())
        except (FileNotFoundError, ProcessLookupError):
            continue
        except (OSError, Failure) as error:
            is_other = isinstance(error, OSError) and error.errno == errno.EINVAL  # a namespace, but not of a network
            if not is_other and exists(namespace.name):  # otherwise it has disappeared
                unread.append(namespace.name)
    return Interfaces(tuple(interfaces), tuple(unread), _peers())


def _peers() -> dict[int, str]:
    """Return the names of the namespaces of other ends, by the indexes of the node's links."""
    links = {link.number: _attributes(link) for link in _links(wire.open_socket)}
    names = _numbers()  # the kernel gives a namespace its number when it lists a link
    numbers = {index: attributes.u32(attrs, IFLA_LINK_NETNSID) for index, attrs in links.items() if IFLA_LINK_NETNSID in attrs}
    return {index: names[number] for index, number in numbers.items() if number in names}


def _numbers() -> dict[int, str]:
    """Return the names of other namespaces, as in read(), by the numbers by which the kernel's messages about links name them."""
    names_by_number = {}
    with contextlib.suppress(Failure), wire.connected() as netlink:
        for path, name in _namespaces():
            number = _number(netlink, path)
            if number is not None:
                names_by_number[number] = name
    return names_by_number


def _number(netlink: socket.socket, path: str) -> int | None:
    """Return the number of a namespace; None if it has none, or has disappeared."""
    try:
        namespace = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        descriptor = attributes.pack({NETNSA_FD: struct.pack("=I", namespace)})
        answer = next(wire.answers(netlink, attributes.message(GETNSID, 0, bytes(4) + descriptor)))
    finally:
        os.close(namespace)
    is_known = answer.kind == GETNSID - 2  # RTM_NEWNSID
    return attributes.u32(attributes.attributes(answer.body, 4), NETNSA_NSID) if is_known else None


class Namespace(t.NamedTuple):
    """Another network namespace, and netlink sockets in it, by protocol. error: why it could not be entered."""

    name: str
    sockets: t.Mapping[int, socket.socket] = {}
    error: OSError | None = None

    def opener(self, protocol: int = wire.ROUTE) -> wire.Opener:
        """Return a function that opens a netlink socket in the namespace. Raises OSError."""
        if self.error:
            raise self.error
        return self.sockets[protocol].dup


def exists(name: str) -> bool:
    """Return whether there still is another namespace of this name, as in read()."""
    return any(name == existing for _path, existing in _namespaces())


def entered(names: t.Container[str] | None = None, *protocols: int) -> t.Iterator[Namespace]:
    """Yield other namespaces, those of these names or all, with sockets that are open until the next one is asked for.

    A thread enters several of them, one after the other, and opens the sockets, which stay there. It then ends, so that no thread
    has to return to the own namespace.
    """
    places = [(path, name) for path, name in _namespaces() if names is None or name in names]
    for start in range(0, len(places), AT_ONCE):
        with contextlib.ExitStack() as opened:
            namespaces: list[Namespace | BaseException] = []
            thread = threading.Thread(target=_enter, args=(places[start : start + AT_ONCE], protocols, opened, namespaces))
            thread.start()
            thread.join()
            for namespace in namespaces:
                if isinstance(namespace, BaseException):
                    raise namespace
                yield namespace


AT_ONCE = 64  # namespaces, of which each needs an open file for each protocol


def _enter(
    places: t.Iterable[tuple[str, str]],
    protocols: t.Sequence[int],
    opened: contextlib.ExitStack,
    namespaces: list[Namespace | BaseException],
) -> None:
    try:
        setns = ctypes.CDLL(None, use_errno=True).setns
        for path, name in places:
            try:
                with open(path, "rb") as file:
                    if setns(file.fileno(), CLONE_NEWNET) != 0:
                        raise OSError(ctypes.get_errno(), "setns")
                sockets = {each: opened.enter_context(wire.open_socket(each)) for each in (wire.ROUTE, *protocols)}
                namespaces.append(Namespace(name, sockets))
            except OSError as error:
                namespaces.append(Namespace(name, error=error))
    except BaseException as error:  # which would end with the thread
        namespaces.append(error)


def _namespaces() -> list[tuple[str, str]]:
    """Return one path to each other network namespace, and a name for messages.

    ``ip netns add`` that was killed leaves a plain file: not a namespace, which is on a file system of its own.
    """
    here = _identity("/proc/self/ns/net")
    seen = {here}
    paths = [(f"/proc/{pid}/ns/net", f"process {pid}") for pid in sorted(filter(str.isdigit, os.listdir("/proc")), key=int)]
    paths += [(f"{folder}/{name}", f"namespace {name}") for folder in NAMED for name in _names(folder)]
    namespaces = []
    for path, name in paths:
        identity = _identity(path)
        if identity is not None and here is not None and identity[0] == here[0] and identity not in seen:
            seen.add(identity)
            namespaces.append((path, name))
    return namespaces


def _identity(path: str) -> tuple[int, int] | None:
    """Return the device and inode of a namespace.

    None if the process has ended, or is a kernel thread or zombie without a namespace.
    """
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _of(namespace: str, opener: wire.Opener) -> list[Interface]:
    addresses: dict[int, set[str]] = {}
    for family in (IPV4, IPV6):
        for address in map(address_from, routing_backend.dump(routing_backend.GETADDR, family, opener)):
            addresses.setdefault(address.link, set()).add(fields.show(address.local))
    links = _links(opener)
    names = {link.number: link.name for link in links}
    return [
        Interface(
            namespace,
            link.name,
            link.mac.hex(":"),
            frozenset(addresses.get(link.number, ())),
            names.get(link.master, ""),
            link.number,
            attributes.u32(attrs, IFLA_LINK),
            mtu=attributes.u32(attrs, IFLA_MTU),
            flags=IFINFO.unpack_from(link.body)[3],
        )
        for link in links
        if len(link.mac) == 6 and any(link.mac)
        for attrs in (_attributes(link),)
    ]


def _links(opener: wire.Opener) -> list[Link]:
    return [*map(link_from, routing_backend.dump(routing_backend.GETLINK, 0, opener))]


def _attributes(link: Link) -> dict[int, bytes]:
    return attributes.attributes(link.body, IFINFO.size)
