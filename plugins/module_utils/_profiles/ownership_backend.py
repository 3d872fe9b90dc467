# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reads which profile owns which objects of the node: from the records, or from the files of a version without records."""

from __future__ import annotations

import re
import typing as t

from .._boot import boot_files
from .._files import files
from .._systemd import unit_files
from . import ownership
from .ownership import BEGINS, DAEMONS, FILTERS, FOLDER, TABLE, Owners

ROUTES = "kubenode-policy-routes-{}.service"
PROFILES = {"uplinks": "symmetric_routing", "enis": "eni_policy_routing", "": "eni_policy_routing"}  # by a set's source
SOURCE = re.compile(r'^"(uplinks|enis)": ', re.MULTILINE)  # in the file of a set, see policy.Policy.text()
BEGINNING = 4096  # characters of such a file, which may have thousands of rules behind it
PRIMARY = "chain leaving "  # only a table with a primary interface has it, see return_path_table.py


def read(backend: files.Files) -> Owners:
    profiles = {name[len(BEGINS) :] for name in backend.entries(FOLDER) if name.startswith(BEGINS)}
    recorded = {name: frozenset(_text(backend, ownership.record(name)).splitlines()[1:]) for name in sorted(profiles)}
    return Owners(recorded, dict(_former(backend)))


def _former(backend: files.Files) -> t.Iterator[tuple[str, str]]:
    """Yield the objects of the profiles that a boot loads. What both profiles share is of the one that loads something else."""
    profiles = set[str]()
    for unit in sorted(unit_files.named(ROUTES.format("*"))):
        match = SOURCE.search(_loaded(backend, unit), 0, BEGINNING)
        source = match[1] if match else ""
        profiles |= {PROFILES[source]} if source else set()
        yield f"protocol {unit.rpartition('-')[2].partition('.')[0]}", PROFILES[source]
    table = _loaded(backend, f"kubenode-nft-inet-{TABLE}.service")
    if table:
        profile = PROFILES["enis" if PRIMARY in table else "uplinks"]
        profiles.add(profile)
        yield f"table inet {TABLE}", profile
    if len(profiles) == 1:
        yield from ((name, profile) for profile in profiles for name in (FILTERS, DAEMONS))


def _loaded(backend: files.Files, unit: str) -> str:
    """Return the text of the file that a unit of this collection loads; empty for none."""
    path = boot_files.loaded_path(backend, unit)
    return _text(backend, path) if path else ""


def _text(backend: files.Files, path: str) -> str:
    state = backend.read(path)
    return state.text if isinstance(state, files.Content) else ""
