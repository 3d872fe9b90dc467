# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fixtures of all tests on a real Kubernetes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from lab import apt, collection, entering
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


@pytest.fixture(scope="session")
def plugin(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs ``kubectl datapath`` with the words that it is called with. kubectl is that of Debian 13."""
    folder = tmp_path_factory.mktemp("plugin")
    apt.unpack("trixie", "kubectl", folder)
    subprocess.run([sys.executable, collection.CHECKOUT / "deploy/cli/packing.py", folder], check=True, capture_output=True)
    path = f"{folder}:{folder / 'usr/bin'}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "HOME": str(folder), "KUBECONFIG": str(cluster.api.configuration)}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        argv = cluster.control_plane.command(["kubectl", "datapath", *words], entering.NETWORK_ONLY)
        return subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)

    return run
