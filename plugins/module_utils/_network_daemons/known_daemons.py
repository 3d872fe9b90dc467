# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""The network daemons and cloud agents of a node, and what each does to foreign rules and routes.

From the sources of systemd, NetworkManager (src/nm-cloud-setup), netplan (src/networkd.c), cloud-init
(cloudinit/sources/DataSourceEc2.py, cloudinit/config/cc_install_hotplug.py) and amazon-ec2-net-utils (lib/lib.sh), from
amazon-vpc-cni-k8s (docs/troubleshooting.md) on nm-cloud-setup, and from kOps on cloud-ifupdown-helper.
"""

from __future__ import annotations

import typing as t

from . import networkd
from .networkd import ROUTES, RULES, Setting

# What a daemon does to foreign rules and routes. HARMLESS: leaves them alone. KEPT_OFF: its configuration makes it leave them
# alone. COMPETING: leaves them alone, but routes the same links itself. HOSTILE: removes them.
HARMLESS, KEPT_OFF, COMPETING, HOSTILE = "harmless", "kept_off", "competing", "hostile"


class Daemon(t.NamedTuple):
    """version: None if the node's files do not show it. remedy: the operator's next step, as a sentence."""

    name: str
    active: bool
    version: int | None
    verdict: str
    reason: str
    remedy: str = ""


class Agent(t.NamedTuple):
    """What an agent does while it is active."""

    verdict: str
    reason: str
    remedy: str = ""


_BY_ENI = "it gives each interface an address, a default route, and a rule and a table from 10000 up"
# By name. The part after a comma distinguishes ways in which the agent is set up.
AGENTS = {
    "NetworkManager": Agent(HARMLESS, "it removes rules of its own profiles only"),
    "nm-cloud-setup": Agent(
        HOSTILE,
        "it keeps rules and tables 30200 to 30499 for the interfaces, and clears those of pods",
        "Disable it: systemctl disable --now nm-cloud-setup.timer nm-cloud-setup.service.",
    ),
    "netplan": Agent(HARMLESS, "it only configures systemd-networkd or NetworkManager"),
    "cloud-init": Agent(HARMLESS, "it has written no rules"),
    "cloud-init, with rules": Agent(
        COMPETING,
        "it makes netplan keep rules for the interfaces' addresses, and tables from 101 up",
        "Disable its network configuration with 'network: {config: disabled}' in a file in /etc/cloud/cloud.cfg.d, and remove"
        " the rules and tables from /etc/netplan/50-cloud-init.yaml.",
    ),
    "cloud-init hotplug": Agent(
        COMPETING,
        "it configures each interface that is plugged in, with addresses, rules and tables on EC2",
        "Set 'updates: {network: {when: [boot-new-instance]}}' in a file in /etc/cloud/cloud.cfg.d, and remove"
        " /etc/udev/rules.d/90-cloud-init-hook-hotplug.rules.",
    ),
    "cloud-ifupdown-helper": Agent(
        COMPETING,
        "it runs ifupdown for each new link, also for those of pods, which it takes down",
        "Mask its udev rule with an empty /etc/udev/rules.d/75-cloud-ifupdown.rules.",
    ),
    "amazon-ec2-net-utils": Agent(
        COMPETING,
        _BY_ENI,
        "Mask its udev rule with an empty /etc/udev/rules.d/99-vpc-policy-routes.rules, as EKS's images do.",
    ),
    "ec2-net-utils": Agent(COMPETING, _BY_ENI, "Remove the package, as EKS's images of Amazon Linux 2 do."),
}


def of_networkd(active: bool, version: int | None, settings: t.Mapping[str, Setting], in_force: bool) -> Daemon:
    """Describe systemd-networkd as a Daemon.

    settings: the current or coming settings of the keys that the version knows.
    in_force: whether the running networkd has read them.
    """
    name = "systemd-networkd"
    removed = [key for key in settings if settings[key].value]
    if removed:
        return Daemon(name, active, version, HOSTILE, f"{' and '.join(removed)} is yes, as by default")
    if networkd.has_no_setting(ROUTES, version):
        reason = f"version {version} removes foreign routes on links that it manages, and has no setting against it"
        return Daemon(name, active, version, HOSTILE, reason, "Upgrade systemd to 249 or newer.")
    if networkd.has_no_setting(RULES, version):
        reason = f"version {version} may remove foreign rules, and has no setting against it before {networkd.SINCE[RULES]}"
        return Daemon(name, active, version, HOSTILE, reason, "Upgrade systemd to 249 or newer.")
    since = "" if in_force else ", from its next start on"
    lines = " and ".join(f"{key}=no" for key in settings)
    return Daemon(name, active, version, KEPT_OFF, f"{lines} in {_paths(settings)}{since}")


def _paths(settings: t.Mapping[str, Setting]) -> str:
    return " and ".join(dict.fromkeys(setting.path for setting in settings.values()))


def of_agents(agents: t.Mapping[str, bool]) -> list[Daemon]:
    """Return the agents as Daemons. agents: as daemons_backend.read() returns it."""
    idle = Agent(HARMLESS, "it is not active")
    return [
        Daemon(name.partition(",")[0], at_work, None, *(AGENTS[name] if at_work else idle)) for name, at_work in agents.items()
    ]
