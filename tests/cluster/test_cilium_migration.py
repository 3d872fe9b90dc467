# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The profile cilium_migration on a node with a real kubelet, container runtime and API, applied by its playbook.

A plugin of the lab stands for azure-vnet and for Cilium (lab.kubernetes.succession). A pod with the former address of a pod
of azure-vnet is ready, because kubelet probes it from the node itself, but other machines cannot reach it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lab import azure_vnet, playbook
from lab.container import SystemdNode
from lab.kubernetes import Cluster, manifests, succession
from lab.kubernetes.cluster import RunningPod
from lab.kubernetes.delivery import Delivery
from lab.kubernetes.pod_images import SERVER_PORT
from lab.playbook import Played
from lab.prober import Prober
from lab.probing import Probing
from lab.steps import warnings

QUICK = 0.5  # seconds to wait for an answer that must not come
PATIENT = 4.0  # seconds to wait for an answer that must come

WEB, AGENT = "web", "agent"
"""Workloads of the node: a Deployment, which is drained, and a DaemonSet, which is not. WEB is a Service as well."""

REPLICAS = 3
"""With one of AGENT, four pods had addresses of azure-vnet: of the five that are free for WEB two never were one of its pods'."""

PAST = [azure_vnet.AzurePod(number) for number in (1, 2)]


class Site:
    """node1, which azure-vnet serves at first; node2 and the client send requests to its pods."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster = cluster
        self.node: SystemdNode = cluster.node("node1")
        self.other: SystemdNode = cluster.node("node2")
        self._kubectl = folder / "kubectl"
        cluster.write_kubectl(self._kubectl)
        self._inventory = cluster.write_inventory(folder / "inventory.json")

    def play(self, *arguments: str, **variables: Any) -> Played:
        """Apply the profile to node1."""
        prefixed = {f"cilium_migration_{name}": value for name, value in {"grace": 2, **variables}.items()}
        prefixed |= {"kubenode_target": "node1", "cilium_migration_kubectl": [str(self._kubectl)]}
        return playbook.play(self._inventory, "kubenode.datapath.cilium_migration", *arguments, variables=prefixed).well()

    def addresses(self, workload: str) -> set[str]:
        return {pod.ipv4 for pod in self._pods(workload)}

    def reached(self, unreachable: Sequence[str] | set[str] = ()) -> set[str]:
        """The addresses of node1's pods that answer both the other node and a client from outside."""
        answered: set[str] = set()
        for pod in (*self._pods(WEB), *self._pods(AGENT)):
            patience = QUICK if pod.ipv4 in unreachable else PATIENT
            asked = (Prober(self.other), Prober(self.cluster.client))
            answers = {one.http(pod.ipv4, SERVER_PORT, patience, 1) is not None for one in asked}
            assert len(answers) == 1, f"one of two reaches {pod.ipv4}"
            answered.update({pod.ipv4} if answers == {True} else ())
        return answered

    def all_addresses(self) -> set[str]:
        return self.addresses(WEB) | self.addresses(AGENT)

    def restart_web(self) -> None:
        """End all pods of the Deployment before new ones start."""
        self.cluster.kubectl("scale", f"deployment/{WEB}", "--replicas=0")
        pods = f"/api/v1/namespaces/default/pods?labelSelector=app%3D{WEB}"
        self.cluster.until("all pods of the Deployment are gone", lambda: not self.cluster.api.items(pods))
        self.cluster.kubectl("scale", f"deployment/{WEB}", f"--replicas={REPLICAS}")
        self.wait_for_web()

    def wait_for_web(self) -> None:
        self.cluster.wait_for_rollout(f"deployment/{WEB}")
        self.cluster.until("no other pods of the Deployment run", lambda: len(self._pods(WEB)), expected=REPLICAS)

    def seen(self) -> dict[str, Any]:
        """The result of cni_info."""
        found: dict[str, Any] = self.node.module("cni_info", {})
        assert not found["failed"], found
        return found

    def azure_rules(self) -> list[str]:
        return azure_vnet.rules(self.node)

    def is_cordoned(self) -> bool:
        return bool(self.cluster.get("node", "node1")["spec"].get("unschedulable"))

    def _pods(self, workload: str) -> list[RunningPod]:
        return [pod for pod in self.cluster.pods_of(f"app={workload}") if pod.node == "node1"]


