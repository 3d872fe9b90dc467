# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Random nodes, built by the programs that an operator uses, and packets that are sent through them."""

from __future__ import annotations

import random
import re
import subprocess
from collections.abc import Iterable, Sequence
from typing import Any

from ansible_collections.kubenode.datapath.plugins.module_utils._core import fields
from ansible_collections.kubenode.datapath.plugins.module_utils._netlink import wire
from ansible_collections.kubenode.datapath.plugins.module_utils._platform import process
from ansible_collections.kubenode.datapath.plugins.module_utils._routing.routing_backend import Netlink
from ansible_collections.kubenode.datapath.plugins.module_utils._snapshot import snapshot_backend
from ansible_collections.kubenode.datapath.plugins.module_utils._snapshot.values import Snapshot
from ansible_collections.kubenode.datapath.plugins.module_utils._trace import packet as model
from ansible_collections.kubenode.datapath.plugins.module_utils._trace.far_ends_backend import FarEnds
from ansible_collections.kubenode.datapath.plugins.module_utils._trace.kernel_events import Observation
from ansible_collections.kubenode.datapath.plugins.module_utils._trace.lookup import Tables
from ansible_collections.kubenode.datapath.plugins.module_utils._trace.packet import Packet
from ansible_collections.kubenode.datapath.plugins.module_utils._trace.topology import Topology
from ansible_collections.kubenode.datapath.plugins.module_utils._trace.verdict import _is_of as is_of
from ansible_collections.kubenode.datapath.plugins.module_utils._twin import blueprint, isolation_backend, link_messages
from ansible_collections.kubenode.datapath.plugins.module_utils._twin.isolation_backend import Isolated

SUBSETS = ("links", "neighbors", "rules", "routes", "settings", "nftables", "iptables", "ipsets", "ebtables", "bpf", "ipvs")
ADDRESSES = ["10.0.0.9", "10.0.1.9", "10.1.0.5", "10.1.0.6", "10.96.0.1", "10.96.0.2", "172.16.0.1", "192.0.2.7"]
LINKS = ["eth0", "eth1", "pod1", "pod2", "port1"]
PASTED = [
    *("ip rule", "ip -6 rule", "ip route show table all", "ip -6 route show table all", "ip -d addr", "ip neigh"),
    *("iptables-nft-save", "ip6tables-nft-save", "ipset save", "ebtables-nft-save", "nft list ruleset", "sysctl -a"),
]
# Other commands that an operator may paste in place of one of these, each with a part of its output.
DIALECTS = {
    "ip rule": ["ip rule show table 100", "ip rule list"],
    "ip route show table all": ["ip route", "ip route show table 100"],
    "ip -6 route show table all": ["ip -6 route", "ip -6 route show table 100"],
    "ip -d addr": ["ip -br addr", "ip addr show dev eth0", "ip link"],
    "iptables-nft-save": [
        *("iptables-nft -S", "iptables-nft -t nat -S", "iptables-nft -t mangle -S", "iptables-nft -S FORWARD"),
        *("iptables-nft -nvL", "iptables-nft -t nat -nvL", "iptables-nft -t mangle -nL --line-numbers", "iptables-nft -nL OWN"),
    ],
    "ip6tables-nft-save": [
        *("ip6tables-nft -S", "ip6tables-nft -t nat -S", "ip6tables-nft -t mangle -S", "ip6tables-nft -S FORWARD"),
        *("ip6tables-nft -nvL", "ip6tables-nft -t nat -nvL", "ip6tables-nft -t mangle -nL --line-numbers"),
    ],
    "ipset save": ["ipset list"],
    "ebtables-nft-save": ["ebtables-nft -L", "ebtables-nft -t nat -L"],
    "nft list ruleset": ["nft list tables", "nft list ruleset ip"],
    "sysctl -a": ["sysctl net.ipv4.ip_forward", "sysctl net.ipv4.conf.all.rp_filter net.ipv4.conf.eth0.rp_filter"],
}
RULESETS = ("nftables", "iptables", "ipsets", "ebtables")
FILLED = ("nft list ruleset", "ipset save")
FAR = {"pod1": "10.1.0.5", "pod2": "10.1.0.6"}


LENGTHS = {"16": "48", "24": "64", "32": "128"}  # of prefixes, in IPv6
WORDS = {
    "ip saddr": "ip6 saddr",
    "ip daddr": "ip6 daddr",
    "ip ttl": "ip6 hoplimit",
    "meta l4proto icmp reject": "meta l4proto icmpv6 icmpv6 type echo-request reject",
    "icmp-port-unreachable": "icmp6-port-unreachable",
    "family inet": "family inet6",
    "table ip ": "table ip6 ",
    "type ipv4_addr": "type ipv6_addr",
}


