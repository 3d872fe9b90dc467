# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A wait of the lab ends when its condition holds, and a wait that failed says what it saw."""

from __future__ import annotations

import typing as t

import pytest

from lab.entering import LabError
from lab.waiting import until


class Journal:
    """A witness, or one whose node does not answer."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return "node1"

    def last_lines(self) -> str:
        if not self._text:
            raise LabError("no answer")
        return self._text


def test_a_wait_ends_when_the_condition_holds_whatever_the_looks_before_raised() -> None:
    looks: t.Iterator[t.Any] = iter([LabError("busy"), ConnectionRefusedError(), 0, 1])

    def look() -> int:
        found = next(looks)
        if isinstance(found, Exception):
            raise found
        return int(found)

    until("one", look, pause=0)
    assert next(looks, None) is None


def test_an_expected_value_may_be_a_false_one() -> None:
    until("nothing", list, expected=[], limit=0)


def test_a_wait_that_failed_says_what_it_waited_for_the_last_look_the_load_and_the_last_lines() -> None:
    with pytest.raises(LabError) as failed:
        until("two pods", lambda: ["web"], Journal("kubelet: no image"), Journal(""), expected=["web", "web"], limit=0)
    what, seen, expected, load, journal, silent = str(failed.value).splitlines()
    assert what == "waited 0 s for this: two pods"
    assert (seen, expected) == ("last observation: ['web']", "expected: ['web', 'web']")
    assert load.startswith("load of the machine: ")
    assert (journal, silent) == ("kubelet: no image", "node1 shows nothing: no answer")


def test_a_look_that_raised_is_the_last_observation() -> None:
    def look() -> None:
        raise LabError("the API answered with 503")

    with pytest.raises(LabError, match="last observation: the API answered with 503"):
        until("the API", look, limit=0)


def test_an_error_of_the_test_itself_is_raised_at_once() -> None:
    with pytest.raises(ZeroDivisionError):
        until("a number", lambda: 1 // 0)
