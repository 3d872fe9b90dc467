# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The seam between a module's options and the loop: a module is a function from a Request to its Parts."""

from __future__ import annotations

import contextlib
import json
import typing as t

from .errors import Invalid
from .option import STATE, Option, Options, of_module
from .plan import Guard, Outcome, Plane, Resource

TWO_PLANES: Options = {
    "state": STATE,
    "immediate": Option("bool", True),
    "permanent": Option("bool", True),
}

# For a module that can cut the node off. The controller starts the command (plugin_utils/_checkpoint.py).
CHECKPOINT: Options = {
    "checkpoint": Option("int", 0),
    "checkpoint_command": Option("str"),
}


def loaded(params: dict[str, t.Any], options: Options, long_lists: t.Collection[str] = ()) -> dict[str, t.Any]:
    """Prepare ``params`` for Ansible's check of their types. Takes the long lists out of ``params`` and returns them.

    Lists may come as JSON text: extra vars given as key=value, as Packer does, are strings.
    """
    for name, option in options.items():
        value = params.get(name)
        if option.type == "list" and isinstance(value, str) and value.lstrip().startswith("["):
            # The argument spec reports the error.
            with contextlib.suppress(ValueError, RecursionError):
                params[name] = json.loads(value)
        elif option.type == "dict" and isinstance(value, dict):
            loaded(value, option.entries or {})
    return {name: params.pop(name, None) for name in long_lists}


class Effects(t.NamedTuple):
    """The effects of a module on the node that the other modules of the same transaction must know.

    brings_nft: nft is installed. units_gone: the units that are removed. rules: policy rules that are added.
    loosens: strict reverse-path filtering is undone or replaced.
    """

    brings_nft: bool = False
    units_gone: frozenset[str] = frozenset()
    rules: tuple[t.Any, ...] = ()
    loosens: bool = False

    def then(self, other: Effects) -> Effects:
        return Effects(
            self.brings_nft or other.brings_nft,
            self.units_gone | other.units_gone,
            (*self.rules, *other.rules),
            self.loosens or other.loosens,
        )


NO_EFFECTS = Effects()


class Request:
    """The options of a module, and the functions of the run that its parts may use.

    params: the options, with their types. entries: the module's long lists as they were given, their entries unchecked. run:
    starts a program, as process.run(). warn: takes a sentence for the operator. earlier: the effects of the modules before it.
    is_alone: False for a module that is a part of another run.
    """

    is_alone = True

    def __init__(
        self,
        params: dict[str, t.Any],
        entries: t.Mapping[str, t.Any],
        run: t.Callable[..., t.Any],
        warn: t.Callable[[str], None],
        earlier: Effects = NO_EFFECTS,
    ) -> None:
        self.params = params
        self.run = run
        self.warn = warn
        self.earlier = earlier
        self._entries = entries

    @property
    def is_present(self) -> bool:
        """Return whether the option ``state`` is present."""
        return bool(self.params["state"] == "present")

    def entries(self, name: str) -> list[t.Any] | None:
        """Return a long list as it was given, its entries unchecked; None if it was left out. Raises Invalid."""
        value = self._entries[name]
        if value is not None and not isinstance(value, list):
            raise Invalid(name, value, "a list of dictionaries, or JSON text of one")
        return value

    def planes(self) -> set[Plane]:
        """Return the planes that the options select; all for a module without these options.

        Raises Invalid if none is selected.
        """
        planes = {plane for plane in Plane if self.params.get(plane.value, True)}
        if not planes:
            raise Invalid("immediate", False, "true if permanent is false, because nothing would be managed otherwise")
        return planes


def requested(part: t.Any, options: dict[str, t.Any], by: Request, earlier: Effects = NO_EFFECTS) -> Request:
    """Return the request of a module that is a part of another run. Raises Invalid.

    part: the module's file of ``_parts``. options: its options, from which long lists are taken out. by: the request of the run.
    """
    long_lists = loaded(options, part.OPTIONS, getattr(part, "LONG_LISTS", ()))
    declared = {name: value for name, value in part.OPTIONS.items() if name not in long_lists}
    request = Request(of_module(declared, options), long_lists, by.run, by.warn, earlier)
    request.is_alone = False
    return request


class Parts(t.NamedTuple):
    """What a module contributes to a run.

    resources: in the order in which they are applied. guards: are asked before anything changes.
    report: the module's own results after the run.
    groundwork: those of the resources that other modules build on. They are complete before the others are begun, and are
        removed after these. A checkpoint is armed after them, because a package manager may need longer than its seconds.
    stages: the resources of each of several modules. If another module has changed the node, a module is observed and planned
        anew when its turn comes, because the kernel's reaction to a change shows only then.
    effects: see Effects. diff: Ansible's diff of the run, by default one entry for each plane.
    """

    resources: t.Sequence[Resource]
    guards: t.Sequence[Guard]
    report: t.Callable[[Outcome], dict[str, t.Any]]
    groundwork: t.Sequence[Resource] = ()
    stages: t.Sequence[t.Sequence[Resource]] = ()
    effects: Effects = NO_EFFECTS
    diff: t.Callable[[Outcome], list[dict[str, str]]] = Outcome.diff
