# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What kubectl prints about a node and its pods, and what is concluded from it."""

from __future__ import annotations

import contextlib
from subprocess import CompletedProcess
from typing import Any

import pytest

pytest.importorskip("ansible")

from ansible.errors import AnsibleFilterError

from ansible_collections.kubenode.datapath.plugins.filter.node_pods import node_pods
from ansible_collections.kubenode.datapath.plugins.plugin_utils import _node_service
from ansible_collections.kubenode.datapath.plugins.plugin_utils._node_service import (
    Failure,
    Kubectl,
    NodeService,
    Outcome,
    Waits,
)
from unit.lies import lies

LINKS = [{"link": f"azv{number}", "addresses": [f"10.240.0.{number}", f"fd00::{number}"]} for number in (1, 2, 3, 4)]
OPTIONS = {
    "state": "absent",
    "drain": True,
    "drain_options": ["--force"],
    "restart_daemonset_pods": True,
    "restart_timeout": 5,
}
CNI = {"cilium_agent": {"not_ready_taint": "node.cilium.io/agent-not-ready"}, "azure_vnet": {"pods": LINKS}}


def line(name: str, kind: str, address: str = "", is_ready: bool = True) -> str:
    return f"default|{name}|{kind}|{kind and 'web'}|{is_ready}|{address}"


LISTING = "\n".join(
    [
        line("a", "ReplicaSet", "10.240.0.1"),
        line("b", "DaemonSet", "10.9.9.9 fd00::2"),
        line("c", "Node", "10.240.0.3"),
        line("d", ""),
    ]
)


def test_pods_are_sorted_by_what_ends_them() -> None:
    pods = _node_service.live_pods(LISTING, LINKS)
    assert [[pod["name"] for pod in pods[kind]] for kind in ("evictable", "daemonset", "static")] == [["a"], ["b"], ["c"]]
    assert pods["unnamed"] == ["azv4"] and pods["daemonset"][0]["owner"] == "DaemonSet default/web"


def test_a_line_of_other_fields_is_an_error() -> None:
    with pytest.raises(Failure, match="kubectl printed 'a[|]b'; six fields were expected"):
        _node_service.parse("a|b")


def test_whatever_a_node_says_of_its_links_the_pods_are_parsed_or_it_is_an_error() -> None:
    for _path, lie in lies(LINKS[:2]):
        try:
            pods = node_pods(LISTING, lie)
        except AnsibleFilterError as error:
            assert "links" in str(error) and "as kubenode.datapath.cni_info returns it" in str(error)
        else:
            assert [pod["name"] for pod in pods] == ["a", "b", "c", "d"]


NAMES = [
    "--selector=kubernetes.io/os=linux",
    "-n",
    "Node1",
    "node_1",
    "node1.",
    ".node1",
    "a..b",
    "node1 node2",
    "",
    "n" * 254,
    "node1\n",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_kubernetes_does_not_permit_reaches_no_command(name: str) -> None:
    cluster = Cluster()
    with pytest.raises(Failure, match="is not the name of a node in Kubernetes"):
        cluster.service(Outcome(), name=name)
    for names, kind in ((f"default|{name}", "pod"), (f"{name}|pod", "namespace"), ("a.b|pod", "namespace")):
        with pytest.raises(Failure, match=f"is not the name of a {kind} in Kubernetes"):
            _node_service._pod(f"{names}|DaemonSet|web|True|", {})


@pytest.mark.parametrize("name", ["node1", "ip-10-0-0-1.ec2.internal", "0", "n" * 253])
def test_a_name_that_kubernetes_permits_follows_the_options(name: str) -> None:
    cluster = Cluster()
    cluster.service(Outcome(cordoned=True), name=name).take_in()
    assert cluster.calls == [f"uncordon -- {name}", f"annotate node -- {name} kubenode.datapath/cordoned-"]


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ("", ""),
        ("a", "waits for the eviction of default/a"),
        ("abcde", "waits for the eviction of default/a, default/b, default/c and 2 more"),
    ],
)
def test_a_drain_waits_for_pods_that_it_evicts(names: str, text: str) -> None:
    listing = [line(name, "ReplicaSet") for name in names]
    assert _node_service.evictions([line("agent", "DaemonSet"), *listing, line("static", "Node")]) == text
    assert _node_service.evictions([*listing, "kubectl: no route to host"]) == ""


def ended(status: int, stdout: str, stderr: str) -> CompletedProcess[str]:
    return CompletedProcess([], status, stdout, stderr)


class Cluster:
    """A node whose pods of a DaemonSet are replaced when they are deleted; answers as kubectl does, and has its calls."""

    def __init__(self, node: str = "|||", fails: str = "") -> None:
        self.calls: list[str] = []
        self.notes: list[str] = []
        self._node, self._listing, self._fails = node, LISTING, fails

    def service(self, outcome: Outcome, is_check: bool = False, name: str = "node1") -> NodeService:
        waits = Waits(self.notes.append, contextlib.nullcontext())
        return NodeService(Kubectl(["kubectl"], self._run, is_check), name, waits, outcome)

    def _run(self, command: Any) -> CompletedProcess[str]:
        _kubectl, *words = command
        self.calls.append(" ".join(word for word in words if words[0] != "get" or not word.startswith(("--output", "--field"))))
        if words[0] == self._fails:
            return ended(1, "", "refused\n")
        if words[0] == "delete":
            self._listing = self._listing.replace("|b|", "|b2|")
        return ended(0, {"node": f"{self._node}\n", "pods": self._listing}.get(words[1], ""), "")


