# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Snapshots of nodes as Kubernetes distributions and CNIs make them, by code, with the settings of several images."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from ansible_collections.kubenode.datapath.plugins.module_utils._snapshot import tunnels
from lab import azure_vnet

Entry = dict[str, Any]
MAIN, LOCAL = "254", "255"
AZURE_PEER = "12:34:56:78:9a:bc"
EXTERNAL_MAC = "00:0d:3a:00:00:11"  # of eth0 in Azure
HAS_FLAGS = ["UP", "BROADCAST", "RUNNING", "MULTICAST", "LOWER_UP"]
KEEPING = {
    key: {"value": False, "file": "/etc/systemd/networkd.conf.d/80-release.conf"} for key in ("Routes", "RoutingPolicyRules")
}
KEPT = {f"ManageForeign{name}": value for name, value in KEEPING.items()}
REMOVED = {f"ManageForeign{name}": {"value": True, "file": ""} for name in KEEPING}


class Image(NamedTuple):
    """The reverse-path filters that an image sets: of all, of a new link, and of links by a pattern at boot."""

    name: str
    every: int
    default: int
    file: str = ""
    pattern: int | None = None

    @property
    def boot(self) -> dict[str, Entry]:
        values = {"all": self.every, "default": self.default} if self.file else {}
        patterns = {} if self.pattern is None else {"*": self.pattern}
        return {
            f"net.ipv4.conf.{name}.rp_filter": {"value": value, "file": self.file}
            for name, value in {**values, **patterns}.items()
        }


KERNEL = Image("kernel's defaults", 0, 0)
SYSTEMD = Image("systemd's defaults", 0, 2, "/usr/lib/sysctl.d/50-default.conf", 2)
UBUNTU = Image("Ubuntu", 2, 2, "/etc/sysctl.d/10-network-security.conf")
CIS = Image("CIS", 1, 1, "/etc/sysctl.d/60-CIS.conf")
STRICT_DEFAULT = Image("strict for new links", 0, 1, "/etc/sysctl.d/60-hard.conf")


