# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""The matches and targets of iptables and ebtables that a twin has.

Each of them acts in the network namespace alone. Not here are, among others, IDLETIMER (a timer in the machine's /sys), LED (a
lamp), AUDIT (the machine's audit log), SYSRQ (restarts the machine), and those that kernels of today no longer have.
"""

from __future__ import annotations

MATCHES = frozenset({
    *("addrtype", "bpf", "cgroup", "cluster", "comment", "connbytes", "connlabel", "connlimit", "connmark", "conntrack", "cpu"),
    *("dccp", "devgroup", "dscp", "ecn", "esp", "hashlimit", "helper", "ipcomp", "iprange", "ipvs", "length", "limit", "mac"),
    *("mark", "multiport", "nfacct", "osf", "owner", "physdev", "pkttype", "policy", "quota", "rateest", "recent", "rpfilter"),
    *("sctp", "set", "socket", "standard", "state", "statistic", "string", "tcp", "tcpmss", "time", "tos", "u32", "udp"),
    *("ah", "dst", "eui64", "frag", "hbh", "hl", "icmp", "icmp6", "ipv6header", "mh", "realm", "rt", "srh", "ttl"),
    *("802_3", "among", "arp", "ip", "ip6", "mark_m", "stp", "vlan"),
})  # fmt: skip
TARGETS = frozenset({
    *("CHECKSUM", "CLASSIFY", "CONNMARK", "CT", "DNAT", "DNPT", "DSCP", "ECN", "HL", "HMARK", "LOG", "MARK", "MASQUERADE", "NAT"),
    *("NETMAP", "NFLOG", "NFQUEUE", "NOTRACK", "RATEEST", "REDIRECT", "REJECT", "SET", "SNAT", "SNPT", "SYNPROXY", "TCPMSS"),
    *("TCPOPTSTRIP", "TEE", "TOS", "TPROXY", "TRACE", "TTL"),
    *("arpreply", "dnat", "log", "mark", "nflog", "redirect", "snat"),
})  # fmt: skip
PREFIXES = ("libxt_", "libipt_", "libip6t_", "libebt_")


def is_permitted(file: str) -> bool:
    """Whether a file in the folder of extensions is one of these matches and targets. file: such as libxt_comment.so."""
    prefix = next((one for one in PREFIXES if file.startswith(one)), "")
    return bool(prefix) and file[len(prefix) :].partition(".so")[0] in MATCHES | TARGETS
