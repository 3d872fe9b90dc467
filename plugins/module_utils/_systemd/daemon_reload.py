# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Steps that change unit files, after which a running systemd must reload."""

from __future__ import annotations

import typing as t

from .._core.plan import Step
from . import units


def with_reload(steps: t.Sequence[Step], is_managed: bool) -> tuple[Step, ...]:
    """Return the steps with a reload of systemd after them, and after their roll-back.

    Without reloads if systemd does not run here.
    """
    if not steps or not is_managed:
        return tuple(steps)
    undo = Step("have systemd read its former unit files", undo=units.Reload())  # the first step is undone last
    return (undo, *steps, Step("have systemd read its unit files", units.Reload()))