class Node:
    """A snapshot in the making. filters: that a program of the node sets, by link."""

    def __init__(self, image: Image, filters: Mapping[str, int] = MappingProxyType({})) -> None:
        self._image, self.filters = image, dict(filters)
        self._saves: dict[tuple[str, str], list[str]] = {}
        self.boot = dict(image.boot)
        self.snapshot: Entry = {
            "format": 1,
            "unread": [],
            **{name: [] for name in ("neighbors", "rules", "routes", "nftables", "ipsets", "ebtables", "bpf", "ipvs", "recent")},
            **{name: [] for name in ("pods", "pod_addresses", "cni", "units", "pod_neighbors", "policies")},
            "links": [],
            "network_daemons": {"daemons": {}, "networkd_files": {}},
            "firewalls": {},
            "listeners": [{"address": "::", "port": port} for port in (10250, 10256)],
            "counters": {"packets": {}, "connections": {"count": 900, "max": 262144}, "routing": {"in_martian_src": 0}},
        }
        self.link("lo", addresses=["127.0.0.1/8", "::1/128"])
        for family in ("ipv4", "ipv6"):
            self.rule(0, family, table=LOCAL, protocol="kernel")
            self.rule(32766, family, table=MAIN, protocol="kernel")
        self.rule(32767, "ipv4", table="253", protocol="kernel")

    def link(self, name: str, kind: str = "", addresses: Iterable[str] = (), **more: Any) -> None:
        """Add a link with addresses, their local routes and those of their networks."""
        index = len(self.snapshot["links"]) + 1
        listed = [_address(address) for address in addresses]
        if name != "lo":
            listed.append({**_address(f"fe80::{index}/64"), "scope": "link"})
        mac = f"02:00:00:00:01:{index:02x}"
        smallest = min((link["mtu"] for link in self.snapshot["links"]), default=65536)
        mtu = 65536 if name == "lo" else min(1500 - tunnels.HEADS.get(kind, 0), smallest)
        shape = {"type": 772 if name == "lo" else 1, "mac": mac, "mtu": mtu, "flags": HAS_FLAGS}
        around: Entry = {"master": "", "parent": "", "peer": None, "settings": {}}
        self.snapshot["links"].append(
            {"name": name, "index": index, "kind": kind, **shape, **around, **more, "addresses": listed}
        )
        for address in addresses:
            interface = ipaddress.ip_interface(address)
            family = f"ipv{interface.version}"
            self.route(str(interface.ip), name, table=LOCAL, type="local", scope="host", protocol="kernel", family=family)
            if interface.network.num_addresses > 1 and name != "lo":
                self.route(str(interface.network), name, scope="link", protocol="kernel", family=family)

    def uplink(self, name: str, address: str, gateway: str = "", kind: str = "", **more: Any) -> None:
        """Add a network interface, with the default route if it has a gateway."""
        self.link(name, kind, [address], **more)
        if gateway:
            self.route("default", name, via=gateway, protocol="dhcp")
            self.snapshot["neighbors"].append({"address": gateway, "dev": name, "mac": "02:00:00:00:ff:01", "state": "REACHABLE"})

    def eni(self, name: str, address: str, table: str, protocol: str = "boot") -> None:
        """Add a secondary interface with a table of its own. The CNI has deleted its route in table main."""
        self.link(name, "", [address])
        network = ipaddress.ip_interface(address).network
        self.snapshot["routes"] = [entry for entry in self.snapshot["routes"] if entry["to"] != str(network)]
        gateway = str(network[1])
        self.route(gateway, name, table=table, scope="link", protocol=protocol)
        self.route("default", name, via=gateway, table=table, protocol=protocol)

    def pod(self, name: str, *addresses: str, master: str = "", kind: str = "veth", mac: str = "") -> None:
        """Add the link of a pod, with routes to it unless it is the port of a bridge. mac: of the pod."""
        number = len(self.snapshot["links"])
        mac = mac or f"02:00:00:00:02:{number:02x}"
        peer = {"namespace": f"pod{number}", "name": "eth0", "mac": mac, "addresses": [*addresses]}
        self.link(name, kind, master=master, peer=peer)
        gateway = {"link": name, "address": "169.254.1.1", "mac": self.snapshot["links"][-1]["mac"]}
        self.snapshot["pod_neighbors"] += [] if master else [gateway]
        for address in addresses if not master else ():
            self.route(address, name, scope="link", protocol="boot")
        permanent = {"address": "169.254.1.1", "dev": "eth0", "mac": gateway["mac"], "state": "PERMANENT"}
        side = {"addresses": [*addresses], "bridged": [], "rules": [], "neighbors": [] if master else [permanent]}
        routes = self._routes_on_bridge(master) if master else self._routes_by_permanent_gateway(name)
        self.snapshot["pods"].append({"namespace": peer["namespace"], **side, "routes": routes})

    def _routes_by_permanent_gateway(self, link: str) -> list[Entry]:
        near = str(self.snapshot["links"][-1]["addresses"][-1]["address"]).partition("/")[0]
        return [
            {"table": MAIN, "family": "ipv4", "to": "169.254.1.1", "dev": "eth0", "scope": "link"},
            {"table": MAIN, "family": "ipv4", "to": "default", "via": "169.254.1.1", "dev": "eth0"},
            {"table": MAIN, "family": "ipv6", "to": "default", "via": near, "dev": "eth0"},
        ]

    def _routes_on_bridge(self, bridge: str) -> list[Entry]:
        """Return the routes of a pod to the network of a bridge, and by its gateway, or by the node if there is none."""
        link = next(link for link in self.snapshot["links"] if link["name"] == bridge)
        own = ipaddress.ip_interface(link["addresses"][0]["address"])
        defaults = (route["via"] for route in self.snapshot["routes"] if (route["to"], route.get("dev")) == ("default", bridge))
        return [
            {"table": MAIN, "family": "ipv4", "to": str(own.network), "dev": "eth0", "scope": "link"},
            {"table": MAIN, "family": "ipv4", "to": "default", "via": next(defaults, str(own.ip)), "dev": "eth0"},
        ]

    def route(self, to: str, dev: str = "", table: str = MAIN, family: str = "", **more: Any) -> None:
        text = more.get("via") or to
        family = family or ("ipv6" if ":" in text else "ipv4")
        place = {"dev": dev} if dev else {}
        self.snapshot["routes"].append({"table": table, "family": family, "to": to, **place, "protocol": "boot", **more})

    def rule(self, priority: int, family: str = "ipv4", protocol: str = "unspec", **more: Any) -> None:
        entry = {"priority": priority, "family": family, **more, "protocol": protocol}
        rules = [*self.snapshot["rules"], {name.rstrip("_"): value for name, value in entry.items()}]
        self.snapshot["rules"] = sorted(rules, key=lambda rule: (rule["family"], rule["priority"]))

    def iptables(self, family: str, table: str, *lines: str) -> None:
        """Add lines of iptables-save, without its head: ``:CHAIN`` or ``-A CHAIN ...``."""
        self._saves.setdefault((family, table), []).extend(lines)

    def ebtables(self, rules: Iterable[str]) -> None:
        """Add rules, as arguments of ebtables: ``-t TABLE -A CHAIN RULE``."""
        chains: dict[tuple[str, str], list[str]] = {}
        for rule in rules:
            _table, table, _append, chain, text = rule.split(" ", 4)
            chains.setdefault((table, chain), []).append(text)
        self.snapshot["ebtables"] = [
            {"backend": "nft", "table": table, "chain": chain, "policy": "ACCEPT", "rules": texts}
            for (table, chain), texts in chains.items()
        ]

    def networkd(self, *links: str, is_keeping: bool = False) -> None:
        self.snapshot["network_daemons"] = {
            "daemons": {"systemd-networkd": True},
            "networkd_files": {link: "/run/systemd/network/10-netplan.network" for link in links},
        }
        self.snapshot["boot"] = {"networkd": KEPT if is_keeping else REMOVED}

    def done(self) -> Entry:
        names = ["all", "default", *(link["name"] for link in self.snapshot["links"])]
        values = {"all": self._image.every, "default": self._image.default}
        filters = {name: self.filters.get(name, values.get(name, 0 if name == "lo" else self._image.default)) for name in names}
        ipv4 = {name: {"rp_filter": filters[name], "src_valid_mark": 0, "forwarding": 1} for name in names}
        ipv6 = {name: {"accept_ra": 0, "forwarding": 1, "disable_ipv6": 0} for name in names}
        of_node = {"net.ipv4.ip_forward": 1, **{f"net.bridge.bridge-nf-call-{name}tables": 1 for name in ("ip", "ip6")}}
        settings = {"node": of_node, "ipv4": ipv4, "ipv6": ipv6, "effective": {}}
        boot = {"settings": self.boot, "networkd": REMOVED, **self.snapshot.get("boot", {})}
        return {**self.snapshot, "settings": settings, "boot": boot, "iptables": [*map(save, self._saves.items())]}


