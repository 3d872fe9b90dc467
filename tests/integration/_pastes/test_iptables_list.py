# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A listing of iptables means the rules that iptables listed: both are loaded and compared.

Programs: iptables-nft 1.8.7, 1.8.9 (or what the host has) and 1.8.11, iptables-legacy, ip6tables-nft.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._pastes import pastes
from lab import ebtables_versions
from lab.node import NamespaceNode

# As iptables-save prints them: the rules of kube-proxy, Calico, VPC CNI, flannel, Cilium and Docker, and more extensions.
RULES = {
    "filter": r"""
-A FORWARD
-A FORWARD -j RETURN
-A FORWARD -s 10.244.0.0/16 -j ACCEPT
-A FORWARD ! -s 10.0.0.0/8 ! -d 10.244.0.0/16 ! -i eth0 ! -o cni0 -j DROP
-A FORWARD ! -p tcp -j DROP
-A FORWARD -p ipencap -j DROP
-A FORWARD -f -j DROP
-A FORWARD -i cali+ -m comment --comment "cali:46gVAqzWLjH8U4O2" -g TARGET
-A FORWARD -m comment --comment one -m comment --comment "Start of policies" -j MARK --set-xmark 0x0/0x20000
-A FORWARD -m mark --mark 0x10000/0x10000 -j MARK --set-xmark 0x40000/0x40000
-A FORWARD -m mark ! --mark 0x1/0x1 -j MARK --set-xmark 0x20/0x40
-A FORWARD -m mark --mark 0x5 -j MARK --set-xmark 0x5/0xffffffff
-A FORWARD -m connmark --mark 0x80/0x80 -j ACCEPT
-A FORWARD -m connmark ! --mark 0x80/0x80 -j ACCEPT
-A FORWARD -m conntrack --ctstate INVALID -j DROP
-A FORWARD -m conntrack ! --ctstate NEW,RELATED -j DROP
-A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED,DNAT -j ACCEPT
-A FORWARD -m conntrack --ctdir ORIGINAL -j ACCEPT
-A FORWARD -m conntrack --ctorigdstport 80 -j ACCEPT
-A FORWARD -m state --state RELATED,ESTABLISHED -j ACCEPT
-A FORWARD -p udp -m multiport --dports 4789,8472 -j DROP
-A FORWARD -p tcp -m multiport --sports 1:5,8 -j DROP
-A FORWARD -p tcp -m multiport --ports 80 -j DROP
-A FORWARD -p tcp -m multiport ! --dports 80,443 -j DROP
-A FORWARD -p tcp -m tcp --dport 30000:32767 -j TARGET
-A FORWARD -p tcp -m tcp ! --dport 22 -j TARGET
-A FORWARD -p udp -m udp --sport 53 --dport 1024:65535 -j TARGET
-A FORWARD -p tcp -m tcp --tcp-flags FIN,SYN,RST,ACK SYN -j TARGET
-A FORWARD -p tcp -m tcp ! --tcp-flags SYN SYN -j TARGET
-A FORWARD -p tcp -m tcp --tcp-flags FIN,SYN,RST,PSH,ACK,URG NONE -j DROP
-A FORWARD -p tcp -m tcp --tcp-option 5 -j DROP
-A FORWARD -p sctp -m sctp --dport 80 -j DROP
-A FORWARD -p icmp -j ACCEPT
-A FORWARD -p icmp -m icmp --icmp-type 8 -j ACCEPT
-A FORWARD -p icmp -m icmp --icmp-type 3/4 -j ACCEPT
-A FORWARD -p icmp -m icmp ! --icmp-type 8 -j ACCEPT
-A FORWARD -m set --match-set SETA src -j DROP
-A FORWARD -m set ! --match-set SETA dst -j DROP
-A FORWARD -j SET --add-set SETA src
-A FORWARD -m addrtype --dst-type LOCAL -j DROP
-A FORWARD -m addrtype ! --dst-type LOCAL -j DROP
-A FORWARD -m addrtype --src-type LOCAL --dst-type UNICAST -j DROP
-A FORWARD -m addrtype --dst-type LOCAL --limit-iface-in -j DROP
-A FORWARD -m statistic --mode random --probability 0.33332999982 -j TARGET
-A FORWARD -m statistic --mode random ! --probability 0.50000000000 -j TARGET
-A FORWARD -m statistic --mode nth --every 3 --packet 0 -j TARGET
-A FORWARD -m statistic --mode nth --every 3 --packet 1 -j TARGET
-A FORWARD -m limit --limit 5/min -j LOG --log-prefix "drop: "
-A FORWARD -m limit --limit 10/sec --limit-burst 20 -j ACCEPT
-A FORWARD -m hashlimit --hashlimit-upto 5/sec --hashlimit-burst 5 --hashlimit-name listed -j ACCEPT
-A FORWARD -m hashlimit --hashlimit-above 5/sec --hashlimit-burst 5 --hashlimit-mode srcip,dstport --hashlimit-name listed -j DROP
-A FORWARD -m recent --rcheck --seconds 10800 --reap --name KUBE-SEP-A --mask 255.255.255.255 --rsource -j ACCEPT
-A FORWARD -m recent --set --name KUBE-SEP-A --mask 255.255.255.255 --rsource -j ACCEPT
-A FORWARD -m recent ! --update --seconds 5 --hitcount 3 --name x --mask 255.255.255.255 --rdest -j ACCEPT
-A FORWARD -p tcp -m addrtype --dst-type LOCAL -m tcp --dport 30080 -j REJECT --reject-with icmp-port-unreachable
-A FORWARD -p tcp -j REJECT --reject-with tcp-reset
-A FORWARD -m physdev --physdev-is-bridged -j ACCEPT
-A FORWARD -m physdev ! --physdev-in veth1 --physdev-is-bridged -j ACCEPT
-A FORWARD -m mac --mac-source 02:00:00:00:00:0a -j ACCEPT
-A FORWARD -m mac ! --mac-source 02:00:00:00:00:0a -j ACCEPT
-A FORWARD -m iprange --src-range 10.0.0.1-10.0.0.9 -j ACCEPT
-A FORWARD -m iprange ! --dst-range 10.0.0.1-10.0.0.9 -j ACCEPT
-A FORWARD -m pkttype --pkt-type broadcast -j ACCEPT
-A FORWARD -m length --length 0:100 -j ACCEPT
-A FORWARD -m ttl --ttl-lt 3 -j ACCEPT
-A FORWARD -m ttl ! --ttl-eq 3 -j ACCEPT
-A FORWARD -m dscp --dscp 0x01 -j ACCEPT
-A FORWARD -m tos --tos 0x10/0xff -j ACCEPT
-A FORWARD -m u32 --u32 "0x0=0x0" -j ACCEPT
-A FORWARD -m cpu --cpu 1 -j ACCEPT
-A FORWARD -m policy --dir out --pol ipsec -j ACCEPT
-A FORWARD -p esp -m esp --espspi 5 -j ACCEPT
-A FORWARD -j NFQUEUE --queue-num 1 --queue-bypass
-A FORWARD -j NFQUEUE --queue-balance 0:3
-A OUTPUT -m owner --uid-owner 0 -j ACCEPT
-A OUTPUT -d 168.63.129.16/32 -p tcp -m owner ! --uid-owner 0 -j DROP
""",
    "mangle": """
-A PREROUTING -i ens5 -m addrtype --dst-type LOCAL --limit-iface-in -j CONNMARK --set-xmark 0x80/0x80
-A PREROUTING -i eni+ -j CONNMARK --restore-mark --nfmask 0x80 --ctmask 0x80
-A PREROUTING -j CONNMARK --save-mark --nfmask 0xffffffff --ctmask 0xffffffff
-A PREROUTING -j CONNMARK --save-mark --nfmask 0xff --ctmask 0xff00
-A PREROUTING -j CONNMARK --set-xmark 0x1/0xf
-A PREROUTING -m socket --transparent -j TARGET
-A PREROUTING -m socket --transparent --nowildcard --restore-skmark -j TARGET
-A PREROUTING -p tcp -j TPROXY --on-port 15006 --on-ip 127.0.0.1 --tproxy-mark 0x200/0xffffffff
-A PREROUTING -j DSCP --set-dscp 0x01
-A PREROUTING -j TOS --set-tos 0x10/0xff
-A PREROUTING -j TTL --ttl-set 64
-A PREROUTING -j TTL --ttl-dec 1
-A PREROUTING -j TEE --gateway 10.0.0.1
-A PREROUTING -p udp -j CHECKSUM --checksum-fill
-A FORWARD -p tcp -m tcp --tcp-flags SYN,RST SYN -j TCPMSS --clamp-mss-to-pmtu
-A FORWARD -p tcp -m tcp --tcp-flags SYN,RST SYN -j TCPMSS --set-mss 1400
""",
    "raw": """
-A PREROUTING -m rpfilter -j ACCEPT
-A PREROUTING -m rpfilter --validmark --invert -j DROP
-A PREROUTING -m rpfilter --loose --validmark --accept-local --invert -j DROP
-A PREROUTING -j CT --notrack
-A PREROUTING -p udp -j CT --zone 5
-A PREROUTING -j TRACE
""",
    "nat": """
-A PREROUTING -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.244.0.5:8080
-A PREROUTING -p tcp -j DNAT --to-destination 10.244.0.5
-A PREROUTING -p tcp -m tcp --dport 80 -j REDIRECT --to-ports 15001
-A PREROUTING -d 10.0.0.0/24 -j NETMAP --to 10.1.0.0/24
-A PREROUTING -d 169.254.169.254/32 -j TARGET
-A POSTROUTING -s 10.244.0.0/16 ! -d 224.0.0.0/4 -m comment --comment "flanneld masq" -j MASQUERADE --random-fully
-A POSTROUTING -p tcp -j MASQUERADE --to-ports 1024-65535
-A POSTROUTING -m addrtype ! --dst-type LOCAL -j SNAT --to-source 10.0.1.205 --random-fully
-A POSTROUTING -j SNAT --to-source 10.0.0.1-10.0.0.9 --random --persistent
-A POSTROUTING -m set --match-set SETB dst,dst,src -j MASQUERADE
""",
}
RULES_6 = {
    "filter": """
-A FORWARD -s fd00::/8 ! -d fe80::1/128 -j DROP
-A FORWARD -p ipv6-icmp -m icmp6 --icmpv6-type 135 -j ACCEPT
-A FORWARD -p ipv6-icmp -m icmp6 --icmpv6-type 1/4 -j ACCEPT
-A FORWARD -m hl --hl-lt 3 -j REJECT --reject-with icmp6-port-unreachable
""",
    "nat": """
-A PREROUTING -p tcp -m tcp --dport 80 -j DNAT --to-destination [fd00::1]:8080
""",
}
WAYS = ("-nvL", "-vL", "-xvnL --line-numbers", "-nL", "-L --line-numbers")
SETS = "ipset create SETA hash:net; ipset create SETB hash:ip,port,ip\n"
# Without -n iptables asks for the names of addresses. In this network it gets an error at once: no server is reachable.
ALONE = ("unshare", "--net", "--mount", "sh", "-ec")
MARKER = "@@@ "


