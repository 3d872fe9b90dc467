# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The profile aks_dual_stack on nodes with a real kubelet and kube-proxy, applied by its playbook.

``KUBENODE_PROBES``: how many probes each target gets when none may be lost. 5000 are a thorough run.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lab import machine, place, playbook
from lab.container import SystemdNode
from lab.kubernetes import Cluster, manifests
from lab.kubernetes.client import PATIENCE
from lab.kubernetes.manifests import BOTH, IpFamily
from lab.load_balancer import PROBE_SOURCE
from lab.probing import Probing
from lab.service import Policy
from lab.waiting import until

PROBES = int(os.environ.get("KUBENODE_PROBES", "200"))
TABLE = "ip6 azureSLBProbe"
UNIT = "kubenode-nft-ip6-azureSLBProbe.service"

QUICK = 0.3  # seconds to wait for an answer that must not come
STRICT = 0.9  # seconds to wait for an answer without packet loss: TCP sends a lost packet again after a second
PATIENT = 4.0  # seconds to wait for an answer that must come

LOCAL_POD = "local-pod"
"""A workload: pods on node1 alone."""

SERVED: dict[str, tuple[Policy, tuple[IpFamily, ...]]] = {
    "cluster-dual": ("Cluster", BOTH),
    "cluster-ipv6": ("Cluster", ("IPv6",)),
    "local-dual": ("Local", BOTH),
    "local-ipv6": ("Local", ("IPv6",)),
}
"""Services in front of LOCAL_POD."""

LOCAL = [service for service, (policy, _families) in SERVED.items() if policy == "Local"]


CLIENTS: dict[IpFamily, str] = {"IPv4": place.CLIENT_IPV4, "IPv6": place.CLIENT}


class Site:
    """The cluster with workloads, Services and metadata, and the playbook that is run against its nodes.

    ``own`` is the node with the pods of LOCAL_POD, ``other`` the node without.
    """

    def __init__(self, cluster: Cluster, inventory: Path) -> None:
        self.cluster = cluster
        self.own: SystemdNode = cluster.node("node1")
        self.other: SystemdNode = cluster.node("node2")
        self._inventory = inventory
        services = cluster.api.items("/api/v1/namespaces/default/services")
        self._specs = {service["metadata"]["name"]: service["spec"] for service in services}

    def play(self, **variables: Any) -> int:
        """Apply the profile to both nodes. Returns how many nodes it changed."""
        given = {f"aks_dual_stack_{name}": value for name, value in variables.items()}
        return playbook.play(self._inventory, "kubenode.datapath.aks_dual_stack", variables=given).well().changed

    def port(self, service: str) -> int:
        port: int = self._specs[service]["ports"][0]["nodePort"]
        return port

    def probe(self, service: str, node: SystemdNode, timeout: float = PATIENT) -> bool:
        """Probe the Service's node port from the link-local address."""
        return self.cluster.load_balancer.probe_tcp(node.address, self.port(service), timeout)

    def health(self, service: str, node: SystemdNode) -> int | None:
        """The answer of the Service's health check node port to the link-local address."""
        port = self._specs[service]["healthCheckNodePort"]
        answer = self.cluster.load_balancer.probe_http(node.address, port, PATIENT)
        return answer.status if answer else None

    def client_seen(self, service: str, family: IpFamily) -> str | None:
        """The client's address that a pod sees, if the client sends to that pod's node."""
        address = self.own.address if family == "IPv6" else self.own.ipv4
        answer = self.cluster.client.fetch(address, self.port(service), PATIENT)
        return answer.peer if answer else None

    def turned_away(self) -> int:
        """How many connection requests the pods of LOCAL_POD have dropped, because too many waited to be accepted."""
        pods = self.cluster.pods_of(f"app={LOCAL_POD}")
        texts = [self.cluster.kubectl("exec", pod.name, "--", "cat", machine.NETSTAT) for pod in pods]
        return sum(machine.tcp_ext(text, "ListenDrops") for text in texts)

    def is_served(self) -> bool:
        """Whether the endpoints are the current pods, and each node's kube-proxy serves the targets that need no profile."""
        if not self._is_known():
            return False
        asked = [(self.own, service) for service in SERVED]
        asked += [(self.other, service) for service in SERVED if service not in LOCAL]
        is_answered = all(self.cluster.client.fetch(node.address, self.port(service)) for node, service in asked)
        return is_answered and all(self.health(service, self.own) == 200 for service in LOCAL)

    def _is_known(self) -> bool:
        """Whether the API knows the current pods, which after a boot takes a while."""
        running_pods = self.cluster.pods_of(f"app={LOCAL_POD}")
        for slice in self.cluster.api.items("/apis/discovery.k8s.io/v1beta1/namespaces/default/endpointslices"):
            service = slice["metadata"]["labels"]["kubernetes.io/service-name"]
            if self._specs[service].get("selector"):  # the API's own Service has none
                family = slice["addressType"]
                running = {pod.address if family == "IPv6" else pod.ipv4 for pod in running_pods}
                endpoints = [endpoint for endpoint in slice["endpoints"] or () if endpoint["conditions"]["ready"]]
                if not running or running != {address for endpoint in endpoints for address in endpoint["addresses"]}:
                    return False
        return True


