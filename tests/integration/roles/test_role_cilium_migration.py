# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role cilium_migration as an operator runs it: its playbook, on a pool of two nodes that azure-vnet served."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from sampling import sampled

from lab import Lab, Node, azure_vnet, playbook
from lab.azure_bridge import served
from lab.azure_vnet import AzurePod
from lab.node import LOCK, NamespaceNode
from lab.playbook import Played
from lab.server import Server

PLAYBOOK = "kubenode.datapath.cilium_migration"
DEAD = [AzurePod(1), AzurePod(2)]
# Records its arguments. Files beside it say which verb fails, the node's state ("true" if it is cordoned, the annotation, AKS's
# label, taints), and which pods the node has. A deleted pod is replaced by another one.
KUBECTL = r"""#!/bin/sh
folder=$(dirname "$0")
printf '%s\n' "$*" >> "$folder/calls"
test "$(cat "$folder/fails" 2> /dev/null)" != "$1" || { echo "$1: refused by the test" >&2; exit 1; }
case "$*" in
  *--dry-run=client*) ;;
  "get node"*) cat "$folder/node";;
  cordon*) sed -i 's/^[^|]*/true/' "$folder/node";;
  uncordon*) sed -i 's/^[^|]*//' "$folder/node";;
  annotate*-) sed -i 's/|[^|]*/|/' "$folder/node";;
  annotate*) sed -i 's/|[^|]*/|true/' "$folder/node";;
  "get pods"*) cat "$folder/pods" 2> /dev/null || true;;
  "delete pod"*) for pod; do :; done; sed -i "s/|$pod|/|$pod-new|/" "$folder/pods"; sh -c "$(cat "$folder/deleted")";;
  drain*) sh -c "$(cat "$folder/drained" 2> /dev/null)";;
esac
"""


class Pool:
    """Two nodes and a kubectl; the playbook takes them one by one."""

    def __init__(self, lab: Lab, folder: Path, agent: Server) -> None:
        self.lab = lab
        self.agent = agent
        self.folder = folder
        self.node: NamespaceNode = lab.node("node1")
        self.other: NamespaceNode = lab.node("node2")
        self.kubectl = folder / "kubectl"
        self.kubectl.write_text(KUBECTL)
        self.kubectl.chmod(0o755)
        self.say(node="|||")
        self.inventory = lab.write_inventory(folder / "inventory.json")

    def play(self, *arguments: str, target: str = "node1", **variables: Any) -> Played:
        return self._play(0, arguments, target, variables)

    def clean_up(self, **options: Any) -> bool:
        """Run the role's module without Ansible's controller. Returns whether it changed something."""
        result = self.node.module("profile", {"name": "cilium_migration", "options": {"mode": "runtime", **options}})
        assert not result["failed"], result
        return bool(result["changed"])

    def kill(self, after: float, **variables: Any) -> None:
        """Run the playbook, and kill the controller's processes after this number of seconds."""
        self._play(after, (), "node1", variables)

    def _play(self, killed_after: float, arguments: Sequence[str], target: str, variables: Mapping[str, Any]) -> Played:
        """Run the playbook with a mode: a namespace node has no systemd of its own, and would be taken for an image."""
        prefixed = {f"cilium_migration_{name}": value for name, value in {"mode": "runtime", "grace": 1, **variables}.items()}
        given = {"kubenode_target": target, "kubenode_report": str(self.folder / "report.json"), **prefixed}
        callback = {"ANSIBLE_CALLBACKS_ENABLED": "kubenode.datapath.report"}
        return playbook.play(
            self.inventory, PLAYBOOK, *arguments, variables=given, environment=callback, killed_after=killed_after
        )

    def report(self) -> dict[str, Any]:
        """The role's report of the first node."""
        told: dict[str, Any] = json.loads((self.folder / "report.json").read_text())["nodes"]["node1"]["stats"]
        return dict(told["cilium_migration"])

    def say(self, **texts: str) -> None:
        """Sets kubectl's answers, by the name of its file."""
        for name, text in texts.items():
            (self.folder / name).write_text(text)

    def attach(self, pod: AzurePod) -> None:
        """Adds a live pod of azure-vnet; the other end of its link is eth1 of pod1."""
        azure_vnet.attach(self.node, pod, self.lab.pod("pod1").pid)
        self.lab.pod("pod1").ip([f"address add {pod.address}/16 dev eth1"])

    def replace_kubectl(self, first: str) -> None:
        """Make kubectl do something before its work."""
        real = self.kubectl.rename(self.folder / "kubectl-of-lab")
        self.kubectl.write_text(f'#!/bin/sh\n{first}\nexec {real} "$@"\n')
        self.kubectl.chmod(0o755)

    def ends(self, pod: AzurePod) -> str:
        """The command that ends the pod."""
        return shlex.join(self.node.command(["ip", "link", "delete", pod.host_link]))

    def calls(self) -> list[str]:
        """The arguments of kubectl's calls since this was called last."""
        path = self.folder / "calls"
        said = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return said


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[Pool]:
    with Lab("migration", nodes=[Node("node1", pods=["pod1"]), Node("node2")]) as lab:
        agents: list[Server] = []
        for node in lab.nodes:
            agents.append(served(node, DEAD))
        yield Pool(lab, tmp_path, agents[0])


