# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A foreign ruleset reaches nft only as permitted words."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.kubenode.datapath.plugins.module_utils._core.fields import Unfit
from ansible_collections.kubenode.datapath.plugins.module_utils._nftables import nft_listing, nft_words

KUBE_PROXY = """\
table ip kube-proxy {
	comment "rules for kube-proxy"

	set cluster-ips {
		type ipv4_addr
		comment "Active ClusterIPs"
		elements = { 10.96.0.1, 10.96.0.10 }
	}

	map no-endpoint-services {
		type ipv4_addr . inet_proto . inet_service : verdict
		comment "vmap to drop or reject packets to services with no endpoints"
		elements = { 10.96.88.1 . tcp . 80 comment "web/shop:http" : goto reject-chain }
	}

	map service-ips {
		type ipv4_addr . inet_proto . inet_service : verdict
		elements = { 10.96.0.1 . tcp . 443 : goto service-2QRHZV4L-default/kubernetes/tcp/https,
				10.96.0.10 . udp . 53 : goto service-FY5PMXPG-kube-system/kube-dns/udp/dns }
	}

	chain nat-postrouting {
		type nat hook postrouting priority srcnat; policy accept;
		meta mark & 0x00004000 == 0x00004000 jump masquerading
	}

	chain masquerading {
		meta mark set meta mark ^ 0x00004000
		masquerade fully-random
	}

	chain nat-prerouting {
		type nat hook prerouting priority dstnat - 10; policy accept;
		ip daddr . meta l4proto . th dport vmap @service-ips
		fib daddr type local ip daddr != 127.0.0.0/8 meta l4proto . th dport vmap { tcp . 30080 : goto reject-chain }
	}

	chain reject-chain {
		reject with icmp host-unreachable
	}

	chain service-2QRHZV4L-default/kubernetes/tcp/https {
		ip daddr 10.96.0.1 tcp dport 443 ip saddr != 10.244.0.0/16 jump mark-for-masquerade
		numgen random mod 1 vmap { 0 : goto endpoint-IHPCXQTU-default/kubernetes/tcp/https__172.18.0.2/6443 }
	}

	chain endpoint-IHPCXQTU-default/kubernetes/tcp/https__172.18.0.2/6443 {
		ip saddr 172.18.0.2 jump mark-for-masquerade
		update @affinity { ip saddr timeout 3h } meta l4proto tcp dnat to 172.18.0.2:6443
	}
}
"""
OTHERS = """\
# Warning: table ip nat is managed by iptables-nft, do not touch!
table ip nat { # handle 3
	chain DOCKER {
		iifname "docker0" counter packets 0 bytes 0 return
		iifname != "docker0" meta l4proto tcp tcp dport 8080 counter packets 1 bytes 60 dnat to 172.17.0.2:80
		oifname "cni*" ip saddr @cali40all-hosts-net counter packets 0 bytes 0 jump cali-fw-cali12345 # handle 7
		meta skuid 1337 tcp flags syn / fin,syn,rst,ack redirect to :15006 comment "istio \\ {};#"
	}
}
table ip6 filter {
	ct helper ftp-standard {
		type "ftp" protocol tcp
		l3proto ip6
	}
	ct timeout slow {
		protocol tcp
		l3proto ip6
		policy = { established : 2m3s, close : 12s }
	}
	counter hits {
		packets 0 bytes 0
	}
	quota much {
		over 25 mbytes
	}
	limit few {
		rate 10/second burst 5 packets
	}
	secmark label {
		"system_u:object_r:ssh_server_packet_t:s0"
	}
	synproxy guard {
		mss 1460
		wscale 7
		timestamp sack-perm
	}
	flowtable fast {
		hook ingress priority filter
		devices = { eth0, eth1 }
	}
	chain FORWARD {
		type filter hook forward priority filter + 10; policy drop;
		ct state { established, related } accept
		icmpv6 type { nd-neighbor-solicit, nd-router-advert } ip6 hoplimit 255 accept
		ip6 daddr fd00::1-fd00::ff tcp dport 1024-65535 dnat to [fd00::2]:443
		@th,16,16 { 80, 443 } limit rate over 1 mbytes/second drop
		meta mark & 0x00000f00 == 0x00000100 log prefix "x; include \\"" group 2 counter name "hits" reject with tcp reset
	}
}
table inet firewalld {
	flags owner,persist

	chain raw_PREROUTING {
		type filter hook prerouting priority raw + 10; policy accept;
		meta nfproto ipv6 fib saddr . mark . iif oif missing drop
	}
}
""".replace('\\""', '"')
CORPUS = KUBE_PROXY + OTHERS
# Tokens that nft's scanner gives a meaning of its own, outside of quotes.
FORBIDDEN = re.compile(r"include|\bdefine\b|[$\\]")


def unquoted(text: str) -> str:
    return re.sub(r'"[^"\n]*"', '""', text)


def words(text: str) -> list[str]:
    return [word for line in text.splitlines() for word in nft_words.tokens(line) if word != ";"]


def test_rulesets_of_kubernetes_are_read_in_full() -> None:
    found = nft_listing.read(CORPUS)
    assert found.notes == [] and len(found.tables) == 4
    assert words(found.text) == words(CORPUS.replace("\tflags owner,persist\n", ""))


