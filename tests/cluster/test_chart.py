# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The Helm chart on a real Kubernetes: installed, upgraded, undone and uninstalled by helm."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import installation
import pytest

from lab import entering, host
from lab.container import SystemdNode
from lab.delivered import CHART, NAMESPACE, Kustomize
from lab.kubernetes import Cluster

TABLE = "table ip6 azureSLBProbe"
PROFILE = {"profile": "aks_dual_stack", "interval": 0.1}
Helm = Callable[..., str]


@pytest.fixture(scope="module")
def helm(cluster: Cluster, agent: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Helm]:
    """Runs helm in the control plane's network, with values that every release has. The namespace is there."""
    folder = tmp_path_factory.mktemp("helm")
    cluster.load_image(agent, folder)
    repository, _colon, tag = agent.rpartition(":")
    (folder / "image.json").write_text(json.dumps({"image": {"repository": repository, "tag": tag}}))
    environment = {**entering.ENVIRONMENT, "HOME": str(folder), "KUBECONFIG": str(cluster.api.configuration)}

    def run(*words: str, **values: Any) -> str:
        (folder / "values.json").write_text(json.dumps(values))
        command = [str(installation.helm()), f"--namespace={NAMESPACE}", *words]
        if CHART.as_posix() in words:
            command += [f"--values={folder / name}.json" for name in ("image", "values")]
        return host.run(cluster.control_plane.command(command, entering.NETWORK_ONLY), env=environment)

    namespace = Kustomize(folder).text("namespace")
    cluster.kubectl("apply", "--filename=-", input=namespace)
    yield run
    cluster.kubectl("delete", "--filename=-", input=namespace)


def wait(cluster: Cluster, release: str) -> None:
    cluster.wait_for_rollout(f"daemonset/kubenode-agent-{release}", NAMESPACE)


def metrics(node: SystemdNode, port: int) -> str:
    fetch = f"import urllib.request; print(urllib.request.urlopen('http://127.0.0.1:{port}/metrics').read().decode())"
    return node.run(["python3", "-c", fetch]).stdout


def objects(cluster: Cluster) -> str:
    kinds = "daemonsets,configmaps,serviceaccounts,networkpolicies,clusterroles,clusterrolebindings"
    return "\n".join(re.findall(r"\S*kubenode\S*", cluster.kubectl("get", kinds, f"--namespace={NAMESPACE}", "--output=name")))


def test_the_audit_is_installed_and_leaves_nothing(cluster: Cluster, helm: Helm) -> None:
    watched: dict[str, Any] = {"dashboard": {"enabled": True}, "networkPolicy": {"enabled": True}}
    printed = helm("install", "audit", str(CHART), interval=0.1, **watched)
    assert "changes nothing" in printed
    wait(cluster, "audit")
    for node in cluster.workers:
        assert isinstance(node, SystemdNode)
        assert "kubenode_datapath_audit_timestamp_seconds 1" in metrics(node, 9466)
    assert "kubenode-dashboard" in objects(cluster)
    helm("uninstall", "audit", "--wait")
    assert objects(cluster) == ""


def test_a_profile_is_applied_changed_undone_and_uninstalled(cluster: Cluster, helm: Helm) -> None:
    def tables() -> list[bool]:
        return [TABLE in node.run(["nft", "list", "tables"]).stdout for node in cluster.workers]

    helm("install", "pool", str(CHART), variables={"aks_dual_stack_ipv6": "address"}, **PROFILE)
    wait(cluster, "pool")
    assert tables() == [True, True]
    changed = {"aks_dual_stack_ipv6": "address", "aks_dual_stack_priority": -290}
    helm("upgrade", "pool", str(CHART), variables=changed, **PROFILE)
    wait(cluster, "pool")
    for node in cluster.workers:
        assert "priority raw + 10" in node.run(["nft", "list", *TABLE.split()]).stdout  # nft's words for -290
    helm("upgrade", "pool", str(CHART), variables=changed, state="absent", **PROFILE)
    wait(cluster, "pool")
    assert tables() == [False, False]
    helm("uninstall", "pool", "--wait")
    assert objects(cluster) == ""
