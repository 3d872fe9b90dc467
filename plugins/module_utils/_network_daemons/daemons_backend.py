# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Finds the network daemons and cloud agents of a node by its files. Starts no process."""

from __future__ import annotations

import contextlib
from pathlib import Path

from .._files import files
from .._systemd.unit_files import FOLDERS
from .._systemd.units import Units
from . import agent_files

_NETPLAN_FILES = ("etc/netplan/*.yaml", "run/netplan/*.yaml", "lib/netplan/*.yaml", "usr/lib/netplan/*.yaml")
_DISABLED = "etc/cloud/cloud-init.disabled"
_UDEV_FOLDERS = (
    "etc/udev/rules.d",
    "run/udev/rules.d",
    "usr/local/lib/udev/rules.d",
    "usr/lib/udev/rules.d",
    "lib/udev/rules.d",
)


def read(units: Units, root: str = "/") -> dict[str, bool]:
    """Return the daemons and agents on the node, by their names in known_daemons.AGENTS, and whether each is active.

    root: differs from "/" in tests only.
    """
    place = Path(root)
    net_utils, cloud_init = agent_files.NET_UTILS, "cloud-init"
    if _has(place, "run/systemd/units/invocation:*policy-routes@*"):
        net_utils = f"{net_utils}, running"
    if "routing-policy:" in _text(place / "etc/netplan/50-cloud-init.yaml"):
        cloud_init = "cloud-init, with rules"
    has_cloud_init, has_hotplug = _has(place, "usr/bin/cloud-init"), _has(place, *_udev(agent_files.HOTPLUG_RULE))
    has_ifupdown = _applies(place, agent_files.IFUPDOWN_RULE)
    states = {
        "NetworkManager": _units(place, units, "NetworkManager.service"),
        "nm-cloud-setup": _units(place, units, "nm-cloud-setup.timer", "nm-cloud-setup.service"),
        "netplan": (_has(place, "usr/sbin/netplan", "usr/bin/netplan"), _has(place, *_NETPLAN_FILES)),
        cloud_init: (has_cloud_init, not _has(place, _DISABLED)),
        agent_files.HOTPLUG: (has_cloud_init or has_hotplug, has_hotplug and _is_hotplug_on(place)),
        net_utils: (_has_unit(place, "policy-routes@.service"), "," in net_utils or _applies(place, agent_files.NET_UTILS_RULE)),
        agent_files.IFUPDOWN: (
            has_ifupdown or _has(place, "etc/network/cloud-ifupdown-helper"),
            has_ifupdown and not _switches(place, agent_files.IFUPDOWN),
        ),
        "ec2-net-utils": (_has(place, "etc/udev/rules.d/53-ec2-network-interfaces.rules"), True),
    }
    return {name: at_work for name, (is_there, at_work) in states.items() if is_there}


def _has(place: Path, *patterns: str) -> bool:
    return any(True for pattern in patterns for _path in place.glob(pattern))


def _has_unit(place: Path, name: str) -> bool:
    return _has(place, *(f"{folder[1:]}/{name}" for folder in FOLDERS))


def _units(place: Path, units: Units, *names: str) -> tuple[bool, bool]:
    at_work = any(units.is_enabled(name) or units.is_active(name) for name in names)
    return any(_has_unit(place, name) for name in names), at_work


def _udev(name: str) -> list[str]:
    return [f"{folder}/{name}" for folder in _UDEV_FOLDERS]


def _applies(place: Path, name: str) -> bool:
    """Return whether udev has rules of this name. The first file in this order hides the others, so an empty one masks them."""
    paths = (place / path for path in _udev(name))
    return agent_files.has_rules(next((_text(path) for path in paths if path.exists()), ""))


def _is_hotplug_on(place: Path) -> bool:
    texts = [_text(path) for path in (place / agent_files.CLOUD_FILE[1:], *_cloud_files(place))]
    return agent_files.says_hotplug(texts) is not False and not _has(place, _DISABLED)  # on where it was installed


def overruled(root: str = "/") -> set[str]:
    """Return the agents that stay on with a switch, because they read another file after it. For root see read()."""
    place = Path(root)
    later = [_text(path) for path in _cloud_files(place) if path > place / agent_files.HOTPLUG_SWITCH[1:]]
    return {agent_files.HOTPLUG} if agent_files.says_hotplug(later) else set()


def _cloud_files(place: Path) -> list[Path]:
    return sorted(place.glob(f"{agent_files.CLOUD_FOLDER[1:]}/*.cfg"))


def _switches(place: Path, agent: str) -> bool:
    paths = (place / switch.path[1:] for switch in agent_files.SWITCHES if switch.agent == agent)
    return any(agent_files.has_rules(_text(path)) for path in paths)


def _text(path: Path) -> str:
    with contextlib.suppress(OSError):
        return files.text(str(path))
    return ""
