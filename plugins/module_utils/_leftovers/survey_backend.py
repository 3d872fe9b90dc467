# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reads the facts by which leftovers of azure-vnet, azure-cns and Cilium are found. Read only; loads no kernel module.

Programs are started only if something on the node is azure-vnet's, or if Cilium has left chains.
"""

from __future__ import annotations

import os
import typing as t

from .._bpf import attachments
from .._cni import cilium as agent
from .._cni import cni, cni_backend
from .._core.errors import Failure
from .._core.fields import UINT32
from .._files import files
from .._interfaces.link_backend import LinkMessages
from .._interfaces.link_message import Address, Link, Scene
from .._netfilter import chains_backend, iptables, iptables_backend
from .._netlink import nfnetlink
from .._platform import kernel, process, processes
from .._routing.neighbour import Neighbour
from .._routing.routing_backend import Netlink
from . import azure_leftovers, cni_leftovers, judge, state_file
from . import bridge as bridges
from .azure_leftovers import Bridge, Facts
from .azure_pods import CNS, Cns, configuration_of, manages_state
from .leftover import Leftover

NAMESPACES = "/run/netns"
OPEN_VSWITCH = "openvswitch"


class Survey(t.NamedTuple):
    """The facts that cni_info has read. chains: place and name of each. bridge: azure-vnet's, by its options and configurations.

    configurations: by path, in a runtime's order.
    """

    chains: t.Sequence[tuple[str, str]]
    links: t.Sequence[Link]
    bridge: Link | None
    neighbours: t.Sequence[Neighbour]
    configurations: t.Mapping[str, cni_backend.ConfigurationFile]

    @property
    def plugins(self) -> list[t.Sequence[str]]:
        """Return the types of the plugins in each configuration that a container runtime reads."""
        return [file.plugins for file in self.configurations.values() if not file.is_inert]

    @property
    def in_use(self) -> list[cni_backend.ConfigurationFile]:
        """Return the configurations that a runtime uses: the first, and all that the plugin multus may delegate to."""
        active = [file for file in self.configurations.values() if not file.is_inert]
        return active if active and "multus" in active[0].plugins else active[:1]


class Former(t.NamedTuple):
    """What earlier runs of ebtables_cleanup removed, by their backup. states: texts of state files. rules: of iptables.

    is_there: whether there is a backup. It proves that azure-vnet was on the node, even if nothing else does any more.
    """

    states: tuple[str, ...] = ()
    rules: tuple[iptables.Rule, ...] = ()
    is_there: bool = False


NOTHING = Former()


def survey(run: process.Runner) -> Survey:
    """Read the facts by which leftovers are found. run: starts programs."""
    configurations = cni_backend.configurations()
    links = LinkMessages().links()
    bridge_names = {file.content.bridge for file in configurations.values()} - {""}
    return Survey(
        chains_backend.read(run),
        links,
        bridges.bridge_of(links, None, bridge_names),
        Netlink().neighbours(),
        configurations,
    )


def read(run: process.Runner, warn: t.Callable[[str], None], survey: Survey) -> list[Leftover]:
    """Return the leftovers of azure-vnet, azure-cns and Cilium. run: starts programs. warn: takes sentences for the operator."""
    facts = of_azure(run, warn, survey)
    return [
        *(azure_leftovers.find(facts) if facts else ()),
        *_of_cilium(run, warn, survey),
        *of_others(run, warn, survey),
    ]


def of_azure(
    run: process.Runner, warn: t.Callable[[str], None], survey: Survey, former: Former = NOTHING, is_strict: bool = False
) -> Facts | None:
    """Return the facts about leftovers of azure-vnet and azure-cns; None if nothing on the node is theirs.

    For run and warn see read().

    is_strict: whether a table that cannot be read raises Failure.
    """
    states = [*_states(), *map(state_file.state_from, former.states)]
    by_name = {link.name: link for link in survey.links}
    served = [name for name in sorted(by_name) if judge.HOST_LINK.fullmatch(name)]
    chains = _chains_that(survey.chains, cni.AZURE_CHAIN.fullmatch)
    namespaces = tuple(name for name in files.names_or_none(NAMESPACES) if azure_leftovers.SECOND_NAMESPACE.fullmatch(name))
    has_trace = (
        bool(served or chains or namespaces or survey.bridge or states or former.is_there)
        or bool({azure_leftovers.NAT_BRIDGE, *azure_leftovers.NAT_LINKS} & by_name.keys())
        or cni_backend.has_azure_vnet()
        or any(file.content.is_there for file in survey.configurations.values())
    )
    if not has_trace:
        return None
    listing = iptables_backend.read(run, azure_leftovers.TABLES, survey.chains, is_strict)
    for sentence in listing.unread.values():
        warn(sentence)
    addresses = LinkMessages().addresses()
    switches = {link.number for link in survey.links if link.kind == OPEN_VSWITCH}
    proxies = [name for name in (azure_leftovers.NAT_BRIDGE, *served) if kernel.setting(f"net/ipv4/conf/{name}/proxy_arp")]
    return Facts(
        listing.rules,
        tuple(chains),
        {*listing.unread},
        frozenset(str(address).partition("/")[0] for address in addresses),
        _subnets(states),
        _nat_bridge(by_name.get(azure_leftovers.NAT_BRIDGE), survey.links, addresses),
        _bridge(survey.bridge, survey.links, addresses),
        tuple(link.name for link in survey.links if link.kind == OPEN_VSWITCH and judge.BRIDGE.fullmatch(link.name)),
        frozenset(by_name),
        frozenset(link.name for link in survey.links if link.master in switches),
        tuple(
            (neighbour.address, str(neighbour))
            for neighbour in survey.neighbours
            if neighbour.is_permanent and neighbour.link == azure_leftovers.NAT_BRIDGE
        ),
        tuple(proxies),
        namespaces,
        served[0] if served else "",
        bool(survey.plugins) and "azure-vnet" in survey.plugins[0],
        bool(processes.in_this_network([CNS])),
        former.rules,
        _tunnel(),
    )


def _tunnel() -> azure_leftovers.Tunnel:
    """Return the objects of azure-vnet's mode transparent-tunnel. The table is its own only if its rule leads to it."""
    netlink, number = Netlink(), azure_leftovers.TUNNEL_TABLE
    marked = (azure_leftovers.TUNNEL_MARK, UINT32, number)
    rules = [str(rule) for rule, _protocol in netlink.rules() if (rule.fwmark, rule.fwmask, rule.table) == marked]
    routes = [str(route) for route, _protocol in netlink.routes() if route.table == number] if rules else []
    names = nfnetlink.ipsets() if kernel.is_ready("ip_set") else []
    return azure_leftovers.Tunnel(tuple(rules), tuple(routes), azure_leftovers.TUNNEL_SET in names)


