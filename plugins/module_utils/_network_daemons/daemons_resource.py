# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Files that keep cloud agents off interfaces that appear, and systemd-networkd off foreign rules and routes."""

from __future__ import annotations

import typing as t

from .._core.plan import Plan, Plane, Step, whole
from .._files import files, managed_files
from . import daemons_backend, known_daemons
from . import networkd as model
from .known_daemons import SWITCHES, Switch


class Switched(t.NamedTuple):
    """agents: whether each is active after the run, by name. paths: of the files that keep an agent off, by its name."""

    agents: t.Mapping[str, bool]
    paths: t.Mapping[str, str]


def switched(backend: files.Files, agents: t.Mapping[str, bool], overruled: t.Collection[str], is_desired: bool) -> Switched:
    """Choose the switches of agents that would be active without them. A foreign file in the place of a switch stays.

    agents, overruled: as daemons_backend.read() and overruled() return them.
    """
    states = {switch: backend.read(switch.path) for switch in SWITCHES}
    by_our_files = {
        switch.agent for switch, state in states.items() if state is not None and _switch_file(switch, True).is_ours(state)
    }
    free = {switch.agent for switch, state in states.items() if state is None}.difference(overruled)
    installed = {name.partition(",")[0]: is_active for name, is_active in agents.items()}
    needed = {agent for agent, is_active in installed.items() if agent in by_our_files or (is_active and agent in free)}
    paths = {switch.agent: switch.path for switch in SWITCHES if is_desired and switch.agent in needed}
    after = {**dict.fromkeys(paths.keys() - by_our_files, False), **dict.fromkeys(needed & by_our_files - paths.keys(), True)}
    return Switched({name: after.get(name, is_active) for name, is_active in agents.items()}, paths)


def placed(backend: files.Files, desired: Switched) -> t.Iterator[managed_files.ManagedFiles]:
    """Yield the resources of the files, by folder."""
    for folder in (known_daemons.UDEV_FOLDER, known_daemons.CLOUD_FOLDER):
        entries = [_switch_file(switch, switch.agent in desired.paths) for switch in SWITCHES if switch.path.startswith(folder)]
        yield managed_files.ManagedFiles(backend, entries, "agents", "set agents to ignore")


def _switch_file(switch: Switch, is_desired: bool) -> managed_files.ManagedFile:
    return managed_files.text(switch.path, switch.text if is_desired else None)


class ObservedNetworkd(t.NamedTuple):
    """started: the start time of the running networkd, None if none runs; see Networkd.started()."""

    drop_in: managed_files.ObservedFiles
    configuration: dict[str, daemons_backend.File]
    started: float | None


def has_read(configuration: t.Mapping[str, daemons_backend.File], keys: t.Iterable[str], started: float) -> bool:
    """Return whether a networkd that started at ``started`` has read all keys as "no" from files that existed by then."""
    texts = {path: file.text for path, file in configuration.items()}
    settings = [model.setting(texts, key) for key in keys]
    return all(not setting.value and configuration[setting.path].changed <= started for setting in settings)


class NetworkdSettings:
    """Installs the drop-in with ``text``, or removes it if None.

    A networkd that has read a drop-in which is then removed or undone is not restarted: without the settings it would remove the
    rules and routes of all other programs as it starts. It keeps the settings until its next start.

    keys: must be "no" in the running networkd; empty if the drop-in is to be removed.
    restarts: whether to restart a running networkd that has not read the keys.
    """

    name = model.PATH
    plane = Plane.PERMANENT

    def __init__(
        self,
        backend: files.Files,
        daemon: daemons_backend.Networkd,
        text: str | None,
        keys: t.Sequence[str],
        restarts: bool,
    ) -> None:
        self.backends = (backend, daemon)
        self._daemon = daemon
        self._keys = keys
        self._restarts = restarts
        entry = managed_files.text(model.PATH, text)
        self._drop_in = managed_files.ManagedFiles(backend, [entry], "permanent", "move its lines into a drop-in of another name")

    def observe(self) -> ObservedNetworkd:
        return ObservedNetworkd(self._drop_in.observe(), self._daemon.configuration(), self._daemon.started())

    def plan(self, observed: ObservedNetworkd) -> Plan:
        placing = self._drop_in.plan(observed.drop_in)
        if not self._restarts or not self._keys or observed.started is None:
            return placing
        if not placing.steps and has_read(observed.configuration, self._keys, observed.started):
            return placing
        restart = Step(f"restart {daemons_backend.UNIT}", daemons_backend.Restart(), daemons_backend.Start())
        started = (f"# systemd-networkd was started {when} this was written\n" for when in ("before", "after"))
        return Plan((*placing.steps, restart), placing.objects if placing.steps else whole(*started))
