# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The profile eni_policy_routing: its options, and the modules that they stand for on a node whose pods share ENIs."""

from __future__ import annotations

import typing as t

from .._cloud import eni, eni_layout
from .._cni import marks as marks_of_cni
from .._cni.foreign_marks import ForeignMark
from .._core import names
from .._core.errors import Invalid
from .._core.option import STATE, Options, Values, applied, permitted, texts
from .._discovery import discovery
from .._interfaces import link_address
from .._nftables.return_path_table import ReturnPath, service_prefixes
from .._platform import node_mode
from .._routing import policy, rt_names
from . import routing_options

if t.TYPE_CHECKING:
    from .._cni.marks import Marks
    from .composition import Step

UNDO = "absent"
TABLE = "kubenodeReturnPath"
LOOSE, STRICT, SYMMETRIC = REMEDIES = ("loose", "strict", "symmetric")
PARTS = ("daemons", "filters", "own_addresses", *eni_layout.PARTS, "connmark")
# The parts to which each module belongs.
PARTS_OF: dict[str, tuple[str, ...]] = {
    "network_daemons": ("daemons",),
    "nftables_package": ("connmark",),
    "rp_filter": ("filters",),
    "link_addresses": ("own_addresses",),
    "policy_routes": eni_layout.PARTS,
    "nftables_connmark": ("connmark",),
}


def _parts(value: t.Sequence[str], _is_applied: bool) -> None:
    if not value:
        raise Invalid("manage", [], f"a list of at least one of {', '.join(PARTS)}")
    for number, part in enumerate(value):
        if part not in PARTS:
            raise Invalid(f"manage[{number}]", part, f"one of {', '.join(PARTS)}")


def _patterns(place: str, value: t.Sequence[str]) -> None:
    for number, pattern in enumerate(value):
        names.pattern(f"{place}[{number}]", pattern)


OPTIONS: Options = {
    "state": STATE,
    "manage": permitted("list", [*PARTS], elements="str", is_words=True, check=_parts),
    "remedy": permitted("str", LOOSE, choices=REMEDIES),
    "mode": node_mode.MODE,
    "layout": permitted("str", choices=(*eni_layout.LAYOUTS,)),
    "enis": permitted("list", elements="dict", targets=("link_addresses.addresses",)),
    "cloud": permitted("str", "auto", choices=names.ANY_CLOUD),
    "primary_interface": permitted(
        "str",
        check=applied(names.network_interface, "primary_interface"),
        targets=("rp_filter.interfaces[0]", "nftables_connmark.primary_interface"),
    ),
    "pod_interfaces": permitted(
        "list",
        elements="str",
        is_words=True,
        check=applied(_patterns, "pod_interfaces"),
        targets=("nftables_connmark.pod_interfaces",),
    ),
    "mark": permitted("str"),
    "priorities": permitted("dict"),
    "connmark": permitted("str", "auto", choices=("auto", "always", "never")),
    "service_addresses": permitted(
        "list",
        [],
        elements="str",
        is_words=True,
        check=lambda value, is_applied: service_prefixes(value) if is_applied else None,
        targets=("nftables_connmark.service_addresses",),
    ),
    "interface_marks": permitted(
        "list", [], elements="dict", entries=texts("name", "mark"), targets=("nftables_connmark.interfaces",)
    ),
    **routing_options.OPTIONS,
    "before": routing_options.before("link_addresses", "policy_routes", "nftables_connmark"),
}
checkpoint_of = routing_options.checkpoint_of


def needs_enis(options: Values) -> bool:
    """Return whether the ENIs matter. The settings of network daemons are the same for all ENIs."""
    return options["state"] != UNDO and {*options["manage"]} != {"daemons"}


def links(options: Values) -> dict[str, str]:
    """Return the names of network interfaces in the options, by option."""
    listed = {"enis": options["enis"] or (), "interface_marks": options["interface_marks"]}
    places = {f"{name}[{number}].name": entry.get("name") for name, ones in listed.items() for number, entry in enumerate(ones)}
    return {place: name for place, name in {**places, "primary_interface": options["primary_interface"]}.items() if name}


