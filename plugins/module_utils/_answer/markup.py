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


def section(title: str, *content: str) -> Markup:
    """Return a section with its heading; nothing without content."""
    return element("section", element("h2", title), *content) if any(content) else Markup()


def document(title: str, style: str, *content: str, policy: str = "") -> str:
    """Return a page that loads nothing. content: of its body. policy: what its Content-Security-Policy permits beside styles."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f"<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'{policy}\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n<meta name="color-scheme" content="light dark">\n'
        f"{element('title', title)}\n<style>{style}</style>\n</head>\n{element('body', *content)}\n</html>\n"
    )