def _of_cilium(run: process.Runner, warn: t.Callable[[str], None], survey: Survey) -> list[Leftover]:
    is_configured = any(cni.CILIUM_PLUGIN in plugins for plugins in survey.plugins)
    if is_configured or processes.in_this_network([cni_leftovers.CILIUM_AGENT]):
        return []
    chains = _chains_that(survey.chains, cni_leftovers.CILIUM_CHAINS.fullmatch)
    listing = iptables_backend.read(run, cni_leftovers.TABLES, survey.chains) if chains else iptables_backend.Read()
    for sentence in listing.unread.values():
        warn(sentence)
    names = sorted(link.name for link in survey.links)
    pods = {name for of_owner in cni.pods_by_owner(names).values() for name in of_owner}
    return cni_leftovers.of_cilium(listing.rules, chains, names, _programs([name for name in names if name not in pods], warn))


def of_others(run: process.Runner, warn: t.Callable[[str], None], survey: Survey) -> list[Leftover]:
    """Return the leftovers of CNIs of which no program runs. For run and warn see read().

    Starts programs only if there are any.
    """
    traces = [owner for owner in cni.OTHERS if _has_trace(owner, survey)]
    running = {*processes.in_this_network([name for owner in traces for name in owner.processes]).values()} if traces else set()
    former = [
        owner for owner in traces if not (running & {name[:15] for name in owner.processes} or _is_configured(owner, survey))
    ]
    if not former:
        return []
    chains = {owner.name: _chains_that(survey.chains, owner.has_chain) for owner in former}
    listing = iptables_backend.read(run, cni_leftovers.TABLES, survey.chains)
    for sentence in listing.unread.values():
        warn(sentence)
    routes, masters = Netlink().routes(), {link.master for link in survey.links}
    leftovers = []
    for owner in former:
        links = _links(owner, survey)
        with_ports = {link.name for link in links if link.number in masters}
        of_links = cni_leftovers.Links(tuple(link.name for link in links), with_ports)
        state = files.text_or_empty(owner.state) if owner.state else ""
        leftovers += cni_leftovers.find(owner, listing.rules, chains[owner.name], of_links, routes, state)
    return leftovers