def conflicts(options: Values, is_image: bool | None) -> t.Iterator[str]:
    """Yield a sentence for each requirement on several options that they do not meet. Raises Invalid.

    is_image: None if that is not known yet.
    """
    if not needs_enis(options):
        return
    layout, remedy, connmark, enis, primary, pods = (
        options[name] for name in ("layout", "remedy", "connmark", "enis", "primary_interface", "pod_interfaces")
    )
    managed = options["manage"]
    is_marked = connmark != "never" and "connmark" in managed
    if layout is None:
        yield (
            f"eni_policy_routing_layout must be one of {', '.join([*eni_layout.LAYOUTS][:-1])} and custom; nothing was given."
            " Nothing was changed. Set the layout of the node's CNI, or custom for a CNI that makes no rules"
        )
    unmarked = "eni_policy_routing_connmark is never" if connmark == "never" else "eni_policy_routing_manage lacks connmark"
    if remedy == STRICT and "filters" in managed and not is_marked:
        yield (
            f"eni_policy_routing_remedy is strict and {unmarked}: every reply to a pod that comes in by the primary ENI would be"
            " dropped. Nothing was changed. Set eni_policy_routing_connmark to auto and list connmark, or set the remedy to loose"
        )
    for name in ("interface_marks", "service_addresses"):
        if options[name] and connmark == "never":
            yield (
                f"eni_policy_routing_{name} needs the table that marks connections, and eni_policy_routing_connmark is never."
                " Nothing was changed. Set eni_policy_routing_connmark to auto, or leave the former out"
            )
    if is_image and enis is None and not primary:
        yield (
            "eni_policy_routing_primary_interface must be given for an image, and was not: reverse-path filtering and marks are"
            " set by the name of the primary ENI's network interface. Nothing was changed. Set it to the name that udev gives"
            " the interface on the nodes, for example eth0 or ens5"
        )
    if is_image and enis is None and remedy == SYMMETRIC and "own_addresses" in managed:
        yield (
            "eni_policy_routing_remedy must be loose or strict for an image whose nodes discover their ENIs at boot; symmetric"
            " was given. Nothing was changed. Choose another remedy, or give the ENIs and their addresses in"
            " eni_policy_routing_enis"
        )
    if layout is None:
        return
    adapted = eni_layout.adapted(layout, options["mark"], options["priorities"])
    if is_marked and not pods and not adapted.pod_links:
        is_marked = False
        yield (
            f"eni_policy_routing_pod_interfaces must be given for the layout {layout} if connections are marked, and was not."
            " Nothing was changed. Set the names or patterns of the node's ends of the pods' interfaces, or"
            " eni_policy_routing_connmark to never"
        )
    if enis is None:
        _query(options, options["mark"])
    interfaces: t.Sequence[eni.Eni] = ()
    if enis is not None or primary:  # otherwise the metadata service tells the primary interface
        interfaces = eni.from_list("enis", [{"name": primary, "primary": True}] if enis is None else enis)
        desired = _desired(options, interfaces, options["mark"], managed)
        yield from _unfit_enis(desired, options)
        if is_marked:
            _check_return_path(desired, options)
    if "filters" in managed and remedy != SYMMETRIC:
        _check_filters(options, interfaces)


def _unfit_enis(desired: eni_layout.DesiredLayout, options: Values) -> t.Iterator[str]:
    """Yield the errors that the modules would report for the rules, routes and addresses that follow from the ENIs."""
    try:
        policy.from_options(options["protocol"], desired.rules, desired.routes, rt_names.TABLES)
        if options["remedy"] == SYMMETRIC and "own_addresses" in options["manage"]:
            link_address.from_options(desired.addresses)
    except Invalid as error:
        yield f"eni_policy_routing_enis must give valid rules, routes and addresses: {error}"


def _check_filters(options: Values, enis: t.Sequence[eni.Eni]) -> None:
    """Check the names for rp_filter, which takes fewer than the other modules."""
    if options["primary_interface"]:
        links = {"primary_interface": options["primary_interface"]}
    else:
        links = {f"{interface.option}.name": interface.name for interface in enis if interface.primary}
    if options["remedy"] == LOOSE:
        links.update(
            {f"interface_marks[{number}].name": entry["name"] for number, entry in enumerate(options["interface_marks"])}
        )
    for place, name in links.items():
        routing_options.require_sysctl_name(place, name)


def _check_return_path(desired: eni_layout.DesiredLayout, options: Values) -> None:
    ReturnPath.from_options(
        {
            "table": TABLE,
            "primary_interface": options["primary_interface"] or desired.primary_interface,
            "pod_interfaces": options["pod_interfaces"] or desired.pod_interfaces,
            "interfaces": desired.interfaces,
            "mark": desired.mark,
            "mask": desired.mask,
            "strict": options["remedy"] != LOOSE,
        }
    )


class Observation(t.NamedTuple):
    """What was observed on the node.

    interfaces: as the metadata service returned them, in the form of imds_info; None if it was not queried. marks: those in the
    rules of a running node. unread: why not all rules were read, as a sentence. networks: the prefixes on each link of a running
    node. foreign: the marks of other programs than the CNI.
    """

    is_image: bool
    interfaces: t.Sequence[t.Mapping[str, t.Any]] | None = None
    marks: t.Sequence[Marks] = ()
    unread: str = ""
    networks: t.Mapping[str, list[str]] | None = None
    foreign: t.Sequence[ForeignMark] = ()


