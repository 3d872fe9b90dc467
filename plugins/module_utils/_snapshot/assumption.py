# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Sentences about what a snapshot lacks and a twin cannot have, as values that travel to the answer."""

from __future__ import annotations

import typing as t


class Assumption(t.NamedTuple):
    """sentence: for the operator. is_gap: whether the twin lacks a line of the snapshot, which may decide otherwise."""

    sentence: str
    is_gap: bool = False

    def plain(self) -> dict[str, t.Any]:
        """Return the assumption as data for another process."""
        return {"sentence": self.sentence, "is_gap": self.is_gap}

    @classmethod
    def from_plain(cls, plain: t.Mapping[str, t.Any]) -> Assumption:
        return cls(str(plain.get("sentence") or ""), bool(plain.get("is_gap")))


def gap(sentence: str) -> Assumption:
    """Return the assumption that a line of the snapshot, which the twin lacks, decides nothing."""
    return Assumption(sentence, is_gap=True)
