# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Observes what the profile aks_dual_stack depends on: the IPv6 addresses of the node."""

from __future__ import annotations

from .._core.option import Values
from .._platform import process
from .._probe_snat import ipv6_backend
from . import aks_dual_stack
from .aks_dual_stack import Observation


def observe(options: Values, is_image: bool, _run: process.Runner) -> Observation:
    """Raise NoMetadata."""
    if not aks_dual_stack.is_asked(options, is_image):
        return Observation(is_image)
    if options["ipv6"] == "address":
        return Observation(is_image, ipv6_backend.global_ipv6_addresses(options["interface"]))
    from .._cloud import imds_backend  # only a run that queries the service should wait for the import

    asking = imds_backend.asking(imds_backend.primary_ipv6, "azure")
    with process.waiting("waits for the metadata service of Azure"):
        _cloud, addresses = imds_backend.with_retries(asking, imds_backend.TIMEOUT, retries=imds_backend.RETRIES)
    return Observation(is_image, addresses)
