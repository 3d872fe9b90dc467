# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""A guard for the folders of files that root's boot loads."""

from __future__ import annotations

import os
import typing as t

from .._core import names
from .._core.errors import Refusal
from . import folders
from .files import Files


def roots_folders(*paths: str) -> t.Iterable[str]:
    """Refuse to write files where a user other than root could replace them, as ssh refuses such keys.

    A folder of the collection must not be a symbolic link, because the link's target may be a folder from which other programs
    load files. A folder of another name must not have existed before the collection made it, for the same reason. paths: of the
    files.
    """
    for path in paths:
        _require_no_link(path)
        _require_own(path)
        for folder in folders.on_the_way(path):
            if exposure := folders.exposure(folder):
                raise Refusal(
                    f"{path} may not be written: {folder} {exposure}, so that a user other than root could replace the file,"
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
            f" the files in it. Nothing was changed. Name a folder that does not exist, or {_named(folder)}"
        )


def _named(folder: str) -> str:
    """Return a folder of the collection in the same place."""
    place, name = os.path.split(folder)
    return f"{place}/kubenode-{name}"
