# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The profile that owns a routing protocol, a table or a file which several profiles and modules can set."""

from __future__ import annotations

import typing as t

from .._core.errors import Refusal

FOLDER = "/etc/kubenode"
BEGINS = "owned-by-"
TABLE = "kubenodeReturnPath"
FILTERS = "/etc/sysctl.d/90-kubenode-rp-filter.conf"
DAEMONS = "settings of network daemons"  # the same for each profile: several may own them, and the last one removes them
# By module: the option that names the object, its default, and the object's name in a record.
OBJECTS: dict[str, tuple[str, t.Any, str]] = {
    "network_daemons": ("", None, DAEMONS),
    "rp_filter": ("path", FILTERS, "{}"),
    "policy_routes": ("protocol", 75, "protocol {}"),
    "nftables_connmark": ("table", TABLE, "table inet {}"),
}


def claim(module: str, options: t.Mapping[str, t.Any]) -> str:
    """Return the name of the object that the module sets; empty for a module whose object only one profile sets."""
    option, default, name = OBJECTS.get(module, ("", None, ""))
    return name.format(options.get(option, default))


def record(profile: str) -> str:
    """Return the path of the file that lists the objects of a profile, one a line."""
    return f"{FOLDER}/{BEGINS}{profile}"


class Owners(t.NamedTuple):
    """recorded: the objects of each profile with a record.

    former: by object, the profile that set it by a version without records. It may also be a set of a module that was used alone.
    """

    recorded: t.Mapping[str, frozenset[str]]
    former: t.Mapping[str, str]

    def other(self, name: str, profile: str) -> str:
        """Return another profile that owns an object; empty for none.

        profile: the one that asks; empty for modules in a playbook, which only a record keeps from an object, because without
        one it may be their own.
        """
        owners = [owner for owner, names in self.recorded.items() if name in names]
        former = self.former.get(name, "")
        if profile and former and former not in self.recorded and (not owners or name == DAEMONS):
            owners.append(former)
        return next((owner for owner in owners if owner != profile), "")


def refusal(names: t.Sequence[str], owner: str, user: str, instead: str) -> str:
    """Return the error of a run that would replace objects of another profile. user: the profile or module that would."""
    return (
        f"{' and '.join(names)} belong{'' if len(names) > 1 else 's'} to the profile {owner} on this node, and {user} would"
        f" replace what that profile has set. Nothing was changed. Apply {owner} with state absent first, or {instead}"
    )


INSTEAD = {"policy_routes": "protocol", "nftables_connmark": "table and path", "rp_filter": "path"}  # options


def unowned(owners: Owners, module: str, options: t.Mapping[str, t.Any]) -> t.Iterable[str]:
    """Raise Refusal if a module that is used alone would replace an object of a profile."""
    name = claim(module, options)
    owner = owners.other(name, "")
    if owner:
        raise Refusal(refusal([name], owner, module, f"set {INSTEAD[module]} to another value"))
    return ()


def unowned_by_others(owners: Owners, claims: t.Iterable[str], profile: str) -> t.Iterable[str]:
    """Raise Refusal if a profile would replace objects of another one. profile: empty for modules in a playbook."""
    owned = {name: owner for name in claims if name != DAEMONS and (owner := owners.other(name, profile))}
    if owned:
        owner = next(iter(owned.values()))
        names = [name for name in owned if owned[name] == owner]
        is_protocol = all(name.startswith("protocol ") for name in names)
        instead = "set another protocol" if is_protocol else f"leave {profile or 'these modules'} out on this node"
        raise Refusal(refusal(names, owner, profile or "this list of modules", instead))
    return ()