class Enis(t.NamedTuple):
    """What follows from the node's ENIs; see the module's documentation.

    addresses, rules, routes: None for an image whose nodes query their ENIs at boot. query: the option ``enis`` of
    policy_routes; None if the ENIs were given.
    """

    primary_interface: str
    pod_interfaces: list[str]
    mark: str
    mask: str
    interfaces: list[eni_layout.Entry]
    request_interfaces: list[str]
    marks_itself: bool
    lacks_marks: bool
    marking: str
    left_out: dict[str, str]
    addresses: list[eni_layout.Entry] | None
    rules: list[eni_layout.Entry] | None
    routes: list[eni_layout.Entry] | None
    query: dict[str, t.Any] | None


class Facts(t.NamedTuple):
    """enis: None if the options do not need them. lacks_subnets: whether rules by source have no exceptions for that reason."""

    is_image: bool
    enis: Enis | None = None
    lacks_subnets: bool = False

    def report(self) -> dict[str, t.Any]:
        """Return the facts for the module's result, without those that the plan repeats."""
        enis = self.enis._asdict() if self.enis else {}
        return {name: value for name, value in enis.items() if name not in ("rules", "routes", "query")}

    def warnings(self) -> list[str]:
        sentences = [f"{sentence}." for sentence in self.enis.left_out.values()] if self.enis else []
        if self.lacks_subnets:
            sentences.append(
                "The rules for the ENIs' own addresses and pods send packets for other pods, bridges and tunnels of the node to"
                " the ENI's gateway, too. Give subnets of each ENI in eni_policy_routing_enis: an image does not show them."
            )
        return sentences


def facts(options: Values, observed: Observation) -> Facts:
    """Return the facts of the node that the plan depends on. Raises Invalid for metadata from which no rules and routes follow.

    The mark in the rules of the CNI on a running node replaces the layout's, unless the options give one.
    """
    if not needs_enis(options):
        return Facts(observed.is_image)
    is_image, mark, primary = observed.is_image, options["mark"], options["primary_interface"]
    entries = _with_subnets(options["enis"], observed.networks) if options["enis"] is not None else observed.interfaces
    # Without them, each boot queries the metadata service.
    interfaces = eni.from_list("enis", [{"name": primary, "primary": True}] if entries is None else entries)
    desired = _desired(options, interfaces, mark, _managed_rules(options))
    name = primary or desired.primary_interface
    bits = eni_layout.adapted(options["layout"], mark, options["priorities"]).bits
    if is_image:
        verdict = marks_of_cni.of_image(options["layout"], desired.marks_itself)
    else:
        demanded = bits if mark is not None else None
        verdict = marks_of_cni.verdict(options["layout"], name, observed.marks, observed.unread, demanded)
    if verdict.marks and mark is None and verdict.marks.bits != bits:
        mark = verdict.marks.text
        desired = _desired(options, interfaces, mark, _managed_rules(options))
    if {"mark_rule", "connmark"} & {*options["manage"]}:
        _check_marks(desired, eni_layout.adapted(options["layout"], mark, options["priorities"]).bits, observed.foreign)
    are_known = options["enis"] is not None or not is_image
    return Facts(
        is_image,
        Enis(
            primary_interface=name,
            pod_interfaces=options["pod_interfaces"] or desired.pod_interfaces,
            mark=desired.mark,
            mask=desired.mask,
            interfaces=desired.interfaces,
            request_interfaces=[name, *(interface["name"] for interface in desired.interfaces)],
            marks_itself=verdict.is_complete,
            lacks_marks=bool(desired.interfaces) or not verdict.is_complete,
            marking=verdict.reason,
            left_out=desired.left_out,
            addresses=desired.addresses if are_known else None,
            rules=desired.rules if are_known else None,
            routes=desired.routes if are_known else None,
            query=_query(options, mark) if options["enis"] is None else None,
        ),
        is_image and options["enis"] is not None and eni_layout.lacks_exceptions(options["layout"], interfaces),
    )


def _check_marks(desired: eni_layout.DesiredLayout, of_primary: tuple[int, int], foreign: t.Iterable[ForeignMark]) -> None:
    """Raise Invalid for a mark that rules confuse with one of another program. of_primary: the mark and the mask of its rule."""
    marks = {"mark": of_primary}
    for number, entry in enumerate(desired.interfaces):
        marks[f"interface_marks[{number}].mark"] = int(entry["mark"], 0), int(desired.mask, 0)
    for other in foreign:
        for place, bits in marks.items():
            if (other.value, other.mask) != bits and other.collides(*bits):
                allowed = f"one that rules for it do not confuse with {other.text}, the mark of {other.owner}"
                raise Invalid(place, ForeignMark(*bits, "").text, allowed)