@pytest.fixture(scope="module")
def site(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    cluster.metadata.start()
    objects = [
        _local_pod(),
        *(
            manifests.service(name, policy=policy, families=families, selector={"app": LOCAL_POD})
            for name, (policy, families) in SERVED.items()
        ),
    ]
    cluster.apply(*objects)
    try:
        cluster.wait_for_rollout(f"deployment/{LOCAL_POD}")
        running = Site(cluster, cluster.write_inventory(tmp_path_factory.mktemp("cluster") / "inventory.json"))
        cluster.until("the Services are served", running.is_served)
        yield running
        running.play(state="absent")
    finally:
        cluster.delete(*objects)
        cluster.metadata.stop()


def _local_pod() -> dict[str, Any]:
    """A pod is replaced only by a ready one, and serves for 5 seconds more, until kube-proxy has removed its endpoint."""
    workload = manifests.server(LOCAL_POD, "Deployment", nodeName="node1", terminationGracePeriodSeconds=10)
    workload["spec"]["strategy"] = {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}
    container = workload["spec"]["template"]["spec"]["containers"][0]
    container["lifecycle"] = {"preStop": {"exec": {"command": ["sleep", "5"]}}}
    return workload


@pytest.fixture
def bare(site: Site) -> Site:
    """Nodes without the profile."""
    if any(has_table(node) for node in (site.own, site.other)):
        assert site.play(state="absent") == 2
    return site


@pytest.fixture
def converged(site: Site) -> Site:
    """Nodes to which the profile was applied."""
    if not all(has_table(node) for node in (site.own, site.other)):
        assert site.play() == 2
    return site


def has_table(node: SystemdNode) -> bool:
    return f"table {TABLE}\n" in node.run(["nft", "list", "tables"]).stdout


@contextmanager
def none_lost(site: Site, asks: Mapping[str, Callable[[], bool]]) -> Iterator[None]:
    """Probes are sent during the block, and until each target got PROBES of them; all are answered.

    Probes that a pod refused on a busy machine do not count: its server queues nine connections.
    """
    before = site.turned_away()
    probings = {name: Probing(ask, 0.005) for name, ask in asks.items()}
    try:
        yield
        for name, probing in probings.items():
            until(f"{PROBES} probes of {name} are sent", functools.partial(has_sent, probing), limit=PATIENCE + PROBES)
    finally:
        for probing in probings.values():
            probing.close()
    lost = {name: probing.record.lost for name, probing in probings.items() if probing.record.lost}
    assert not lost or sum(map(len, lost.values())) <= site.turned_away() - before, lost


def has_sent(probing: Probing) -> bool:
    return probing.record.sent >= PROBES


def probes_of_pods(site: Site, timeout: float = STRICT) -> dict[str, Callable[[], bool]]:
    """Probes that need the table: the pods are on the node that is probed."""
    return {service: functools.partial(site.probe, service, site.own, timeout) for service in SERVED}


# The purpose of the table


@pytest.mark.sample
def test_the_trouble_comes_back_with_the_table_absent_and_nothing_else_ever_changes(bare: Site) -> None:
    site = bare
    assert observed(site) == expected(with_table=False)
    assert site.play() == 2
    assert observed(site) == expected(with_table=True)
    assert site.play() == 0
    assert site.play(state="absent") == 2
    assert observed(site) == expected(with_table=False)


def observed(site: Site) -> dict[str, object]:
    """The results of the load balancer and of a client for each Service."""
    seen: dict[str, object] = {}
    wanted = expected(with_table=True)
    for service, (policy, families) in SERVED.items():
        for node in (site.own, site.other):
            name = f"{service}: probe of {node.name}"
            answers = {site.probe(service, node, PATIENT if wanted[name] else QUICK) for _number in range(5)}
            seen[name] = answers.pop() if len(answers) == 1 else answers
            if policy == "Local":
                seen[f"{service}: health of {node.name}"] = site.health(service, node)
        for family in families:
            is_kept = site.client_seen(service, family) == CLIENTS[family]
            seen[f"{service}: the pod sees the client's {family} address"] = is_kept
    return seen


def expected(with_table: bool) -> dict[str, object]:
    """node2 has no pod. With policy Cluster its probes leave by the interface by which they came, so Linux does not check
    the scope of their source, and they reach node1 masqueraded."""
    wanted: dict[str, object] = {}
    for service, (policy, families) in SERVED.items():
        is_local = policy == "Local"
        wanted[f"{service}: probe of node1"] = with_table
        wanted[f"{service}: probe of node2"] = not is_local
        if is_local:
            wanted |= {f"{service}: health of node1": 200, f"{service}: health of node2": 503}
        wanted |= {f"{service}: the pod sees the client's {family} address": is_local for family in families}
    return wanted


# No probe is lost


def test_what_needs_no_table_loses_nothing_while_the_profile_comes_and_goes(bare: Site) -> None:
    """An HTTP probe that the node itself answers is lost if the table changes during its connection, which has either the
    translated address or the original one. Azure removes a node after two lost probes in a row."""
    site = bare
    asks: dict[str, Callable[[], bool]] = {
        "a pod of another node": lambda: site.probe("cluster-dual", site.other),
        "health check node port": lambda: any(site.health("local-dual", site.own) == 200 for _try in range(2)),
        "a client over IPv6": lambda: site.client_seen("local-dual", "IPv6") == place.CLIENT,
        "a client over IPv4": lambda: site.client_seen("local-dual", "IPv4") == place.CLIENT_IPV4,
    }
    with none_lost(site, asks):
        assert site.play() == 2
        assert site.play(state="absent") == 2


def test_none_is_lost_while_the_profile_is_upgraded(converged: Site) -> None:
    site = converged
    with none_lost(site, probes_of_pods(site)):
        assert site.play(priority=-290) == 2
        assert site.play() == 2


def test_none_is_lost_while_another_translated_address_is_set(converged: Site) -> None:
    """A pod's reply to the former address during the change is lost, and TCP sends it again."""
    site = converged
    with none_lost(site, probes_of_pods(site, PATIENT)):
        assert site.play(probes=[{"source": PROBE_SOURCE, "translated": "2001:db8:fe80::9abc"}]) == 2
        assert site.play() == 2


def test_none_is_lost_while_the_units_text_is_brought_up_to_date(converged: Site) -> None:
    site = converged
    path = f"/etc/systemd/system/{UNIT}"
    for node in (site.own, site.other):
        text = node.read(path)
        former = text.replace(" snap.k8s.kubelet.service", "")
        assert former != text
        node.write(path, former)
        node.run(["systemctl", "daemon-reload"])
    with none_lost(site, probes_of_pods(site)):
        assert site.play() == 2
    assert site.play() == 0


def test_none_is_lost_while_kube_proxy_restarts(converged: Site) -> None:
    site = converged
    with none_lost(site, probes_of_pods(site)):
        for _number in range(2):
            site.own.run(["systemctl", "restart", "kube-proxy.service"])
            site.cluster.until("its own port is back", lambda: site.health("local-dual", site.own), expected=200)


def test_none_is_lost_while_pods_come_and_go(converged: Site) -> None:
    site, deployment = converged, f"deployment/{LOCAL_POD}"
    with none_lost(site, probes_of_pods(site)):
        site.cluster.kubectl("rollout", "restart", deployment)
        site.cluster.wait_for_rollout(deployment)
        site.cluster.kubectl("scale", deployment, "--replicas=3")
        site.cluster.wait_for_rollout(deployment)
        site.cluster.kubectl("scale", deployment, "--replicas=1")
        site.cluster.until("one pod runs", lambda: len(site.cluster.pods_of(f"app={LOCAL_POD}")), expected=1)


def test_the_health_check_node_port_says_when_the_last_pod_goes(converged: Site) -> None:
    site, deployment = converged, f"deployment/{LOCAL_POD}"
    site.cluster.kubectl("scale", deployment, "--replicas=0")
    site.cluster.until("each health check fails", lambda: {site.health(service, site.own) for service in LOCAL}, expected={503})
    site.cluster.kubectl("scale", deployment, "--replicas=1")
    site.cluster.until("each health check is back", lambda: {site.health(service, site.own) for service in LOCAL}, expected={200})
    site.cluster.until("the Services are served", site.is_served)


@pytest.fixture(params=["kubelet.service", "rke2-agent.service"])
def starter(converged: Site, request: pytest.FixtureRequest) -> Iterator[str]:
    """The unit that starts kubelet on the node of the pods: kubelet.service, or the same unit under RKE2's name."""
    unit, node = request.param, converged.own
    if unit == "kubelet.service":
        yield unit
        return
    folder = "/etc/systemd/system"
    path, wanted, mask = f"{folder}/{unit}", f"{folder}/multi-user.target.wants/{unit}", f"{folder}/kubelet.service"
    node.write(path, node.run(["systemctl", "cat", "kubelet.service"]).stdout)
    node.run(["ln", "-s", path, wanted])
    node.run(["ln", "-s", "/dev/null", mask])
    yield unit
    node.run(["rm", path, wanted, mask])
    node.reboot()
    converged.cluster.wait_until_ready()


def test_the_table_is_there_before_kubelet_starts_and_none_is_lost_after_the_boot(converged: Site, starter: str) -> None:
    """Until pods are back, probes are masqueraded out of eth0. Linux drops the first packet of a later connection from the same
    port, which leaves by a pod's interface, and TCP sends it again."""
    site = converged
    site.own.reboot()
    assert entered(site.own, UNIT, "ActiveEnter") < entered(site.own, starter, "InactiveExit")
    assert has_table(site.own)
    site.cluster.wait_until_ready()
    site.cluster.until("the Services are served", site.is_served)
    with none_lost(site, probes_of_pods(site, PATIENT)):
        pass
    assert site.play() == 0


def entered(node: SystemdNode, unit: str, state: str) -> int:
    """When the unit entered the state in this boot, in microseconds since it began."""
    name = f"{state}TimestampMonotonic"
    moment = int(node.run(["systemctl", "show", "--value", f"--property={name}", unit]).stdout)
    assert moment, f"{unit} has not come to {state} in this boot"
    return moment
