# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""The seam between a module's options and the loop: a module is a function from a Request to its Parts."""

from __future__ import annotations

import typing as t

from .converge import Guard, Outcome, Resource

TWO_PLANES: dict[str, dict[str, t.Any]] = {
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "immediate": {"type": "bool", "default": True},
    "permanent": {"type": "bool", "default": True},
}

# For a module that can cut the node off. The controller starts the command (plugin_utils/_checkpoint.py).
CHECKPOINT: dict[str, dict[str, t.Any]] = {
    "checkpoint": {"type": "int", "default": 0},
    "checkpoint_command": {"type": "str"},
}


class Request(t.Protocol):
    """What a module was asked, and what its parts may use of the run.

    params: the options, checked by the argument spec. run: starts a program, as process.run(). warn: takes a sentence for the
    operator.
    """

    params: dict[str, t.Any]
    run: t.Callable[..., t.Any]

    @property
    def is_present(self) -> bool:
        """True if the option ``state`` is present."""

    def entries(self, name: str) -> list[t.Any] | None:
        """A long list as it was given, its entries unchecked; None if it was left out. Raises Invalid."""

    def warn(self, warning: str) -> None: ...


class Parts(t.NamedTuple):
    """What a module contributes to a run.

    resources: in the order in which they are applied. guards: are asked before anything changes.
    report: the module's own results after the run.
    """

    resources: t.Sequence[Resource]
    guards: t.Sequence[Guard]
    report: t.Callable[[Outcome], dict[str, t.Any]]
