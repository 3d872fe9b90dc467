# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""nft's language as words, and the words that a ruleset from elsewhere may contain.

Tokens end where those of nft's scanner end (src/scanner.l). For this reason nft reads the same words in a text that is made from
permitted tokens with a blank between any two of them. ``include``, ``define`` and ``$`` are not among the permitted tokens.
"""

from __future__ import annotations

import functools
import re
import typing as t

_HEX = r"[\da-fA-F]{1,4}"
# An IPv6 address, a MAC address, or the number of a traffic class. A single colon at its end would end the key of a map.
_COLONS = rf"(?:{_HEX}(?::[\da-fA-F]{{0,4}}){{1,7}}|::(?:{_HEX}(?::{_HEX}){{0,6}})?)(?:\.\d{{1,3}}){{0,3}}(?<!(?<!:):)(?!\w)"
_NUMBER = r"0[xX][\da-fA-F]+|(?:\d+(?:ms|[dhms]))+|\d+(?:\.\d+){3}|\d+"
_NAME = r"[A-Za-z_.][\w/.\-]*\*?"
# Every character except blanks becomes part of a token, and none is overlooked. A comment is one token.
TOKEN = re.compile(rf'"[^"\n]*"|#.*|\[{_COLONS}\]|{_COLONS}|\d[\w.]*|{_NAME}|[!=<>]=|<<|>>|\S', re.ASCII)
_VALUE = re.compile(rf"{_NUMBER}|{_COLONS}|\[{_COLONS}\]", re.ASCII)
_NAMED = re.compile(_NAME, re.ASCII)
_VARIABLES = ("define", "redefine", "undefine")
_LONGEST = 255  # bytes of a name (NFT_NAME_MAXLEN)

FAMILIES = ("ip", "ip6", "inet", "arp", "bridge", "netdev")


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


PUNCTUATION = words(", . : = == != < > <= >= << >> ^ & | ! / - + * @ ( ) [ ] { }")
# Words after which a name stands that is not in quotes: of a chain, a set or another object, or of a link.
BEFORE_NAMES = words("jump goto @ name iif oif iifname oifname ibrname obrname sdifname device comment")

# Words of the scanner and symbols of data types, for which nft opens no file.
_KEYWORDS = """
    8021ad 8021q accept ackseq add addr ah all and arp auto-merge avgpkt bridge burst bypass bytes cfi cgroup cgroupv2 check
    checksum chunk classid code comment comp constant continue count counter cpi cpu csumcov ct daddr data day dccp dei delete
    device devices direction dnat doff dport drop dscp dst dup dynamic echo ecn egress elements eol eq esp ether event exists
    expectation expiration expires exthdr fanout fastopen fib flags flow flowlabel frag frag-off fully-random fwd gateway gbp
    gc-interval ge geneve goto gre gretap group gt hbh hdrlength helper hlen hook hoplimit hour htype ibrhwaddr ibriport
    ibridgename ibrname ibrpvid ibrvproto icmp icmpv6 icmpx id igmp iif iifgroup iifkind iifname iiftype in inc inet ingress
    interval ip ip6 ipsec jhash jump kbytes l3proto l4proto label last last-entry le left length level limit ll log loose lshift
    lsrr lt map mark masquerade max-delay maxseg mbytes md5sig memory meta meter mh minute missing mod more-fragments mptcp mrt
    mss mtu name ne netdev never nexthdr nexthop nfproto nh noop nop not notrack num numgen obriport obrname offset oif oifgroup
    oifkind oifname oiftype operation option options or original osf out over packets param-problem pcp performance persistent
    pkttype plen policy port prefix priority proto-dst proto-src protocol ptr ptype queue queue-threshold quota ra random rate
    redirect reject reply reqid reserved reserved2 return right rr rshift rt rt0 rt2 rt4 rtclassid sack sack-perm sack-permitted
    sack0 sack1 sack2 sack3 saddr sctp sdif sdifname second secmark secpath seed seg-left sequence set sid size skgid skip skuid
    snaplen snat socket spi spnum sport srh ssrr state status subtype symhash synproxy taddr tag tcp th time timeout timestamp to
    tos tproxy transparent tsecr tsval ttl tunnel type typeof udp udplite until update urgptr used value version vlan vmap vni
    vtag vxlan week wildcard window with wscale xor zone
"""
_TYPES = """
    arp_op boolean cgroupsv2 ct_dir ct_event ct_id ct_label ct_state ct_status day devgroup dscp ecn ether_addr ether_type
    fib_addrtype gid hour icmp_code icmp_type icmpv6_code icmpv6_type icmpx_code iface_index iface_type ifkind ifname igmp_type
    inet_proto inet_service integer ipv4_addr ipv6_addr lladdr mark mh_type nf_proto pkt_type realm string tcp_flag uid verdict
    dccp_pkttype
