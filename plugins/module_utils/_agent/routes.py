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
"""

from __future__ import annotations

import json
import sys
import typing as t

from .._model import policy, readiness
from .._model.notification import Interest, route_key, rule_key
from .._model.policy import Policy
from .._model.problem import Invalid, Problem
from .._model.route import Route
from .._model.rule import Rule
from .._resources.policy_state import PolicyState
from .._resources.wish_in_force import WishInForce, record
from .._system import link_state, lock, rt_tables, watched_file
from .._system.files import Content, Files
from .._system.netlink import Netlink

if t.TYPE_CHECKING:
    from .discovery import Answer

# Seconds for which the metadata service is asked. At boot kubelet waits for it. The service answers in milliseconds, and the
# network by which it is asked is up: what is silent for so long is in trouble, and systemd gives a unit 90 s to start. Later,
# what is lost meanwhile would wait as long to be restored.
PATIENCE = {"ask": 1.0, "boot": 20.0}
SHOWN = 8  # rules and routes that are named; a node may have thousands


def main(arguments: t.Sequence[str]) -> int:
    verb, protocol, path = arguments
    try:
        # Not under the lock, as it may take long.
        answer = _ask(verb, int(protocol), path) if verb in PATIENCE else None
        with lock.exclusive():  # a run changes the kernel and the record under it: what is found then belongs together
            report = _load(int(protocol), path, answer)
    except Problem as problem:
        sys.stderr.write(f"<3>The rules and routes of protocol {protocol} could not be loaded: {problem}\n")
        return 1
    json.dump(report, sys.stdout)
    return 0


def _ask(verb: str, protocol: int, path: str) -> Answer | None:
    """None where the set follows from no metadata."""
    former, is_recorded = _former(protocol, path, rt_tables.tables(), lists=())
    if not former.enis:
        return None
    from . import discovery  # only for the sets that need it

    # A set that has been in force before has to be again.
    return discovery.ask(former.enis, PATIENCE["ask" if is_recorded else verb])


def _load(protocol: int, path: str, answer: Answer | None) -> dict[str, t.Any]:
    """Unlike a run it takes nothing back: each step leads towards what is wished, and whatever undoes it will be heard."""
    wish, edge = _in_force(protocol, path, answer), Netlink()
    there = readiness.Surroundings(edge.rules(), edge.routes(), {})
    states = {name: link_state.of(name) for name in sorted(readiness.links(wish, there))}
    ready = readiness.split(wish, there._replace(links={name: up for name, (index, up) in states.items() if index}))
    live = PolicyState(edge, ready.policy)
    for step in live.plan(live.observe()).steps:
        live.perform(step.do)
    others = [item for changes in (live.rules, live.routes) for item, _protocols in changes.satisfied]
    open_ = [*others, *(item for item, _reason in ready.waiting)]
    interest = Interest(
        links=states,
        tables=sorted({route.table for route in wish.routes or ()}),
        sources=sorted({route.src.hex() for route in wish.routes or () if route.src}),
        open=sorted(map(_key, open_)),
        waits=bool(ready.waiting),
        **_surveyed(wish, answer),
    )
    return {
        "added": _shown([*live.rules.added, *live.routes.added]),
        "removed": _shown([*live.rules.removed, *live.routes.removed]),
        "waiting": _shown([f"{item} ({reason})" for item, reason in ready.waiting]),
        "interest": interest._asdict(),
        "record": record(protocol),
        "version": watched_file.version(record(protocol)),
        "asked": answer and {"is_answered": answer.is_answered, "missing": _shown(answer.missing)},
    }


def _surveyed(wish: Policy, answer: Answer | None) -> dict[str, t.Any]:
    """Of the interest in cards: those that the metadata was asked for, as one that comes meanwhile is another question."""
    if not wish.enis:
        return {}
    from . import discovery

    pods = discovery.pod_interfaces(wish.enis)
    return {"pods": pods, "cards": sorted(answer.cards if answer else discovery.cards(pods))}


def _in_force(protocol: int, path: str, answer: Answer | None) -> Policy:
    """What a run has put in force since the node was booted; after a boot, what is to be loaded by it.

    Where the metadata has told what the set is now, that. Of a card which is there, and of which it does not tell enough, what
    was in force stays: metadata may flap, and an ENI that goes takes its card along. It is recorded, as a run would.
    """
    tables = rt_tables.tables()
    former, is_recorded = _former(protocol, path, tables)
    if answer and answer.wish and answer.enis == former.enis:
        told = policy.from_options(protocol, answer.wish.rules, answer.wish.routes, tables)
        wish = told.besides(former.by(answer.unsure))._replace(enis=former.enis)
    else:
        wish = former
    if wish.is_known and (wish is not former or not is_recorded):
        holder = WishInForce(Files(), protocol, wish.text())
        for step in holder.plan(holder.observe()).steps:
            holder.perform(step.do)
    return wish


def _former(
    protocol: int, path: str, tables: t.Mapping[str, int], lists: t.Collection[str] = ("rules", "routes")
) -> tuple[Policy, bool]:
    """Of ``lists``, what was in force so far, or what a boot is told; and whether there is a record of it."""
    recorded = Files().read(record(protocol))
    found = recorded if isinstance(recorded, Content) else Files().read(path)
    if not isinstance(found, Content):
        raise Invalid("PATH", path, "a file that policy_routes has written")
    return policy.from_text(found.text, tables, lists), recorded is not None


def _key(item: Rule | Route) -> str:
    if isinstance(item, Rule):
        return rule_key(item.family, item.priority, item.src, item.dst)
    return route_key(*item.key)


def _shown(items: t.Sequence[object]) -> list[str]:
    """The first of them, and how many there are more."""
    more = [f"{len(items) - SHOWN} more"] if len(items) > SHOWN else []
    return [*map(str, items[:SHOWN]), *more]
