# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""The folders on the way to a file, and whether a user other than root could replace the file through one of them."""

from __future__ import annotations

import os
import stat
import typing as t

MOST_LINKS = 40  # of a path that the kernel resolves (path_resolution(7))


def on_the_way(path: str) -> t.Iterator[str]:
    """Yield each folder that the kernel searches to reach an absolute path, those of symbolic links on the way included."""
    ahead, folder, links = path.split("/")[::-1], "/", 0
    while ahead and links <= MOST_LINKS:
        name = ahead.pop()
        if name in ("", ".", ".."):
            folder = os.path.dirname(folder) if name == ".." else folder
            continue
        yield folder
        try:
            target = os.readlink(os.path.join(folder, name))
        except OSError:  # no link, or missing
            folder = os.path.join(folder, name)
        else:
            links += 1
            ahead += target.split("/")[::-1]
            folder = "/" if target.startswith("/") else folder


def exposure(folder: str, trusts_groups: bool = False) -> str:
    """Return how a user other than root can replace files in a folder, such as "has mode 0777"; empty if none can.

    A sticky folder prevents it. A missing folder is not exposed, because root makes it. trusts_groups: whether the members of any
    group that may write are as good as root; else only those of root's group are.
    """
    try:
        status = os.stat(folder)
    except (FileNotFoundError, NotADirectoryError):
        return ""
    if status.st_uid != 0:
        return f"belongs to user {status.st_uid}"
    writers = stat.S_IWOTH if trusts_groups or status.st_gid == 0 else stat.S_IWOTH | stat.S_IWGRP
    if status.st_mode & writers and not status.st_mode & stat.S_ISVTX:
        return f"has mode {stat.S_IMODE(status.st_mode):04o} and belongs to group {status.st_gid}"
    return ""
