# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the command by ``python -m kubenode_datapath``."""

from __future__ import annotations

import sys

from .program import main

sys.exit(main())
