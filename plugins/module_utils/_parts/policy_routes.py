# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The parts of the module policy_routes."""

from __future__ import annotations

import typing as t
from functools import partial

from .._cni.layout_guards import cni_layouts
from .._core import names
from .._core.errors import Failure, Invalid
from .._core.option import Option, Options, texts
from .._core.parts import CHECKPOINT, TWO_PLANES, Effects, Parts, Request
from .._core.plan import Guard, Outcome, Plane, Resource
from .._files.files import Files
from .._files.folder_guards import roots_folders
from .._kubelet import kubelet_units
from .._kubelet.kubelet_guards import kubelet_starters
from .._listener.boot_policy import BootPolicy
from .._platform.library import PYROUTE2, CarriedLibrary
from .._profiles import ownership_backend
from .._profiles.ownership import unowned
from .._routing import policy, rt_tables_backend
from .._routing.live_policy import LivePolicy, Report
from .._routing.policy import Policy, Query
from .._routing.routing_backend import Netlink
from .._systemd.unit_files import path_of
from .._systemd.units import Units

if t.TYPE_CHECKING:
    from .._discovery.discovery import DerivedPolicy

OPTIONS: Options = {
    **TWO_PLANES,
    **CHECKPOINT,
    **kubelet_units.OPTIONS,
    "enis": Option(
        "dict",
        entries={
            "layout": Option("str", choices=("aws_vpc_cni", "cilium", "terway", "custom"), is_required=True),
            "cloud": Option("str", "auto", choices=names.ANY_CLOUD),
            "manage": Option("list", choices=("mark_rule", "tables"), elements="str"),
            "mark": Option("str"),
            "priorities": Option("dict"),
            "pod_interfaces": Option("list", elements="str", is_words=True),
            "interface_marks": Option("list", elements="dict", entries=texts("name", "mark")),
        },
    ),
    "uplinks": Option("list", elements="dict", entries=policy.UPLINK),
    "rules": Option(
        "list",
        elements="dict",
        entries={
            "priority": Option("int", is_required=True),
            "family": Option("str", choices=("ipv4", "ipv6")),
            "from": Option("str"),
            "to": Option("str"),
            "iif": Option("str"),
            "oif": Option("str"),
            "fwmark": Option("str"),
            "tos": Option("str"),
            "ipproto": Option("str"),
            "sport": Option("str"),
            "dport": Option("str"),
            "uidrange": Option("str"),
            "l3mdev": Option("bool"),
            "not": Option("bool"),
            "action": Option("str", choices=("lookup", "goto", "blackhole", "unreachable", "prohibit")),
            "table": Option("str"),
            "goto": Option("int"),
            "suppress_prefixlength": Option("int"),
        },
    ),
    "routes": Option(
        "list",
        elements="dict",
        entries={
            "table": Option("str", is_required=True),
            "to": Option("str", is_required=True),
            "family": Option("str", choices=("ipv4", "ipv6")),
            "type": Option("str", choices=("unicast", "local", "blackhole", "unreachable", "prohibit", "throw")),
            "via": Option("str"),
            "dev": Option("str"),
            "onlink": Option("bool"),
            "scope": Option("str", choices=("global", "site", "link", "host")),
            "src": Option("str"),
            "metric": Option("int"),
            "mtu": Option("int"),
            "nexthops": Option(
                "list",
                elements="dict",
                entries={
                    "dev": Option("str"),
                    "via": Option("str"),
                    "onlink": Option("bool"),
                    "weight": Option("int", 1),
                },
            ),
        },
    ),
    "protocol": Option("int", 75),
    "path": Option("path"),
}

LONG_LISTS = ("rules", "routes")


def parts(request: Request) -> Parts:
    tables, systemd, is_permanent = (
        rt_tables_backend.tables(),
        Units(request.run, request.warn),
        request.params["permanent"],
    )
    before = kubelet_units.others(request.params["before"])
    listed = _listed(request, tables)
    path = names.boot_path(request.params["path"] or f"/etc/kubenode/policy-routes-{listed.protocol}.json", request.is_present)

    boot = BootPolicy(Files(), systemd, listed.protocol, path, tables, before)
    unmanaged = _unmanaged(listed, request)
    at_boot = _after(listed, boot.kept(unmanaged if is_permanent else []), request).for_boot()
    active = _after(listed, boot.active(unmanaged), request)
    # Also where absent removes only some rules.
    is_moving = is_permanent and not at_boot.is_empty and path != boot.loaded_path
    if is_moving:
        names.own_path("path", path)

    live = LivePolicy(Netlink(), listed, request.is_present)
    record = boot.record(active, not at_boot.is_empty if is_permanent else boot.has_listener)
    library = _library(is_permanent and not at_boot.is_empty, systemd, boot.unit, request)
    placed = boot.resources(at_boot, starts=request.params["immediate"]) if is_permanent else []
    if is_permanent and at_boot.is_empty and request.params["immediate"]:
        placed.append(boot.record_gone())
    # The library comes first, because the boot program needs it, and is removed last.
    resources: list[Resource] = [*([library] if library.is_desired else []), live, record, *placed]
    resources += [] if library.is_desired or not at_boot.is_empty else [library]

    def report(outcome: Outcome) -> dict[str, t.Any]:
        result = outcome.report(live) or Report()
        return {"rules": result.rules.report(), "routes": result.routes.report()}

    rules = listed.rules or () if request.is_present and request.params["immediate"] else ()
    guards: list[Guard] = [partial(cni_layouts, listed)] if request.is_present else []
    if request.is_present and request.is_alone:
        guards.append(partial(unowned, ownership_backend.read(Files()), "policy_routes", request.params))
    if is_permanent and not at_boot.is_empty:
        guards += [partial(roots_folders, path, path_of(boot.unit))] if request.is_present or is_moving else []
        guards.append(partial(kubelet_starters, systemd, [boot.unit], before))
    groundwork = [] if library.is_desired else [library]
    return Parts(resources, guards, report, groundwork, effects=Effects(rules=rules))


