# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Files among the outputs that set something at the next boot, each under the command ``cat PATH``.

Their lines look like the output of sysctl, and say nothing about the current settings.
"""

from __future__ import annotations

import typing as t

from .._snapshot import settings
from .._snapshot.snapshot import Unread
from .commands import UNKNOWN, Part

SUBSET, COMMAND = "boot", "cat "


def path(name: str) -> str:
    """Return the path of the file that an output is; empty for another output. name: of the output."""
    words = name.strip()
    place = words[len(COMMAND) :].strip()
    return place if words.startswith(COMMAND) and settings.boot_part(place) else ""


def files(dump: t.Mapping[str, str]) -> dict[str, str]:
    """Return the texts of the files by their paths on the node. dump: texts by the names of the outputs."""
    return {place: text for name, text in dump.items() if (place := path(name))}


def subset(texts: settings.Files) -> dict[str, t.Any] | None:
    """Return the subset of the snapshot; None without any file. A part of which there is no file is None."""
    parts = {settings.boot_part(place) for place in texts}
    return {name: value if name in parts else None for name, value in settings.boot(texts, texts).items()} if parts else None


def unread(texts: settings.Files) -> list[dict[str, t.Any]]:
    """Return what the subset lacks, if there is a file at all: folders without a file, and files that are not whole."""
    filled = {place.rpartition("/")[0] for place in texts}
    empty = ", ".join(folder for folders in settings.BOOT_FOLDERS.values() for folder in folders if folder not in filled)
    lacking = [Unread(SUBSET, empty, "The dump has no file of these folders. The node may have some.")] if texts and empty else []
    cut = [place for place, text in texts.items() if not Part(UNKNOWN, tuple(text.splitlines())).has_all_lines]
    lacking += [Unread(SUBSET, place, "The dump does not have the whole file.") for place in cut]
    return [entry._asdict() for entry in lacking]
