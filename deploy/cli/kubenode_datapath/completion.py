# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The completion of bash, zsh and fish, made of the parser."""

from __future__ import annotations

import argparse
import typing as t

_BASH = """\
{function}() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} words command=${{COMP_WORDS[1]}}
    ((COMP_CWORD > 1)) || command=
    case $command:$word in
{cases}
    esac
    COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F {function} {name}
"""
_ZSH = "autoload -U +X bashcompinit && bashcompinit\n"  # by which zsh evaluates the completion of bash


class _Word(t.NamedTuple):
    """A word that is completed. takes: what follows an option; empty for nothing. is_file: whether that is a file."""

    text: str
    help: str
    takes: str = ""
    is_file: bool = False


class _Command(t.NamedTuple):
    """name: empty for the program itself. words: choices of its arguments. takes_files: whether an argument may be a file."""

    name: str
    options: list[_Word]
    words: list[_Word]
    takes_files: bool


def script(shell: str, parser: argparse.ArgumentParser, name: str) -> str:
    """Return the completion for a shell. name: of the program, as it is typed."""
    commands = list(_commands(parser))
    if shell == "fish":
        return "".join(f"{line}\n" for command in commands for line in _fish(name, command))
    return (_ZSH if shell == "zsh" else "") + _bash(name, commands)


def _commands(parser: argparse.ArgumentParser) -> t.Iterator[_Command]:
    (commands,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    yield _Command("", _options(parser), [_Word(each.dest, each.help or "") for each in commands._choices_actions], False)
    for name, command in commands.choices.items():
        arguments = [action for action in command._actions if not action.option_strings]
        choices = [_Word(str(choice), "") for action in arguments for choice in action.choices or ()]
        yield _Command(name, _options(command), choices, any(action.dest == "evidence" for action in arguments))


def _options(parser: argparse.ArgumentParser) -> list[_Word]:
    return [
        _Word(text, action.help or "", str(action.metavar or ""), action.metavar in ("FILE", "KUBECONFIG"))
        for action in parser._actions
        for text in action.option_strings
    ]


def _bash(name: str, commands: t.Iterable[_Command]) -> str:
    cases = "\n".join(
        f"        {command.name}:{pattern}) words='{' '.join(word.text for word in words)}' ;;"
        for command in commands
        for pattern, words in (("-*", command.options), ("*", command.words))
    )
    return _BASH.format(name=name, function=f"_{name.replace('-', '_')}", cases=cases)


def _fish(name: str, command: _Command) -> t.Iterator[str]:
    condition = f"'__fish_seen_subcommand_from {command.name}'" if command.name else "__fish_use_subcommand"
    start = f"complete -c {name} -n {condition}"
    if not command.takes_files:
        yield f"{start} -f"
    for word in (*command.options, *command.words):
        takes = " -r" + ("F" if word.is_file else "f") if word.takes else ""
        help = word.help.replace("'", "\\'")
        yield f"{start} {_fish_word(word.text)}{takes} -d '{help}'"


def _fish_word(text: str) -> str:
    if text.startswith("--"):
        return f"-l {text[2:]}"
    return f"-s {text[1:]}" if text.startswith("-") else f"-a {text}"
