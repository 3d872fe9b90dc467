# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One ruleset is one value, whichever tool or kernel interface shows it."""

from __future__ import annotations

import itertools
import json
import subprocess

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._ruleset import iptables_save, nft_json, nft_netlink, nft_text
from ansible_collections.kubenode.datapath.plugins.module_utils._ruleset.ruleset import CONNECTION_MARK, PACKET_MARK, Rule
from unit.foreign_tables import KUBE_PROXY, OTHERS

NFT = """
table ip terway_symmetric {
    set pods { type ipv4_addr; elements = { 1.2.3.4, 5.6.7.8 }; }
    map services {
        type ipv4_addr . inet_proto . inet_service : verdict
        elements = { 10.96.0.1 . tcp . 443 comment "default/kubernetes:https" : goto accepted, 10.0.0.2 . udp . 53 : drop }
    }
    chain accepted { counter accept; }
    chain prerouting {
        type filter hook prerouting priority mangle; policy accept
        iifname "eth0" fib daddr type local ct mark set ct mark & 0xffffffcf | 0x20 comment "terway-symmetric"
        iifname "cali*" meta mark set ct mark & 0x30 comment "terway-symmetric"
        iifname != { "a", "b" } meta mark set meta mark | 0x4
        iifname "cali*" ct mark & 0x30 == 0x20 meta mark set meta mark and 0xffffffcf or 0x20
        meta mark & 0xff == 0x10 counter accept
        ip saddr @pods tcp dport { 80, 443, 8000-8080 } jump accepted
        ip saddr 10.0.0.0/8 ip daddr != 10.1.0.0/16 meta l4proto . th dport vmap { tcp . 53 : drop }
        ip daddr . meta l4proto . th dport vmap @services
        ct original ip saddr 10.0.0.1 ct direction reply drop
        udp dport 53 limit rate 10/second burst 5 packets log prefix "drop all " group 3 accept
        ip ttl < 2 ip length > 1400 counter drop
        ip daddr set 10.0.0.7 tcp dport set 81 drop
        numgen random mod 2 vmap { 0 : goto accepted, 1 : drop } comment "by chance"
        ct state new ip saddr . tcp dport vmap { 10.0.0.1 . 80 : jump accepted }
    }
    chain postrouting {
        type nat hook postrouting priority srcnat
        oifname "eth0" masquerade
        ip saddr 10.0.0.1 snat to 1.1.1.1
        meta mark and 0x4000 == 0x4000 masquerade fully-random
        ip protocol tcp snat to 1.1.1.1:2000-3000
    }
    chain translated {
        type nat hook prerouting priority dstnat; policy accept;
        iif "lo" tcp dport 10250 redirect to :8080
        ip daddr 10.0.0.9 tcp dport 80 dnat to 10.0.0.5:8080
        tcp dport 81 redirect to :8080-8090
        ip daddr 10.0.0.8 dnat to 10.0.0.1-10.0.0.9
        fib daddr type local tcp dport 30000 dnat to 10.0.0.6
    }
}
table inet firewalld {
    chain filter_PREROUTING {
        type filter hook prerouting priority filter + 10
        icmpv6 type { nd-router-advert, nd-neighbor-solicit } accept
        meta nfproto ipv6 fib saddr . mark . iif oif missing drop
        ct state { established, related } accept
        ct state established,related,new log prefix "x " accept
        ct state invalid drop
        meta pkttype broadcast drop
        ip6 saddr set 2603:1062:0:1:fe80:1234:5678:9abc
        tcp flags & (syn|rst) == syn counter
        ip6 daddr fe80::/64 return
        meta l4proto { tcp, udp } reject with icmpx type admin-prohibited
    }
}
"""
IPTABLES = """
iptables-nft -t mangle -A PREROUTING -i eth0 -m comment --comment "AWS, primary ENI" -j CONNMARK --set-xmark 0x80/0x80
iptables-nft -t mangle -A PREROUTING -i eni+ -m comment --comment "AWS, primary ENI" -j CONNMARK --restore-mark --mask 0x80
iptables-nft -t mangle -A PREROUTING -j CONNMARK --save-mark --nfmask 0xf0 --ctmask 0xf0
iptables-nft -t mangle -A PREROUTING -m mark ! --mark 0x4000/0x4000 -j MARK --set-xmark 0x8000/0xc000
iptables-nft -t mangle -A PREROUTING -m connmark --mark 0xca6c -j MARK --set-mark 0xca6c
iptables-nft -t mangle -A PREROUTING -i lo -j ACCEPT
iptables-nft -t mangle -N FURTHER
iptables-nft -t mangle -A PREROUTING -g FURTHER
"""


