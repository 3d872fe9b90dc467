# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reads a node's packet path, one subset after the other. Changes nothing, and loads no kernel module."""

from __future__ import annotations

import contextlib
import datetime
import os
import socket
import typing as t

from .._bpf import attachments, loader
from .._bpf.instructions import OWN_PROGRAMS
from .._core import fields
from .._core.errors import Failure
from .._core.fields import FAMILIES, IPV4, IPV6
from .._core.names import DOTTED
from .._interfaces import interfaces_backend
from .._interfaces.link_backend import LinkMessages
from .._interfaces.link_message import Address, Link
from .._netlink import rtnetlink, wire, xfrm
from .._platform import kernel, process
from .._routing.neighbour import HEADER
from .._routing.routing_backend import GETNEIGH, Netlink, dump
from .._ruleset import generated
from . import entries, netfilter_backend, pods_backend, saved, snapshot
from . import settings as settings_model
from .snapshot import IPSEC, Notes, Origin, Unread


def settings(_run: process.Runner, _note: Notes, further: t.Iterable[str] = ()) -> dict[str, t.Any]:
    """Return settings of the node and of each link, and effective values. A setting that the kernel lacks is left out.

    further: settings of the node, as sysctl prints them, besides those that decide where packets go.
    """
    listed: dict[str, Link] = {}
    with contextlib.suppress(Failure):  # then /proc/sys has them
        listed = {link.name: link for link in LinkMessages().links()}
    names = [name for _index, name in socket.if_nameindex()]
    by_family = {family: _settings_of_links(family, names, listed) for family in settings_model.FAMILIES}
    keys = (*settings_model.NODE, *(key.translate(DOTTED) for key in further))
    return {
        "node": {
            **dict.fromkeys(settings_model.BRIDGED.values(), 0),
            **{key.translate(DOTTED): value for key, value in _values(keys).items()},
        },
        **by_family,
        "effective": {family: settings_model.effective(family, by_link) for family, by_link in by_family.items()},
    }


def _settings_of_links(family: str, links: t.Iterable[str], listed: t.Mapping[str, Link]) -> dict[str, dict[str, int]]:
    """Return the settings by link, without links that have disappeared since; none if the kernel lacks the family.

    listed: links by name. The kernel lists a link with most of its settings, whereas reading each below /proc/sys takes
    longer than all else on a node of many links. There it tells which ones it has, as each link has those of DEFAULT.
    """
    read = {name: _below(family, name, settings_model.LINK[family]) for name in (settings_model.ALL, settings_model.DEFAULT)}
    existing = read[settings_model.DEFAULT]
    for name in links:
        values = listed[name].conf(FAMILIES[family]) if name in listed else b""
        sent = settings_model.of_listed_link(family, values)
        of_link = {**sent, **_below(family, name, existing.keys() - sent.keys())}
        read[name] = {key: of_link[key] for key in existing if key in of_link}
    return {name: values for name, values in read.items() if values}


def _below(family: str, link: str, names: t.Iterable[str]) -> dict[str, int]:
    folder = f"net/{family}/conf/{link}"
    return {key.rpartition("/")[2]: value for key, value in _values(f"{folder}/{name}" for name in names).items()}


def _values(keys: t.Iterable[str]) -> dict[str, int]:
    values = ((key, kernel.setting(key)) for key in keys)
    return {key: value for key, value in values if value is not None}


def links(_run: process.Runner, note: Notes) -> list[dict[str, t.Any]]:
    """Return all links of the node's network namespace, by index. Raises Failure."""
    backend = LinkMessages()
    links, addresses = backend.links(), backend.addresses()
    names = {link.number: link.name for link in links}
    interfaces = interfaces_backend.read()
    for namespace in interfaces.unread:
        note(namespace, "The links of this network namespace could not be read.")
    peers = {(interface.namespace, interface.number): interface for interface in interfaces.interfaces}
    of_link: dict[int, list[Address]] = {}
    for address in addresses:
        of_link.setdefault(address.link, []).append(address)
    databases = _forwarding() if any(link.kind == VXLAN for link in links) else {}
    link_entries = []
    for link in sorted(links):
        peer = entries.peer(link, peers, interfaces.peers) if link.kind == entries.VETH else None
        if link.kind == entries.VETH and peer is None:
            note(link.name, "Its other end was not found.")
        elif link.kind != entries.VETH and entries.lower(link).namespace is not None:
            note(link.name, f"The link below it, {entries.lower(link).number}, is in another network namespace.")
        if not entries.is_read_in_full(link):
            note(link.name, f"Links of kind {link.kind} have settings that this collection does not read.")
        database = {"fdb": databases.get(link.number, [])} if link.kind == VXLAN else {}
        link_entries.append({**entries.link(link, names, of_link.get(link.number, ()), peer), **database})
    return link_entries


