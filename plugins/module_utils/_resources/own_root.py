# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""A root that the running kernel does not belong to: a chroot, or an image that is being built."""

from __future__ import annotations

import typing as t

from .._model.problem import Refusal
from .._system import kernel


class OwnRoot:
    """The running kernel is changed only from the root that belongs to it."""

    def inspect(self) -> t.Iterable[str]:
        if not kernel.is_own_root():
            raise Refusal(
                "immediate is true, but this root is not process 1's (a chroot, or an image that is being built): the running"
                " kernel is another system's. Nothing was changed. Set immediate to false here"
            )
        return ()
