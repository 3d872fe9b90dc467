# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lies: what a node under an attacker's control answers in place of a module's answer. Pure, and without imports of the lab."""

from __future__ import annotations

import json
import re
import typing as t

Answer = dict[str, t.Any]


class Liar(t.NamedTuple):
    """A node that lies.

    name: in the inventory. victim: the name of another node. marker: a file that exists once a program of the lie ran.
    elsewhere: a folder that no run may write.
    """

    name: str
    victim: str
    marker: str
    elsewhere: str

    @property
    def command(self) -> str:
        return f"touch {self.marker}"

    @property
    def template(self) -> str:
        return "{{ lookup('pipe', '%s') }}" % self.command


# Texts that stand for numbers that JSON can write: more than a float holds, and more than sys.set_int_max_str_digits() permits.
NUMBERS = {"@overflow@": "1e999", "@digits@": "1" * 5000}
TYPES: dict[str, t.Any] = {
    "null": None,
    "false": False,
    "number": 7,
    "text": "lie",
    "empty": "",
    "list": [None],
    "dictionary": {"lie": [1]},
    "nan": float("nan"),
    "infinity": float("inf"),
    "overflow": "@overflow@",
    "digits": "@digits@",
}
HUGE = {"text": 5_000_000, "list": 100_000, "nesting": 500}  # characters, entries, levels

# Keys with a meaning for Ansible, or for this collection's actions, callback and playbooks.
HANDLED = (
    *("ansible_facts", "ansible_stats", "add_host", "add_group", "ansible_notify", "results", "ansible_loop_var", "exception"),
    *("warnings", "deprecations", "diff", "invocation", "skipped", "unreachable", "failed", "rc", "msg", "stdout", "stderr"),
    *("attempts", "retries", "failed_when_result", "changed", "censored", "missing_library", "missing_program"),
    *("checkpoint_armed", "summary"),
    *("report", "is_kept_back", "answers", "moment", "connection", "audits", "differences", "profile", "variables", "rehearsed"),
    *("_ansible_delegated_vars", "_ansible_no_log", "_ansible_ignore_errors", "_ansible_item_label", "_ansible_notify"),
)


def added(kind: str, liar: Liar, names: t.Iterable[str]) -> Answer:
    """Return the keys that a lie adds to an answer. names: of variables that playbooks and roles read."""
    command = ["/bin/sh", "-c", liar.command]
    checks = [{"address": "127.0.0.1", "port": 22, "from": liar.victim}]
    facts: dict[str, t.Callable[[str], t.Any]] = {
        "commands": lambda name: checks if name.endswith("checks") else command,
        "hosts": lambda name: checks if name.endswith("checks") else liar.victim,
        "paths": lambda name: f"{liar.elsewhere}/{liar.name}/",
        "templates": lambda name: liar.template,
    }
    if kind in facts:
        return {"ansible_facts": {name: facts[kind](name) for name in names}}
    connection = {
        "ansible_connection": "local",
        "ansible_host": liar.victim,
        "ansible_python_interpreter": f"/bin/sh -c '{liar.command}' #",
        "ansible_shell_executable": f"/bin/sh -c '{liar.command}'",
        "ansible_become": True,
        "ansible_become_exe": liar.command,
        "ansible_remote_tmp": f"{liar.elsewhere}/{liar.name}",
        "ansible_check_mode": True,
        "groups": {"all": [liar.victim]},
        "hostvars": {},
        "inventory_hostname": liar.victim,
        "ansible_play_hosts_all": [liar.victim],
        "ansible_play_hosts": [liar.victim],
        "ansible_delegated_vars": {"localhost": {"ansible_connection": "local"}},
    }
    keys: dict[str, Answer] = {
        "connection": {"ansible_facts": connection},
        "delegation": {"_ansible_delegated_vars": {"ansible_delegated_host": liar.victim, "ansible_host": liar.victim}},
        "statistics": {"ansible_stats": {"data": {"audit": {}, "victim": liar.template}, "per_host": False, "aggregate": False}},
        "broken statistics": {"ansible_stats": {"per_host": True}},
        "host": {"add_host": {"host_name": "added", "groups": ["nodes"], "host_vars": {"ansible_host": "127.0.0.1"}}},
        "host of another": {
            "add_host": {"host_name": liar.victim, "groups": ["lie"], "host_vars": {"lying_node_lie": "no JSON"}}
        },
        "group": {"add_group": "lie", "parent_groups": ["all"]},
        "library": {"failed": True, "msg": "a library is needed", "missing_library": "lying_secret.inner"},
        "package": {"failed": True, "msg": "a library is needed", "missing_library": "lying_secret"},
        "internal": {
            "_ansible_no_log": True,
            "_ansible_parsed": False,
            "_ansible_ignore_errors": True,
            "_ansible_item_label": liar.template,
            "_ansible_verbose_override": True,
            "ansible_loop_var": "inventory_hostname",
            "ansible_notify": [liar.template],
        },
        "loop": {"results": [{"failed": True, "msg": liar.template, "item": None}, 5, None]},
        "kept back": {"is_kept_back": True, "report": [f"{liar.victim}: failed"], "moment": [], "answers": {}, "connection": 5},
        "lines": {"report": 5, "warnings": 5, "deprecations": 5, "diff": 5, "exception": 5, "summary": 5},
    }
    if kind == "everything":
        return {key: value for lie in keys.values() if "missing_library" not in lie for key, value in lie.items()}
    return keys[kind]


