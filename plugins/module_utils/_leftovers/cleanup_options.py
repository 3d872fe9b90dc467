# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The options of ebtables_cleanup that its profile has too, and their checks."""

from __future__ import annotations

import typing as t

from .._core import fields, names
from .._core.errors import Invalid
from .._core.option import PATH, Option, Options, permitted


def backup(value: str, is_written: bool) -> str:
    """Check the folder of the backup. Raises Invalid.

    is_written: False for the state that restores: an earlier version may have kept a backup where none may be written now.
    """
    path = names.path("backup", value)
    if is_written and not names.is_own(f"{path}/"):
        raise Invalid("backup", value, names.ALLOWED_FOLDERS)
    return path


def _address(number: int, value: str) -> fields.Prefix:
    try:
        prefix = fields.prefix(value)[1]
    except fields.Unfit:
        prefix = fields.ANY
    if prefix == fields.ANY:
        raise Invalid(f"addresses[{number}]", value, "an address, or a prefix without host bits other than 0.0.0.0/0 and ::/0")
    return prefix


def addresses(values: t.Sequence[str]) -> tuple[fields.Prefix, ...]:
    """Parse the option ``addresses``. Raises Invalid."""
    return tuple(_address(number, value) for number, value in enumerate(values))


OPTIONS: Options = {
    "addresses": permitted(
        "list", [], elements="str", is_words=True, check=lambda values, is_applied: addresses(values if is_applied else ())
    ),
    "backend": permitted("str", "auto", choices=("auto", "nft", "legacy")),
    "neighbors": permitted("bool", True),
    "routes": permitted("bool", True),
    "iptables": permitted("bool", False),
    "links": permitted("bool", False),
    "backup": Option("path", "/var/lib/kubenode/backup", refused=PATH, check=backup),
}
