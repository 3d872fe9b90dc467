# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Commands as values: what is permitted becomes an argument vector, and everything else is refused by name."""

from __future__ import annotations

import re
import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.kubenode.datapath.plugins.module_utils._commands import command, iproute_command
from ansible_collections.kubenode.datapath.plugins.module_utils._commands.command import Program, Settings
from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Invalid
from ansible_collections.kubenode.datapath.plugins.module_utils._twin.blueprint import OWN_TABLE

# As an operator writes them, and the arguments with which the program runs if they are others.
PERMITTED = {
    "sudo iptables -t nat -D POSTROUTING 1": "",
    "iptables -w 5 -t nat -A POSTROUTING -s 10.0.0.0/8 ! -o eth0 -j MASQUERADE": (
        "iptables-nft -t nat -A POSTROUTING -s 10.0.0.0/8 ! -o eth0 -j MASQUERADE"
    ),
    "iptables --append FORWARD -t mangle --jump=MARK --set-mark 1": "iptables-nft -t mangle -A FORWARD --jump MARK --set-mark 1",
    "iptables -A FORWARD -m statistic --mode random --probability 0.5 -j DROP": "",
    'iptables -I FORWARD 1 -p tcp --dport 443 -m comment --comment "a -M b" -j KUBE-FORWARD': "",
    "iptables -A FORWARD -p tcp --tcp-flags SYN,RST SYN -j TCPMSS --clamp-mss-to-pmtu": "",
    "iptables -A FORWARD -m comment --comment -M -j ACCEPT": "",
    "iptables -P FORWARD ACCEPT": "",
    "iptables -F": "",
    "ip6tables -t raw -N NEW": "",
    "iptables -E OLD NEW": "",
    "ebtables -t nat -D PREROUTING -p IPv4 -i eth0 --ip-dst 10.0.0.9 -j dnat --to-dst 02:00:00:00:00:01 --dnat-target ACCEPT": "",
    "ebtables -A FORWARD -p ! ARP -j DROP": "",
    "/sbin/ip rule del priority 5": "ip rule del priority 5",
    "ip -6 rule add not from fd00::/8 fwmark 0x80/0x80 lookup main suppress_prefixlength 0": "",
    "ip addr add 10.12.192.2/24 dev eth1": "ip addr add local 10.12.192.2/24 dev eth1",
    "ip address del dev eth1 fd00::1/64": "ip address del dev eth1 local fd00::1/64",
    "ip addr flush eth1 scope global": "ip addr flush dev eth1 scope global",
    "ip route replace default via 10.0.0.1 dev eth0 onlink table 100 metric 5 proto static": "",
    "ip route add unreachable 10.0.0.0/8": "",
    "ip route add 10.0.0.0/8 nexthop via 10.1.0.1 dev eth0 weight 2 nexthop via 10.1.0.2 dev eth1": "",
    "ip route flush cache": "",
    "ip link set eth0 mtu 1400 up": "ip link set dev eth0 mtu 1400 up",
    "ip link set netns up": "ip link set dev netns up",
    "ip link add nodelocaldns type veth": "ip link add name nodelocaldns type veth",
    "ip neigh replace 10.0.0.9 lladdr 02:00:00:00:00:01 dev eth0 nud permanent": "",
    "ip neigh del 10.0.0.9 dev azure0": "",
    "bridge link set dev veth1 hairpin on": "",
    "bridge fdb add 02:00:00:00:00:01 dev veth1 master static": "",
    "bridge vlan add dev veth1 vid 2-4 pvid untagged": "",
    "ipset add s 10.0.0.1,tcp:80 timeout 5 -exist": "",
    "ipset create s hash:net,iface family inet6 hashsize 64": "",
    "nft add rule inet t c ip saddr 10.0.0.1 drop": "nft 'add rule inet t c ip saddr 10.0.0.1 drop'",
    "nft insert rule ip t c position 4 iifname eth0 accept": "nft 'insert rule ip t c position 4 iifname eth0 accept'",
    "nft 'add chain ip t c { type filter hook input priority -5; policy drop; }'": (
        "nft 'add chain ip t c { type filter hook input priority - 5 ; policy drop ; }'"
    ),
    "nft 'add element ip t s { 10.0.0.1 . 80 : goto c }; delete rule ip t c handle 7'": (
        "nft 'add element ip t s { 10.0.0.1 . 80 : goto c } ; delete rule ip t c handle 7'"
    ),
    "nft flush chain ip t c": "nft 'flush chain ip t c'",
    "nft add map ip t m { type ipv4_addr : verdict \\; }": "nft 'add map ip t m { type ipv4_addr : verdict ; }'",
    "nft delete table ip t": "nft 'delete table ip t'",
}