@pytest.mark.each_core
def test_checked_run_checked_run_and_restored(pool: Pool) -> None:
    before, rules = pool.node.snapshot(), azure_vnet.listing(pool.node)
    predicted = pool.play("--check").well()
    assert predicted.changed == 1 and pool.node.snapshot() == before and "skipping" not in predicted.output
    played = pool.play(verify=[{"address": pool.lab.pod("pod1").address, "port": 8080}]).well()
    assert played.changed == predicted.changed and "skipping" not in played.output
    assert not azure_vnet.rules(pool.node)
    assert not pool.node.exists(azure_vnet.STATE) and not pool.node.exists(azure_vnet.CONFLIST)
    report = pool.report()
    assert (report["trouble"], report["cordoned"], report["found"]["bridge"]) == ("", False, "azure0")
    assert len(report["done"]["removed"]) == len(azure_vnet.node_rules("")) + 2 * len(DEAD)
    assert all(rule["reason"] for rule in report["done"]["removed"])
    after = pool.node.snapshot()
    converged = pool.play("-vvv").well()
    assert converged.changed == 0 and converged.modules == ["cni_info", "profile"]
    assert "skipping" not in converged.output and pool.node.snapshot() == after
    assert pool.play(state="restored").well().changed == 1
    assert azure_vnet.listing(pool.node) == rules
    assert pool.calls() == []


@pytest.mark.thorough
def test_an_audit_that_finds_no_need_does_not_keep_the_role_from_its_work(pool: Pool) -> None:
    """The leftovers are of dead pods: no packet of a live one is lost, and so the audit finds nothing."""
    played = pool.play(audit=True).well()
    assert "Before: the audit finds no need of cilium_migration, which is applied as asked. " in played.output
    assert played.changed == 1 and len(pool.report()["done"]["removed"]) == len(azure_vnet.node_rules("")) + 2 * len(DEAD)


ANNOTATE = "annotate node --overwrite -- node1 kubenode.datapath/cordoned=true"
RELEASE = ["uncordon -- node1", "annotate node -- node1 kubenode.datapath/cordoned-"]
DRAIN = "drain --ignore-daemonsets --delete-emptydir-data --timeout=300s -- node1"


def test_cordoned_and_drained_only_where_there_is_something_to_do(pool: Pool) -> None:
    options: dict[str, Any] = {"drain": True, "kubectl": [str(pool.kubectl)]}
    predicted = pool.play("--check", **options).well()
    assert [call for call in pool.calls() if "--dry-run=client" not in call][1:] == []
    played = pool.play(**options).well()
    get, *calls = pool.calls()
    assert get.startswith("get node --output=jsonpath={.spec.unschedulable}|") and get.endswith(" -- node1")
    assert calls == [ANNOTATE, "cordon -- node1", DRAIN, *RELEASE] and played.changed == predicted.changed == 3
    pool.say(node="true||MC_group_cluster_region|node.kubernetes.io/unschedulable")
    again = pool.play(**options).well()
    assert again.changed == 0 and [call.split()[0] for call in pool.calls()] == ["get"]
    assert "the node was cordoned before the run, and stays cordoned" in again.output
    assert "AKS manages this node (label kubernetes.azure.com/cluster=MC_group_cluster_region)" in again.output


@pytest.mark.thorough
def test_a_drain_says_which_pods_it_waits_for(pool: Pool) -> None:
    pool.say(pods=pods("ReplicaSet"), drained="sleep 12")
    played = pool.play(drain=True, kubectl=[str(pool.kubectl)]).well()
    line = "node1: kubenode.datapath.cilium_migration : Take the node out of service, 10 s: waits for the eviction of "
    assert f"{line}default/new, default/old\n" in played.output and "skipping" not in played.output, played.output
    assert played.output.count(" s: waits for ") == 1


