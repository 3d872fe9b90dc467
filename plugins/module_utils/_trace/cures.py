# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Remedies of the profiles that may help, by the object that stopped a packet."""

from __future__ import annotations

import re
import typing as t

from .packet import Packet


class Cure(t.NamedTuple):
    """text: as an operator would write it. calls: of modules. commands: of other tools."""

    text: str
    calls: tuple[tuple[str, dict[str, t.Any]], ...] = ()
    commands: tuple[str, ...] = ()


def candidates(packet: Packet, culprit: t.Mapping[str, str] | None, interface: str) -> list[Cure]:
    """Remedies to try, the likeliest first. culprit: as in the result. interface: by which the packet that was lost came in."""
    if culprit is None:
        return []
    text = culprit["text"]
    found: list[Cure] = []
    if "rp_filter" in text and interface:
        found.append(_call("rp_filter", {"interfaces": [interface], "mode": "loose"}))
    elif culprit["kind"] == "sysctl":
        key, _equals, _value = text.partition(" = ")
        found.append(_command(f"sysctl -w {'net.ipv4.ip_forward' if key.endswith('.forwarding') and '.ipv4.' in key else key}=1"))
    if culprit["kind"] == "address" and interface:
        from .._probe_snat.probe_table import AZURE_SOURCE

        if AZURE_SOURCE in text:
            found.append(_call("nftables_probe_snat", {"interface": interface}))
    if culprit["kind"] == "rule" and text.startswith("bridge "):
        table, rule = text[len("bridge ") :].split(": ", 1)
        found.append(_call("ebtables_cleanup", {"addresses": [packet.report()["destination"]]}))
        found.append(_command(f"ebtables -t {table.split()[0]} {rule.replace('-A ', '-D ', 1)}"))
    policy = re.fullmatch(r"(ip6?) filter: -P FORWARD DROP", text)  # INPUT's protects the node
    if culprit["kind"] == "rule" and policy:
        found.append(_command(f"{policy[1]}tables -P FORWARD ACCEPT"))
    if culprit["kind"] == "link" and text.endswith(" hairpin off"):
        found.append(_command(f"bridge link set dev {text.split()[0]} hairpin on"))
    if culprit["kind"] == "neighbor":
        address, _dev, link, *_rest = text.split()
        found.append(_command(f"ip neigh del {address} dev {link}"))
    return found


def _call(name: str, options: dict[str, t.Any]) -> Cure:
    shown = ", ".join(
        f"{key}: {value if isinstance(value, str) else '[' + ', '.join(value) + ']'}" for key, value in options.items()
    )
    return Cure(f"{name}: {{{shown}}}", ((name, options),))


def _command(line: str) -> Cure:
    return Cure(line, (), (line,))
