# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings of all tests."""

from __future__ import annotations

import signal

import pytest
from hypothesis import HealthCheck, Phase, settings

# A busy machine is no defect, so no test fails because of the time that it takes. No test fails by chance: each run tries the
# same examples. `make fuzz` tries others.
settings.register_profile("kubenode", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("fuzz", settings.get_profile("kubenode"), derandomize=False, database=None)
# Any failing example kills a mutant, so the first one suffices.
settings.register_profile("mutants", settings.get_profile("kubenode"), max_examples=50, phases=[Phase.explicit, Phase.generate])
settings.load_profile("kubenode")

pytest.register_assert_rewrite("lab.steps")  # so that a failure there shows what differs

# A shell starts background programs with interrupts ignored, and children inherit that; tests interrupt some of them.
signal.signal(signal.SIGINT, signal.default_int_handler)
