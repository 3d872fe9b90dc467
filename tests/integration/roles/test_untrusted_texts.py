# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Texts and answers of nodes and APIs are data: nothing of them is evaluated, and none chooses what runs on the controller."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from lab import playbook
from lab.playbook import Played

# Texts of an API and of nodes that are templates: ansible-playbook evaluates none of them


pytest.importorskip("kubernetes")

from lab import node_api

CACHE = {"cache": True, "cache_plugin": "ansible.builtin.jsonfile"}


class Trap(NamedTuple):
    """text: a template that creates the file sprung. variables: of the node a, which contain the text, by their names."""

    text: str
    sprung: Path
    variables: dict[str, Any]
    inventory: Path

    def play(self, expression: str, *earlier: dict[str, Any], **options: Any) -> str:
        """Return the expression as JSON, copied by a task of node a after earlier ones. options: of the inventory."""
        self.inventory.write_text(json.dumps({**json.loads(self.inventory.read_text()), **options}))
        tasks = [
            *earlier,
            {"ansible.builtin.set_fact": {"copied": "{{ " + expression + " }}"}},
            {"ansible.builtin.debug": {"msg": "read {{ copied | to_json }}"}},
        ]
        played = playbook.play(self.inventory, playbook.write(self.inventory.with_name("play.json"), tasks, "a")).well()
        return json.loads(played.output.partition('"msg": ')[2].partition("\n")[0]).removeprefix("read ")


@pytest.fixture
def trap(tmp_path: Path) -> Iterator[Trap]:
    sprung = tmp_path / "sprung"
    text = "{{ lookup('pipe', 'touch %s') }}" % sprung
    labels, taint = {"label": text, text: "key"}, {"key": text, "value": text, "effect": "NoSchedule"}
    node = node_api.node("a", "10.0.0.4", f"azure:///{text}")
    node["metadata"]["labels"] = labels
    node["spec"].update(taints=[taint], podCIDRs=[text])
    inventory = tmp_path / "x.kubenode.yml"
    with node_api.serving([node]) as server:
        options = {"plugin": "kubenode.datapath.nodes", "kubeconfig": node_api.kubeconfig(tmp_path, server.server_port)}
        inventory.write_text(json.dumps(options))
        variables = {"provider_id": f"azure:///{text}", "labels": labels, "taints": [taint], "pod_cidrs": [text]}
        yield Trap(text, sprung, variables, inventory)


@pytest.mark.each_core
def test_no_text_of_a_node_is_evaluated(trap: Trap) -> None:
    """It reaches a task as it is: as a variable, from the cache, composed, and as the condition or the key of a group."""
    names = [f"kubenode_{name}" for name in trap.variables]
    options = {
        "strict": True,
        "compose": {f"composed_{name}": name for name in names},
        "groups": {f"if_{name}": f"{name} | string | length > 0" for name in names},
        "keyed_groups": [{"key": f"{name} | string", "prefix": f"key_{name}"} for name in names],
    }
    values = [word for name in names for word in (name, f"composed_{name}", f"hostvars['a'].{name}")]
    expression = f"[{', '.join(values)}, group_names | select('match', 'if_|key_') | length]"
    cache = {**CACHE, "cache_connection": str(trap.inventory.with_name("cache"))}
    for further in ({}, cache, cache):
        printed = json.loads(trap.play(expression, **options, **further))
        assert printed == [value for value in trap.variables.values() for _each in range(3)] + [2 * len(names)]
    assert not trap.sprung.exists()


@pytest.mark.each_core
def test_no_text_of_a_node_is_evaluated_after_a_filter(trap: Trap) -> None:
    """ansible-core before 2.19 does not mark what a filter returns for a value that comes from hostvars."""
    printed = trap.inventory.with_name("printed")
    printed.write_text(f"ns|pod|DaemonSet|{trap.text}|True|10.0.0.1")
    command = {"ansible.builtin.command": {"argv": ["cat", str(printed)]}}
    said = {**command, "delegate_to": "localhost", "register": "said"}
    listing = "hostvars['a'].said.stdout"
    pods = json.loads(trap.play(f"{listing} | kubenode.datapath.node_pods", said))
    assert [pod["owner"] for pod in pods] == [f"DaemonSet ns/{trap.text}"]
    report = trap.play(f"{{'a': {{'msg': {listing}}}}} | kubenode.datapath.audit_report('json')", said)
    assert trap.text in report.replace("\\", "") and not trap.sprung.exists()


# A node whose modules answer what it wants runs nothing on the controller, and nothing against another node


ROLE = "kubenode.datapath.cilium_migration"
# In the place of the node's Python. Answers by the name of the module, and runs none.
PYTHON = """#!{python}
import json, pathlib, sys
name = next((pathlib.Path(word).stem for word in sys.argv if "AnsiballZ_" in word), "")
print(json.dumps({{"changed": False, **json.loads({answers!r}).get(name.partition("_")[2], {{}})}}))
"""
# Records its arguments; the node is not cordoned.
KUBECTL = """#!/bin/sh
echo "$*" >> "$0.calls"
test "$1 $2" != "get node" || echo "|||"
"""
CNI: dict[str, Any] = {
    **{"plugins": ["cilium-cni"], "configurations": ["/etc/cni/net.d/05-cilium.conflist"], "is_cilium": True},
    **{"pods": {"azure_vnet": [], "cilium": [], "other": []}, "bridge": "", "bridge_ports": []},
    **{"azure_vnet": {"mode": "", "pods": [], "cns": {}}, "cilium_agent": {"trouble": "", "not_ready_taint": "t"}},
    **{"others": {}, "kube_proxy_leftovers": {}, "leftovers": [], "marks": [], "neighbors": []},
}
CLEANUP: dict[str, Any] = {
    **{"changed": True, "removed": [], "kept": [], "neighbors": [], "routes": [], "files": [], "kept_files": []},
    **{"iptables": {"removed": [], "kept": []}, "links": {"removed": [], "kept": []}, "backup_file": "/b"},
}
NODE = {"is_image": False, "is_running": True, "reason": "A running node."}
PROFILE: dict[str, Any] = {"changed": True, "node": NODE, "plan": [], "summary": [], "ebtables_cleanup": CLEANUP}


