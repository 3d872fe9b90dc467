# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Refusals for a node where azure-vnet or its monitor is still at work, and warnings of what other CNIs left."""

from __future__ import annotations

import typing as t

from .._cni import cni_backend
from .._core.errors import Refusal
from .._platform import process
from . import cni_leftovers, survey_backend


def another_cni() -> t.Iterable[str]:
    """Refuse if azure-vnet would set up the next pod."""
    active = [(path, file.content) for path, file in cni_backend.configurations().items() if not file.is_inert]
    if active and active[0][1].is_there:
        raise Refusal(
            f"azure-vnet is this node's CNI: {active[0][0]} is the first configuration that a runtime finds, and names"
            " azure-vnet. Nothing was changed. Install another CNI's configuration under a name that sorts before it, such as"
            " 05-cilium.conflist"
        )
    return ()


def no_monitor() -> t.Iterable[str]:
    """Refuse if a monitor restores azure-vnet's rules from its state file.

    azure-cnimonitor restores missing rules every ten seconds. Without the state file it deletes every rule, those of live pods
    included (network/monitor_linux.go, AddStateRulesToMap).
    """
    for number, name in cni_backend.monitors().items():
        raise Refusal(
            f"{name} runs here (process {number}) and restores azure-vnet's rules from its state file. Nothing was changed."
            " Delete the DaemonSet azure-cni-networkmonitor, or stop the process if something else runs it, then run again"
        )
    return ()


def harmful_leftovers(run: process.Runner) -> t.Iterable[str]:
    """Warn of leftovers of other CNIs that act on packets. Starts programs only if there are leftovers."""
    troubles: list[str] = []
    leftovers = survey_backend.of_others(run, troubles.append, survey_backend.survey(run))
    return [*troubles, *cni_leftovers.harms(leftovers)]
