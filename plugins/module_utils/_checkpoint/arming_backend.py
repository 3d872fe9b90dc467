# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.
"""Makes a run's checkpoint. This is a separate file, because most runs set no checkpoint and should not wait for the imports."""

from __future__ import annotations

import typing as t

if t.TYPE_CHECKING:
    from .checkpoint_resource import Checkpoint


def under_checkpoint(seconds: int, who: str) -> Checkpoint:
    """Arm a checkpoint for the block; see checkpoint_resource.Checkpoint."""
    from .checkpoint_resource import Checkpoint

    return Checkpoint(seconds, who)
