# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Steps on unit files, of which a running systemd has to be told."""

from __future__ import annotations

import typing as t

from .._core.converge import Step
from . import units


def told(steps: t.Sequence[Step], is_managed: bool) -> tuple[Step, ...]:
    """The steps, and after them a reload, also after they were undone. Nothing more where systemd does not run."""
    if not steps or not is_managed:
        return tuple(steps)
    forget = Step("have systemd forget", undo=units.Reload())  # the first step is the last to be undone
    return (forget, *steps, Step("have systemd reload", units.Reload()))