def in_ipv6(text: str) -> str:
    """The text with IPv6 addresses, and with the options and commands for these."""

    def address(found: re.Match[str]) -> str:
        first, second, third, last, length, port = found.groups()
        host = f"fd00:{first}:{second}:{third}::{last}" if last != "0" or length else f"fd00:{first}:{second}:{third}::"
        shown = host.replace(f":{second}:{third}::{last}", f":{second}::") if length == "16" else host.replace("::0", "::")
        return (f"[{shown}]:{port}" if port else shown) + (f"/{LENGTHS[length]}" if length else "")

    for word, other in WORDS.items():
        text = text.replace(word, other)
    return re.sub(r"(\d+)\.(\d+)\.(\d+)\.(\d+)(?:/(\d+))?(?::(\d+))?", address, text)


class Node:
    """A node made from a seed: lines for ip, settings, rules and a packet."""

    def __init__(self, seed: int, is_ipv6: bool = False) -> None:
        chance = random.Random(seed)
        self.seed = seed
        self.ip = [
            "addr add 10.0.0.4/24 dev eth0",
            "addr add 10.0.1.4/24 dev eth1",
            "addr add 10.2.0.1/24 dev br0",
            "route add 10.1.0.5 dev pod1 scope link",
            "route add 10.1.0.6 dev pod2 scope link",
        ]
        if chance.random() < 0.9:
            self.ip.append("route add default via 10.0.0.1 dev eth0")
        self.ip += ["route add default via 10.0.1.1 dev eth1 table 100"]
        for number in range(chance.randrange(4)):
            kind = chance.choice(["unreachable", "blackhole", "prohibit", "throw"])
            self.ip += chance.choice(
                [
                    [f"route add {kind} {chance.choice(ADDRESSES)} table {chance.choice(['main', '100'])} metric {number + 5}"],
                    [
                        f"route add {chance.choice(ADDRESSES)} dev {chance.choice(LINKS[:4])}"
                        f" table {chance.choice(['main', '100'])} metric {number + 1}"
                    ],
                    [f"route add 172.16.0.0/16 via 10.0.{number % 2}.7 dev eth{number % 2} metric {number + 1}"],
                ]
            )
        for _number in range(chance.randrange(5)):
            words = chance.sample(
                [
                    f"from {chance.choice(ADDRESSES)}",
                    f"to {chance.choice(ADDRESSES)}",
                    f"iif {chance.choice(LINKS)}",
                    f"fwmark {chance.choice(['0x1', '0x80/0x80', '0x0/0x80'])}",
                    "ipproto tcp",
                    f"dport {chance.choice([80, 443])}",
                ],
                chance.randrange(1, 3),
            )
            action = chance.choice(["lookup 100", "lookup 100", "lookup main", "unreachable", "blackhole"])
            self.ip.append(
                f"rule add priority {chance.randrange(1, 2000)} {chance.choice(['', '', '', 'not '])}{' '.join(words)} {action}"
            )
        self.settings = {"net/ipv4/ip_forward": int(chance.random() < 0.95)}
        for link in ("all", *LINKS):
            self.settings[f"net/ipv4/conf/{link}/rp_filter"] = chance.choice([0, 0, 0, 1, 2])
        self.settings["net/ipv4/conf/all/src_valid_mark"] = chance.randrange(2)
        self.sets = "create S hash:ip,port family inet\nadd S 10.96.0.1,tcp:80\n" if chance.random() < 0.5 else ""
        self.iptables = self._iptables(chance) if chance.random() < 0.8 else ""
        self.nft = self._nft(chance) if chance.random() < 0.5 else ""
        self.ebtables = self._ebtables(chance) if chance.random() < 0.4 else ""
        protocol = chance.choice(["tcp", "tcp", "udp", "icmp"])
        interface = chance.choice(LINKS)
        given: dict[str, Any] = {
            "source": FAR.get(interface) if chance.random() < 0.8 and interface in FAR else chance.choice(ADDRESSES),
            "destination": chance.choice([*ADDRESSES, "10.2.0.9", "10.0.0.4"]),
            "protocol": protocol,
            "interface": interface,
        }
        if protocol != "icmp":
            given["destination_port"] = chance.choice([80, 443, 30080])
        self.packet = given
        self.is_ipv6 = is_ipv6
        self._add(random.Random(f"further {seed}"))
        if is_ipv6:
            self._become_ipv6()

    def _add(self, chance: random.Random) -> None:
        """Adds what a node of a cluster may have besides, by another generator, so that the rest stays as the seed makes it."""
        if chance.random() < 0.4:
            self.settings.update({f"net/bridge/bridge-nf-call-{name}": 1 for name in ("iptables", "ip6tables")})
        if chance.random() < 0.3:
            self.ip.append("route add default via 10.0.1.1 dev eth1 metric 50")
        if chance.random() < 0.3:
            self.ip.append("addr add 10.96.0.2/32 dev lo")  # as a virtual server of IPVS has it
        if chance.random() < 0.4:
            self.nft += self._affinity(chance)
        if chance.random() < 0.2 and self.packet["interface"] != "port1":
            self.packet.update(interface="port1", source=chance.choice(["10.2.0.8", "10.1.0.5"]))

    @staticmethod
    def _affinity(chance: random.Random) -> str:
        """A Service whose clients keep their endpoint, in kube-proxy's form."""
        first, second = chance.sample(["10.1.0.5", "10.1.0.6", "10.0.1.9"], 2)
        sets = "".join(
            f"set {name} {{ type ipv4_addr; flags dynamic,timeout; timeout 3h; }}\n"
            f"chain {name} {{ update @{name} {{ ip saddr }}\n meta l4proto tcp dnat to {address}:8080\n }}\n"
            for name, address in (("first", first), ("second", second))
        )
        return (
            f"table ip affinity {{\n{sets}chain service {{ ip saddr @first goto first\n ip saddr @second goto second\n"
            f" goto {chance.choice(['first', 'second'])}\n }}\n"
            "chain pre { type nat hook prerouting priority -100; policy accept;\n"
            " ip daddr 10.96.0.1 tcp dport 443 goto service\n }\n}\n"
        )

    def _become_ipv6(self) -> None:
        self.ip = [f"-6 {in_ipv6(line)}" + " nodad" * line.startswith("addr ") for line in self.ip]
        # The kernel's own link-local addresses are tentative for up to a second.
        own = [f"-6 addr add fe80::{number + 1}/64 dev {link} nodad" for number, link in enumerate([*LINKS, "br0"])]
        self.ip = own + [line.replace(" scope link", "") for line in self.ip]
        self.settings = {"net/ipv6/conf/all/forwarding": self.settings["net/ipv4/ip_forward"]}
        self.sets, self.iptables, self.nft = map(in_ipv6, (self.sets, self.iptables, self.nft))
        self.ebtables = ""
        self.packet = {**self.packet, **{key: in_ipv6(str(self.packet[key])) for key in ("source", "destination")}}

    def _iptables(self, chance: random.Random) -> str:
        in_nat = [
            "-A PREROUTING -d 10.96.0.1/32 -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.1.0.5:8080",
            "-A PREROUTING -d 10.96.0.2/32 -j DNAT --to-destination 10.0.1.9",
            "-A PREROUTING -p tcp -m tcp --dport 30080 -m addrtype --dst-type LOCAL -j DNAT --to-destination 10.1.0.6:80",
            "-A POSTROUTING -m mark --mark 0x4000/0x4000 -j MASQUERADE",
            f"-A POSTROUTING -s 10.1.0.0/24 -o {chance.choice(LINKS)} -j MASQUERADE",
            "-A POSTROUTING -o eth1 -j SNAT --to-source 10.0.1.4",
        ]
        in_mangle = [
            f"-A PREROUTING -i {chance.choice(LINKS)} -j MARK --set-xmark 0x80/0x80",
            f"-A PREROUTING -s {chance.choice(ADDRESSES)} -j MARK --set-xmark 0x1/0xffffffff",
            "-A FORWARD -j MARK --set-xmark 0x4000/0x4000",
            "-A PREROUTING -j CONNMARK --restore-mark --nfmask 0x80 --ctmask 0x80",
            "-A FORWARD -m mark --mark 0x80/0x80 -j CONNMARK --save-mark --nfmask 0x80 --ctmask 0x80",
        ]
        in_filter = [
            f"-A FORWARD -i {chance.choice(LINKS)} -o {chance.choice(LINKS)} -j DROP",
            f"-A FORWARD -d {chance.choice(ADDRESSES)} -j REJECT --reject-with icmp-port-unreachable",
            "-A FORWARD -m conntrack --ctstate INVALID -j DROP",
            f"-A INPUT -i {chance.choice(LINKS)} -j DROP",
            "-A FORWARD -p udp -j OWN",
            "-A OWN -m mark --mark 0x1 -j DROP",
            *(["-A FORWARD -m set --match-set S dst,dst -j DROP"] if self.sets else []),
        ]
        texts = []
        heads = {
            "nat": ("PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"),
            "mangle": ("PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"),
            "filter": ("INPUT", "FORWARD", "OUTPUT"),
        }
        for name, rules in (("nat", in_nat), ("mangle", in_mangle), ("filter", in_filter)):
            chosen = [rule for rule in rules if chance.random() < 0.35]
            policy = "DROP" if name == "filter" and chance.random() < 0.1 else "ACCEPT"
            own = [":OWN - [0:0]"] if name == "filter" else []
            chains = [f":{chain} {policy if chain == 'FORWARD' else 'ACCEPT'} [0:0]" for chain in heads[name]]
            texts += [f"*{name}", *chains, *own, *chosen, "COMMIT"]
        return "\n".join([*texts, ""])

    def _nft(self, chance: random.Random) -> str:
        rules = [
            f"ip saddr {chance.choice(ADDRESSES)} meta mark set 0x80",
            f"iifname {chance.choice(LINKS)} ip daddr {{ {', '.join(chance.sample(ADDRESSES, 3))} }} drop",
            f"tcp dport vmap {{ 443 : {chance.choice(['drop', 'accept'])} }}",
            f"ip daddr {chance.choice(ADDRESSES)} ip ttl set 30",
            "meta l4proto icmp reject",
            "ct state invalid counter drop",
        ]
        chosen = "\n".join(rule for rule in rules if chance.random() < 0.4)
        hook, priority = chance.choice([("prerouting", -150), ("forward", -5), ("postrouting", 150)])
        if hook != "prerouting" and "reject" in chosen and hook == "postrouting":
            chosen = chosen.replace("reject", "drop")
        if hook == "postrouting":
            chosen = chosen.replace("iifname", "oifname")
        return (
            f"table inet chance {{ chain one {{ type filter hook {hook} priority {priority}; policy accept;\n{chosen}\n}}\n}}\n"
        )

    def _ebtables(self, chance: random.Random) -> str:
        rules = [
            "-A PREROUTING -p IPv4 --ip-dst 10.2.0.9 -j dnat --to-dst 02:aa:bb:cc:dd:ee --dnat-target ACCEPT",
            "-A PREROUTING -p IPv4 -i port1 --ip-proto udp -j DROP",
        ]
        chosen = [rule for rule in rules if chance.random() < 0.5]
        return "\n".join(["*nat", ":PREROUTING ACCEPT", ":OUTPUT ACCEPT", ":POSTROUTING ACCEPT", *chosen, ""])


