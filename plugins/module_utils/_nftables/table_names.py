# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Names of tables and their comments: those in options are checked before they reach a file or nft."""

from __future__ import annotations

import re

from .._core.errors import Invalid

# include/uapi/linux/netfilter/nf_tables.h: NFT_NAME_MAXLEN is 256; a unit's file name, which contains it, ends at 255.
TABLE_LENGTH = 128
# Words that nft 0.9.8, 1.0.6 or 1.1.3 reserves, so that no table can have such a name. Measured, because each version reserves
# others and none documents them (tests/integration/_nftables/test_nft_versions.py). A node's nft may be upgraded.
NFT_WORDS = """
accept ackseq add addr ah all and arp auto-merge avgpkt bridge burst bypass bytes cfi cgroup chain chains
checksum classid code comment comp constant continue count counter counters cpi cpu create ct daddr day dccp
define delete describe destroy device devices direction dnat doff dport drop dscp dst dup dynamic echo ecn
element elements eol eq esp ether event exists expectation expiration expires export exthdr fanout fib flags
flow flowlabel flowtable flowtables flush frag frag-off fully-random fwd gateway gc-interval ge geneve get goto
gre gretap group gt handle hbh hdrlength helper helpers hlen hook hoplimit hour htype ibriport ibrname icmp
icmpv6 icmpx id igmp iif iifgroup iifname iiftype import in inc include index inet insert interval ip ip6 ipsec
jhash json jump kind l3proto label last-entry le left length level limit limits list ll log lshift lsrr lt map
maps mark masquerade max-delay maxseg memory meta meter meters mh microsecond millisecond minute missing mod
mode monitor more-fragments mrt mss mtu name nanosecond ne netdev never nexthdr nexthop nftrace nh nop not notrack num
numgen obriport obrname offload offset oif oifgroup oifname oiftype operation option options or original osf out
over packets param-problem pcp performance persistent pkttype plen policy port position prefix priority
proto-dst proto-src protocol ptr ptype queue queue-threshold quota quotas ra random rate redefine redirect
reject rename replace reply reqid reserved reserved2 reset return right rr rshift rt rt0 rt2 rtclassid rule
rules ruleset sack sack-perm sack-permitted sack0 sack1 sack2 sack3 saddr sctp secmark secmarks second seed
seg-left sequence set sets sid size skgid skuid snaplen snat socket spi spnum sport srh ssrr state status
symhash synproxy synproxys table tables tag tcp th time timeout timestamp to tproxy trace transparent transport
tsecr tsval ttl tunnel type typeof udp udplite undefine until update urgptr used value version vlan vm vmap vni
vtag vxlan week wildcard window with wscale xml xor xt zone
"""
# libnftnl keeps 128 bytes with the final NUL (NFTNL_UDATA_COMMENT_MAXLEN).
COMMENT_LENGTH = 127


def table(option: str, value: str, is_new: bool = True) -> str:
    """Check a table's name as nft's scanner takes it unquoted (an identifier; 0.9.8 has no quoted form).

    is_new: False for a table to be removed: an nft that does not reserve the word may have made it.
    """
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.-]{0,%d}" % (TABLE_LENGTH - 1), value):
        raise Invalid(option, value, f"a word of 1 to {TABLE_LENGTH} letters, digits and _.- that starts with a letter or _")
    if is_new and value in NFT_WORDS.split():
        raise Invalid(option, value, "a word that no nft from version 0.9.8 to 1.1 reserves; add a capital letter")
    return value


def comment(option: str, value: str) -> str:
    """Check a comment of a table, a text that nft takes in quotes. May be empty."""
    if not re.fullmatch(r"[A-Za-z0-9 _.,:;/@+=()#-]{0,%d}" % COMMENT_LENGTH, value):
        raise Invalid(option, value, f"at most {COMMENT_LENGTH} letters, digits, blanks and _.,:;/@+=()#-")
    return value