def test_statements_stay_on_their_lines_and_what_was_read_reads_as_itself() -> None:
    found = nft_listing.read(CORPUS)
    for shown, given_line in zip(found.text.splitlines(), CORPUS.splitlines(), strict=True):
        assert set(words(shown)) <= set(words(given_line))
    assert nft_listing.read(found.text) == found


def test_a_listing_on_one_line_is_divided() -> None:
    text = "table ip x { chain y { type filter hook input priority 0; policy accept; tcp dport { 1, 2 } drop; } chain z { } }"
    found = nft_listing.read(text)
    assert found.notes == [] and nft_listing.read(found.text) == found
    assert "priority 0 ; policy accept ; tcp dport { 1 , 2 } drop ; } ; chain z { } ; }" in found.text


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ("add rule ip x y drop", "a table with its family"),
        ("flush ruleset", "a table with its family"),
        ("}", "a table with its family"),
        ("table ip x", "a table with its family"),
        ("table ip6tables x { }", "a table with its family"),
        ("table ip x { chain y {", "a table that ends"),
        ("table ip x { tunnel y { } ; }", "one of chain, set"),
        ("table ip x { chain include { } ; }", "one of chain, set"),
        ("table ip x { flags include; }", "one of chain, set"),
        ("table ip x { include; }", "one of chain, set"),
        ("table ip x { chain y { wildcard; }; }", "a rule that begins with a permitted word of nft in place of 'wildcard'"),
        ("table ip x { chain y { jump include; }; }", "in place of 'include'"),
        ("table ip x { chain y { ip saddr 1include drop; }; }", "in place of '1include'"),
        ("table ip x { chain y { ip saddr $include drop; }; }", "in place of '$'"),
        ("table ip x { chain y { ip saddr 10.0.0.1 \\; }; }", "in place of '\\\\'"),
        ("table ip x { chain y { meta nftrace set 0; }; }", "in place of 'nftrace'"),
        ('table ip x { chain y { log prefix "a drop; }; }', "in place of '\"'"),
        ('table ip x { chain y { log prefix "a\x1b[2J"; }; }', "in place of"),
        ('table ip x { set y { include "/x"; }; }', "a statement of a set that begins with one of type"),
        ("table ip x { flowtable y { flags offload; }; }", "a statement of a flowtable that begins with one of hook"),
    ],
)
def test_what_is_not_permitted_is_left_out_and_named(text: str, allowed: str) -> None:
    found = nft_listing.read(text)
    assert allowed in found.notes[0] and found.notes[0].startswith("nft: line 1 of the ruleset is not in the twin.")
    assert not FORBIDDEN.search(unquoted(found.text)) and found.notes[0].isprintable()
    assert nft_listing.read(found.text).notes == []


def test_notes_have_a_bound() -> None:
    found = nft_listing.read("table ip x {\nchain y {\n" + "foo\n" * 100 + "}\n}\n")
    assert len(found.notes) == nft_listing.MOST_NOTES + 1 and found.notes[-1].startswith("nft: 60 further lines")


def test_a_statement_is_checked_by_its_block() -> None:
    nft_listing.check("chain", ["accept"])
    with pytest.raises(Unfit, match="a rule that begins with a permitted word of nft in place of 'hook'"):
        nft_listing.check("chain", ["hook"])


HOSTILE = st.sampled_from(
    [
        "include",
        ' include "/x"',
        ";",
        "\n",
        "{",
        "}",
        '"',
        "#",
        "\\",
        "\\\n",
        "$x",
        "define x = 1",
        "@",
        "\0",
        "\r",
        '"/x"',
        "-M",
        "*",
    ]
)


@given(st.lists(st.tuples(st.integers(0, len(CORPUS)), HOSTILE), min_size=1, max_size=4))
def test_what_is_put_into_a_ruleset_never_survives_as_a_word_of_its_own(insertions: list[tuple[int, str]]) -> None:
    text = CORPUS
    for place, word in insertions:
        text = text[:place] + word + text[place:]
    found = nft_listing.read(text)
    assert not FORBIDDEN.search(unquoted(found.text))
    for line in found.text.splitlines():
        assert line.isprintable()
    again = nft_listing.read(found.text)
    assert again.text == found.text and again.notes == []


@given(st.text(alphabet='abinclude"{};#\\$@/.:-\n 0x1', max_size=60))
def test_any_text_is_read_and_what_is_accepted_consists_of_permitted_words(text: str) -> None:
    found = nft_listing.read(f"table ip x {{\nchain y {{\n{text}\n}}\n}}\n")
    assert not FORBIDDEN.search(unquoted(found.text))
    previous = ""
    for word in words(found.text):
        is_named = previous in (*nft_words.BEFORE_NAMES, *nft_words.FAMILIES, *nft_listing.BLOCKS)
        known = word in nft_words.WORDS or word in ("table", "chain", "set", "map") or nft_words.is_value(word)
        assert known or (is_named and nft_words.is_name(word)), word
        previous = word


@pytest.mark.parametrize("line", ["a:" * 40_000, "{ " * 40_000, '"' * 80_001, "0x" * 40_000, "1.2.3." * 20_000, "[::" * 30_000])
def test_reading_takes_linear_time(line: str) -> None:
    started = time.process_time()
    nft_listing.read(f"table ip x {{\nchain y {{\n{line}\n}}\n}}\n")
    assert time.process_time() - started < 2
