# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Shared by tests of nft's listings: tables of cases, each of which alters a listing."""

from __future__ import annotations

import typing as t

Listing = t.TypeVar("Listing")


def check_cases(listing: t.Callable[[], Listing], cases: t.Mapping[str, t.Callable[[Listing], t.Any]]) -> None:
    """Each case but "as it is" alters its own listing only; otherwise a later case would prove nothing."""
    whole = repr(listing())
    for name, alter in cases.items():
        seen = listing()
        alter(seen)
        assert (repr(seen) == whole) == (name == "as it is"), name
        assert repr(listing()) == whole, name