@pytest.fixture(scope="module")
def site(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    running = Site(cluster, tmp_path_factory.mktemp("migration"))
    succession.serve_by_azure_vnet(running.node)
    here = {"kubernetes.io/hostname": "node1"}
    web = manifests.server(WEB, "Deployment", nodeSelector=here)
    web["spec"]["replicas"] = REPLICAS
    objects = [manifests.server(AGENT, nodeSelector=here), web, manifests.service(WEB, "NodePort", families=["IPv4"])]
    cluster.apply(*objects)
    cluster.wait_for_rollout(f"daemonset/{AGENT}")
    running.wait_for_web()
    yield running
    cluster.delete(*objects)
    for path in (azure_vnet.CONFLIST, azure_vnet.CILIUM):
        running.node.remove(path)
    running.node.reboot()
    cluster.wait_until_ready()


@contextmanager
def none_lost(site: Site, address: str) -> Iterator[None]:
    """A pod gets requests during the whole block, and answers each."""
    prober = Prober(site.other)
    probing = Probing(lambda: prober.http(address, SERVER_PORT, PATIENT, 1) is not None, 0.02)
    try:
        yield
    finally:
        probing.close()
    assert probing.record.sent > 20 and not probing.record.lost


def test_pods_that_reuse_addresses_of_azure_vnets_are_reached_once_the_role_was_applied(site: Site) -> None:
    # azure-vnet serves.
    former = site.all_addresses()
    assert len(former) == REPLICAS + 1 and site.reached() == former
    assert len(site.seen()["pods"]["azure_vnet"]) == len(former)
    agent, *_none = site.addresses(AGENT)

    # Cilium takes over, and new pods are unreachable.
    succession.serve_by_cilium(site.node)
    assert site.reached() == former
    site.restart_web()
    stolen = site.addresses(WEB) & former
    assert stolen and site.reached(stolen) == site.all_addresses() - stolen
    pods = site.seen()["pods"]
    assert (len(pods["azure_vnet"]), len(pods["cilium"])) == (1, REPLICAS)

    # The role, with cordon and drain through the API.
    rules = site.azure_rules()
    foretold = site.play("--check", drain=True)
    assert site.azure_rules() == rules and not site.is_cordoned()
    assert site.reached(stolen) == site.all_addresses() - stolen
    before = {pod.name for pod in site.cluster.pods_of(f"app={WEB}")}
    with none_lost(site, agent):
        played = site.play(drain=True, verify=[{"address": agent, "port": SERVER_PORT}], verify_from="node2")
    assert played.changed == foretold.changed == 3, "taken out of service, cleaned up, taken into service"
    assert (
        not site.is_cordoned()
        and "kubenode.datapath/cordoned" not in site.cluster.get("node", "node1")["metadata"]["annotations"]
    )
    assert "of azure-vnet lives: kubectl drain does not evict it, as it is of the DaemonSet default/agent" in played.output
    assert site.node.exists(azure_vnet.STATE), "azure-vnet needs it to delete the pod of the DaemonSet"
    site.wait_for_web()
    assert not before & {pod.name for pod in site.cluster.pods_of(f"app={WEB}")}, "all were drained"
    reused = site.addresses(WEB) & former
    assert reused and site.reached() == site.all_addresses()
    assert site.play(drain=True).changed == 0 and not site.is_cordoned()

    # Removed objects are restored, except for rules that would divert the traffic of live pods.
    assert site.play(state="restored").changed == 1
    taken = site.all_addresses() - {agent}
    assert site.azure_rules() == [rule for rule in rules if not taken & set(rule.split())]
    assert site.reached() == site.all_addresses()
    assert site.play().changed == 1
    assert site.reached() == site.all_addresses()

    # Until now, the pod of the DaemonSet was azure-vnet's.
    assert {agent} == site.addresses(AGENT) and any(agent in rule for rule in site.azure_rules())
    (last,) = site.cluster.pods_of(f"app={AGENT}")
    played = site.play(bridge=True, restart_daemonset_pods=True)
    assert played.changed == 3, "taken out of service, cleaned up without the bridge, taken into service"
    assert f"pod default/{last.name} of azure-vnet has ended" in played.output and not site.is_cordoned()
    assert site.azure_rules() == [] and not site.node.exists(azure_vnet.STATE)
    assert site.seen()["bridge"] == "" and site.seen()["pods"]["azure_vnet"] == []
    site.restart_web()
    assert site.reached() == site.all_addresses()
    assert site.play(drain=True, bridge=True).changed == 0
    assert _answering(site, site.other.ipv4) == {pod.name for pod in site.cluster.pods_of(f"app={WEB}")}


def _answering(site: Site, address: str) -> set[str]:
    """The pods that answer a client at the node port of WEB; of three, 40 connections miss one but once in 10^6 times."""
    port = site.cluster.node_port(WEB)
    answers = [site.cluster.client.fetch(address, port, PATIENT) for _number in range(40)]
    return {answer.host if answer else "none" for answer in answers}


def test_chains_of_a_kube_proxy_that_was_replaced_are_named_and_stay(site: Site) -> None:
    if not site.seen()["is_cilium"]:
        succession.serve_by_cilium(site.node)
    node = site.node
    assert (site.seen()["kube_proxy_leftovers"], warnings(site.seen())) == ({}, [])
    node.run(["systemctl", "stop", "kube-proxy.service"])
    chains = node.run(["iptables-save"]).stdout
    try:
        output = " ".join(site.play("--check").output.split())
        assert "kube-proxy does not run on the node" in output and "run kube-proxy --cleanup" in output
        leftovers = site.seen()["kube_proxy_leftovers"]
        first, *more = leftovers["ip nat (nft)"]
        line = f"left alone, perhaps of kube-proxy: chain {first} and {len(more)} more in ip nat (nft): kube-proxy does not run"
        assert line in output and "To remove it: iptables-nft-save -c -t nat | grep" in output
        assert {"KUBE-SERVICES", "KUBE-NODEPORTS"} < set(leftovers["ip nat (nft)"]) and "ip6 nat (nft)" in leftovers
        assert [name for name in leftovers["ip nat (nft)"] if name.startswith("KUBE-SVC-")], "and those of each Service"
        assert _chains(node.run(["iptables-save"]).stdout) == _chains(chains)
        node.run(["/opt/kubernetes/kube-proxy", "--cleanup"], check=False)
        assert site.seen()["kube_proxy_leftovers"] == {}, "the program that the warning names removes them"
    finally:
        node.run(["systemctl", "start", "kube-proxy.service"])
    site.cluster.until(
        "the node answers at the same ports as the other",
        lambda: _answering(site, node.ipv4),
        expected=_answering(site, site.other.ipv4),
    )


def _chains(saved: str) -> list[str]:
    return sorted(line.split()[0] for line in saved.splitlines() if line.startswith(":"))


def test_the_daemonset_cleans_up_and_its_overlay_absent_restores(site: Site, agent: str, tmp_path: Path) -> None:
    """node1 has azure-vnet's leftovers of removed pods. Cilium does not serve node2, so node2 is refused."""
    if not site.seen()["is_cilium"]:
        succession.serve_by_cilium(site.node)
    azure_vnet.ebtables(site.node, [rule for pod in PAST for rule in pod.rules])
    site.node.write(azure_vnet.STATE, azure_vnet.state_text(site.node.place.mac(), PAST), 0o600)
    rules = past_rules(site)
    assert rules
    with Delivery(site.cluster, agent, tmp_path, "cilium-migration", interval=10) as delivery:
        delivery.apply()
        refused = "Cilium does not serve"
        delivery.until("one node converges and one refuses", lambda: delivery.ready == 1 and refused in delivery.pods())
        assert past_rules(site) == [] and site.reached() == site.all_addresses()
        assert "changed ebtables_cleanup" in delivery.events(site.node.name)
        assert refused in delivery.events(site.other.name) and "Applied" not in delivery.events(site.other.name)
        delivery.apply_absent()
        assert past_rules(site) == rules
    assert site.play().changed == 1 and past_rules(site) == []


def past_rules(site: Site) -> list[str]:
    return [rule for rule in site.azure_rules() if {pod.address for pod in PAST} & set(rule.split())]
