# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The collection beside programs of other projects, which variables name; see tests/upstream_programs.py."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from lab import Eni, EniLab, Lab, Node
from lab.upstream import KubeProxy
from lab.upstream.kube_proxy import Mode


def named(variable: str, program: str) -> Path:
    """Return the path of the program that the variable names. Without one, the test is not run."""
    if not os.environ.get(variable):
        pytest.skip(f"not run: no {program}; {variable} is not set")
    return Path(os.environ[variable])


@pytest.fixture(scope="session")
def binary() -> Path:
    return named("KUBE_PROXY", "kube-proxy")


@pytest.fixture(scope="session")
def azure_vnet_binary() -> Path:
    return named("AZURE_VNET", "azure-vnet")


@pytest.fixture(scope="session")
def aws_cni_host() -> Path:
    return named("AWS_CNI_HOST", "program around the code of amazon-vpc-cni-k8s")


@pytest.fixture(params=os.environ.get("KUBE_PROXY_MODES", ",".join(get_args(Mode))).split(","))
def mode(request: pytest.FixtureRequest) -> Mode:
    mode: Mode = request.param
    return mode


@pytest.fixture
def lab() -> Iterator[Lab]:
    """A node with a pod, and a node with another, of both IP versions."""
    with Lab("upstream", nodes=[Node("node1", pods=["pod1"]), Node("node2", pods=["pod2"])]) as running:
        yield running


@pytest.fixture
def proxy(lab: Lab, binary: Path, mode: Mode) -> Iterator[KubeProxy]:
    """kube-proxy on node1."""
    node = lab.node("node1")
    proxy = KubeProxy(binary, node, mode, [node.ipv4, node.address], [node.place.pod_subnet_ipv4, node.pod_subnet])
    proxy.start()
    yield proxy
    proxy.close()


@pytest.fixture
def eni_lab() -> Iterator[EniLab]:
    """A cloud that lets an ENI send from any address: pods' packets leave by one whose address is not the node's."""
    with EniLab("upstream", [Eni("eth1", pods=["pod1"])], source_check=False) as running:
        yield running


@pytest.fixture
def eni_proxy(eni_lab: EniLab, binary: Path, mode: Mode) -> Iterator[KubeProxy]:
    """kube-proxy on the node of eni_lab, which has only IPv4."""
    node = eni_lab.node("node1")
    proxy = KubeProxy(binary, node, mode, [node.address], ["10.0.1.0/24"])
    proxy.start()
    yield proxy
    proxy.close()
