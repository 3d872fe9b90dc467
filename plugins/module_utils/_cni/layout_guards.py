# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Warnings about policy routes and marks that collide with those of a known CNI.

Separate from the other guards, whose users do not need the model of policy rules.
"""

from __future__ import annotations

import typing as t

from .._platform import kernel
from .._routing import known_programs
from .._routing.policy import Policy
from . import cilium_backend


def cni_layouts(desired: Policy) -> t.Iterable[str]:
    """Warn of each desired priority, table and mark that a known CNI or cloud agent uses for another purpose."""
    return known_programs.warnings(desired.rules or (), desired.routes or ())


def mark_collisions(mark: int, mask: int) -> t.Iterable[str]:
    """Warn if a known program uses bits of a mark that is set for another purpose."""
    yield from known_programs.mark_warnings(mark, mask, mask)
    agent = cilium_backend.find() if kernel.is_own_root() else None
    yield from filter(None, [known_programs.cluster_warning(mark, mask, agent.cluster if agent else 0)])
