# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Texts of an API and of nodes that are templates: ansible-playbook evaluates none of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytest.importorskip("kubernetes")

from lab import node_api, playbook

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
