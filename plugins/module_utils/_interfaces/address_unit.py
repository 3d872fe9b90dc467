# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The unit that adds addresses to a link whenever the link appears."""

from __future__ import annotations

import re
import typing as t

from .._kubelet import kubelet_units
from .._systemd.boot_unit import BootUnit

PREFIX = "kubenode-addresses-"


def name(link: str) -> str:
    """Return the name of the unit that gives a link its addresses."""
    return f"{PREFIX}{_escaped(link)}.service"


def link_of(unit: str) -> str:
    """Return the link to which such a unit gives addresses. unit: its name."""
    escaped = unit[len(PREFIX) : -len(".service")]
    return re.sub(r"\\x([0-9a-f]{2})", lambda match: chr(int(match[1], 16)), escaped)


def unit(link: str, addresses: t.Iterable[str], before: t.Sequence[str] = ()) -> BootUnit:
    """Return the unit that gives a link its addresses whenever the link appears, at boot and later.

    The link's device unit starts and stops it. An address that the link already has is left as it is: ``ip address add`` then
    fails, and ``-`` makes systemd ignore the failure. kubelet does not wait for a link that is not plugged in.

    addresses: each with the words that ip(8) takes after ``ip address add``. before: see kubelet_units.ordering().
    """
    device = f"sys-subsystem-net-devices-{_escaped(link)}.device"
    commands = "\n".join(f"ExecStart=-ip address add {address}" for address in addresses)
    text = f"""\
[Unit]
Description=Addresses of {link} of kubenode.datapath
BindsTo={device}
After={device}
{kubelet_units.ordering(before)}

[Service]
Type=oneshot
RemainAfterExit=yes
{commands}

[Install]
WantedBy={device}
"""
    return BootUnit(name(link), text, wanted_by=device, before=tuple(before))


def addresses(text: str) -> list[str]:
    """Return the addresses of such a unit, as unit() takes them."""
    return re.findall(r"^ExecStart=-ip address add (.*)$", text, re.MULTILINE)


def _escaped(link: str) -> str:
    """Return a link's name, escaped for the name of a unit as by systemd-escape(1)."""
    return re.sub(r"[^A-Za-z0-9:_.]", lambda match: f"\\x{ord(match[0]):02x}", link)
