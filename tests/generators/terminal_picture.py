# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The output of a program as a picture of a terminal, in SVG. It is dark on light and dark pages alike."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator

COLUMNS, FONT, WIDTH, HEIGHT, MARGIN, HEAD = 112, 13, 7.83, 19, 18, 34  # characters, and pixels of a character and a line
STYLES = {"1": "font-weight:bold", "2": "fill:#8b95a5", "31": "fill:#ff8f85", "32": "fill:#7fdca3", "33": "fill:#f0c66d"}
LIGHTS = ("#ff5f57", "#febc2e", "#28c840")

NO_BREAK = "\N{NO-BREAK SPACE}"

Run = tuple[str, str]  # the style of characters, and the characters


def svg(command: str, output: str) -> str:
    """Return a picture of a command and its output, whose colours are those of sections.py."""
    lines = [part for line in [f"$ {command}", *output.rstrip("\n").split("\n")] for part in _wrapped(_runs(line))]
    width, height = 2 * MARGIN + COLUMNS * WIDTH, HEAD + MARGIN + len(lines) * HEIGHT
    lights = (f'<circle cx="{MARGIN + 4 + 20 * at}" cy="18" r="6" fill="{colour}"/>' for at, colour in enumerate(LIGHTS))
    texts = (_text(line, HEAD + (number + 1) * HEIGHT - 4) for number, line in enumerate(lines))
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" width="{width:.0f}" height="{height}">',
            f"<title>{html.escape(command)}</title>",
            f'<rect width="100%" height="100%" rx="8" fill="#15181e"/>{"".join(lights)}',
            f'<g font-family="DejaVu Sans Mono,Menlo,Consolas,monospace" font-size="{FONT}" fill="#d7dce3">',
            *filter(None, texts),
            "</g>\n</svg>\n",
        ]
    )


def _runs(line: str) -> list[Run]:
    """Split a line at its colours."""
    plain, *rest = re.split(r"\x1b\[(\d+)m(.*?)\x1b\[0m", line)  # text, a colour, what has it, text, ...
    runs = [("", plain)]
    for colour, coloured, after in zip(rest[::3], rest[1::3], rest[2::3], strict=True):
        runs += [(STYLES[colour], coloured), ("", after)]
    return [(style, text) for style, text in runs if text]


def _wrapped(runs: list[Run]) -> Iterator[list[Run]]:
    """Yield the lines that a line takes; the further ones are indented as the first one."""
    text = "".join(characters for _style, characters in runs)
    styles = [style for style, characters in runs for _character in characters]
    indent = len(text) - len(text.lstrip(" "))
    indent += 9 if re.match(r" {2}(Evidence|Packet|Remedy|Source) ", text) else 0  # below the value of a label
    start = 0
    while len(text) - start > COLUMNS - (indent if start else 0):
        limit = start + COLUMNS - (indent if start else 0)
        cut = text.rfind(" ", start + 1, limit + 1)
        end = cut if cut > start + indent else limit
        yield _line(text, styles, start, end, indent)
        start = end + (text[end] == " ")
    yield _line(text, styles, start, len(text), indent)


def _line(text: str, styles: list[str], start: int, end: int, indent: int) -> list[Run]:
    runs: list[Run] = [("", " " * indent)] if start else []
    for style, character in zip(styles[start:end], text[start:end], strict=True):
        if runs and runs[-1][0] == style:
            runs[-1] = (style, runs[-1][1] + character)
        else:
            runs.append((style, character))
    return runs


def _text(runs: list[Run], y: int) -> str:
    """Return a line at its height. Each run has its place and length, so that any font keeps the columns."""
    parts, column = [], 0
    for style, text in runs:
        words = text.lstrip(" ")
        at = MARGIN + (column + len(text) - len(words)) * WIDTH
        length = len(words.rstrip(" ")) * WIDTH
        attributes = f' style="{style}"' * bool(style)
        if words.strip():
            shown = html.escape(words.rstrip(" "), quote=False).replace(" ", NO_BREAK)  # SVG joins blanks
            parts.append(f'<text x="{at:.1f}" y="{y}" textLength="{length:.1f}"{attributes}>{shown}</text>')
        column += len(text)
    return "".join(parts)