class Liar:
    """A node on this machine that runs no module, and a controller with a kubectl."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.ran, self.kubectl = folder, folder / "ran", folder / "kubectl"
        self.python = folder / "python"
        self.kubectl.write_text(KUBECTL)
        self.kubectl.chmod(0o755)
        self.facts = {
            "cilium_migration_kubectl": ["/bin/sh", "-c", f"touch {self.ran}"],
            "cilium_migration_node_name": "victim",
            "cilium_migration_verify_from": "localhost",
        }

    def play(self, book: str | Path, answers: Mapping[str, Any], **variables: Any) -> Played:
        self.python.write_text(PYTHON.format(python=sys.executable, answers=json.dumps(answers)))
        self.python.chmod(0o755)
        host = {"ansible_connection": "local", "ansible_become": False, "ansible_python_interpreter": str(self.python)}
        inventory = self.folder / "inventory.json"
        # In the inventory, which facts replace, unlike extra variables.
        text = {"all": {"children": {"nodes": {"hosts": {"node1": {**host, **variables}}}}}}
        inventory.write_text(json.dumps(text))
        return playbook.play(inventory, book)

    def migrate(self, answers: Mapping[str, Any], book: str | Path = ROLE) -> Played:
        options = {"mode": "runtime", "grace": 0, "cordon": True, "kubectl": [str(self.kubectl)]}
        checks = [{"address": "127.0.0.1", "port": 9}]
        return self.play(book, answers, kubenode_checks=checks, **{f"cilium_migration_{name}": options[name] for name in options})

    def calls(self) -> list[str]:
        """The arguments of kubectl's calls, without options."""
        path = Path(f"{self.kubectl}.calls")
        lines = path.read_text().splitlines() if path.exists() else []
        return [" ".join(word for word in line.split() if not word.startswith("--")) for line in lines]


@pytest.fixture
def liar(tmp_path: Path) -> Liar:
    return Liar(tmp_path)


@pytest.mark.each_core
def test_no_answer_of_a_node_chooses_a_command_or_another_node(liar: Liar) -> None:
    lie = {"ansible_facts": liar.facts, "ansible_stats": {"data": 7}, "add_host": {"host_name": "victim"}}
    honest: dict[str, dict[str, Any]] = {"wait_for": {"elapsed": 0}, "cni_info": CNI, "profile": PROFILE}
    played = liar.migrate({name: {**answer, **lie} for name, answer in honest.items()}).well()
    assert not liar.ran.exists()
    release = "annotate node node1 kubenode.datapath/cordoned"
    assert liar.calls() == ["get node node1", f"{release}=true", "cordon node1", "uncordon node1", f"{release}-"]
    assert "answered with keys that are not documented" in played.output


@pytest.mark.each_core
def test_a_host_whose_facts_set_a_variable_of_a_role_is_refused_before_its_first_task(liar: Liar) -> None:
    book = liar.folder / "own.yml"
    book.write_text(json.dumps([{"hosts": "nodes", "gather_facts": True, "roles": [ROLE]}]))
    failed = liar.migrate({"setup": {"ansible_facts": liar.facts}, "cni_info": CNI, "profile": PROFILE}, book)
    assert failed.failed and not liar.ran.exists() and liar.calls() == []
    assert "facts of node1 have set cilium_migration_kubectl, cilium_migration_node_name, " in failed.output


def test_facts_name_no_file_on_the_controller(liar: Liar) -> None:
    for name, options in (("audit", ("folder", "bundles", "earlier")), ("trace", ("html", "text", "dump"))):
        facts = {f"{name}_{option}": str(liar.folder / option) for option in options}
        book = liar.folder / f"{name}.yml"
        gather = {"hosts": "nodes", "gather_facts": True}
        book.write_text(json.dumps([gather, {"ansible.builtin.import_playbook": f"kubenode.datapath.{name}"}]))
        before = sorted(path.name for path in liar.folder.iterdir())
        failed = liar.play(book, {"setup": {"ansible_facts": facts}}, trace_packet="tcp 10.0.0.1:4 > 10.0.0.2:5")
        after = {path.name for path in liar.folder.iterdir()} - {"inventory.json", "python"}
        assert failed.failed and f"facts of node1 have set {name}_" in failed.output and after <= {*before}, failed.output


def test_facts_put_no_answer_in_the_place_of_another_nodes(liar: Liar) -> None:
    book, reports = liar.folder / "own.yml", liar.folder / "reports"
    audit = {"ansible.builtin.import_playbook": "kubenode.datapath.audit", "vars": {"audit_folder": str(reports)}}
    book.write_text(json.dumps([{"hosts": "nodes", "gather_facts": True}, audit]))
    liar.play(book, {"setup": {"ansible_facts": {"inventory_hostname": "victim"}}})
    nodes = json.loads((reports / "audit.json").read_text())["nodes"]
    assert [*nodes] == ["node1"] and nodes["node1"]["error"].startswith("facts of this host have set inventory_hostname, ")
