# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Break a built node by one change, which knows the changed object in the words of the audit."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from lab.machine import Machine

from .layouts import Layout

UNUSED_MAC = "02:00:00:00:00:99"
SMALL_MTU = 1280  # the least of IPv6, so that a link keeps its addresses
IPTABLES = ("iptables-nft", "ip6tables-nft")


_START = r"(?<![\w.:/])(?<!from )(?<!src )"


class Mutation(NamedTuple):
    """A change of one object. commands: lines of the shell, run on the machine. words: all of one entry name the object.

    is_unknowable: whether the node is the same as one that is meant to be so.
    """

    kind: str
    machine: str
    change: str
    commands: str
    words: Sequence[Sequence[str]]
    stdin: str = ""
    is_unknowable: bool = False

    def __str__(self) -> str:
        return f"{self.kind} of {self.machine}: {self.change}"

    def is_named_in(self, text: str) -> bool:
        """Return whether a text has all words of an entry, none as a part of another word, of an address or of a selector."""
        return any(all(re.search(rf"{_START}{re.escape(word)}(?![\w:]|\.\w)", text) for word in words) for words in self.words)

    def apply(self, machines: Mapping[str, Machine]) -> None:
        """Change the node, and let all machines forget the neighbours that they have learnt, as they do in time."""
        machines[self.machine].run_from_host(["sh", "-ec", self.commands], self.stdin)
        for machine in machines.values():
            machine.run_from_host(["sh", "-c", "ip -4 neigh flush all; ip -6 neigh flush all"])


Source = tuple[Layout, Mapping[str, Machine], random.Random]


def drawn(layout: Layout, machines: Mapping[str, Machine], chance: random.Random) -> Mutation:
    """Return a mutation of a kind that has something to change; each kind is as likely as another one."""
    for make in chance.sample(KINDS, len(KINDS)):
        candidates = [*make((layout, machines, chance))]
        if candidates:
            return chance.choice(candidates)
    raise AssertionError("the node has nothing to change")


def _place(source: Source) -> tuple[str, Machine]:
    """Draw the node, or one of its pods, which is less likely."""
    layout, machines, chance = source
    name = chance.choice(["node", "node", *layout.pods])
    return name, machines[name]


def _entries(machine: Machine, *words: str) -> list[dict[str, Any]]:
    return list(json.loads(machine.run_from_host(["ip", "-j", "-d", *words]) or "[]"))


def _lines(machine: Machine, *words: str) -> Iterator[tuple[int, str]]:
    """Yield family and line of what ``ip`` prints for each family."""
    for family in (4, 6):
        for line in machine.run_from_host(["ip", f"-{family}", *words]).splitlines():
            yield family, " ".join(line.split())


_NOT_A_ROUTE = re.compile(r"^(local|broadcast|multicast|anycast|unreachable|fe80::|ff00::)")
_TAIL = re.compile(r" (linkdown|dead|pref \w+|proto kernel)(?= |$)")


def routes(source: Source) -> Iterator[Mutation]:
    """Delete a route, make it a blackhole, or lead it by another link."""
    name, machine = _place(source)
    by_link = [entry["ifname"] for entry in _entries(machine, "link") if entry["ifname"] != "lo"]
    for family, printed in _lines(machine, "route", "show", "table", "all"):
        line = _TAIL.sub("", printed)
        if _NOT_A_ROUTE.match(line) or " dev " not in line:
            continue
        to, link = line.split()[0], line.split(" dev ")[1].split()[0]
        table = "".join(re.findall(r" table \w+", line)) + "".join(re.findall(r" metric \w+", line))
        delete = f"ip -{family} route del {line}"
        # What is lost without a route names the address that has none; a default route is "default".
        words = [[to], *([[to.partition("/")[0], link]] if "/" in to else [])]
        yield Mutation("route", name, f"delete {line}", delete, words)
        yield Mutation("route", name, f"blackhole for {line}", f"{delete}; ip -{family} route add blackhole {to}{table}", words)
        wrong = source[2].choice([each for each in by_link if each != link] or [""])
        if wrong:
            change = f"{to}{table} dev {wrong}"
            yield Mutation(
                "route", name, f"{line} -> {change}", f"{delete}; ip -{family} route add {change}", [*words, [to, wrong]]
            )


