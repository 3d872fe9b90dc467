# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests that kill or fail a run at each point, or play a long role once more: `make test` runs a sample, `make faults` all."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import pytest

Case = TypeVar("Case")


def sampled(cases: Iterable[Case], is_in_sample: Callable[[Case], bool]) -> list[Any]:
    """The cases of a `pytest.mark.parametrize`. Those outside of the sample have the mark `thorough`."""
    return marked(cases, lambda case: not is_in_sample(case), pytest.mark.thorough)


def marked(cases: Iterable[Case], is_marked: Callable[[Case], bool], mark: pytest.MarkDecorator) -> list[Any]:
    """The cases of a `pytest.mark.parametrize`, some of them with a mark."""
    return [pytest.param(*_values(case), marks=mark) if is_marked(case) else case for case in cases]


def _values(case: Any) -> tuple[Any, ...]:
    return case if isinstance(case, tuple) else (case,)
