# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs playbooks on nodes of which some lie, and says which laws a run has broken."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ansible_collections.kubenode.datapath.plugins.plugin_utils import _playbook_variables, _profiles
from lab import collection, honest_answers, playbook

HONEST = ("honest1", "honest2")
"""Other nodes of each run; the first is the victim that lies name."""
# Variables of inventories and registered ones that playbooks and roles read, besides those that are documented.
FURTHER = (
    *("__kubenode_report", "__kubenode_checks", "__kubenode_checked", "__audit_results", "__audit_here", "__audit_step"),
    *("__trace_folder", "__trace_files", "__cilium_migration_options", "__cilium_migration_cni", "__cilium_migration_service"),
)
NOT_SENTENCES = re.compile(
    r"Traceback|has no attribute|object is not|Unexpected failure|unsupported operand|not subscriptable|error of the collection"
    r"|unexpected keyword|KeyError|TypeError|ValueError|dead state|Failure using method|indices must be|JSONDecode"
)
KUBECTL = """\
#!/bin/sh
{ printf '%s' "$1"; shift; printf '\\037%s' "$@"; echo; } >> "$KUBECTL_RECORD"
case "$*" in
*"nodeName="*)
  printf 'kube-system|%s\\n' 'dns|ReplicaSet|dns|True|10.244.0.5' 'agent-1|DaemonSet|agent|True|10.240.0.7' \\
    'agent-2|DaemonSet|agent|True|10.240.0.8' ;;
"get node"*) echo 'false||MC_example|' ;;
esac
"""


def names() -> list[str]:
    """Return the variables that playbooks and roles read."""
    of_roles = [f"{profile}_{name}" for profile in _profiles.PROFILES for name in _profiles.options_of(profile)]
    of_playbooks = [name for variables in _playbook_variables.NAMES.values() for name in variables]
    return sorted({*of_roles, *of_playbooks, *_playbook_variables.ROLLOUT, *FURTHER})


class Run(NamedTuple):
    """kubectl: the words of each call. writes, programs: of the controller. requests: of each node, what it was asked for."""

    played: playbook.Played
    results: list[dict[str, Any]]
    report: dict[str, Any]
    kubectl: list[list[str]]
    writes: list[str]
    programs: list[Any]
    requests: list[list[Any]]
    folder: Path

    def messages(self) -> Iterator[tuple[str, str]]:
        """Yield the node and the message of each failed task."""
        for result in self.results:
            if result["failed"]:
                yield result["host"], str(result["result"].get("msg"))


