# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The completion of bash, zsh and fish, and of kubectl for its plugin, made of the parser."""

from __future__ import annotations

import argparse
import typing as t

from ansible_collections.kubenode.datapath.plugins.module_utils._audit import catalogue

from .arguments import SEVERITIES, commands_of

IDS = tuple(check.id for check in catalogue.CHECKS)
# Values of options that are no choices of the parser, as an option may take more, such as the subject of a finding.
VALUES = {"--check": (*SEVERITIES, *IDS), "--explain": IDS, "--finding": IDS}
NO_FILES = ":4"  # ShellCompDirectiveNoFileComp of cobra, by which kubectl completes
_BASH = """\
{function}() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} words command=${{COMP_WORDS[1]}} previous=${{COMP_WORDS[COMP_CWORD-1]}}
    ((COMP_CWORD > 1)) || command=
    case $command:$word in
{cases}
    esac
    case $command:$previous in
{values}
    esac
    COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F {function} {name}
"""
_ZSH = "autoload -U +X bashcompinit && bashcompinit\n"  # by which zsh evaluates the completion of bash


class _Word(t.NamedTuple):
    """A word that is completed. takes: what follows an option; empty for nothing. is_file: whether that is a file. values: that
    an option may have.
    """

    text: str
    help: str
    takes: str = ""
    is_file: bool = False
    values: tuple[str, ...] = ()


class _Command(t.NamedTuple):
    """name: empty for the program itself. words: choices of its arguments. takes_files, takes_node: whether an argument may be a
    file, and is a node of a cluster.
    """

    name: str
    options: list[_Word]
    words: list[_Word]
    takes_files: bool
    takes_node: bool = False


def script(shell: str, parser: argparse.ArgumentParser, name: str) -> str:
    """Return the completion for a shell. name: of the program, as it is typed."""
    commands = list(_commands(parser))
    if shell == "fish":
        return "".join(f"{line}\n" for command in commands for line in _fish(name, command))
    return (_ZSH if shell == "zsh" else "") + _bash(name, commands)


def candidates(parser: argparse.ArgumentParser, words: t.Sequence[str], nodes: t.Callable[[], t.Iterable[str]]) -> list[str]:
    """Return what completes the last word of a command line, as kubectl asks a plugin. nodes: reads their names."""
    *before, word = words or [""]
    command = next((each for each in _commands(parser) if each.name == (before[0] if before else "")), None)
    if command is None:
        return []
    value = next((option for option in command.options if before and option.text == before[-1] and option.takes), None)
    if value:
        every: t.Iterable[str] = value.values
    elif word.startswith("-"):
        every = [option.text for option in command.options]
    else:
        every = [each.text for each in command.words] or (nodes() if command.takes_node and len(before) == 1 else ())
    return [text for text in every if text.startswith(word)]


def _commands(parser: argparse.ArgumentParser) -> t.Iterator[_Command]:
    (commands,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    yield _Command("", _options(parser), [_Word(each.dest, each.help or "") for each in commands._choices_actions], False)
    for name, command in commands_of(parser).items():
        arguments = [action for action in command._actions if not action.option_strings]
        choices = [_Word(str(choice), "") for action in arguments for choice in action.choices or ()]
        places = {action.dest for action in arguments}
        yield _Command(name, _options(command), choices, not places.isdisjoint(("evidence", "before")), "node" in places)


def _options(parser: argparse.ArgumentParser) -> list[_Word]:
    return [
        _Word(text, action.help or "", str(action.metavar or ""), action.metavar in ("FILE", "KUBECONFIG"), _values(action))
        for action in parser._actions
        for text in action.option_strings
    ]


def _values(action: argparse.Action) -> tuple[str, ...]:
    values = next((VALUES[text] for text in action.option_strings if text in VALUES), ())
    return values or tuple(map(str, action.choices or ()))


def _bash(name: str, commands: t.Sequence[_Command]) -> str:
    cases = "\n".join(
        f"        {command.name}:{pattern}) words='{' '.join(word.text for word in words)}' ;;"
        for command in commands
        for pattern, words in (("-*", command.options), ("*", command.words))
    )
    values = "\n".join(
        f"        {command.name}:{option.text}) words='{' '.join(option.values)}' ;;"
        for command in commands
        for option in command.options
        if option.takes
    )
    return _BASH.format(name=name, function=f"_{name.replace('-', '_')}", cases=cases, values=values)


def _fish(name: str, command: _Command) -> t.Iterator[str]:
    condition = f"'__fish_seen_subcommand_from {command.name}'" if command.name else "__fish_use_subcommand"
    start = f"complete -c {name} -n {condition}"
    if not command.takes_files:
        yield f"{start} -f"
    for word in (*command.options, *command.words):
        takes = " -r" + ("F" if word.is_file else "f") if word.takes else ""
        help = word.help.replace("'", "\\'")
        values = f" -a '{' '.join(word.values)}'" if word.values else ""
        yield f"{start} {_fish_word(word.text)}{takes}{values} -d '{help}'"


def _fish_word(text: str) -> str:
    if text.startswith("--"):
        return f"-l {text[2:]}"
    return f"-s {text[1:]}" if text.startswith("-") else f"-a {text}"
