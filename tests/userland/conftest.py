# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The system of ``make userland``, which SYSTEM names: a release of Debian (default: sid), or one of lab.registry."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(scope="session")
def system() -> str:
    return os.environ.get("SYSTEM") or "sid"