class Fleet:
    """Runs of one playbook. folder: for all files. variables: of the inventory's group of all nodes."""

    def __init__(self, folder: Path, book: str | Path, variables: Mapping[str, Any], *arguments: str) -> None:
        self._folder, self._book, self._variables, self._arguments = folder, book, dict(variables), arguments
        self._is_rollout = str(book).rpartition(".")[2] in _profiles.PROFILES

    def run(self, name: str, liars: Mapping[str, Mapping[str, str]]) -> Run:
        """Run the playbook. liars: variables of the connection by names of nodes."""
        folder = self._folder / name
        for part in ("armed", "bin", "home", "tmp", "markers", "reports", "python/lying_secret/inner"):
            (folder / part).mkdir(parents=True)
        (folder / "honest.json").write_text(json.dumps(honest_answers.answers()))
        (folder / "names.json").write_text(json.dumps(names()))
        (folder / "bin/kubectl").write_text(KUBECTL)
        (folder / "bin/kubectl").chmod(0o755)
        package = folder / "python/lying_secret/__init__.py"
        package.write_text(f"open({str(folder / 'markers/imported')!r}, 'w').close()\n")
        (package.parent / "inner/__init__.py").write_text("")
        rollout = {"kubenode_batches": "100%", "kubenode_max_failed_percentage": "100"} if self._is_rollout else {}
        played = playbook.play(
            self._inventory(folder, liars),
            self._book,
            *self._arguments,
            variables={**rollout, "kubenode_report": str(folder / "reports/rollout.json")},
            environment=self._environment(folder),
        )
        lines = {kind: _lines(folder / kind) for kind in ("results", "watched", "requests")}
        report = folder / "reports/rollout.json"
        return Run(
            played,
            lines["results"][0]["results"] if lines["results"] else [],
            json.loads(report.read_text()) if report.exists() else {},
            [line.split("\037") for line in _text(folder / "kubectl").splitlines()],
            [value for kind, value in lines["watched"] if kind == "write"],
            [value for kind, value in lines["watched"] if kind == "program"],
            lines["requests"],
            folder,
        )

    def _inventory(self, folder: Path, liars: Mapping[str, Mapping[str, str]]) -> Path:
        first, last = HONEST
        hosts = {first: {}, **liars, last: {}}
        hosts = {host: {"lying_node_name": host, "lying_node_victim": first, **lie} for host, lie in hosts.items()}
        variables: dict[str, Any] = {
            "ansible_connection": "lying_node",
            "ansible_become": False,
            "ansible_pipelining": True,
            "ansible_python_interpreter": "/usr/bin/python3",
            "lying_node_folder": str(folder),
            "cilium_migration_kubectl": ["kubectl", "--context={{ lying_node_name }}"],
            **json.loads(json.dumps(self._variables).replace("FOLDER", str(folder / "reports"))),
        }
        path = folder / "inventory.json"
        path.write_text(json.dumps({"all": {"children": {"nodes": {"hosts": hosts, "vars": variables}}}}))
        return path

    def _environment(self, folder: Path) -> dict[str, str]:
        watched = collection.CHECKOUT / "tests/lab/watched_python"
        return {
            "PATH": f"{folder}/bin:{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join([str(watched), f"{folder}/python", os.environ.get("PYTHONPATH", "")]),
            "PYTHONDONTWRITEBYTECODE": "1",
            "HOME": str(folder / "home"),
            "TMPDIR": str(folder / "tmp"),
            "WATCHED_RECORD": str(folder / "watched"),
            "KUBECTL_RECORD": str(folder / "kubectl"),
            "LAB_RECORD": str(folder / "results"),
            "ANSIBLE_CALLBACKS_ENABLED": "lab_record,kubenode.datapath.report",
            "ANSIBLE_DEPRECATION_WARNINGS": "false",
            "ANSIBLE_FORKS": "2",
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_LOCALHOST_WARNING": "false",
            "ANSIBLE_REMOTE_TEMP": str(folder / "tmp"),
        }


def _text(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""


def _lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in _text(path).splitlines()]


