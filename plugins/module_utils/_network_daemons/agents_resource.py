# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""The files that keep cloud agents off interfaces that appear: which of them a node needs."""

from __future__ import annotations

import typing as t

from .._files import files, managed_files
from . import agent_files
from .agent_files import SWITCHES, Switch


class Switched(t.NamedTuple):
    """agents: whether each is active after the run, by name. paths: of the files that keep an agent off, by its name."""

    agents: t.Mapping[str, bool]
    paths: t.Mapping[str, str]


def switched(backend: files.Files, agents: t.Mapping[str, bool], overruled: t.Collection[str], is_desired: bool) -> Switched:
    """Choose the switches of agents that would be active without them. A foreign file in the place of a switch stays.

    agents, overruled: as daemons_backend.read() and overruled() return them.
    """
    states = {switch: backend.read(switch.path) for switch in SWITCHES}
    ours = {switch.agent for switch, state in states.items() if state is not None and _entry(switch, True).is_ours(state)}
    free = {switch.agent for switch, state in states.items() if state is None}.difference(overruled)
    installed = {name.partition(",")[0]: is_active for name, is_active in agents.items()}
    needed = {agent for agent, is_active in installed.items() if agent in ours or (is_active and agent in free)}
    paths = {switch.agent: switch.path for switch in SWITCHES if is_desired and switch.agent in needed}
    after = {**dict.fromkeys(paths.keys() - ours, False), **dict.fromkeys(needed & ours - paths.keys(), True)}
    return Switched({name: after.get(name, is_active) for name, is_active in agents.items()}, paths)


def placed(backend: files.Files, desired: Switched) -> t.Iterator[managed_files.ManagedFiles]:
    """Yield the resources of the files, by folder."""
    for folder in (agent_files.UDEV_FOLDER, agent_files.CLOUD_FOLDER):
        entries = [_entry(switch, switch.agent in desired.paths) for switch in SWITCHES if switch.path.startswith(folder)]
        yield managed_files.ManagedFiles(backend, entries, "agents", "set agents to ignore")


def _entry(switch: Switch, is_desired: bool) -> managed_files.ManagedFile:
    return managed_files.text(switch.path, switch.text if is_desired else None)
