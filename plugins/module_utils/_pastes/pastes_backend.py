# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Reads pasted outputs from a folder."""

from __future__ import annotations

import os
import typing as t

from .._core.errors import Invalid
from .._files import files


def texts(given: t.Any) -> dict[str, str]:
    """The texts of the option ``dump`` by name. Raises Invalid."""
    if isinstance(given, dict):
        return {str(name): str(text) for name, text in given.items()}
    if not isinstance(given, str):
        raise Invalid("dump", given, "a folder, or a dictionary of texts by command")
    try:
        names = sorted(os.listdir(given))
        paths = {
            name: os.path.join(given, name)
            for name in names
            if name.endswith((".txt", ".log", ".json", ".out")) or "." not in name
        }
        return {name: files.text(path) for name, path in paths.items() if os.path.isfile(path)}
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid("dump", given, f"a folder with text files that can be read ({error})") from None