"""
_SYMBOLS = """
    nat route filter raw mangle dstnat srcnat security prerouting input forward output postrouting dormant
    established related new invalid untracked snat dnat expected seen-reply assured confirmed dying fixed-timeout helper offload
    close closed close_wait fin_wait last_ack listen none syn_recv syn_sent syn_sent2 time_wait unreplied replied respond partopen
    request closereq closing timewait cookie_wait cookie_echoed shutdown_sent shutdown_recd shutdown_ack_sent heartbeat_sent
    heartbeat_acked unacknowledged stream acknowledged
    destroy protoinfo natseqinfo seqadj
    fin syn rst psh ack urg ecn cwr ae
    unicast local broadcast anycast multicast blackhole unreachable prohibit unspec host other loopback
    ipv4 ipv6 true false yes no
    af11 af12 af13 af21 af22 af23 af31 af32 af33 af41 af42 af43 be cs0 cs1 cs2 cs3 cs4 cs5 cs6 cs7 df ef lephb va not-ect ect0
    ect1 ce
    echo-reply echo-request destination-unreachable source-quench time-exceeded parameter-problem timestamp-request
    timestamp-reply info-request info-reply address-mask-request address-mask-reply router-advertisement router-solicitation
    packet-too-big mld-listener-query mld-listener-report mld-listener-done mld-listener-reduction mld2-listener-report
    nd-router-solicit nd-router-advert nd-neighbor-solicit nd-neighbor-advert nd-redirect ind-neighbor-solicit
    ind-neighbor-advert router-renumbering
    net-unreachable host-unreachable prot-unreachable port-unreachable addr-unreachable net-prohibited host-prohibited
    admin-prohibited no-route frag-needed policy-fail reject-route tcp reset
    inreply inrequest nak reply rreply rrequest response
    membership-query membership-report-v1 membership-report-v2 membership-report-v3 leave-group
    binding-refresh-request home-test-init careof-test-init home-test careof-test binding-update binding-acknowledgement
    binding-error fast-binding-update fast-binding-acknowledgement fast-binding-advertisement experimental-mobility-header
    home-agent-switch-message dataack syncack sync
    mp-capable mp-join mp-prio mp-fail mp-fastclose mp-tcprst add-addr remove-addr dss
    init init-ack init-tag initial-tsn heartbeat heartbeat-ack abort shutdown shutdown-ack shutdown-complete error cookie-echo
    cookie-ack ecne asconf asconf-ack forward-tsn tsn ssn ppid seqno a-rwnd num-outbound-streams num-inbound-streams cum-tsn-ack
    num-gap-ack-blocks num-dup-tsns lowest-tsn new-cum-tsn
    emerg alert crit err warn notice info debug audit
    ppp ipip ipip6 ipgre sit nooffload
    ipencap ospf pim vrrp hopopt ipv6-icmp ipv6-route ipv6-frag ipv6-nonxt ipv6-opts ospfigp l2tp eigrp mobility-header rsvp
    ssh http https domain ntp bootps bootpc tftp ftp ftp-data telnet smtp pop3 imap2 imap imaps pop3s snmp snmp-trap bgp ldap
    ldaps syslog kerberos sunrpc nfs mdns dhcpv6-client dhcpv6-server mysql postgresql redis isakmp ipsec-nat-t http-alt
    netbios-ns netbios-dgm netbios-ssn microsoft-ds rsync git ircd radius radius-acct sip sip-tls
"""
_RATES = (f"{unit}/{span}" for unit in ("bytes", "kbytes", "mbytes") for span in ("second", "minute", "hour", "day", "week"))
WORDS = PUNCTUATION.union(words(_KEYWORDS), words(_TYPES), words(_SYMBOLS), _RATES)


def tokens(line: str) -> list[str]:
    """Return the tokens of a line, without its comment."""
    words = TOKEN.findall(line)
    if words and words[-1].startswith("#"):
        del words[-1]
    return words


def is_name(word: str) -> bool:
    """Return True for a name that nft takes without quotes, of a table, a chain or another object.

    A name that contains the word include is refused, although nft would not read a file for most of them.
    """
    return bool(_NAMED.fullmatch(word)) and len(word) <= _LONGEST and "include" not in word and word not in _VARIABLES


@functools.lru_cache(maxsize=10_000)  # most words are in many lines
def is_value(word: str) -> bool:
    """Return True for a number, a duration, an address or a text in quotes."""
    return word.isprintable() if word[:1] == '"' == word[-1:] and len(word) > 1 else bool(_VALUE.fullmatch(word))


def refused(statement: t.Iterable[str]) -> str | None:
    """Return the first word that a statement must not contain; None if all are permitted. A line break is permitted."""
    previous = ""
    for word in statement:
        if word not in WORDS and word != "\n" and not is_value(word) and not (previous in BEFORE_NAMES and is_name(word)):
            return word
        previous = word
    return None
