# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Reads which pod has which addresses, as the container runtime records each attachment of a pod to a network. Starts no process.

From the source of containernetworking/cni (libcni/api.go), which containerd and CRI-O use, whatever the CNI plugin is.
"""

from __future__ import annotations

import os
import typing as t

from .._core import json_object
from .._files import files

FOLDER = "/var/lib/cni/results"
_KIND = "cniCacheV1"


class Attachment(t.NamedTuple):
    """pod: NAMESPACE/NAME. interface: its name in the pod. netns: the path of the pod's network namespace, empty for none."""

    pod: str
    interface: str
    addresses: tuple[str, ...]
    netns: str = ""

    def entry(self) -> dict[str, t.Any]:
        """Return the attachment as a snapshot has it."""
        return {"pod": self.pod, "interface": self.interface, "addresses": [*self.addresses]}


def attachment(text: str) -> Attachment | None:
    """Read a record; None if it is of another kind, of no pod, or has no addresses."""
    try:
        record = json_object.load(text)
        arguments = dict(record.get("cniArgs") or ())
        namespace, name = arguments.get("K8S_POD_NAMESPACE"), arguments.get("K8S_POD_NAME")
        addresses = tuple(_addresses(record.get("result") or {}))
        if record["kind"] != _KIND or record["ifName"] == "lo" or not (namespace and name and addresses):
            return None
        return Attachment(f"{namespace}/{name}", str(record["ifName"]), addresses, str(record.get("netns") or ""))
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def _addresses(result: t.Mapping[str, t.Any]) -> t.Iterator[str]:
    """Yield the addresses of a plugin's result, without their lengths."""
    listed = [address.get("address") for address in result.get("ips") or ()]
    listed += [(result.get(family) or {}).get("ip") for family in ("ip4", "ip6")]  # before version 0.3.0 of the specification
    yield from (str(address).partition("/")[0] for address in listed if address)


def attachments(folder: str = FOLDER) -> list[Attachment]:
    """Return the attachments of pods, sorted, without records of pods that ended with an earlier boot."""
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    records = (attachment(files.text_or_empty(os.path.join(folder, name))) for name in names)
    return sorted(record for record in records if record and (not record.netns or os.path.exists(record.netns)))
