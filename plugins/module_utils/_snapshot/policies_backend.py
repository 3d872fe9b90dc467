# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Reads which rules and routes policy_routes keeps on the node, from its records."""

from __future__ import annotations

import typing as t
from pathlib import Path

from .._core.errors import Invalid
from .._files import files
from .._platform import process
from .._routing import policy
from .._routing.active_policy_resource import record
from .._routing.rt_tables_backend import tables
from .snapshot import Notes

# That of the running kernel, which a boot removes, comes before that of the next boot.
FOLDERS = (str(Path(record(policy.PROTOCOL)).parent), "/etc/kubenode")
FILES = "policy-routes-*.json"


def policies(_run: process.Runner, note: Notes) -> list[dict[str, t.Any]]:
    """Return the policy of each protocol, with the path of its record. One that a boot discovers has no lists in a file."""
    paths = [path for folder in FOLDERS for path in sorted(Path(folder).glob(FILES))]
    by_protocol: dict[int, dict[str, t.Any]] = {}
    for path in map(str, paths):
        try:
            kept = policy.from_text(files.text(path), tables())
        except (OSError, Invalid) as error:
            note(path, f"The record could not be read: {error}.")
            continue
        if kept.is_known and kept.protocol not in by_protocol:
            rules, routes = [rule.options() for rule in kept.rules or ()], [route.options() for route in kept.routes or ()]
            by_protocol[kept.protocol] = {"protocol": kept.protocol, "path": path, "rules": rules, "routes": routes}
    return [by_protocol[protocol] for protocol in sorted(by_protocol)]
