# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The network daemons and cloud agents of a node, what each does to foreign rules and routes, and files that keep agents off.

From the sources of systemd, NetworkManager (src/nm-cloud-setup), netplan (src/networkd.c), cloud-init
(cloudinit/sources/DataSourceEc2.py, config/cc_install_hotplug.py) and amazon-ec2-net-utils (lib/lib.sh), and from
amazon-vpc-cni-k8s (docs/troubleshooting.md) on nm-cloud-setup.
"""

from __future__ import annotations

import re
import typing as t

from . import networkd
from .networkd import ROUTES, RULES, Setting

NET_UTILS, HOTPLUG, IFUPDOWN = "amazon-ec2-net-utils", "cloud-init hotplug", "cloud-ifupdown-helper"
UDEV_FOLDER, CLOUD_FILE, CLOUD_FOLDER = "/etc/udev/rules.d", "/etc/cloud/cloud.cfg", "/etc/cloud/cloud.cfg.d"
NET_UTILS_RULE = "99-vpc-policy-routes.rules"  # amazon-ec2-net-utils, udev/
HOTPLUG_RULE = "[0-9][0-9]-cloud-init-hook-hotplug.rules"  # cloud-init, config/cc_install_hotplug.py
IFUPDOWN_RULE = "75-cloud-ifupdown.rules"  # of Debian 11's cloud images
# What a cloud.cfg says about the events at which cloud-init configures the network, as a list in one line or in several.
_WHEN = re.compile(r"\bwhen:[ \t]*(\[[^\[\]]*\]|(?:\n\s*-[^\n]*)+)")
_COMMENT = re.compile(r"^[ \t]*#.*$", re.MULTILINE)


HOTPLUG_SWITCH = f"{CLOUD_FOLDER}/99-kubenode-hotplug.cfg"


class Switch(t.NamedTuple):
    """agent: the agent's name in known_daemons.AGENTS. path, text: of the file that keeps it off."""

    agent: str
    path: str
    text: str


SWITCHES = (
    # The first folder that has a file of the name hides the file of the package (udev(7)).
    Switch(
        NET_UTILS,
        f"{UDEV_FOLDER}/{NET_UTILS_RULE}",
        "# Hides the rule of amazon-ec2-net-utils, which would configure each interface that the CNI attaches.\n",
    ),
    # The events that remain are those of cloud-init's defaults for EC2 (DataSourceEc2.py) without hotplug.
    Switch(
        HOTPLUG,
        HOTPLUG_SWITCH,
        "# Keep cloud-init from configuring interfaces that the CNI attaches.\n"
        "updates:\n  network:\n    when: [boot-new-instance]\n",
    ),
    # cloud-init writes the other rule at an instance's first boot. It starts the helper for pods' links (eni...), too, and a DHCP
    # that fails takes the link down. RUN= replaces what earlier rules added for the event.
    Switch(
        IFUPDOWN,
        f"{UDEV_FOLDER}/76-kubenode-ifupdown.rules",
        '# Keep cloud-ifupdown-helper off the links of pods.\nSUBSYSTEM=="net", ACTION=="add", KERNEL=="eni[0-9a-f]*", RUN=""\n',
    ),
)


def has_rules(text: str) -> bool:
    """Return whether a file of udev has anything besides comments."""
    return any(line.strip() and not line.lstrip().startswith("#") for line in text.splitlines())


def says_hotplug(texts: t.Sequence[str]) -> bool | None:
    """Return whether files of cloud-init turn its hotplug on, the last that says so; None if none does. texts: in its order."""
    lists = [match[1] for text in texts for match in _WHEN.finditer(_COMMENT.sub("", text))]
    return "hotplug" in lists[-1] if lists else None


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


class Remnant(t.NamedTuple):
    """A rule that an agent left in the kernel, as ip shows it, and the command that removes it, with its table."""

    text: str
    command: str


