# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes made wrong, each in the way that a check of datapath_audit looks for."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import check_rows

from ansible_collections.kubenode.datapath.plugins.module_utils._audit.node import SUBSETS
from lab import Lab, Node, eni6, place
from lab.eni import PRIMARY
from lab.node import NamespaceNode
from lab.steps import Steps

from .._trace import test_cures as scenes
from .healthy_nodes import PROBE_TABLE

OFF, STRICT = 0, 1
POD, ENI = scenes.POD, scenes.ENIS[0]
NETWORK_FILE = "/etc/systemd/network/10-eth0.network"
UNIT = "kubenode-nft-inet-lost.service"
WANTS = "/etc/systemd/system/multi-user.target.wants"
MARKS = '-i eth0 -m comment --comment "AWS, primary ENI" -m addrtype --dst-type LOCAL -j CONNMARK --set-xmark 0x80/0x80'
RESTORED = '-i veth+ -m comment --comment "AWS, primary ENI" -j CONNMARK --restore-mark --nfmask 0x80 --ctmask 0x80'
TAKEN = "PREROUTING -p tcp -m tcp --dport 10250 -j DNAT --to-destination 10.0.0.9:80"
STOLEN, GONE = f"{place.NODES_IPV4}130", "8a:93:40:b3:c8:0a"  # the address of a pod, and the MAC address of the one before
LEGACY = "*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -s 192.0.2.1/32 -j DROP\nCOMMIT\n"
# As firewalld loads it with IPv6_rpfilter=yes, its default.
FIREWALLD = """table inet firewalld {
 chain filter_PREROUTING {
  type filter hook prerouting priority filter + 10; policy accept;
  icmpv6 type { nd-router-advert, nd-neighbor-solicit } accept
  meta nfproto ipv6 fib saddr . mark . iif oif missing drop
 }
}
"""
OWN_FILE = "/etc/sysctl.d/90-kubenode-rp-filter.conf"
STRICT_PATH = "fib saddr . mark . iif oif missing"
POD6 = "2001:db8:1:1::11"
SERVICE = f"{ENI.gateway.rpartition('.')[0]}.200"  # the address of a load balancer, in the network of a secondary interface
OF_SERVICE = [
    "iptables -t nat -N KUBE-SERVICES",
    "iptables -t nat -A PREROUTING -j KUBE-SERVICES",
    f"iptables -t nat -A KUBE-SERVICES -d {SERVICE}/32 -p tcp -m tcp --dport 80 -j DNAT --to-destination {POD}:8080",
]
BALANCER = "203.0.113.80"  # TEST-NET-3 (RFC 5737)
WITHOUT_RULE = f"ip rule del from {POD} lookup {ENI.table} priority 2048"
HEALTH_PID = "/run/health.pid"
HEALTH = f"""import os, signal, socket
server = socket.create_server(("::", 10256), family=socket.AF_INET6, dualstack_ipv6=True)
if os.fork() == 0:
    for descriptor in range(3):
        os.close(descriptor)
    open("{HEALTH_PID}", "w").write(str(os.getpid()))
    signal.pause()
"""
END_HEALTH = f"sh -c 'kill $(cat {HEALTH_PID})'"
Snapshot = dict[str, Any]
Scene = Callable[[], Any]


@contextmanager
def shared_enis(mode: int = OFF) -> Iterator[NamespaceNode]:
    with scenes.shared_enis(mode) as (_lab, node):
        yield node


@contextmanager
def shared_enis_of_ipv6() -> Iterator[NamespaceNode]:
    with scenes.shared_enis(OFF) as (lab, node):
        eni6.add_to(lab)
        yield node


@contextmanager
def dual_stack() -> Iterator[NamespaceNode]:
    with Lab("checks", nodes=[Node("node1", pods=["pod1"])]) as lab:
        yield lab.node("node1")


@contextmanager
def bridged() -> Iterator[NamespaceNode]:
    """A node whose pods are on a bridge, the second behind a Service."""
    with Lab("checks", nodes=[Node("node1", pods=["pod1", "pod2"])]) as lab:
        node: NamespaceNode = lab.node("node1")
        node.ip(["link add b0 type bridge mcast_snooping 0", "address add 10.60.1.1/24 dev b0", "link set b0 up"])
        for number, pod in enumerate(node.pods, 5):
            node.ip([f"link set {pod.link} master b0"])
            pod.ip([f"address add 10.60.1.{number}/24 dev eth0", "route add default via 10.60.1.1"])
        node.run(shlex.split(f"iptables -t nat -A PREROUTING {check_rows.SERVICE} DNAT --to-destination 10.60.1.6:53"))
        yield node


