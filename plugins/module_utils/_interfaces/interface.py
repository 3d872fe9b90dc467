# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A live network interface, of the node or of a pod."""

from __future__ import annotations

import typing as t


class Interface(t.NamedTuple):
    """A link with a MAC.

    namespace: the name of its network namespace for messages, empty for the node's own. master: the link that it is a port of.
    number: its index in its namespace. peer: the index of a veth's other end in that end's namespace, 0 for none.
    peer_namespace: the name of that namespace, for an interface of the node; empty if it is the node's own or was not found.
    mtu: in bytes. flags: bits of the kernel.
    Indexes alone do not tell: each namespace counts from 1, and a pod may have namespaces and veths of its own.
    """

    namespace: str
    link: str
    mac: str
    addresses: frozenset[str] = frozenset()
    master: str = ""
    number: int = 0
    peer: int = 0
    peer_namespace: str = ""
    mtu: int = 0
    flags: int = 0

    def __str__(self) -> str:
        return f"{self.link} of {self.namespace}" if self.namespace else self.link


def other_ends(interfaces: t.Sequence[Interface]) -> dict[Interface, Interface]:
    """Map the node's ends of veths to the other ends, in other namespaces, that are among the interfaces."""
    by_index = {(interface.namespace, interface.number): interface for interface in interfaces if interface.namespace}
    of_node = (interface for interface in interfaces if not interface.namespace)
    return {
        interface: by_index[interface.peer_namespace, interface.peer]
        for interface in of_node
        if (interface.peer_namespace, interface.peer) in by_index
    }
