# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""systemd-networkd's settings for foreign rules and routes: the drop-in, and that the running networkd has read it."""

from __future__ import annotations

import typing as t

from .._core.plan import Backend, Plan, Plane, Step, whole
from .._files import files, managed_files
from . import networkd as model
from . import networkd_backend


class ObservedNetworkd(t.NamedTuple):
    """started: the start time of the running networkd, None if none runs; see Networkd.started()."""

    drop_in: managed_files.ObservedFiles
    configuration: dict[str, networkd_backend.File]
    started: float | None


def has_read(configuration: t.Mapping[str, networkd_backend.File], keys: t.Iterable[str], started: float) -> bool:
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
        daemon: networkd_backend.Networkd,
        text: str | None,
        keys: t.Sequence[str],
        restarts: bool,
    ) -> None:
        self._backend = backend
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
        restart = Step(f"restart {networkd_backend.UNIT}", networkd_backend.Restart(), networkd_backend.Start())
        started = (f"# systemd-networkd was started {when} this was written\n" for when in ("before", "after"))
        return Plan((*placing.steps, restart), placing.objects if placing.steps else whole(*started))

    @property
    def backends(self) -> t.Sequence[Backend]:
        return (self._backend, self._daemon)