@pytest.mark.parametrize("line", PERMITTED)
def test_a_permitted_command_runs_as_it_was_read(line: str) -> None:
    found = command.read("commands[0]", line)
    assert isinstance(found, Program)
    expected = shlex.split(PERMITTED[line] or line.replace("sudo ", ""))
    assert [found.name.replace("-nft", ""), *found.words] == [expected[0].replace("-nft", ""), *expected[1:]]
    assert command.read("again", found.shown) == found


def test_tables_are_those_of_nf_tables() -> None:
    names = [command.read("", f"{tool} -F").name for tool in ("iptables", "ip6tables", "ebtables")]  # type: ignore[union-attr]
    assert names == ["iptables-nft", "ip6tables-nft", "ebtables-nft"]


@pytest.mark.parametrize(
    "line", ["sysctl -w net.ipv4.ip_forward=1 net/ipv4/conf/eth0.100/rp_filter=2", "sysctl net.ipv4.ip_forward = 1"]
)
def test_settings_are_paths_and_numbers(line: str) -> None:
    found = command.read("", line)
    assert isinstance(found, Settings) and found.values[0] == ("net/ipv4/ip_forward", 1)
    assert found.values[1:] in ((), (("net/ipv4/conf/eth0.100/rp_filter", 2),))


# With the word that the error names.
REFUSED = {
    "": "''",
    "sh -c true": "'sh'",
    "sudo sudo ip link": "'sudo'",
    "ip": "''",
    "ip net a x": "'net'",
    "ip net e x sh -c 'touch /tmp/x'": "'net'",
    "ip netns exec x sh": "'netns'",
    "ip -n x link": "'-n'",
    "ip -ba FILE": "'-ba'",
    "ip -batch /etc/shadow": "'-batch'",
    "ip -forc -bat FILE": "'-forc'",
    "ip -4 -ba FILE": "'-ba'",
    "ip vrf exec x sh": "'vrf'",
    "ip a add 10.0.0.1/8 dev eth0": "'a'",
    "ip route": "''",
    "ip route show": "'show'",
    "ip route add 10.0.0.0/8 encap bpf in obj FILE": "'encap'",
    "ip route add 10.0.0.0/8 -batch FILE": "'-batch'",
    "ip link set eth0 netns 1": "'netns'",
    "ip link set eth0 xdp obj FILE": "'xdp'",
    "ip link set eth0 xdpgeneric obj FILE": "'xdpgeneric'",
    "ip link set eth0 vf 0 mac 02:00:00:00:00:01": "'vf'",
    "ip link set -batch up": "'-batch'",
    "ip link add x type bareudp dstport 6635 ethertype ipv4": "'bareudp'",
    "ip link add x type xfrm dev eth0 if_id 1": "'xfrm'",
    "ip link add x type veth netns 1": "'netns'",
    "ip link add x link-netns 1 type veth": "'link-netns'",
    "ip addr add 10.0.0.1/8 dev": "''",
    "ip addr add 'eth0\nnetns exec x sh' dev x": "netns exec",
    "ip addr add '10.0.0.1\0' dev x": "10.0.0.1",
    "bridge -ba FILE": "'-ba'",
    "bridge -b /x": "'-b'",
    "bridge monitor": "'monitor'",
    "bridge fdb add x dev veth1": "'x'",
    "nft -f/FILE": "'-'",
    "nft -nf FILE": "'-'",
    "nft --fil FILE": "'-'",
    "nft --includ DIR": "'-'",
    "nft -I / list": "'-'",
    "nft list ruleset": "'list'",
    "nft flush ruleset": "'ruleset'",
    'nft include "/x"': "'include'",
    "nft 'include \"/etc/shadow\"'": "'include'",
    "nft 'add table ip x; include \"/etc/shadow\"'": "'include'",
    "nft 'add table ip x\ninclude \"/etc/shadow\"'": "include",
    "nft 'add chain ip x y { include \"/etc/shadow\" ; }'": "'include'",
    "nft 'add rule ip x y ip saddr 10.0.0.1 include \"/etc/shadow\"'": "'include'",
    "nft 'add rule ip x include drop'": "'include'",
    "nft 'add set ip x y { type ipv4_addr; elements = { $include } }'": "'$'",
    "nft 'define x = 1'": "'define'",
    "nft add rule ip x y meta nftrace set 0": "'nftrace'",
    "nft 'add element ip x y { 1'": "counterpart",
    "nft 'add element ip x y } {'": "counterpart",
    "nft 'add table ip x { }'": "'{'",
    "nft add flowtable ip x y": "'flowtable'",
    "iptables -M /x -L": "'-M'",
    "iptables -L": "'-L'",
    "iptables -A FORWARD -M /x": "'-M'",
    'iptables -A FORWARD "-M" /x': "'-M'",
    "iptables -A FORWARD -M/x": "'-M/x'",
    "iptables --modprobe=/x -L": "'--modprobe=/x'",
    "iptables --modp /x": "'--modp'",
    "iptables -A FORWARD --modp /x": "'--modp'",
    "iptables -A FORWARD -m bpf --object FILE": "'--object'",
    "iptables -A FORWARD -m bpf --object-pinned FILE": "'--object-pinned'",
    "iptables -A FORWARD -m cgroup --path /x": "'--path'",
    "iptables -m bpf --object FILE": "'-m'",
    "iptables -A FORWARD -m comment --comment ! --modprobe=/x": "'--modprobe=/x'",
    "iptables -A FORWARD -m comment --comment '' -j IDLETIMER": "'IDLETIMER'",
    "iptables -A PREROUTING -j  IDLETIMER --timeout 5 --label Sx": "'IDLETIMER'",
    "iptables -A PREROUTING --jump IDLETIMER --timeout 5 --label Sx": "'IDLETIMER'",
    "iptables -A PREROUTING --jum ACCEPT": "'--jum'",
    "iptables -A PREROUTING -jACCEPT": "'-jACCEPT'",
    "iptables -A PREROUTING -s -M -j ACCEPT": "'-M'",
    "iptables -A PREROUTING --dport 5": "'--dport'",
    "iptables -A PREROUTING -p tcp --dport": "--dport",
    "iptables -t -M -F": "'-M'",
    "iptables -N -M": "''",
    "iptables -N IDLETIMER": "'IDLETIMER'",
    "iptables -X A B": "'B'",
    "iptables -R FORWARD -j DROP": "'-j'",
    "iptables -P FORWARD /x": "'/x'",
    "ebtables --atomic-file /x -L": "'--atomic-file'",
    "ebtables -A FORWARD --among-src-file /x": "'--among-src-file'",
    "ebtables --init-table": "'--init-table'",
    "ipset restore -f /x": "'restore'",
    "ipset save -file /x": "'save'",
    "ipset add s -file": "'-file'",
    "ipset create s hash:bogus": "'hash:bogus'",
    "ipset create s hash:ip timeout -f": "'-f'",
    "ipset -R": "'-R'",
    "ipset flush -f": "'-f'",
    "sysctl": "''",
    "sysctl -p": "'-p'",
    "sysctl -w kernel.panic=1": "'kernel.panic=1'",
    "sysctl -w net.//.kernel.panic=1": "kernel",
    "sysctl -w net/../kernel/panic=1": "'net/../kernel/panic'",
    "sysctl --system": "'--system'",
    "sysctl -w net.ipv4.ip_forward=1;reboot": "';reboot'",
    "ip link 'unclosed": "No closing quotation",
}


