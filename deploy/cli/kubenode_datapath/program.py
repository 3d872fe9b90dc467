# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program: reads the command line, starts a command, and turns each error into one sentence and an exit status."""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import os
import signal
import sys
import traceback
import typing as t
from pathlib import Path

from ansible_collections.kubenode.datapath.plugins.module_utils._core import version
from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import DatapathError, Invalid, MissingProgram
from ansible_collections.kubenode.datapath.plugins.module_utils._core.printable import printable
from ansible_collections.kubenode.datapath.plugins.module_utils._pastes import commands_script

from . import arguments, cluster, completion, manual, output
from .arguments import AUDIT, COMPLETER, COMPLETION, ERROR, EXPLAIN, MANUAL, PLUGIN, SCRIPT, SNAPSHOT

LISTS = f". {arguments.COMMAND} audit --list prints all checks"
HINTS = {"checks": LISTS, "finding": LISTS, "--explain": LISTS}  # behind an error, by the option
ELSEWHERE = (
    f"Install it, or read the node here by {arguments.COMMAND} snapshot > node.json, and use that file on a machine that has it;"
    " audit --no-prove does without it, and cannot tell what a packet decides"
)


def main(words: t.Sequence[str] | None = None) -> int:
    """Run the program. Returns its exit status."""
    _open_streams()
    is_plugin = os.path.basename(sys.argv[0]).startswith(PLUGIN)
    try:
        return _run(sys.argv[1:] if words is None else words, is_plugin)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT  # as a shell says it
    except Invalid as error:
        return _failed(f"{arguments.sentence(error)}{HINTS.get(error.option.partition('[')[0], '')}")
    except MissingProgram as error:
        return _failed(f"{error}. {ELSEWHERE}")
    except DatapathError as error:
        return _failed(str(error))
    except OSError as error:
        return _failed(f"{error.filename or 'standard output'}: {error.strerror or error}")
    except Exception:
        traceback.print_exc()
        return _failed("this is an error of the program. Report it with the lines above")


def _open_streams() -> None:
    """Open the standard streams that are closed, for which Python has None."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - until the program ends


def _failed(sentence: str) -> int:
    with contextlib.suppress(OSError):  # the status tells it, where standard error is full
        print(f"kubenode-datapath: {printable(sentence)}", file=sys.stderr, flush=True)
    return ERROR


def _run(words: t.Sequence[str], is_plugin: bool) -> int:
    parser = arguments.parser(is_plugin, version.COLLECTION)
    if os.path.basename(sys.argv[0]).startswith(COMPLETER):
        return _complete(arguments.parser(True, version.COLLECTION), words)
    if [*words] == [MANUAL]:
        output.show(manual.page(parser, version.COLLECTION))
        return 0
    options = arguments.parsed(parser, arguments.completed(words) if is_plugin else words)
    if options.command == COMPLETION:
        output.show(completion.script(options.shell, parser, arguments.COMMAND))
        return 0
    if options.command == SCRIPT:
        output.show(commands_script.script())
        return 0
    if options.command == SNAPSHOT:
        return _snapshot(options, is_plugin)
    _refuse_other_systems()
    assume = arguments.assumptions(parser, options.assume)
    if options.command == AUDIT:
        from . import audit

        return audit.run(options, assume, is_plugin)
    if options.command == EXPLAIN:
        from . import explain

        return explain.run(options, assume)
    from . import trace

    return trace.run(options, assume, is_plugin)


def _complete(parser: arguments.Parser, words: t.Sequence[str]) -> int:
    """Print what completes a command line of the plugin, as kubectl asks for it, which passes the words behind the plugin's."""
    nodes = functools.partial(cluster.node_names, words)
    output.show("\n".join([*completion.candidates(parser, words, nodes), completion.NO_FILES, ""]))
    return 0


def _refuse_other_systems() -> None:
    if sys.platform != "linux":
        raise DatapathError(
            f"a node is rebuilt by a kernel of Linux, and this is {sys.platform}. Run it on a Linux machine, in a Linux VM, or on"
            " the node itself"
        )


def _snapshot(options: argparse.Namespace, is_plugin: bool) -> int:
    with output.Progress() as tell:
        tell("reading the node")
        text = json.dumps(cluster.snapshot(options) if is_plugin else _this_node()) + "\n"
    if options.file:
        Path(options.file).write_text(text)
    else:
        output.show(text)
    return 0


def _this_node() -> dict[str, t.Any]:
    _refuse_other_systems()
    from . import sources

    return sources.this_node()
