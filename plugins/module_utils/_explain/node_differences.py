# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What differs between two snapshots of a node, as single changes, and the node between them, with some of the changes made.

What follows from a change is a part of it: the kernel removes the routes of a link that goes down, and those of an address.
"""

from __future__ import annotations

import re
import typing as t

from .._core.names import DOTTED
from .._snapshot import values
from .._snapshot.settings import ALL, FAMILIES
from .._snapshot.values import Entry, Route
from . import differences, node_objects, ruleset_differences
from .differences import Applied, Change, Explains, Part, Row, Value
from .node_objects import Kind

_PROCESS = re.compile(r"process (\d+)")


class Difference:
    """The changes between two snapshots, as datapath_info returns them.

    What one of them does not show is no change. Raises Invalid for a snapshot that has another form.
    """

    def __init__(self, before: Entry, after: Entry) -> None:
        self._after = _with_namespaces(after, _same_namespaces(before, after))
        self._gone_links: dict[str, Change] = {}  # by the link whose routes a change adds or removes
        self._gone_addresses: dict[tuple[str, str], Change] = {}  # by link and address
        self._gone_families: dict[tuple[str, str], Change] = {}  # by link and family
        self._of_namespaces: dict[str, Change] = {}  # by the namespace of a pod
        self._further: dict[Change, dict[str, None]] = {}  # commands, of what followed from a change
        links = [link for each in (before, self._after) for link in each.get("links") or () if link.get("peer")]
        self._links_of_pods = {str(link["peer"].get("namespace") or ""): str(link["name"]) for link in links}
        shown = {key for key in before if before[key] is not None and after.get(key) is not None}
        makers: dict[str, t.Callable[[t.Any, t.Any], Part]] = {
            **{"settings": self._settings, "links": self._links, "rules": _rules, "routes": self._routes},
            **{"neighbors": self._neighbors, "pods": self._pods, "listeners": _listeners},
            **ruleset_differences.SUBSETS,
        }
        parts = {key: make(before[key], self._after[key]) for key, make in makers.items() if key in shown}
        self._part = differences.of_dictionary(before, self._after, parts)

    @property
    def changes(self) -> list[Change]:
        """Return all changes, in an order that does not depend on the run."""
        return sorted(self._part.changes)

    def undo(self, change: Change) -> tuple[str, ...]:
        """Return the commands that make a change undone, with what followed from it; empty if there are none."""
        further = sorted(self._further.get(change, ()), key=lambda command: " via " in command)  # gateways are reached first
        return (*change.undo, *further) if change.undo else ()

    def between(self, applied: Applied) -> dict[str, t.Any]:
        """Return the earlier snapshot with some of the changes."""
        return dict(self._part.between(applied))

    def _explained(self, before: t.Sequence[Value], after: t.Sequence[Value], kind: Kind, explains: Explains) -> list[Row]:
        """Match objects, and note the commands for those that are gone because of a change of another one.

        One that was replaced is gone because of what its successor outlasts.
        """
        rows = differences.matched(before, after, kind, explains)
        for number, row in enumerate(rows):
            if row.before and row.after and row.change:
                lasting = () if _is_kernels(row.before) and not _is_kernels(row.after) else explains(row.after)
                rows[number] = row._replace(ending=tuple(cause for cause in explains(row.before) if cause not in lasting))
            if row.change and row.before and not row.after and row.change != differences.removal(kind, row.before):
                command = "" if _is_kernels(row.before) else kind.add(row.before)
                self._further.setdefault(row.change, {}).update({command: None} if command else {})
        return rows

    def _settings(self, before: Entry, after: Entry) -> Part:
        of_all = {family: self._changed_settings(family, ALL, before, after) for family in FAMILIES}
        for changes in of_all.values():  # with forwarding, the kernel changes whether redirects are accepted
            changes |= {key: changes["forwarding"] for key in changes if key == "accept_redirects" and "forwarding" in changes}
        parts = {family: self._of_links(family, before, after, of_all[family]) for family in FAMILIES}
        forwarding = {"net.ipv4.ip_forward": of_all["ipv4"].get("forwarding")}
        node, later = before.get("node") or {}, after.get("node") or {}
        changes = {
            key: forwarding.get(key) or _setting(key, node[key], later[key]) for key in differences.changed_keys(node, later)
        }
        return differences.of_dictionary(before, after, {**parts, "node": differences.numbers(node, later, changes)})

    def _changed_settings(self, family: str, link: str, before: Entry, after: Entry) -> dict[str, Change]:
        old, new = ((each.get(family) or {}).get(link) or {} for each in (before, after))
        keys = (key for key in differences.changed_keys(old, new) if key != "mtu")  # which is that of the link
        return {key: _setting(_key(family, link, key), old[key], new[key]) for key in keys}

    def _of_links(self, family: str, before: Entry, after: Entry, of_all: t.Mapping[str, Change]) -> Part:
        old, new = before.get(family) or {}, after.get(family) or {}
        parts = {}
        for link in old.keys() & new.keys():
            changes = self._changed_settings(family, link, before, after)
            # The kernel writes a new value of forwarding or disable_ipv6 of all links to each of them.
            changes |= {key: of_all[key] for key in changes if key in of_all and new[link][key] == new[ALL][key]}
            parts[link] = differences.numbers(old[link], new[link], changes)
            if "disable_ipv6" in changes:
                self._gone_families[link, "ipv6"] = changes["disable_ipv6"]
        added = [Row(None, (link, new[link])) for link in new if link not in old]
        part = differences.of_dictionary(old, new, parts)
        return part._replace(build=lambda applied: {**part.build(applied), **dict(row.after for row in added)})

    # Links and what belongs to them

    def _links(self, before: list[Entry], after: list[Entry]) -> Part:
        kind = node_objects.entries("link", "link", ("name",), lambda entry: str(entry["name"]))
        kind = kind._replace(remove=lambda entry: f"ip link del {entry['name']}", value=lambda _entry: "")
        rows = differences.matched(before, after, kind)
        for row in rows:
            if row.change:
                link = row.before or row.after
                self._gone_links[str(link["name"])] = row.change
                self._of_namespaces[str((link.get("peer") or {}).get("namespace") or "")] = row.change
        return differences.of_rows(before, after, [self._link(row) if row.before and row.after else row for row in rows])

    def _link(self, row: Row) -> Row:
        before, after, name = row.before, row.after, str(row.before["name"])
        parts = {key: self._attribute(name, key, before.get(key), after.get(key)) for key in ("mtu", "master", "mac", "parent")}
        parts |= {key: self._attribute(name, key, before.get(key), after.get(key)) for key in ("local", "remote", "port")}
        parts["peer"] = self._peer(name, before.get("peer"), after.get("peer"))
        parts["flags"] = self._flags(name, before, after)
        of_state = next(iter(parts["flags"].changes), None)
        parts["settings"] = self._link_settings(name, before.get("settings") or {}, after.get("settings") or {}, of_state)
        parts["addresses"] = self._addresses(name, before.get("addresses") or [], after.get("addresses") or [])
        if before.get("fdb") is not None and after.get("fdb") is not None:
            parts["fdb"] = _database(name, before["fdb"], after["fdb"])
        part = differences.of_dictionary(
            before, after, {key: part for key, part in parts.items() if part.changes or key in before}
        )
        return Row(before, after, None, part)

    def _attribute(self, link: str, key: str, before: Value, after: Value) -> Part:
        if (before or "") == (after or "") or before is None or after is None:
            return differences.same(before)
        undo = {"mtu": f"mtu {before}", "mac": f"address {before}", "master": f"master {before}" if before else "nomaster"}
        undone = (f"ip link set dev {link} {undo[key]}",) if key in undo else ()
        change = Change("link", f"{key} of {link} is {after or 'none'} instead of {before or 'none'}", undone)
        if key == "mtu" and min(int(before), int(after)) < node_objects.IPV6_MTU:  # the kernel ends IPv6 on such a link
            self._gone_families[link, "ipv6"] = change
        return Part(before, after, frozenset([change]), lambda _applied: after)

    def _flags(self, link: str, before: Entry, after: Entry) -> Part:
        old, new = node_objects.flags(before), node_objects.flags(after)
        if old == new:
            return differences.same(before.get("flags"))
        if ("UP" in old) != ("UP" in new):
            state, former = ("up", "down") if "UP" in new else ("down", "up")
            change = Change("link", f"link {link} is {state}", (f"ip link set dev {link} {former}",))
            self._gone_links[link] = change
        else:
            peer = before.get("peer") or {}
            text = "has no carrier" if "LOWER_UP" in old else "has a carrier"
            of_far_end = self._gone_links.get(f"{peer.get('namespace')} {peer.get('name')}")
            change = of_far_end or Change("link", f"link {link} {text}")
        return Part(before.get("flags"), after.get("flags"), frozenset([change]), lambda _applied: after.get("flags"))

    def _link_settings(self, link: str, before: Entry, after: Entry, of_state: Change | None) -> Part:
        """of_state: the change by which a port of a bridge has another state."""
        changes = {}
        for key in differences.changed_keys(before, after):
            value = "on" if before[key] else "off"
            undo = (f"bridge link set dev {link} {key} {value}",) if key in ("hairpin", "isolated") else ()
            change = Change("link", f"{key} of {link} is {after[key]} instead of {before[key]}", undo)
            changes[key] = (of_state if key == "state" else None) or change
        return differences.numbers(before, after, changes)

    def _addresses(self, link: str, before: list[Entry], after: list[Entry]) -> Part:
        def explains(entry: Entry) -> list[Change]:
            family = "ipv6" if ":" in str(entry.get("address")) else "ipv4"
            return _made(self._gone_families.get((link, family)), self._gone_links.get(link) if family == "ipv6" else None)

        rows = self._explained(before, after, node_objects.addresses(link), explains)
        for row in rows:
            if row.change and not (row.before and row.after):
                address = str((row.before or row.after)["address"]).partition("/")[0]
                self._gone_addresses[link, address] = row.change
        self._note_last(link, before, after, rows)
        return differences.of_rows(before, after, rows)

    def _peer(self, link: str, before: Entry | None, after: Entry | None) -> Part:
        if not before or not after or before == after:
            return differences.same(before)
        if before.get("namespace") != after.get("namespace") or before.get("name") != after.get("name"):
            change = Change("pod", f"another pod is behind {link}")
            self._of_namespaces.update({str(each.get("namespace") or ""): change for each in (before, after)})
            return Part(before, after, frozenset([change]), lambda _applied: after)
        namespace, name = str(before.get("namespace") or ""), str(before.get("name") or "")
        place = self._place(namespace)
        parts: dict[str, Part] = {}
        for key in ("mac", "mtu"):
            if before.get(key) and after.get(key) and before[key] != after[key]:
                word = "address" if key == "mac" else "mtu"
                text = f"{key} of {name} in the pod behind {link} is {after[key]} instead of {before[key]}"
                undo = (place.command(f"ip link set dev {name} {word} {before[key]}"),)
                parts[key] = differences.single(before[key], after[key], Change("pod", text, undo))
        is_up = "UP" in (after.get("flags") or ())
        if before.get("flags") and after.get("flags") and is_up != ("UP" in before["flags"]):
            text = f"{name} in the pod behind {link} is {'up' if is_up else 'down'}"
            change = Change("pod", text, (place.command(f"ip link set dev {name} {'down' if is_up else 'up'}"),))
            parts["flags"] = differences.single(before["flags"], after["flags"], change)
            self._gone_links[f"{namespace} {name}"] = change
        parts["addresses"] = self._pod_addresses(namespace, before.get("addresses") or [], after.get("addresses") or [], name)
        return differences.of_dictionary(before, after, parts)

    def _pod_addresses(self, namespace: str, before: list[str], after: list[str], link: str = "") -> Part:
        kind = self._place(namespace).inside(node_objects.lines("address", "address"))
        rows = differences.matched(before, after, kind, lambda address: self._of_pod(namespace) if ":" in address else ())
        for row in rows:
            if row.change:
                self._gone_addresses[namespace, str(row.before or row.after)] = row.change
        if link:
            self._note_last(f"{namespace} {link}", before, after, rows)
        return differences.of_rows(before, after, rows)

    def _note_last(self, link: str, before: t.Sequence[Value], after: t.Sequence[Value], rows: t.Sequence[Row]) -> None:
        """Note that a link has its first address of IPv4, or none any more, with which the kernel removes all of its routes."""
        had, has = (any(":" not in _address(entry) for entry in side) for side in (before, after))
        for row in rows if had != has else ():
            if row.change and ":" not in _address(row.before or row.after):
                self._gone_families[link, "ipv4"] = row.change

    def _place(self, namespace: str) -> _Place:
        return _Place(namespace, self._links_of_pods.get(namespace, ""))

    def _of_pod(self, namespace: str) -> list[Change]:
        """Return the change of a pod's link from which follows that it has or lacks addresses of IPv6."""
        return [change for link, change in self._gone_links.items() if link.startswith(f"{namespace} ")][:1]

    # Routing

    def _routes(self, before: list[Entry], after: list[Entry]) -> Part:
        return differences.of_rows(before, after, self._explained(before, after, node_objects.ROUTE, self._causes_of_route))

    def _causes_of_route(self, entry: Entry, namespace: str = "") -> list[Change]:
        """Return the changes of links and addresses from which follows that the kernel has a route, or has it no more."""
        route = Route.of(entry)
        devices = [f"{namespace} {hop.dev}".strip() for hop in route.hops if hop.dev]
        causes = [self._gone_links.get(device) for device in devices]
        causes += [self._gone_families.get((device, route.family)) for device in devices]
        place = namespace or route.dev
        of_link = [(host, change) for (link, host), change in self._gone_addresses.items() if link == place]
        by_address = [change for host, change in of_link if _is_of(route, host)]
        network = values.network(route.to) if route.protocol == "kernel" and not route.src else None
        by_network = [change for host, change in of_link if values.holds(network, host)]
        return _made(*causes, *(by_address or by_network)[:1])

    def _neighbors(self, before: list[Entry], after: list[Entry]) -> Part:
        def explains(entry: Entry) -> list[Change]:
            return _made(self._gone_links.get(str(entry.get("dev"))))

        return differences.of_rows(
            before, after, _without_learned(self._explained(before, after, node_objects.NEIGHBOR, explains))
        )

    # Pods

    def _pods(self, before: list[Entry], after: list[Entry]) -> Part:
        kind = node_objects.entries("pod", "pod", ("namespace",), lambda entry: str(entry["namespace"]))
        kind = kind._replace(value=lambda _entry: "")
        rows = differences.matched(before, after, kind, lambda entry: _made(self._of_namespaces.get(str(entry["namespace"]))))
        return differences.of_rows(before, after, [self._pod(row) if row.before and row.after else row for row in rows])

    def _pod(self, row: Row) -> Row:
        before, after, namespace = row.before, row.after, str(row.before["namespace"])
        place = self._place(namespace)
        parts = {}
        if before.get("addresses") is not None and after.get("addresses") is not None:
            parts["addresses"] = self._pod_addresses(namespace, before["addresses"], after["addresses"])
        kinds = {"routes": node_objects.ROUTE, "neighbors": node_objects.NEIGHBOR, "listeners": node_objects.LISTENER}
        if before.get("rules") is not None and after.get("rules") is not None:
            parts["rules"] = _rules(before["rules"], after["rules"], place)
        for key, kind in kinds.items():
            if before.get(key) is not None and after.get(key) is not None:
                old, new, inside = before[key], after[key], place.inside(kind)
                if key == "routes":
                    rows = self._explained(old, new, inside, lambda entry: self._causes_of_route(entry, namespace))
                else:
                    rows = differences.matched(old, new, inside)
                    rows = _without_learned(rows) if key == "neighbors" else rows
                parts[key] = differences.of_rows(old, new, rows)
        return Row(before, after, None, differences.of_dictionary(before, after, parts))