def _address(address: str) -> Entry:
    return {"address": address, "peer": "", "scope": "global", "flags": ["permanent"]}


HOOKS = {
    "nat": ("PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"),
    "mangle": ("PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"),
    "filter": ("INPUT", "FORWARD", "OUTPUT"),
    "raw": ("PREROUTING", "OUTPUT"),
}


def save(entry: tuple[tuple[str, str], list[str]]) -> Entry:
    """Return a table of iptables as a snapshot has it. entry: family and table, and the lines of Node.iptables."""
    (family, table), lines = entry
    heads = [f":{name} ACCEPT [0:0]" for name in HOOKS[table]]
    chains = [f"{line} - [0:0]" for line in dict.fromkeys(lines) if line.startswith(":")]
    rules = [line for line in lines if line.startswith("-A ")]
    save = "\n".join([f"*{table}", *heads, *chains, *rules, "COMMIT", ""])
    return {"family": family, "table": table, "backend": "nft", "save": save}


class HasIptables(Protocol):
    """What rules of iptables are added to."""

    def iptables(self, family: str, table: str, *lines: str) -> None: ...


def kube_proxy(node: HasIptables, pod: str, family: str = "ip", service: str = "", cluster: str = "") -> None:
    """Add the rules of kube-proxy in its mode iptables, with a Service that has a node port, and an address if one is given.

    cluster: the network of the cluster's pods, which kube-proxy may not have been told.
    """
    target = f"[{pod}]:8080" if family == "ip6" else f"{pod}:8080"
    chains = ("KUBE-SERVICES", "KUBE-NODEPORTS", "KUBE-POSTROUTING", "KUBE-MARK-MASQ", "KUBE-EXT-A", "KUBE-SVC-A", "KUBE-SEP-A")
    node.iptables(
        family,
        "nat",
        *(f":{chain}" for chain in chains),
        '-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES',
        '-A OUTPUT -m comment --comment "kubernetes service portals" -j KUBE-SERVICES',
        '-A POSTROUTING -m comment --comment "kubernetes postrouting rules" -j KUBE-POSTROUTING',
        *([f"-A KUBE-SERVICES -d {service} -p tcp -m tcp --dport 80 -j KUBE-SVC-A"] if service else []),
        "-A KUBE-SERVICES -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS",
        "-A KUBE-NODEPORTS -p tcp -m tcp --dport 30080 -j KUBE-EXT-A",
        "-A KUBE-EXT-A -j KUBE-MARK-MASQ",
        "-A KUBE-EXT-A -j KUBE-SVC-A",
        *([f"-A KUBE-SVC-A ! -s {cluster} -d {service} -p tcp -m tcp --dport 80 -j KUBE-MARK-MASQ"] if cluster else []),
        "-A KUBE-SVC-A -j KUBE-SEP-A",
        f"-A KUBE-SEP-A -p tcp -m tcp -j DNAT --to-destination {target}",
        "-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000",
        "-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN",
        "-A KUBE-POSTROUTING -j MARK --set-xmark 0x4000/0x0",
        "-A KUBE-POSTROUTING -j MASQUERADE --random-fully",
    )
    node.iptables(
        family,
        "filter",
        ":KUBE-FORWARD",
        ":KUBE-FIREWALL",
        "-A FORWARD -j KUBE-FORWARD",
        "-A INPUT -j KUBE-FIREWALL",
        "-A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP",
        "-A KUBE-FORWARD -m mark --mark 0x4000/0x4000 -j ACCEPT",
        "-A KUBE-FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
    )
    if family == "ip":
        node.iptables(
            family,
            "filter",
            "-A KUBE-FIREWALL ! -s 127.0.0.0/8 -d 127.0.0.0/8 -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP",
        )


