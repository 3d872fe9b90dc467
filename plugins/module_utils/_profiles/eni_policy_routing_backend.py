# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Observes what the profile eni_policy_routing depends on: the metadata service, and the marks on the node."""

from __future__ import annotations

import typing as t

from .._cloud import eni_layout
from .._cni import marks, marks_backend
from .._core.option import Values
from .._platform import process
from .._routing import policy
from .._routing.routing_backend import Netlink
from . import eni_policy_routing, mode_backend
from .eni_policy_routing import Observation


def observe(options: Values, is_image: bool, run: process.Runner) -> Observation:
    """Raise Invalid for an interface that the node does not have, NoMetadata, Failure."""
    if is_image or not eni_policy_routing.needs_enis(options):
        return Observation(is_image)
    if not options["later_interfaces"]:
        mode_backend.check_links(eni_policy_routing.links(options))
    interfaces = _interfaces(options["cloud"]) if options["enis"] is None else None
    read, cni = marks_backend.read_all(run), marks.CNIS.get(options["layout"])
    foreign = marks_backend.foreign(read.tables, options["protocol"], eni_policy_routing.TABLE, cni.comment if cni else "")
    return Observation(is_image, interfaces, marks.find(read.tables), read.unread, _networks(options), foreign)


def _networks(options: Values) -> dict[str, list[str]] | None:
    """Return the networks on each link; None if the metadata has the subnets, or the layout does not need them."""
    if options["enis"] is None or not eni_layout.LAYOUTS[options["layout"]].from_pod:
        return None
    return policy.networks_of_links(route for route, _protocol in Netlink().routes())


def _interfaces(cloud: str) -> list[dict[str, t.Any]]:
    """Return the network interfaces from the metadata service. Raises NoMetadata."""
    from .._cloud import enis_backend  # only a run that queries the service should wait for the import

    with process.waiting("waits for the metadata service of the cloud"):
        return enis_backend.read(cloud)[1]