def _is_kernels(entry: Value) -> bool:
    return isinstance(entry, dict) and entry.get("protocol") == "kernel"


def _made(*changes: Change | None) -> list[Change]:
    """Return the changes that were made, each once."""
    return [*dict.fromkeys(change for change in changes if change)]


def _rules(before: list[Entry], after: list[Entry], place: _Place | None = None) -> Part:
    rows = []
    for family, kind in node_objects.RULES.items():
        old, new = ([entry for entry in side if values.PolicyRule.of(entry).family == family] for side in (before, after))
        rows += differences.aligned(old, new, place.inside(kind) if place else kind)
    return differences.of_rows(before, after, rows)


def _listeners(before: list[Entry], after: list[Entry]) -> Part:
    return differences.of_rows(before, after, differences.matched(before, after, node_objects.LISTENER))


def _without_learned(rows: t.Iterable[Row]) -> list[Row]:
    """Return rows of neighbours without changes that only time makes."""
    kept = []
    for row in rows:
        ages = not row.after and node_objects.is_learned(row.before) or not row.before and node_objects.is_learned(row.after)
        kept.append(Row(row.before, row.before) if ages else row)
    return kept


def _address(entry: Value) -> str:
    """Return an address of a link, which is an entry of its own there, or one of a pod."""
    return str(entry.get("address") if isinstance(entry, dict) else entry)