FACTS = ("commands", "hosts", "paths", "templates", "connection")
ADDED = (
    *(*FACTS, "delegation", "statistics", "broken statistics", "host", "host of another", "group", "library", "package"),
    *("internal", "loop", "kept back", "lines", "everything"),
)
TEXTS: dict[str, t.Callable[[str, str], str]] = {
    "nothing": lambda honest, template: "",
    "no JSON": lambda honest, template: f"Segmentation fault {template}\n",
    "null": lambda honest, template: "null\n",
    "list": lambda honest, template: f"[{honest}]\n",
    "half": lambda honest, template: honest[: len(honest) // 2],
    "leading text": lambda honest, template: f"Last login: {{never}} {template}\n{honest}\n",
    "two": lambda honest, template: f'{{"changed": true, "msg": "{template}"}}\n{honest}\n',
    "bytes": lambda honest, template: f"\x00\x1b[2J\udcff{honest}\n",
}


def every(paths: int) -> t.Iterator[str]:
    """Yield the names of all lies about answers with so many paths."""
    yield from (f"added: {kind}" for kind in ADDED)
    yield from (f"text: {kind}" for kind in TEXTS)
    yield from ("template: values", "template: keys", "template: tagged")
    yield from (f"huge: {kind} {place}" for kind in HUGE for place in ("new", "all"))
    yield from (f"handled: {key} {kind}" for key in HANDLED for kind in TYPES)
    for number in range(paths):
        yield f"missing: {number}"
        yield from (f"type: {number} {kind}" for kind in TYPES)


def printed(lie: str, honest: Answer, liar: Liar, names: t.Iterable[str]) -> bytes:
    """Return what the node prints in place of an honest answer. lie: of every(); empty for none."""
    kind, _colon, rest = lie.partition(": ")
    word, _space, last = rest.partition(" ")
    if not kind:
        return _json(honest)
    if kind == "added":
        return _json({**honest, **added(rest, liar, names)})
    if kind == "text":
        return TEXTS[rest](_json(honest).decode(), liar.template).encode(errors="surrogateescape")
    if kind == "template":
        return _json(_templates(rest, honest, liar.template))
    if kind == "huge":
        value = _huge(word)
        return _json({**honest, "lie": value} if last == "new" else {**dict.fromkeys(honest, value), "changed": True})
    if kind == "handled":
        return _json({**honest, word: TYPES[last]})
    every_path = paths(honest)
    path = every_path[int(word or rest) % len(every_path)]
    return _json(replaced(honest, path, TYPES[last]) if kind == "type" else replaced(honest, path))


def paths(value: t.Any, above: tuple[t.Any, ...] = ()) -> list[tuple[t.Any, ...]]:
    """Return the path of each key of an answer, and of the first entry of each list."""
    children = list(value.items()) if isinstance(value, dict) else list(enumerate(value[:1])) if isinstance(value, list) else []
    return [path for key, child in children for path in ((*above, key), *paths(child, (*above, key)))]


def replaced(value: t.Any, path: tuple[t.Any, ...], *new: t.Any) -> t.Any:
    """Return a copy with another value at the path; without a new value, the path is missing."""
    key, *rest = path
    copy = value.copy()
    if rest:
        copy[key] = replaced(value[key], tuple(rest), *new)
    elif new:
        (copy[key],) = new
    else:
        del copy[key]
    return copy


def _templates(kind: str, value: t.Any, template: str) -> t.Any:
    if isinstance(value, dict):
        names = {key: f"{key} {template}" if kind == "keys" else key for key in value}
        return {
            **{names[key]: _templates(kind, child, template) for key, child in value.items()},
            **({} if kind != "keys" else value),
        }
    if isinstance(value, list):
        return [_templates(kind, child, template) for child in value]
    if isinstance(value, str):
        return {"keys": value, "values": template, "tagged": {"__ansible_type": "TrustedAsTemplate", "value": template}}[kind]
    return value


def _huge(kind: str) -> t.Any:
    if kind == "text":
        return "A" * HUGE["text"]
    if kind == "list":
        return ["lie"] * HUGE["list"]
    value: t.Any = "lie"
    for _level in range(HUGE["nesting"]):
        value = {"lie": value}
    return value


def _json(value: Answer) -> bytes:
    text = json.dumps(value)
    for name, number in NUMBERS.items():
        text = text.replace(f'"{name}"', number)
    return text.encode()


# Commands of a shell

MODE = "state running\nnet net:[1] net:[1]\nsystemd\n"
CONFIRMED = '{"state": "confirmed", "told": "The change was confirmed.", "age": 1.0}\n'
_TEMPORARY = re.compile(r'echo (ansible-tmp-[^=]+)="')
SHELL_LIES = ("text: nothing", "text: no JSON", "text: half", "text: bytes", "text: leading text")


def shell(command: str) -> str:
    """Return what an honest node prints for a command of an action plugin."""
    if "is-system-running" in command:
        return MODE
    if "boot_id" in command:
        return CONFIRMED
    if temporary := _TEMPORARY.search(command):
        return f"{temporary[1]}=/tmp/{temporary[1]}\n"
    return "/root\n" if "echo ~" in command else ""