def _forwarding() -> dict[int, list[dict[str, str]]]:
    """Return the forwarding databases of tunnels by the indexes of their links. Raises Failure."""
    databases: dict[int, list[dict[str, str]]] = {}
    for index, entry in map(entries.forwarding, dump(GETNEIGH, socket.AF_BRIDGE)):
        databases.setdefault(index, []).extend([entry] if entry else [])
    return databases


VXLAN, NTF_PROXY = "vxlan", 0x08  # include/uapi/linux/neighbour.h


def rules(_run: process.Runner, note: Notes) -> list[dict[str, t.Any]]:
    """Return the rules of both families in the kernel's order. Raises Failure."""
    current = Netlink().rules()
    for rule, _protocol in current:
        if rule.unread:
            note(str(rule), "Its entry lacks these attributes.")
    return [entries.rule(*owned) for owned in current]


def routes(_run: process.Runner, note: Notes) -> list[dict[str, t.Any]]:
    """Return the routes of both families and all tables. Raises Failure."""
    current = Netlink().routes()
    for route, _protocol in current:
        if entries.unread(route):
            note(str(route), "Its entry lacks these attributes.")
    return [entries.route(*owned) for owned in current]


def neighbors(_run: process.Runner, _note: Notes) -> list[dict[str, t.Any]]:
    """Return the neighbours of both families, without those that the kernel itself creates, and the proxies. Raises Failure."""
    backend = Netlink()
    names = backend.links()
    bodies = [body for family in (IPV4, IPV6) for body in wire.dump(GETNEIGH, _proxies(family), "the proxies of neighbours")]
    return [*map(entries.neighbour, backend.neighbours()), *(entries.proxy(body, names) for body in bodies)]


def _proxies(family: int) -> bytes:
    return HEADER.pack(family, 0, 0, NTF_PROXY, 0)


def filters(_run: process.Runner, note: Notes) -> list[dict[str, str]]:
    """Return the filters of traffic control that are no BPF programs. IPsec policies are noted. Raises Failure."""
    for policy in xfrm.policies() if kernel.is_ready("xfrm_user") else ():
        note(
            f"{IPSEC} {policy.source} {policy.destination}",
            f"Of an IPsec policy ({policy.direction}, {policy.action}), only its prefixes are read.",
        )
    names = dict(socket.if_nameindex())
    protocols = {rtnetlink.ETH_P_ALL: "all", 0x0800: "ip", 0x86DD: "ipv6"}
    return [
        {
            "link": link,
            "direction": direction,
            "kind": each.kind,
            "protocol": protocols.get(each.protocol, f"{each.protocol:#06x}"),
            "match": "all" if each.takes_all else "",
            "action": f"{each.action} {names.get(each.device, '')}".strip(),
        }
        for link, direction, each in attachments.other_filters(names)
    ]


def programs(_run: process.Runner, _note: Notes) -> list[dict[str, t.Any]]:
    """Return the BPF programs of links, at XDP, tcx and tc. Raises Failure."""
    attached = [(link, program) for link, those in attachments.of_links(dict(socket.if_nameindex())).items() for program in those]
    return [
        {"link": link, "hook": each.hook, "direction": each.direction, "name": each.name, **_translation(each)}
        for link, each in attached
        if each.kind == rtnetlink.BPF
    ]


def _translation(attached: attachments.Program) -> dict[str, t.Any]:
    """Return the tag of a program of this collection, and the probes that it translates; nothing of another one."""
    if not attached.name.startswith(OWN_PROGRAMS) or attached.hook == attachments.XDP:
        return {}
    with contextlib.suppress(OSError):  # without these, a program is one whose effect is not known
        program = loader.program(attached.number)
        if program:
            maps = filter(None, map(loader.read_map, program.maps))
            pairs = next((each.value for each in maps if each.name == PROBES), b"")
            addresses = [fields.show(pairs[start : start + ADDRESS]) for start in range(0, len(pairs), ADDRESS)]
            probes = [dict(zip(("source", "translated"), pair)) for pair in zip(addresses[::2], addresses[1::2])]
            return {"tag": program.tag, "probes": probes}
    return {}


