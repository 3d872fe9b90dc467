# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.
"""The parts of the module profile: those of its modules."""

from __future__ import annotations

import importlib
import types
import typing as t

from .._cloud.clouds import CHOICES
from .._core.errors import DatapathError, Failure, Invalid
from .._core.parts import CHECKPOINT, Effects, Parts, Request, requested
from .._core.plan import Outcome, Resource
from .._platform import node_mode
from .._platform.own_root import OwnRoot
from .._profile import knowledge, knowledge_backend, profile
from .._profile.knowledge import Values
from .._profile.profile import Entry

if t.TYPE_CHECKING:  # so that Ansible copies them to the node, for _part()
    from . import (  # noqa: F401
        azure_vnet_bridge,
        ebtables_cleanup,
        link_addresses,
        network_daemons,
        nftables_connmark,
        nftables_package,
        nftables_probe_snat,
        policy_routes,
        rp_filter,
    )

OPTIONS: dict[str, dict[str, t.Any]] = {
    "modules": {"type": "list", "elements": "raw", "required": True},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "mode": {"type": "str", "choices": [*node_mode.MODES], "default": "auto"},
    "enis": {
        "type": "dict",
        "options": {
            "layout": {"type": "str", "choices": ["aws_vpc_cni", "cilium", "terway", "custom"], "required": True},
            "cloud": {"type": "str", "choices": CHOICES, "default": "auto"},
            "manage": {"type": "list", "elements": "str", "choices": ["mark_rule", "tables"]},
            "interfaces": {"type": "list", "elements": "raw"},
            "primary_interface": {"type": "str"},
            "pod_interfaces": {"type": "list", "elements": "str"},
            "mark": {"type": "str"},
            "interface_marks": {
                "type": "list",
                "elements": "dict",
                "options": {"name": {"type": "str", "required": True}, "mark": {"type": "str", "required": True}},
            },
            "priorities": {"type": "dict"},
        },
    },
    "ipv6": {
        "type": "dict",
        "options": {
            "source": {"type": "str", "choices": ["imds", "address", "always", "never"], "default": "imds"},
            "interface": {"type": "str", "default": "eth0"},
        },
    },
    "later_interfaces": {"type": "bool", "default": False},
    "variables": {"type": "dict", "default": {}},
    "rehearse": {"type": "bool", "default": False},  # by the controller, with datapath_rehearsal
    "rehearse_packets": {"type": "list", "elements": "raw", "default": []},
    **CHECKPOINT,
}


def parts(request: Request) -> Parts:
    entries, known = learned(request)
    built = list(_built(request, entries, known["is_image"]))

    stages = list(_stages([(entry, own) for entry, _asked, own in built]))
    every = [resource for stage in stages for resource in stage]
    guards = [guard for _entry, _asked, own in built for guard in own.guards]
    if any(asked.params.get("immediate") for _entry, asked, _own in built):
        guards.insert(0, OwnRoot(str(known["reason"]).rstrip("."), "Set mode to image"))

    def report(outcome: Outcome) -> dict[str, t.Any]:
        results, lines = dict[str, t.Any](), list[str]()
        for entry, asked, own in built:
            done = outcome.of(own.resources)
            results[entry.module] = {"changed": done.changed, **own.report(done)}
            lines.append(_line(entry, asked, done))
        told = {name: value for name, value in known.items() if name not in knowledge.INTERNAL}
        return {"node": told, "summary": lines, **results}

    groundwork = [resource for _entry, _asked, own in built for resource in own.groundwork]
    return Parts(every, guards, report, groundwork, stages)


def learned(request: Request) -> tuple[list[Entry], Values]:
    """The entries in the order in which they are applied, with their references resolved, and the facts of the node."""
    options = request.params
    entries = profile.entries(options["modules"])
    known = (knowledge_backend.learn if request.is_present else knowledge_backend.mode)(options, request.run)
    for sentence in known.get("left_out", {}).values():
        request.warn(f"{sentence}.")
    return profile.ordered(profile.learned(entries, known) if request.is_present else profile.undoing(entries)), known


def _stages(built: t.Sequence[tuple[Entry, Parts]]) -> t.Iterator[list[Resource]]:
    """The resources of each module, in order. Groundwork comes first; if it is removed, it comes last."""
    ground = {entry.module: [one for one in own.resources if one in own.groundwork] for entry, own in built}
    yield from (ground[entry.module] for entry, _own in built if not entry.undoes)
    yield from ([one for one in own.resources if one not in own.groundwork] for _entry, own in built)
    yield from (ground[entry.module] for entry, _own in built if entry.undoes)


def _built(request: Request, entries: t.Sequence[Entry], is_image: bool) -> t.Iterator[tuple[Entry, Request, Parts]]:
    """The entries, their requests, and their parts on the planes that they select.

    Raises Invalid for a wrong option of any entry before another error of another one.
    """
    earlier, trouble = Effects(loosens=any(entry.loosens for entry in entries)), list[DatapathError]()
    for entry in entries:
        part = _part(entry.module)
        asked = _asked(request, entry, part, is_image, earlier)
        try:
            planes, own = asked.planes(), part.parts(asked)
            if not (entry.undoes or is_image or request.params["later_interfaces"]):
                knowledge_backend.check_interfaces(profile.interfaces(entry.module, asked.params))
        except Invalid as error:
            raise error.inside(entry.module) from None
        except DatapathError as error:
            trouble.append(error)
            continue
        own = own._replace(resources=[one for one in own.resources if one.plane in planes])
        earlier = earlier.then(own.effects)
        if not trouble:
            yield entry, asked, own
    if trouble:
        raise trouble[0]


def _asked(request: Request, entry: Entry, part: types.ModuleType, is_image: bool, earlier: Effects) -> Request:
    """The entry's options by its module's argument spec. Raises Invalid, Failure."""
    given = dict(entry.options)
    if "immediate" in part.OPTIONS:
        given.setdefault("immediate", not is_image)
    for option in CHECKPOINT:
        if option in given:
            raise Invalid(f"{entry.option}.{entry.module}.{option}", given[option], f"left out: set the profile's {option}")
    try:
        return requested(part, given, request, earlier)
    except Failure as failure:
        raise Failure(f"{entry.module}: {failure}") from None


def _line(entry: Entry, asked: Request, done: Outcome) -> str:
    """The line of the summary about a module's resources."""
    changed = [name for resource, _plan in done.plans for name in resource.name.split(", ")]
    kept = [name for resource, plan in done.surveyed if not plan.steps for name in resource.name.split(", ")]
    told = [f"{word} {', '.join(dict.fromkeys(names))}" for word, names in (("changed", changed), ("as desired:", kept)) if names]
    return f"{entry.module} ({asked.params['state']}): {'; '.join(told) or 'nothing to do'}"


def _part(module: str) -> types.ModuleType:
    """The file of the module's parts. Imported here, because a run needs few of them."""
    return importlib.import_module(f".{module}", __package__)
