# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How CNIs are recognised on a node: by the plugins in their configurations, their links and their chains.

From the sources of azure-container-networking (network/transparent_endpointclient_linux.go), cilium
(pkg/datapath/connector), amazon-vpc-cni-k8s (pkg/networkutils/network.go), flannel (pkg/trafficmngr/iptables), calico,
kube-router (pkg/controllers/netpol), antrea (pkg/agent/route), ovn-kubernetes (go-controller/pkg/node) and kubernetes
(pkg/kubelet/network/kubenet, pkg/proxy).
"""

from __future__ import annotations

import re
import typing as t

from .._core import fields, json_object
from .._core.printable import first_of
from .._netfilter import iptables

FOLDER = "/etc/cni/net.d"
AZURE, CILIUM, OTHER = "azure_vnet", "cilium", "other"
CILIUM_PLUGIN = "cilium-cni"
AZURE_BINARY = "/opt/cni/bin/azure-vnet"
# Chains of iptables (azure-container-networking, network/snat/snat_linux.go, cni/network/invoker_cns.go).
AZURE_CHAIN = re.compile(r"AZURECNI(INPUT|OUTPUT)|SWIFT(-POSTROUTING)?")
# Names of the node's ends of pods' links. lxc_health belongs to Cilium's own health check.
PODS = {
    AZURE: re.compile(r"azv[0-9a-f]{1,11}"),
    CILIUM: re.compile(r"lxc(?!_health)\w+"),
    OTHER: re.compile(r"(cali|eni|veth)\w+"),
}


class Owner(t.NamedTuple):
    """A CNI other than azure-vnet and Cilium, or an agent beside it, by the names that it uses on a node.

    comments: of its rules in chains of others. protocols: of its routes. processes: names of its programs, of which the kernel
    keeps 15 bytes. plugins: types of its plugins, or names of its networks or bridges, in a CNI configuration. state: a file
    with the prefixes of its pods.
    """

    name: str
    chains: re.Pattern[str] | None = None
    links: re.Pattern[str] | None = None
    comments: re.Pattern[str] | None = None
    protocols: frozenset[int] = frozenset()
    processes: tuple[str, ...] = ()
    plugins: tuple[str, ...] = ()
    state: str = ""

    def has_chain(self, name: str) -> bool:
        return bool(self.chains and self.chains.fullmatch(name))

    def has_link(self, name: str) -> bool:
        return bool(self.links and self.links.fullmatch(name))


_K3S = ("k3s-server", "k3s-agent")  # contains flannel, and the policies of kube-router
OTHERS = (
    Owner(
        "amazon-vpc-cni",
        re.compile(r"AWS-(SNAT|CONNMARK)-CHAIN-\d+"),
        processes=("aws-k8s-agent",),
        plugins=("aws-cni",),
    ),
    Owner(
        "flannel",
        re.compile(r"FLANNEL-\w+"),
        re.compile(r"flannel(\.\d+|-wg|-v6\.\d+)|cni0"),
        re.compile(r"flanneld \w+"),
        processes=("flanneld", *_K3S),
        plugins=("flannel",),
        state="/run/flannel/subnet.env",
    ),
    Owner(
        "calico",
        re.compile(r"cali-\S+"),
        re.compile(r"vxlan\.calico|wireguard\.cali"),
        re.compile(r"cali:\S+"),
        frozenset({12, 80}),  # bird's, and Felix's DeviceRouteProtocol
        processes=("calico-node", "calico-felix", "bird", "bird6"),
        plugins=("calico",),
    ),
    Owner("azure-npm", re.compile(r"AZURE-NPM\S*"), processes=("azure-npm",)),
    Owner("kubenet", None, re.compile(r"cbr0"), re.compile(r"kubenet: .*"), plugins=("kubenet",)),
    Owner(
        "weave",
        re.compile(r"WEAVE\S*"),
        re.compile(r"weave|vxlan-6784"),
        processes=("weaver", "weave-npc"),
        plugins=("weave-net",),
    ),
    Owner(
        "kube-router",
        re.compile(r"KUBE-(ROUTER-[A-Z]+|POD-FW-[A-Z0-9]+|NWPLCY-[A-Z0-9]+)"),
        re.compile(r"kube-bridge|kube-dummy-if"),
        processes=("kube-router", *_K3S),
        plugins=("kube-bridge",),
    ),
    Owner(
        "antrea",
        re.compile(r"ANTREA-\S+"),
        re.compile(r"antrea-(gw|tun|egress)0"),
        processes=("antrea-agent",),
        plugins=("antrea",),
    ),
    Owner("ovn-kubernetes", re.compile(r"OVN-KUBE-\S+"), processes=("ovnkube",), plugins=("ovn-k8s-cni-overlay",)),
)
_KUBE_PROXY_CHAIN = re.compile(
    r"KUBE-(SERVICES|EXTERNAL-SERVICES|NODEPORTS|FORWARD|PROXY-FIREWALL"
    r"|LOAD-BALANCER|NODE-PORT|SOURCE-RANGES-FIREWALL|IPVS-FILTER|IPVS-OUT-FILTER|(SVC|SVL|SEP|FW|XLB|EXT)-[A-Z2-7]{16})"
)
_KUBE_PROXY_TABLES = ("ip kube-proxy (nft)", "ip6 kube-proxy (nft)")  # its mode nftables
NFTABLES = "nftables"


class AzureVnet(t.NamedTuple):
    """azure-vnet in a CNI configuration. is_there: whether it is among the plugins.

    bridge: the name of its bridge, empty for the default. hosts: addresses in its ipsToRouteViaHost.
    mode: such as bridge or transparent, empty for the default.
    """

    is_there: bool = False
    bridge: str = ""
    hosts: frozenset[str] = frozenset()
    mode: str = ""


def azure_vnet_in(text: str) -> AzureVnet:
    """Parse the text of a CNI configuration; an unreadable one has no azure-vnet."""
    for plugin in _plugins(text):
        if plugin.get("type") == "azure-vnet":
            hosts = plugin.get("ipsToRouteViaHost")
            addresses = {fields.address_or_empty(host) for host in (hosts if isinstance(hosts, list) else [])}
            bridge, mode = (word if isinstance(word, str) else "" for word in (plugin.get("bridge"), plugin.get("mode")))
            return AzureVnet(True, bridge, frozenset(addresses - {""}), mode)
    return AzureVnet()


def plugins_in(text: str) -> tuple[str, ...]:
    """Return the types of the plugins in the text of a CNI configuration, in order."""
    return tuple(str(plugin["type"]) for plugin in _plugins(text) if "type" in plugin)


def bridges_in(text: str) -> tuple[str, ...]:
    """Return the bridges of the plugins of type bridge in the text of a CNI configuration, by default cni0."""
    return tuple(str(plugin.get("bridge") or "cni0") for plugin in _plugins(text) if plugin.get("type") == "bridge")


def name_in(text: str) -> str:
    """Return the name of the network in the text of a CNI configuration; empty if it has none."""
    return str((json_object.parse(text) or {}).get("name", ""))


def _plugins(text: str) -> list[dict[str, t.Any]]:
    """Return the plugins of a configuration or of a configuration list; none if the text is unreadable."""
    configuration = json_object.parse(text) or {}
    listed = configuration.get("plugins")
    return [plugin for plugin in (listed if isinstance(listed, list) else [configuration]) if isinstance(plugin, dict)]


def pods_by_owner(links: t.Iterable[str]) -> dict[str, list[str]]:
    """Return the node's ends of pods' links, sorted, by owner: a key of PODS."""
    by_owner: dict[str, list[str]] = {owner: [] for owner in PODS}
    for link in sorted(links):
        owner = next((owner for owner, name in PODS.items() if name.fullmatch(link)), None)
        if owner:
            by_owner[owner].append(link)
    return by_owner


def others(chains: t.Iterable[tuple[str, str]], links: t.Iterable[str]) -> dict[str, list[str]]:
    """Return the chains and links of other CNIs, as text, by the name of the CNI. chains: place and name of each."""
    objects: dict[str, list[str]] = {}
    for place, chain in sorted(set(chains)):
        for owner in OTHERS:
            if owner.has_chain(chain):
                objects.setdefault(owner.name, []).append(f"chain {chain} in {place}")
    for link in sorted(links):
        for owner in OTHERS:
            if owner.has_link(link):
                objects.setdefault(owner.name, []).append(f"link {link}")
    return objects


def kube_proxy_chains(chains: t.Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Return the names of kube-proxy's chains, sorted, by place. chains: place and name of each."""
    by_place: dict[str, list[str]] = {}
    for place, chain in sorted(set(chains)):
        if place in _KUBE_PROXY_TABLES or _KUBE_PROXY_CHAIN.fullmatch(chain):
            by_place.setdefault(place, []).append(chain)
    return by_place


