# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Resources of Talos in YAML, as the JSON that ``ip -j`` prints.

Their fields are those of pkg/machinery/resources/network of siderolabs/talos. All scalars stay texts, which the reader of JSON
checks.
"""

from __future__ import annotations

import json
import re
import typing as t

from .._core.errors import Invalid
from .._core.fields import Unfit

Resource = dict[str, t.Any]
Named = tuple[str, Resource]  # with its id
Line = tuple[int, str]  # its indentation, and its words
KINDS = LINKS, ADDRESSES, ROUTES, RULES = (
    "talosctl get links", "talosctl get addresses", "talosctl get routes", "talosctl get routingrules",
)  # fmt: skip
DEEPEST = 32  # blanks before a line, of which the YAML of these resources has a third
_FAMILIES = {"inet4": "4", "inet6": "6"}
_KEY = re.compile(r"([\w./-]+):(?: +(.*))?")
_NUMBERED = re.compile(r"\w+\((\d+)\)")  # a value without a name in Talos, such as RoutingTable(1001)


def outputs(texts: t.Mapping[str, str]) -> dict[str, str]:
    """Return the outputs of ``ip -j`` that resources show, and other outputs as they are. Raises Invalid.

    texts: by command, resources and others.
    """
    listed: dict[str, list[Resource]] = {}
    for kind in (kind for kind in (LINKS, ROUTES, RULES) if kind in texts):
        try:
            addresses = [*_resources(texts.get(ADDRESSES, ""))] if kind == LINKS else []
            listed.update(_listed(kind, [*_resources(texts[kind])], addresses))
        except (AttributeError, KeyError, TypeError, Unfit) as error:
            raise Invalid("dump", kind, f"resources of Talos, each whole ({error})") from None
    others = {command: text for command, text in texts.items() if command not in KINDS}
    return {**others, **{command: json.dumps(entries) for command, entries in listed.items()}}


def _listed(kind: str, resources: t.Sequence[Named], addresses: t.Sequence[Named]) -> t.Iterator[tuple[str, list[Resource]]]:
    """Yield the entries of the outputs that resources of a kind show, by command."""
    if kind == LINKS:
        yield "ip -d -j addr show", _links(resources, addresses)
    for family, number in _FAMILIES.items():
        of_family = [spec for _name, spec in resources if spec.get("family") == family]
        if kind == ROUTES:
            yield f"ip -{number} -j route show table all", [*map(_route, of_family)]
        elif kind == RULES:
            # Of rules with one priority Talos has one, and of their matches the most common ones.
            yield f"ip -{number} -j rule show | uniq", [*map(_rule, of_family)]


def hostname(_command: str, text: str) -> dict[str, str]:
    """Return the node's name by the command ``hostname``; nothing if the resource does not have it."""
    name = re.search(r"(?m)^ +hostname: ([\w.-]+)$", text)
    return {"hostname": name[1]} if name else {}


def _resources(text: str) -> t.Iterator[Named]:
    """Yield the id and the specification of each resource. Raises AttributeError, KeyError, TypeError, Unfit."""
    for document in re.split(r"(?m)^---.*$", text):
        lines = [(len(line) - len(line.lstrip(" ")), line.strip()) for line in document.splitlines() if line.strip()]
        if lines:
            resource = _value(lines)
            yield resource["metadata"]["id"], resource["spec"]


def _value(lines: t.Sequence[Line]) -> t.Any:
    """Return a block of YAML in the form of Go's encoder: a text, or dictionaries and lists of texts. Raises Unfit."""
    indent, words = lines[0]
    if indent > DEEPEST:
        raise Unfit(f"lines with at most {DEEPEST} blanks before them")
    if len(lines) == 1 and not (words.startswith("- ") or _KEY.fullmatch(words)):
        return _scalar(words)
    starts = [number for number, line in enumerate(lines) if line[0] == indent]
    blocks = [lines[start:end] for start, end in zip(starts, [*starts[1:], len(lines)])]
    if words.startswith("- "):
        return [_value([(indent + 2, block[0][1][2:]), *block[1:]]) for block in blocks]
    return dict(map(_pair, blocks))


