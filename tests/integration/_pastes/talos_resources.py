# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What ``ip -j`` prints on a node, as the resources that ``talosctl support`` collects: YAML in the form of Go's encoder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Entry = dict[str, Any]
FOLDER = "10.0.0.7/resources"
FAMILIES = {"4": "inet4", "6": "inet6"}


def of_outputs(listed: Mapping[str, Sequence[Entry]]) -> dict[str, str]:
    """Return the files of the bundle by path. listed: outputs of ``ip -j`` by the names that the test gives them."""
    indexes = {link["ifname"]: link["ifindex"] for link in listed["links"]}
    of_family = [(number, family) for number, family in FAMILIES.items()]
    files = {
        "linkstatuses": [(link["ifname"], _link(link, indexes)) for link in listed["links"]],
        "addressstatuses": [each for link in listed["addresses"] for each in _addresses(link)],
        "routestatuses": [
            (f"{family}//{route['dst']}/{number}", _route(route, family))
            for family_number, family in of_family
            for number, route in enumerate(listed[f"routes {family_number}"])
        ],
        # One of each priority, as its id is made of it.
        "routingrulestatuses": list(
            {
                f"{family}/{rule['priority']:05}": (f"{family}/{rule['priority']:05}", _rule(rule, family))
                for number, family in of_family
                for rule in listed[f"rules {number}"]
            }.values()
        ),
        "hostnamestatuses": [("hostname", {"hostname": "node1", "domainname": ""})],
    }
    texts = {f"{FOLDER}/{name}.net.talos.dev.yaml": _yaml(resources) for name, resources in files.items()}
    return {**texts, f"{FOLDER}/kernelparamstatuses.runtime.talos.dev.yaml": _yaml([("proc.sys.vm.x", {"current": "1"})])}


def _link(link: Entry, indexes: Mapping[str, int]) -> Entry:
    about = link.get("linkinfo", {})
    return {
        **{
            "index": link["ifindex"],
            "type": link["link_type"],
            "linkIndex": link.get("link_index", indexes.get(link.get("link", ""), 0)),
        },
        **{"flags": ",".join(link["flags"]), "hardwareAddr": link.get("address", ""), "mtu": link["mtu"]},
        **({"masterIndex": indexes[link["master"]]} if "master" in link else {}),
        **{"kind": about.get("info_kind", ""), "slaveKind": about.get("info_slave_kind", "")},
    }


def _addresses(link: Entry) -> Iterator[tuple[str, Entry]]:
    for address in link["addr_info"]:
        network = f"{address.get('address', address['local'])}/{address['prefixlen']}"
        of_v4 = {"local": address["local"]} if address["family"] == "inet" else {}
        yield (
            f"{link['ifname']}/{network}",
            {
                **{"address": network, **of_v4, "linkIndex": link["ifindex"], "linkName": link["ifname"]},
                **{"family": "inet4" if of_v4 else "inet6", "scope": address["scope"], "flags": "permanent", "priority": 0},
            },
        )


def _route(route: Entry, family: str) -> Entry:
    to = "" if route["dst"] == "default" else route["dst"]
    length = {"inet4": "/32", "inet6": "/128"}[family]
    return {
        **{"family": family, "dst": to if "/" in to or not to else to + length, "src": route.get("prefsrc", "")},
        **{"gateway": route.get("gateway", ""), "outLinkName": route.get("dev", ""), "table": _table(route.get("table", "main"))},
        **{"priority": route.get("metric", 0), "scope": route["scope"], "type": route["type"], "flags": ""},
        "protocol": route["protocol"] if not route["protocol"].isdigit() else f"RouteProtocol({route['protocol']})",
        **(
            {"nextHops": [{"gateway": hop["gateway"], "outLinkName": hop["dev"], "weight": hop["weight"]} for hop in hops]}
            if (hops := route.get("nexthops"))
            else {}
        ),
    }


def _rule(rule: Entry, family: str) -> Entry:
    def network(key: str) -> str:
        length = {"inet4": 32, "inet6": 128}[family]
        return f"{rule[key]}/{rule.get(f'{key}len', length)}" if rule.get(key, "all") != "all" else ""

    numbers = {name: int(rule[key], 16) for name, key in (("fwMark", "fwmark"), ("fwMask", "fwmask")) if key in rule}
    return {
        **{"family": family, "src": network("src"), "dst": network("dst"), "table": _table(rule["table"])},
        **{"priority": rule["priority"], "action": "unicast", **numbers},
    }


def _table(name: str) -> str:
    """Return the name of a table: Talos has one for each number of one byte."""
    return f"RoutingTable({name})" if name.isdigit() and int(name) > 255 else name


def _yaml(resources: Sequence[tuple[str, Entry]]) -> str:
    head = "metadata:\n    namespace: network\n    id: {}\nspec:\n"
    return "---\n".join(head.format(name) + "".join(_lines(spec, 4)) for name, spec in resources)


def _lines(entry: Entry, indent: int) -> Iterator[str]:
    for key, value in entry.items():
        if isinstance(value, list):
            yield f"{' ' * indent}{key}:\n"
            for item in value:
                first, *further = _lines(item, indent + 6)
                yield f"{' ' * (indent + 4)}- {first.lstrip()}"
                yield from further
        else:
            text = (
                f'"{value}"'
                if value == "" or (isinstance(value, str) and value[-1:] in ":0123456789" and value.isdigit())
                else value
            )
            yield f"{' ' * indent}{key}: {text}\n"