def test_the_table_of_the_twin_itself_is_refused() -> None:
    with pytest.raises(Invalid, match=OWN_TABLE):
        command.read("commands[0]", f"nft delete table inet {OWN_TABLE}")


@pytest.mark.parametrize("line", REFUSED)
def test_a_command_that_is_not_permitted_is_refused_and_the_word_is_named(line: str) -> None:
    with pytest.raises(Invalid) as error:
        command.read("commands[0]", line)
    assert str(error.value).startswith("commands[0] must be ") and str(error.value).endswith(f"; {line!r} was given")
    assert REFUSED[line] in str(error.value).removesuffix(f"; {line!r} was given")


def test_objects_and_verbs_of_the_documentation_are_those_of_the_tables() -> None:
    assert {"netns", "vrf", "xfrm", "monitor", "tunnel", "macsec", "nexthop"}.isdisjoint(iproute_command.IP)
    permitted = {word for verbs in iproute_command.IP.values() for verb in verbs.values() for word in verb.keywords}
    assert permitted.isdisjoint(
        {"netns", "xdp", "xdpgeneric", "xdpdrv", "xdpoffload", "vf", "encap", "link-netns", "link-netnsid"}
    )


OPTIONS = ("-M", "--modprobe=/x", "--modprobe", "-batch", "-ba", "-f/x")
HOSTILE = (*OPTIONS, "include", "netns", "exec", '"', ";", "\n", "\\", "$x", "@x", "{", "}")


@given(st.sampled_from([*PERMITTED]), st.data())
def test_a_word_that_is_put_into_a_permitted_command_is_refused_or_a_value(line: str, data: st.DataObject) -> None:
    words = line.split(" ")
    for word in data.draw(st.lists(st.sampled_from(HOSTILE), min_size=1, max_size=3)):
        words.insert(data.draw(st.integers(0, len(words))), word)
    try:
        found = command.read("", " ".join(words))
    except Invalid:
        return
    assert command.read("", found.shown) == found
    if isinstance(found, Program):
        outside = re.sub(r'"[^"]*"', '""', found.words[0]) if found.name == "nft" else ""
        assert "include" not in outside and "$" not in outside
        names = ("--comment", "dev", "name", "comment", "-A", "-I", "-N", "-E", "-j", "OLD")
        bare = [word for last, word in zip(("", *found.words), found.words) if last not in names]
        assert {*OPTIONS, "netns", "exec"}.isdisjoint(bare)
        assert all(word.isprintable() for word in found.words)