def rules(source: Source) -> Iterator[Mutation]:
    """Delete a policy rule, or let it look up a table that is empty."""
    machine = source[1]["node"]
    for family, line in _lines(machine, "rule"):
        priority, _colon, text = line.partition(": ")
        if priority in ("0", "32766", "32767"):
            continue
        text = re.sub(r" proto \w+", "", text)
        selector = text.partition(" lookup ")[0]
        delete = f"ip -{family} rule del {text} priority {priority}"
        # No other rule tells which tables a mark leads to, so that the mark names the rule that is gone.
        marks = re.findall(r"fwmark (\S+)", selector)
        words = [[selector], [selector.removeprefix("from all ")], *([marks] if marks else [])]
        yield Mutation("rule", "node", f"delete {line}", delete, words)
        if " lookup " in text:
            add = f"ip -{family} rule add {selector} lookup 4242 priority {priority}"
            yield Mutation("rule", "node", f"{line} -> lookup 4242", f"{delete}; {add}", [*words, ["lookup 4242"]])


def neighbours(source: Source) -> Iterator[Mutation]:
    """Delete a permanent neighbour, or give one another MAC address."""
    name, machine = _place(source)
    for entry in _entries(machine, "neigh"):
        address, link = entry["dst"], entry["dev"]
        words = [[address, link]] if name == "node" else [[address]]
        if entry["state"] == ["PERMANENT"]:
            yield Mutation("neighbour", name, f"delete {address} {link}", f"ip neigh del {address} dev {link}", words)
        if entry.get("lladdr"):
            change = f"{address} lladdr {UNUSED_MAC} dev {link}"
            # Which MAC address a machine beyond the node has is known of no entry but this one.
            is_beyond = name == "node" and link.startswith("eth")
            replace = f"ip neigh replace {change} nud permanent"
            yield Mutation("neighbour", name, change, replace, words, is_unknowable=is_beyond)
    if name == "node":
        yield from _forwarding_entries(machine)


def _forwarding_entries(machine: Machine) -> Iterator[Mutation]:
    for line in machine.run_from_host(["bridge", "fdb", "show"]).splitlines():
        if " dst " in line:
            mac, link = line.split()[0], line.split(" dev ")[1].split()[0]
            yield Mutation("neighbour", "node", f"delete FDB {line}", f"bridge fdb del {mac} dev {link}", [[mac], [link]])


def addresses(source: Source) -> Iterator[Mutation]:
    """Delete an address."""
    name, machine = _place(source)
    for entry in _entries(machine, "addr"):
        for each in entry["addr_info"] if entry["ifname"] != "lo" else ():
            if not (each["scope"] == "link" and each["local"].startswith("fe80::") and not each["local"].startswith("fe80::1:")):
                address = f"{each['local']}/{each['prefixlen']}"
                yield Mutation(
                    "address", name, f"delete {address} dev {entry['ifname']}", f"ip addr del {address} dev {entry['ifname']}",
                    # An address that is gone may be named nowhere, so that a link without any is what is named.
                    [[each["local"]], [f"no address of ipv{4 + 2 * (':' in each['local'])} on {entry['ifname']}"]],
                )  # fmt: skip


def settings(source: Source) -> Iterator[Mutation]:
    """Set what decides about forwarding, and is another value on the healthy node."""
    machine = source[1]["node"]
    names = [entry["ifname"] for entry in _entries(machine, "link") if entry["ifname"] != "lo"]
    wrong = {f"net.ipv4.conf.{name}.rp_filter": 1 for name in ("all", *names)}
    wrong |= {f"net.ipv4.conf.{name}.forwarding": 0 for name in names}
    wrong |= {f"net.ipv4.conf.{name}.proxy_arp": 0 for name in names}
    wrong |= {f"net.ipv6.conf.{name}.disable_ipv6": 1 for name in names}
    wrong |= {f"net.ipv4.conf.{name}.arp_ignore": 8 for name in ("all", *names)}
    wrong |= {"net.ipv4.ip_forward": 0, "net.ipv6.conf.all.forwarding": 0}
    wrong |= {f"net.bridge.bridge-nf-call-{name}": 0 for name in ("iptables", "ip6tables")}
    now = machine.run_from_host(["sysctl", "-e", *wrong])
    for key, value in re.findall(r"(?m)^(\S+) = (\d+)$", now):
        if int(value) != wrong.get(key, int(value)):
            link, setting = key.split(".")[-2:]
            words = [[key], [f"net.ipv4.conf.all.{setting}", link], [f"{setting} of {link}"]]
            yield Mutation("setting", "node", f"{key} = {wrong[key]}", f"sysctl -q -w {key}={wrong[key]}", words)


