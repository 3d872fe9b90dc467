# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Elements of HTML, and the frame of a page. Text that is not markup already is escaped, so that no text of a node can become an
element."""

from __future__ import annotations

import html
import typing as t
from types import MappingProxyType

from .stylesheet import CSS


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


def filled(name: str, *content: str, classes: str = "") -> Markup:
    """Return an element; nothing without content."""
    return element(name, *content, classes=classes) if any(content) else Markup()


def section(title: str, *content: str) -> Markup:
    """Return a section with its heading; nothing without content."""
    return element("section", element("h2", title), *content) if any(content) else Markup()


def tag(text: str, tone: str) -> Markup:
    return element("span", text, classes=f"tag {tone}")


def folded(
    summary: t.Iterable[str],
    *content: str,
    classes: str = "card",
    is_open: bool = False,
    attributes: t.Mapping[str, str] = MappingProxyType({}),
) -> Markup:
    """Return content that a click on its summary shows."""
    return element("details", element("summary", *summary), *content, classes=classes, is_open=is_open, attributes=attributes)


def headline(title: str, tone: str, *content: str) -> Markup:
    """Return the box at the head of a page."""
    return element("div", element("h1", title), *content, classes=f"answer {tone}")


def document(title: str, header: t.Iterable[str], main: t.Iterable[str], style: str = "", script: str = "") -> str:
    """Return a page that loads nothing. style: beside that of all pages. script: without it, the page runs nothing."""
    policy = "default-src 'none'; style-src 'unsafe-inline'" + "; script-src 'unsafe-inline'" * bool(script)
    content = [element("header", *header), element("main", *main), Markup(f"<script>{script}</script>" if script else "")]
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n<meta name="color-scheme" content="light dark">\n'
        f"{element('title', title)}\n<style>{CSS}{style}</style>\n</head>\n{element('body', *content)}\n</html>\n"
    )
