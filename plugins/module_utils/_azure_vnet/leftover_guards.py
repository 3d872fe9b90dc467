# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Where azure-vnet is not a thing of the past, there are no leftovers."""

from __future__ import annotations

import typing as t

from .._cni import cni_backend
from .._core.errors import Refusal


class AnotherCni:
    """Another CNI must be in charge of pods to come."""

    def inspect(self) -> t.Iterable[str]:
        active = [(path, found.content) for path, found in cni_backend.configurations().items() if not found.is_inert]
        if active and active[0][1].is_there:
            raise Refusal(
                f"azure-vnet is this node's CNI: {active[0][0]} is the first configuration that a runtime finds, and names it."
                " Nothing was changed. Bring the other CNI's configuration in place before it, as 05-cilium.conflist"
            )
        return ()


class NoMonitor:
    """Nobody may be at work who holds the rules at what the state file says.

    azure-cnimonitor puts back what it misses every ten seconds; and where the state file has gone it deletes every rule,
    those of living pods as well (network/monitor_linux.go, AddStateRulesToMap).
    """

    def inspect(self) -> t.Iterable[str]:
        for number, name in cni_backend.monitors().items():
            raise Refusal(
                f"{name} runs here (process {number}) and restores azure-vnet's rules from its state file. Nothing was changed."
                " Delete the DaemonSet azure-cni-networkmonitor, or stop what else runs it, first"
            )
        return ()