KUBE_PROXY_OF_NFT = """table ip kube-proxy {
 map service-nodeports {
  type inet_proto . inet_service : verdict
  elements = { tcp . 30080 : goto service-A }
 }
 chain nat-prerouting {
  type nat hook prerouting priority dstnat; policy accept;
  fib daddr type local meta l4proto . th dport vmap @service-nodeports
 }
 chain nat-postrouting {
  type nat hook postrouting priority srcnat; policy accept;
  meta mark & 0x00004000 != 0 masquerade fully-random
 }
 chain service-A {
  meta l4proto tcp meta mark set meta mark | 0x00004000 dnat to 10.0.1.21:8080
 }
}
"""
CONNMARK_OF_AWS = """table ip aws-cni {
 chain nat-prerouting {
  type nat hook prerouting priority -90; policy accept;
  fib daddr type local return
  iifname "eni*" jump snat-mark
  ct mark & 0x00000080 != 0 meta mark set ct mark & 0x00000080
 }
 chain snat-mark {
  ip daddr 10.0.0.0/16 return
  ct mark set ct mark | 0x00000080
 }
}
"""
PROBE_TABLE = """table ip6 azureSLBProbe {
 chain prerouting {
  type filter hook prerouting priority -300; policy accept;
  iifname "eth0" icmpv6 type { nd-router-advert, nd-neighbor-solicit, nd-neighbor-advert } counter accept
  iifname "eth0" ip6 saddr fe80::1234:5678:9abc ip6 saddr set 2603:1062:0:1:fe80:1234:5678:9abc counter
 }
 chain postrouting {
  type filter hook postrouting priority -300; policy accept;
  oifname "eth0" ip6 daddr 2603:1062:0:1:fe80:1234:5678:9abc ip6 daddr set fe80::1234:5678:9abc counter
 }
}
"""
POD = "10.0.1.21"  # behind the secondary interface


def aws(image: Image) -> Node:
    """amazon-vpc-cni-k8s on Amazon Linux 2023, with a pod on each of two interfaces."""
    node = Node(image, {"eth0": 2})
    node.uplink("eth0", "10.0.0.10/24", "10.0.0.1")
    node.eni("eth1", "10.0.1.10/24", "2")
    node.rule(32765, from_="10.0.1.10", table="2")
    for name, address in (("eni1", "10.0.0.21"), ("eni2", POD)):
        node.pod(name, address)
        node.rule(512, to=address, table=MAIN)
    node.rule(1536, from_=POD, table="2")
    node.rule(1024, fwmark="0x80/0x80", table=MAIN)
    marks_of_aws(node)
    node.networkd("eth0", is_keeping=True)
    node.snapshot["cni"] = [
        {"path": "/etc/cni/net.d/10-aws.conflist", "name": "aws-cni", "plugins": ["aws-cni", "portmap"], "is_inert": False}
    ]
    return node


def marks_of_aws(node: HasIptables) -> None:
    comment = '-m comment --comment "AWS, primary ENI"'
    node.iptables(
        "ip",
        "mangle",
        f"-A PREROUTING -i eth0 {comment} -m addrtype --dst-type LOCAL --limit-iface-in -j CONNMARK --set-xmark 0x80/0x80",
        *(
            f"-A PREROUTING -i {name}+ {comment} -j CONNMARK --restore-mark --nfmask 0x80 --ctmask 0x80"
            for name in ("eni", "vlan")
        ),
    )


def snat_of_aws(node: HasIptables) -> None:
    node.iptables(
        "ip",
        "nat",
        ":AWS-SNAT-CHAIN-0",
        '-A POSTROUTING -m comment --comment "AWS SNAT CHAIN" -j AWS-SNAT-CHAIN-0',
        "-A AWS-SNAT-CHAIN-0 -d 10.0.0.0/16 -j RETURN",
        "-A AWS-SNAT-CHAIN-0 ! -o vlan+ -m addrtype ! --dst-type LOCAL -j SNAT --to-source 10.0.0.10 --random-fully",
    )


def outbound_marks_of_aws(node: HasIptables) -> None:
    node.iptables(
        "ip",
        "nat",
        ":AWS-CONNMARK-CHAIN-0",
        '-A PREROUTING -i eni+ -m comment --comment "AWS, outbound connections" -j AWS-CONNMARK-CHAIN-0',
        '-A PREROUTING -m comment --comment "AWS, CONNMARK" -j CONNMARK --restore-mark --nfmask 0x80 --ctmask 0x80',
        "-A AWS-CONNMARK-CHAIN-0 -d 10.0.0.0/16 -j RETURN",
        "-A AWS-CONNMARK-CHAIN-0 -j CONNMARK --set-xmark 0x80/0x80",
    )


def eks(image: Image) -> Node:
    node = aws(image)
    kube_proxy(node, POD)
    outbound_marks_of_aws(node)
    snat_of_aws(node)
    return node


def eks_nftables(image: Image) -> Node:
    node = aws(image)
    node.snapshot["nftables_text"] = KUBE_PROXY_OF_NFT + CONNMARK_OF_AWS
    snat_of_aws(node)
    return node


