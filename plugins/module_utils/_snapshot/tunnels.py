# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a tunnel puts before a packet, and the link that carries it."""

from __future__ import annotations

import re
import typing as t

from .values import Link

# The bytes that a tunnel puts before a packet, with the outer header of IPv4 (RFC 7348, 8926, 2003, 2784, 4213; 2473 for IPv6).
HEADS = {
    "vxlan": 50, "geneve": 50, "ipip": 20, "sit": 20, "gre": 24, "gretap": 38, "wireguard": 60, "ip6tnl": 40, "ip6gre": 44,
}  # fmt: skip
POINT_TO_POINT = frozenset(["POINTOPOINT", "NOARP"])  # flags of a link that asks for no MAC address, such as a tunnel
OF_EITHER = ("vxlan", "geneve", "wireguard")  # kinds of tunnels over IPv4 or IPv6, whose header has 20 bytes more


def is_tunnel(link: Link) -> bool:
    """Return whether a link puts a head before each packet, or has one machine at its other end."""
    return link.kind in HEADS or not POINT_TO_POINT.isdisjoint(link.flags)


# The tunnels of CNIs by their names, which no CNI gives to another kind.
_OF_CNIS = (
    (re.compile(r"flannel(?:-v6)?\.\d+|vxlan(?:-v6)?\.calico|cilium_vxlan"), "vxlan"),
    (re.compile(r"wireguard(?:-v6)?\.cali|cilium_wg0"), "wireguard"),
    (re.compile(r"cilium_geneve"), "geneve"),
    (re.compile(r"tunl0"), "ipip"),
)


def kind_by_name(name: str) -> str:
    """Return the kind of a tunnel of a CNI; empty for a link with another name."""
    return next((kind for pattern, kind in _OF_CNIS if pattern.fullmatch(name)), "")


def head(link: Link, is_over_ipv6: bool = False) -> int:
    """Return the bytes that a tunnel puts before a packet; 0 for another link.

    is_over_ipv6: of a tunnel whose addresses are not known.
    """
    is_longer = link.kind in OF_EITHER and (
        ":" in f"{link.local}{link.remote}" or is_over_ipv6 and not (link.local or link.remote)
    )
    return HEADS.get(link.kind, 0) + 20 * is_longer


def carriers(link: Link, leading: t.Callable[[str], t.Sequence[str]]) -> t.Sequence[str]:
    """Return the links by which the packets of a tunnel may leave.

    leading: returns the links of the route to an address, and of the default routes for an empty text.
    """
    if link.parent:
        return [link.parent]
    return [name for name in (leading(link.remote) if link.remote else ()) or leading("") if name != link.name]
