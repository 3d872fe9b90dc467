# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The IPv6 addresses and default routes of links, from /proc. Only reads, and starts no process."""

from __future__ import annotations

import ipaddress

from .._platform import kernel

RTF_ADDRCONF = 0x40000  # include/uapi/linux/ipv6_route.h
IFA_F_TENTATIVE = 0x40  # include/uapi/linux/if_addr.h: duplicate address detection has not ended


def global_ipv6_addresses(link: str) -> list[str]:
    """Return a link's IPv6 addresses of global scope, unique local ones included, without those that are still tentative."""
    return all_global_ipv6_addresses().get(link, [])


def all_global_ipv6_addresses() -> dict[str, list[str]]:
    """Return the addresses that global_ipv6_addresses() returns, of all links that have such an address, by link."""
    addresses: dict[str, list[str]] = {}
    for line in kernel.lines("/proc/net/if_inet6"):
        # address in 32 hexadecimal digits, the link's index, prefix length, scope, flags, link
        digits, _index, _length, scope, flags, name = line.split()
        if scope == "00" and not int(flags, 16) & IFA_F_TENTATIVE:
            addresses.setdefault(name, []).append(str(ipaddress.IPv6Address(int(digits, 16))))
    return addresses


def has_advertised_default(link: str) -> bool:
    """Return whether the kernel itself learned an IPv6 default route by the link from a router advertisement.

    A route that a network daemon learned does not have the flag RTF_ADDRCONF.
    """
    for line in kernel.lines("/proc/net/ipv6_route"):
        # destination, its length, source, its length, next hop, metric, references, uses, flags, link: numbers in hexadecimal
        words = line.split()
        if words[1] == "00" and words[9] == link and int(words[8], 16) & RTF_ADDRCONF:
            return True
    return False
