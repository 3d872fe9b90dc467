# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Observes what the profile aks_dual_stack depends on: the IPv6 addresses of the node, and whether Cilium takes its probes."""

from __future__ import annotations

import typing as t

from .._core.option import Values
from .._files.files import Files
from .._platform import process
from .._probe_snat import boot_programs, ipv6_backend
from .._probe_snat.probe_guards import OtherTranslators
from . import aks_dual_stack
from .aks_dual_stack import AUTO, Observation


def observe(options: Values, is_image: bool, _run: process.Runner) -> Observation:
    """Raise NoMetadata, Failure."""
    observation = Observation(is_image, _addresses(options, is_image))
    if is_image or options["backend"] != AUTO or not aks_dual_stack.facts(options, observation).has_ipv6:
        return observation
    translators = OtherTranslators(options["interface"])
    return observation._replace(bpf_reason=boot_programs.reason(Files(), translators, options["table"]))


def _addresses(options: Values, is_image: bool) -> t.Sequence[str]:
    """Raise NoMetadata."""
    if not aks_dual_stack.is_asked(options, is_image):
        return ()
    if options["ipv6"] == "address":
        return ipv6_backend.global_ipv6_addresses(options["interface"])
    from .._cloud import imds_backend  # only a run that queries the service should wait for the import

    asking = imds_backend.asking(imds_backend.primary_ipv6, "azure")
    with process.waiting("waits for the metadata service of Azure"):
        _cloud, addresses = imds_backend.with_retries(asking, imds_backend.TIMEOUT, retries=imds_backend.RETRIES)
    return addresses