def _with_subnets(
    enis: t.Sequence[t.Mapping[str, t.Any]], networks: t.Mapping[str, list[str]] | None
) -> t.Sequence[t.Mapping[str, t.Any]]:
    """Return the ENIs with the networks of their links as subnets, unless the options give these."""
    if networks is None:
        return enis
    return [{"subnets": networks.get(str(entry.get("name")), []), **entry} for entry in enis]


def _desired(options: Values, interfaces: eni.Enis, mark: object, parts: t.Collection[str]) -> eni_layout.DesiredLayout:
    priorities, marks = options["priorities"], options["interface_marks"]
    return eni_layout.desired(options["layout"], interfaces, mark, priorities, parts, marks)


def _managed_rules(options: Values) -> list[str]:
    """Return the managed parts of the layout; all of them if none is managed."""
    return [part for part in eni_layout.PARTS if part in options["manage"]] or [*eni_layout.PARTS]


def _query(options: Values, mark: object) -> dict[str, t.Any]:
    """Return the option ``enis`` of policy_routes, by which each boot finds the ENIs. Raises Invalid."""
    parts = _managed_rules(options)
    query = {name: options[name] for name in ("layout", "cloud", "priorities", "pod_interfaces", "interface_marks")}
    query.update(mark=mark, manage=parts if len(parts) < len(eni_layout.PARTS) else None)
    try:
        discovery.from_option(query)
    except Invalid as error:
        raise error.renamed(error.option[len("enis.") :]) from None
    return {name: value for name, value in query.items() if value}


def plan(options: Values, facts: Facts) -> list[Step]:
    """Return the modules with their options, in the order in which they are applied.

    Network daemons come first, so that they do not remove the rules that follow, and a table needs nft. A filter is loosened
    before the kernel routes replies differently, and tightened once replies are marked. What a former remedy set is undone last.
    """
    steps = _undone(options, facts) if options["state"] == UNDO else _applied(options, facts)
    return [step for step in steps if {*PARTS_OF[step[0]]} & {*options["manage"]}]


def _applied(options: Values, facts: Facts) -> list[Step]:
    enis, remedy, before = facts.enis, options["remedy"], {"before": options["before"]}
    groundwork = routing_options.groundwork(options, facts.is_image)
    if enis is None:  # only the daemons are managed
        return groundwork[:1]
    filtered = enis.request_interfaces if remedy == LOOSE else [enis.primary_interface]
    filters: Step = ("rp_filter", {"interfaces": filtered, "mode": remedy, "raise_all": options["raise_all"]})
    rules: Step = ("policy_routes", {"enis": enis.query, "rules": enis.rules, "routes": enis.routes, **before})
    rules[1].update(protocol=options["protocol"])
    is_marked = _is_marked(options, enis)
    return [
        *groundwork,
        *([filters] if remedy == LOOSE else []),
        *([("link_addresses", {"addresses": enis.addresses, **before})] if remedy == SYMMETRIC else []),
        rules,
        *([("nftables_connmark", _connmark(options, enis))] if is_marked else []),
        *([filters] if remedy == STRICT else []),
        *([] if is_marked else [_absent("nftables_connmark", **before)]),
        *([] if remedy == SYMMETRIC else [_absent("link_addresses", **before)]),
        *([_absent("rp_filter")] if remedy == SYMMETRIC else []),
    ]


def _is_marked(options: Values, enis: Enis) -> bool:
    """Return whether the table marks connections.

    Unless filtering is loose, a request to a node port passes the filter by its mark.
    """
    if options["connmark"] == "auto":
        return options["remedy"] != LOOSE or bool(options["service_addresses"]) or enis.lacks_marks
    return bool(options["connmark"] == "always")


def _connmark(options: Values, enis: Enis) -> dict[str, t.Any]:
    names = ("primary_interface", "pod_interfaces", "interfaces", "mark", "mask")
    return {
        **{name: getattr(enis, name) for name in names},
        "service_addresses": options["service_addresses"],
        "strict": options["remedy"] != LOOSE,
        "before": options["before"],
    }


def _undone(options: Values, facts: Facts) -> list[Step]:
    """Return the modules in the reverse order. A filter that is strict is undone before the marks that it needs."""
    before, is_strict = {"before": options["before"]}, options["remedy"] == STRICT
    return [
        *([_absent("rp_filter")] if is_strict else []),
        _absent("nftables_connmark", **before),
        _absent("policy_routes", protocol=options["protocol"], **before),
        _absent("link_addresses", **before),
        *([] if is_strict else [_absent("rp_filter")]),
        *reversed(routing_options.groundwork(options, facts.is_image)),
    ]


def _absent(module: str, **options: t.Any) -> Step:
    return module, {"state": "absent", **options}
