# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Loads the active policy of one protocol into the kernel, by the same code as a run: a later run finds it unchanged.

The listener starts it as ``policy-routes-75.json.pyz load 75 PATH``, at boot and whenever a rule or route is lost. PATH is the
file that a boot loads. It ends with a report in JSON: what it added and removed, which rules and routes wait and for what, what
the policy depends on, and the path and version of the record.

``ask 75 PATH`` and ``boot 75 PATH`` first ask the metadata service, if the policy follows from the node's ENIs, and report what
it answered. If the policy follows from the node's uplinks, each load asks the node itself.

``ready 75 PATH`` only checks that a load is possible: its libraries are there, and PATH can be read.
"""

from __future__ import annotations

import contextlib
import json
import sys
import typing as t

from .._core.errors import DatapathError, Failure, Invalid, MissingLibrary
from .._core.plan import Plan, Resource, perform
from .._files.files import Content, Files
from .._interfaces import link_state_backend
from .._platform import library, lock
from .._routing import policy, rt_tables_backend
from .._routing.active_policy_resource import ActivePolicyRecord, record
from .._routing.live_policy import LivePolicy
from .._routing.policy import Policy
from .._routing.route import Route
from .._routing.routing_backend import Netlink
from .._routing.rule import Rule
from .._systemd.program_words import LACKS_LIBRARY
from . import listener_backend, readiness
from .change_event import Dependencies, route_key, rule_key

if t.TYPE_CHECKING:
    from .._discovery.discovery_program import Answer

# Seconds for which the metadata service is asked. At boot, kubelet waits for the answer. The service answers in milliseconds, and
# the network is up by then: a service that is silent for so long is in trouble, and systemd gives a unit 90 s to start. After
# the boot the limit is short, because rules and routes that are lost in the meantime wait as long to be restored.
PATIENCE = {"ask": 1.0, "boot": 20.0}
# Seconds that the first load waits for the lock if it has something to change. A run that starts the unit holds the lock and
# waits for the unit. What is missing then is loaded after that run, by another load.
UNDER_A_RUN = 5.0
SHOWN = 8  # rules and routes that a log line names; a node may have thousands


def main(arguments: t.Sequence[str]) -> int:
    verb, protocol, path = arguments
    try:
        if verb == "ready":
            return _ready(path)
        answer = _ask(verb, int(protocol), path)  # without the lock, because the question may take long
        # A run that starts the unit holds the lock, and leaves nothing to do: first look without the lock.
        report = _load(int(protocol), path, answer, may_change=False) if verb == "boot" else None
        if report is None or report["pending"]:
            with contextlib.ExitStack() as stack:
                try:
                    # A run changes the kernel and the record under the lock, so under it the two agree.
                    stack.enter_context(lock.exclusive(patience=UNDER_A_RUN if report else lock.PATIENCE))
                except Failure:
                    if report is None:
                        raise
                else:
                    report = _load(int(protocol), path, answer)
    except DatapathError as error:
        sys.stderr.write(f"<3>The rules and routes of protocol {protocol} could not be loaded: {error}\n")
        return 1
    json.dump(report, sys.stdout)
    return 0


def _ready(path: str) -> int:
    try:
        library.load(library.PYROUTE2)
    except MissingLibrary as missing:
        sys.stderr.write(f"{missing}\n")
        return LACKS_LIBRARY
    _read(path, rt_tables_backend.tables())
    return 0


def _ask(verb: str, protocol: int, path: str) -> Answer | None:
    """Return the answer to the policy's query; None if it has none, or if this load does not ask the metadata service."""
    former, is_recorded = _former(protocol, path, rt_tables_backend.tables(), lists=())
    if not former.query or (former.query.source == "enis" and verb not in PATIENCE):
        return None
    from .._discovery import discovery_program  # only for policies that need it

    leases = listener_backend.versions(discovery_program.folders(former.query))  # before they are read
    # With a record, the policy was in force before: it must be restored soon.
    seconds = PATIENCE["ask" if is_recorded or verb not in PATIENCE else verb]
    return discovery_program.ask(former.query, protocol, seconds)._replace(leases=leases)


