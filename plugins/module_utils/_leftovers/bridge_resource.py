# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Removes a bridge, and restores its network interface's addresses, routes and DNS."""

from __future__ import annotations

import typing as t

from .._cni import cni_backend
from .._core.plan import Plan, Plane, Step, whole
from .._interfaces.link_backend import Apply, Await, LinkMessages
from .._interfaces.link_message import Link, Message, Scene
from .._platform.sysctl import Sysctl, Write
from . import bridge as bridges
from . import resolved_backend
from .bridge import Dissolution
from .resolved_backend import Dns, Resolved


class ObservedBridge(t.NamedTuple):
    """dissolution: None if there is no bridge. settings: sysctl keys of the bridge, with their values.

    has_runtime_dns: whether the DNS of the network interface was set at run time, rather than by its network daemon.
    """

    dissolution: Dissolution | None = None
    bridge_dns: Dns = Dns()
    nic_dns: Dns = Dns()
    has_runtime_dns: bool = False
    settings: tuple[tuple[str, int], ...] = ()

    @property
    def desired_dns(self) -> Dns:
        """Return the bridge's DNS, followed by the network interface's own."""
        pairs = zip(self.bridge_dns, self.nic_dns)
        return Dns(*(tuple(dict.fromkeys((*of_bridge, *of_nic))) for of_bridge, of_nic in pairs))

    @property
    def moves_dns(self) -> bool:
        return any(set(of_bridge) - set(of_nic) for of_bridge, of_nic in zip(self.bridge_dns, self.nic_dns))


class DissolvedBridge:
    """Ensures that ``bridge`` does not exist, and that ``interface`` has its addresses, routes and DNS.

    bridge, interface: names; None to find them. gateways: which of the bridge's addresses, with their lengths, served
    azure-vnet's pods; they end with the bridge. The plan's report is the module's result.
    """

    plane = Plane.IMMEDIATE

    def __init__(
        self,
        backend: LinkMessages,
        dns: Resolved,
        sysctl: Sysctl,
        bridge: str | None,
        interface: str | None,
        gateways: t.Callable[[Link, Scene], t.Collection[str]],
    ) -> None:
        self.name = f"bridge {bridge or 'of azure-vnet'}"
        self.backends = (backend, dns, sysctl)
        self._backend = backend
        self._dns = dns
        self._sysctl = sysctl
        self._bridge = bridge
        self._interface = interface
        self._gateways = gateways

    def bridge(self, links: t.Sequence[Link] | None = None) -> Link | None:
        """Return the bridge to remove; None if there is none. links: where to look, by default the node's current links."""
        configured = {file.content.bridge for file in cni_backend.configurations().values()} - {""}
        return bridges.bridge_of(self._backend.links() if links is None else links, self._bridge, configured)

    def observe(self) -> ObservedBridge:
        if self.bridge() is None:
            return ObservedBridge()
        scene = self._backend.scene()
        bridge = self.bridge(scene.links)
        if bridge is None:  # removed meanwhile
            return ObservedBridge()
        gateways = self._gateways(bridge, scene)
        nic = bridges.nic_of(scene, bridge, self._interface, gateways)
        dissolution = bridges.dissolution(scene, bridge, nic, gateways)
        if nic is None:
            return ObservedBridge(dissolution)
        dns = self._dns.read(bridge.name), self._dns.read(nic.name), self._dns.is_set_at_run_time(nic.number)
        return ObservedBridge(dissolution, *dns, self._sysctl.existing(bridges.settings_of(bridge.name)))

    def plan(self, observed: ObservedBridge) -> Plan:
        dissolution = observed.dissolution
        if dissolution is None:
            return Plan(report=_report(observed))
        nic = f" dev {dissolution.nic.name}" if dissolution.nic else ""
        lines = [*(f"ip address {address}" for address in dissolution.addresses), *dissolution.routes, *_dns_lines(observed)]
        ending = [f"ip address {address}" for address in dissolution.ending]
        before = [
            f"ip link {dissolution.bridge.name} type bridge",
            *(f"{line} dev {dissolution.bridge.name}" for line in (*ending, *lines)),
        ]
        after = [f"{line}{nic}" for line in lines]
        before_text, after_text = ("".join(f"{line}\n" for line in text) for text in (before, after))
        return Plan(tuple(self._steps(observed, dissolution)), whole(before_text, after_text), _report(observed))

    def _steps(self, observed: ObservedBridge, dissolution: Dissolution) -> t.Iterator[Step]:
        """Yield the steps. The node is unreachable only within the batch ``leaving``, which is therefore as short as possible."""
        bridge = dissolution.bridge.name
        if dissolution.nic is None:
            yield _step(f"remove {bridge}", dissolution.removal)
            return
        nic = dissolution.nic.name
        if dissolution.arriving:
            yield _step(f"add the addresses and routes of {bridge} to {nic}", dissolution.arriving)
        desired = Await(dissolution.nic.number, tuple(address.local for address in dissolution.addresses))
        yield Step(f"wait until {nic} answers for the addresses", desired)
        # These steps only have an undo, which runs when the bridge exists again and contains the network interface.
        if observed.bridge_dns.servers:
            yield Step(f"set the DNS of {bridge}", None, resolved_backend.Set(bridge, observed.bridge_dns))
        if observed.has_runtime_dns:
            yield Step(f"set the DNS of {nic}", None, resolved_backend.Set(nic, observed.nic_dns))
        for key, value in observed.settings:
            yield Step(f"set {key}", None, Write(key, value))
        if dissolution.leaving:
            yield _step(f"remove the routes of {bridge} and take {nic} out of the bridge", dissolution.leaving)
        yield _step(f"remove {bridge}", dissolution.removal)
        # Last: when a link leaves a bridge, the kernel sends RTM_DELLINK of AF_BRIDGE. resolved takes this for the removal of
        # the link, and forgets the link's DNS.
        if observed.moves_dns or observed.has_runtime_dns:
            use, revert = resolved_backend.Set(nic, observed.desired_dns), resolved_backend.Set(nic, Dns())
            yield Step(f"set the DNS of {nic} to that of {bridge}", use, revert)


def _report(observed: ObservedBridge) -> dict[str, t.Any]:
    """Return the module's result."""
    dissolution = observed.dissolution
    return {
        "bridge": dissolution.bridge.name if dissolution else "",
        "interface": dissolution.nic.name if dissolution and dissolution.nic else "",
        "addresses": list(map(str, dissolution.addresses)) if dissolution else [],
        "routes": list(dissolution.routes) if dissolution else [],
        "dns": list(observed.bridge_dns.servers) if observed.moves_dns else [],
    }


def _step(summary: str, messages: tuple[Message, ...]) -> Step:
    apply = Apply(messages)
    return Step(summary, apply, apply.inverse())


def _dns_lines(observed: ObservedBridge) -> t.Iterator[str]:
    if observed.moves_dns:
        yield from (f"dns {server}" for server in observed.bridge_dns.servers)
        yield from (f"domain {domain}" for domain in observed.bridge_dns.domains)