def test_a_drain_ends_with_its_task(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ansible ends a task at its timeout by an exception in the process that waits for kubectl."""
    pool.replace_kubectl(f'echo $$ > {pool.folder}/pid; test "$1" != drain || exec sleep 90')
    monkeypatch.setenv("ANSIBLE_TASK_TIMEOUT", "15")
    failed = pool.play(drain=True, kubectl=[str(pool.kubectl)])
    assert failed.failed and DRAIN not in pool.calls()
    assert not Path(f"/proc/{(pool.folder / 'pid').read_text().strip()}").exists()


@pytest.mark.parametrize(
    "variables", sampled([{"drain": True}, {"state": "restored"}], lambda variables: variables == {"drain": True})
)
def test_no_node_is_drained_or_restored_if_another_machine_answers(pool: Pool, variables: dict[str, Any]) -> None:
    pool.node.write("/etc/machine-id", f"{1:032x}\n")
    pool.node.write("/etc/cni/net.d/10-azure.conflist.kubenode_bak", '{"plugins": [{"type": "azure-vnet"}]}')
    playbook.tell(pool.inventory, "node1", kubenode_name="node1", kubenode_machine_id=f"{2:032x}")
    before = pool.node.snapshot()
    failed = pool.play(kubectl=[str(pool.kubectl)], **variables)
    assert failed.failed and f"its machine id is {1:032x}" in failed.output, failed.output
    assert pool.node.snapshot() == before and pool.calls() == []


@pytest.mark.thorough
def test_no_node_is_drained_under_the_name_of_another_one(pool: Pool) -> None:
    playbook.tell(pool.inventory, "node1", kubenode_name="node1")
    failed = pool.play(kubectl=[str(pool.kubectl)], drain=True, node_name="node2")
    assert failed.failed and "cilium_migration_node_name is node2, and this host is the node node1" in failed.output
    assert pool.calls() == []


def test_a_kubectl_that_is_not_there_is_named(pool: Pool) -> None:
    failed = pool.play(cordon=True, kubectl=["/no/kubectl"])
    assert failed.failed and "/no/kubectl: No such file or directory" in failed.output


@pytest.mark.thorough
def test_kubectl_has_the_environment_of_the_play(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """KUBECONFIG, for example, which a play sets by environment. Its words have variables of the controller's environment."""
    monkeypatch.setenv("FOLDER_OF_KUBECTL", str(pool.folder))
    pool.replace_kubectl('test "$WHERE" = "a b" || exit 1')
    play = pool.folder / "play.yml"
    variables = {"cilium_migration_mode": "runtime", "cilium_migration_grace": 1, "cilium_migration_cordon": True}
    role = {
        "hosts": "node1",
        "gather_facts": False,
        "environment": {"WHERE": "a b"},
        "roles": ["kubenode.datapath.cilium_migration"],
    }
    play.write_text(json.dumps([{**role, "vars": {**variables, "cilium_migration_kubectl": ["$FOLDER_OF_KUBECTL/kubectl"]}}]))
    assert playbook.play(pool.inventory, play).well().changed == 3
    assert [call.split()[0] for call in pool.calls()] == ["get", "annotate", "cordon", "uncordon", "annotate"]


@pytest.mark.thorough
@pytest.mark.parametrize("kills", [1, 8])
def test_a_run_that_is_killed_anywhere_is_ended_by_the_next(pool: Pool, kills: int) -> None:
    """kills: how many runs are killed, each at another part of the time that a run lasts."""
    before, rules = pool.node.snapshot(), azure_vnet.listing(pool.node)
    options: dict[str, Any] = {"kubectl": [str(pool.kubectl)], "drain": True, "verify_command": ["true"]}
    began = time.monotonic()
    pool.play(**options).well()
    lasts, after = time.monotonic() - began, azure_vnet.listing(pool.node)
    for kill in range(kills):
        pool.play(state="restored").well()
        assert azure_vnet.listing(pool.node) == rules and pool.node.snapshot() == before
        pool.kill(lasts * (kill + 0.5) / kills, **options)
        pool.play(**options).well()
        assert azure_vnet.listing(pool.node) == after and not pool.node.exists(azure_vnet.STATE)
        assert (pool.folder / "node").read_text() == "|||"
        assert pool.play(**options).well().changed == 0


LIVING = AzurePod(44)


def pods(kind: str) -> str:
    """The node's pods as kubectl prints them: one with the node's address, one of Cilium's, and the one of azure-vnet's."""
    lines = ("kube-system|proxy|DaemonSet|proxy|True|10.1.0.1", "default|new|ReplicaSet|web|True|10.240.9.9 fd00::9")
    return "\n".join([*lines, f"default|old|{kind}|{kind and 'agent'}|True|{LIVING.address}", ""])


def test_a_node_whose_pods_of_azure_vnet_live_is_drained_and_then_its_files_are_moved(pool: Pool) -> None:
    pool.play().well()
    pool.attach(LIVING)
    for path, text in ((azure_vnet.STATE, azure_vnet.state_text(pool.node.place.mac(), [LIVING])), (azure_vnet.CONFLIST, "")):
        pool.node.write(path, text or azure_vnet.conflist("azure-vnet"))
    options: dict[str, Any] = {"kubectl": [str(pool.kubectl)]}
    pool.say(pods=pods("ReplicaSet"), drained=pool.ends(LIVING))
    undrained = pool.play(cordon=True, **options).well()
    assert undrained.changed == 0 and f"kept {azure_vnet.STATE}: azure-vnet needs it" in undrained.output
    assert "pod default/old of azure-vnet lives: drain the node, or set cilium_migration_drain" in undrained.output
    pool.calls()
    foretold = pool.play("--check", drain=True, **options).well()
    assert "pod default/old of azure-vnet lives: kubectl drain evicts it" in foretold.output and foretold.changed == 2
    pool.calls()
    played = pool.play(drain=True, **options).well()
    assert pool.calls()[2:] == [ANNOTATE, "cordon -- node1", DRAIN, *RELEASE]
    assert "pod default/old of azure-vnet has ended" in played.output
    assert f"moved {azure_vnet.STATE} into /var/lib/kubenode/backup/azure_vnet.json" in played.output
    report = pool.report()
    assert report["done"]["files"] == [azure_vnet.STATE, azure_vnet.CONFLIST] and report["done"]["kept_files"] == []
    assert not pool.clean_up()


@pytest.mark.thorough
def test_a_static_pod_and_a_link_without_a_pod_are_named_and_do_not_drain_the_node(pool: Pool) -> None:
    pool.play().well()
    pool.attach(LIVING)
    pool.node.ip(["link add azv0123456789b type veth peer name p"])
    pool.say(pods=pods("Node"), node="|||")
    played = pool.play(kubectl=[str(pool.kubectl)], drain=True).well()
    assert played.changed == 0 and "pod default/old of azure-vnet lives: it is a static pod" in played.output
    assert "link azv0123456789b of azure-vnet: no pod of this node in Kubernetes has its address" in played.output


def test_an_agent_that_is_not_healthy_or_not_ready_in_kubernetes_stops_the_run_before_any_change(pool: Pool) -> None:
    before = pool.node.snapshot()
    pool.agent.status = 503
    failed = pool.play(drain=True, kubectl=[str(pool.kubectl)])
    assert failed.failed and "answers GET /healthz at port 9879 of 127.0.0.1 with the status 503" in failed.output
    assert pool.calls() == []
    pool.agent.status = 200
    pool.say(node="|||node.kubernetes.io/not-ready node.cilium.io/agent-not-ready")
    failed = pool.play(drain=True, kubectl=[str(pool.kubectl)])
    assert failed.failed and "node1 has the taint node.cilium.io/agent-not-ready" in failed.output
    assert pool.node.snapshot() == before and [call.split()[0] for call in pool.calls()] == ["get"]


@pytest.mark.thorough
def test_options_that_were_not_asked_for_are_not_mentioned(pool: Pool) -> None:
    pool.play().well()
    pool.attach(LIVING)
    played = pool.play(state="restored", cordon=True, kubectl=[str(pool.kubectl)]).well()
    assert "no pod of this node" not in played.output and not [call for call in pool.calls() if call.startswith("get pods")]


def test_a_transparent_node_keeps_nothing_but_what_the_report_lists(pool: Pool) -> None:
    node = pool.node
    assert pool.clean_up(bridge=True, bridge_checkpoint=0)
    node.run(["rm", "-rf", "/var/lib/kubenode"])
    node.write(azure_vnet.CONFLIST, azure_vnet.conflist("azure-vnet").replace("bridge", "transparent"))
    node.write(azure_vnet.STATE, azure_vnet.state_text(node.place.mac(), []).replace('"bridge"', '"transparent"'))
    for line in ("-N SWIFT", "-A POSTROUTING -j SWIFT"):
        node.run(["iptables-nft", "-t", "nat", *line.split()])
    node.ip(
        [
            f"link add {LIVING.host_link} type veth peer name eth1 netns {pool.lab.pod('pod1').pid}",
            f"link set {LIVING.host_link} up",
            f"route add {LIVING.address} dev {LIVING.host_link}",
        ]
    )
    played = pool.play().well()
    assert played.changed == 0 and "azure-vnet is configured for the mode transparent" in played.output
    node.ip([f"link delete {LIVING.host_link}"])
    without_iptables = pool.play(iptables=False).well()
    assert without_iptables.changed == 1 and not node.exists(azure_vnet.STATE) and not node.exists(azure_vnet.CONFLIST)
    assert "To remove it: iptables-nft -w -t nat -D POSTROUTING -j SWIFT" in without_iptables.output
    played = pool.play().well()
    assert played.changed == 1 and "removed rule -j SWIFT in ip nat POSTROUTING (nft): jumps to" in played.output
    assert "SWIFT" not in node.snapshot()["nft"] and "To remove it" not in played.output
    assert not pool.clean_up()
    assert pool.clean_up(state="restored")
    assert "jump SWIFT" in node.snapshot()["nft"]


@pytest.mark.parametrize("trouble", sampled(["drain", "clean-up", "command"], lambda trouble: trouble == "command"))
def test_an_unwell_canary_stays_cordoned_and_says_so_and_the_next_node_is_not_touched(pool: Pool, trouble: str) -> None:
    options: dict[str, Any] = {"drain": True, "kubectl": [str(pool.kubectl)]}
    if trouble == "drain":
        (pool.folder / "fails").write_text("drain")
    elif trouble == "clean-up":
        pool.node.run(["ip", "link", "add", "azv0123456789a", "master", "azure0", "type", "veth", "peer", "name", "p"])
        options["bridge"] = True
    elif trouble == "command":
        options["verify_command"] = ["sh", "-c", "echo no pod answers >&2; false"]
    else:
        options["verify"] = [{"address": pool.lab.pod("pod1").address, "port": 1}]
    other = pool.other.snapshot()
    played = pool.play(target="nodes", **options)
    assert played.failed and [*played.nodes] == ["node1"], played.output
    assert "node1 stays cordoned. Repair the node, then run the role again, or: kubectl uncordon node1" in played.output
    said = {
        "command": "no pod answers",
        "drain": "refused by the test",
        "clean-up": "still serves azv0123456789a",
        "verify": "Timeout when waiting for",
    }[trouble]
    report = pool.report()
    assert said in report["trouble"] and report["cordoned"]
    assert [call.split()[0] for call in pool.calls() if not call.startswith("get pods")] == ["get", "annotate", "cordon", "drain"]
    assert pool.other.snapshot() == other


def test_all_nodes_one_after_the_other(pool: Pool) -> None:
    played = pool.play("-e", "kubenode_batches=1", target="nodes", kubectl=[str(pool.kubectl)], cordon=True).well()
    assert played.nodes["node1"].changed == played.nodes["node2"].changed > 1
    calls = [f"{call.split()[0]} {call.split()[-1]}" for call in pool.calls() if not call.startswith("annotate")]
    assert calls == [f"{verb} {node}" for node in ("node1", "node2") for verb in ("get", "cordon", "uncordon")]


def test_where_cilium_does_not_serve_nothing_is_changed(pool: Pool) -> None:
    pool.node.ip(["link del cilium_host"])
    before = pool.node.snapshot()
    failed = pool.play(cordon=True, kubectl=[str(pool.kubectl)])
    assert failed.failed and "Cilium does not serve node1" in failed.output
    assert pool.node.snapshot() == before and pool.calls() == []


@pytest.mark.thorough
def test_what_comes_back_within_the_grace_is_told(pool: Pool) -> None:
    rule = f"ebtables-nft {DEAD[0].rules[0]}"
    # The lock is held until the run is confirmed, or rolled back.
    gone = f"! test -e {LOCK} && ! ebtables-nft-save | grep -q {DEAD[0].mac}"
    restore = f"until {gone}; do sleep 0.1; done; {rule}"
    pool.node.run(["sh", "-c", f"({restore}) > /dev/null 2>&1 &"])
    failed = pool.play(grace=8)
    assert failed.failed and "Within 8 s leftovers of azure-vnet have come back" in failed.output


@pytest.mark.thorough
def test_the_bridge_goes_when_it_is_asked_for_and_others_are_left_alone(pool: Pool) -> None:
    for line in ("-N AWS-SNAT-CHAIN-0", "-N SWIFT", "-A POSTROUTING -j SWIFT"):
        pool.node.run(["iptables-nft", "-t", "nat", *line.split()])
    assert "azure0" in "".join(pool.node.snapshot()["links"])
    packets = [{"destination": "192.0.2.1", "protocol": "icmp"}]
    played = pool.play(bridge=True, bridge_checkpoint_command="true", rehearse=True, rehearse_packets=packets).well()
    assert "removed bridge azure0" in played.output and "does not arrive" not in played.output
    assert "left alone, of amazon-vpc-cni: chain AWS-SNAT-CHAIN-0 in ip nat (nft)" in played.output
    assert "removed rule -j SWIFT in ip nat POSTROUTING (nft): jumps to azure-vnet's chain" in played.output
    assert "azure0" not in "".join(pool.node.snapshot()["links"])
    assert "AWS-SNAT-CHAIN-0" in pool.node.snapshot()["nft"]
    assert not pool.clean_up(bridge=True)


@pytest.mark.thorough
def test_a_node_that_another_cnis_leftovers_harm_is_not_called_clean(pool: Pool) -> None:
    before = pool.node.run(["iptables-nft-save"]).stdout.count("\n-A")
    for line in (
        *("-N KUBE-ROUTER-FORWARD", "-N KUBE-POD-FW-ABC", "-I FORWARD -j KUBE-ROUTER-FORWARD"),
        *("-A KUBE-ROUTER-FORWARD -d 10.9.9.9 -j KUBE-POD-FW-ABC", "-A KUBE-POD-FW-ABC -j REJECT"),
    ):
        pool.node.run(["iptables-nft", *line.split()])
    for arguments in (("--check",), ()):
        failed = pool.play(*arguments, cordon=True, node_name="node1", kubectl=[str(pool.kubectl)])
        assert failed.failed and "leftovers of kube-router act on packets, for example rule" in failed.output
        assert "which rejects packets to 10.9.9.9/32" in failed.output and "node1: ok" not in failed.output
    assert not pool.node.run(["ebtables-nft-save"]).stdout.count("10.240.0.7"), "azure-vnet's leftovers are gone"
    assert "uncordon -- node1" not in pool.calls()
    commands = [each["command"] for each in pool.report()["found"]["leftovers"] if each["owner"] == "kube-router"]
    pool.node.run(["sh", "-ec", "\n".join(commands)])
    assert pool.play(cordon=True, node_name="node1", kubectl=[str(pool.kubectl)]).well().changed == 1, "it is uncordoned"
    assert "uncordon -- node1" in pool.calls() and pool.node.run(["iptables-nft-save"]).stdout.count("\n-A") == before


def test_in_an_image_the_configuration_is_inert_and_each_boot_looks(pool: Pool) -> None:
    before = pool.node.snapshot()
    assert "An image: systemd does not run on it" in pool.play(mode="auto").well().output
    after = pool.node.snapshot()
    assert {**after, "files": 0} == {**before, "files": 0}
    assert pool.node.exists(f"{azure_vnet.CONFLIST}.kubenode_bak") and not pool.node.exists(azure_vnet.CONFLIST)
    assert pool.node.exists(azure_vnet.CILIUM)
    assert pool.node.exists("/etc/systemd/system/multi-user.target.wants/kubenode-cni-check.service")
    assert pool.play(mode="image").well().changed == 0 and pool.node.snapshot() == after
    pool.play(mode="image", state="restored").well()
    assert pool.node.snapshot() == before
    assert pool.play(mode="image", state="restored").well().changed == 0


@pytest.mark.thorough
def test_a_node_from_an_image_is_restored_too(pool: Pool) -> None:
    before = pool.node.snapshot()
    pool.play(mode="image").well()
    after = pool.node.snapshot()
    assert pool.play("--check", state="restored").well().changed > 0 and pool.node.snapshot() == after
    pool.play(state="restored").well()
    assert pool.node.snapshot() == before
    assert pool.play(state="restored").well().changed == 0