def eks_calico(image: Image) -> Node:
    """Calico's policy with FELIX_IPTABLESMANGLEALLOWACTION=Return, as AWS documents it."""
    node = eks(image)
    node.iptables(
        "ip",
        "mangle",
        ":cali-PREROUTING",
        "-A PREROUTING -j cali-PREROUTING",
        "-A cali-PREROUTING -m conntrack --ctstate RELATED,ESTABLISHED -j RETURN",
        "-A cali-PREROUTING -m mark --mark 0x10000/0x10000 -j RETURN",
    )
    node.iptables(
        "ip",
        "filter",
        ":cali-FORWARD",
        "-A FORWARD -j cali-FORWARD",
        "-A cali-FORWARD -j MARK --set-xmark 0x0/0xe0000",
        "-A cali-FORWARD -m conntrack --ctstate INVALID -j DROP",
    )
    return node


def eks_security_groups(image: Image) -> Node:
    """A pod with a security group of its own, whose packets leave by a branch of a trunk interface."""
    node = eks(image)
    node.link("vlan.eth.1", "vlan", parent="eth1")
    node.route("10.0.1.1", "vlan.eth.1", table="101", scope="link")
    node.route("default", "vlan.eth.1", via="10.0.1.1", table="101")
    peer = {"namespace": "branch", "name": "eth0", "mac": "02:00:00:00:03:01", "addresses": ["10.0.1.40"]}
    node.link("vlan1", "veth", peer=peer)
    node.route("10.0.1.40", "vlan1", table="101", scope="link")
    for name in ("vlan.eth.1", "vlan1"):
        node.rule(10, iif=name, table="101")
    return node


def eks_cards(image: Image) -> Node:
    """ENABLE_MULTI_NIC: an interface of a second network card, with a table of its own and no pods on the node's side."""
    node = eks(image)
    node.eni("eth2", "10.0.2.10/24", "10101")
    node.rule(32765, from_="10.0.2.10", table="10101")
    return node


def eks_ubuntu(image: Image) -> Node:
    """An image that leaves systemd-networkd as it is."""
    node = eks(image)
    node.networkd("eth0")
    return node


def cilium_eni(image: Image) -> Node:
    """Cilium protects its rules and routes from systemd-networkd by the protocol kernel."""
    node = Node(image._replace(every=0), {"eth0": 2, "eth1": 0, "lxc1": 0, "lxc2": 0, "cilium_host": 0, "cilium_net": 0})
    node.uplink("eth0", "10.0.0.10/24", "10.0.0.1")
    node.eni("eth1", "10.0.1.10/24", "11", protocol="kernel")
    node.networkd("eth0", "eth1")
    _cilium(node)
    node.rule(109, fwmark="0x80/0x80", table=MAIN, protocol="kernel")
    for name, address in (("lxc1", "10.0.0.21"), ("lxc2", POD)):
        node.pod(name, address)
        node.rule(20, to=address, table=MAIN, protocol="kernel")
    node.rule(111, from_=POD, table="11", protocol="kernel")
    comment = '-m comment --comment "cilium: primary ENI"'
    node.iptables(
        "ip",
        "mangle",
        ":CILIUM_PRE_mangle",
        "-A PREROUTING -j CILIUM_PRE_mangle",
        f"-A CILIUM_PRE_mangle -i eth0 {comment} -m addrtype --dst-type LOCAL --limit-iface-in -j CONNMARK --set-xmark 0x80/0x80",
        f"-A CILIUM_PRE_mangle -i lxc+ {comment} -j CONNMARK --restore-mark --nfmask 0x80 --ctmask 0x80",
    )
    kube_proxy(node, POD)
    return node


def _cilium(node: Node) -> None:
    node.link("cilium_net", "veth", peer={"namespace": "", "name": "cilium_host", "mac": "", "addresses": []})
    node.link("cilium_host", "veth", ["10.0.0.99/32"], peer={"namespace": "", "name": "cilium_net", "mac": "", "addresses": []})
    node.snapshot["bpf"] = [{"link": "eth0", "hook": "tc", "direction": "ingress", "name": "cil_from_netdev"}]
    node.snapshot["cni"] = [
        {"path": "/etc/cni/net.d/05-cilium.conflist", "name": "cilium", "plugins": ["cilium-cni"], "is_inert": False}
    ]
    cilium = {"value": 0, "file": "/etc/sysctl.d/99-zzz-override_cilium.conf"}
    node.boot.update({f"net.ipv4.conf.{name}.rp_filter": cilium for name in ("all", "lxc*", "cilium_*")})


def terway(image: Image) -> Node:
    """Terway with its symmetric routing."""
    node = Node(image, {name: 0 for name in ("eth0", "eth1", "calia", "calib")})
    node.uplink("eth0", "10.0.0.10/24", "10.0.0.1")
    node.eni("eth1", "10.0.1.10/24", "1003")
    for name, address in (("calia", "10.0.0.21"), ("calib", POD)):
        node.pod(name, address)
        node.rule(512, to=address, table=MAIN)
    node.rule(2048, from_=POD, table="1003")
    node.rule(600, fwmark="0x10/0x10", table="100")
    node.route("default", "eth0", via="10.0.0.1", table="100", onlink=True)
    comment = '-m comment --comment "terway-symmetric"'
    node.iptables(
        "ip",
        "mangle",
        f"-A PREROUTING -i eth0 {comment} -j CONNMARK --set-xmark 0x10/0x10",
        f"-A PREROUTING {comment} -j CONNMARK --restore-mark --nfmask 0x10 --ctmask 0x10",
    )
    kube_proxy(node, POD)
    return node


