# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""The guards of objects that a profile owns."""

from __future__ import annotations

import typing as t

from .._core.errors import Refusal
from . import ownership
from .ownership import DAEMONS, Owners

INSTEAD = {"policy_routes": "protocol", "nftables_connmark": "table and path", "rp_filter": "path"}  # options


def unowned(owners: Owners, module: str, options: t.Mapping[str, t.Any]) -> t.Iterable[str]:
    """Raise Refusal if a module that is used alone would replace an object of a profile."""
    name = ownership.claim(module, options)
    owner = owners.other(name, "")
    if owner:
        raise Refusal(ownership.refusal([name], owner, module, f"set {INSTEAD[module]} to another value"))
    return ()


def unowned_by_others(owners: Owners, claims: t.Iterable[str], profile: str) -> t.Iterable[str]:
    """Raise Refusal if a profile would replace objects of another one. profile: empty for modules in a playbook."""
    owned = {name: owner for name in claims if name != DAEMONS and (owner := owners.other(name, profile))}
    if owned:
        owner = next(iter(owned.values()))
        names = [name for name in owned if owned[name] == owner]
        is_protocol = all(name.startswith("protocol ") for name in names)
        instead = "set another protocol" if is_protocol else f"leave {profile or 'these modules'} out on this node"
        raise Refusal(ownership.refusal(names, owner, profile or "this list of modules", instead))
    return ()