def _has_trace(owner: cni.Owner, survey: Survey) -> bool:
    return (
        any(owner.has_chain(chain) for _place, chain in survey.chains)
        or bool(_links(owner, survey))
        or bool(owner.state and os.path.exists(owner.state))
    )


def _links(owner: cni.Owner, survey: Survey) -> list[Link]:
    """Return the links with an owner's names, without bridges that a runtime's configuration names."""
    bridges = {bridge for file in survey.in_use for bridge in file.bridges}
    return [link for link in survey.links if owner.has_link(link.name) and link.name not in bridges]


def _is_configured(owner: cni.Owner, survey: Survey) -> bool:
    """Return whether a configuration that a runtime uses has one of the owner's plugins, or a name of it, as kubenet's."""
    return any({*owner.plugins} & {*file.plugins, file.name, *file.bridges} for file in survey.in_use)


def _programs(links: t.Iterable[str], warn: t.Callable[[str], None]) -> list[tuple[str, str]]:
    try:
        return [
            (link, program.name) for link in links for program in attachments.at_ingress(link) if agent.is_program(program.name)
        ]
    except Failure as failure:
        warn(f"BPF programs of Cilium were not looked for: {failure}. Allow bpf(2), and run again.")
        return []


def gateways(run: process.Runner, warn: t.Callable[[str], None], link: Link, scene: Scene) -> frozenset[str]:
    """Return the addresses of azure-vnet's bridge, with their lengths, that are the gateway of its IPv6 pods.

    Starts a program only if an address of the bridge has the form of a gateway. warn: gets a sentence if the rules were not read.
    """
    bridge = _bridge(link, scene.links, scene.addresses)
    if bridge is None or not any(map(azure_leftovers.may_be_gateway, bridge.addresses)):
        return frozenset()
    listing = iptables_backend.read(run, {"ip6": ("nat",)}, chains_backend.read(run))
    for sentence in listing.unread.values():
        warn(f"{sentence} An address of azure-vnet's pods on {bridge.name} may therefore be moved as if it were the node's.")
    return frozenset(address for address, _subnet in azure_leftovers.gateways(bridge, _subnets(_states()), listing.rules))


def _chains_that(chains: t.Iterable[tuple[str, str]], is_theirs: t.Callable[[str], object]) -> list[tuple[iptables.Table, str]]:
    placed = [(iptables.table_at(place), chain) for place, chain in sorted({*chains}) if is_theirs(chain)]
    return [(table, chain) for table, chain in placed if table]


def _bridge(link: Link | None, links: t.Iterable[Link], addresses: t.Iterable[Address]) -> Bridge | None:
    if link is None:
        return None
    ports = tuple(sorted(port.name for port in links if port.master == link.number))
    of_bridge = tuple(str(address) for address in addresses if address.link == link.number and not address.is_links_own)
    return Bridge(link.name, ports, of_bridge)


def _nat_bridge(link: Link | None, links: t.Iterable[Link], addresses: t.Iterable[Address]) -> Bridge | None:
    nat_bridge = _bridge(link, links, addresses)
    if link is None or nat_bridge is None:
        return None
    over = [route for route in LinkMessages().routes() if any(number == link.number for number, _via in route.hops)]
    return nat_bridge._replace(routes=tuple(str(route) for route in over if not (route.is_of_address or route.is_links_own)))


def _states() -> list[state_file.State]:
    """Return azure-vnet's state file, if there is one."""
    try:
        return [state_file.state_from(files.text(state_file.STATE_FILE))]
    except OSError:
        return []


def _subnets(states: t.Iterable[state_file.State]) -> frozenset[str]:
    return frozenset(subnet for state in states for subnet in state.subnets)


def azure_cns() -> Cns | None:
    """Return the azure-cns that runs in this network namespace; None if there is none."""
    for pid in processes.in_this_network((CNS,)):
        environment = dict(pair.partition("=")[::2] for pair in files.text_or_empty(f"/proc/{pid}/environ").split("\0"))
        arguments = files.text_or_empty(f"/proc/{pid}/cmdline").split("\0")[1:]
        path = configuration_of(arguments, environment, _executable(pid))
        root = f"/proc/{pid}/root" if path.startswith("/") else f"/proc/{pid}/cwd/"
        return Cns(path, manages_state(files.text_or_empty(root + path)))
    return None


def _executable(pid: str) -> str:
    """Return the path of the program, in the root of its process."""
    try:
        return os.readlink(f"/proc/{pid}/exe")
    except OSError:
        return ""
