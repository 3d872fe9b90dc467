# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Brings the rules and routes of one protocol to what is in force, by the same code as a run: a later run finds them unchanged.

Started by the listener, as ``policy-routes-75.json.pyz load 75 PATH``, at boot and whenever something is lost. PATH is what a
boot loads. It ends by telling in JSON what it did, what waits for a link that is not there, what the set depends on, and which
record it stands in.

As ``ask 75 PATH`` and ``boot 75 PATH`` it first asks the metadata service, where the set follows from the node's ENIs, and
tells what came of it.

As ``ready 75 PATH`` it only sees whether it could: it has its libraries, and can read PATH.
"""

from __future__ import annotations

import contextlib
import json
import sys
import typing as t

from .._boot.boot_unit import LACKS_LIBRARY
from .._core.converge import Plan, Resource, perform
from .._core.errors import DatapathError, Failure, Invalid, MissingLibrary
from .._platform import library, lock
from .._platform.files import Content, Files
from .._routing import policy, routing_backend, rt_tables_backend
from .._routing.active_policy_resource import ActivePolicyRecord, record
from .._routing.live_policy import LivePolicy
from .._routing.policy import Policy
from .._routing.route import Route
from .._routing.routing_backend import Netlink
from .._routing.rule import Rule
from . import link_state_backend, readiness, watched_file_backend
from .change_event import Dependencies, route_key, rule_key

if t.TYPE_CHECKING:
    from .discovery_program import Answer

# Seconds for which the metadata service is asked. At boot kubelet waits for it. The service answers in milliseconds, and the
# network by which it is asked is up: what is silent for so long is in trouble, and systemd gives a unit 90 s to start. Later,
# what is lost meanwhile would wait as long to be restored.
PATIENCE = {"ask": 1.0, "boot": 20.0}
# Seconds that the first load waits for the lock when it has something to change. A run that starts the unit holds the lock and
# waits for the unit, so what is missing then is loaded after that run, by another load.
UNDER_A_RUN = 5.0
SHOWN = 8  # rules and routes that are named; a node may have thousands


def main(arguments: t.Sequence[str]) -> int:
    verb, protocol, path = arguments
    try:
        if verb == "ready":
            return _ready(path)
        # Not under the lock, as it may take long.
        answer = _ask(verb, int(protocol), path) if verb in PATIENCE else None
        # A run that starts the unit leaves nothing to do, and holds the lock: first look without it.
        report = _load(int(protocol), path, answer, may_change=False) if verb == "boot" else None
        if report is None or report["pending"]:
            with contextlib.ExitStack() as stack:
                try:
                    # A run changes the kernel and the record under it: what is found then belongs together.
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
        library.load(library.PYROUTE2, *routing_backend.MODULES)
    except MissingLibrary as missing:
        sys.stderr.write(f"{missing}\n")
        return LACKS_LIBRARY
    _read(path, rt_tables_backend.tables())
    return 0


def _ask(verb: str, protocol: int, path: str) -> Answer | None:
    """None where the set follows from no metadata."""
    former, is_recorded = _former(protocol, path, rt_tables_backend.tables(), lists=())
    if not former.enis:
        return None
    from . import discovery_program  # only for the sets that need it

    # A set that has been in force before has to be again.
    return discovery_program.ask(former.enis, PATIENCE["ask" if is_recorded else verb])


def _load(protocol: int, path: str, answer: Answer | None, may_change: bool = True) -> dict[str, t.Any]:
    """Unlike a run it undoes nothing: each step leads towards what is desired, and whatever undoes it will be heard.

    may_change: without, the report says whether anything is pending.
    """
    version = watched_file_backend.version(
        record(protocol)
    )  # before it is read: another one is then known to be another
    (desired, holder), backend = _in_force(protocol, path, answer), Netlink()
    there = readiness.Surroundings(backend.rules(), backend.routes(), {})
    states = {name: link_state_backend.of(name) for name in sorted(readiness.links(desired, there))}
    ready = readiness.split(desired, there._replace(links={name: up for name, (index, up) in states.items() if index}))
    live = LivePolicy(backend, ready.policy)
    plan = live.plan(live.observe())
    plans: list[tuple[Resource, Plan]] = [*([(holder, holder.plan(holder.observe()))] if holder else []), (live, plan)]
    steps = [(resource, step) for resource, of_resource in plans for step in of_resource.steps]
    is_pending = bool(steps) and not may_change
    for resource, step in steps if may_change else ():
        perform(resource, step.do)
    if steps and may_change:  # one of them may have written it, under the lock
        version = watched_file_backend.version(record(protocol))
    others = [item for changes in plan.report for item, _protocols in changes.satisfied]
    open_ = [*others, *(item for item, _reason in ready.waiting)]
    interest = Dependencies(
        links=states,
        tables=sorted({route.table for route in desired.routes or ()}),
        sources=sorted({route.src.hex() for route in desired.routes or () if route.src}),
        open=sorted(map(_key, open_)),
        waits=bool(ready.waiting),
        **_surveyed(desired, answer),
    )
    return {
        "pending": is_pending,
        "added": _shown([] if is_pending else [item for changes in plan.report for item in changes.added]),
        "removed": _shown([] if is_pending else [item for changes in plan.report for item in changes.removed]),
        "waiting": _shown([f"{item} ({reason})" for item, reason in ready.waiting]),
        "interest": interest._asdict(),
        "record": record(protocol),
        "version": version,
        "asked": answer and {"is_answered": answer.is_answered, "missing": _shown(answer.missing)},
    }


def _surveyed(desired: Policy, answer: Answer | None) -> dict[str, t.Any]:
    """Of the interest in cards: those that the metadata was asked for, as one that comes meanwhile is another question."""
    if not desired.enis:
        return {}
    from . import discovery_program

    pods = discovery_program.pod_interfaces(desired.enis)
    return {"pods": pods, "cards": sorted(answer.cards if answer else discovery_program.cards(pods))}


def _in_force(protocol: int, path: str, answer: Answer | None) -> tuple[Policy, ActivePolicyRecord | None]:
    """What a run has put in force since the node was booted; after a boot, what is to be loaded by it. And its record.

    Where the metadata has told what the set is now, that. Of a card which is there, and of which it does not tell enough, what
    was in force stays: metadata may flap, and an ENI that goes takes its card along. It is recorded, as a run would.
    """
    tables = rt_tables_backend.tables()
    former, is_recorded = _former(protocol, path, tables)
    if answer and answer.desired and answer.enis == former.enis:
        told = policy.from_options(protocol, answer.desired.rules, answer.desired.routes, tables)
        desired = told.besides(former.by(answer.unsure))._replace(enis=former.enis)
    else:
        desired = former
    is_new = desired.is_known and (desired is not former or not is_recorded)
    return desired, ActivePolicyRecord(Files(), protocol, desired.text()) if is_new else None


def _former(
    protocol: int, path: str, tables: t.Mapping[str, int], lists: t.Collection[str] = ("rules", "routes")
) -> tuple[Policy, bool]:
    """Of ``lists``, what was in force so far, or what a boot is told; and whether there is a record of it."""
    recorded = Files().read(record(protocol))
    if isinstance(recorded, Content):
        return policy.from_text(recorded.text, tables, lists), True
    return _read(path, tables, lists), recorded is not None


def _read(path: str, tables: t.Mapping[str, int], lists: t.Collection[str] = ("rules", "routes")) -> Policy:
    found = Files().read(path)
    if not isinstance(found, Content):
        raise Invalid("PATH", path, "a file that policy_routes has written")
    return policy.from_text(found.text, tables, lists)


def _key(item: Rule | Route) -> str:
    if isinstance(item, Rule):
        return rule_key(item.family, item.priority, item.src, item.dst)
    return route_key(item.family, item.table, item.dst, item.metric)


def _shown(items: t.Sequence[object]) -> list[str]:
    """The first of them, and how many there are more."""
    more = [f"{len(items) - SHOWN} more"] if len(items) > SHOWN else []
    return [*map(str, items[:SHOWN]), *more]
