# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The node of these tests."""

from __future__ import annotations

import pytest

from lab import Lab
from lab.node import NamespaceNode


@pytest.fixture
def node(lab: Lab) -> NamespaceNode:
    node: NamespaceNode = lab.node("node1")
    node.remove("/etc/cni/net.d")  # the host may have podman's
    return node
