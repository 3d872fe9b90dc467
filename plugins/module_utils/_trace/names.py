# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Names of pods and Services in the place of a packet's addresses."""

from __future__ import annotations

import difflib
import re
import typing as t

from .._core.errors import Invalid
from .._core.option import Option, Options
from .._ruleset import observed, service_rules
from .._snapshot.snapshot import POD_ADDRESSES
from .._snapshot.values import Entry, entries
from . import packet

Described = dict[str, t.Any]
OPTIONS: Options = {**packet.OPTIONS, "destination_port": Option("str")}  # a number, or a name
MOST = 8  # names in an error
_NAME = re.compile(r"(?=[^:]*[A-Za-z])[\w.-]+(?:/[\w.-]+)?")
_NAMED = "namespace "  # before the name of a network namespace, in the snapshot of a running node
_MAIN = "eth0"  # a pod's interface in the cluster's network, as containerd and CRI-O name it


class End(t.NamedTuple):
    """An end of a packet. name: NAMESPACE/NAME, or that of a network namespace; empty for an address.

    protocol, port, port_name: those of a port of a Service; empty for others.
    """

    name: str
    address: str
    protocol: str = ""
    port: int = 0
    port_name: str = ""

    @property
    def short_name(self) -> str:
        """Return the name without its Kubernetes namespace."""
        return self.name.rpartition("/")[2]

    @property
    def is_ipv6(self) -> bool:
        return ":" in self.address

    def has_port(self, protocol: str, port: str) -> bool:
        """Return whether a packet of a protocol to a port is for the end. port: a number, a name, or empty."""
        return not self.protocol or (self.protocol == protocol and port in ("", str(self.port), self.port_name))

    def __str__(self) -> str:
        if not self.name:
            return self.address
        if not self.protocol:
            return f"pod {self.name} ({self.address})"
        return f"Service {self.name} ({self.address}, {self.protocol} {self.port} {self.port_name}".rstrip() + ")"


def is_name(text: str) -> bool:
    """Return whether the end of a packet is written as a name. An address has no letters, or a colon."""
    return bool(_NAME.fullmatch(text))


def are_in(described: Described) -> bool:
    """Return whether the option packet has names."""
    return any(is_name(str(described.get(option) or "")) for option in ("source", "destination"))


def check(described: Described) -> None:
    """Raise Invalid for what is wrong with the option packet, as far as no snapshot is needed to see it."""
    if not are_in(described):
        packet.from_options(described)


def resolved(described: Described, snapshot: Entry) -> Described:
    """Return the option packet with the addresses of a snapshot in place of names.

    The packet of a named pod comes in by the link of the pod. Raises Invalid for a name that is not known, or that several have.
    """
    if not are_in(described):
        return described
    pods = _pods(snapshot)
    sources = _ends("source", described, pods)
    destinations = _with_port(described, _ends("destination", described, [*pods, *_services(snapshot)]))
    pairs = [(near, far) for near in sources for far in destinations if not near.address or near.is_ipv6 == far.is_ipv6]
    if len(pairs) != 1:
        raise _not_one(described, pairs, sources, destinations)
    source, destination = pairs[0]
    return {
        **described,
        "source": source.address or None,
        "destination": destination.address,
        "destination_port": destination.port or described.get("destination_port"),
        "interface": described.get("interface") or (packet.AUTO if source.name else None),
    }


def _pods(snapshot: Entry) -> list[End]:
    """Return the pods by the names that the runtime or ipamd recorded, and by those of their network namespaces."""
    records: dict[str, list[Entry]] = {}
    for record in entries(snapshot, POD_ADDRESSES):
        records.setdefault(str(record.get("pod")), []).append(record)
    named = [(name, record) for name, of_pod in records.items() for record in _in_cluster(of_pod)]
    peers = (peer for link in entries(snapshot, "links") if (peer := link.get("peer")))
    named += [(name, peer) for peer in peers if is_name(name := str(peer.get("namespace")).removeprefix(_NAMED))]
    ends = {End(name, str(address)) for name, record in named for address in record.get("addresses") or ()}
    return sorted(end for end in ends if not end.address.startswith("fe80:"))


def _in_cluster(records: list[Entry]) -> list[Entry]:
    """Return the records of a pod's interface in the cluster's network; all, if none says which that is."""
    return [record for record in records if record.get("interface") == _MAIN] or records


def _services(snapshot: Entry) -> list[End]:
    return [End(*service) for service in service_rules.services(observed.tables(snapshot))]


def _ends(option: str, described: Described, known: t.Sequence[End]) -> list[End]:
    """Return the ends that an option names, or an end without a name for an address. Raises Invalid."""
    text = str(described.get(option) or "")
    if not is_name(text):
        return [End("", text)]
    ends = [end for end in known if text in (end.name, end.short_name)]
    if not ends:
        raise Invalid(f"packet.{option}", text, _expected(option, text, known))
    return ends


def _expected(option: str, text: str, known: t.Sequence[End]) -> str:
    """Return what is allowed in place of a name that is not known."""
    kind = "a pod" if option == "source" else "a pod or a Service"
    if not known:
        return f"an IP address, because no name of {kind} is known"
    names = {name: end.name for end in known for name in (end.short_name, end.name)}
    near = difflib.get_close_matches(text, names, MOST, 0.5) or sorted(names.values())
    listed = list(dict.fromkeys(names[name] for name in near))[:MOST]
    return f"an IP address, or the name of {kind} that is known, such as {', '.join(listed)}"


def _with_port(described: Described, ends: t.Sequence[End]) -> list[End]:
    """Return the Services that have the packet's port, or the pods if there is no such Service. Raises Invalid for neither."""
    protocol = str(described.get("protocol") or packet.OPTIONS["protocol"].default).lower()
    port = str(described.get("destination_port") or "")
    fitting = [end for end in ends if end.has_port(protocol, port)]
    if not fitting:
        raise Invalid("packet.destination_port", f"{protocol} {port}".rstrip(), f"a port of {_listed(ends)}")
    return [end for end in fitting if end.protocol] or fitting


def _not_one(
    described: Described, pairs: t.Sequence[tuple[End, End]], sources: t.Sequence[End], destinations: t.Sequence[End]
) -> Invalid:
    """Return the error for names that lead to no packet, or to several."""
    if not pairs:
        expected = f"of the address family of packet.source, which is {_listed(sources)}, and not {_listed(destinations)}"
        return Invalid("packet.destination", described["destination"], expected)
    option, column = ("source", 0) if len({near for near, _far in pairs}) > 1 else ("destination", 1)
    candidates = list(dict.fromkeys(pair[column] for pair in pairs))
    expected = f"one of {_listed(candidates)}: add the namespace or the port, or write the address"
    return Invalid(f"packet.{option}", described[option], expected)


def _listed(ends: t.Sequence[End]) -> str:
    further = [f"{len(ends) - MOST} more"] if len(ends) > MOST else []
    return ", ".join([*map(str, ends[:MOST]), *further])
