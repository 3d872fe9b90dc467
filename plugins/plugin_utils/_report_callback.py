# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether the callback report is there to print for the plugins of a run."""

from __future__ import annotations

import os

from ansible import constants as C

NAME = "kubenode.datapath.report"
FOLDER = "KUBENODE_WAITS"  # the variable that the callback sets for its run: the folder of _waits


def is_enabled() -> bool:
    return NAME in C.CALLBACKS_ENABLED


def is_running() -> bool:
    """Return False for the program ansible too, which may run without the callbacks that are enabled."""
    return is_enabled() and FOLDER in os.environ
