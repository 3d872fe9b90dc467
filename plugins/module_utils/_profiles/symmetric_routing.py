# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The profile symmetric_routing: its options, and the modules that they stand for on a node with several uplinks and no cloud."""

from __future__ import annotations

import typing as t

from .._cni import foreign_marks
from .._cni.foreign_marks import ForeignMark
from .._core import names
from .._core.errors import Invalid, Refusal
from .._core.option import STATE, Options, Values, permitted
from .._discovery import uplinks
from .._discovery.uplinks import NodeState
from .._nftables.return_path_table import ReturnPath
from .._platform import node_mode
from .._routing import policy
from . import routing_options

if t.TYPE_CHECKING:
    from .composition import Step

UNDO = "absent"
TABLE = "kubenodeReturnPath"

OPTIONS: Options = {
    "state": STATE,
    "mode": node_mode.MODE,
    "uplinks": permitted(
        "list",
        elements="dict",
        entries=policy.UPLINK,
        check=lambda value, is_applied: uplinks.from_option(value) if is_applied else None,
        targets=("policy_routes.uplinks",),
    ),
    **routing_options.OPTIONS,
}
checkpoint_of = routing_options.checkpoint_of


def links(options: Values) -> dict[str, str]:
    """Return the names of network interfaces in the options, by option."""
    return {f"uplinks[{number}].name": entry["name"] for number, entry in enumerate(options["uplinks"] or ())}


def conflicts(options: Values, is_image: bool | None) -> t.Iterator[str]:
    """Yield a sentence for each requirement on several options that they do not meet. Raises Invalid.

    is_image: None if that is not known yet.
    """
    if options["state"] == UNDO:
        return
    if is_image and options["uplinks"] is None:
        yield (
            "symmetric_routing_uplinks must be given for an image, and was not: connections are marked by the names of the"
            " uplinks. Nothing was changed. Set the names that udev gives the interfaces on the nodes, for example eth0 and eth1"
        )
    for place, name in links(options).items():
        routing_options.require_sysctl_name(place, names.network_interface(place, name))
    if options["uplinks"] is not None:  # the marks, by the rules of the table that sets them
        ReturnPath.from_options({"table": TABLE, "primary_interface": None, "interfaces": options["uplinks"], "mask": None})


class Observation(t.NamedTuple):
    """What was observed on the node.

    node: None if it is an image or the options do not need it. programs: by link, those of Cilium on it, unless it leaves node
    ports to kube-proxy. replaces_kube_proxy: whether Cilium's options say so; if they were not found, it may. marks: those of
    other programs. unread: why not all of them are known, as sentences.
    """

    is_image: bool
    node: NodeState | None = None
    programs: t.Mapping[str, t.Sequence[str]] = {}
    replaces_kube_proxy: bool = False
    marks: t.Sequence[ForeignMark] = ()
    unread: str = ""


class Facts(t.NamedTuple):
    """What follows from the node's uplinks.

    uplinks: in the form of the option, each with its mark. rules, routes: None for an image, whose nodes read their uplinks at
    each boot. gateways: by uplink and family. unfit: by uplink, why it lacks rules and routes, as a sentence. doubts: sentences
    about what could not be decided.
    """

    is_image: bool
    uplinks: t.Sequence[uplinks.Uplink] = ()
    gateways: t.Mapping[str, t.Mapping[str, str]] = {}
    rules: list[dict[str, t.Any]] | None = None
    routes: list[dict[str, t.Any]] | None = None
    unfit: t.Mapping[str, str] = {}
    doubts: t.Sequence[str] = ()

    def report(self) -> dict[str, t.Any]:
        """Return the facts for the module's result, without those that the plan repeats."""
        return {"uplinks": [*self.uplinks], "gateways": dict(self.gateways)} if self.uplinks else {}

    def warnings(self) -> list[str]:
        sentences = [*self.doubts, *(f"{sentence}." for sentence in self.unfit.values())]
        if len(self.uplinks) == 1:
            sentences.append(f"{self.uplinks[0]['name']} is the only uplink, so all replies leave by it anyway.")
        return sentences


