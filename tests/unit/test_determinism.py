# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A test that passed passes again: random values are the same in each run."""

from __future__ import annotations

from hypothesis import settings


def test_property_tests_try_the_same_examples_in_each_run() -> None:
    assert settings().derandomize and settings().database is None


def test_make_fuzz_tries_others_and_depends_on_nothing_but_its_seed() -> None:
    fuzz = settings.get_profile("fuzz")
    assert not fuzz.derandomize and fuzz.database is None
