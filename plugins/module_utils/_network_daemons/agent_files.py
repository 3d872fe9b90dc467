# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""The files that keep a cloud agent from configuring network interfaces that appear while the node runs.

udev and cloud-init read them at each event, so that one file decides for the running node and for its next boot.
"""

from __future__ import annotations

import re
import typing as t

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