def facts(options: Values, observed: Observation) -> Facts:
    """Return the facts of the node that the plan depends on. Raises Invalid, and Refusal where Cilium forwards replies itself."""
    node = observed.node
    if options["state"] == UNDO:
        return Facts(observed.is_image)
    if node is None:
        return Facts(observed.is_image, options["uplinks"])
    chosen = options["uplinks"] or uplinks.candidates(node)
    if not chosen:
        raise Refusal(
            "this node has no uplink: no link has an address of global scope and a gateway, by the default routes, DHCP leases"
            " and configuration of the node. Nothing was changed. Give uplinks with their gateways in symmetric_routing_uplinks"
        )
    uplinks.check(chosen, node)
    chosen = _marked(chosen, node, observed.marks)
    doubts = [*_of_cilium(chosen, observed), *uplinks.doubts(chosen, node), *filter(None, [observed.unread])]
    derived, gateways = uplinks.rules_and_routes(chosen, node), uplinks.gateways(chosen, node)
    for number, entry in enumerate(chosen):
        if entry["name"] in node.links and not gateways[entry["name"]]:
            allowed = "given, because no default route, DHCP lease or configuration of the node names one"
            raise Invalid(f"uplinks[{number}].gateway", None, allowed)
    return Facts(observed.is_image, chosen, gateways, derived.rules, derived.routes, derived.unfit, doubts)


def _marked(chosen: t.Sequence[uplinks.Uplink], node: NodeState, marks: t.Sequence[ForeignMark]) -> uplinks.Uplinks:
    """Return the uplinks, each with a mark that rules do not confuse with one of another program. Raises Invalid."""
    by_bit, whole = (foreign_marks.bits(mark for mark in marks if mark.is_whole == is_whole) for is_whole in (False, True))
    listed = uplinks.remarked(chosen, uplinks.Occupied(by_bit, whole), node.marks)
    for number, entry in enumerate(listed):
        mark, mask = int(entry["mark"], 0), uplinks.mask(listed)
        other = next((other for other in marks if other.collides(mark, mask)), None)
        if other:
            allowed = f"one that rules for {mark:#x}/{mask:#x} do not confuse with {other.text}, the mark of {other.owner}"
            raise Invalid(f"uplinks[{number}].mark", entry["mark"], allowed)
    return listed


def _of_cilium(chosen: t.Iterable[uplinks.Uplink], observed: Observation) -> t.Iterator[str]:
    """Yield a doubt for each uplink on which Cilium may decide about packets before netfilter sees them. Raises Refusal if it
    does."""
    for name in (entry["name"] for entry in chosen if observed.programs.get(entry["name"])):
        carries = f"{name} carries Cilium's BPF programs {', '.join(observed.programs[name])}"
        effect = "they answer node ports and virtual addresses before netfilter could mark the connection"
        if observed.replaces_kube_proxy:
            raise Refusal(
                f"{carries}, and Cilium replaces kube-proxy: {effect}, so a reply would not follow the mark. Nothing was changed."
                " Set symmetric_routing_state to absent for this node"
            )
        yield (
            f"{carries}, and the agent's options were not found. If Cilium replaces kube-proxy, {effect}: set"
            " symmetric_routing_state to absent then."
        )


def plan(options: Values, facts: Facts) -> list[Step]:
    """Return the modules with their options, in the order in which they are applied.

    Network daemons come first, so that they do not remove the rules that follow, and a table needs nft. A filter is loosened
    before the kernel routes replies differently.
    """
    before = {"before": options["before"]}
    groundwork = routing_options.groundwork(options, facts.is_image)
    if options["state"] == UNDO:
        return [
            ("nftables_connmark", {"state": UNDO, **before}),
            ("policy_routes", {"state": UNDO, "protocol": options["protocol"], **before}),
            ("rp_filter", {"state": UNDO}),
            *reversed(groundwork),
        ]
    ways = [{"name": entry["name"], "mark": entry["mark"]} for entry in facts.uplinks]
    rules = {"uplinks": facts.uplinks, "rules": facts.rules, "routes": facts.routes, "protocol": options["protocol"]}
    return [
        *groundwork,
        ("rp_filter", {"interfaces": [uplink["name"] for uplink in ways], "mode": "loose", "raise_all": options["raise_all"]}),
        ("policy_routes", {**rules, **before}),
        ("nftables_connmark", {"interfaces": ways, **before}),
    ]
