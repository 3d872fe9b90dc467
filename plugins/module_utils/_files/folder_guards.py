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


class RootsFolders:
    """Refuses to write files where a user other than root could replace them, as ssh refuses such keys.

    A folder of the collection must not be a symbolic link either, because the link's target may be a folder from which other
    programs load files. paths: of the files.
    """

    def __init__(self, *paths: str) -> None:
        self._paths = paths

    def inspect(self) -> t.Iterable[str]:
        for path in self._paths:
            _require_no_link(path)
            for folder in folders.on_the_way(path):
                if exposure := folders.exposure(folder):
                    raise Refusal(
                        f"{path} may not be written: {folder} {exposure}, so that a user other than root could replace the file,"
                        " which root loads. Nothing was changed. Examine the files in it, then run: chown root:root"
                        f" {folder} && chmod go-w {folder}"
                    )
        return ()


def _require_no_link(path: str) -> None:
    own, folder = names.own_folder(path), os.path.dirname(path)
    place = os.path.dirname(own)
    if own and os.path.realpath(folder) != os.path.realpath(place) + folder[len(place) :]:
        raise Refusal(
            f"{path} may not be written: a symbolic link leads from {own} to {os.path.realpath(folder)}; a folder is expected."
            f" Nothing was changed. Replace the link by a folder, or mount the target there"
        )
