# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What all tests on a real kernel share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from lab import Lab, Node
from lab.podman import Podman


@pytest.fixture
def lab() -> Iterator[Lab]:
    """Two nodes with a pod each, new for every test: a lab is built in a tenth of a second."""
    with Lab("test", nodes=[Node("node1", pods=["pod1"]), Node("node2", pods=["pod2"])]) as running:
        yield running


@pytest.fixture(scope="module")
def podman() -> Iterator[Podman]:
    """Containers that boot; those of a file share it, as it takes them all down at its end."""
    with closing(Podman()) as running:
        yield running