def answers(node: NamespaceNode, script: str) -> list[str]:
    """The output of a script in a network of its own, divided at its markers."""
    done = node.run([*ALONE, f"mount --bind /dev/null /etc/resolv.conf\n{SETS}{script}"])
    return done.stdout.split(MARKER)[1:]


def restored(program: str, table: str, rules: str) -> str:
    """The commands that load the rules, as iptables-save prints them."""
    return f"{program}-restore <<'END'\n*{table}\n:TARGET - [0:0]\n{rules.strip()}\nCOMMIT\nEND\n"


def rules_in(saved: str, has_interfaces: bool = True) -> list[str]:
    """The rules, without interfaces if a listing does not show them."""
    rules = [line for line in saved.splitlines() if line.startswith("-A")]
    return rules if has_interfaces else [re.sub(r"(?: !)? -[io] \S+", "", line) for line in rules]


@contextlib.contextmanager
def version(node: NamespaceNode, suite: str) -> Iterator[None]:
    with node.replace_program(ebtables_versions.PROGRAM, ebtables_versions.wrapper(suite)) if suite else contextlib.nullcontext():
        yield


@pytest.mark.parametrize(
    ("program", "suite", "tables"),
    [
        ("iptables-nft", "", RULES),
        ("iptables-legacy", "", RULES),
        ("ip6tables-nft", "", RULES_6),
        *(("iptables-nft", suite, RULES) for suite in ebtables_versions.SUITES),
    ],
)
def test_what_is_listed_is_what_was_loaded(node: NamespaceNode, program: str, suite: str, tables: dict[str, str]) -> None:
    with version(node, suite):
        for table, rules in tables.items():
            compare(node, program, table, rules)


def compare(node: NamespaceNode, program: str, table: str, rules: str) -> None:
    looks = "".join(f"echo '{MARKER}'; {program} -t {table} {way}\n" for way in WAYS)
    saved, *listings = answers(node, f"{restored(program, table, rules)}echo '{MARKER}'; {program}-save -t {table}\n{looks}")
    assert len(rules_in(saved)) == len(rules.strip().splitlines())
    read = [pastes.read({f"{program.replace('-nft', '')} -t {table} {way}": text}) for way, text in zip(WAYS, listings)]
    assert [one.ignored for one in read] == [[]] * len(WAYS)
    loads = "".join(
        f"{program}-restore <<'END'\n{one.snapshot['iptables'][0]['save']}END\necho '{MARKER}'; {program}-save -t {table}\n"
        for one in read
    )
    for way, again in zip(WAYS, answers(node, loads)):
        assert rules_in(again) == rules_in(saved, "v" in way), way