def _masquerading(node: Node, chain: str, pods: str, family: str = "ip") -> None:
    """Let a program masquerade what pods send to other networks, in a chain of its own: flanneld, Felix or an ip-masq-agent."""
    returns, masquerades = f"-A {chain} -d {pods} -j RETURN", f"-A {chain} -s {pods} -j MASQUERADE --random-fully"
    node.iptables(family, "nat", f":{chain}", f"-A POSTROUTING -j {chain}", returns, masquerades)


def _aks(image: Image) -> Node:
    node = Node(image)
    node.uplink("eth0", "10.224.0.4/16", "10.224.0.1", mtu=1500)
    node.link("enP1s1", "", master="eth0")
    node.snapshot["links"][1]["addresses"].append(_address("fd00:1::4/128"))
    node.route("fd00:1::4", "eth0", table=LOCAL, type="local", scope="host", protocol="kernel")
    node.route("default", "eth0", via="fe80::1234:5678:9abc", family="ipv6", protocol="ra")
    node.route("168.63.129.16", "eth0", via="10.224.0.1", protocol="dhcp")
    node.snapshot["neighbors"].append({"address": "fe80::1234:5678:9abc", "dev": "eth0", "mac": AZURE_PEER, "state": "REACHABLE"})
    node.networkd("eth0")
    return node


def aks(image: Image) -> Node:
    """azure-vnet in its mode transparent, AgentBaker's table for probes, kube-proxy for both families."""
    node = _aks(image)
    for number in (1, 2):
        node.pod(f"azv{number}", f"10.244.0.{number}", f"fd00:2::{number}")
    node.snapshot["nftables_text"] = PROBE_TABLE
    for family, pod in (("ip", "10.244.0.1"), ("ip6", "fd00:2::1")):
        kube_proxy(node, pod, family)
        _masquerading(node, "IP-MASQ-AGENT", "10.244.0.0/16" if family == "ip" else "fd00:2::/64", family)
    return node


def azure_bridge(image: Image) -> Node:
    """azure-vnet in bridge mode: eth0 is a port of the bridge, which has the node's address; rules of ebtables serve the pods."""
    node = Node(image)
    node.link("eth0", master="azure2", mac=EXTERNAL_MAC)
    node.uplink("azure2", f"{azure_vnet.NODE_ADDRESS}/16", "10.240.0.1", kind="bridge", mac=EXTERNAL_MAC)
    rules = azure_vnet.node_rules(EXTERNAL_MAC)
    for pod in (azure_vnet.AzurePod(1), azure_vnet.AzurePod(2)):
        node.pod(pod.host_link, pod.address, master="azure2", mac=pod.mac)
        node.snapshot["neighbors"].append({"address": pod.address, "dev": "azure2", "mac": pod.mac, "state": "PERMANENT"})
        rules += pod.rules
    node.ebtables(rules)
    kube_proxy(node, azure_vnet.AzurePod(1).address)
    return node


def aks_cilium(image: Image) -> Node:
    node = _aks(image._replace(every=0))
    _cilium(node)
    for number in (1, 2):
        node.pod(f"lxc{number}", f"10.244.0.{number}", f"fd00:2::{number}")
    for direction in ("ingress", "egress"):
        node.snapshot["bpf"].append(
            {"link": "eth0", "hook": "tc", "direction": direction, "name": f"ipv6_hp_{direction}", "protocol": "all"}
        )
    return node


def _on_premises(image: Image, *managed: str) -> Node:
    node = Node(image)
    node.uplink("eth0", "192.168.0.11/24", "192.168.0.1")
    if managed:
        node.networkd(*managed)
    return node


def _flannel(node: Node) -> None:
    _masquerading(node, "FLANNEL-POSTRTG", "10.244.0.0/16")
    node.link("flannel.1", "vxlan", ["10.244.1.0/32"])
    node.route("10.244.2.0/24", "flannel.1", via="10.244.2.0", onlink=True)
    node.snapshot["neighbors"].append(
        {"address": "10.244.2.0", "dev": "flannel.1", "mac": "02:00:00:00:04:02", "state": "PERMANENT"}
    )


def flannel(image: Image) -> Node:
    """kubeadm with flannel, on Ubuntu with systemd-networkd."""
    node = _on_premises(image, "eth0")
    _flannel(node)
    node.link("cni0", "bridge", ["10.244.1.1/24"])
    for number in (1, 2):
        node.pod(f"veth{number}a", f"10.244.1.{number + 1}", master="cni0")
    kube_proxy(node, "10.244.1.2")
    return node


def k3s(image: Image) -> Node:
    """As flannel, with the network policies of kube-router."""
    node = flannel(image)
    node.iptables(
        "ip",
        "filter",
        ":KUBE-ROUTER-FORWARD",
        "-A FORWARD -j KUBE-ROUTER-FORWARD",
        "-A KUBE-ROUTER-FORWARD -j MARK --set-xmark 0x20000/0x20000",
    )
    return node


