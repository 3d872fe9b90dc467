# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""The files of the matches and targets of iptables and ebtables that a twin has: of those that a rule may name, and no others."""

from __future__ import annotations

from .._ebtables.ebtables_options import EBTABLES
from .._netfilter.rule_words import IPTABLES

# Files that are not named after their matches and targets: the policies and verdicts, and the translations of addresses.
_SHARED = ("standard", "NAT")
_NAMES = frozenset((*IPTABLES.matches, *IPTABLES.targets, *EBTABLES.matches, *EBTABLES.targets, *_SHARED))
_PREFIXES = ("libxt_", "libipt_", "libip6t_", "libebt_")


def is_permitted(file: str) -> bool:
    """Return whether a file in the folder of extensions is of a permitted match or target. file: such as libxt_comment.so."""
    prefix = next((start for start in _PREFIXES if file.startswith(start)), "")
    return bool(prefix) and file[len(prefix) :].partition(".so")[0] in _NAMES