def _setting(key: str, before: int, after: int) -> Change:
    return Change("setting", f"{key} is {after} instead of {before}", (f"sysctl -w {key}={before}",))


def _key(family: str, link: str, name: str) -> str:
    return f"net.{family}.conf.{link.translate(DOTTED)}.{name}"


def _is_of(route: Route, host: str) -> bool:
    """Return whether a route is of an address: to it, with it as the source."""
    return host in (route.src, route.address if route.type in ("local", "anycast", "broadcast") else "")


class _Place:
    """The network namespace of a pod, in which commands are run. link: the node's end of the pod's link."""

    def __init__(self, namespace: str, link: str) -> None:
        process = _PROCESS.fullmatch(namespace)
        self._name = f"the pod behind {link}" if link else f"the pod in {namespace}"
        self._enter = f"nsenter --target {process[1]} --net" if process else f"ip netns exec {namespace}"

    def command(self, command: str) -> str:
        return f"{self._enter} {command}" if command else ""

    def inside(self, kind: Kind) -> Kind:
        replace = kind.replace
        return kind._replace(
            name="pod",
            label=f"{kind.label} in {self._name}:",
            add=lambda entry: self.command(kind.add(entry)),
            remove=lambda entry: self.command(kind.remove(entry)),
            replace=(lambda entry: self.command(replace(entry))) if replace else None,
        )


