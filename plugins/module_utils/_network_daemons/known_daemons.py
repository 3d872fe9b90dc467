# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""The network daemons and cloud agents of a node, and what each does to rules and routes that are not its own.

From the sources of systemd, NetworkManager (src/nm-cloud-setup), netplan (src/networkd.c), cloud-init
(cloudinit/sources/DataSourceEc2.py) and amazon-ec2-net-utils (lib/lib.sh), and from amazon-vpc-cni-k8s
(docs/troubleshooting.md) on nm-cloud-setup.
"""

from __future__ import annotations

import typing as t

from . import networkd
from .networkd import ROUTES, RULES, Setting

# What becomes of rules and routes of others. KEPT_OFF: by its configuration. COMPETING: it routes the same links itself.
HARMLESS, KEPT_OFF, COMPETING, HOSTILE = "harmless", "kept_off", "competing", "hostile"


class Daemon(t.NamedTuple):
    """version: None where the node does not tell without asking the daemon. remedy: what an operator can do, a sentence."""

    name: str
    active: bool
    version: int | None
    verdict: str
    reason: str
    remedy: str = ""


class Agent(t.NamedTuple):
    """What an agent does when it is at work."""

    verdict: str
    reason: str
    remedy: str = ""


_BY_ENI = "it gives each interface an address, a default route, and a rule and a table from 10000 up"
# By name; what follows a comma is about how it is set up.
AGENTS = {
    "NetworkManager": Agent(HARMLESS, "it removes rules of its own profiles only"),
    "nm-cloud-setup": Agent(
        HOSTILE,
        "it keeps rules and tables 30200 to 30499 for the interfaces, and clears those of pods",
        "Disable it: systemctl disable --now nm-cloud-setup.timer nm-cloud-setup.service.",
    ),
    "netplan": Agent(HARMLESS, "it has systemd-networkd or NetworkManager do what it says"),
    "cloud-init": Agent(HARMLESS, "it has written no rules"),
    "cloud-init, with rules": Agent(
        COMPETING,
        "it has netplan keep rules for the interfaces' addresses, and tables from 101 up",
        "Have it leave the network alone, by 'network: {config: disabled}' in a file in /etc/cloud/cloud.cfg.d, and take them"
        " out of /etc/netplan/50-cloud-init.yaml.",
    ),
    "amazon-ec2-net-utils": Agent(
        COMPETING,
        _BY_ENI,
        "Mask its udev rule by an empty /etc/udev/rules.d/99-vpc-policy-routes.rules, as EKS's images do.",
    ),
    "ec2-net-utils": Agent(COMPETING, _BY_ENI, "Remove the package, as EKS's images of Amazon Linux 2 do."),
}


def of_networkd(active: bool, version: int | None, settings: t.Mapping[str, Setting], in_force: bool) -> Daemon:
    """settings: of the keys that the version knows, as they are or will be. in_force: whether the running one has read them."""
    name = "systemd-networkd"
    removed = [key for key in settings if settings[key].value]
    if removed:
        return Daemon(name, active, version, HOSTILE, f"{' and '.join(removed)} is yes, as by default")
    if version is not None and version < networkd.SINCE[ROUTES]:
        reason = f"version {version} has no setting that keeps it from removing routes on links that it manages"
        return Daemon(name, active, version, HOSTILE, reason, "Upgrade systemd to 249 or newer.")
    if version is not None and networkd.RULES_REMOVED_SINCE <= version < networkd.SINCE[RULES]:
        reason = f"version {version} may remove rules of others, and has no setting against it before {networkd.SINCE[RULES]}"
        return Daemon(name, active, version, HOSTILE, reason, "Upgrade systemd to 249 or newer.")
    since = "" if in_force else ", from its next start on"
    return Daemon(name, active, version, KEPT_OFF, f"{_paths(settings)} says so{since}")


def _paths(settings: t.Mapping[str, Setting]) -> str:
    return " and ".join(dict.fromkeys(one.path for one in settings.values()))


def of_agents(found: t.Mapping[str, bool]) -> list[Daemon]:
    """Those that are there, by their names in AGENTS, and whether each is at work."""
    idle = Agent(HARMLESS, "it is not at work")
    return [
        Daemon(name.partition(",")[0], at_work, None, *(AGENTS[name] if at_work else idle))
        for name, at_work in found.items()
    ]
