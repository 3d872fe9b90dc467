# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This plugin util is private to the collection: it may change at any time.

"""A trace as text for a terminal and as a page, by the templates beside this file."""

from __future__ import annotations

import functools
import typing as t
from pathlib import Path

import jinja2

from . import drawing
from .result import ARRIVED, LOST, Trace

GREEN, RED, YELLOW, BOLD = "32", "31", "33", "1"  # of ECMA-48, Select Graphic Rendition


def text(trace: Trace, colors: bool = False) -> str:
    environment = _environment()
    environment.filters["paint"] = functools.partial(_paint, colors)
    environment.filters["verdict"] = lambda told, verdict: _paint(colors, told, _COLORS[_quality(verdict)])
    return environment.get_template("trace.txt.j2").render(trace=trace, RED=RED, BOLD=BOLD)


def html(trace: Trace) -> str:
    environment = _environment(autoescape=True)
    environment.filters["quality"] = _quality
    environment.filters["drawing"] = drawing.draw
    return environment.get_template("trace.html.j2").render(trace=trace, column=drawing.COLUMN)


_COLORS = {"good": GREEN, "bad": RED, "open": YELLOW}


def _quality(verdict: str) -> str:
    return "good" if verdict in ARRIVED else "bad" if verdict in LOST else "open"


def _paint(colors: bool, told: object, color: str) -> str:
    return f"\x1b[{color}m{told}\x1b[0m" if colors and told else str(told)


def _environment(**settings: t.Any) -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        **settings,
    )