def mtus(source: Source) -> Iterator[Mutation]:
    """Give a link a smaller MTU, or a tunnel one that leaves no room for its head."""
    name, machine = _place(source)
    for entry in _entries(machine, "link"):
        link = entry["ifname"]
        if link != "lo" and entry["mtu"] > SMALL_MTU:
            small = f"ip link set {link} mtu {SMALL_MTU}"
            yield Mutation("mtu", name, f"{link} mtu {SMALL_MTU}", small, [[link, "mtu"], [link, "MTU"]])
        if link in ("flannel.1", "flannel-v6.1", "wireguard.cali"):
            yield Mutation("mtu", name, f"{link} mtu 1500", f"ip link set {link} mtu 1500", [[link, "mtu"], [link, "MTU"]])


def states(source: Source) -> Iterator[Mutation]:
    """Set a link down."""
    name, machine = _place(source)
    for entry in _entries(machine, "link"):
        link = entry["ifname"]
        if link != "lo" and "UP" in entry["flags"]:
            yield Mutation("state", name, f"{link} down", f"ip link set {link} down", [[link]])


# Edits the rules as they are, which other changes may have altered since this one was drawn. Reads the old line and the new one.
EDIT = """
IFS= read -r OLD; IFS= read -r NEW; export OLD NEW
{program}-save | awk '
    $0 == ENVIRON["OLD"] && !found {{ found = 1; if (ENVIRON["NEW"] == "") next; $0 = ENVIRON["NEW"] }}
    {{ print }}
' | {program}-restore
"""


def firewall_rules(source: Source) -> Iterator[Mutation]:
    """Delete a rule of iptables, or give it another verdict or another target."""
    program = source[2].choice(IPTABLES)
    save = source[1]["node"].run_from_host([f"{program}-save"])
    edit = EDIT.format(program=program)
    for line in (line for line in save.splitlines() if line.startswith("-A ")):
        chain = line.split()[1]
        words = [[line], [chain], [line.rpartition(" -j ")[2].split()[0]]]
        yield Mutation("iptables", "node", f"delete {line}", edit, words, f"{line}\n\n")
        for before, after in (
            ("-j ACCEPT", "-j DROP"),
            ("-j RETURN", "-j DROP"),
            (":8080", ":8099"),
            ("-j MASQUERADE", "-j ACCEPT"),
        ):
            if before in line:
                change = line.replace(before, after)
                change = re.sub(r"(?<=-j ACCEPT).*", "", change)
                yield Mutation("iptables", "node", f"{line} -> {change}", edit, [*words, [change]], f"{line}\n{change}\n")


def nft_rules(source: Source) -> Iterator[Mutation]:
    """Delete a rule of a table that is not of iptables."""
    machine = source[1]["node"]
    place: list[str] = ["", "", ""]
    for line in machine.run_from_host(["nft", "-a", "list", "ruleset"]).splitlines():
        words = line.split()
        if words[:1] == ["table"]:
            place = [*words[1:3], ""]
        elif words[:1] == ["chain"]:
            place[2] = words[1]
        elif (found := re.fullmatch(r"\s+(.+) # handle (\d+)", line)) and place[2] and not _is_of_iptables(place):
            delete = f"nft delete rule {' '.join(place)} handle {found[2]}"
            yield Mutation("nft", "node", f"delete {' '.join(place)} {found[1]}", delete, [[found[1]], [place[2]]])


DROPS = (
    "add table inet filter; add chain inet filter forward { type filter hook forward priority 0; }; add rule inet filter forward"
)


def additions(source: Source) -> Iterator[Mutation]:
    """Add a policy rule or a rule of nft that stops the packets of a pod."""
    for pod in source[0].pods.values():
        for family, address in pod.items():
            for word in ("saddr", "daddr"):
                drop = f"ip{'6' * (family == 6)} {word} {address} drop"
                yield Mutation("addition", "node", f"nft {drop}", f"nft '{DROPS} {drop}'", [[drop]])
            for selector in (f"from {address}", f"to {address}"):
                for action in ("blackhole", "unreachable"):
                    add = f"ip -{family} rule add {selector} {action} priority 400"
                    yield Mutation("addition", "node", f"rule {selector} {action}", add, [[selector]])


def _is_of_iptables(place: Sequence[str]) -> bool:
    return place[0] in ("ip", "ip6") and place[1] in ("nat", "filter", "mangle", "raw")


KINDS: tuple[Callable[[Source], Iterator[Mutation]], ...] = (
    routes, rules, neighbours, addresses, settings, mtus, states, firewall_rules, nft_rules, additions,
)  # fmt: skip