@contextmanager
def transparent_tunnel() -> Iterator[NamespaceNode]:
    """A node as azure-vnet's mode of this name makes it: packets between pods go by the network."""
    with Lab("checks", nodes=[Node("node1", pods=["pod1", "pod2"])]) as lab:
        node: NamespaceNode = lab.node("node1")
        for number, pod in enumerate(node.pods, 1):
            node.ip([f"link set {pod.link} down", f"link set {pod.link} name azv{number} up"])
            node.ip([f"route add 10.240.0.{number} dev azv{number}"])
            pod.ip([f"address add 10.240.0.{number}/32 dev eth0", "route replace default dev eth0"])
            node.set_sysctls({f"net.ipv4.conf.azv{number}.proxy_arp": 1})
        node.ip(["rule add fwmark 0x3 lookup 101"])
        yield node


@contextmanager
def stolen() -> Iterator[NamespaceNode]:
    with scenes.stolen() as scene:
        yield scene.node


@contextmanager
def probed_at_health_port() -> Iterator[NamespaceNode]:
    """A node on which a program listens on kube-proxy's health port."""
    with dual_stack() as node:
        node.write("/etc/health.py", HEALTH)
        node.run(["python3", "/etc/health.py"])
        try:
            yield node
        finally:
            node.run(shlex.split(END_HEALTH), check=False)


def with_networkd(snapshot: Snapshot) -> None:
    """Let systemd-networkd manage eth0. In a namespace it does not run."""
    snapshot["network_daemons"] = {"daemons": {"systemd-networkd": True}, "networkd_files": {"eth0": NETWORK_FILE}}


def with_active_units(snapshot: Snapshot) -> None:
    """Let the units of the node be active. In a namespace no systemd answers."""
    for unit in snapshot["units"]:
        unit.update(active="active", sub="exited")


def with_programs(snapshot: Snapshot) -> None:
    snapshot["bpf"] = [{"link": "eth0", "hook": "tc", "direction": "ingress", "name": "cil_from_netdev"}]


def with_martians(snapshot: Snapshot) -> None:
    """Let the kernel have dropped packets because of their source. It counts those of all network namespaces of the host."""
    snapshot["counters"]["routing"] = {"in_martian_src": 5}
    snapshot["counters"]["packets"]["TcpExt.IPReversePathFilter"] = 2


def with_many_connections(snapshot: Snapshot) -> None:
    """Let the node track nearly as many connections as it may. A namespace has the limit of the host."""
    snapshot["counters"]["connections"].update(count=95, max=100)


def with_legacy_rule(snapshot: Snapshot) -> None:
    """Let iptables-legacy have a rule. The kernel of the tests has no legacy tables."""
    snapshot["iptables"].append({"family": "ip", "table": "filter", "backend": "legacy", "save": LEGACY})


class Trouble(NamedTuple):
    """What is wrong with a node.

    subject, evidence, proof: of the finding. commands, files: that make it so. edit: makes so what a namespace cannot be, in the
    snapshot. reported: the lines that edit adds to the outputs in a report, by commands. undo: commands for a remedy that is
    words. is_in_snapshot: whether edit alone makes the trouble. context: of the audit.
    """

    subject: str
    evidence: list[str]
    commands: list[str] = []
    files: Mapping[str, str] = {}
    scene: Scene = shared_enis
    edit: Callable[[Snapshot], None] | None = None
    reported: Mapping[str, str] = {}
    undo: list[str] = []
    is_in_snapshot: bool = False
    proof: str = "configuration"
    context: Mapping[str, Any] = {}

    @contextmanager
    def node(self) -> Iterator[NamespaceNode]:
        """A node with the trouble."""
        with self.scene() as node:
            self.make(node)
            yield node

    def make(self, node: NamespaceNode) -> None:
        for path, text in self.files.items():
            node.write(path, text)
        for command in self.commands:
            node.run(shlex.split(command))

    def snapshot(self, node: NamespaceNode) -> Snapshot:
        snapshot: Snapshot = Steps(node, "datapath_info", {"gather": [*SUBSETS]}).run()["snapshot"]
        if self.edit:
            self.edit(snapshot)
        return snapshot

    def audit(self, node: NamespaceNode, check: str) -> list[dict[str, Any]]:
        options: dict[str, Any] = {"checks": [check], "context": self.context}
        if self.edit:
            options["snapshot"] = self.snapshot(node)
        result = Steps(node, "datapath_audit", options).run()
        assert result["passed"] == ([] if result["findings"] else [check])
        return list(result["findings"])


