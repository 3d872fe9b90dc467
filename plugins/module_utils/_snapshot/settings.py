# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Settings of the network: the running kernel's that decide where a packet goes, and those that files set at the next boot."""

from __future__ import annotations

import copy
import re
import struct
import typing as t

from .._core.names import DOTTED
from .._network_daemons import networkd
from .._platform import sysctl_files

ALL, DEFAULT = "all", "default"
FAMILIES = ("ipv4", "ipv6")
By = t.Mapping[str, t.Mapping[str, int]]  # settings by link, with ALL and DEFAULT

# Of the whole node.
NODE = (
    *(f"net/ipv4/{name}" for name in (
        "fib_multipath_hash_fields", "fib_multipath_hash_policy", "fib_multipath_use_neigh", "fwmark_reflect",
        "icmp_echo_ignore_all", "icmp_echo_ignore_broadcasts", "icmp_errors_use_inbound_ifaddr", "ip_default_ttl",
        "ip_early_demux", "ip_forward", "ip_forward_use_pmtu", "ip_no_pmtu_disc", "ip_nonlocal_bind", "neigh/default/gc_thresh3",
        "raw_l3mdev_accept", "tcp_early_demux", "tcp_fwmark_accept", "tcp_l3mdev_accept", "udp_early_demux", "udp_l3mdev_accept",
    )),
    *(f"net/ipv6/{name}" for name in (
        "fib_multipath_hash_fields", "fib_multipath_hash_policy", "fwmark_reflect", "icmp/echo_ignore_all", "ip_nonlocal_bind",
        "neigh/default/gc_thresh3", "route/max_size",
    )),
    *(f"net/bridge/bridge-nf-{name}" for name in (
        "call-arptables", "call-ip6tables", "call-iptables", "filter-pppoe-tagged", "filter-vlan-tagged", "pass-vlan-input-dev",
    )),
    *(f"net/netfilter/{name}" for name in (
        "nf_conntrack_checksum", "nf_conntrack_max", "nf_conntrack_tcp_be_liberal", "nf_conntrack_tcp_ignore_invalid_rst",
        "nf_conntrack_tcp_loose", "nf_hooks_lwtunnel",
    )),
    *(f"net/ipv4/vs/{name}" for name in (
        "conn_reuse_mode", "conntrack", "expire_nodest_conn", "expire_quiescent_template", "nat_icmp_send", "snat_reroute",
    )),
)  # fmt: skip
# By which a bridge shows its frames to the rules of iptables and nft, by family. Without the module br_netfilter the kernel has
# none of them, and a bridge shows nothing.
BRIDGED = {"ipv4": "net.bridge.bridge-nf-call-iptables", "ipv6": "net.bridge.bridge-nf-call-ip6tables"}
# Of each link, of all and of default. The numbers are the places of the values with which the kernel lists a link, from which new
# kernels send more of them (include/uapi/linux/ip.h, IPV4_DEVCONF_*, and ipv6.h, DEVCONF_*).
LINK = {
    "ipv4": {
        "accept_local": 22, "accept_redirects": 3, "accept_source_route": 8, "arp_accept": 20, "arp_announce": 17,
        "arp_filter": 12, "arp_ignore": 18, "bc_forwarding": 31, "disable_policy": 15, "disable_xfrm": 14,
        "drop_gratuitous_arp": 30, "drop_unicast_in_l2_multicast": 29, "forwarding": 0, "ignore_routes_with_linkdown": 28,
        "mc_forwarding": 1, "medium_id": 13, "proxy_arp": 2, "proxy_arp_pvlan": 24, "route_localnet": 25, "rp_filter": 7,
        "secure_redirects": 4, "send_redirects": 5, "shared_media": 6, "src_valid_mark": 23,
    },
    "ipv6": {
        "accept_dad": 27, "accept_ra": 3, "accept_ra_defrtr": 17, "accept_ra_pinfo": 18, "accept_ra_rt_info_max_plen": 21,
        "accept_ra_rt_info_min_plen": 49, "accept_redirects": 4, "accept_source_route": 24, "accept_untracked_na": 57,
        "addr_gen_mode": 47, "autoconf": 5, "disable_ipv6": 26, "disable_policy": 48, "drop_unicast_in_l2_multicast": 40,
        "drop_unsolicited_na": 41, "force_forwarding": 59, "forwarding": 0, "hop_limit": 1, "ignore_routes_with_linkdown": 39,
        "keep_addr_on_down": 42, "mc_forwarding": 25, "mtu": 2, "proxy_ndp": 22, "rpl_seg_enabled": 51, "seg6_enabled": 44,
        "use_oif_addrs_only": 37,
    },
}  # fmt: skip
# Settings whose effective value is the larger of conf/all and the link's (include/linux/inetdevice.h, net/ipv6/ndisc.c, route.c).
LARGER = {
    "ipv4": (
        "accept_local", "arp_accept", "arp_announce", "arp_filter", "arp_ignore", "drop_gratuitous_arp",
        "drop_unicast_in_l2_multicast", "proxy_arp", "route_localnet", "rp_filter", "secure_redirects", "send_redirects",
        "shared_media", "src_valid_mark",
    ),
    "ipv6": ("disable_policy", "proxy_ndp"),
}  # fmt: skip
# Settings whose effective value is the smaller of the two (include/linux/inetdevice.h, net/ipv6/exthdrs.c).
SMALLER = {
    "ipv4": ("accept_source_route", "bc_forwarding", "mc_forwarding"),
    "ipv6": ("accept_source_route", "rpl_seg_enabled", "seg6_enabled"),
}


