# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""The facts of the node that a profile's modules may refer to, by name."""

from __future__ import annotations

import typing as t

from .._core import names
from .._core.errors import Invalid

if t.TYPE_CHECKING:
    from .._cni.marks import Marks

Values = dict[str, t.Any]
# Not in the result: the lists may be long, and the result of policy_routes contains their changes.
INTERNAL = ("rules", "routes", "query")


def of_mode(is_image: bool, reason: str) -> Values:
    return {"is_image": is_image, "is_running": not is_image, "reason": reason}


def asks_for_enis(option: t.Mapping[str, t.Any], is_image: bool) -> bool:
    """Whether the metadata service must be asked. Raises Invalid if an image lacks an option that only its nodes can find out."""
    if option["interfaces"] is not None:
        return False
    if is_image and not option["primary_interface"]:
        why = "given for an image, unless interfaces are given: filters and marks need this name before a node can query its ENIs"
        raise Invalid("enis.primary_interface", None, why)
    return not is_image


def named_interfaces(option: t.Mapping[str, t.Any]) -> dict[str, str]:
    """The names of interfaces in the option ``enis``, by option."""
    named = {"interfaces": option["interfaces"] or (), "interface_marks": option["interface_marks"] or ()}
    given = {f"enis.{key}[{number}].name": one.get("name") for key, ones in named.items() for number, one in enumerate(ones)}
    return {where: name for where, name in {**given, "enis.primary_interface": option["primary_interface"]}.items() if name}


class SeenMarks(t.NamedTuple):
    """The marks in the node's rules, see _cni/marks.py. unread: why not all rules were read, as a sentence."""

    found: t.Sequence[Marks] = ()
    unread: str = ""


UNSEEN = SeenMarks()


def of_enis(
    option: t.Mapping[str, t.Any],
    is_image: bool,
    asked: t.Sequence[t.Mapping[str, t.Any]] | None = None,
    seen: SeenMarks = UNSEEN,
) -> Values:
    """The facts that follow from the node's ENIs. Raises Invalid.

    option: the option ``enis``. asked: the interfaces from the metadata service, None if it was not asked. The nodes of an
    image whose ENIs are not given ask at boot; only the primary ENI's network interface is known then, by its name.
    seen: on a running node. The mark of the CNI's rules replaces the layout's, unless the option gives one.
    """
    from .._cloud import eni_layout  # a profile without ENIs should not wait for the imports
    from .._cni import marks
    from .._discovery import discovery

    given, primary = option["interfaces"], option["primary_interface"]
    if primary is not None:
        names.interface("enis.primary_interface", primary)
    discovery.from_option(option)
    of_image = [{"name": primary, "primary": True}]
    interfaces = given if given is not None else of_image if asked is None else asked

    def derived(mark: object) -> eni_layout.DesiredLayout:
        try:
            parts, marks = option["manage"] or eni_layout.PARTS, option["interface_marks"]
            return eni_layout.desired(option["layout"], interfaces, mark, option["priorities"], parts, marks)
        except Invalid as error:
            raise error.inside("enis") if not error.option.startswith("enis") else _of_interfaces(error) from None

    desired, mark = derived(option["mark"]), option["mark"]
    name = primary or desired.primary_interface
    bits = eni_layout.adapted(option["layout"], mark, option["priorities"]).bits
    demanded = bits if mark is not None else None
    if is_image:
        verdict = marks.of_image(option["layout"], desired.marks_itself)
    else:
        verdict = marks.verdict(option["layout"], name, *seen, demanded)
    if verdict.marks and mark is None and verdict.marks.bits != bits:
        mark = verdict.marks.text
        desired = derived(mark)
    is_told = given is not None or not is_image
    query = {**{key: option[key] for key in QUERY}, "mark": mark, "interface_marks": option["interface_marks"] or None}
    return {
        "primary_interface": name,
        "pod_interfaces": option["pod_interfaces"] or desired.pod_interfaces,
        "mark": desired.mark,
        "mask": desired.mask,
        "interfaces": desired.interfaces,
        "request_interfaces": [name, *(one["name"] for one in desired.interfaces)],
        "marks_itself": verdict.is_complete,
        "lacks_marks": bool(desired.interfaces) or not verdict.is_complete,
        "marking": verdict.reason,
        "left_out": desired.left_out,
        "addresses": desired.addresses if is_told else None,
        "rules": desired.rules if is_told else None,
        "routes": desired.routes if is_told else None,
        "query": None if given is not None else {key: value for key, value in query.items() if value is not None},
    }


QUERY = ("layout", "cloud", "manage", "mark", "priorities", "pod_interfaces")  # as policy_routes takes them


def _of_interfaces(error: Invalid) -> Invalid:
    """The filter's list is called enis, the profile's is enis.interfaces."""
    return error.renamed(f"enis.interfaces{error.option[len('enis') :]}")


def of_ipv6(has_ipv6: bool, reason: str) -> Values:
    """reason: the statement of the source that was queried, as a clause."""
    verdict = "The node has IPv6" if has_ipv6 else "The node has no IPv6"
    return {"has_ipv6": has_ipv6, "ipv6_reason": f"{verdict}: {reason}."}


def of_an_image(source: str, variable: str = "ipv6.source") -> Values:
    """An image gets what a node with IPv6 needs, and each boot decides whether the node has IPv6. variable: where the source was
    given.
    """
    if source in ("imds", "address"):
        return {"has_ipv6": True, "ipv6_reason": "Each boot decides whether the node has IPv6."}
    return of_ipv6(source == "always", f"{variable} says so")
