# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cloud's side of Services of type LoadBalancer: the lab's own controller, in place of a cloud provider's.

It is written for these tests, and is neither cloud-provider-azure nor AWS's controller: it acts as the cloud's
load balancer does under theirs. It gives each Service a front-end address, probes the nodes as the cloud does, forwards to those
that answer, and writes the address into the Service's status, which is when kube-proxy serves it.

    with LoadBalancing(lab.load_balancer, api, AZURE) as balancing:
        balancing.wait_for("default/web", IPV6, {"node1", "node2"})
        assert lab.client.fetch(balancing.address("default/web", IPV6), 80)
        assert not balancing.record("default/web", IPV6, "node1").lost

It does not implement Azure's two probes in a row, finalizers, source ranges, session affinity, and annotations.
"""

from __future__ import annotations

import ipaddress
import threading
from collections.abc import Callable, Sequence, Set
from types import TracebackType
from typing import Any, Protocol

from lab.entering import LabError
from lab.kubernetes import forwarding
from lab.kubernetes.api import MERGE_PATCH
from lab.kubernetes.forwarding import AZURE, Balancer, Forwarding, Frontend, Target
from lab.load_balancer import LINK
from lab.machine import Machine
from lab.prober import Answer, Prober
from lab.probing import ProbeRecord, Probing
from lab.service import IPV4, IPV6, Family
from lab.waiting import PATIENCE, until

PROBE_INTERVAL = 0.5  # seconds; Azure's is 5
_POLL = 0.5  # seconds between two looks at the API


class KubernetesApi(Protocol):
    """The part of ``lab.kubernetes.api.Api`` that the controller uses."""

    def items(self, path: str) -> Sequence[dict[str, Any]]: ...

    def request(self, path: str, method: str, body: dict[str, Any], content: str) -> object: ...


class LoadBalancing:
    """Follows Services and Nodes, and makes ``machine``, a router between clients and nodes, their load balancer.

    ``interval``: seconds between two probes of a target; it may be set at any time.
    ``timeout``: seconds until a probe is lost. Below a second, a lost packet is a lost probe, because TCP sends again
    what is not acknowledged after a second (RFC 6298 section 2).

    Ends by ``close()``, which leaves nothing of it on the machine. The Services' status stays.
    """

    def __init__(
        self,
        machine: Machine,
        api: KubernetesApi,
        cloud: Balancer = AZURE,
        interval: float = PROBE_INTERVAL,
        timeout: float = 0.9,
    ) -> None:
        self.interval = interval
        self._machine = machine
        self._api = api
        self._timeout = timeout
        self._current = Forwarding(cloud)
        self._services: Sequence[dict[str, Any]] = ()
        self._probings: dict[Target, Probing] = {}
        self._applied: tuple[Forwarding, set[Target]] = (self._current, set())
        self._routed: set[int] = set()
        self._error: Exception | None = None
        self._stopped = threading.Event()
        self._wake = threading.Event()
        self._source = cloud.probe_sources.get(IPV4)
        if self._source:
            machine.ip([f"address replace {self._source}/32 dev lo"])
        self._thread = threading.Thread(target=self._run, name="load balancing", daemon=True)
        self._thread.start()

    def __enter__(self) -> LoadBalancing:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._stopped.set()
        self._wake.set()
        self._thread.join()
        self._end({*self._probings})
        for family in (IPV4, IPV6):
            self._ip(family, [f"rule delete fwmark {number} lookup {number}" for number in self._routed])
            flushes = [f"route flush table {number}" for number in self._routed]
            self._ip(family, flushes, check=False)  # a table that was never used in this family is an error
        self._machine.run_from_host(["nft", "-f", "-"], forwarding.NO_RULESET)
        if self._source:
            self._machine.ip([f"address delete {self._source}/32 dev lo"])

    # Queries of tests. ``service`` is NAMESPACE/NAME.

    def knows(self, service: str) -> bool:
        """Whether the Service has a front end; one that was deleted has none."""
        return any(frontend.service == service for frontend in self._applied[0].frontends)

    def address(self, service: str, family: Family) -> str:
        """The front-end address of the Service."""
        return self._frontend(service, family).address

    def backends(self, service: str, family: Family) -> set[str]:
        """The names of the nodes that get packets for all ports of the Service."""
        current, healthy = self._applied
        frontend = self._frontend(service, family)
        of_ports = [current.backends(frontend, port, healthy) for port in frontend.ports]
        return set.intersection(*({node.name for node in chosen} for chosen in of_ports))

    def wait_for(self, service: str, family: Family, nodes: Set[str], limit: float = PATIENCE) -> None:
        """Return when these nodes, and no others, get packets for all ports of the Service."""
        until(
            f"{service} is forwarded to {sorted(nodes)} and to no other nodes",
            lambda: self.backends(service, family) if self.knows(service) else None,
            self,
            expected=nodes,
            limit=limit,
        )

    def last_lines(self) -> str:
        return f"the last error of the load balancer's controller: {self._error or 'none'}"

    def record(self, service: str, family: Family, node: str) -> ProbeRecord:
        """The probes that decide about the Service's first port on a node, as soon as there is a target."""
        current, _healthy = self._applied
        frontend = self._frontend(service, family)
        targets = {candidate.name: frontend.target(frontend.ports[0], candidate) for candidate in current.candidates(frontend)}
        target = targets.get(node)
        if target is None or target not in self._probings:
            raise LabError(f"{service} is not probed on {node}; its candidates are {sorted(targets)}")
        return self._probings[target].record

    def _frontend(self, service: str, family: Family) -> Frontend:
        for frontend in self._applied[0].frontends:
            if (frontend.service, frontend.family) == (service, family):
                return frontend
        raise LabError(f"{service} has no front end in family {family.nft}; last error: {self._error or 'none'}")

    # The controller

    def _run(self) -> None:
        while not self._stopped.is_set():
            errors = [error for step in (self._look, self._apply, self._publish) if (error := _failure(step))]
            self._error = errors[0] if errors else None
            self._wake.wait(_POLL)
            self._wake.clear()

    def _look(self) -> None:
        """Read Services and Nodes, and compute the forwarding from them."""
        services, nodes = self._api.items("/api/v1/services"), self._api.items("/api/v1/nodes")
        before = self._current
        self._current = Forwarding(
            before.cloud,
            forwarding.frontends(services, {frontend.service: frontend.number for frontend in before.frontends}),
            forwarding.nodes(nodes, {node.name: node.number for node in before.nodes}),
        )
        self._services = services

    def _apply(self) -> None:
        """Probe the targets, and forward to those that answer."""
        targets = self._current.targets()
        self._end({*self._probings} - targets)
        for target in targets - {*self._probings}:
            self._probings[target] = Probing(self._asking(target), lambda: self.interval, self._wake.set)
        healthy = {target for target, probing in self._probings.items() if probing.is_healthy}
        if (self._current, healthy) == self._applied:
            return
        if self._current.cloud.floating_ip:
            self._route()
        self._machine.run_from_host(["nft", "-f", "-"], self._current.ruleset(healthy))
        self._applied = (self._current, healthy)

    def _route(self) -> None:
        """Let packets with a node's mark go to that node."""
        new = {node.number for node in self._current.nodes} - self._routed
        for family in (IPV4, IPV6):
            self._ip(family, [f"rule add fwmark {number} lookup {number}" for number in new])
        self._routed |= new
        for family in (IPV4, IPV6):
            self._ip(family, self._current.routes(family))

    def _publish(self) -> None:
        """Let the status of each Service show its front-end addresses, and no others."""
        for service in self._services:
            name = forwarding.name_of(service)
            ingress = self._current.ingress(name)
            if service["status"]["loadBalancer"].get("ingress", []) != ingress:
                path = "/api/v1/namespaces/{}/services/{}/status".format(*name.split("/"))
                self._api.request(path, "PATCH", {"status": {"loadBalancer": {"ingress": ingress}}}, MERGE_PATCH)

    def _asking(self, target: Target) -> Callable[[], bool]:
        """A function that sends a probe of the target, and returns whether the answer is correct."""
        family = IPV6 if ":" in target.address else IPV4
        source = self._current.cloud.probe_sources.get(family)
        prober = Prober(self._machine, LINK if source and ipaddress.ip_address(source).is_link_local else None, source)
        if target.http:
            return lambda: _is_ok(prober.http(target.address, target.port, self._timeout, 1, "/healthz"))
        return lambda: prober.tcp(target.address, target.port, self._timeout, tries=1)

    def _end(self, targets: set[Target]) -> None:
        """Stop probing these targets, all at once."""
        ended = [self._probings.pop(target) for target in targets]
        for probing in ended:
            probing.end()
        for probing in ended:
            probing.close()

    def _ip(self, family: Family, lines: list[str], check: bool = True) -> None:
        """``ip`` commands of one family, in one process: all of them, also if one is refused."""
        self._machine.run(["ip", "-6" if family is IPV6 else "-4", "-force", "-batch", "-"], "\n".join([*lines, ""]), check)


def _is_ok(answer: Answer | None) -> bool:
    return answer is not None and answer.status == 200


def _failure(step: Callable[[], None]) -> Exception | None:
    """The error of a failed step. The step is tried again: an API server may restart, a Service may be deleted meanwhile."""
    try:
        step()
    except (OSError, LabError) as error:
        return error
    return None
