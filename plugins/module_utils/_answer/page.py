# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""An answer as a page of HTML that loads nothing."""

from __future__ import annotations

import html as markup
import typing as t

from . import terminal
from .answer import Data


def html(answer: Data, about: t.Mapping[str, str] | None = None) -> str:
    """Return the answer as a page. about: node, time, versions and source of the evidence. Raises NoTrace."""
    return f"<!DOCTYPE html>\n<pre>{markup.escape(terminal.text(answer))}</pre>\n"