GET = ["get node -- node1", "get pods --all-namespaces"]
CORDON = [
    "annotate node --overwrite -- node1 kubenode.datapath/cordoned=true",
    *("cordon -- node1", "drain --force -- node1"),
]
RESTART = ["delete pod --namespace=default --timeout=5s -- b", "get pods --all-namespaces"]
RELEASE = ["annotate node -- node1 kubenode.datapath/cordoned-"]


def test_a_node_goes_out_of_service_and_back() -> None:
    cluster, outcome = Cluster("||MC_a|"), Outcome()
    cluster.service(outcome).take_out(OPTIONS, CNI, is_due=False)
    assert cluster.calls == [*GET, *CORDON, *RESTART]
    assert outcome.changed and outcome.cordoned and not outcome.was_cordoned and outcome.aks_cluster == "MC_a"
    assert cluster.notes == ["waits for the end of the pod default/b"]
    cluster.calls.clear()
    cluster.service(outcome).take_in()
    assert cluster.calls == ["uncordon -- node1", *RELEASE] and not outcome.cordoned


def test_an_api_that_does_not_answer_while_a_pod_starts_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    class Blinking(Cluster):
        def _run(self, command: Any) -> CompletedProcess[str]:
            result = super()._run(command)
            return ended(1, "", "refused") if self.calls[-2:] == RESTART else result

    monkeypatch.setattr(_node_service, "PAUSE", 0.0)
    cluster, outcome = Blinking(), Outcome()
    cluster.service(outcome).take_out(OPTIONS, CNI, is_due=False)
    assert cluster.calls == [*GET, *CORDON, *RESTART, RESTART[1]]
    assert cluster.notes[-1] == "waits for a ready pod of the DaemonSet default/web on node1"


def test_an_api_that_refuses_until_the_end_is_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing(Cluster):
        def _run(self, command: Any) -> CompletedProcess[str]:
            result = super()._run(command)
            return ended(1, "", "Forbidden") if "delete" in "".join(self.calls) and command[1] == "get" else result

    monkeypatch.setattr(_node_service, "PAUSE", 0.0)
    with pytest.raises(Failure, match="within 0 s there was not a ready pod of the DaemonSet default/web .* Forbidden"):
        Refusing().service(Outcome()).take_out({**OPTIONS, "restart_timeout": 0}, CNI, is_due=False)


def test_in_check_mode_each_write_is_a_dry_run_and_nothing_is_awaited() -> None:
    cluster, outcome = Cluster(), Outcome()
    cluster.service(outcome, is_check=True).take_out(OPTIONS, CNI, is_due=False)
    assert (
        cluster.calls == [*GET, *(call.replace(" -- ", " --dry-run=client -- ") for call in [*CORDON, RESTART[0]])]
        and outcome.changed
    )


@pytest.mark.parametrize(
    ("node", "is_due", "calls", "cordoned", "was_cordoned"),
    [
        ("|||", False, [], False, False),
        ("|true||", False, RELEASE, False, False),
        ("|true||", True, CORDON[:2], True, False),
        ("true|||", True, [], False, True),
        ("true|true||", True, [], True, False),
    ],
)
def test_the_annotation_says_who_cordoned_the_node(
    node: str, is_due: bool, calls: list[str], cordoned: bool, was_cordoned: bool
) -> None:
    cluster, outcome = Cluster(node), Outcome()
    cluster.service(outcome).take_out({**OPTIONS, "drain": False, "restart_daemonset_pods": False}, CNI, is_due)
    assert cluster.calls == [*GET, *calls] and (outcome.cordoned, outcome.was_cordoned) == (cordoned, was_cordoned)


@pytest.mark.parametrize(
    ("node", "fails", "reason"),
    [
        ("", "", "kubectl printed '.n' about node1; four fields were expected, separated by [|]. Nothing was changed"),
        ("|||", "get", "kubectl get node .* -- node1: exit status 1: refused"),
        ("|||a node.cilium.io/agent-not-ready", "", "node1 has the taint node.cilium.io/agent-not-ready.* Nothing was changed"),
    ],
)
def test_a_node_of_which_nothing_is_known_or_whose_agent_is_not_ready_is_not_changed(node: str, fails: str, reason: str) -> None:
    cluster, outcome = Cluster(node, fails), Outcome()
    with pytest.raises(Failure, match=reason):
        cluster.service(outcome).take_out(OPTIONS, CNI, is_due=True)
    assert cluster.calls == GET[:1] and not outcome.changed


def test_a_drain_that_is_refused_leaves_the_node_cordoned_and_says_why() -> None:
    cluster, outcome = Cluster(fails="drain"), Outcome()
    with pytest.raises(Failure, match="kubectl drain --force -- node1: exit status 1: refused"):
        cluster.service(outcome).take_out(OPTIONS, CNI, is_due=True)
    assert outcome.cordoned and cluster.calls == [*GET, *CORDON]
