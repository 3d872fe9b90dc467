# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._core import memo

LISTING = (*range(memo.LARGE),)
Total = Callable[..., int]


@pytest.fixture
def read() -> list[object]:
    """The parts that a function was called for, in turn."""
    return []


@pytest.fixture
def total(read: list[object]) -> Total:
    @memo.of_part
    def remembered(part: Iterable[int], factor: int = 1) -> int:
        read.append(part)
        return factor * sum(part)

    return remembered


def test_a_part_is_read_once_for_each_of_the_other_arguments(total: Total, read: list[object]) -> None:
    part = [*LISTING]
    assert [total(part), total(part), total(part, 2), total(part, 2)] == [sum(LISTING)] * 2 + [2 * sum(LISTING)] * 2
    assert len(read) == 2


def test_the_total_of_an_equal_object_is_computed_again(total: Total, read: list[object]) -> None:
    parts = [[*LISTING], [*LISTING]]
    assert total(parts[0]) == total(parts[1]) and len(read) == 2


@pytest.mark.parametrize("part", [[*LISTING[1:]], LISTING, iter(LISTING)], ids=["small", "tuple", "iterator"])
def test_a_small_part_and_an_iterator_are_read_each_time(total: Total, read: list[object], part: Iterable[int]) -> None:
    total(part)
    total(part)
    assert len(read) == 2


def test_the_part_that_was_read_first_is_forgotten_first(total: Total, read: list[object]) -> None:
    parts = [[*LISTING] for _number in range(memo.MOST + 1)]
    for part in (*parts, parts[-1], parts[0]):
        total(part)
    assert len(read) == len(parts) + 1 and read[-1] is parts[0]
