# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Elements of HTML. Text that is not markup already is escaped, so that no text of a node can become an element."""

from __future__ import annotations

import html
import typing as t
from types import MappingProxyType


class Markup(str):
    """HTML, as opposed to text."""

    __slots__ = ()


def element(
    name: str, *content: str, classes: str = "", is_open: bool = False, attributes: t.Mapping[str, str] = MappingProxyType({})
) -> Markup:
    """Return an element with this content. classes, is_open: its attributes ``class`` and ``open``. attributes: further ones."""
    values = {**({"class": classes} if classes else {}), **attributes}
    written = "".join(f' {key}="{html.escape(value)}"' for key, value in values.items()) + " open" * is_open
    return Markup(f"<{name}{written}>{joined(*content)}</{name}>")


def joined(*content: str) -> Markup:
    return Markup("".join(part if isinstance(part, Markup) else html.escape(part) for part in content))
