# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Results that no module of the collection returns: a result with one value replaced, at any depth."""

from __future__ import annotations

import typing as t

HOSTILE = "</script>{{ x }}]]>|\n\x1b[2J\u202e\ud800"
NESTED: t.Any = []
for _number in range(5000):
    NESTED = [NESTED]
WRONG: tuple[t.Any, ...] = (None, 7, 10**5000, float("nan"), HOSTILE, [None], NESTED, {}, {7: 7}, object())
Path = tuple[t.Any, ...]


def lies(result: t.Any) -> t.Iterator[tuple[Path, t.Any]]:
    """Yield the result with each value replaced by each of WRONG, and the path of that value."""
    for path in _paths(result):
        yield from ((path, _replaced(result, path, wrong)) for wrong in WRONG)


def _paths(value: t.Any) -> t.Iterator[Path]:
    yield ()
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, entry in entries:
        yield from ((key, *path) for path in _paths(entry))


def _replaced(value: t.Any, path: Path, wrong: t.Any) -> t.Any:
    if not path:
        return wrong
    copy = value.copy()
    copy[path[0]] = _replaced(value[path[0]], path[1:], wrong)
    return copy