def printed(*commands: str) -> list[str]:
    """What commands print in a new network namespace, each."""
    script = "\n".join(["set -e", *(f"{command}\necho -n '\f'" for command in commands)])
    result = subprocess.run(["unshare", "-n", "sh", "-c", script], capture_output=True, text=True, check=True)
    return result.stdout.split("\f")


@pytest.mark.parametrize(
    "ruleset", [NFT, KUBE_PROXY, OTHERS.replace("    flags owner,persist\n", "")], ids=["own", "kube", "others"]
)
def test_the_json_and_the_text_of_nft_are_one_ruleset(ruleset: str) -> None:
    _loaded, text, objects = printed(f"nft -f - <<'END'\n{ruleset}END", "nft list ruleset", "nft -j list ruleset")[:3]
    of_json = nft_json.tables(entry for entry in json.loads(objects)["nftables"] if "metainfo" not in entry)
    of_text = nft_text.tables(text)
    assert [str(table) for table in of_text] == [str(table) for table in of_json] and of_json
    for left, right in zip(of_text, of_json):
        assert left.sets == right.sets and [*left.chains] == [*right.chains]
        for name, chain in left.chains.items():
            assert chain._replace(rules=()) == right.chains[name]._replace(rules=())
            for read, expected in itertools.zip_longest(chain.rules, right.chains[name].rules):
                assert read._replace(line="") == expected, read.line


SETS = """
table inet t {
    set adjacent { type ipv4_addr; flags interval; elements = { 0.0.0.0/8, 10.0.0.0/24, 10.0.1.0/24, 255.255.255.0/24 }; }
    set merged { type ipv4_addr; flags interval; auto-merge; elements = { 10.0.0.0/24, 10.0.1.0/24, 10.0.9.0-10.0.9.7 }; }
    set pairs { type ipv4_addr . inet_service; flags interval; elements = { 10.0.0.0/24 . 80-90, 10.0.0.0/24 . 100 }; }
    set names { type ifname; flags interval; elements = { "eth*", "veth1" }; }
    set met { type ipv4_addr; flags dynamic, timeout; timeout 1m; elements = { 10.0.0.1 }; }
    map verdicts { type ipv4_addr . inet_service : verdict; elements = { 10.0.0.1 . 80 : drop, 10.0.0.2 . 80 : drop }; }
    map ranges { type ipv4_addr : ipv4_addr; flags interval; elements = { 10.0.0.0/24 : 1.1.1.1, * : 1.1.1.3 }; }
}
"""


def test_the_kernel_counts_the_elements_that_are_listed() -> None:
    reading = (
        "import json,sys; from ansible_collections.kubenode.datapath.plugins.module_utils._ruleset import nft_json;"
        "from ansible_collections.kubenode.datapath.plugins.module_utils._snapshot import netfilter_backend;"
        "sizes = netfilter_backend.kernel_sizes(nft_json.sizes(json.load(sys.stdin)['nftables']));"
        "print(json.dumps({name: size for (*_table, name), size in sizes.items()}))"
    )
    _loaded, sizes = printed(f"nft -f - <<'END'\n{SETS}END", f'nft -j list ruleset | python3 -c "{reading}"')[:2]
    assert json.loads(sizes) == {"adjacent": 4, "merged": 2, "pairs": 2, "names": 2, "verdicts": 2, "ranges": 2}


def test_the_kernels_encoding_and_iptables_save_are_one_ruleset() -> None:
    reading = (
        "from ansible_collections.kubenode.datapath.plugins.module_utils._netlink import nfnetlink;"
        "print([tuple(rule) for rule in nfnetlink.rules('ip', 'mangle')])"
    )
    _made, save, encoded = printed(IPTABLES, "iptables-nft-save -t mangle", f'python3 -c "{reading}"')[:3]
    of_save = [*iptables_save.read("ip", "mangle", save).rules()]
    of_kernel = [nft_netlink.rule(*rule) for rule in eval(encoded)]
    assert [shared(rule) for rule in of_kernel] == [shared(rule) for rule in of_save] and len(of_save) == 7


def shared(rule: Rule) -> tuple[object, ...]:
    tests = tuple(match for match in rule.matches if match.field in (CONNECTION_MARK, PACKET_MARK))
    return (
        rule.chain,
        rule.link,
        rule.comment,
        tests,
        tuple(each._replace(target="") if each.kind == PACKET_MARK else each for each in rule.statements),
    )
