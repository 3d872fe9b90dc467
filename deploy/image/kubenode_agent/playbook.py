# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One run of a profile on this node, by ansible-playbook and the connection kubenode.datapath.nsenter."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shlex
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from . import reachability

COLLECTION = "kubenode.datapath"
NODE = "this-node"
LIMIT = 1800.0  # seconds for a run; a package manager's lock is waited for within it
WARNING = "[WARNING]: "
LAST_WORDS = 600  # characters of the output of a run that wrote no report
ENVIRONMENT = {
    "ANSIBLE_CALLBACKS_ENABLED": f"{COLLECTION}.report",
    "ANSIBLE_NOCOLOR": "true",
    "ANSIBLE_RETRY_FILES_ENABLED": "false",
    "ANSIBLE_PIPELINING": "true",
    "ANSIBLE_DEPRECATION_WARNINGS": "false",  # they are for the developers of the image
    "KUBENODE_CHECKPOINT_PROOF": shlex.join(reachability.COMMAND),
}


class _Data(str):
    """A text that Ansible evaluates in no case."""

    __slots__ = ()


class _Dumper(yaml.SafeDumper):
    pass


_Dumper.add_representer(_Data, lambda dumper, text: dumper.represent_scalar("!unsafe", str(text)))


@dataclasses.dataclass(frozen=True)
class Outcome:
    """state: ok, changed or failed. sentence: of a failure. modules: those that changed something, or that failed.

    audit: what the audits around a change say, in lines. warnings: that Ansible printed.
    """

    state: str
    sentence: str = ""
    modules: tuple[str, ...] = ()
    seconds: float = 0.0
    audit: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def is_well(self) -> bool:
        return self.state in ("ok", "changed")


class Ending(NamedTuple):
    """How ansible-playbook ended."""

    status: int
    printed: str
    warnings: tuple[str, ...] = ()


def warnings_in(stderr: str) -> tuple[str, ...]:
    """Return the warnings in what ansible-playbook printed to stderr, each of which ends at an empty line or the next message."""
    messages = re.split(r"^(?=\[[A-Z ]+\]: )", stderr, flags=re.MULTILINE)
    texts = (text.removeprefix(WARNING).partition("\n\n")[0] for text in messages if text.startswith(WARNING))
    return tuple(dict.fromkeys(" ".join(text.split()) for text in texts))


def run(profile: str, variables: Mapping[str, Any]) -> Outcome:
    """Apply the profile with these variables."""
    began = time.monotonic()
    report, ending = _played(profile, variables)
    outcome = outcome_of(report, ending.status, ending.printed)
    return dataclasses.replace(outcome, seconds=time.monotonic() - began, warnings=ending.warnings)


def outcome_of(report: Mapping[str, Any] | None, status: int, printed: str) -> Outcome:
    """Judge a run. report: of the callback ``report``; None if the run wrote none. status, printed: of ansible-playbook."""
    node = _node(report)
    if not node or not (node["trouble"] if status else node["state"] in ("ok", "changed")):
        return Outcome("failed", _ending(status, printed))
    modules = tuple(dict.fromkeys(name for change in node["changes"] for name in _modules(change)))
    if not status:
        audit = tuple(line for change in node["changes"] for line in (change.get("result") or {}).get("audit", ()))
        return Outcome(node["state"], modules=modules, audit=audit)
    return Outcome("failed", node["trouble"], (node["action"].rpartition(".")[2],))


def _node(report: Mapping[str, Any] | None) -> Mapping[str, Any]:
    node: Mapping[str, Any] = ((report or {}).get("nodes") or {}).get(NODE) or {}
    return node


def _ending(status: int, printed: str) -> str:
    said = " ".join(printed.split())[-LAST_WORDS:]
    return f"ansible-playbook ended with {status}: {said or 'it printed nothing'}"


def _modules(change: Mapping[str, Any]) -> list[str]:
    """Return the modules of a change: those of a profile that changed something, or the module itself."""
    results = (change.get("result") or {}).items()
    of_profile = [name for name, result in results if isinstance(result, dict) and result.get("changed")]
    return of_profile or [change["action"].rpartition(".")[2]]


def _played(playbook: str, variables: Mapping[str, Any]) -> tuple[Mapping[str, Any] | None, Ending]:
    """Run a playbook of the collection on this node. Return its report and its ending."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        variables_file = _written(Path(folder, "variables.yaml"), {**_data(variables), "kubenode_report": str(report)})
        inventory = _written(Path(folder, "inventory.yaml"), {"nodes": {"hosts": {NODE: _connection()}}})
        files = ["--inventory", str(inventory), "--extra-vars", f"@{variables_file}"]
        environment = {**os.environ, **ENVIRONMENT, "ANSIBLE_LOCAL_TEMP": folder, "HOME": folder}
        ending = _ran(["ansible-playbook", *files, f"{COLLECTION}.{playbook}"], environment)
        return _read(report), ending


def _connection() -> dict[str, Any]:
    # Python is the node's own: that another one may be installed later is no warning for the operator.
    interpreter = {"ansible_python_interpreter": "auto_silent"}
    return {"ansible_connection": f"{COLLECTION}.nsenter", "ansible_user": "root", "ansible_become": False, **interpreter}


def _data(value: Any) -> Any:
    """Return the same value, of which Ansible evaluates nothing."""
    if isinstance(value, Mapping):
        return {name: _data(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_data(item) for item in value]
    return _Data(value) if isinstance(value, str) else value


def _written(path: Path, content: Mapping[str, Any]) -> Path:
    path.touch(0o600)  # the variables may name what others should not read
    path.write_text(yaml.dump(content, Dumper=_Dumper))
    return path


def _ran(command: list[str], environment: Mapping[str, str]) -> Ending:
    with subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    ) as process:
        try:
            stdout, stderr = process.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            kill(process.pid)
            return Ending(-signal.SIGKILL, f"the run did not end within {LIMIT:g} s and was killed")
        return Ending(process.returncode, f"{stdout}{stderr}", warnings_in(stderr))


def kill(pid: int) -> None:
    """Kill a process and all that it has started, also in other sessions: a module that hangs holds the node's lock."""
    for process in list(_stopped(pid)):
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def _stopped(pid: int) -> Iterator[int]:
    """Yield a process and all that it has started, each of which is stopped, so that it starts no more."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
        yield pid
        for path in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):  # it has ended
                if int(path.read_text(errors="replace").rpartition(")")[2].split()[1]) == pid:
                    yield from _stopped(int(path.parent.name))


def _read(path: Path) -> dict[str, Any] | None:
    try:
        report = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return report if isinstance(report, dict) else None
