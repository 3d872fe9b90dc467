# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Checks of the options of ebtables_cleanup, on the node for the module and on the controller for its role."""

from __future__ import annotations

from .._core import fields, names
from .._core.errors import Invalid


def backup(value: str, is_written: bool) -> str:
    """Check the folder of the backup. Raises Invalid.

    is_written: False for the state that restores: an earlier version may have kept a backup where none may be written now.
    """
    path = names.path("backup", value)
    if is_written and not names.is_own(f"{path}/"):
        raise Invalid("backup", value, names.ALLOWED_FOLDERS)
    return path


def address(number: int, value: str) -> fields.Prefix:
    """Parse an entry of the option ``addresses``. Raises Invalid."""
    try:
        prefix = fields.prefix(value)[1]
    except fields.Unfit:
        prefix = fields.ANY
    if prefix == fields.ANY:
        raise Invalid(f"addresses[{number}]", value, "an address, or a prefix without host bits other than 0.0.0.0/0 and ::/0")
    return prefix
