# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an honest node answers to each module, from the documentation of the modules' results."""

from __future__ import annotations

import ast
import functools
from typing import Any

import yaml

from lab.collection import CHECKOUT

MODULES = CHECKOUT / "plugins/modules"
PARTS = CHECKOUT / "plugins/module_utils/_parts"
SAMPLES = {"str": "text", "bool": True, "int": 1, "list": [], "dict": {}, "raw": "", None: ""}
LATER = ("diff", "msg")  # keys that are not in each result
# Values that the documentation describes in words.
FINDING = {"state": "present", "severity": "risk", "proof": "configuration", "trace": None}
TRACE = {"reply": None, "before": None}
# What Ansible's own modules answer that the roles run.
BUILTIN: dict[str, dict[str, Any]] = {
    "setup": {"changed": False, "ansible_facts": {"ansible_distribution": "Debian"}},
    "wait_for": {"changed": False, "elapsed": 0, "state": "started"},
    "find": {"changed": False, "files": [{"path": "/etc/cni/net.d/10-azure.conflist"}], "matched": 1, "examined": 1},
    "command": {"changed": True, "rc": 0, "stdout": "", "stderr": "", "cmd": ["mv"]},
    "stat": {"changed": False, "stat": {"exists": False}},
    "copy": {"changed": True, "dest": "/etc/systemd/system/kubenode-cni-check.service", "checksum": "0"},
    "file": {"changed": False, "path": "/etc/systemd/system/kubenode-cni-check.service", "state": "file"},
}


def answers() -> dict[str, dict[str, Any]]:
    """Return an answer for each module of the collection, and for Ansible's own modules of the roles."""
    return {path.stem: {"changed": False, **of_module(path.stem)} for path in sorted(MODULES.glob("*.py"))} | BUILTIN


@functools.cache
def documented(module: str) -> dict[str, Any]:
    """Return RETURN of a module."""
    tree = ast.parse((MODULES / f"{module}.py").read_text())
    (text,) = (
        node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "RETURN" and isinstance(node.value, ast.Constant)
    )
    return dict(yaml.safe_load(str(text)))


def of_module(module: str) -> dict[str, Any]:
    """Return the documented sample of a module's results."""
    result = {key: _sample(entry) for key, entry in documented(module).items() if key not in LATER}
    if module == "datapath_audit":
        result["findings"] = [{**finding, **FINDING} for finding in result["findings"]]
    if module == "datapath_trace":
        result |= TRACE
    return _of_profile() if module == "profile" else result


def _of_profile() -> dict[str, Any]:
    """Return a result of the module profile for any role: it has the results of all modules under their names."""
    profile = documented("profile")
    parts = [path.stem for path in sorted(PARTS.glob("*.py")) if path.stem != "profile" and (MODULES / path.name).exists()]
    results = {part: {"changed": True, **of_module(part)} for part in parts}
    if "ebtables_cleanup" in results:  # nothing comes back after the change
        nothing: dict[str, list[str]] = {"removed": [], "kept": []}
        results["ebtables_cleanup"] |= {**nothing, "iptables": nothing, "links": nothing}
    facts = {key: _sample(entry) for key, entry in profile["node"]["contains"].items()}
    plan = [{part: {"state": "present"}} for part in parts]
    return {"changed": True, "node": facts, "plan": plan, "summary": [f"{part} (present): changed" for part in parts], **results}


def _sample(entry: dict[str, Any]) -> Any:
    if "sample" in entry or "contains" not in entry:
        return entry.get("sample", SAMPLES[entry.get("type")])
    inner = {key: _sample(child) for key, child in entry["contains"].items()}
    return [inner] if entry["type"] == "list" else inner