def _pair(block: t.Sequence[Line]) -> tuple[str, t.Any]:
    key = _KEY.fullmatch(block[0][1])
    if not key:
        raise Unfit("lines with a key")
    return key[1], _value(block[1:]) if block[1:] else _scalar(key[2] or "")


def _scalar(text: str) -> t.Any:
    if text in ("[]", "{}"):
        return [] if text == "[]" else {}
    text = text[1:-1] if text[:1] in ("'", '"') else text
    numbered = _NUMBERED.fullmatch(text)
    return numbered[1] if numbered else text


def _known(entry: Resource) -> Resource:
    """Return the fields that have a value. Zero is none, but as a priority of rules, of which it is one."""
    return {key: value for key, value in entry.items() if value not in ("", "0", [], {}) or key == "priority"}


def _links(links: t.Sequence[Named], addresses: t.Sequence[Named]) -> list[Resource]:
    names = {spec["index"]: name for name, spec in links}
    of_link: dict[str, list[Resource]] = {}
    for _id, spec in addresses:
        of_link.setdefault(spec["linkName"], []).append(_address(spec))
    return [_link(name, spec, names, of_link.get(name, [])) for name, spec in links]


def _link(name: str, spec: Resource, names: t.Mapping[str, str], addresses: list[Resource]) -> Resource:
    kind, lower = spec.get("kind", ""), spec.get("linkIndex", "")
    # The other end of a veth may be in another namespace, where the index is that of another link.
    below = {"link": names[lower]} if lower in names and kind != "veth" and names[lower] != name else {"link_index": lower}
    data = _known({"id": spec.get("vlan", {}).get("vlanID", ""), "table": spec.get("vrfMaster", {}).get("table", "")})
    entry = {
        **{"ifindex": spec["index"], "ifname": name, "flags": spec["flags"].split(","), "mtu": spec["mtu"], **below},
        **{"master": names.get(spec.get("masterIndex", ""), ""), "link_type": spec["type"], "address": spec["hardwareAddr"]},
        **{"linkinfo": _known({"info_kind": kind, "info_data": data}), "addr_info": addresses},
    }
    return _known(entry)


def _address(spec: Resource) -> Resource:
    far, _slash, length = spec["address"].partition("/")
    local = spec.get("local") or far
    entry = {"family": spec["family"].removesuffix("4"), "local": local, "prefixlen": length, "scope": spec["scope"]}
    flags = dict.fromkeys(filter(None, spec["flags"].split(",")), True)
    return {**entry, **({"address": far} if far != local else {}), **flags}


def _route(spec: Resource) -> Resource:
    hops = [
        _known({"gateway": hop["gateway"], "dev": hop["outLinkName"], "weight": hop["weight"]})
        for hop in spec.get("nextHops", [])
    ]
    entry = {
        **{"type": spec["type"], "dst": _prefix(spec["dst"]) or "default", "gateway": spec["gateway"]},
        **{"dev": spec.get("outLinkName", ""), "table": spec["table"], "protocol": spec["protocol"], "scope": spec["scope"]},
        **{"prefsrc": spec["src"], "metric": spec["priority"], "metrics": [_known({"mtu": spec.get("mtu", "")})]},
    }
    return {**_known(entry), "nexthops": hops}


def _prefix(text: str) -> str:
    """Return a network; that of one address without its length, as ip prints it."""
    host, _slash, length = text.partition("/")
    return host if length == ("128" if ":" in host else "32") else text


def _rule(spec: Resource) -> Resource:
    action, table = spec["action"], spec["table"]
    lookup = {"l3mdev": True} if table == "unspec" else {"table": table}  # the table of the link's VRF has no number in a rule
    entry = {
        **{"priority": spec["priority"], "src": _prefix(spec["src"]) or "all", "dst": _prefix(spec["dst"])},
        **{"iif": spec.get("iifName", ""), "oif": spec.get("oifName", "")},
        **{"fwmark": spec.get("fwMark", ""), "fwmask": spec.get("fwMask", "")},
        **(lookup if action == "unicast" else {"action": action}),
    }
    return _known(entry)
