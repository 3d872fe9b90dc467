# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Reads pasted outputs from a folder."""

from __future__ import annotations

import contextlib
import json
import os
import typing as t

from .._core.errors import Invalid
from .._files import files
from .pastes import LARGEST

EXPECTED = "a folder, a dictionary of texts by command, or a text with commands and their outputs"


NAME = "report"  # of a text whose name tells nothing


def texts(given: t.Any) -> dict[str, str]:
    """The texts of the option ``dump`` by name. Raises Invalid."""
    if isinstance(given, str) and given.lstrip()[:1] == "{":
        with contextlib.suppress(ValueError):  # as templates and options on a command line give a dictionary
            given = json.loads(given, strict=False)
    if isinstance(given, dict):
        return {str(name): _text(f"dump.{name}", text) for name, text in given.items()}
    if not isinstance(given, str) or not given.strip():
        raise Invalid("dump", given, EXPECTED)
    if "\n" in given:
        return {NAME: given}
    try:
        names = sorted(os.listdir(given))
        paths = {
            name: os.path.join(given, name)
            for name in names
            if name.endswith((".txt", ".log", ".json", ".out", ".old", ".new")) or "." not in name
        }
        return {name: _read(path, os.path.realpath(given)) for name, path in paths.items() if os.path.isfile(path)}
    except OSError as error:
        raise Invalid("dump", given, f"a folder with text files that can be read ({error})") from None


def _text(option: str, given: t.Any) -> str:
    """A text, or its lines."""
    if isinstance(given, (list, tuple)) and all(isinstance(line, str) for line in given):
        return "\n".join(given)
    if given is not None and not isinstance(given, str):
        raise Invalid(option, given, "the output of a command: a text or a list of its lines")
    return given or ""


def _read(path: str, folder: str) -> str:
    """The text of a file. What is no UTF-8 in it is replaced. Raises Invalid, OSError.

    A link of a report must not show a file of this machine.
    """
    if os.path.commonpath([os.path.realpath(path), folder]) != folder:
        raise Invalid("dump", path, "a folder with files, and not with links to files outside of it")
    if os.path.getsize(path) > LARGEST:
        raise Invalid("dump", path, f"a folder with files of at most {LARGEST} bytes")
    return files.text(path)
