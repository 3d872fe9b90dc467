# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The objects that a profile takes or gives up in a run, and the record of those that it owns."""

from __future__ import annotations

import typing as t

from .._core.plan import Resource
from .._files import files
from .._files.managed_files import ManagedFiles, text
from . import composition, ownership, ownership_backend
from .composition import Step
from .ownership import Owners, unowned_by_others

Stage = t.Sequence[Resource]


class OwnedObjects:
    """The objects of the modules of a transaction. profile: its name; empty for modules in a playbook, which own nothing.

    steps: the modules, without those that would undo what another profile owns.
    """

    def __init__(self, backend: files.Files, profile: str, steps: t.Sequence[Step]) -> None:
        claims = [(step, ownership.claim(*step), composition.undoes(*step)) for step in steps]
        self._backend = backend
        self._profile = profile
        self._owners = ownership_backend.read(backend) if any(name for _step, name, _undone in claims) else Owners({}, {})
        self._others = {
            name: owner for _step, name, undone in claims if profile and undone and (owner := self._owners.other(name, profile))
        }
        self._taken = {name for _step, name, undone in claims if name and not undone}
        self._undone = {name for _step, name, undone in claims if undone}
        self.steps = [step for step, name, undone in claims if not (undone and name in self._others)]

    def kept(self) -> t.Iterator[str]:
        """Yield a sentence for each object that stays because it is another profile's."""
        for name, owner in self._others.items():
            yield f"{name} stays, because it belongs to the profile {owner} on this node."

    def guard(self) -> t.Iterable[str]:
        """Raise Refusal if the modules would replace what another profile owns."""
        return unowned_by_others(self._owners, sorted(self._taken), self._profile)

    def around(self, stages: t.Sequence[Stage]) -> list[Stage]:
        """Return the stages with that of the record: before all others, so that objects are on record first.

        A record that only loses objects comes last.
        """
        recorded = self._owners.recorded.get(self._profile, frozenset())
        owned = (recorded | self._taken) - self._undone
        if not self._profile or not owned and not recorded:
            return [*stages]
        listed = "".join(f"{name}\n" for name in sorted(owned)) or None
        record = ManagedFiles(self._backend, [text(ownership.record(self._profile), listed)], "permanent")
        return [[record], *stages] if owned - recorded else [*stages, [record]]
