# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The option ``enis``, and the rules and routes that a layout derives from a node's ENIs.

The permanent file may keep the option instead of rules and routes: each boot then asks for the ENIs of the node that it runs on.
"""

from __future__ import annotations

import typing as t

from .._cloud import eni_layout
from .._cloud.metadata import ENDPOINTS
from .._core import names
from .._core.errors import Invalid
from .._routing import policy, rt_names

Enis = t.Mapping[str, t.Any]  # the option ``enis`` in normal form; plain data, because it is stored as JSON


class DerivedPolicy(t.NamedTuple):
    """rules, routes: in the form of policy_routes' options. unfit: by MAC, why an ENI's current metadata gives no routes.

    left_out: by name, why an ENI has none in this layout.
    """

    rules: list[eni_layout.Entry]
    routes: list[eni_layout.Entry]
    unfit: dict[str, str]
    left_out: dict[str, str]


def from_option(options: t.Mapping[str, t.Any]) -> Enis:
    """Return the normal form of the option ``enis``, without the keys that were left out. Raises Invalid.

    options: layout, cloud, manage, mark, priorities, pod_interfaces and interface_marks; the last five are None if left out.
    """
    try:
        layout = eni_layout.adapted(options["layout"], options["mark"], options["priorities"])
        marks = eni_layout.marks_of(layout, options["interface_marks"])
    except Invalid as error:
        raise error.inside("enis") from None
    clouds = ("auto", *(layout.clouds or ENDPOINTS))
    if options["cloud"] not in clouds:
        why = f": the layout {options['layout']} needs device numbers, which no other cloud reports" if layout.clouds else ""
        raise Invalid("enis.cloud", options["cloud"], f"one of {', '.join(clouds)}{why}")
    parts = [part for part in eni_layout.PARTS if part in (options["manage"] or eni_layout.PARTS)]
    pods = [
        names.pattern(f"enis.pod_interfaces[{index}]", pattern) for index, pattern in enumerate(options["pod_interfaces"] or ())
    ]
    normal = {
        "layout": options["layout"],
        "cloud": options["cloud"],
        "manage": parts if len(parts) < len(eni_layout.PARTS) else [],
        "mark": options["mark"] and layout.mark,
        "priorities": {key: getattr(layout, eni_layout.PRIORITIES[key]) for key in sorted(options["priorities"] or ())},
        "pod_interfaces": pods,
        "interface_marks": [{"name": name, "mark": f"{mark:#x}"} for name, mark in marks.items()],
    }
    return {key: value for key, value in normal.items() if value}


def pod_interfaces(enis: Enis) -> list[str]:
    """Name patterns of the node's ends of the links of pods."""
    return list(enis.get("pod_interfaces") or eni_layout.LAYOUTS[enis["layout"]].pod_links)


def rules_and_routes(enis: Enis, interfaces: t.Sequence[t.Mapping[str, t.Any]]) -> DerivedPolicy:
    """Return the rules and routes that the layout needs on a node with these interfaces; the same as from the filter eni_policy.

    interfaces: as imds_info returns them. The metadata of an ENI that was attached a moment ago may be incomplete, or equal to
    another ENI's. Such an ENI is reported as unfit, and does not hold up the others. Raises Invalid if the primary ENI is unfit.
    """
    fit = [interface for interface in interfaces if interface["primary"]]
    _desired(enis, fit)
    unfit = {}
    for interface in (secondary for secondary in interfaces if not secondary["primary"]):
        try:
            _desired(enis, [*fit, interface])
        except Invalid as error:
            unfit[interface["mac"]] = f"{interface['name'] or interface['mac']}: {error}"
        else:
            fit.append(interface)
    desired = _desired(enis, [interface for interface in interfaces if interface in fit])
    return DerivedPolicy(desired.rules, desired.routes, unfit, desired.left_out)


def _desired(enis: Enis, interfaces: t.Sequence[t.Mapping[str, t.Any]]) -> eni_layout.DesiredLayout:
    """Raise Invalid, also if two interfaces need the same table, as when the metadata gives two ENIs one number."""
    parts = enis.get("manage", eni_layout.PARTS)
    desired = eni_layout.desired(
        enis["layout"], interfaces, enis.get("mark"), enis.get("priorities"), parts, enis.get("interface_marks")
    )
    policy.from_options(policy.PROTOCOL, desired.rules, desired.routes, rt_names.TABLES)
    return desired
