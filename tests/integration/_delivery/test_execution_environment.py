# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The execution environment is built, and a job in it converges a node."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab import Lab, Node, execution_environment
from lab.controller import SSH_PACKAGES, Controller


@pytest.mark.thorough
def test_a_job_in_it_converges_a_node_and_changes_nothing_the_second_time(tmp_path: Path) -> None:
    pytest.importorskip("ansible_builder")
    with Lab("environment", [Node("node1", system="bookworm", besides=SSH_PACKAGES, pods=["pod1"])], metadata=True) as lab:
        image = execution_environment.build(lab.podman, tmp_path)
        pod = lab.pod("pod1")
        assert not lab.load_balancer.probe_tcp(pod.address, 8080)
        for number, changed in enumerate((True, False)):
            folder = tmp_path / str(number)
            folder.mkdir()
            controller = Controller(lab.load_balancer, folder, lab.nodes)
            recap = execution_environment.run(lab.podman, image, controller, "kubenode.datapath.aks_dual_stack", {})
            assert (bool(recap["changed"]), recap["failures"], recap["dark"]) == (changed, {}, {}), recap
            assert lab.load_balancer.probe_tcp(pod.address, 8080)