_OF_LINK = re.compile(r"net[./](ipv4|ipv6)[./]conf[./](.+)[./](\w+)")
_OF_ONE = re.compile(r"[./](?:conf|neigh)[./]")  # of a link


def put(settings: dict[str, t.Any], key: str, value: int) -> None:
    """Put a setting where the snapshot has it: of a link, or of the node. key: as sysctl(8) takes it, with dots or slashes."""
    match = _OF_LINK.fullmatch(key)
    if match:
        family, link, name = match.groups()
        # sysctl prints the dots of a link's name as slashes.
        settings.setdefault(family, {}).setdefault(link.replace("/", "."), {})[name] = value
    else:
        settings.setdefault("node", {})[key.translate(DOTTED) if key.startswith("net/") else key] = value


def of_one(key: str, value: int) -> dict[str, t.Any]:
    """Return a setting where a snapshot has it."""
    settings: dict[str, t.Any] = {}
    put(settings, key, value)
    return settings


def of_listed_link(family: str, values: bytes) -> dict[str, int]:
    """Return the settings among the values with which the kernel lists a link. values: none if the link lacks the family."""
    numbers = struct.unpack(f"={len(values) // 4}i", values)
    return {name: numbers[place] for name, place in LINK[family].items() if place < len(numbers)}


def forwarding_key(family: str, link: str) -> str:
    """Return the setting, as sysctl prints it, by which the kernel forwards what comes in by a link.

    That of the link decides for IPv4 (net/ipv4/route.c, ip_route_input_slow), and that of all for IPv6 (net/ipv6/ip6_output.c,
    ip6_forward), where a link of Linux 6.17 and newer may have force_forwarding besides. A new value of net.ipv4.ip_forward, or
    of all, becomes that of each link.
    """
    return f"net.{family}.conf.{link.replace('.', '/') if family == 'ipv4' else ALL}.forwarding"


class Settings(t.NamedTuple):
    """The running kernel's settings, as a snapshot has them. A kernel without IPv6 has none of that family."""

    plain: t.Mapping[str, t.Any] = {}

    @property
    def node(self) -> t.Mapping[str, int]:
        """Return the settings of the whole node, as sysctl prints their names."""
        return self.plain.get("node") or {}

    def by_link(self, family: str) -> By:
        return self.plain.get(family) or {}

    def of_link(self, family: str, link: str) -> t.Mapping[str, int]:
        return self.by_link(family).get(link) or {}

    def lacks(self, family: str) -> bool:
        """Return whether the kernel lacks a family."""
        return bool(self.plain.get(family) == {})

    def with_values(self, values: t.Mapping[str, int]) -> Settings:
        """Return the settings with others. values: by keys as sysctl(8) takes them."""
        changed = {part: {key: copy.copy(value) for key, value in (of or {}).items()} for part, of in self.plain.items()}
        for key, value in values.items():
            put(changed, key, value)
        return Settings(changed)

    def forwarding(self, family: str, link: str) -> int | None:
        """Return whether the kernel forwards what comes in by a link; None if the settings do not show it."""
        value = self.of_link(family, link if family == "ipv4" else ALL).get("forwarding")
        if family == "ipv6" and not value:
            value = self.of_link(family, link).get("force_forwarding") or value
        return None if value is None else int(value)

    def forwarding_of_all(self, family: str) -> int | None:
        """Return the setting of all links, which a new link has; None if the settings do not show it."""
        of_node = self.node.get("net.ipv4.ip_forward") if family == "ipv4" else None
        value = of_node if of_node is not None else self.of_link(family, ALL).get("forwarding")
        return None if value is None else int(value)


