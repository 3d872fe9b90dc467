# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Foreign rules and sets reach iptables-restore and ipset only as permitted words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.kubenode.datapath.plugins.module_utils._core.fields import Unfit
from ansible_collections.kubenode.datapath.plugins.module_utils._ebtables.ebtables_options import EBTABLES
from ansible_collections.kubenode.datapath.plugins.module_utils._netfilter import (
    ipset_text,
    restore_text,
    rule_options,
    rule_words,
)
from ansible_collections.kubenode.datapath.plugins.module_utils._netfilter.rule_words import IPTABLES

SAVED = """\
*mangle
:PREROUTING ACCEPT [0:0]
:cali-PREROUTING - [0:0]
:ISTIO_DIVERT - [0:0]
-A PREROUTING -m comment --comment "cali:6gwbT8clXdHdC1b1" -j cali-PREROUTING
[12:34] -A cali-PREROUTING -m mark --mark 0x10000/0x10000 -m comment --comment "it\\'s \\"quoted\\" \\\\ -M" -j RETURN
-A ISTIO_DIVERT -j MARK --set-xmark 0x539/0xffffffff
-A PREROUTING ! -i eth0 -p tcp -m socket --transparent -j TPROXY --on-port 15006 --on-ip 127.0.0.1 --tproxy-mark 0x539/0xffffffff
COMMIT
*nat
:PREROUTING ACCEPT [0:0]
:KUBE-SERVICES - [0:0]
:KUBE-SVC-NPX46 - [0:0]
:KUBE-SEP-SNA2Q - [0:0]
:CILIUM_POST_nat - [0:0]
:DOCKER - [0:0]
-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A KUBE-SERVICES -d 10.96.0.1/32 -p tcp -m comment --comment "default/kubernetes:https" -m tcp --dport 443 -j KUBE-SVC-NPX46
-A KUBE-SVC-NPX46 -m statistic --mode random --probability 0.33333333349 -j KUBE-SEP-SNA2Q
-A KUBE-SEP-SNA2Q -s 172.18.0.2/32 -m recent --set --name KUBE-SEP-SNA2Q --mask 255.255.255.255 --rsource
-A KUBE-SEP-SNA2Q -p tcp -m tcp -j DNAT --to-destination 172.18.0.2:6443
-A CILIUM_POST_nat -s 10.0.0.0/24 -m set --match-set cilium_node_set_v4 dst -m comment --comment exclude -j ACCEPT
-A CILIUM_POST_nat ! -d 10.0.0.0/24 ! -o cilium_+ -m policy --dir out --pol none -j MASQUERADE --random-fully
-A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER
-A DOCKER ! -i docker0 -p tcp -m tcp --dport 8080 -j DNAT --to-destination 172.17.0.2:80
-A PREROUTING -p tcp -m u32 --u32 "0x0>>0x16&0x3c@0x8=0x1" -m string --string "GET /" --algo bm -j NFLOG --nflog-prefix "a b"
COMMIT
"""


def test_tables_of_kubernetes_are_rendered_as_they_were_saved() -> None:
    assert restore_text.read(SAVED) == (SAVED, [])


BRIDGED = """\
*nat
:PREROUTING ACCEPT
-A PREROUTING -p ARP -i eth0 --arp-op Request -j arpreply --arpreply-mac 12:34:56:78:9a:bc --arpreply-target DROP
-A PREROUTING -p IPv4 -i ! eth0 --log-level notice --log-prefix "x" -j dnat --to-dst 02:00:00:00:00:01 --dnat-target ACCEPT
"""


def test_tables_of_ebtables_are_rendered_as_they_were_saved() -> None:
    assert restore_text.read(BRIDGED, EBTABLES) == (BRIDGED, [])


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('-A  X\t-m comment --comment "a \\"b\\" \\\\"', ["-A", "X", "-m", "comment", "--comment", 'a "b" \\']),
        ('a"b c"d "" \\x', ["ab cd", "", "\\x"]),
        ("it's", ["it's"]),
    ],
)
def test_words_are_those_of_iptables_restore(line: str, words: list[str]) -> None:
    assert rule_words.split(line) == words


@given(st.lists(st.text(st.characters(exclude_categories=("Cc", "Cs", "Z")), min_size=1), min_size=1))
def test_a_quoted_word_is_divided_as_itself(words: list[str]) -> None:
    assert rule_words.split(" ".join(map(rule_words.quote, words))) == words


