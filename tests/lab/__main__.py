# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``python -m lab COMMAND FOLDER ...``: build a lab that keeps running, send it commands, end it. Answers are JSON."""

from __future__ import annotations

import argparse
import inspect
import json
import sys
from pathlib import Path

from lab import daemon
from lab.commands import COMMANDS
from lab.entering import LabError


def main() -> None:
    arguments = _parser().parse_args()
    folder = arguments.folder.absolute()
    try:
        if arguments.command == "up":
            declaration = arguments.declaration
            daemon.start(folder, declaration if declaration == daemon.CLUSTER else declaration.absolute(), arguments.idle)
        elif arguments.command == "down":
            daemon.stop(folder)
        else:
            words = [getattr(arguments, name) for name in _words(arguments.command)]
            print(json.dumps(daemon.ask(folder, [arguments.command, *words]), indent=2, sort_keys=True))
    except LabError as error:
        sys.exit(f"lab: {error}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m lab", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    texts = {"up": "build a lab and keep it", "down": "end it; there need not be one"}
    texts |= {name: command.__doc__ or "" for name, command in COMMANDS.items()}
    for name, text in texts.items():
        command = commands.add_parser(name, help=text, description=text)
        command.add_argument("folder", type=Path, help="where the lab keeps its inventory.json and its socket")
        for word in _words(name):
            command.add_argument(word)
        if name == "up":
            command.add_argument(
                "declaration",
                type=Path,
                help="JSON, with the arguments of Lab and of Node, or of EniLab and of Eni; or the word cluster, for a Kubernetes"
                " cluster of two nodes, which has a kubectl in its folder",
            )
            idle = "seconds after which a lab without requests ends (%(default)s)"
            command.add_argument("--idle", type=float, default=daemon.IDLE_LIMIT, help=idle)
    return parser


def _words(command: str) -> list[str]:
    return list(inspect.signature(COMMANDS[command]).parameters)[1:] if command in COMMANDS else []


if __name__ == "__main__":
    main()
