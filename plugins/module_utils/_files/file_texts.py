# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Files and links as a diff shows them."""

from __future__ import annotations

import hashlib

from . import files


def shown(path: str, before: files.Found | None, after: files.Found | None) -> tuple[str, str]:
    """The two states for the diff, with a line about mode and owner if these differ."""
    contents = [one for one in (before, after) if isinstance(one, files.Content)]
    has_moved = len({(one.mode, one.owner) for one in contents}) == 2
    first, second = ((_rights(path, one) if has_moved else "") + _readable(path, one) for one in (before, after))
    return first, second


def _rights(path: str, found: files.Found | None) -> str:
    if not isinstance(found, files.Content):
        return ""
    return f"# {path}: mode {found.mode:04o}, owner {found.owner[0]}:{found.owner[1]}\n"


def _readable(path: str, found: files.Found | None) -> str:
    """A link's target, a file's text, or size and hash of a file that is not readable text, such as a program."""
    if isinstance(found, files.Target):
        return f"# {path} -> {found.path}\n"
    if not isinstance(found, files.Content):
        return ""
    if found.text.isascii() and "\0" not in found.text:
        return found.text
    raw = found.text.encode("utf-8", "surrogateescape")
    return f"# {path}: {len(raw)} bytes, SHA-256 {hashlib.sha256(raw).hexdigest()}\n"
