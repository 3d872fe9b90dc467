# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""All checks, in the order of the catalogue."""

from __future__ import annotations

import typing as t

from .._core import nearest
from .._core.errors import Invalid
from . import (
    bridge_checks,
    firewall_checks,
    mark_checks,
    own_checks,
    path_checks,
    pod_checks,
    probe_checks,
    reverse_path_checks,
    routing_checks,
    service_checks,
    settings_checks,
    size_checks,
)
from .finding import Check
from .suspicion import SEVERITIES

# Ansible copies to a node what an import names, so that each file of checks is named here.
FILES = (
    *(reverse_path_checks, mark_checks, routing_checks, service_checks, pod_checks, probe_checks),
    *(own_checks, settings_checks, bridge_checks, firewall_checks, size_checks, path_checks),
)
CHECKS = tuple(value for file in FILES for value in vars(file).values() if isinstance(value, Check))
SETTINGS = tuple(key for each in CHECKS for key in each.settings)  # that a snapshot of this node has for them


def of_id(option: str, word: str, before: str = "") -> Check:
    """Return the check with an id. before: what else the option may be. Raises Invalid, which names the nearest ids."""
    ids = {check.id: check for check in CHECKS}
    if word not in ids:
        raise Invalid(option, word, f"{before}the id of a check, such as {nearest.listed(word, ids)}")
    return ids[word]


def chosen(words: t.Sequence[str] | None) -> list[Check]:
    """Return the checks of the option ``checks``: ids or severities; all if it is left out. Raises Invalid."""
    if not words:
        return [*CHECKS]
    words = [word.strip() for word in words]  # Ansible leaves the blanks of "error, risk"
    for number, word in enumerate(words):
        if word not in SEVERITIES:
            of_id(f"checks[{number}]", word, f"{', '.join(SEVERITIES)} or ")
    return [check for check in CHECKS if check.id in words or check.severity in words]
