# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The page foreign-values.md names each value that comes from a node, an API, evidence or a ConfigMap, and where it ends."""

from __future__ import annotations

import ast
import re
import typing as t
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ansible")

import yaml

from ansible_collections.kubenode.datapath.plugins.plugin_utils import (
    _cluster_nodes,
    _node_answer,
    _node_service,
    _playbook_variables,
    _profiles,
)
from lab import honest_answers

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/foreign-values.md"
Sources = dict[str, set[str]]
CONTROLLER = ("action", "callback", "connection", "filter", "inventory", "lookup", "plugin_utils")
# Methods by which code on the controller asks a node, an API or another program.
ASKING = {"_low_level_execute_command", "_execute_module", "list_node"}
# Modules of Ansible that run on the controller, or that answer nothing.
OF_CONTROLLER = {"assert", "import_playbook", "import_role", "include_tasks", "set_fact", "set_stats"}
EVIDENCE = ("datapath_audit", "datapath_rehearsal", "datapath_trace")


def answers() -> Sources:
    """The keys that the answer of each module may have."""
    documented = {path.stem: {*honest_answers.documented(path.stem)} for path in honest_answers.MODULES.glob("*.py")}
    return {
        **documented,
        **{name: {*keys} for name, keys in _node_answer.BUILTIN.items() if keys},
        "each module": {*_node_answer.COMMON},
    }


def modules_of_ansible() -> Sources:
    """Modules of Ansible that playbooks and roles run, each with the files."""
    sources: Sources = {}
    for path in sorted([*ROOT.glob("roles/*/tasks/**/*.yml"), *ROOT.glob("playbooks/**/*.yml")]):
        for task in _tasks(yaml.safe_load(path.read_text())):
            for key in task:
                name = str(key).removeprefix("ansible.builtin.")
                if name != key and name not in OF_CONTROLLER:
                    sources.setdefault(str(key), set()).add(str(path.relative_to(ROOT)))
    return sources


def _tasks(value: t.Any) -> Iterator[dict[str, t.Any]]:
    for task in value if isinstance(value, list) else ():
        yield task
        for key in ("tasks", "pre_tasks", "post_tasks", "block", "rescue", "always"):
            yield from _tasks(task.get(key))


def inventory() -> Sources:
    """The variables that the inventory plugin sets, and the parts of a Node object that it keeps."""
    plugin = ROOT / "plugins/inventory/nodes.py"
    return {
        "variables": {
            key for key in _keys(_cluster_nodes.variables) | _keys(plugin) if key.startswith(("kubenode_", "ansible_"))
        },
        "groups": {f"{kind}_NAME" for kind in _keys(_cluster_nodes.groups)} | {"cni_NAME", "not_ready"},
        "parts of a Node object": _keys(_cluster_nodes.reduced),
    }


def _keys(code: Callable[..., t.Any] | Path) -> set[str]:
    """The keys of the dictionaries that a function or a file writes out."""
    path = code if isinstance(code, Path) else Path(code.__code__.co_filename)
    tree: ast.AST = ast.parse(path.read_text())
    if not isinstance(code, Path):
        (tree,) = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == code.__name__)
    keys = [key for node in ast.walk(tree) if isinstance(node, ast.Dict) for key in node.keys]
    return {key.value for key in keys if isinstance(key, ast.Constant) and isinstance(key.value, str)}


def configmap() -> Sources:
    """The variables that a ConfigMap may set."""
    return {
        profile: {name for name, option in _profiles.options_of(profile).items() if not option.refused}
        for profile in _profiles.PROFILES
    }


def commands() -> Sources:
    """The functions on the controller that ask a node, an API or a program, by file."""
    files = [*(path for folder in CONTROLLER for path in ROOT.glob(f"plugins/{folder}/*.py"))]
    return {str(path.relative_to(ROOT)): names for path in files if (names := {*_asking(path, ASKING)})}


def agent() -> Sources:
    """The functions of the agent that ask the API or start a program."""
    files = ROOT.glob("deploy/image/kubenode_agent/*.py")
    return {path.name: names for path in files if (names := {*_asking(path, {"request", "getresponse"})})}


def _asking(path: Path, methods: set[str]) -> Iterator[str]:
    for function in ast.walk(ast.parse(path.read_text())):
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            calls = [node.func for node in ast.walk(function) if isinstance(node, ast.Call)]
            texts = {ast.unparse(call) for call in calls}
            if any(text.rpartition(".")[2] in methods or text in ("subprocess.run", "subprocess.Popen") for text in texts):
                yield function.name


def kubectl() -> Sources:
    """The fields that kubectl is asked for."""
    fields = {name: getattr(_node_service, name) for name in vars(_node_service) if name.endswith("_FIELDS")}
    return {name: {*re.findall(r"\{(\.[^{}]*)\}", text)} for name, text in fields.items()}


def evidence() -> Sources:
    """The options of modules that read evidence, and the variables of their playbooks."""
    options = {name: {*_documented_options(name)} for name in EVIDENCE}
    return {**options, **{f"{playbook}.yml": {*names} for playbook, names in _playbook_variables.NAMES.items()}}


def _documented_options(module: str) -> Iterator[str]:
    documented = _documentation(honest_answers.MODULES / f"{module}.py")
    yield from documented["options"]
    if "kubenode.datapath._context" in documented["extends_documentation_fragment"]:
        yield from _documentation(ROOT / "plugins/doc_fragments/_context.py")["options"]


def _documentation(file: Path) -> dict[str, Any]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "DOCUMENTATION":
            assert isinstance(node.value, ast.Constant)
            return dict(yaml.safe_load(str(node.value.value)))
    raise AssertionError(file)


SECTIONS: dict[str, Callable[[], Sources]] = {
    "Answers of modules": answers,
    "Answers to modules of Ansible": modules_of_ansible,
    "Commands": commands,
    "Fields that kubectl is asked for": kubectl,
    "The inventory": inventory,
    "Variables of a ConfigMap": configmap,
    "Answers to the agent": agent,
    "Evidence": evidence,
}


def table(section: str) -> Sources:
    """The rows of a section: a source, its values, and where they end."""
    (text,) = re.findall(rf"^## {section}\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    sources: Sources = {}
    for source, names, end in re.findall(r"^\| `([^|]+)` \| (`.*?`) \| (.+) \|$", text.replace("\\|", "¦"), re.MULTILINE):
        values = [name.replace("¦", "|") for name in re.findall(r"`([^`]+)`", names)]
        assert end.strip() and not sources.setdefault(source, set()) & {*values}, (source, values)
        sources[source] |= {*values}
    return sources


@pytest.mark.parametrize("section", SECTIONS)
def test_each_foreign_value_is_in_the_table_with_where_it_ends(section: str) -> None:
    assert table(section) == SECTIONS[section]()


def test_every_section_is_listed() -> None:
    assert re.findall(r"^## (.+)$", PAGE.read_text(), re.MULTILINE) == [*SECTIONS]


@pytest.mark.parametrize("section", SECTIONS)
def test_each_section_has_sources(section: str) -> None:
    assert all(SECTIONS[section]().values()) and SECTIONS[section]()
