# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Observes what the profile symmetric_routing depends on: the node's uplinks, Cilium's programs on them, and the marks of other
programs."""

from __future__ import annotations

import typing as t

from .._cni import cilium_backend, marks_backend
from .._core.option import Values
from .._discovery import uplinks_backend
from .._discovery.uplinks import OF_CNIS
from .._platform import process
from . import mode_backend, symmetric_routing
from .symmetric_routing import Observation


def observe(options: Values, is_image: bool, run: process.Runner) -> Observation:
    """Raise Invalid for an interface that the node does not have, Failure."""
    if is_image or options["state"] == symmetric_routing.UNDO:
        return Observation(is_image)
    if not options["later_interfaces"]:
        mode_backend.check_links(symmetric_routing.links(options))
    node = uplinks_backend.read(options["protocol"])
    agent = cilium_backend.find()
    programs = _programs(node.links) if agent and agent.replaces_kube_proxy is not False else {}
    read = marks_backend.read_all(run)
    marks = marks_backend.foreign(read.tables, options["protocol"], symmetric_routing.TABLE)
    return Observation(is_image, node, programs, bool(agent and agent.replaces_kube_proxy), marks, read.unread)


def _programs(links: t.Iterable[str]) -> dict[str, list[str]]:
    """Map the links to the programs of Cilium on them."""
    from .._bpf import attachments  # needs ctypes, which only a node with Cilium has to have
    from .._cni import cilium  # most nodes have no Cilium

    uplinks = (link for link in links if not link.startswith(OF_CNIS))
    programs = {
        link: [program.name for program in attachments.at_ingress(link) if cilium.is_program(program.name)] for link in uplinks
    }
    return {link: names for link, names in programs.items() if names}
