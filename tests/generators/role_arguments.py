# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Types, choices and defaults in the roles' argument specs and defaults, from the profiles. Run by ``make docs``.

The descriptions and comments around them are written by hand.
"""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any

import yaml

from ansible_collections.kubenode.datapath.plugins.module_utils._core.option import Option
from ansible_collections.kubenode.datapath.plugins.plugin_utils import _profiles

ROOT = Path(__file__).resolve().parents[2] / "roles"
KEYS = ("type", "elements", "choices", "default")


def files(role: str) -> dict[Path, str]:
    """Return the texts of a role's argument spec and of its defaults, by their files."""
    spec, defaults = ROOT / f"{role}/meta/argument_specs.yml", ROOT / f"{role}/defaults/main.yml"
    options = {f"{role}_{name}": option for name, option in _profiles.options_of(role).items()}
    return {spec: _spec(spec.read_text(), options), defaults: _defaults(defaults.read_text(), options)}


def _spec(text: str, options: dict[str, Option]) -> str:
    """Return the text with the keys of each variable that follow its description. Raises ValueError if one is not described."""
    for name, option in options.items():
        declared = option.spec()
        keys = "".join(f"        {key}:{_value(declared[key], '          ')}\n" for key in KEYS if key in declared)
        pattern = rf"^(      {name}:\n        description:.*\n(?:          .*\n)*)(?:        \w+:.*\n(?:          .*\n)*)*"
        head, *tail = re.split(pattern, text, flags=re.MULTILINE)
        if len(tail) != 2:
            raise ValueError(f"{name} must be described once in the argument spec")
        text = "".join((head, tail[0], keys, tail[1]))
    return text


def _defaults(text: str, options: dict[str, Option]) -> str:
    """Return the text with the defaults of the profile. One that is a template depends on the host, and the profile has none."""
    for name, option in options.items():
        if option.default is not None:
            line = f"{name}:{_value(option.default, '  ')}\n"
            text = line.join(re.split(rf"^{name}:.*\n(?:  .*\n)*", text, flags=re.MULTILINE))
    return text


def _value(value: Any, indentation: str) -> str:
    """Return what follows a key in YAML: a value in one line, or a list of dictionaries in lines of their own."""
    if isinstance(value, list) and isinstance(next(iter(value), None), dict):
        return "\n" + textwrap.indent(yaml.safe_dump(value, sort_keys=False), indentation).rstrip()
    flow = yaml.safe_dump(value, default_flow_style=True, width=1000).removesuffix("\n").removesuffix("\n...")
    return f" {flow}" if value != "" else ' ""'


if __name__ == "__main__":
    for role in _profiles.PROFILES:
        for path, text in files(role).items():
            path.write_text(text)
