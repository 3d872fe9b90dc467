# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Reads the facts by which leftovers of azure-vnet, azure-cns and Cilium are found. Read only; loads no kernel module.

Programs are started only if something on the node is azure-vnet's, or if Cilium has left chains.
"""

from __future__ import annotations

import os
import typing as t

from .._cni import cilium as agent
from .._cni import cni, cni_backend
from .._core.errors import Failure
from .._files import files
from .._interfaces.link_backend import LinkMessages
from .._interfaces.link_message import Address, Link, Scene
from .._netfilter import chains_backend, iptables, iptables_backend
from .._netlink import bpf
from .._platform import kernel, process, processes
from .._routing.neighbour import Neighbour
from .._routing.routing_backend import Netlink
from . import azure_leftovers, cilium_leftovers, judge, state_file
from . import bridge as bridges
from .azure_leftovers import Bridge, Facts
from .azure_pods import CNS, Cns, configuration_of, manages_state
from .leftover import Leftover

NAMESPACES = "/run/netns"
OPEN_VSWITCH = "openvswitch"


class Seen(t.NamedTuple):
    """The facts that cni_info has read. chains: place and name of each. bridge: azure-vnet's, by its options and configurations.

    configurations: by path, in a runtime's order.
    """

    chains: t.Sequence[tuple[str, str]]
    links: t.Sequence[Link]
    bridge: Link | None
    neighbours: t.Sequence[Neighbour]
    configurations: t.Mapping[str, cni_backend.Found]

    @property
    def plugins(self) -> list[t.Sequence[str]]:
        """Types of the plugins in each configuration that a container runtime reads."""
        return [one.plugins for one in self.configurations.values() if not one.is_inert]


class Former(t.NamedTuple):
    """What earlier runs of ebtables_cleanup removed, by their backup. states: texts of state files. rules: of iptables.

    is_there: whether there is a backup. It proves that azure-vnet was on the node, even if nothing else does any more.
    """

    states: tuple[str, ...] = ()
    rules: tuple[iptables.Rule, ...] = ()
    is_there: bool = False


NOTHING = Former()


def see(run: process.Runner) -> Seen:
    """Reads the facts by which leftovers are found. run: starts programs."""
    configurations = cni_backend.configurations()
    links = LinkMessages().links()
    named = {one.content.bridge for one in configurations.values()} - {""}
    return Seen(
        chains_backend.read(run),
        links,
        bridges.bridge_of(links, None, named),
        Netlink().neighbours(),
        configurations,
    )


def read(run: process.Runner, warn: t.Callable[[str], None], seen: Seen) -> list[Leftover]:
    """The leftovers of azure-vnet, azure-cns and Cilium. run: starts programs. warn: takes sentences for the operator."""
    facts = of_azure(run, warn, seen)
    return [*(azure_leftovers.find(facts) if facts else ()), *_of_cilium(run, warn, seen)]


def of_azure(
    run: process.Runner, warn: t.Callable[[str], None], seen: Seen, former: Former = NOTHING, is_strict: bool = False
) -> Facts | None:
    """The facts about leftovers of azure-vnet and azure-cns; None if nothing on the node is theirs. For run and warn see read().

    is_strict: whether a table that cannot be read raises Failure.
    """
    states = [*_states(), *map(state_file.state_from, former.states)]
    by_name = {link.name: link for link in seen.links}
    served = [name for name in sorted(by_name) if judge.HOST_LINK.fullmatch(name)]
    named = _named(seen.chains, cni.AZURE_CHAIN.fullmatch)
    namespaces = tuple(name for name in _namespaces() if azure_leftovers.SECOND_NAMESPACE.fullmatch(name))
    has_trace = (
        bool(served or named or namespaces or seen.bridge or states or former.is_there)
        or bool({azure_leftovers.NAT_BRIDGE, *azure_leftovers.NAT_LINKS} & by_name.keys())
        or cni_backend.has_azure_vnet()
        or any(one.content.is_there for one in seen.configurations.values())
    )
    if not has_trace:
        return None
    found = iptables_backend.read(run, azure_leftovers.TABLES, seen.chains, is_strict)
    for sentence in found.unread.values():
        warn(sentence)
    addresses = LinkMessages().addresses()
    switches = {link.number for link in seen.links if link.kind == OPEN_VSWITCH}
    proxies = [name for name in (azure_leftovers.NAT_BRIDGE, *served) if kernel.setting(f"net/ipv4/conf/{name}/proxy_arp")]
    return Facts(
        found.rules,
        tuple(named),
        {*found.unread},
        frozenset(str(one).partition("/")[0] for one in addresses),
        _subnets(states),
        _nat_bridge(by_name.get(azure_leftovers.NAT_BRIDGE), seen.links, addresses),
        _bridge(seen.bridge, seen.links, addresses),
        tuple(link.name for link in seen.links if link.kind == OPEN_VSWITCH and judge.BRIDGE.fullmatch(link.name)),
        frozenset(by_name),
        frozenset(link.name for link in seen.links if link.master in switches),
        tuple((one.address, str(one)) for one in seen.neighbours if one.is_permanent and one.link == azure_leftovers.NAT_BRIDGE),
        tuple(proxies),
        namespaces,
        served[0] if served else "",
        bool(seen.plugins) and "azure-vnet" in seen.plugins[0],
        bool(processes.in_this_network([CNS])),
        former.rules,
    )


def _of_cilium(run: process.Runner, warn: t.Callable[[str], None], seen: Seen) -> list[Leftover]:
    is_configured = any(cni.CILIUM_PLUGIN in plugins for plugins in seen.plugins)
    if is_configured or processes.in_this_network([cilium_leftovers.AGENT]):
        return []
    named = _named(seen.chains, cilium_leftovers.CHAINS.fullmatch)
    found = iptables_backend.read(run, cilium_leftovers.TABLES, seen.chains) if named else iptables_backend.Read()
    for sentence in found.unread.values():
        warn(sentence)
    names = sorted(link.name for link in seen.links)
    pods = {name for of_owner in cni.pods_by_owner(names).values() for name in of_owner}
    return cilium_leftovers.of_cilium(found.rules, named, names, _programs([name for name in names if name not in pods], warn))


def _programs(links: t.Iterable[str], warn: t.Callable[[str], None]) -> list[tuple[str, str]]:
    try:
        return [(link, one.name) for link in links for one in bpf.at_ingress(link) if agent.is_program(one.name)]
    except Failure as failure:
        warn(f"BPF programs of Cilium were not looked for: {failure}. Allow bpf(2), and run again.")
        return []


def gateways(run: process.Runner, warn: t.Callable[[str], None], link: Link, scene: Scene) -> frozenset[str]:
    """Addresses of azure-vnet's bridge, with their lengths, that are the gateway of its IPv6 pods.

    Starts a program only if an address of the bridge has the form of a gateway. warn: gets a sentence if the rules were not read.
    """
    bridge = _bridge(link, scene.links, scene.addresses)
    if bridge is None or not any(map(azure_leftovers.may_be_gateway, bridge.addresses)):
        return frozenset()
    found = iptables_backend.read(run, {"ip6": ("nat",)}, chains_backend.read(run))
    for sentence in found.unread.values():
        warn(f"{sentence} An address of azure-vnet's pods on {bridge.name} may therefore be moved as if it were the node's.")
    return frozenset(address for address, _subnet in azure_leftovers.gateways(bridge, _subnets(_states()), found.rules))


def _named(chains: t.Iterable[tuple[str, str]], is_theirs: t.Callable[[str], object]) -> list[tuple[iptables.Table, str]]:
    found = [(iptables.table_at(place), chain) for place, chain in sorted({*chains}) if is_theirs(chain)]
    return [(table, chain) for table, chain in found if table]


def _bridge(link: Link | None, links: t.Iterable[Link], addresses: t.Iterable[Address]) -> Bridge | None:
    if link is None:
        return None
    ports = tuple(sorted(one.name for one in links if one.master == link.number))
    own = tuple(str(one) for one in addresses if one.link == link.number and not one.is_links_own)
    return Bridge(link.name, ports, own)


def _nat_bridge(link: Link | None, links: t.Iterable[Link], addresses: t.Iterable[Address]) -> Bridge | None:
    found = _bridge(link, links, addresses)
    if link is None or found is None:
        return None
    over = [one for one in LinkMessages().routes() if any(number == link.number for number, _via in one.hops)]
    return found._replace(routes=tuple(str(one) for one in over if not (one.is_of_address or one.is_links_own)))


def _states() -> list[state_file.State]:
    """azure-vnet's state file, if there is one."""
    try:
        return [state_file.state_from(files.text(state_file.STATE_FILE))]
    except OSError:
        return []


def _subnets(states: t.Iterable[state_file.State]) -> frozenset[str]:
    return frozenset(subnet for state in states for subnet in state.subnets)


def _namespaces() -> list[str]:
    try:
        return sorted(os.listdir(NAMESPACES))
    except OSError:
        return []


def azure_cns() -> Cns | None:
    """The azure-cns that runs in this network namespace; None if there is none."""
    for pid in processes.in_this_network((CNS,)):
        environment = dict(pair.partition("=")[::2] for pair in files.text_or_empty(f"/proc/{pid}/environ").split("\0"))
        arguments = files.text_or_empty(f"/proc/{pid}/cmdline").split("\0")[1:]
        path = configuration_of(arguments, environment, _executable(pid))
        root = f"/proc/{pid}/root" if path.startswith("/") else f"/proc/{pid}/cwd/"
        return Cns(path, manages_state(files.text_or_empty(root + path)))
    return None


def _executable(pid: str) -> str:
    """The path of the program, in the root of its process."""
    try:
        return os.readlink(f"/proc/{pid}/exe")
    except OSError:
        return ""