def kube_router(image: Image) -> Node:
    """kube-router with its service proxy (IPVS), its firewall of pods, and a tunnel to nodes of other subnets."""
    node = _on_premises(image)
    node.link("kube-bridge", "bridge", ["10.244.1.1/24"])
    node.link("kube-dummy-if", "dummy", ["10.96.0.10/32"])
    node.route("10.244.2.0/24", "eth0", via="192.168.0.12", protocol="17")
    node.link("tun-192168112", "ipip", type=768)
    node.route("10.244.3.0/24", "tun-192168112", table="77", scope="link", protocol="17")
    node.rule(32765, from_="10.244.1.0/24", table="77")
    for number in (1, 2):
        node.pod(f"veth{number}a", f"10.244.1.{number + 1}", master="kube-bridge")
    server = {"protocol": "tcp", "address": "10.96.0.10", "port": 80, "scheduler": "rr", "flags": ""}
    destination = {"address": "10.244.1.2", "port": 8080, "method": "Masq", "weight": 1}
    node.snapshot["ipvs"] = [{**server, "destinations": [destination]}]
    node.iptables(
        "ip",
        "filter",
        ":KUBE-ROUTER-FORWARD",
        ":KUBE-POD-FW-A",
        "-A FORWARD -j KUBE-ROUTER-FORWARD",
        "-A KUBE-ROUTER-FORWARD -d 10.244.1.2/32 -j KUBE-POD-FW-A",
        "-A KUBE-POD-FW-A -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
        "-A KUBE-POD-FW-A -j MARK --set-xmark 0x20000/0x20000",
    )
    node.iptables("ip", "nat", "-A POSTROUTING -s 10.244.1.0/24 ! -d 10.244.0.0/16 -j MASQUERADE --random-fully")
    return node


def _pods_of_calico(node: Node) -> None:
    for number in (1, 2):
        node.pod(f"cali{number}", f"10.244.1.{number}")
    _masquerading(node, "cali-nat-outgoing", "10.244.0.0/16")
    kube_proxy(node, "10.244.1.1")


def calico(image: Image) -> Node:
    """kubeadm with Calico, IP in IP and BIRD, on Ubuntu with systemd-networkd. Felix sets the filters of pods' links."""
    node = _on_premises(image, "eth0")
    node.filters.update(cali1=1, cali2=1)
    node.link("tunl0", "ipip", ["10.244.1.0/32"], type=768)
    node.route("10.244.2.0/26", "tunl0", via="192.168.0.12", onlink=True, protocol="bird")
    node.route("10.244.1.0/26", type="blackhole", protocol="bird")
    _pods_of_calico(node)
    return node


def rke2(image: Image) -> Node:
    """Canal on RHEL: flannel between nodes, Calico's links and policies, NetworkManager."""
    node = _on_premises(image)
    _flannel(node)
    for number in (1, 2):
        node.pod(f"cali{number}", f"10.244.1.{number}")
    kube_proxy(node, "10.244.1.1")
    node.snapshot["network_daemons"] = {"daemons": {"NetworkManager": True, "nm-cloud-setup": False}, "networkd_files": {}}
    node.snapshot["firewalls"] = {
        "firewalld.service": {"is_enabled": False, "is_active": False, "FirewallBackend": "nftables", "FlushAllOnReload": "yes"}
    }
    return node


def gke(image: Image) -> Node:
    """netd with its visibility of packets inside the node."""
    node = Node(image, {"eth0": 2})
    node.uplink("eth0", "10.128.0.5/32", "10.128.0.1")
    node.route("10.128.0.1", "eth0", scope="link", protocol="dhcp")
    node.rule(70, fwmark="0x4000/0x4000", table=MAIN)
    node.rule(71, iif="eth0", table=MAIN)
    for number in (1, 2):
        node.rule(72, iif=f"gke{number}", table="1")
    node.boot["net.ipv4.ip_forward"] = {"value": 0, "file": "/etc/sysctl.d/60-gce-network-security.conf"}
    node.route("default", "eth0", via="10.128.0.1", table="1")
    for number in (1, 2):
        node.pod(f"gke{number}", f"10.4.0.{number + 1}")
    kube_proxy(node, "10.4.0.2")
    _masquerading(node, "IP-MASQ", "10.4.0.0/14")
    return node


