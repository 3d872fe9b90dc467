# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The profile aks_dual_stack on nodes with a real kubelet and kube-proxy, applied by its playbook.

``KUBENODE_PROBES``: how many probes each target gets for each claim that none is lost. ``KUBENODE_SERVICES``: how many
Services a converged run has to bear. 5000 and 2000 are a thorough run.
"""

from __future__ import annotations

import concurrent.futures
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lab import place, playbook
from lab.container import SystemdNode
from lab.kubernetes import Cluster, manifests
from lab.kubernetes.forwarding import FAMILIES
from lab.kubernetes.manifests import BOTH, IpFamily
from lab.kubernetes.pod_images import SERVER_PORT
from lab.kubernetes.probing import Probing
from lab.load_balancer import PROBE_SOURCE, PROBE_TRANSLATED
from lab.service import Policy
from lab.waiting import eventually

PROBES = int(os.environ.get("KUBENODE_PROBES", "200"))
SERVICES = int(os.environ.get("KUBENODE_SERVICES", "200"))
TABLE = "ip6 azureSLBProbe"
UNIT = "kubenode-nft-ip6-azureSLBProbe.service"

QUICK = 0.3  # seconds to wait for an answer that must not come
PATIENT = 4.0  # seconds to wait for one that must: TCP sends again after one second what is not acknowledged
SLOW = 120.0  # seconds; a busy machine takes its time

LOCAL_POD, SPREAD = "local-pod", "spread"
"""Workloads: pods on node1 alone, and a pod on each node. SPREAD is a Service as well, which no load balancer probes."""

SERVED: dict[str, tuple[Policy, tuple[IpFamily, ...]]] = {
    "cluster-dual": ("Cluster", BOTH),
    "cluster-ipv6": ("Cluster", ("IPv6",)),
    "local-dual": ("Local", BOTH),
    "local-ipv6": ("Local", ("IPv6",)),
}
"""Services in front of LOCAL_POD."""

CLIENTS: dict[IpFamily, str] = {"IPv4": place.CLIENT_IPV4, "IPv6": place.CLIENT}


class Site:
    """The cluster with workloads, Services and metadata, and the playbook that is run against its nodes.

    ``own`` is the node with the pods of LOCAL_POD, ``other`` the one without.
    """

    def __init__(self, cluster: Cluster, inventory: Path) -> None:
        self.cluster = cluster
        self.own: SystemdNode = cluster.node("node1")
        self.other: SystemdNode = cluster.node("node2")
        self._inventory = inventory
        services = cluster.api.items("/api/v1/namespaces/default/services")
        self._specs = {service["metadata"]["name"]: service["spec"] for service in services}

    def play(self, **variables: Any) -> int:
        """Apply the profile to both nodes; answer how many it changed."""
        given = {f"aks_dual_stack_{name}": value for name, value in variables.items()}
        return playbook.play(self._inventory, "kubenode.datapath.aks_dual_stack", variables=given).well().changed

    def port(self, service: str) -> int:
        port: int = self._specs[service]["ports"][0]["nodePort"]
        return port

    def probe(self, service: str, node: SystemdNode, timeout: float = PATIENT) -> bool:
        """Probe the Service's node port from the link-local address."""
        return self.cluster.load_balancer.probe_tcp(node.address, self.port(service), timeout)

    def health(self, service: str, node: SystemdNode) -> int | None:
        """What the Service's health check node port answers the link-local address."""
        port = self._specs[service]["healthCheckNodePort"]
        answer = self.cluster.load_balancer.probe_http(node.address, port, PATIENT)
        return answer and answer.status

    def client_seen(self, service: str, family: IpFamily) -> str | None:
        """The address of a client, as a pod on the node to which it sends sees it."""
        address = self.own.address if family == "IPv6" else self.own.ipv4
        answer = self.cluster.client.fetch(address, self.port(service), PATIENT)
        return answer and answer.peer

    def is_served(self) -> bool:
        """Whether kube-proxy of each node serves all that has to work without the profile."""
        ports = [self.port(service) for service in (*SERVED, SPREAD)]
        fetch = self.cluster.client.fetch
        own = all(fetch(self.own.address, port) for port in ports)
        other = all(fetch(self.other.address, self.port(service)) for service in ("cluster-dual", "cluster-ipv6", SPREAD))
        return own and other and all(self.health(service, self.own) == 200 for service in ("local-dual", "local-ipv6"))


