# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""A Python library that the next boot needs, where the node has none of its own."""

from __future__ import annotations

import typing as t

from .._core.converge import Backend, Plan, Plane, Step
from . import library


class Observed(t.NamedTuple):
    """is_there: whether it can be loaded. carried: where it was carried to. is_needed: by another set of ours."""

    is_there: bool
    carried: tuple[str, ...]
    is_needed: bool


class CarriedLibrary:
    """Holds ``library`` on the node, or away from it when the last that needs it has gone.

    The controller brings it (Missing asks for it), so that there is nothing to show in a diff.

    is_needed: whether anything else of ours on the node uses it.
    """

    def __init__(self, name: str, desired: bool, is_needed: t.Callable[[], bool], plane: Plane) -> None:
        self.name = f"library {name}"
        self.plane = plane
        self._library = name
        self.is_desired = desired
        self._is_needed = is_needed

    def observe(self) -> Observed:
        return Observed(
            not self.is_desired or library.is_there(self._library),
            () if self.is_desired else tuple(library.carried(self._library)),
            self.is_desired or self._is_needed(),
        )

    def plan(self, observed: Observed) -> Plan:
        if self.is_desired:
            return (
                Plan()
                if observed.is_there
                else Plan((Step(f"carry over {self._library}", library.Load(self._library)),))
            )
        paths = () if observed.is_needed else observed.carried
        return Plan(tuple(Step(f"remove {path}", library.Remove(path)) for path in paths))

    @property
    def backends(self) -> t.Sequence[Backend]:
        return (library.Libraries(),)