def test_a_quote_without_its_end_is_refused() -> None:
    with pytest.raises(Unfit, match="each quote ends"):
        rule_words.split('-m comment --comment "a')


@pytest.mark.parametrize(
    "line",
    [
        '-A INPUT -m comment --comment "" --comment "-M" /x',
        "-A INPUT -m tcp --tcp-flags SYN -M",
        "-A INPUT -p tcp --tcp-flags SYN -M",
        "-A INPUT -j",
        "-A INPUT !",
        "-A INPUT -g IDLETIMER",
        "-A -M /x",
        "-A INPUT -j DROP extra",
        "-A INPUT --protocol=tcp=udp -M",
        "-A INPUT -f=/x",
        "-A INPUT -m bpf --object-pinned=/x",
        "-I INPUT 1 2 -j DROP",
        "[0:0] COMMIT",
        "[0:0]",
        ":X ACCEPT [0:0",
        ":X /x",
        "* nat",
        "COMMIT now",
        "-A INPUT -m comment --comment \x1b",
    ],
)
def test_a_line_that_is_not_permitted_is_left_out(line: str) -> None:
    found = restore_text.read(f"*filter\n{line}\nCOMMIT\n")
    assert [given_line for given_line, _allowed in found.refused] == [line.strip()] and found.text == "*filter\nCOMMIT\n"


def test_an_empty_comment_becomes_a_blank_because_iptables_restore_overlooks_it() -> None:
    assert restore_text.read('-A X -m comment --comment "" -j Y\n').text == '-A X -m comment --comment " " -j Y\n'


@pytest.mark.parametrize("name", ["IDLETIMER", "LED", "AUDIT", "SECMARK", "SYSRQ"])
def test_targets_outside_of_the_namespace_are_neither_targets_nor_chains(name: str) -> None:
    assert name not in rule_options.TARGETS and not rule_words.is_chain(name)


HOSTILE = (
    "-M",
    "/x",
    "--modprobe=/x",
    "--modp",
    "-j IDLETIMER",
    '"',
    "\\",
    "\n",
    ";",
    "--object-pinned",
    "!",
    "-t nat",
    "include",
    "-m bpf",
)


@given(st.sampled_from(SAVED.splitlines()), st.data())
def test_what_is_put_into_a_line_never_survives_as_an_option(line: str, data: st.DataObject) -> None:
    for word in data.draw(st.lists(st.sampled_from(HOSTILE), min_size=1, max_size=3)):
        place = data.draw(st.integers(0, len(line)))
        line = f"{line[:place]} {word} {line[place:]}"
    text = restore_text.read(line).text
    assert restore_text.read(text) == (text, [])
    for kept in filter(None, text.splitlines()):
        words = rule_words.split(kept)
        options = [word for last, word in zip(["", *words], words) if last not in (*IPTABLES.texts, *IPTABLES.quoted)]
        assert {"-M", "--modprobe", "--modprobe=/x", "--modp", "-t", "--object-pinned", "IDLETIMER"}.isdisjoint(options)
        known = {option for table in (*IPTABLES.matches.values(), *IPTABLES.targets.values(), IPTABLES.rule) for option in table}
        assert {word for word in options[2:] if word.startswith("-")} <= {*known, "-A", "-"}


SETS = """\
create a hash:net,iface family inet6 hashsize 1024 maxelem 65536 timeout 5 counters comment bucketsize 12 initval 0x1234abcd
add a fd00::/64,physdev:eth0 timeout 5 packets 0 bytes 0 comment "x -f /y" nomatch
create b list:set size 8
add b a
create c bitmap:port range 0-1023
add c 22-25
create d hash:ip,port,net family inet
add d 10.0.0.1,tcp:8080,10.1.0.0/16
"""


def test_sets_are_rendered_as_they_were_saved() -> None:
    assert ipset_text.read(SETS) == (SETS.splitlines(), [])


def test_commands_of_ipset_have_their_forms() -> None:
    assert ipset_text.command(["swap", "a", "b"]) == ["swap", "a", "b"]
    assert ipset_text.command(["flush", "a", "-!"]) == ["flush", "a", "-exist"]
    with pytest.raises(Unfit, match="one of add, create"):
        ipset_text.command([])
    with pytest.raises(Unfit, match="a value of hashsize in place of '-f'"):
        ipset_text.command(["create", "a", "hash:ip", "hashsize", "-f"])
