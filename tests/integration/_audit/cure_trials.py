# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The remedies of findings, each applied to the broken node, with real packets before and after it."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import yaml

from ansible_collections.kubenode.datapath.plugins.module_utils._audit import audit_backend, sweep_backend
from ansible_collections.kubenode.datapath.plugins.module_utils._audit.suspicion import COLLECTION
from ansible_collections.kubenode.datapath.plugins.module_utils._trace import entrance, packet_text
from ansible_collections.kubenode.datapath.plugins.module_utils._trace.packet import from_options
from ansible_collections.kubenode.datapath.plugins.module_utils._twin.work_backend import Work
from lab.collection import CHECKOUT
from lab.entering import LabError
from lab.machine import Machine
from lab.network import Connection

from .._trace import random_nodes

CURED, NOT_CURED, HARMED = "cured", "not cured", "harmed"
# Modules keep their records and backups in a mount namespace of their own, as all machines share the files of the host.
APART = 'mount -t tmpfs tmpfs /run; mount -t tmpfs tmpfs /var/lib; exec "$@"'
CALLS = """
import json, sys
sys.path.insert(0, sys.argv[1])
from plugins.module_utils._core.parts import Request
from plugins.module_utils._platform import process
from plugins.module_utils._trace import changes_backend

def run(argv, stdin=None, *_more):
    return process.run(argv, stdin, {"PATH": process.SEARCH_PATH})

changes = changes_backend.without_profiles(changes_backend.read(json.loads(sys.argv[2])), Request({}, {}, run, print))
changes_backend.apply(changes, run, print, {})
"""


class Cure(NamedTuple):
    """remedy: its commands or calls. connections: of the finding, that are still lost, or others that the remedy has ended.

    error: of a remedy that the node refuses.
    """

    finding: str
    remedy: Sequence[object]
    verdict: str
    connections: Sequence[Connection]
    error: str = ""

    def __str__(self) -> str:
        lines = [f"{self.verdict}: {self.finding}: {'; '.join(map(str, self.remedy))} {self.error}".rstrip()]
        return "\n".join(
            [*lines, *(f"    {each.sender} {each.source} > {each.destination}:{each.port}" for each in self.connections[:3])]
        )


def tried(
    node: Machine,
    findings: Sequence[Mapping[str, Any]],
    read: dict[str, Any],
    lost: Callable[[], Sequence[Connection]],
    gone: Sequence[Connection],
) -> Iterator[Cure]:
    """Apply remedies one after the other, without those whose connections are cured already.

    read: the snapshot of the node. lost: the connections that do not arrive now. gone: those that did not before.
    """
    with_remedy = [finding for finding in findings if finding["remedy"] and [*_words(finding["remedy"])]]
    packets = [*(each.packet for each in gone), *(packet_text.options(each["packet"]) for each in with_remedy if each["packet"])]
    deciders = dict(zip(map(repr, packets), _deciders(read, packets)))
    now = [*gone]
    for finding in with_remedy:
        decider = deciders[repr(packet_text.options(finding["packet"]))] if finding["packet"] else ""
        own = [each for each in gone if decider and deciders[repr(each.packet)] == decider]
        if own and not {*own} & {*now}:
            continue
        words, error, before = [*_words(finding["remedy"])], "", now
        try:
            _apply(node, words)
        except LabError as refused:
            error = str(refused)
        now = [*lost()]
        harmed, still = [each for each in now if each not in before], [each for each in own if each in now]
        if harmed or own:
            verdict = HARMED if harmed else NOT_CURED if still else CURED
            yield Cure(f"{finding['id']} {finding['subject']}", words, verdict, harmed or still, error)


def _deciders(read: dict[str, Any], packets: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return for each packet what stops it, in a twin; empty for one that is not certainly lost there."""
    placed = [entrance.placed(from_options(packet), read) for packet in packets]
    fates = sweep_backend.fates(read, [(each, None) for each in placed], audit_backend.ASSUMED, random_nodes.run, False, Work())
    return [fate.decider for fate in fates]


def _words(remedy: Mapping[str, Any]) -> Iterator[list[str] | dict[str, Any]]:
    """Yield commands as their words, and calls of modules as the option ``changes`` has them; nothing for advice alone."""
    if "module" in remedy:
        yield {remedy["module"].rpartition(".")[2]: remedy["options"]}
        return
    yield from map(shlex.split, remedy["commands"])
    for task in yaml.safe_load(remedy["task"]) or () if not remedy["commands"] else ():
        if "ansible.builtin.command" in task:
            yield task["ansible.builtin.command"]["argv"]
            continue
        module = next((name for name in task if name.startswith(COLLECTION)), "")
        if module:
            yield {module.removeprefix(COLLECTION): task[module]}
            continue
        role = task["ansible.builtin.include_role"]["name"].rpartition(".")[2]
        variables = {name.removeprefix(f"{role}_"): value for name, value in task.get("vars", {}).items()}
        yield {"profile": {"name": role, "options": {**variables, "mode": "runtime"}}}


def _apply(node: Machine, words: Sequence[list[str] | dict[str, Any]]) -> None:
    for each in words:
        call = ["unshare", "--mount", "sh", "-ec", APART, "sh", sys.executable, "-c", CALLS, str(CHECKOUT), json.dumps([each])]
        node.run(each if isinstance(each, list) else call)
