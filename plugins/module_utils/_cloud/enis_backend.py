# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Reads a node's elastic network interfaces from the metadata service, and finds the link of each one."""

from __future__ import annotations

import math
import typing as t

from . import imds_backend, links_backend, metadata


def read(
    cloud: str = "auto",
    endpoint: str | None = None,
    timeout: float = imds_backend.TIMEOUT,
    *,
    retries: float = imds_backend.RETRIES,
    deadline: float = math.inf,
) -> tuple[str, list[dict[str, t.Any]]]:
    """Return the cloud that answered, and the interfaces as imds_info returns them. Raises NoMetadata.

    timeout, retries, deadline: see imds_backend.with_retries().
    """
    asking = imds_backend.asking(imds_backend.interfaces, cloud, endpoint)
    answering, nics = imds_backend.with_retries(asking, timeout, retries=retries, deadline=deadline)
    node = links_backend.read()
    return answering, [metadata.interface(nic, node) for nic in nics]
