# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Loads a file of policy routes at boot, by the same code as a run: what it loads, a later run finds unchanged.

Started as ``policy-routes-75.json.pyz PATH`` by a unit of systemd, which tries again where it fails.
"""

from __future__ import annotations

import sys
import typing as t

from .._converge import Plane, converge
from .._model import policy
from .._model.problem import Invalid, Problem
from .._resources.policy_state import PolicyState
from .._system import lock, rt_tables
from .._system.netlink import Netlink

# What the program is made of besides this file.
PARTS = (
    "_converge",
    "_model.attributes",
    "_model.fields",
    "_model.policy",
    "_model.problem",
    "_model.route",
    "_model.rt_names",
    "_model.rule",
    "_resources.policy_state",
    "_system.library",
    "_system.lock",
    "_system.netlink",
    "_system.rt_tables",
)


def main(arguments: t.Sequence[str] = ()) -> int:
    (path,) = arguments or sys.argv[1:]
    try:
        live = PolicyState(Netlink(), policy.from_text(_read(path), rt_tables.tables()))
        outcome = converge([live], {Plane.IMMEDIATE}, exclusive=lock.exclusive)
    except Problem as problem:
        sys.stderr.write(f"{path} could not be loaded: {problem}\n")
        return 1
    for what, changes in (("rules", live.rules), ("routes", live.routes)):
        sys.stdout.write(f"{what}: {len(changes.added)} added, {len(changes.removed)} removed, {changes.kept} kept\n")
    sys.stdout.write("Changed.\n" if outcome.changed else "Nothing to change.\n")
    return 0


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError as error:
        raise Invalid("PATH", path, f"a readable file: {error.strerror}") from error
