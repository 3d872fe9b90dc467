# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Keeps ansible-core before 2.19 from evaluating texts of a node or an API. Newer ones evaluate only texts that they trust.

The older ones mark the results of tasks and lookups by themselves, and what a template makes of marked variables. They do not
mark variables of an inventory plugin, nor what a filter returns for a value that comes from hostvars.
"""

from __future__ import annotations

import re
import typing as t

from ansible import template
from ansible.utils import unsafe_proxy

T = t.TypeVar("T")

_PLAIN = re.compile(r"[\w.:/-]*", re.ASCII)


def untrusted(value: T) -> T:
    """Return the value with its texts marked, unless none of them can be a template.

    ansible-inventory prints a marked text as a dictionary, which AWX does not read.
    """
    if hasattr(template, "trust_as_template") or _is_plain(value):
        return value
    return t.cast("T", unsafe_proxy.wrap_var(value))


def _is_plain(value: t.Any) -> bool:
    if isinstance(value, dict):
        return all(map(_is_plain, (*value, *value.values())))
    return all(map(_is_plain, value)) if isinstance(value, list) else bool(_PLAIN.fullmatch(str(value)))