def _load(protocol: int, path: str, answer: Answer | None, may_change: bool = True) -> dict[str, t.Any]:
    """Load what can be loaded now, and return the report.

    Unlike a run it rolls nothing back: each step leads towards the desired state, and the listener notices what undoes a step.

    may_change: if False, nothing is changed, and "pending" in the report says whether there is something to change.
    """
    # Before the record is read, so that the listener notices a record that replaces it from now on.
    version = listener_backend.version(record(protocol))
    (desired, holder), backend = _in_force(protocol, path, answer), Netlink()
    current = readiness.KernelState(backend.rules(), backend.routes(), {})
    of_query = _dependencies(desired, answer)
    links = readiness.links(desired, current).union(of_query.get("uplinks", ()))
    states = {name: link_state_backend.of(name) for name in sorted(links)}
    ready = readiness.split(desired, current._replace(links={name: up for name, (index, up) in states.items() if index}))
    live = LivePolicy(backend, ready.policy)
    plan = live.plan(live.observe())
    plans: list[tuple[Resource, Plan]] = [*([(holder, holder.plan(holder.observe()))] if holder else []), (live, plan)]
    steps = [(resource, step) for resource, of_resource in plans for step in of_resource.steps]
    is_pending = bool(steps) and not may_change
    for resource, step in steps if may_change else ():
        perform(resource, step.do)
    if steps and may_change:  # a step may have written the record, under the lock
        version = listener_backend.version(record(protocol))
    satisfied = [item for changes in plan.report for item, _protocols in changes.satisfied]
    open_ = [*satisfied, *(item for item, _reason in ready.waiting)]
    dependencies = Dependencies(
        links=states,
        tables=sorted({route.table for route in desired.routes or ()}),
        sources=sorted({route.src.hex() for route in desired.routes or () if route.src}),
        open=sorted(map(_key, open_)),
        waits=bool(ready.waiting),
        **of_query,
    )
    return {
        "pending": is_pending,
        "added": _texts([] if is_pending else [item for changes in plan.report for item in changes.added]),
        "removed": _texts([] if is_pending else [item for changes in plan.report for item in changes.removed]),
        "waiting": _texts([f"{item} ({reason})" for item, reason in ready.waiting]),
        "interest": dependencies._asdict(),
        "record": record(protocol),
        "version": version,
        "folders": answer.folders if answer else [],
        "leases": answer.leases if answer else {},
        "asked": answer and {"is_answered": answer.is_answered, "missing": _texts(answer.missing)},
    }


def _dependencies(desired: Policy, answer: Answer | None) -> dict[str, t.Any]:
    """Return the dependencies that follow from the policy's query."""
    if not desired.query:
        return {}
    from .._discovery import discovery_program

    return discovery_program.dependencies(desired.query, answer)


def _in_force(protocol: int, path: str, answer: Answer | None) -> tuple[Policy, ActivePolicyRecord | None]:
    """Return the policy to load, and its record if that must be written, as a run would.

    The policy is the one in the record, or after a boot the one at ``path``. If its query was answered, the policy follows from
    the answer. The former rules and routes of a network interface stay if the node has the interface and the answer does not
    describe it sufficiently: metadata may flap, and an ENI that is detached takes its interface along.
    """
    tables = rt_tables_backend.tables()
    former, is_recorded = _former(protocol, path, tables)
    if answer and answer.desired and answer.query == former.query:
        derived = policy.from_options(protocol, answer.desired.rules, answer.desired.routes, tables)
        desired = derived.besides(former.by(answer.unsure))._replace(query=former.query)
    else:
        desired = former
    is_new = desired.is_known and (desired is not former or not is_recorded)
    return desired, ActivePolicyRecord(Files(), protocol, desired.text()) if is_new else None


def _former(
    protocol: int, path: str, tables: t.Mapping[str, int], lists: t.Collection[str] = ("rules", "routes")
) -> tuple[Policy, bool]:
    """Return the policy in the record, else the one at ``path``, limited to ``lists``; and whether there is a record."""
    recorded = Files().read(record(protocol))
    if isinstance(recorded, Content):
        return policy.from_text(recorded.text, tables, lists), True
    return _read(path, tables, lists), recorded is not None


def _read(path: str, tables: t.Mapping[str, int], lists: t.Collection[str] = ("rules", "routes")) -> Policy:
    file = Files().read(path)
    if not isinstance(file, Content):
        raise Invalid("PATH", path, "a file that policy_routes has written")
    return policy.from_text(file.text, tables, lists)


def _key(item: Rule | Route) -> str:
    if isinstance(item, Rule):
        return rule_key(item.family, item.priority, item.src, item.dst)
    return route_key(item.family, item.table, item.dst, item.metric)


def _texts(items: t.Sequence[object]) -> list[str]:
    """Return the first SHOWN items as text, and the number of the others."""
    more = [f"{len(items) - SHOWN} more"] if len(items) > SHOWN else []
    return [*map(str, items[:SHOWN]), *more]