def seen(observation: Observation) -> dict[str, Any]:
    out = [(link, one) for link, one in observation.frames if is_of(observation.sent, one)]
    return {
        "out": sorted({(link, str(one.packet), one.source_mac.hex(":"), one.destination_mac.hex(":")) for link, one in out}),
        "rejected": any(one.reject for _link, one in observation.frames),
        "delivered": any(name.endswith("InDelivers") for name in observation.counters),
        "asked": sorted(
            {(asking.link, fields.show(asking.request.target)) for asking in observation.solicitations if not asking.is_answered}
        ),
    }


def through_the_node(node: Node) -> dict[str, Any]:
    """Builds the node by commands, sends the packet and the reply, and returns the frames seen, and the node's snapshot."""
    within = isolation_backend.root()
    sysctl = process.find("sysctl")
    assert sysctl
    within = within._replace(programs={**within.programs, sysctl: sysctl})  # besides those of a twin
    return isolation_backend.run(lambda isolated: _through(isolated, node), 60, within)


def run(argv: Sequence[str], stdin: str | None = None, *_more: object) -> process.Completed:
    return process.run(argv, stdin, {"PATH": process.SEARCH_PATH})


def _through(isolated: Isolated, node: Node) -> dict[str, Any]:
    links = [link_messages.NewLink(5, "br0", "bridge", bytes.fromhex("02cb00000005"))]
    links += [
        link_messages.NewLink(10 + number, name, "veth", bytes([2, 0xCC, 0, 0, 0, number]), master=5 if name == "port1" else 0)
        for number, name in enumerate(LINKS)
    ]
    of_new_links = {"dad_transmits": 0, "router_solicitations": 0, "addr_gen_mode": 1}
    quiet = {"net/ipv6/icmp/ratelimit": 0, **{f"net/ipv6/conf/default/{key}": value for key, value in of_new_links.items()}}
    first_settings = {"net/ipv6/conf/default/disable_ipv6": int(not node.is_ipv6), "net/ipv4/icmp_ratelimit": 0, **quiet}
    for path, value in (*first_settings.items(), *node.settings.items()):
        if "/conf/" not in path or path.split("/")[3] in ("all", "default"):
            with open(f"/proc/sys/{path}", "w") as file:
                file.write(str(value))
    assert not wire.exchange([link_messages.create_link(link, isolated.world, number, 0) for number, link in enumerate(links, 1)])
    wire.exchange(
        [link_messages.set_link_up(link.number, number) for number, link in enumerate(links[1:], 1)], isolated.netlink.dup
    )
    for path, value in node.settings.items():
        if path.split("/")[3:4] and path.split("/")[3] in LINKS:
            with open(f"/proc/sys/{path}", "w") as file:
                file.write(str(value))
    run(["ip", "link", "set", "lo", "up"])
    for line in node.ip:
        subprocess.run(["ip", *line.split()], check=False, capture_output=True)  # some lines contradict each other
    for argv, text in (
        (["ipset", "restore"], node.sets),
        (["ip6tables-nft-restore" if node.is_ipv6 else "iptables-nft-restore"], node.iptables),
        (["ebtables-nft-restore"], node.ebtables),
        (["nft", "-f", "-"], node.nft),
    ):
        done = run(argv, text) if text else None
        assert done is None or not done.rc, f"{argv} {done.stderr}\n{text}"
    names = {link.number: link.name for link in links}
    far_ends = FarEnds(isolated.packets, names, lambda link, asked: (bytes([6, 0xDD, 0, 0, 0, len(link)]), asked.mac))
    sent = model.from_options(node.packet)
    own = next(link for link in links if link.name == sent.interface)
    macs = _macs(sent, own, links)
    # Packets fill sets: the node is traced as the first packet meets it.
    filled = snapshot_backend.read(run, RULESETS)
    rulesets = {command: run(command.split()).stdout for command in FILLED}
    first = far_ends.send(sent, *macs)
    dropping = _dropping() if node.iptables and not node.is_ipv6 else []
    snapshot = snapshot_backend.read(run, SUBSETS)
    reply = _reply(far_ends, first, snapshot)
    # The neighbours on the reply's path are known only now.
    found = {**snapshot_backend.read(run, SUBSETS), **{subset: filled[subset] for subset in RULESETS}}
    pastes, dialects = _pastes(PASTED), _pastes(command for commands in DIALECTS.values() for command in commands)
    observed = {"first": seen(first), "dropping": dropping, "reply": reply}
    return {**observed, "snapshot": found, "pastes": {**pastes, **rulesets}, "dialects": dialects}


