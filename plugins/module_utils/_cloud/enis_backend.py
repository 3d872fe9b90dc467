# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Reads a node's elastic network interfaces from the metadata service, and finds the link of each one."""

from __future__ import annotations

import math
import typing as t

from . import imds_backend, links_backend, metadata

TIMEOUT = 5.0  # seconds for one request; a working service answers within milliseconds
RETRIES = 5  # after the first try


def read(
    cloud: str = "auto",
    endpoint: str | None = None,
    timeout: float = TIMEOUT,
    *,
    retries: float = RETRIES,
    deadline: float = math.inf,
) -> tuple[str, list[dict[str, t.Any]]]:
    """The cloud that answered, and the interfaces as imds_info returns them. Raises NoMetadata.

    timeout, retries, deadline: see imds_backend.with_retries().
    """
    answering, nics = imds_backend.with_retries(imds_backend.asking(cloud, endpoint), timeout, retries=retries, deadline=deadline)
    node = links_backend.read()
    return answering, [metadata.interface(nic, node) for nic in nics]