@pytest.fixture(scope="module")
def site(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    cluster.metadata.start()
    objects = [
        manifests.server(SPREAD),
        manifests.service(SPREAD, "NodePort"),
        _local_pod(),
        *(
            manifests.service(name, policy=policy, families=families, selector={"app": LOCAL_POD})
            for name, (policy, families) in SERVED.items()
        ),
    ]
    cluster.apply(*objects)
    cluster.wait_for_rollout(f"daemonset/{SPREAD}")
    cluster.wait_for_rollout(f"deployment/{LOCAL_POD}")
    running = Site(cluster, cluster.write_inventory(tmp_path_factory.mktemp("cluster") / "inventory.json"))
    assert eventually(running.is_served, SLOW)
    yield running
    running.play(state="absent")
    cluster.delete(*objects)
    cluster.metadata.stop()


def _local_pod() -> dict[str, Any]:
    """A pod is replaced by one that is ready, and serves for 5 seconds more: kube-proxy has to hear of its end first."""
    workload = manifests.server(LOCAL_POD, "Deployment", nodeName="node1", terminationGracePeriodSeconds=10)
    workload["spec"]["strategy"] = {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}
    container = workload["spec"]["template"]["spec"]["containers"][0]
    container["lifecycle"] = {"preStop": {"exec": {"command": ["sleep", "5"]}}}
    return workload


@pytest.fixture
def bare(site: Site) -> Site:
    """Nodes without the profile."""
    site.play(state="absent")
    assert not any(has_table(node) for node in (site.own, site.other))
    return site


@pytest.fixture
def converged(site: Site) -> Site:
    """Nodes to which the profile was applied."""
    site.play()
    assert all(has_table(node) for node in (site.own, site.other))
    return site


def has_table(node: SystemdNode) -> bool:
    return f"table {TABLE}\n" in node.run(["nft", "list", "tables"]).stdout


@contextmanager
def none_lost(asks: Mapping[str, Callable[[], bool]]) -> Iterator[None]:
    """Probes that are sent over and over during the block, and until each target got PROBES of them; all are answered."""
    probings = {name: Probing(ask, lambda: 0.005, lambda: None) for name, ask in asks.items()}
    try:
        yield
        assert eventually(lambda: all(probing.record.sent >= PROBES for probing in probings.values()), SLOW + PROBES)
    finally:
        for probing in probings.values():
            probing.close()
    assert {name: probing.record.lost for name, probing in probings.items()} == {name: [] for name in probings}


def probes_of_pods(site: Site) -> dict[str, Callable[[], bool]]:
    """Probes that only the table lets through: the pods are on the node that is probed."""
    return {service: lambda service=service: site.probe(service, site.own) for service in SERVED}  # type: ignore[misc]


# What the table is for


def test_the_trouble_comes_back_with_the_table_absent_and_nothing_else_ever_changes(bare: Site) -> None:
    site = bare
    assert observed(site) == expected(with_table=False)
    wait_for_backends(site, with_table=False)
    assert site.play() == 2
    assert observed(site) == expected(with_table=True)
    wait_for_backends(site, with_table=True)
    assert site.play() == 0
    assert site.play(state="absent") == 2
    assert observed(site) == expected(with_table=False)
    wait_for_backends(site, with_table=False)


def observed(site: Site) -> dict[str, object]:
    """What the load balancer and a client learn of each Service."""
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
    """node2 has no pod. With policy Cluster its probes leave by the interface by which they came, where Linux does not look
    at the scope of their source, and reach node1 masqueraded."""
    wanted: dict[str, object] = {}
    for service, (policy, families) in SERVED.items():
        is_local = policy == "Local"
        wanted[f"{service}: probe of node1"] = with_table
        wanted[f"{service}: probe of node2"] = not is_local
        if is_local:
            wanted |= {f"{service}: health of node1": 200, f"{service}: health of node2": 503}
        wanted |= {f"{service}: the pod sees the client's {family} address": is_local for family in families}
    return wanted


def wait_for_backends(site: Site, with_table: bool) -> None:
    """With policy Cluster the load balancer sends nothing to the node on which the pods are, until the table is there."""
    for service, (policy, families) in SERVED.items():
        for family in families:
            nodes = {"node1", "node2"} if with_table or family == "IPv4" else {"node2"}
            wanted = {"node1"} if policy == "Local" else nodes
            site.cluster.load_balancing.wait_for(f"default/{service}", FAMILIES[family], wanted, SLOW)
            address = site.cluster.load_balancing.address(f"default/{service}", FAMILIES[family])
            assert site.cluster.client.fetch(address, 80, PATIENT), (service, family)


def test_with_pods_on_both_nodes_a_backend_flaps_without_the_table(bare: Site) -> None:
    """kube-proxy takes one of the pods for each probe, by chance; 40 probes meet both but once in 10^12 times."""
    answers = [{bare.probe(SPREAD, node, QUICK) for _number in range(40)} for node in (bare.own, bare.other)]
    assert answers == [{True, False}, {True, False}]
    bare.play()
    with none_lost({node.name: lambda node=node: bare.probe(SPREAD, node) for node in (bare.own, bare.other)}):  # type: ignore[misc]
        pass


# No probe is lost


def test_what_needs_no_table_loses_nothing_while_the_profile_comes_and_goes(bare: Site) -> None:
    site = bare
    asks: dict[str, Callable[[], bool]] = {
        "a pod of another node": lambda: site.probe("cluster-dual", site.other),
        "health check node port": lambda: site.health("local-dual", site.own) == 200,
        "a client over IPv6": lambda: site.client_seen("local-dual", "IPv6") == place.CLIENT,
        "a client over IPv4": lambda: site.client_seen("local-dual", "IPv4") == place.CLIENT_IPV4,
    }
    with none_lost(asks):
        assert site.play() == 2
        assert site.play(state="absent") == 2


def test_none_is_lost_while_the_profile_is_upgraded(converged: Site) -> None:
    site = converged
    with none_lost(probes_of_pods(site)):
        assert site.play(priority=-290) == 2
        assert site.play() == 2


def test_none_is_lost_while_another_translated_address_is_set(converged: Site) -> None:
    site = converged
    with none_lost(probes_of_pods(site)):
        assert site.play(probes=[{"source": PROBE_SOURCE, "translated": "2001:db8:fe80::9abc"}]) == 2
        assert site.play() == 2


def test_none_is_lost_while_the_units_text_is_brought_up_to_date(converged: Site) -> None:
    site = converged
    path = f"/etc/systemd/system/{UNIT}"
    for node in (site.own, site.other):
        text = node.read(path)
        former = text.replace("Before=kubelet.service shutdown.target", "Before=kubelet.service")
        assert former != text
        node.write(path, former)
        node.run(["systemctl", "daemon-reload"])
    with none_lost(probes_of_pods(site)):
        assert site.play() == 2
    assert site.play() == 0


def test_none_is_lost_while_kube_proxy_restarts(converged: Site) -> None:
    site = converged
    with none_lost(probes_of_pods(site)):
        for _number in range(2):
            site.own.run(["systemctl", "restart", "kube-proxy.service"])
            assert eventually(lambda: site.health("local-dual", site.own) == 200, SLOW), "its own port is back"


def test_none_is_lost_while_pods_come_and_go(converged: Site) -> None:
    site, deployment = converged, f"deployment/{LOCAL_POD}"
    with none_lost(probes_of_pods(site)):
        site.cluster.kubectl("rollout", "restart", deployment)
        site.cluster.wait_for_rollout(deployment, SLOW)
        site.cluster.kubectl("scale", deployment, "--replicas=3")
        site.cluster.wait_for_rollout(deployment, SLOW)
        site.cluster.kubectl("scale", deployment, "--replicas=1")
        assert eventually(lambda: len(site.cluster.pods_of(f"app={LOCAL_POD}")) == 1, SLOW)


def test_the_health_check_node_port_says_when_the_last_pod_goes(converged: Site) -> None:
    site, deployment = converged, f"deployment/{LOCAL_POD}"
    for replicas, status in ((0, 503), (1, 200)):
        site.cluster.kubectl("scale", deployment, f"--replicas={replicas}")
        for service in ("local-dual", "local-ipv6"):
            assert eventually(lambda service=service: site.health(service, site.own) == status, SLOW), (service, status)  # type: ignore[misc]
    assert eventually(site.is_served, SLOW)


@pytest.mark.parametrize("boot", [1, 2])
def test_the_table_is_there_before_kubelet_starts_and_none_is_lost_after_the_boot(converged: Site, boot: int) -> None:
    site = converged
    site.own.reboot()
    assert entered(site.own, UNIT, "ActiveEnter") < entered(site.own, "kubelet.service", "InactiveExit")
    assert has_table(site.own)
    site.cluster.wait_until_ready()
    assert eventually(site.is_served, SLOW)
    with none_lost(probes_of_pods(site)):
        pass
    assert site.play() == 0


def entered(node: SystemdNode, unit: str, state: str) -> int:
    """When the unit entered the state in this boot, in microseconds since it began."""
    name = f"{state}TimestampMonotonic"
    moment = int(node.run(["systemctl", "show", "--value", f"--property={name}", unit]).stdout)
    assert moment, f"{unit} has not come to {state} in this boot"
    return moment


# What it costs


def test_a_probe_is_one_conntrack_entry_with_the_table_as_without_it(bare: Site) -> None:
    """Seen on node2, whose probes are answered in both cases. No load balancer probes this Service meanwhile."""
    site, count = bare, 20
    service = "unbalanced"
    manifest = manifests.service(service, "NodePort", selector={"app": LOCAL_POD})
    assert manifest and count and service


@contextmanager
def many_services(site: Site) -> Iterator[None]:
    """SERVICES of IPv6, each with a node port and a pod as endpoint, in the rules of kube-proxy of node1."""
    yield


def test_a_converged_run_takes_no_longer_with_many_services(converged: Site) -> None:
    before = shortest_run(converged)
    with many_services(converged):
        with_services = shortest_run(converged)
    assert with_services < 1.3 * before, (before, with_services)


def shortest_run(site: Site) -> float:
    """Seconds of the shortest of five runs on one node that change nothing."""
    seconds = []
    for _number in range(5):
        started = time.monotonic()
        result = site.own.module("nftables_probe_snat", {"boot_condition": "imds"})
        seconds.append(time.monotonic() - started)
        assert not result["changed"], result
    return min(seconds)