def _pastes(commands: Iterable[str]) -> dict[str, str]:
    """The outputs that an operator would paste. A neighbour whose answer a rule dropped is left out."""
    pastes = {command: run(command.split()).stdout for command in commands}
    return {command: re.sub(r"(?m)^.* (?:INCOMPLETE|FAILED) *\n", "", text) for command, text in pastes.items()}


def _dropping() -> list[str]:
    """The rules and policies of iptables that have counted a packet that they dropped. In IPv6, it may be a neighbour's."""
    saved = run(["iptables-nft-save", "-c"]).stdout
    policies = re.findall(r"^:(\w+) DROP \[[1-9]", saved, re.MULTILINE)
    return [
        *re.findall(r"^\[[1-9]\d*:\d+\] (-A .*-j (?:DROP|REJECT)\b.*)$", saved, re.MULTILINE),
        *(f"-P {chain} DROP" for chain in policies),
    ]


def _macs(sent: Packet, own: link_messages.NewLink, links: list[link_messages.NewLink]) -> tuple[bytes, bytes]:
    owner = links[0] if own.master and sent.interface != "port1" else own
    return blueprint.made_mac(blueprint.WORLD_MAC, own.number), owner.mac


def _reply(far_ends: FarEnds, first: Observation, snapshot: dict[str, Any]) -> dict[str, Any] | None:
    """The reply comes in by the link that the twin's topology names: the node's kernel does not choose the link."""
    out = [(link, one) for link, one in first.frames if is_of(first.sent, one)]
    if not out:
        return None
    given = Snapshot.of(snapshot)
    topology = Topology(given, blueprint.draw(given), [])
    good = [(link, one) for link, one in out if not topology.trouble(link, one)]
    if not good:
        return None
    link, left = good[0]
    backend = Netlink()
    tables = Tables((rule for rule, _protocol in backend.rules()), (route for route, _protocol in backend.routes()))
    by = topology.reply_link(left.packet, link, tables)
    packet = left.packet.replied(by)
    source = left.destination_mac if by == link else topology.world_mac(by)
    return {"by": by, **seen(far_ends.send(packet, source, topology.macs(packet)[1]))}