TROUBLES = {
    "bridge-netfilter-off": Trouble(
        check_rows.BRIDGE,
        [f"{check_rows.BRIDGE} = 0", "veth-pod2 master b0"],
        [f"sysctl -w {check_rows.BRIDGE}=0"],
        scene=bridged,
        proof="twin",
    ),
    "rp-strict-asymmetric": Trouble(
        "eth0",
        ["net.ipv4.conf.eth0.rp_filter = 1", f"2048: from {POD} lookup 1001"],
        scene=lambda: shared_enis(STRICT),
        proof="twin",
    ),
    "reply-by-other-interface": Trouble("eth1", [f"2048: from {POD} lookup 1001"], proof="twin"),
    "path-lost": Trouble(
        f"ip rule 100: from {POD} unreachable",
        [f"ip rule 100: from {POD} unreachable"],
        [f"ip rule add from {POD} unreachable priority 100"],
        proof="twin",
    ),
    "rp-all-with-cilium": Trouble(
        "all",
        ["net.ipv4.conf.all.rp_filter = 2"],
        ["ip link add lxc1 type veth peer name lxc1p", "sysctl -w net.ipv4.conf.all.rp_filter=2"],
    ),
    "rp-strict-at-boot": Trouble(
        "eth0",
        ["net.ipv4.conf.eth0.rp_filter = 0", "/etc/sysctl.d/60-hard.conf: net.ipv4.conf.eth0.rp_filter = 1"],
        files={"/etc/sysctl.d/60-hard.conf": "net.ipv4.conf.eth0.rp_filter = 1\n"},
        proof="twin",
    ),
    "mark-without-rule": Trouble(
        "0x80/0x80", ["table ip mangle (nft): 0x80/0x80"], [f"iptables -t mangle -A PREROUTING {MARKS}"]
    ),
    "pod-rule-missing": Trouble(
        POD, [f"{POD} dev veth-pod1 scope link"], [f"ip rule del from {POD} lookup {ENI.table} priority 2048"]
    ),
    "networkd-removes-foreign": Trouble(
        "systemd-networkd rules",
        ["ManageForeignRoutingPolicyRules is yes (its default)"]
        + [f"512: from all to {eni.pod_address(0)} lookup main" for eni in scenes.ENIS]
        + [f"2048: from {POD} lookup 1001"],
        edit=with_networkd,
    ),
    "base-rule-missing": Trouble(
        "ipv4 main",
        ["0: from all lookup local", "512: from all to 10.0.1.11 lookup main", "512: from all to 10.0.2.11 lookup main"],
        ["ip rule del priority 32766", "ip rule add lookup 77 priority 32766"],
        proof="twin",
    ),
    "rule-to-empty-table": Trouble(
        "10.0.1.99", ["3000: from 10.0.1.99 lookup 77"], ["ip rule add from 10.0.1.99 lookup 77 priority 3000"]
    ),
    "rules-of-one-source": Trouble(
        POD,
        [f"2048: from {POD} lookup 1001", f"2049: from {POD} lookup 1002"],
        [f"ip rule add from {POD} lookup 1002 priority 2049"],
    ),
    "default-by-secondary": Trouble(
        "eth1",
        [f"default via {PRIMARY.gateway} dev eth0", f"default via {ENI.gateway} dev eth1 proto dhcp metric 512"],
        [f"ip route add default via {ENI.gateway} dev eth1 onlink proto dhcp metric 512"],
    ),
    "neighbor-moved": Trouble(
        POD,
        [f"{POD} dev eth1 lladdr 02:00:00:00:00:77 PERMANENT"],
        [f"ip neighbour add {POD} dev eth1 lladdr 02:00:00:00:00:77 nud permanent"],
    ),
    "probe-untranslated": Trouble(
        "eth0",
        ["inet6 2001:db8:0:1::11 dev eth0", "2001:db8:1::11 dev veth-pod1"],
        scene=dual_stack,
        proof="twin",
        context={"cloud": "azure"},
    ),
    "probe-port-closed": Trouble(
        "ipv6 10256",
        ["inet6 2001:db8:0:1::11 dev eth0"],
        [END_HEALTH],
        scene=probed_at_health_port,
        undo=["python3 /etc/health.py"],
        context={"probe_mode": "shared"},
        proof="twin",
    ),
    "service-reply-by-default": Trouble(
        "eth1",
        [f"tcp {SERVICE}:80", f"default via {PRIMARY.gateway} dev eth0"],
        [WITHOUT_RULE, *OF_SERVICE],
        scene=lambda: shared_enis(STRICT),
        proof="twin",
    ),
    "lb-address-local": Trouble(
        BALANCER,
        [f"inet {BALANCER} dev kube-ipvs0", "in_martian_src 3"],
        [
            "ip link add kube-ipvs0 type bridge",  # a dummy on a node with kube-proxy
            f"ip address add {BALANCER}/32 dev kube-ipvs0",
            "ipset create KUBE-LOAD-BALANCER hash:ip,port",
            f"ipset add KUBE-LOAD-BALANCER {BALANCER},tcp:80",
        ],
        edit=with_martians,
    ),
    "proxy-mode-ipvs": Trouble(
        "kube-ipvs0",
        [f"inet {BALANCER} dev kube-ipvs0"],
        ["ip link add kube-ipvs0 type bridge", f"ip address add {BALANCER}/32 dev kube-ipvs0"],
        undo=["ip link del kube-ipvs0"],
    ),
    "gateway-mac-changed": Trouble(
        POD,
        ["169.254.1.1 dev eth0 lladdr 02:00:00:00:00:80 PERMANENT", "veth-pod1: link/ether 02:00:00:00:00:88"],
        ["ip link set dev veth-pod1 address 02:00:00:00:00:88"],
        proof="twin",
    ),
    "mtu-of-paths": Trouble(
        "ipv4 eth1",
        ["veth-pod1 veth mtu 1500", "eth1 mtu 1400", "-A OUTPUT -p icmp -j DROP"],
        ["ip link set eth1 mtu 1400", "iptables -A OUTPUT -p icmp -j DROP"],
        undo=["ip link set eth1 mtu 1500"],
        proof="twin",
    ),
    "own-drift": Trouble(
        "net.ipv4.conf.eth1.rp_filter",
        ["net.ipv4.conf.eth1.rp_filter = 0", f"{OWN_FILE}: net.ipv4.conf.eth1.rp_filter = 2"],
        files={OWN_FILE: "net.ipv4.conf.eth1.rp_filter = 2\n"},
    ),
    "pod-source-translated": Trouble(
        "ipv4",
        [f"-A POSTROUTING -s {POD}/32 -j MASQUERADE"],
        [f"iptables -t nat -A POSTROUTING -s {POD} -j MASQUERADE"],
        proof="twin",
        context={"pod_ranges": ["10.0.0.0/16"]},
    ),
    "rp-all-overrides": Trouble(
        "all",
        [
            "net.ipv4.conf.all.rp_filter = 1",
            *(f"net.ipv4.conf.{name}.rp_filter = 0" for name in ("eth0", "veth-pod1", "veth-pod2")),
        ],
        ["sysctl -w net.ipv4.conf.all.rp_filter=1 net.ipv4.conf.default.rp_filter=1"],
    ),
    "rp-secondary-with-cilium": Trouble(
        "eth1",
        ["net.ipv4.conf.eth1.rp_filter = 2"],
        [
            "ip link add lxc1 type veth peer name lxc1p",
            *(f"ip route flush table {1000 + number}" for number in (1, 2)),
            *(f"ip route add default via 10.0.{number}.1 dev eth{number} onlink table {10 + number}" for number in (1, 2)),
            *(f"ip rule del from 10.0.{number}.11 priority 2048" for number in (1, 2)),
            *(f"ip rule add from 10.0.{number}.11 lookup {10 + number} priority 111" for number in (1, 2)),
            "iptables -t mangle -A PREROUTING " + MARKS.replace("AWS, primary ENI", "cilium: primary ENI"),
            "sysctl -w net.ipv4.conf.eth1.rp_filter=2",
        ],
    ),
    "valid-mark-missing": Trouble(
        "eth0",
        ["net.ipv4.conf.all.src_valid_mark = 0", "1024: from all fwmark 0x80/0x80 lookup main"],
        [
            *(f"iptables -t mangle -A PREROUTING {rule}" for rule in (MARKS, RESTORED)),
            "iptables -t mangle -A PREROUTING -i eth0 -j CONNMARK --restore-mark --nfmask 0x80 --ctmask 0x80",
            "ip rule add fwmark 0x80/0x80 lookup main priority 1024",
        ],
        scene=lambda: shared_enis(STRICT),
        proof="twin",
    ),
    "mark-rule-late": Trouble(
        "0x80/0x80",
        [f"2048: from {POD} lookup 1001", "3000: from all fwmark 0x80/0x80 lookup main"],
        [
            *(f"iptables -t mangle -A PREROUTING {rule}" for rule in (MARKS, RESTORED)),
            "ip rule add fwmark 0x80/0x80 lookup main priority 3000",
        ],
        proof="twin",
    ),
    "mark-clobbered": Trouble(
        "ipv4 PREROUTING 0x4",
        ["-A PREROUTING -i eth0 -j MARK --set-xmark 0x4/0xffffffff"],
        [
            "ip rule add fwmark 0x80/0x80 lookup main priority 1024",
            "iptables -t mangle -A PREROUTING -i eth0 -j MARK --set-xmark 0x4",
        ],
        undo=["iptables -t mangle -D PREROUTING -i eth0 -j MARK --set-xmark 0x4"],
    ),
    "tunnel-strict": Trouble(
        "eth0",
        ["32765: from all fwmark 0x3/0xffffffff lookup 101"],
        [
            "sysctl -w net.ipv4.conf.eth0.rp_filter=1",
        ],
        scene=transparent_tunnel,
        proof="twin",
    ),
    "pod-rule-within-network": Trouble(
        "eth1",
        [f"2048: from {POD} to 10.0.0.0/16 lookup 1001"],
        [f"ip rule del from {POD} priority 2048", f"ip rule add from {POD} to 10.0.0.0/16 lookup 1001 priority 2048"],
        undo=[f"ip rule add from {POD} lookup 1001 priority 2049"],
        proof="twin",
    ),
    "daemon-competes": Trouble(
        "nm-cloud-setup",
        ["nm-cloud-setup: active"],
        ["systemctl --root=/ enable nm-cloud-setup.timer"],
        {
            "/etc/systemd/system/nm-cloud-setup.timer": "[Timer]\nOnBootSec=5min\n\n[Install]\nWantedBy=timers.target\n",
            "/etc/systemd/system/nm-cloud-setup.service": "[Service]\nExecStart=/bin/true\n",
        },
        # As the remedy says, but without --now, as the systemd that would answer is that of the host.
        undo=["systemctl --root=/ disable nm-cloud-setup.timer nm-cloud-setup.service"],
    ),
    "probe-no-way-back": Trouble(
        "eth0",
        [
            "table ip6 azureSLBProbe",
            "2001:db8:0:1::/64 dev eth0 proto kernel metric 256",
            "2001:db8:1::11 dev veth-pod1 metric 1024",
            "fe80::/64 dev eth0 proto kernel metric 256",
        ],
        ["nft -f /etc/probe.nft", "sysctl -w net.ipv6.conf.all.forwarding=0"],
        {"/etc/probe.nft": PROBE_TABLE},
        scene=dual_stack,
        undo=["sysctl -w net.ipv6.conf.all.forwarding=1"],
        proof="twin",
        context={"cloud": "azure"},
    ),
    "probe-table-beside-cilium": Trouble(
        "eth0",
        ["eth0 tc ingress cil_from_netdev"],
        ["nft -f /etc/probe.nft"],
        {"/etc/probe.nft": PROBE_TABLE},
        scene=dual_stack,
        edit=with_programs,
        undo=["nft delete table ip6 azureSLBProbe"],
    ),
    "kubelet-port-taken": Trouble(
        "ipv4 10250",
        [f"-A {TAKEN}"],
        [f"iptables -t nat -A {TAKEN}"],
        undo=[f"iptables -t nat -D {TAKEN}"],
    ),
    "rules-by-the-hundred": Trouble(
        "ipv4",
        ["507 rules"],
        ["ip -batch /etc/rules.batch"],
        {"/etc/rules.batch": "".join(f"rule add from 10.8.{n >> 8}.{n & 255} lookup 100 priority 100\n" for n in range(500))},
        undo=["ip rule del priority 100"] * 8,
    ),
    "ebtables-stale": Trouble(
        STOLEN,
        [f"ebtables -t nat -A PREROUTING -p IPv4 -i eth0 --ip-dst {STOLEN} -j dnat --to-dst {GONE} --dnat-target ACCEPT"],
        scene=stolen,
        proof="twin",
    ),
    "flush-coming": Trouble(
        "nftables.service",
        ["nftables.service: enabled", "/etc/nftables.conf: flush ruleset"],
        [f"mkdir -p {WANTS}", f"ln -s ../nftables.service {WANTS}/nftables.service", "nft add table inet other"],
        {
            "/etc/systemd/system/nftables.service": "[Service]\nExecStart=/bin/true\n\n[Install]\nWantedBy=sysinit.target\n",
            "/etc/nftables.conf": "flush ruleset\n",
        },
        undo=[f"rm {WANTS}/nftables.service"],  # in place of the mask, as the package is not the lab's
    ),
    "firewalld-strict-ipv6": Trouble(
        "firewalld.service",
        [f"inet firewalld filter_PREROUTING: {STRICT_PATH} drop", f"2048: from {POD6} lookup 1001"],
        ["nft -f /etc/firewalld.nft"],
        {"/etc/firewalld.nft": FIREWALLD},
        scene=shared_enis_of_ipv6,
        proof="twin",
    ),
    "conntrack-near-full": Trouble(
        "net.netfilter.nf_conntrack_max",
        ["net.netfilter.nf_conntrack_count = 95", "net.netfilter.nf_conntrack_max = 100"],
        edit=with_many_connections,
        reported={"sysctl -a": "net.netfilter.nf_conntrack_count = 95\nnet.netfilter.nf_conntrack_max = 100\n"},
        is_in_snapshot=True,
        proof="counter",
    ),
    "own-table-lost": Trouble(
        "inet lost",
        [f"{UNIT} enabled", "Active: active (exited)"],
        [f"mkdir -p {WANTS}", f"ln -s ../{UNIT} {WANTS}/{UNIT}"],
        {f"/etc/systemd/system/{UNIT}": "[Service]\nExecStart=/bin/true\n\n[Install]\nWantedBy=multi-user.target\n"},
        edit=with_active_units,
        undo=["nft add table inet lost"],  # in place of systemctl, which would start the unit of the host
    ),
    "forwarding-off": Trouble(
        "net.ipv4.ip_forward", ["net.ipv4.ip_forward = 0"], ["sysctl -w net.ipv4.ip_forward=0"], proof="twin"
    ),
    "forwarding-off-at-boot": Trouble(
        "net.ipv4.ip_forward",
        ["/etc/sysctl.d/60-hard.conf: net.ipv4.ip_forward = 0"],
        files={"/etc/sysctl.d/60-hard.conf": "net.ipv4.ip_forward = 0\n"},
        undo=["rm /etc/sysctl.d/60-hard.conf"],
        proof="twin",
    ),
    "ra-route-expires": Trouble(
        "eth1",
        ["default via fe80::1 dev eth1 proto ra metric 1024"]
        + [f"net.ipv6.conf.eth1.{key} = 1" for key in ("accept_ra", "forwarding")],
        ["sysctl -w net.ipv6.conf.eth1.disable_ipv6=0 net.ipv6.conf.eth1.forwarding=1 net.ipv6.conf.eth1.accept_ra=1"]
        + ["ip -6 route add default via fe80::1 dev eth1 proto ra"],
    ),
    "both-backends": Trouble(
        "ip",
        ["iptables-legacy-save -t filter"],
        ["iptables -A INPUT -s 192.0.2.2 -j DROP"],
        edit=with_legacy_rule,
        reported={
            "iptables-legacy-save": LEGACY,
            "iptables-save": "# Warning: iptables-legacy tables present, use iptables-legacy-save to see them\n",
        },
        undo=["iptables -D INPUT -s 192.0.2.2 -j DROP"],
    ),
}