def decides(key: str) -> bool:
    """Return whether a setting is one of those of a snapshot. key: as sysctl(8) takes it."""
    match = _OF_LINK.fullmatch(key)
    if match:
        return match[3] in LINK[match[1]]
    return (key if key.startswith("net/") else key.translate(DOTTED)) in NODE


def may_matter(key: str) -> bool:
    """Return whether a check may read a setting of outputs: one that decides, or any of the whole node."""
    return decides(key) or not _OF_ONE.search(key)


def effective(family: str, by_link: By) -> dict[str, dict[str, int]]:
    """Return the effective values, by link, of settings that depend on other settings.

    by_link: settings of a family by link, with ALL; empty if the kernel lacks the family.
    """
    return {name: _of_link(family, by_link[ALL], of_link) for name, of_link in by_link.items() if name not in (ALL, DEFAULT)}


def _of_link(family: str, every: t.Mapping[str, int], of_link: t.Mapping[str, int]) -> dict[str, int]:
    values = {name: max(every[name], of_link[name]) for name in LARGER[family] if name in of_link and name in every}
    values.update((name, min(every[name], of_link[name])) for name in SMALLER[family] if name in of_link and name in every)
    if family == "ipv6":
        values.update(_of_router(every, of_link))
    return values


def _of_router(every: t.Mapping[str, int], of_link: t.Mapping[str, int]) -> dict[str, int]:
    """Return the effective values of forwarding and accept_ra.

    Packets are forwarded if conf/all, or force_forwarding of the link by which they come in, says so (ip6_forward). A link that
    forwards accepts router advertisements only if accept_ra is 2 (include/net/ipv6.h, ipv6_accept_ra).
    """
    forwarding, accept_ra = of_link.get("forwarding", 0), of_link.get("accept_ra", 0)
    return {
        "forwarding": int(bool(every.get("forwarding") or of_link.get("force_forwarding"))),
        "accept_ra": int(accept_ra == 2 if forwarding else accept_ra != 0),
    }


Files = t.Mapping[str, str]  # texts by path
SYSCTL, NETWORKD = "settings", "networkd"  # the parts of the subset
BOOT_FOLDERS = {SYSCTL: sysctl_files.FOLDERS, NETWORKD: networkd.DROP_IN_FOLDERS}
BOOT_FILES = {SYSCTL: (sysctl_files.LAST_OF_PROCPS,), NETWORKD: networkd.MAIN_FILES}


def boot(sysctl: Files, of_networkd: Files) -> dict[str, t.Any]:
    """Return the subset of a snapshot. sysctl, of_networkd: the files that systemd-sysctl and networkd may read."""
    return {SYSCTL: _sysctl(sysctl), NETWORKD: _networkd(of_networkd)}


def boot_part(path: str) -> str:
    """Return the part of the subset about which a file on the node may say something; empty for any other file."""
    folder, is_drop_in = path.rpartition("/")[0], path.endswith(".conf")
    parts = (name for name in BOOT_FOLDERS if path in BOOT_FILES[name] or (is_drop_in and folder in BOOT_FOLDERS[name]))
    return next(parts, "")


def _sysctl(files: Files) -> dict[str, dict[str, t.Any]]:
    """Return the values and their files by key, in the order in which systemd-sysctl writes them. A key may be a pattern.

    The value is None for a key that a line exempts from patterns, also by a value that the kernel refuses.
    """
    lines = (line for line in sysctl_files.by_systemd(files).assignments if decides(line.key))
    return {line.key.translate(DOTTED): {"value": line.number, "file": line.path} for line in lines}


def _networkd(files: Files) -> dict[str, dict[str, t.Any]]:
    settings = {key: networkd.setting(files, key) for key in networkd.SINCE}
    return {key: {"value": setting.value, "file": setting.path} for key, setting in settings.items()}