def kube_proxy_modes(places: t.Iterable[str]) -> set[str]:
    """Return the modes and backends of kube-proxy that have chains: nftables, nft and legacy. places: see kube_proxy_chains()."""
    return {NFTABLES if place in _KUBE_PROXY_TABLES else place.rpartition("(")[2].rstrip(")") for place in places}


def kube_proxy_removal(place: str) -> str:
    """Return the command that removes kube-proxy's chains at a place, and no other, for a shell."""
    family, table, backend = place.split()
    if place in _KUBE_PROXY_TABLES:
        return f"nft delete table {family} {table}"
    program = f"{iptables.PROGRAMS[family]}-{backend.strip('()')}"
    return f"{program}-save -c -t {table} | grep -vE '{_KUBE_PROXY_CHAIN.pattern}( |$)' | {program}-restore -c -T {table}"


def kube_proxy_warning(leftovers: t.Mapping[str, t.Sequence[str]]) -> str:
    """Return the sentences about chains of a kube-proxy that does not run, by place. Names the first two of each place."""
    places = [f"{first_of(chains, 2)} in {place}" for place, chains in leftovers.items()]
    has_iptables = any(place not in _KUBE_PROXY_TABLES for place in leftovers)
    return (
        f"kube-proxy does not run on the node, but its chains are still there and still act on connections to Services:"
        f" {'; '.join(places)}. They were not changed. If another program has replaced kube-proxy, run kube-proxy --cleanup on"
        f" the node{' with the same backend of iptables' * has_iptables}, or reboot the node. Otherwise start kube-proxy"
    )


def decides_about_pods(chain: str, table: str, owned: t.Callable[[Owner], bool]) -> bool:
    """Return whether a chain is kube-proxy's, or has the policies of a CNI or agent that serves the node.

    owned: whether an owner serves the node.
    """
    is_of_proxy = table == "kube-proxy" or bool(_KUBE_PROXY_CHAIN.fullmatch(chain))
    return is_of_proxy or any(owner.has_chain(chain) and owned(owner) for owner in OTHERS)
