# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The record of the active policy: the rules and routes that the listener restores until the next boot."""

from __future__ import annotations

import typing as t

from .._core.plan import Backend, Plan, Plane
from .._files import files, managed_files
from .._files.managed_files import ManagedFiles, text


class ObservedActivePolicy(t.NamedTuple):
    has_listener: bool
    file: managed_files.ObservedFiles


def record(protocol: int) -> str:
    """Return the record's path. It is in /run, which a boot empties: after a boot, the policy in the permanent file is active."""
    return f"/run/kubenode/policy-routes-{protocol}.json"


class ActivePolicyRecord:
    """Keeps ``desired``, the text of a policy, in the record for the listener to read.

    stays: True if the listener remains after the run. A listener that the run removes still reads the record until it stops. A
        checkpoint may delay that, and without a record the listener would load what a boot loads.
    has_listener: returns whether the listener is installed now.
    plane: PERMANENT for the resource that removes the record together with the listener. If there is no listener, the resource
        of the immediate plane removes the record.
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
            ManagedFiles(backend, [text(self.name, content)], "immediate", claimed=(self.name,)) for content in (desired, None)
        )

    def observe(self) -> ObservedActivePolicy:
        return ObservedActivePolicy(self._has_listener(), (self._current if self._stays else self._gone).observe())

    def plan(self, observed: ObservedActivePolicy) -> Plan:
        """Plan the record. The plan has no text for the diff: the diff of the rules and routes shows the change already."""
        goes_with_listener = self.plane is Plane.PERMANENT
        if goes_with_listener and not observed.has_listener:
            return Plan()
        is_there = observed.file.states[self.name] is not None
        is_read = self._stays or (not goes_with_listener and observed.has_listener and is_there)
        return (self._current if is_read else self._gone).plan(observed.file)._replace(objects=())

    @property
    def backends(self) -> t.Sequence[Backend]:
        return (self._backend,)
