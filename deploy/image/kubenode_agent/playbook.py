# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One run of a profile on this node, by ansible-playbook and the connection kubenode.datapath.nsenter."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

COLLECTION = "kubenode.datapath"
NODE = "this-node"
LIMIT = 1800.0  # seconds for a run; a package manager's lock is waited for within it
LAST_WORDS = 600  # characters of the output of a run that wrote no report
ENVIRONMENT = {
    "ANSIBLE_CALLBACKS_ENABLED": f"{COLLECTION}.report",
    "ANSIBLE_NOCOLOR": "true",
    "ANSIBLE_RETRY_FILES_ENABLED": "false",
    "ANSIBLE_PIPELINING": "true",
}


@dataclasses.dataclass(frozen=True)
class Outcome:
    """state: ok, changed or failed. sentence: of a failure. modules: those that changed something, or that failed."""

    state: str
    sentence: str = ""
    modules: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def is_well(self) -> bool:
        return self.state in ("ok", "changed")


def run(profile: str, variables: Mapping[str, Any]) -> Outcome:
    """Applies the profile with these variables."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        # The variables may contain text that other users should not read.
        given = _written(Path(folder, "variables.json"), {**variables, "report": str(report)})
        hosts = {"nodes": {"hosts": {NODE: _connection()}}}
        inventory = _written(Path(folder, "inventory.json"), hosts)
        command = ["ansible-playbook", "--inventory", str(inventory), "--extra-vars", f"@{given}", f"{COLLECTION}.{profile}"]
        environment = {**os.environ, **ENVIRONMENT, "ANSIBLE_LOCAL_TEMP": folder, "HOME": folder}
        try:
            done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT, check=False)
            printed, status = done.stdout + done.stderr, done.returncode
        except subprocess.TimeoutExpired:
            printed, status = f"the run did not end within {LIMIT:g} s and was killed", -1
        found = outcome_of(_read(report), status, printed)
    return dataclasses.replace(found, seconds=time.monotonic() - began)


def outcome_of(report: Mapping[str, Any] | None, status: int, printed: str) -> Outcome:
    """report: of the callback ``report``; None if the run wrote none. status, printed: of ansible-playbook."""
    node = ((report or {}).get("nodes") or {}).get(NODE)
    if node is None or (status and node["state"] in ("ok", "changed")):
        said = " ".join(printed.split())[-LAST_WORDS:]
        return Outcome("failed", f"ansible-playbook ended with {status}: {said or 'it printed nothing'}")
    modules = tuple(dict.fromkeys(name for change in node["changes"] for name in _modules(change)))
    if node["state"] in ("ok", "changed"):
        return Outcome(node["state"], modules=modules)
    sentence = node["trouble"] or node["state"]
    module, colon, _rest = sentence.partition(": ")
    return Outcome("failed", sentence, (module,) if colon and module.isidentifier() else ())


def _modules(change: Mapping[str, Any]) -> list[str]:
    """The modules of a change: those of a profile that changed something, or the module itself."""
    results = (change.get("result") or {}).items()
    of_profile = [name for name, one in results if isinstance(one, dict) and one.get("changed")]
    return of_profile or [change["action"].rpartition(".")[2]]


def _connection() -> dict[str, Any]:
    return {"ansible_connection": f"{COLLECTION}.nsenter", "ansible_user": "root", "ansible_become": False}


def _written(path: Path, content: Mapping[str, Any]) -> Path:
    path.write_text(json.dumps(content))
    path.chmod(0o600)
    return path


def _read(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None
