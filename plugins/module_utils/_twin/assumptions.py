# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""What a snapshot does not tell, and what is assumed instead."""

from __future__ import annotations

import copy
import re
import typing as t

from .._core import fields
from .._core.errors import Invalid
from .._core.fields import Unfit
from .._platform.sysctl import DOTTED
from .blueprint import Entry

_OF_LINK = re.compile(r"net[./](ipv4|ipv6)[./]conf[./](.+)[./](\w+)")
FORWARDING = (("net.ipv4.ip_forward", "ipv4"), ("net.ipv6.conf.all.forwarding", "ipv6"))


def complete(snapshot: Entry, assume: Entry, interface: str) -> tuple[dict[str, t.Any], list[str]]:
    """The snapshot with the settings of ``assume``, a node that forwards, and the link of the packet; and sentences about it.

    assume: settings as sysctl names them, with their values. interface: empty for none. Raises Invalid.
    """
    told: list[str] = []
    found = dict(snapshot)
    settings = copy.deepcopy(dict(found.get("settings") or {}))
    given = {str(key): _value(key, value) for key, value in assume.items()}
    for key, value in given.items():
        _put(settings, key, value)
        told.append(f"{key} = {value}, as the option assume says.")
    for key, family in FORWARDING:
        if not _is_told(settings, key, family):
            _put(settings, key, 1)
            told.append(f"{key} is not known. It is assumed to be 1, because a Kubernetes node forwards.")
    found["settings"] = settings
    links = list(found.get("links") or ())
    if interface and not any(one.get("name") == interface for one in links if isinstance(one, dict)):
        if found.get("links"):
            names = ", ".join(str(one.get("name")) for one in links)
            raise Invalid("packet.interface", interface, f"a link of the node: {names}")
        links.append({"name": interface, "kind": "", "flags": ["UP", "LOWER_UP"], "addresses": []})
        told.append(f"{interface} is not known. It is assumed to be a network interface that is up.")
    found["links"] = links
    return found, told


def _value(key: object, value: object) -> int:
    if not str(key).startswith(("net.", "net/")):
        raise Invalid(f"assume.{key}", value, "the setting of a network: its name begins with net.")
    try:
        return fields.number(value, -1, fields.UINT32)
    except Unfit as unfit:
        raise Invalid(f"assume.{key}", value, str(unfit)) from None


def _put(settings: dict[str, t.Any], key: str, value: int) -> None:
    found = _OF_LINK.fullmatch(key)
    if found:
        family, link, name = found.groups()
        settings.setdefault(family, {}).setdefault(link.replace("/", "."), {})[name] = value
    else:
        settings.setdefault("node", {})[key.translate(DOTTED) if "/" in key and "." not in key else key] = value


def _is_told(settings: Entry, key: str, family: str) -> bool:
    every = (settings.get(family) or {}).get("all") or {}
    return key in (settings.get("node") or {}) or "forwarding" in every or settings.get(family) == {}
