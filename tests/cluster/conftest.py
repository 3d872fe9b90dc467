# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fixtures of all tests on a real Kubernetes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lab.kubernetes import Cluster, agent_image


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Two nodes, for all tests of a worker. Each test removes its objects and undoes its playbooks."""
    with Cluster("tests") as running:
        yield running


@pytest.fixture(scope="session")
def agent() -> str:
    """The name of the DaemonSet's image, which is built once for all tests of a worker."""
    return agent_image.build("1")
