# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What kubelet was told, found in the places where nodes keep it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._nftables.kubelet_backend import has_label

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


def test_a_label_is_found_on_kubelets_command_line_alone(tmp_path: Path) -> None:
    place(tmp_path, "proc/7/comm", "bash\n")
    place(tmp_path, "proc/7/cmdline", f"grep\0--node-labels={LABEL}\0")
    assert not has_label(LABEL, f"{tmp_path}/")
    place(tmp_path, "proc/8/comm", "kubelet\n")
    place(tmp_path, "proc/8/cmdline", f"kubelet\0--node-labels=a=b,{LABEL}\0")
    assert has_label(LABEL, f"{tmp_path}/")


@pytest.mark.parametrize("other", ["kubernetes.azure.com/ebpf-host-routing=false", f"my.{LABEL}", f"{LABEL}-ish", f"\n# {LABEL}"])
def test_another_label_is_not_taken_for_it(tmp_path: Path, other: str) -> None:
    place(tmp_path, "etc/default/kubelet", f"KUBELET_NODE_LABELS={other}\n")
    assert not has_label(LABEL, f"{tmp_path}/")