def _unmanaged(listed: Policy, request: Request) -> list[str]:
    """Return the names of the lists that this run does not replace as a whole, so that their current content must be read."""
    if request.is_present:
        return listed.left_out
    return [] if len(listed.left_out) == 2 else ["rules", "routes"]


def _listed(request: Request, tables: t.Mapping[str, int]) -> Policy:
    """Return the policy in the options. If the run needs its lists and they are left out, they come from the node's ENIs or
    uplinks."""
    listed = policy.from_options(request.params["protocol"], request.entries("rules"), request.entries("routes"), tables)
    query = _query(request)
    if query is None:
        if request.is_present and len(listed.left_out) == 2:
            raise Invalid("rules", None, "given if state is present, unless routes, enis or uplinks are given")
        return listed
    if not request.is_present:
        return listed
    if len(listed.left_out) == 1:
        objects = "ENIs" if query.source == "enis" else query.source
        allowed = f"given if {query.source} and the other list are given: both follow from the {objects}"
        raise Invalid(listed.left_out[0], None, allowed)
    if listed.left_out and request.params["immediate"]:
        derived = _of_enis(query) if query.source == "enis" else _of_uplinks(query, listed.protocol)
        for sentence in derived.left_out.values():
            request.warn(f"{sentence}.")
        listed = policy.from_options(listed.protocol, derived.rules, derived.routes, tables)
    return listed._replace(query=query)


def _query(request: Request) -> Query | None:
    """Return the query of the options, in normal form. Raises Invalid."""
    if all(request.params[source] is not None for source in policy.SOURCES):
        raise Invalid("uplinks", request.params["uplinks"], "left out if enis is given")
    if request.params["enis"]:
        from .._discovery import discovery  # most runs do not need it and should not wait for the import

        return Query("enis", discovery.from_option(request.params["enis"]))
    if request.params["uplinks"] is not None:
        from .._discovery import uplinks

        return Query("uplinks", uplinks.from_option(request.params["uplinks"]))
    return None


def _of_enis(query: Query) -> DerivedPolicy:
    """Return the ENIs' rules and routes. Raises NoMetadata, and Failure if the metadata of an ENI is incomplete."""
    from .._cloud import enis_backend as backend
    from .._discovery import discovery

    _cloud, interfaces = backend.read(query.value["cloud"])
    layout = discovery.rules_and_routes(query.value, interfaces)
    if layout.unfit:
        raise Failure(
            f"the metadata does not describe all ENIs of this node: {'; '.join(layout.unfit.values())}. Nothing was"
            " changed. Run again later"
        )
    return layout


def _of_uplinks(query: Query, protocol: int) -> DerivedPolicy:
    """Return the uplinks' rules and routes. Raises Invalid for an uplink that the node cannot have."""
    from .._discovery import uplinks, uplinks_backend

    node = uplinks_backend.read(protocol)
    uplinks.check(query.value, node)
    derived = uplinks.rules_and_routes(query.value, node)
    return derived._replace(left_out=derived.unfit)


def _after(listed: Policy, former: Policy, request: Request) -> Policy:
    """Return the desired policy after this run. Unmanaged lists keep the former content; absent without lists empties both."""
    if request.is_present:
        return listed.over(former)
    remaining = former.without(listed)
    return remaining._replace(rules=(), routes=()) if listed.rules is None and listed.routes is None else remaining


def _library(desired: bool, systemd: Units, unit: str, request: Request) -> CarriedLibrary:
    """Return the resource of pyroute2 for the boot.

    A run that only changes the running kernel requests it when it has something to change.
    """
    going = {unit} if request.params["permanent"] else set()
    return CarriedLibrary(
        PYROUTE2,
        desired,
        is_needed=lambda: bool(systemd.named("kubenode-policy-routes-*.service") - going),
        plane=Plane.PERMANENT if request.params["permanent"] else Plane.IMMEDIATE,
    )
