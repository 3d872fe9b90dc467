# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The effect of azure-vnet's rules on packets: for a pod that it serves, and for a later pod with the same address."""

from __future__ import annotations

from lab import Lab
from lab.theft import Theft


def test_a_stale_rule_steals_the_traffic_of_the_next_pod(lab: Lab) -> None:
    Theft(lab.node("node1"), lab.node("node2")).happens("ebtables-nft")
