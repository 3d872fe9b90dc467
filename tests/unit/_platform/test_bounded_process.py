# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A function that exceeds a bound ends, and the caller goes on."""

from __future__ import annotations

import os
import re

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Invalid
from ansible_collections.kubenode.datapath.plugins.module_utils._platform import bounded_process

SIZE = 2 << 30


def test_a_result_is_returned_from_another_process() -> None:
    pid, text = bounded_process.call(lambda: (os.getpid(), "\ud800\x1b"), 5, SIZE)
    assert pid != os.getpid() and text == "\ud800\x1b"


def test_an_error_of_the_function_is_raised() -> None:
    def refuse() -> None:
        raise Invalid("option", {1: ["x"]}, "a number")

    with pytest.raises(Invalid, match="^option must be a number; {'1': \\['x'\\]} was given$"):
        bounded_process.call(refuse, 5, SIZE)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        bounded_process.call(lambda: 1 // 0, 5, SIZE)


def test_a_function_that_takes_too_long_is_ended_also_within_a_regular_expression() -> None:
    with pytest.raises(bounded_process.Exceeded, match="^1 s of computation$"):
        bounded_process.call(lambda: re.match(r"(a+)+b", "a" * 100), 1, SIZE)


def test_a_function_that_takes_too_much_memory_is_ended() -> None:
    with pytest.raises(bounded_process.Exceeded, match="^2048 MiB of memory$"):
        bounded_process.call(lambda: len(bytes(2 * SIZE)), 5, SIZE)
