# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The folders on the way to a file, and a guard for the folders of files that root's boot loads."""

from __future__ import annotations

import os
import stat
import typing as t

from .._core import names
from .._core.errors import Refusal
from .files import Files

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


def roots_folders(*paths: str) -> t.Iterable[str]:
    """Refuse to write files where a user other than root could replace them, as ssh refuses such keys.

    A folder of the collection must not be a symbolic link, because the link's target may be a folder from which other programs
    load files. A folder of another name must not have existed before the collection made it, for the same reason. paths: of the
    files.
    """
    for path in paths:
        _require_no_link(path)
        _require_own(path)
        for folder in on_the_way(path):
            if reason := exposure(folder):
                raise Refusal(
                    f"{path} may not be written: {folder} {reason}, so that a user other than root could replace the file,"
                    " which root loads. Nothing was changed. Examine the files in it, then run: chown root:root"
                    f" {folder} && chmod go-w {folder}"
                )
    return ()


def _require_no_link(path: str) -> None:
    managed, folder = names.own_folder(path) or names.new_folder(path), os.path.dirname(path)
    place = os.path.dirname(managed)
    if managed and os.path.realpath(folder) != os.path.realpath(place) + folder[len(place) :]:
        raise Refusal(
            f"{path} may not be written: a symbolic link leads from {managed} to {os.path.realpath(folder)}; a folder is"
            f" expected. Nothing was changed. Replace the link by a folder, or mount the target there"
        )


def _require_own(path: str) -> None:
    folder, backend = names.new_folder(path), Files()
    if folder and backend.is_folder(folder) and not backend.is_ours(folder):
        raise Refusal(
            f"{path} may not be written: {folder} exists, and this collection did not make it, so that another program may load"
            f" the files in it. Nothing was changed. Name a folder that does not exist, or {_folder_of_the_collection(folder)}"
        )


def _folder_of_the_collection(folder: str) -> str:
    """Return a folder of the collection in the same place."""
    place, name = os.path.split(folder)
    return f"{place}/kubenode-{name}"
