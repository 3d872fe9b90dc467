# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""A Python library that the next boot needs and that the node may lack."""

from __future__ import annotations

import typing as t

from .._core.plan import Backend, Plan, Plane, Step
from . import library


class ObservedLibrary(t.NamedTuple):
    """is_there: it can be loaded. carried: the folders it was carried to. is_needed: another set of this collection uses it."""

    is_there: bool
    carried: tuple[str, ...]
    is_needed: bool


class CarriedLibrary:
    """Keeps the library ``name`` on the node, or removes it when nothing uses it any more.

    The controller carries it over (MissingLibrary asks for it), so a diff shows nothing.

    is_needed: whether another set of this collection on the node uses it.
    """

    def __init__(self, name: str, desired: bool, is_needed: t.Callable[[], bool], plane: Plane) -> None:
        self.name = f"library {name}"
        self.plane = plane
        self._library = name
        self.is_desired = desired
        self._is_needed = is_needed

    def observe(self) -> ObservedLibrary:
        return ObservedLibrary(
            not self.is_desired or library.is_there(self._library),
            () if self.is_desired else tuple(library.carried(self._library)),
            self.is_desired or self._is_needed(),
        )

    def plan(self, observed: ObservedLibrary) -> Plan:
        if self.is_desired:
            return Plan() if observed.is_there else Plan((Step(f"carry over {self._library}", library.Load(self._library)),))
        paths = () if observed.is_needed else observed.carried
        return Plan(tuple(Step(f"remove {path}", library.Remove(path)) for path in paths))

    @property
    def backends(self) -> t.Sequence[Backend]:
        return (library.Libraries(),)
