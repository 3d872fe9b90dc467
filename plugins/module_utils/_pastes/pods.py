# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Outputs of ``ip`` in the network namespaces of pods, and the addresses of pods as Amazon's ipamd says them.

ipamd's checkpoint and its answer about ENIs are from the source of amazon-vpc-cni-k8s (pkg/ipamd/datastore/data_store.go,
pkg/ipamd/introspect.go).
"""

from __future__ import annotations

import re
import typing as t

from .._core import fields, json_object
from .._core.fields import Unfit
from . import commands, ip_text
from .commands import Ignore, Part
from .open_facts import FAMILIES, Shown

Entry = dict[str, t.Any]
Record = tuple[t.Any, t.Any, t.Any, t.Any]  # namespace, name and interface of a pod, and an address
_NAME = re.compile(r"[\w.-]+")


def ipamd_addresses(part: Part, ignore: Ignore) -> list[Entry]:
    """Return the addresses of pods as a snapshot has them, without addresses that no pod has."""
    try:
        document = json_object.load("\n".join(part.lines))
        records = _of_checkpoint(document) if "allocations" in document else _of_enis(document)
        return [_entry(*record) for record in records if record[1]]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        ignore(f"is no JSON of ipamd ({error})", part.lines[0])
        return []


def _of_checkpoint(document: Entry) -> t.Iterator[Record]:
    for allocation in document["allocations"] or ():
        for family in ("ipv4", "ipv6"):
            if allocation.get(family):
                yield (*_pod(allocation["metadata"]), allocation["ifName"], allocation[family])


def _of_enis(document: Entry) -> t.Iterator[Record]:
    cards = [document] if "ENIs" in document else document.values()  # by network card since version 1.20
    enis = (eni for card in cards for eni in card["ENIs"].values())
    cidrs = (cidr for eni in enis for key in ("AvailableIPv4Cidrs", "IPv6Cidrs") for cidr in (eni.get(key) or {}).values())
    for address in (address for cidr in cidrs for address in (cidr["IPAddresses"] or {}).values()):
        yield (*_pod(address.get("IPAMMetadata") or {}), address["IPAMKey"]["ifName"], address["Address"])


def _pod(metadata: Entry) -> tuple[t.Any, t.Any]:
    return metadata.get("k8sPodNamespace"), metadata.get("k8sPodName")


def _entry(namespace: t.Any, name: t.Any, interface: t.Any, address: t.Any) -> Entry:
    """Return the entry of a snapshot. Raises Unfit."""
    if not all(map(_NAME.fullmatch, (namespace, name, interface or "unknown"))):
        raise Unfit("the names of a pod and of its interface")
    return {"pod": f"{namespace}/{name}", "interface": interface, "addresses": [fields.show(fields.address(address)[1])]}


POD = "pod"  # the namespace of a pod whose namespace has no name in the outputs
KINDS = (commands.LINK, commands.IFCONFIG, commands.RULE, commands.ROUTE, commands.NEIGHBOUR)
WITHIN = ("127.", "::1", "fe80:")  # addresses by which no other machine reaches a pod
KERNELS_TABLES = {"253", "254", "255"}  # tables that the kernel's own rules name


class PodOutputs:
    """The outputs of one namespace."""

    def __init__(self, namespace: str, tables: ip_text.TableNames) -> None:
        self.namespace = namespace
        self.links: list[Entry] = []
        self._tables = tables
        self._rules: list[Entry] = []
        self._routes: list[Entry] = []
        self._neighbours: list[Entry] = []
        self._local: dict[str, str] = {}  # addresses and their links, as table local has them
        self._shown = Shown()

    def add(self, part: Part, ignore: Ignore) -> None:
        """Read an output. It is not whole if a line was not understood."""
        refused: list[str] = []

        def note(reason: str, line: str) -> None:
            refused.append(line)
            ignore(reason, line)

        if part.kind == commands.RULE:
            self._rules += (rule for rule in ip_text.rules(part, self._tables, note) if rule not in self._rules)
        elif part.kind == commands.ROUTE:
            self._local.update(ip_text.local_addresses(part))
            self._routes += (route for route in ip_text.routes(part, self._tables, note) if route not in self._routes)
        elif part.kind == commands.NEIGHBOUR:
            self._neighbours += ip_text.neighbours(part, note)
        else:
            ip_text.merge_links(self.links, ip_text.links(part, note))
        self._shown.add(part._replace(is_understood=not refused))

    def routing(self) -> Entry | None:
        """Return the side of the pod as a snapshot has it; None if its rules and routes are not whole."""
        if not self.links or not all(map(self._is_whole, FAMILIES)):
            return None
        side = {"namespace": self.namespace, "rules": self._rules, "routes": self._routes, "neighbors": self._neighbours}
        return {**side, "addresses": self._addresses()} if all(map(self._shown.has_addresses, FAMILIES)) else side

    def permanent(self, link: str) -> list[Entry] | None:
        """Return the permanent neighbours of one of the pod's links; None if the outputs do not have all neighbours."""
        whole = {part.family for part in self._shown.of(commands.NEIGHBOUR) if part.is_whole}  # without a family, of both
        if not ("" in whole or whole.issuperset(FAMILIES)):
            return None
        of_link = (each for each in self._neighbours if (each.get("dev"), each.get("state")) == (link, "PERMANENT"))
        return [{"address": each["address"], "mac": each["mac"]} for each in of_link]

    def _addresses(self) -> list[str]:
        of_links = (str(address["address"]).partition("/")[0] for link in self.links for address in link["addresses"])
        return [*dict.fromkeys([*of_links, *self._local])]

    def _is_whole(self, family: str) -> bool:
        """Return whether the outputs have the rules and the routes of a family, unless the pod has no address of it."""
        addresses = [address for address in self._addresses() if not address.startswith(WITHIN)]
        if self._shown.has_addresses(family) and not any((":" in address) == (family == "ipv6") for address in addresses):
            return True
        tables = {str(rule["table"]) for rule in self._rules if rule["family"] == family and rule.get("table")}
        names = ["main", *map(self._tables.name, sorted(tables - KERNELS_TABLES))]
        has_rules = self._shown.is_whole(commands.RULE, family=family)
        return has_rules and all(self._shown.has_table(family, name) for name in names)
