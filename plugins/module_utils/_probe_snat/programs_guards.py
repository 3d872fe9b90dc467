# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Guards of the probes' BPF programs. Each one refuses a node on which they could not be attached, or would not be met."""

from __future__ import annotations

import socket
import typing as t

from .._core.errors import Refusal
from .._netlink import rtnetlink
from .._platform import kernel
from .._systemd.units import Units
from . import programs_unit
from .probe_guards import OtherTranslators

ETHERNET = "1"  # ARPHRD_ETHER (include/uapi/linux/if_arp.h)


def ethernet_link(link: str) -> t.Iterable[str]:
    """Refuse a link that is not there, or whose packets do not begin with a header of Ethernet."""
    kind = next(iter(kernel.lines(f"/sys/class/net/{link}/type")), "")
    if kind != ETHERNET:
        links = ", ".join(sorted(name for _index, name in socket.if_nameindex()))
        defect = "has no Ethernet header" if kind else "is not a link of the node"
        raise Refusal(
            f"interface {link} {defect}, and backend bpf attaches programs to an Ethernet link. Nothing was changed. The links"
            f" are: {links}"
        )
    return ()


def first_place(link: str) -> t.Iterable[str]:
    """Refuse a node without bpf(2), and a link on which no program can come before what is there."""
    try:
        from .._bpf import attachments  # needs ctypes, which a node without this backend does not have to have

        index = socket.if_nametoindex(link)
        has_tcx = attachments.has_tcx(index)
    except (ImportError, OSError) as error:
        raise Refusal(
            f"backend bpf needs bpf(2), which this node does not permit: {error}. Nothing was changed. Run with CAP_BPF and"
            " CAP_NET_ADMIN, by a Python that has ctypes"
        ) from error
    first = (each for parent in attachments.CLSACT.values() for each in rtnetlink.filters(index, parent) if each.priority == 1)
    kinds = {each.kind for each in first if (each.kind, each.protocol) != (rtnetlink.BPF, rtnetlink.ETH_P_ALL)}
    if kinds and not has_tcx:
        raise Refusal(
            f"{link} carries filters of priority 1 of the kind {', '.join(sorted(kinds))}, and this kernel, older than Linux 6.6,"
            " lets no program come before these. Nothing was changed. Give them another priority, or use a newer kernel"
        )
    return ()


def express_path(translators: OtherTranslators) -> t.Iterable[str]:
    """Refuse a link on which Cilium answers node ports by XDP, which comes before all programs that could translate a probe."""
    programs = translators.cilium.programs if translators.cilium else ()
    earlier = [name for name in programs if name.startswith("XDP ")]
    if earlier:
        raise Refusal(
            f"{translators.link} carries Cilium's {', '.join(earlier)}, which takes probes before any other program sees them."
            " Nothing was changed. Set Cilium's loadBalancer.acceleration to disabled, or state to absent for this node"
        )
    return ()


def kept_programs(systemd: Units, table: str) -> t.Iterable[str]:
    """Refuse a run that leaves the unit as it is, while the unit keeps the programs as an earlier run wanted them."""
    unit = programs_unit.name(table)
    if systemd.is_active(unit):
        raise Refusal(f"{unit} is active and would undo the change. Nothing was changed. Set permanent to true")
    return ()
