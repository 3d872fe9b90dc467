# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What follows from a part of a snapshot is worked out once, for however many twins. No part is changed after it was read."""

from __future__ import annotations

import functools
import typing as t

MOST = 64  # parts, each with its values: those of one node, and of a few worlds that differ from it
LARGE = 16  # entries or characters; fewer are soon worked out again
_Function = t.TypeVar("_Function", bound=t.Callable[..., t.Any])


def of_part(function: _Function) -> _Function:
    """Remember what a function returns for its first argument, a list or a text that is told from others by its identity.

    An iterator, which can be read once, and a small part are not remembered. The value must not be changed.
    """
    remembered: list[tuple[t.Any, tuple[t.Any, ...], t.Any]] = []

    @functools.wraps(function)
    def remembering(part: t.Any, *further: t.Any) -> t.Any:
        if not isinstance(part, (list, str)) or len(part) < LARGE:
            return function(part, *further)
        for earlier, of_known, value in remembered:
            if earlier is part and of_known == further:
                return value
        value = function(part, *further)
        remembered.insert(0, (part, further, value))
        del remembered[MOST:]
        return value

    return t.cast("_Function", remembering)
