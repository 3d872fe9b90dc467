# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Which set of rules and routes is in force now: what the listener restores until the next boot."""

from __future__ import annotations

import typing as t

from .._core.converge import Backend, Plan, Plane
from .._platform import files, managed_files
from .._platform.managed_files import ManagedFiles, text


class Observed(t.NamedTuple):
    has_listener: bool
    file: managed_files.Observed


def record(protocol: int) -> str:
    """In /run, which a boot empties: what the next boot loads is in force then."""
    return f"/run/kubenode/policy-routes-{protocol}.json"


class ActivePolicyRecord:
    """Holds the record at ``desired``, the text of a policy, for a listener to read.

    stays: whether there is a listener after the run. One that goes reads on until it has gone: a checkpoint may lie between,
        and without a record it would load what a boot loads.
    has_listener: whether there is one now.
    plane: PERMANENT for what takes the record away with the listener. Without one, that is the immediate plane's to do.
    """

    def __init__(
        self,
        backend: files.Files,
        protocol: int,
        desired: str,
        stays: bool = True,
        has_listener: t.Callable[[], bool] = lambda: False,
        plane: Plane = Plane.IMMEDIATE,
    ) -> None:
        self.name = record(protocol)
        self.plane = plane
        self._backend = backend
        self._stays = stays
        self._has_listener = has_listener
        self._current, self._gone = (
            ManagedFiles(backend, [text(self.name, content)], "immediate", claimed=(self.name,))
            for content in (desired, None)
        )

    def observe(self) -> Observed:
        return Observed(self._has_listener(), (self._current if self._stays else self._gone).observe())

    def plan(self, observed: Observed) -> Plan:
        """Without a text for the diff: what comes and goes is in that of the rules and routes."""
        goes_with_listener = self.plane is Plane.PERMANENT
        if goes_with_listener and not observed.has_listener:
            return Plan()
        is_there = observed.file.found[self.name] is not None
        is_read = self._stays or (not goes_with_listener and observed.has_listener and is_there)
        return (self._current if is_read else self._gone).plan(observed.file)._replace(before="", after="")

    @property
    def backends(self) -> t.Sequence[Backend]:
        return (self._backend,)
