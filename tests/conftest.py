# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What all tests share."""

from __future__ import annotations

import signal

from hypothesis import HealthCheck, settings

# A busy machine is no defect: no test fails by the time that it takes.
settings.register_profile("kubenode", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("kubenode")

# A shell starts what it runs in the background with interrupts ignored, and programs hand that on: some are interrupted here.
signal.signal(signal.SIGINT, signal.default_int_handler)
