# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""A guard for a root that the running kernel does not belong to: a chroot, an image that is being built, or a pod's."""

from __future__ import annotations

import typing as t

from .._core.errors import Refusal
from . import kernel


def require_own_root(desired: str = "immediate is true", remedy: str = "Set immediate to false here") -> t.Iterable[str]:
    """Refuse to change the running kernel from a root that does not belong to it.

    desired: the option that asks for the change, for the error. remedy: what to do.
    """
    if not kernel.is_own_root():
        raise Refusal(
            f"{desired}, but this root is not process 1's (a chroot, an image that is being built, or a container): the"
            f" running kernel is another system's. Nothing was changed. {remedy}; or, in a pod on its node, enter the"
            " node's root, by the connection kubenode.datapath.nsenter or by a chroot into it"
        )
    return ()