def metallb(image: Image) -> Node:
    """Bare metal with two networks; MetalLB answers for addresses of the second one. kube-proxy's mode is ipvs.

    netplan has a rule and a table for the node's address in the second network.
    """
    node = _on_premises(image, "eth0", "eth1")
    node.uplink("eth1", "192.168.50.11/24")
    node.rule(100, from_="192.168.50.11", table="50", protocol="static")
    node.route("default", "eth1", via="192.168.50.1", table="50", protocol="static")
    node.link("kube-ipvs0", "dummy", ["10.96.0.10/32", "192.168.50.200/32"])
    balancers = "create KUBE-LOAD-BALANCER hash:ip,port family inet\nadd KUBE-LOAD-BALANCER 192.168.50.200,tcp:80\n"
    node.snapshot["ipsets"] = [{"name": "KUBE-LOAD-BALANCER", "save": balancers}]
    node.link("vxlan.calico", "vxlan", ["10.244.1.0/32"])
    node.route("10.244.2.0/26", "vxlan.calico", via="10.244.2.0", onlink=True)
    for number in (1, 2):
        node.pod(f"cali{number}", f"10.244.1.{number}")
    _masquerading(node, "cali-nat-outgoing", "10.244.0.0/16")
    return node


def restricted(image: Image) -> Node:
    """On-premises, where rules of an administrator and of Docker keep pods from some of what they could reach.

    Beside these are a route of a pod that has ended, to the link of another one, and an interface that is not used.
    """
    node = calico(image)
    node.link("eth9", "", ["10.66.0.1/24"], flags=["BROADCAST"])
    node.snapshot["routes"] = [route for route in node.snapshot["routes"] if route.get("dev") != "eth9"]
    pods = [link for link in node.snapshot["links"] if (link["peer"] or {}).get("addresses")]
    node.route("10.244.1.250", str(pods[0]["name"]), scope="link")
    one, other = (link["peer"]["addresses"][0] for link in pods[:2])
    node.link("docker0", "bridge", ["172.17.0.1/16"])
    node.link("br-internal", "bridge", ["172.19.0.1/16"])
    for bridge, network in (("docker0", 17), ("br-internal", 19)):
        for number in (2, 3):
            node.pod(f"veth{network}{number}", f"172.{network}.0.{number}", master=bridge)
    for side in node.snapshot["pods"][-2:]:
        side["routes"] = [route for route in side["routes"] if route["to"] != "default"]
    node.iptables("ip", "nat", "-A POSTROUTING -s 172.17.0.0/16 ! -o docker0 -j MASQUERADE")
    node.iptables("ip", "raw", "-A PREROUTING -p tcp -m tcp --dport 10250 ! -s 192.168.0.0/24 -j DROP")
    node.iptables(
        "ip",
        "filter",
        "-A FORWARD -i docker0 -o docker0 -j DROP",
        "-A FORWARD ! -s 172.19.0.0/16 -o br-internal -j DROP",
        "-A FORWARD ! -d 172.19.0.0/16 -i br-internal -j DROP",
        "-A FORWARD -s 10.244.0.0/16 ! -d 10.0.0.0/8 -j REJECT --reject-with icmp-admin-prohibited",
        f"-A FORWARD -s {one} -d {other} -j DROP",
    )
    return node


def unnumbered(image: Image) -> Node:
    """On-premises, where the network card has no address: that of the node is on the loopback link."""
    node = Node(image)
    node.link("eth0")
    lo, own = node.snapshot["links"][0], "192.168.7.11"
    lo["addresses"].append(_address(f"{own}/32"))
    node.route(own, "lo", table=LOCAL, type="local", scope="host", protocol="kernel")
    node.route("192.168.0.1", "eth0", scope="link", src=own)
    node.route("default", "eth0", via="192.168.0.1", src=own)
    _pods_of_calico(node)
    return node


def leftovers(image: Image) -> Node:
    """As calico, with what another CNI, an interface that is gone, and operators have left or added."""
    node = calico(image)
    node.snapshot["network_daemons"] = {"daemons": {}, "networkd_files": {}}
    for name, kind, more in (("flannel.1", "vxlan", {"flags": ["BROADCAST"]}), ("wireguard.cali", "wireguard", {})):
        node.link(name, kind, **more)
    node.route("192.168.0.250", type="blackhole")
    node.route("192.168.0.128/26", type="unreachable")
    node.route("192.168.0.9", "eth0", table="100", scope="link")
    node.rule(100, from_="10.244.1.2/32", table="100")
    node.rule(101, from_="192.168.6.11/32", table="101")
    return node


NODES: dict[str, Callable[[Image], Node]] = {
    "EKS": eks,
    "EKS, kube-proxy in its mode nftables": eks_nftables,
    "EKS with the policies of Calico": eks_calico,
    "EKS with security groups for pods": eks_security_groups,
    "EKS with two network cards": eks_cards,
    "EKS on Ubuntu": eks_ubuntu,
    "Cilium with ENIs": cilium_eni,
    "Terway": terway,
    "AKS": aks,
    "AKS with Cilium": aks_cilium,
    "azure-vnet in bridge mode": azure_bridge,
    "kubeadm with flannel": flannel,
    "kubeadm with Calico": calico,
    "kube-router": kube_router,
    "k3s": k3s,
    "RKE2": rke2,
    "GKE": gke,
    "bare metal with MetalLB": metallb,
    "restricted pods and containers": restricted,
    "an address on the loopback link alone": unnumbered,
    "leftovers of others": leftovers,
}
IMAGES = (KERNEL, SYSTEMD, UBUNTU, CIS, STRICT_DEFAULT)
