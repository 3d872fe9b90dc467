# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program's own code, as a twin needs it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from ansible_collections.kubenode.datapath.plugins.module_utils._boot import rehearsal_program
from ansible_collections.kubenode.datapath.plugins.module_utils._platform import library

LIBRARIES = Path(__file__).parent / "_libraries"  # which packing.py adds


def prepare_twins() -> None:
    """Let twins use the packed library, and import what they could not read.

    That is all code if root installed it for itself, because a twin of root runs as another user and may need more of it.
    """
    library.use_packed(library.PYROUTE2, str(LIBRARIES))
    if os.geteuid() == 0 and os.path.exists(__file__) and not os.stat(__file__).st_mode & stat.S_IROTH:
        rehearsal_program.import_everything()
