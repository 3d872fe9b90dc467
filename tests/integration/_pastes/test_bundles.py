# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A support bundle of a node leads to the node's own answer, or names what the collector leaves out.

Each bundle is made on a node of the lab, by the commands and under the names of its collector.
"""

from __future__ import annotations

import io
import json
import re
import tarfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._pastes import pastes_backend
from lab import Lab, inner_pods
from lab import Node as LabNode
from lab.node import NamespaceNode
from lab.steps import Steps

from .._trace.tracing import trace
from . import talos_resources

SERVICE, CLIENT = "10.96.0.10", "10.77.0.6"
RULES = f"""*nat
:KUBE-SERVICES - [0:0]
:KUBE-SEP - [0:0]
-A PREROUTING -j KUBE-SERVICES
-A KUBE-SERVICES -d {SERVICE}/32 -p tcp -m comment --comment "default/web:http cluster IP" -m tcp --dport 80 -j KUBE-SEP
-A KUBE-SEP -p tcp -j DNAT --to-destination {{pod}}:8080
COMMIT
*filter
-A FORWARD -p tcp -m comment --comment "policy" -m tcp --dport 99 -j DROP
-A FORWARD -p tcp -m tcp --dport 97 -m set --match-set blocked src -j DROP
COMMIT
"""
SETS = f"create blocked hash:ip family inet\nadd blocked {CLIENT}\n"
CHECKPOINT = {
    "version": "vpc-cni-ipam/1",
    "allocations": [
        {
            **{"networkName": "aws-cni", "containerID": "12ab", "ifName": "eth0", "ipv4": CLIENT, "allocationTimestamp": 1},
            "metadata": {"k8sPodNamespace": "default", "k8sPodName": "client-0", "interfacesCount": 1},
        }
    ],
}
ENIS = {"0": {"TotalIPs": 0, "AssignedIPs": 0, "ENIs": {}}}
# The files of each collector, and the commands whose outputs they are.
EKS = {
    "networking/iprule.txt": "ip rule show",
    "networking/ip6rule.txt": "ip -6 rule show",
    "networking/iproute.txt": "ip route show table all",
    "networking/ip6route.txt": "ip -6 route show table all",
    "networking/iptables-save.txt": "iptables-save",
    "networking/ip6tables-save.txt": "ip6tables-save",
    **{
        f"networking/iptables-{table}.txt": f"iptables -t {table} -nvL; echo '=======Total Number of Rules=======: 3'"
        for table in ("nat", "filter", "mangle")
    },
    "networking/conntrack.txt": "echo '*** Output of conntrack -S *** '; echo '*** Output of conntrack -L ***'; conntrack -L",
    "networking/ipset.txt": "ipset --list; echo; echo ok; echo; ipset --save",
    "networking/ipvsadm.txt": "echo 'ipvsadm not installed'",
    "sysctls/sysctl_all.txt": "sysctl --all",
    "ipamd/enis.json": f"echo '{json.dumps(ENIS)}'",
    "ipamd/pods.json": """echo '{"AvailableCommands":["/v1/enis"]}'""",  # no longer a command of ipamd
    "ipamd/ipam.json": f"echo '{json.dumps(CHECKPOINT, separators=(',', ':'))}'",
    "system/ps.txt": "echo 1: from all lookup nothing",
}
OF_NAMESPACES = "; ".join(
    [
        *("conntrack -L 2>&1", "ip -4 -d -j addr show 2>&1", "ip -4 -d -j neighbor show 2>&1", "ip -4 -d -j route show 2>&1"),
        *("ip -6 -d -j addr show table all 2>&1", "ip -6 -d -j route show table all 2>&1", "ip -d -j link show 2>&1"),
        *("ip -d -j netconf show 2>&1", "ip -d -j rule show 2>&1", "iptables -L -vn --line-numbers 2>&1"),
    ]
)
AKS = {
    "collect/ip_4_addr.json": "ip -4 -d -j addr show",
    "collect/ip_6_addr.json": "ip -6 -d -j addr show table all 2>&1",
    "collect/ip_4_neighbor.json": "ip -4 -d -j neighbor show",
    "collect/ip_6_neighbor.json": "ip -6 -d -j neighbor show",
    "collect/ip_4_route.json": "ip -4 -d -j route show",
    "collect/ip_6_route.json": "ip -6 -d -j route show table all",
    "collect/ip_link.json": "ip -d -j link show",
    "collect/ip_netconf.json": "ip -d -j netconf show",
    "collect/ip_rule.json": "ip -d -j rule show",
    "collect/iptables.txt": "iptables -L -vn --line-numbers",
    "collect/ip6tables.txt": "ip6tables -L -vn --line-numbers",
    "collect/nftables.json": "nft -jn list ruleset",
    "collect/sysctl.txt": "sysctl -a",
    "collect/ip_netns_commands.txt": f"ip -all netns exec bash -x -c '{OF_NAMESPACES}' 2>&1",
}
# Since 2026 without what an operator did not switch on, and with a folder for each namespace.
AKS_OF_2026 = {
    **{path: command for path, command in AKS.items() if path.startswith("collect/ip_") and "netns" not in path},
    **{
        f"collect/ip_netns_{pod}/{path.removeprefix('collect/')}": command.replace("ip ", f"ip -n {pod} ", 1)
        for path, command in AKS.items()
        for pod in ("client", "server")
        if path.startswith("collect/ip_") and path.endswith(".json")
    },
    "proc/version": "cat /proc/version",
}
SOS_COMMANDS = (
    *("ip -d address", "ip -s -d link", "ip -o addr", "ip route show table all", "ip -6 route show table all"),
    *("ip -4 rule list", "ip -6 rule list", "ip -s -s neigh show"),
)
NO_FILE = 3  # the status of a command whose file a collector leaves out
# Of iptables, those tables that nft lists.
SOS_TABLES = {
    f"{program} -t {table} -nvL": f"nft list tables | grep -qx 'table {family} {table}' || exit {NO_FILE}"
    for family, program in (("ip", "iptables"), ("ip6", "ip6tables"))
    for table in ("mangle", "filter", "nat")
}
SOS_FIREWALL = "node1/sos_commands/firewall_tables"
SOS_NAMESPACES = "node1/sos_commands/networking/namespaces"
SOS = {
    **{f"node1/sos_commands/networking/{command.replace(' ', '_')}": command for command in SOS_COMMANDS},
    **{f"{SOS_FIREWALL}/{command.replace(' ', '_')}": f"{test}; {command}" for command, test in SOS_TABLES.items()},
    **{f"{SOS_FIREWALL}/{command.replace(' ', '_')}": command for command in ("iptables -vnxL", "nft -a list ruleset")},
    "node1/sos_commands/kernel/sysctl_-a": "sysctl -a",
    "node1/proc/modules": "echo nf_tables 311296 3 nft_compat, Live 0x0000000000000000",  # as a distribution's kernel loads it
    "node1/etc/sysctl.d/50-later.conf": "cat /etc/sysctl.d/50-later.conf",
    **{
        f"{SOS_NAMESPACES}/{pod}/ip_netns_exec_{pod}_{command.replace(' ', '_')}": f"ip netns exec {pod} {command}"
        for pod in ("client", "server")
        for command in ("ip -d address show", "ip route show table all", "ip -4 rule list", "ip -6 rule list", "sysctl -a")
    },
}
RANCHER = {
    "networking/iptablessave": "iptables-save",
    "networking/ip6tablessave": "ip6tables-save",
    "networking/iptablesnat": "iptables --wait 1 --numeric --verbose --list --table nat",
    "networking/iptables": "iptables --wait 1 --numeric --verbose --list",
    "networking/nft_ruleset": "nft list ruleset",
    "networking/ipaddrshow": "ip addr show",
    "networking/iproute": "ip route show table all",
    "networking/ipneighbour": "ip neighbour",
    "networking/iprule": "ip rule show",
    "networking/iplinkshow": "ip -s link show",
    "networking/ipv6neighbour": "ip -6 neighbour",
    "networking/ipv6rule": "ip -6 rule show",
    "networking/ipv6route": "ip -6 route show",
    "networking/ipv6addrshow": "ip -6 addr show",
    "systeminfo/sysctla": "sysctl -a",
}
CILIUM = {
    f"cmd/{command.replace(' ', '-')}.md": f"{command} 2>&1 || echo \"> Error while running '{command}':  exit status 1\""
    for command in (
        *("ip a", "ip -4 r", "ip -6 r", "ip -d -s l", "ip -4 n", "ip -6 n", "ip rule", "sysctl -a", "hostname"),
        *(f"ip -{family} route show table {table}" for table in (100, 1001, 1002) for family in (4, 6)),
        *(
            "iptables-save -c",
            "iptables-nft-save -c",
            "ip6tables-save -c",
        ),
    )
}
RETINA_COMMANDS = {
    "ip-resources.txt": ("ip -d -j addr show", "ip -d -j neighbor show", "ip rule list", "ip route show table all"),
    "iptables-rules.txt": ("iptables-nft-save", "iptables-nft -vnx -L", "iptables-nft -vnx -L -t nat"),
}
RETINA = {
    name: "; ".join(
        [
            *("echo Summary:; echo", *(f"echo '/usr/sbin/{command}(what it is)'" for command in commands)),
            *("echo; echo Execute:; echo", *(f"echo '/usr/sbin/{command}'; echo; {command}" for command in commands)),
        ]
    )
    for name, commands in RETINA_COMMANDS.items()
}
CALICO = {
    f"diagnostics/{name}": command
    for name, command in (
        *(("hostname", "hostname"), ("ipv4_route", "ip -4 route"), ("ipv6_route", "ip -6 route"), ("ipv4_addr", "ip -4 addr")),
        *(("ipv6_addr", "ip -6 addr"), ("ipv4_tables", "iptables-save -c"), ("ipv6_tables", "ip6tables-save -c")),
        *(("ipsets", "ipset list"), ("date", "date")),
    )
}
HEAD = "echo ======; echo ip route show table all"
AWS_CNI = {
    f"var/log/aws-routed-eni/{name}": command
    for name, command in {
        "eni.out": f"echo '{json.dumps(ENIS, separators=(',', ':'))}'",
        "ifconfig.out": "ifconfig",
        "iprule.out": "ip rule show",
        "iptables-save.out": "iptables-save",
        "iptables.out": "iptables -w1 -nvL",
        "iptables-nat.out": "iptables -w1 -nvL -t nat",
        "route.out": f"{HEAD}; echo 203.0.113.0/24 dev eth0; {HEAD}; ip route show table all",  # of two runs
        "sysctls.out": 'echo === sysctls ===; for f in /proc/sys/net/ipv4/conf/*/rp_filter; do echo "$f = $(cat $f)"; done',
        "metrics.out": "echo awscni_total 1",
    }.items()
}
ANTREA = {
    f"support-bundles/agent_node1/{name}": command
    for name, command in {
        **{"agentinfo": "printf 'noderef:\\n    kind: Node\\n    name: node1\\n'", "ovsports": "echo 1(antrea-gw0)"},
        **{"rule": "ip rule", "route": "ip route", "route-table-all": "ip route show table all", "link": "ip link"},
        **{"address": "ip address", "iptables": "ip6tables-save -c; iptables-save -c", "ipset": "ipset save"},
        "nftables": "nft list ruleset",
    }.items()
}
BOTTLEROCKET = {f"bottlerocket-logs/iptables-{table}": f"iptables -nvL -t {table}" for table in ("filter", "nat")}
OPENSHIFT = {
    "must-gather/quay-io/nodes/node1/ip.txt": "ip a",
    "must-gather/quay-io/nodes/node1/nftables": "nft list ruleset",
    "must-gather/quay-io/cluster-scoped-resources/core/nodes/node1.yaml": "echo kind: Node",
}
TALOS = {  # outputs of which talos_resources makes what Talos has
    **{"addresses": "ip -j addr", "routes 4": "ip -4 -j -d route show table all", "rules 4": "ip -4 -j rule"},
    **{"links": "ip -j -d link", "routes 6": "ip -6 -j -d route show table all", "rules 6": "ip -6 -j rule"},
}
RUNS = (
    "ip -d address",
    "ip rule",
    "ip -6 rule",
    "ip route show table all",
    "iptables-save",
    "ip6tables-save",
    "nft list ruleset",
)
TO_JSON = "import json, sys; print(json.dumps(dict(line.rstrip().partition(' = ')[::2] for line in sys.stdin)))"
TROUBLESHOOT = {
    "support-bundle-1/host-collectors/node1/system/sysctl.json": f'sysctl -a | python3 -c "{TO_JSON}"',
    **{f"support-bundle-1/host-collectors/node1/run-host/{number}.txt": command for number, command in enumerate(RUNS)},
    **{
        f"support-bundle-1/host-collectors/node1/run-host/{number}-info.json": f"echo '{json.dumps(about)}'"
        for number, about in enumerate({"command": f"/sbin/{run}", "exitCode": "0"} for run in RUNS)
    },
}
TREE = "cd /proc/sys/net && grep -r '' ipv4/ip_forward ipv4/tcp_mem ipv4/conf ipv6/conf"  # which Retina copies


class Bundle(NamedTuple):
    """files: commands by path. name: of the archive. lacks: ids of the facts that no file shows. undecided: packets whose verdict
    depends on these. line: of the packet to the Service, with the names that the files have.
    """

    files: dict[str, str]
    name: str
    lacks: frozenset[str] = frozenset()
    undecided: frozenset[str] = frozenset()
    line: str = f"{CLIENT} -> web:http"


# nft prints no contents of a comment's extension.
HIDDEN = frozenset({"routes:100", "table:ip nat", "table:ip mangle", "table:ip raw", "nft"})
BUNDLES = {
    "EKS": Bundle(
        EKS,
        "eks_i-0123_2026-11-26_1200-UTC_0.7.8.tar.gz",
        frozenset({"nft", "legacy"}),
        line="default/client-0 -> default/web:80",
    ),
    "AKS": Bundle(AKS, "aks_logs.zip", HIDDEN, frozenset({"Service"}), f"client -> {SERVICE}:80"),
    "sos": Bundle(SOS, "sosreport-node1-2026-11-26-abcdefg.tar.xz", frozenset(), line="client -> default/web"),
    "Rancher": Bundle(RANCHER, "node1-2026-11-26_12_00_00.tar.gz"),
    "Cilium": Bundle(CILIUM, "cilium-bugtool-20261126-120000.000+0000-UTC-1.tar.gz", frozenset({"nft"})),
    "Retina": Bundle(RETINA, "retina-capture-node1-20261126120000UTC.tar.gz", frozenset({"nft"})),
}


TABLES = {f"table:ip {name}" for name in ("filter", "nat", "mangle", "raw")}
OF_NODE = {"rules", "nft", "net.ipv4.conf.LINK.forwarding"}
# Of collectors that print a part, by the facts that none of their files shows.
PARTIAL = {
    "Calico": Bundle(
        CALICO,
        "diags-20261126_120000.tar.gz",
        frozenset({"rules", "nft", "routes:100", "net.ipv4.conf.LINK.forwarding"}),
        frozenset({"table"}),
    ),
    "AWS CNI": Bundle(
        AWS_CNI, "aws-cni-support.tar.gz", frozenset({"nft", "bridge-ports", "set:blocked", "net.ipv4.conf.LINK.forwarding"})
    ),
    "AKS of 2026": Bundle(
        AKS_OF_2026,
        "aks_logs.zip",
        frozenset({"routes:100", "nft", *TABLES, "net.ipv4.conf.LINK.forwarding"}),
        frozenset({"Service", "policy", "table", "set"}),
    ),
    "Antrea": Bundle(ANTREA, "support-bundles.tar.gz", frozenset({"net.ipv4.conf.LINK.forwarding"})),
    "Bottlerocket": Bundle(
        BOTTLEROCKET,
        "bottlerocket-logs.tar.gz",
        frozenset({"addresses", "routes", "set:blocked", "table:ip mangle", "table:ip raw", *OF_NODE}),
        frozenset({"Service", "policy", "table"}),
    ),
    "OpenShift": Bundle(
        OPENSHIFT,
        "must-gather.tar.gz",
        frozenset({"routes", "local-routes", *TABLES, *OF_NODE}),
        frozenset({"Service", "policy", "table", "set"}),
    ),
    "Talos": Bundle(TALOS, "support.zip", frozenset({*TABLES, *OF_NODE}), frozenset({"Service", "policy", "set"})),
    "troubleshoot.sh": Bundle(TROUBLESHOOT, "support-bundle-1.tar.gz", frozenset({"set:blocked"})),
}


class Node(NamedTuple):
    """A node with two pods, a Service, a policy, a set, and a table by which the packets of a pod leave.

    answers: those of the node. to_set: a packet that a rule with the set drops.
    """

    node: NamespaceNode
    packets: dict[str, dict[str, Any]]
    answers: dict[str, dict[str, Any]]
    to_set: dict[str, Any]


def collect(node: NamespaceNode, files: dict[str, str]) -> dict[str, bytes]:
    """Return the files of a collector on a node, by their paths."""
    runs = {path: node.run(["sh", "-c", command], check=False) for path, command in files.items()}
    contents = {path: run.stdout for path, run in runs.items() if run.returncode != NO_FILE}
    if files is RETINA:
        for line in node.run(["sh", "-c", TREE], check=False).stdout.splitlines():
            path, _colon, value = line.partition(":")
            contents[f"proc-sys-net/{path}"] = f"{value}\n"
    if files is TALOS:
        contents = talos_resources.of_outputs({name: json.loads(text) for name, text in contents.items()})
    return {path: text.encode() for path, text in contents.items()}


def pack(folder: Path, name: str, files: dict[str, bytes], links: Mapping[str, str] = MappingProxyType({})) -> Path:
    path = folder / name
    if name.endswith(".zip"):
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for member, content in files.items():
                archive.writestr(member, content)
        return path
    with tarfile.open(path, f"w:{name.rpartition('.')[2]}") as archive:  # type: ignore[call-overload]
        for member, content in files.items():
            header = tarfile.TarInfo(f"./{member}")
            header.size = len(content)
            archive.addfile(header, io.BytesIO(content))
        for member, target in links.items():
            header = tarfile.TarInfo(f"./{member}")
            header.type, header.linkname = tarfile.SYMTYPE, target
            archive.addfile(header)
    return path


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    with Lab("bundles", nodes=[LabNode("node1")]) as lab:
        yield prepared(lab.node("node1"))


def prepared(node: NamespaceNode) -> Node:
    client, server = (
        inner_pods.routed(node, name, address, f"0a:00:00:00:00:0{address[-1]}", f"veth-{name}", "eth0")
        for name, address in (("client", CLIENT), ("server", "10.77.0.5"))
    )
    inner_pods.batch(node, ["netns add fabric", "link add eth1 type veth peer name port netns fabric"])
    node.ip(
        [
            *("address add 169.254.1.1/32 dev lo", "address add 10.88.0.4/24 dev eth1", "link set eth1 up"),
            *("route add 203.0.113.0/24 via 10.88.0.1 dev eth1 table 100", "rule add from 10.77.0.6 lookup 100 priority 1000"),
        ]
    )
    node.run(["ip", "netns", "exec", "fabric", "ip", "link", "set", "port", "up"])
    node.run(["ipset", "restore"], SETS)
    node.run(["iptables-restore", "--noflush"], RULES.format(pod=server.address))
    node.set_sysctls({"net.ipv4.conf.all.rp_filter": 0, "net.ipv4.conf.veth-client.rp_filter": 1})
    node.write("/etc/sysctl.d/50-later.conf", "net.ipv4.ip_forward = 0\n")  # at the next boot
    sent = {"source": client.address, "interface": client.link}
    packets = {
        "Service": {**sent, "destination": SERVICE, "destination_port": 80},
        "policy": {**sent, "destination": server.address, "destination_port": 99},
        "table": {**sent, "destination": "203.0.113.9", "destination_port": 80},
    }
    to_set = {**sent, "destination": server.address, "destination_port": 97}
    return Node(node, packets, {name: trace(node, packet) for name, packet in packets.items()}, to_set)


def fate(result: dict[str, Any]) -> tuple[Any, ...]:
    return result["verdict"], result["interface"], (result["reply"] or {}).get("verdict")


def test_the_node_answers_in_three_ways(node: Node) -> None:
    fates = {name: fate(answer)[:2] for name, answer in node.answers.items()}
    assert fates == {"Service": ("delivered", "veth-server"), "policy": ("dropped", ""), "table": ("forwarded", "eth1")}


@pytest.mark.parametrize("kind", BUNDLES)
def test_a_bundle_leads_to_the_answer_of_its_node(node: Node, tmp_path: Path, kind: str) -> None:
    bundle = BUNDLES[kind]
    path = pack(tmp_path, bundle.name, collect(node.node, bundle.files))
    for name, packet in node.packets.items():
        # No output of a node shows what its pods have, and where an answer comes back that the network beyond the node sends.
        result = trace(node.node, packet, dump=str(path), assume={"pod": "shown", "answer": "shown"})
        facts = {fact["fact"] for fact in result["depends_on"]}
        expected = ("unknown", "unknown") if name in bundle.undecided else (*fate(node.answers[name])[::2],)
        assert (*fate(result)[::2],) == expected, (name, fate(result), result["reason"], result["depends_on"])
        assert not any("boot" in sentence for sentence in result["unknown"])
        assert result["certain"] == (not bundle.lacks) and facts == bundle.lacks, (name, facts, result["ignored"])


@pytest.mark.parametrize("kind", PARTIAL)
def test_a_bundle_with_a_part_of_the_outputs_names_what_it_lacks(node: Node, tmp_path: Path, kind: str) -> None:
    bundle = PARTIAL[kind]
    path = pack(tmp_path, bundle.name, collect(node.node, bundle.files))
    for name, packet in {**node.packets, "set": node.to_set}.items():
        result = trace(node.node, packet, dump=str(path), assume={"pod": "shown", "answer": "shown"})
        facts = {re.sub(r"(?<=conf\.).*(?=\.forwarding)", "LINK", fact["fact"]) for fact in result["depends_on"]}
        answer = fate(node.answers[name]) if name != "set" else ("dropped", "", None)
        is_open = name in bundle.undecided or (name == "set" and "set:blocked" in bundle.lacks)
        assert is_open or (*fate(result)[::2],) == (*answer[::2],), (name, result["reason"])
        assert result["certain"] == (not facts) and facts <= bundle.lacks, (name, facts)
        assert [sentence for sentence in result["ignored"] if not EXPLAINED.search(sentence)] == []


# Of a file of a collector, with the reason, and of a rule of iptables-nft that nft does not print.
EXPLAINED = re.compile(r" is left out, because | is printed by nft without its contents: ")


def test_the_node_knows_the_names_of_namespaces_and_services(node: Node) -> None:
    answer = trace(node.node, "client -> default/web:http")
    assert (answer["came_in_by"], answer["packet"]) == ("veth-client", node.answers["Service"]["packet"])


@pytest.mark.parametrize("kind", BUNDLES)
def test_names_lead_to_the_same_packet_as_addresses(node: Node, tmp_path: Path, kind: str) -> None:
    bundle = BUNDLES[kind]
    path = str(pack(tmp_path, bundle.name, collect(node.node, bundle.files)))
    named, plain = (trace(node.node, packet, dump=path) for packet in (bundle.line, node.packets["Service"]))
    assert all(named[key] == plain[key] for key in ("came_in_by", "verdict", "packet", "interface"))
    assert not any("ipam" in sentence or "JSON" in sentence for sentence in named["ignored"])


@pytest.mark.parametrize("kind", BUNDLES)
def test_the_elements_of_a_set_are_read_or_asked_for(node: Node, tmp_path: Path, kind: str) -> None:
    """Of the collectors, only that of EKS lists sets."""
    path = str(pack(tmp_path, BUNDLES[kind].name, collect(node.node, BUNDLES[kind].files)))
    result = trace(node.node, node.to_set, dump=path)
    asks = {fact["fact"]: fact["ask"] for fact in result["depends_on"]}
    if kind != "EKS":
        assert (result["verdict"], asks["set:blocked"]) == ("unknown", "ipset save blocked")
        result = trace(node.node, node.to_set, dump=path, assume={"set:blocked": "with"})
    assert "set:blocked" not in {fact["fact"] for fact in result["depends_on"]}
    assert fate(result) == fate(trace(node.node, node.to_set)) == ("dropped", "", None)


# What sos collects of them: of networkd's, those below /etc.
BOOT_FOLDERS = ("/etc/sysctl.d", "/run/sysctl.d", "/usr/local/lib/sysctl.d", "/usr/lib/sysctl.d", "/etc/systemd/networkd.conf.d")
BOOT_FILES = {
    "/etc/sysctl.conf": "net.ipv4.conf.all.rp_filter = 2\n",
    "/etc/sysctl.d/50-lab.conf": "net.ipv4.conf.*.rp_filter = 1\nnet.ipv4.ip_forward = 1\n-net.ipv4.conf.eth9.rp_filter\n",
    "/run/sysctl.d/50-lab.conf": "net.ipv4.ip_forward = 0\n",
    "/run/sysctl.d/60-lab.conf": "net.ipv6.conf.all.forwarding = 1\n",
    "/run/sysctl.d/70-lab.conf": "net.ipv4.ip_forward = 0\n",
    "/etc/systemd/networkd.conf.d/lab.conf": "[Network]\nManageForeignRoutes=no\n",
}
BOOT_LINKS = {"/etc/sysctl.d/99-sysctl.conf": "../sysctl.conf", "/etc/sysctl.d/70-lab.conf": "../../dev/null"}


@pytest.fixture
def boot_files(node: Node) -> dict[str, str]:
    """Files and links on the node, also those that were there: the target of a link by path, empty for a file."""
    for path, text in BOOT_FILES.items():
        node.node.write(path, text)
    for path, target in BOOT_LINKS.items():
        node.node.run(["ln", "-sfn", target, path])
    places = [*BOOT_FOLDERS, "/etc/sysctl.conf", "/etc/systemd/networkd.conf"]
    listed = node.node.run(["find", *places, "-name", "*.conf", "-printf", "%p\t%l\n"], check=False).stdout
    return dict(line.split("\t") for line in listed.splitlines())


def test_files_of_sos_say_what_the_next_boot_of_the_node_sets(node: Node, tmp_path: Path, boot_files: dict[str, str]) -> None:
    assert {*BOOT_FILES, *BOOT_LINKS} <= {*boot_files}
    files = {f"node1{path}": f"cat {path}" for path, target in boot_files.items() if not target}
    links = {f"node1{path}": target for path, target in boot_files.items() if target}
    others = {path: command for path, command in SOS.items() if "sysctl.d" not in path}
    path = pack(tmp_path, BUNDLES["sos"].name, collect(node.node, others | files), links)
    of_bundle = pastes_backend.read(str(path)).snapshot["boot"]
    of_node = Steps(node.node, "datapath_info", {"gather": ["boot"]}).run()["snapshot"]["boot"]
    assert (of_bundle, [*of_bundle["settings"]]) == (of_node, [*of_node["settings"]])
    deciding = {setting["file"] for part in of_bundle.values() for setting in part.values()}
    assert deciding >= {"/etc/sysctl.d/50-lab.conf", "/run/sysctl.d/60-lab.conf", "/etc/sysctl.d/99-sysctl.conf"}
    assert "/etc/systemd/networkd.conf.d/lab.conf" in deciding and "/run/sysctl.d/70-lab.conf" not in deciding
