# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Which pod has which address, as Amazon's ipamd says: in its checkpoint, and in its answer about ENIs.

From the source of amazon-vpc-cni-k8s (pkg/ipamd/datastore/data_store.go, pkg/ipamd/introspect.go).
"""

from __future__ import annotations

import re
import typing as t

from .._core import fields, json_object
from .._core.fields import Unfit
from .commands import Ignore, Part

Entry = dict[str, t.Any]
Record = tuple[t.Any, t.Any, t.Any, t.Any]  # namespace, name and interface of a pod, and an address
_NAME = re.compile(r"[\w.-]+")


def pod_addresses(part: Part, ignore: Ignore) -> list[Entry]:
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
