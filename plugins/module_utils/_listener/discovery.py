# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""What each boot asks for itself: the ENIs of the node that it finds itself on, and what they need in a layout."""

from __future__ import annotations

import typing as t

from .._cloud import eni_layout
from .._cloud.metadata import ENDPOINTS
from .._core import names
from .._core.errors import Invalid
from .._routing import policy, rt_names

Enis = t.Mapping[str, t.Any]  # the option of this name, in normal form; plain data, for it is kept as JSON


class Found(t.NamedTuple):
    """rules, routes: as policy_routes takes them. unfit: by MAC, why an ENI can not be routed by as its metadata is now."""

    rules: list[eni_layout.Entry]
    routes: list[eni_layout.Entry]
    unfit: dict[str, str]


def from_option(given: t.Mapping[str, t.Any]) -> Enis:
    """The normal form of the option ``enis``, without what was left out. Raises Invalid.

    given: layout; and cloud, mark, priorities and pod_interfaces, None where left out.
    """
    try:
        layout = eni_layout.adapted(given["layout"], given["mark"], given["priorities"])
    except Invalid as error:
        raise error.inside("enis") from None
    clouds = ("auto", *(layout.clouds or ENDPOINTS))
    if given["cloud"] not in clouds:
        why = f": the layout {given['layout']} goes by device numbers, which no other tells" if layout.clouds else ""
        raise Invalid("enis.cloud", given["cloud"], f"one of {', '.join(clouds)}{why}")
    pods = [
        names.pattern(f"enis.pod_interfaces[{index}]", one) for index, one in enumerate(given["pod_interfaces"] or ())
    ]
    normal = {
        "layout": given["layout"],
        "cloud": given["cloud"],
        "mark": given["mark"] and layout.mark,
        "priorities": {key: getattr(layout, eni_layout.PRIORITIES[key]) for key in sorted(given["priorities"] or ())},
        "pod_interfaces": pods,
    }
    return {key: value for key, value in normal.items() if value}


def pod_interfaces(enis: Enis) -> list[str]:
    """Patterns of what the node's ends of pods' links are called."""
    return list(enis.get("pod_interfaces") or eni_layout.LAYOUTS[enis["layout"]].pod_links)


def found(enis: Enis, interfaces: t.Sequence[t.Mapping[str, t.Any]]) -> Found:
    """What the layout asks for on a node with these interfaces, as imds_info returns them, and as the filter eni_policy says.

    An ENI that was attached a moment ago may not be described in full yet, or as another one is; it does not keep the others.
    Raises Invalid where it is the primary one that does not fit.
    """
    fit = [one for one in interfaces if one["primary"]]
    _desired(enis, fit)
    unfit = {}
    for one in (one for one in interfaces if not one["primary"]):
        try:
            _desired(enis, [*fit, one])
        except Invalid as error:
            unfit[one["mac"]] = f"{one['name'] or one['mac']}: {error}"
        else:
            fit.append(one)
    desired = _desired(enis, [one for one in interfaces if one in fit])
    return Found(desired.rules, desired.routes, unfit)


def _desired(enis: Enis, interfaces: t.Sequence[t.Mapping[str, t.Any]]) -> eni_layout.Wish:
    """Raises Invalid, also where two of them ask for one table, as ENIs of which the metadata says the same number."""
    desired = eni_layout.desired(enis["layout"], interfaces, enis.get("mark"), enis.get("priorities"))
    policy.from_options(policy.PROTOCOL, desired.rules, desired.routes, rt_names.TABLES)
    return desired