def violations(alone: Run, run: Run, liars: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Return a sentence for each law that a run with liars has broken. alone: the same run without them."""
    return [
        *_programs(alone, run, liars),
        *_writes(run),
        *_kubectl(alone, run, liars),
        *_hosts(alone, run, liars),
        *_reports(alone, run),
        *_sentences(run, liars),
    ]


def _named(liars: Mapping[str, Mapping[str, str]], host: str) -> str:
    return f"{host} ({' '.join(map(str, liars.get(host, {}).values()))})"


def _programs(alone: Run, run: Run, liars: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    yield from (f"{_named(liars, marker.name)} ran a program" for marker in sorted((run.folder / "markers").iterdir()))
    usual = {_normal(program, alone.folder) for program in alone.programs}
    yield from (f"the controller started {new}" for new in sorted({_normal(one, run.folder) for one in run.programs} - usual))
    carried = {name for _host, kind, names in run.requests if kind == "archive" for name in names}
    yield from (f"a node got {name}" for name in sorted(carried) if not name.startswith("pyroute2/"))


def _normal(program: Any, folder: Path) -> str:
    """Return a program's name: kubectl's words are another law."""
    words = program if isinstance(program, list) else [program]
    text = " ".join(map(str, words)) if str(words[0]).endswith("sh") else str(words[0])
    return re.sub(r"[\d.-]{5,}|/tmp\w*", "N", text.replace(str(folder), "FOLDER"))[:300]


def _writes(run: Run) -> Iterator[str]:
    usual = (f"{run.folder}/", "/dev/null", "/dev/tty", "/dev/shm/", "/proc/self/")
    for path in sorted({*run.writes}):
        if not path.startswith(usual) or path.startswith(str(run.folder / "elsewhere")):
            yield f"the controller wrote {path}"
    if (run.folder / "elsewhere").exists():
        yield "the controller made a folder that a node named"


def _kubectl(alone: Run, run: Run, liars: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    def words(call: Sequence[str]) -> list[str]:
        host = call[0].partition("=")[2]
        return [word.replace(host, "NODE") if host else word for word in call]

    usual = {word for call in alone.kubectl for word in words(call)}
    for call in run.kubectl:
        if strange := {*words(call)} - usual:
            yield f"kubectl of {_named(liars, call[0].partition('=')[2])} got {sorted(strange)}"


def _hosts(alone: Run, run: Run, liars: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    hosts, usual = {*HONEST, *liars}, {*_targets(alone)}
    for task, host, target in sorted({*_targets(run)} - {(task, host, target) for task, _own, target in usual for host in hosts}):
        yield f"{task} of {_named(liars, host)} went to {target}"
    strange = {*run.report.get("nodes", ()), *(result["host"] for result in run.results)} - hosts
    yield from (f"the host {host} was added" for host in sorted(strange))


def _targets(run: Run) -> Iterator[tuple[str, str, str]]:
    """Yield the task, the host and the other host, or "itself", of each task that was delegated."""
    for result in run.results:
        for entry in (result["result"], *_entries(result["result"])):
            delegated = entry.get("_ansible_delegated_vars")
            target = delegated.get("ansible_delegated_host") if isinstance(delegated, dict) else None
            if target is not None:
                yield result["task"], result["host"], "itself" if target == result["host"] else str(target)


def _entries(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    entries = result.get("results")
    return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []


def _reports(alone: Run, run: Run) -> Iterator[str]:
    for path in sorted((alone.folder / "reports").rglob("*")):
        if not (run.folder / "reports" / path.relative_to(alone.folder / "reports")).exists():
            yield f"the report {path.name} is missing"
    if not run.report.get("ended"):
        yield "the report of the run is not complete"
    if alone.played.output.count("NODES ***") != run.played.output.count("NODES ***"):
        yield "the summary of the run is missing"
    for host in HONEST:
        expected, actual = (_comparable(one, host) for one in (alone, run))
        for key in expected:
            if expected[key] != actual.get(key):
                yield f"{key} of {host} was {str(expected[key])[:300]} and is {str(actual.get(key))[:600]}"


def _comparable(run: Run, host: str) -> dict[str, Any]:
    """Return what the reports say of a node, without times."""
    node = {**run.report.get("nodes", {}).get(host, {}), "seconds": 0}
    # Of ansible-core 2.19 and newer, on the task that reads variables of all hosts: facts that it does not take.
    node["warnings"] = [text for text in node.get("warnings", ()) if not text.startswith("Removed restricted key from module")]
    audit = run.folder / "reports/audit.json"
    node["audit.json"] = json.loads(audit.read_text())["nodes"].get(host) if audit.exists() else None
    for name in ("audit.prom", "audit.md", "rollout.md"):
        lines = _text(run.folder / "reports" / name).splitlines()
        node[name] = sorted(
            re.sub(r"\d{9,}|\d+\.\d+ s", "N", line) for line in lines if f'"{host}"' in line or f"| {host} |" in line
        )
    for page in sorted((run.folder / "reports").glob(f"{host}.*")):
        node[page.name] = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d", "TIME", page.read_text()).replace(str(run.folder), "")
    node["failed"] = [message for failed, message in run.messages() if failed == host]
    return node


def _sentences(run: Run, liars: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    for host, message in run.messages():
        if NOT_SENTENCES.search(message):
            yield f"{_named(liars, host)} failed by {message[:400]!r}"
    for line in run.played.output.splitlines():
        if re.search(r"Traceback|Failure using method|dead state|Unexpected Exception|^ERROR!", line):
            yield f"Ansible printed {line[:300]!r}"