PROBES, ADDRESS = "probes", 16  # the map of such a program, and the bytes of an address in it

Reader = t.Callable[..., t.Any]  # takes a runner, Notes, and options of its own

NFTABLES, SETTINGS, PODS, LISTENERS = "nftables", "settings", "pods", "listeners"
OF_ALL_NAMESPACES = {"links", PODS, "pod_neighbors"}
ATTEMPTS = 2  # to read rulesets again of which the kernel has something else
READERS: dict[str, Reader] = {
    "links": links,
    "neighbors": neighbors,
    "rules": rules,
    "routes": routes,
    SETTINGS: settings,
    NFTABLES: netfilter_backend.nftables,
    "iptables": netfilter_backend.iptables,
    "ipsets": netfilter_backend.ipsets,
    "ebtables": netfilter_backend.ebtables_rules,
    "bpf": programs,
    "filters": filters,
    "ipvs": netfilter_backend.ipvs,
    "recent": netfilter_backend.recent,
    PODS: pods_backend.pods,
    snapshot.POD_ADDRESSES: pods_backend.addresses,
}


def _reader(subset: str) -> Reader:
    if subset in READERS:
        return READERS[subset]
    from . import software_backend  # with what it needs of services, which a trace does not read

    return software_backend.READERS[subset]


def read(
    run: process.Runner, subsets: t.Sequence[str], further: t.Sequence[str] = (), is_compact: bool = False
) -> dict[str, t.Any]:
    """Return the snapshot of these subsets. run: starts programs. further: as for settings().

    is_compact: whether large tables of nft are texts, in ``nftables_text``, which no user and no other snapshot is to have. What
    kube-proxy generates for each Service is read when a packet may meet it.
    """
    large: set[tuple[str, str]] = set()
    if is_compact and NFTABLES in subsets:
        with contextlib.suppress(Failure):  # which the reader then notes
            large = netfilter_backend.large_tables()
    values: dict[str, t.Any] = dict.fromkeys(subsets)
    unread: list[Unread] = []
    now = datetime.datetime.now(datetime.timezone.utc)
    origin = Origin(os.uname().nodename, now.strftime("%Y-%m-%d %H:%M:%S UTC"))
    with contextlib.ExitStack() as shared:
        if len(OF_ALL_NAMESPACES & {*subsets}) > 1:  # a node may have hundreds: each is asked once, and not by each reader
            with contextlib.suppress(Failure):  # which each reader then notes
                shared.enter_context(interfaces_backend.remembering(with_own=True))
        _read(run, values, unread, subsets, large, further)
    composed = snapshot.compose(values, unread, origin)
    if not {*netfilter_backend.RULESETS} <= {*subsets}:
        return composed
    for _attempt in range(ATTEMPTS):
        differences = netfilter_backend.differences(composed)
        if not differences:
            return composed
        # Programs such as kube-proxy may have changed a table between two listings.
        unread[:] = [entry for entry in unread if entry.subset not in netfilter_backend.RULESETS]
        _read(run, values, unread, netfilter_backend.RULESETS, large)
        composed = snapshot.compose(values, unread, origin)
    unread += (Unread(NFTABLES, *difference) for difference in netfilter_backend.differences(composed))
    return snapshot.compose(values, unread, origin)


def _read(
    run: process.Runner,
    values: dict[str, t.Any],
    unread: list[Unread],
    subsets: t.Sequence[str],
    large: set[tuple[str, str]],
    further: t.Sequence[str] = (),
) -> None:
    # nft lists what the programs of iptables and ebtables do not print.
    for subset in sorted(subsets, key=lambda subset: subset == NFTABLES):

        def note(name: str, reason: str, subset: str = subset) -> None:
            unread.append(Unread(subset, name, reason))

        excluded = saved.printed(values.get("iptables") or (), values.get("ebtables") or ()) | large
        options: dict[str, dict[str, t.Any]] = {
            NFTABLES: {"excluded": excluded}, SETTINGS: {"further": further}, PODS: {"with_listeners": LISTENERS in subsets}
        }  # fmt: skip
        try:
            values[subset] = _reader(subset)(run, note, **options.get(subset, {}))
            if subset == NFTABLES and large:
                text, lacking = netfilter_backend.nftables_text(run, note, large)
                values.update({netfilter_backend.NFTABLES_TEXT: text, generated.KEY: lacking})
        except Failure as failure:
            note("", str(failure))
