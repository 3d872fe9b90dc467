# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Kubelet's settings, read from the places where nodes keep them, and the services that run kubelet."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._kubelet.kubelet_backend import has_label, services

LABEL = "kubernetes.azure.com/ebpf-host-routing=true"


def place(root: Path, name: str, text: str) -> None:
    file = root / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("etc/default/kubelet", f"KUBELET_FLAGS=--v=2\nKUBELET_NODE_LABELS=agentpool=a,{LABEL},x=y\n"),
        ("etc/sysconfig/kubelet", f'KUBELET_EXTRA_ARGS="--node-labels={LABEL}"\n'),
        ("etc/systemd/system/kubelet.service.d/10.conf", f"[Service]\nEnvironment=A=--node-labels={LABEL}\n"),
    ],
)
def test_a_label_is_found_in_kubelets_configuration(tmp_path: Path, name: str, text: str) -> None:
    place(tmp_path, name, text)
    assert has_label(LABEL, f"{tmp_path}/")


@pytest.mark.parametrize(("name", "is_kubelet"), [("kubelet", True), ("bash", False), ("k3s-server", False)])
def test_a_label_is_found_on_kubelets_command_line_alone(tmp_path: Path, name: str, is_kubelet: bool) -> None:
    place(tmp_path, "proc/8/comm", f"{name}\n")
    place(tmp_path, "proc/8/cmdline", f"{name}\0--node-labels=a=b,{LABEL}\0")
    assert has_label(LABEL, f"{tmp_path}/") is is_kubelet


@pytest.mark.parametrize("other", ["kubernetes.azure.com/ebpf-host-routing=false", f"my.{LABEL}", f"{LABEL}-ish", f"\n# {LABEL}"])
def test_another_label_is_not_taken_for_it(tmp_path: Path, other: str) -> None:
    place(tmp_path, "etc/default/kubelet", f"KUBELET_NODE_LABELS={other}\n")
    assert not has_label(LABEL, f"{tmp_path}/")


@pytest.mark.parametrize(
    ("groups", "service"),
    [
        ("0::/system.slice/kubelet.service\n", "kubelet.service"),
        ("0::/kubelet.slice/kubelet.service\n", "kubelet.service"),
        ("0::/system.slice/rke2-agent.service/init\n", "rke2-agent.service"),
        ("0::/system.slice/system-kube.slice/kube@a:b.service\n", "kube@a:b.service"),
        ("4:memory:/x.service\n1:name=systemd:/system.slice/k3s.service\n0::/\n", "k3s.service"),
        ("1:name=systemd:/\n0::/system.slice/k3s.service\n", "k3s.service"),
        ("0::/system.slice/docker-4f.scope/kubelet.slice/kubelet.service\n", ""),  # a node in a container
        ("0::/docker/4f/system.slice/kubelet.service\n", ""),
        ("0::/user.slice/user-0.slice/session-1.scope\n", ""),
        ("0::/k3s\n", ""),  # k3s moves itself to this cgroup if a login started it
        ("0::/\n", ""),
        ("", ""),
        ("nonsense\n", ""),
    ],
)
def test_the_service_of_a_process_is_the_first_unit_of_its_group(tmp_path: Path, groups: str, service: str) -> None:
    place(tmp_path, "proc/8/comm", "kubelet\n")
    place(tmp_path, "proc/8/cgroup", groups)
    assert services(f"{tmp_path}/") == {service} - {""}


@pytest.mark.parametrize(
    ("name", "is_kubelet"), [("kubelet", True), ("kubelite", True), ("k3s-server", True), ("k3s-agent", True), ("sshd", False)]
)
def test_kubelet_is_known_in_each_program_that_contains_it(tmp_path: Path, name: str, is_kubelet: bool) -> None:
    place(tmp_path, "proc/8/comm", f"{name}\n")
    place(tmp_path, "proc/8/cgroup", "0::/system.slice/a.service\n")
    assert services(f"{tmp_path}/") == ({"a.service"} if is_kubelet else set())


def test_a_process_that_has_just_ended_runs_in_no_service(tmp_path: Path) -> None:
    place(tmp_path, "proc/8/comm", "kubelet\n")
    assert services(f"{tmp_path}/") == set()
