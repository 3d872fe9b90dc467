# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The parts of the module profile for a list of modules."""

from __future__ import annotations

import contextlib
import importlib
import typing as t

from .._core.option import STATE, Option, Options
from .._core.parts import CHECKPOINT, Parts, Request
from .._platform import machine_guards, node_mode
from .._profiles import composition, mode_backend
from . import assembly
from .assembly import Profile, Transaction

# By role, the file of _profiles that observes the node for the role's profile.
OBSERVING = {
    "aks_dual_stack": "aks_dual_stack_backend",
    "cilium_migration": "cilium_migration",
    "eni_policy_routing": "eni_policy_routing_backend",
    "symmetric_routing": "symmetric_routing_backend",
}
OPTIONS: Options = {
    "name": Option("str", choices=tuple(OBSERVING)),
    "options": Option("dict"),
    "modules": Option("list", elements="raw"),
    "state": STATE,
    "mode": node_mode.MODE,
    "later_interfaces": Option("bool", False),
    "rehearse": Option("bool", False),  # by the controller, with datapath_rehearsal
    "rehearse_packets": Option("list", [], elements="raw"),
    "rehearse_checks": Option("list", [], elements="dict"),
    **machine_guards.OPTION,
    **CHECKPOINT,
}


def parts(request: Request) -> Parts:
    machine_guards.require_node(request.params["identity"])
    return assembly.parts(request, transaction(request))


def transaction(request: Request) -> Transaction:
    """Return the modules of a role's profile, or those of the list. Raises DatapathError."""
    options = request.params
    if options["name"]:
        return _of_role(options["name"]).transaction(request, options["options"] or {})
    steps = composition.steps(options["modules"] or ())
    verdict = mode_backend.verdict(options["mode"], request.run)
    steps = composition.ordered(steps if request.is_present else composition.undoing(steps))
    return Transaction(steps, verdict, {}, options["later_interfaces"])


def naming(params: t.Mapping[str, t.Any]) -> t.ContextManager[None]:
    """Turn errors in the block into those of the role's variables, if the options name a role."""
    return _of_role(params["name"]).naming() if params["name"] else contextlib.nullcontext()


def _of_role(name: str) -> Profile:
    model, observing = (importlib.import_module(f".._profiles.{file}", __package__) for file in (name, OBSERVING[name]))
    return Profile(name, t.cast(composition.Model, model), observing.observe)
