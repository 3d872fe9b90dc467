# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The manual page, as man(7) has it, made of the parser. packing.py puts it into the wheel."""

from __future__ import annotations

import argparse
import re
import typing as t

from .arguments import ABOUT, AUDIT, COMMAND, commands_of

SUMMARY = "say what is wrong with a Kubernetes node's packet path"
_REQUESTS = re.compile(r"^(?=[.'])", re.MULTILINE)  # what roff takes for a request, at the beginning of a line


def page(parser: argparse.ArgumentParser, version: str) -> str:
    """Return the page: the program, and below it each command with its arguments and options."""
    return "\n".join([f'.TH {COMMAND.upper()} 1 "" "{COMMAND} {version}"', *_sections(parser), ""])


def _sections(parser: argparse.ArgumentParser) -> t.Iterator[str]:
    yield from (".SH NAME", f"{_escaped(COMMAND)} \\- {_escaped(SUMMARY)}")
    yield from (".SH SYNOPSIS", f".B {_escaped(COMMAND)}", r"\fICOMMAND\fR [\fIOPTION\fR]... [\fIARGUMENT\fR]...")
    yield from (".SH DESCRIPTION", _escaped(ABOUT), *_epilog(parser), ".SH COMMANDS")
    for name, command in commands_of(parser).items():
        yield from (f".SS {_escaped(name)}", _escaped(command.description or ""))
        for action in command._actions:
            words = ", ".join(action.option_strings) or str(action.metavar or action.dest)
            value = f" {action.metavar}" if action.option_strings and action.metavar else ""
            yield from (".TP", rf"\fB{_escaped(words)}\fR{_escaped(value)}", _escaped((action.help or "").replace("%%", "%")))
        yield from _epilog(command)
    yield from (".SH ENVIRONMENT", "NO_COLOR, FORCE_COLOR: as", rf"\fB{_escaped('--color')}\fR never and always.")
    yield from (".SH SEE ALSO", rf"\fB{_escaped(f'{COMMAND} {AUDIT} --list')}\fR, https://github.com/kubenode/datapath")


def _epilog(parser: argparse.ArgumentParser) -> t.Iterator[str]:
    """Yield the examples as they are, and what stands below them as a paragraph."""
    examples, _line, further = (parser.epilog or "").partition("\n\n")
    yield from (".PP", "Examples:", ".nf", *(_escaped(line) for line in examples.splitlines()[1:]), ".fi")
    yield from (".PP", _escaped(further)) if further else ()


def _escaped(text: str) -> str:
    return _REQUESTS.sub(r"\\&", text.replace("\\", r"\e").replace("-", r"\-"))