def _database(link: str, before: list[Entry], after: list[Entry]) -> Part:
    kind = node_objects.entries(
        "neighbor", f"entry of {link}'s database", ("mac", "dst"), lambda entry: f"{entry.get('mac')} dst {entry.get('dst')}"
    )
    kind = kind._replace(
        add=lambda entry: f"bridge fdb append {kind.text(entry)} dev {link}",
        remove=lambda entry: f"bridge fdb del {kind.text(entry)} dev {link}",
    )
    return differences.of_rows(before, after, differences.matched(before, after, kind))


def _same_namespaces(before: Entry, after: Entry) -> dict[str, str]:
    """Return the name of a pod's namespace in the earlier snapshot by that in the later one: a process names it."""
    ends = {link["name"]: link.get("peer") or {} for link in before.get("links") or ()}
    names = {}
    for link in after.get("links") or ():
        new, old = link.get("peer") or {}, ends.get(link["name"]) or {}
        if new.get("mac") and (new.get("mac"), new.get("name")) == (old.get("mac"), old.get("name")):
            names[str(new.get("namespace"))] = str(old.get("namespace"))
    return {new: old for new, old in names.items() if new != old}


def _with_namespaces(snapshot: Entry, names: t.Mapping[str, str]) -> Entry:
    if not names:
        return snapshot

    def renamed(entry: Entry) -> Entry:
        return {**entry, "namespace": names.get(str(entry.get("namespace")), entry.get("namespace"))}

    links = [{**link, "peer": renamed(link["peer"])} if link.get("peer") else link for link in snapshot.get("links") or ()]
    pods = [renamed(pod) for pod in snapshot.get("pods") or ()]
    return {**snapshot, "links": links, **({"pods": pods} if snapshot.get("pods") is not None else {})}