_BY_ENI = "it gives each interface its addresses, those of pods included, a default route, and a rule and a table from 10000 up"
_MASK = "Mask its udev rule with an empty /etc/udev/rules.d/99-vpc-policy-routes.rules, as EKS's images do."
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
        "it writes netplan's configuration anew when an interface is plugged in, with rules and tables from 101 up for those of"
        " the CNI, and applies it",
        "Turn it off with 'updates: {network: {when: [boot-new-instance]}}' in a file in /etc/cloud/cloud.cfg.d.",
    ),
    "cloud-ifupdown-helper": Agent(
        COMPETING,
        "it runs DHCP on links of pods whose names begin with eni, and takes them down when that fails",
        "Let /etc/udev/rules.d/75-cloud-ifupdown.rules match ens* and eth* only.",
    ),
    "amazon-ec2-net-utils": Agent(COMPETING, _BY_ENI, _MASK),
    "amazon-ec2-net-utils, running": Agent(
        COMPETING,
        f"its units policy-routes@ run, and {_BY_ENI}, again each minute",
        "End them: systemctl stop 'refresh-policy-routes@*.timer', rm -f /run/systemd/network/*/ec2net_alias.conf, networkctl"
        " reload; or reboot the node.",
    ),
    "ec2-net-utils": Agent(COMPETING, _BY_ENI, "Remove the package, as EKS's images of Amazon Linux 2 do."),
}


_OCCASIONS = "it does so at netplan apply, and at each upgrade of systemd, which may be unattended"


def networkd_daemon(active: bool, version: int | None, settings: t.Mapping[str, Setting], in_force: bool) -> Daemon:
    """Describe systemd-networkd as a Daemon.

    settings: the current or coming settings of the keys that the version knows.
    in_force: whether the running networkd has read them.
    """
    name = "systemd-networkd"
    managed = [key for key in settings if settings[key].value]
    if managed:
        return Daemon(name, active, version, HOSTILE, f"{' and '.join(managed)} is yes, as by default")
    if networkd.has_no_setting(ROUTES, version):
        reason = f"version {version} removes foreign routes on links that it manages, and has no setting against it"
        return Daemon(name, active, version, HOSTILE, f"{reason}; {_OCCASIONS}", "Upgrade systemd to 249 or newer.")
    if networkd.has_no_setting(RULES, version):
        reason = f"version {version} may remove foreign rules, and has no setting against it before {networkd.SINCE[RULES]}"
        return Daemon(name, active, version, HOSTILE, f"{reason}; {_OCCASIONS}", "Upgrade systemd to 249 or newer.")
    since = "" if in_force else ", from its next start on"
    lines = " and ".join(f"{key}=no" for key in settings)
    return Daemon(name, active, version, KEPT_OFF, f"{lines} in {_paths(settings)}{since}")


def _paths(settings: t.Mapping[str, Setting]) -> str:
    return " and ".join(dict.fromkeys(setting.path for setting in settings.values()))


def firewalld_daemon(is_active: bool, flushes: bool, path: str) -> Daemon:
    """Describe firewalld as a Daemon. flushes: what path, its configuration, says about a reload."""
    if not is_active:
        return Daemon("firewalld", False, None, *_IDLE)
    if not flushes:
        return Daemon("firewalld", True, None, KEPT_OFF, f"FlushAllOnReload=no in {path}")
    reason = (
        "firewall-cmd --reload flushes all rules of iptables, with those of kube-proxy and of hostPorts, because FlushAllOnReload"
        " is yes"
    )
    return Daemon("firewalld", True, None, HOSTILE, reason, f"Set FlushAllOnReload=no in {path}, or disable firewalld.")


_IDLE = Agent(HARMLESS, "it is not active")


def agent_daemons(
    agents: t.Mapping[str, bool], switches: t.Mapping[str, str], remnants: t.Mapping[str, t.Sequence[Remnant]]
) -> list[Daemon]:
    """Return the agents as Daemons, and those of which only rules are left.

    agents: as daemons_backend.read() returns it. switches: the paths of this collection's files that keep agents off.
    """
    names = {name.partition(",")[0] for name in agents}
    states = {**agents, **{name: False for name in remnants if name not in names}}
    return [_agent_daemon(name, is_active, switches, remnants) for name, is_active in states.items()]


def _agent_daemon(
    name: str, is_active: bool, switches: t.Mapping[str, str], remnants: t.Mapping[str, t.Sequence[Remnant]]
) -> Daemon:
    base = name.partition(",")[0]
    agent = _IDLE
    if is_active:
        agent = AGENTS[name]
    elif base in remnants:
        texts, commands = zip(*remnants[base])
        reason = f"it is not active, but what it left in the kernel still routes packets: {', '.join(texts)}"
        agent = Agent(COMPETING, reason, f"Remove it: {'; '.join(commands)}.")
    elif base in switches:
        agent = Agent(KEPT_OFF, f"{switches[base]} keeps it off interfaces that appear")
    return Daemon(base, is_active, None, *agent)
