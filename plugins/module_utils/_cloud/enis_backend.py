# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reads a node's elastic network interfaces from the metadata service, and finds the link of each one in /sys/class/net."""

from __future__ import annotations

import math
import os
import typing as t
from pathlib import Path

from . import imds_backend, metadata
from .metadata import Link


def links(root: str = "/") -> tuple[Link, ...]:
    """Return all links of the network namespace that /sys was mounted in, sorted by name."""
    folder = Path(root, "sys/class/net")
    entries = sorted(folder.iterdir()) if folder.is_dir() else []
    return tuple(link for entry in entries for link in _link(entry))


def _link(entry: Path) -> t.Iterator[Link]:
    """Yield nothing for ``bonding_masters``, which is not a link, and for a link that disappears during the call."""
    try:
        mac = (entry / "address").read_text().strip().lower()
        index = int((entry / "ifindex").read_text())
        lowers = tuple(sorted(name[len("lower_") :] for name in os.listdir(entry) if name.startswith("lower_")))
    except OSError:
        return
    yield Link(entry.name, mac, _target(entry / "master"), _target(entry / "device/driver"), lowers, index)


def _target(link: Path) -> str | None:
    """Return the base name of a symbolic link's target; None if the symbolic link does not exist."""
    try:
        return os.path.basename(os.readlink(link))
    except OSError:
        return None


def read(
    cloud: str = "auto",
    endpoint: str | None = None,
    timeout: float = imds_backend.TIMEOUT,
    *,
    retries: float = imds_backend.RETRIES,
    deadline: float = math.inf,
) -> tuple[str, list[dict[str, t.Any]]]:
    """Return the cloud that answered, and the interfaces as imds_info returns them. Raises NoMetadata.

    timeout, retries, deadline: see imds_backend.with_retries().
    """
    asking = imds_backend.asking(imds_backend.interfaces, cloud, endpoint)
    answering, nics = imds_backend.with_retries(asking, timeout, retries=retries, deadline=deadline)
    node = links()
    return answering, [metadata.interface(nic, node) for nic in nics]
