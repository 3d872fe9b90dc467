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

_NETPLAN_FILES = ("etc/netplan/*.yaml", "run/netplan/*.yaml", "lib/netplan/*.yaml", "usr/lib/netplan/*.yaml")
# Rules of udev: of amazon-ec2-net-utils (udev/), of cloud-init (config/cc_install_hotplug.py) now and formerly, and of Debian's
# images for clouds.
_OF_NET_UTILS = "99-vpc-policy-routes.rules"
_OF_CLOUD_INIT = ("90-cloud-init-hook-hotplug.rules", "10-cloud-init-hook-hotplug.rules")
_OF_IFUPDOWN_HELPER = "75-cloud-ifupdown.rules"
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
    cloud_init = "cloud-init"
    if "routing-policy:" in _text(place / "etc/netplan/50-cloud-init.yaml"):
        cloud_init = "cloud-init, with rules"
    states = {
        "NetworkManager": _units(place, units, "NetworkManager.service"),
        "nm-cloud-setup": _units(place, units, "nm-cloud-setup.timer", "nm-cloud-setup.service"),
        "netplan": (_has(place, "usr/sbin/netplan", "usr/bin/netplan"), _has(place, *_NETPLAN_FILES)),
        cloud_init: (_has(place, "usr/bin/cloud-init"), not _has(place, "etc/cloud/cloud-init.disabled")),
        "cloud-init hotplug": (_has(place, "usr/bin/cloud-init"), any(_winning(place, rule) for rule in _OF_CLOUD_INIT)),
        "cloud-ifupdown-helper": (_has(place, "etc/network/cloud-ifupdown-helper"), bool(_winning(place, _OF_IFUPDOWN_HELPER))),
        "amazon-ec2-net-utils": (_has_unit(place, "policy-routes@.service"), bool(_winning(place, _OF_NET_UTILS))),
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


def _winning(place: Path, rule: str) -> str:
    """Return the text of a udev rule. The first file in this order hides the others, so an empty one masks them (udev(7))."""
    paths = (place / folder / rule for folder in _UDEV_FOLDERS)
    return next((_text(path).strip() for path in paths if path.exists()), "")


def _text(path: Path) -> str:
    with contextlib.suppress(OSError):
        return files.text(str(path))
    return ""
