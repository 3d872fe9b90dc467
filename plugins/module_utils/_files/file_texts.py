# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Files and links as a diff shows them."""

from __future__ import annotations

import hashlib

from . import files


def shown(path: str, before: files.State | None, after: files.State | None) -> tuple[str, str]:
    """Return the two states for the diff, with a line about mode and owner if these differ."""
    contents = [state for state in (before, after) if isinstance(state, files.Content)]
    has_moved = len({(state.mode, state.owner) for state in contents}) == 2
    first, second = ((_rights(path, state) if has_moved else "") + _readable(path, state) for state in (before, after))
    return first, second


def _rights(path: str, state: files.State | None) -> str:
    if not isinstance(state, files.Content):
        return ""
    return f"# {path}: mode {state.mode:04o}, owner {state.owner[0]}:{state.owner[1]}\n"


def _readable(path: str, state: files.State | None) -> str:
    """Return a link's target, a file's text, or size and hash of a file that is not readable text, such as a program."""
    if isinstance(state, files.Target):
        return f"# {path} -> {state.path}\n"
    if not isinstance(state, files.Content):
        return ""
    if state.text.isascii() and "\0" not in state.text:
        return state.text
    raw = state.text.encode("utf-8", "surrogateescape")
    return f"# {path}: {len(raw)} bytes, SHA-256 {hashlib.sha256(raw).hexdigest()}\n"
