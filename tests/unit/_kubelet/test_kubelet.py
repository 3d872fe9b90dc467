# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The units that start kubelet and come after this collection's, and kubelet's settings where nodes keep them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Invalid
from ansible_collections.kubenode.datapath.plugins.module_utils._interfaces import address_unit
from ansible_collections.kubenode.datapath.plugins.module_utils._kubelet.kubelet_backend import has_label, services
from ansible_collections.kubenode.datapath.plugins.module_utils._kubelet.kubelet_units import EARLIER, STARTERS, others
from ansible_collections.kubenode.datapath.plugins.module_utils._listener import policy_unit
from ansible_collections.kubenode.datapath.plugins.module_utils._nftables import table_unit
from ansible_collections.kubenode.datapath.plugins.module_utils._systemd.boot_unit import BootUnit

CONDITION = table_unit.BootCondition("imds", "eth0", "/usr/bin/python3", "/etc/t.pyz")
MORE = ("my.service", "your.target")
UNITS = [
    table_unit.unit("ip6", "t", "/etc/t", before=MORE),
    table_unit.unit("ip6", "t", "/etc/t", CONDITION, before=MORE),
    policy_unit.unit(75, "/etc/x", "/usr/bin/python3", "/etc/x.pyz", before=MORE),
    address_unit.unit("eth1", ["10.0.1.10/32 dev eth1"], before=MORE),
]
each_unit = pytest.mark.parametrize("unit", UNITS, ids=["table", "table with a condition", "routes", "addresses"])


def units_of(key: str, unit: BootUnit) -> set[str]:
    """The units after all ``key=`` of a unit."""
    return {word for line in re.findall(rf"^{key}=(.*)$", unit.text, re.MULTILINE) for word in line.split()}


@each_unit
def test_each_unit_comes_before_all_that_starts_kubelet(unit: BootUnit) -> None:
    assert {*STARTERS, *MORE} <= units_of("Before", unit)


@each_unit
def test_what_a_unit_comes_after_is_refused_in_before(unit: BootUnit) -> None:
    after = {name for name in units_of("After", unit) if not name.endswith(".device")}
    assert after <= EARLIER
    for name in (*after, "sysinit.target", "basic.target"):
        with pytest.raises(Invalid, match=re.escape("before[0] must be a unit that starts later in the boot than")):
            others([name])


@pytest.mark.parametrize(
    "name",
    ["my-kubelet.service", "k3s-prod.service", "kube@node:1.service", r"a\x2db.service", "kubernetes.target", "a.b_c.service"],
)
def test_names_of_services_and_targets_are_taken(name: str) -> None:
    assert others([name]) == (name,)


@pytest.mark.parametrize(
    "name",
    [
        *("", "kubelet", ".service", "my.timer", "a b.service", "a.service\n", "a\nb.service", "%i.service", "kubelet@.service"),
        *("@a.service", "a/b.service", "a;b.service", f"{'a' * 248}.service"),
    ],
)
def test_a_word_that_is_no_service_or_target_is_refused(name: str) -> None:
    with pytest.raises(Invalid, match=r"^before\[1\] must be the name of a systemd unit that ends with .service or .target"):
        others(["my.service", name])


@each_unit
def test_a_unit_of_this_collection_is_refused_in_before(unit: BootUnit) -> None:
    with pytest.raises(Invalid, match=r"^before\[0\] must be a unit that starts kubelet, and not one of this collection"):
        others([unit.name])


@pytest.mark.parametrize("given", [None, [], ["kubelet.service"], ["k3s.service", "rke2-agent.service"]])
def test_a_unit_that_is_known_adds_nothing(given: list[str] | None) -> None:
    assert others(given) == ()


def test_the_option_is_a_set() -> None:
    assert others(["b.service", "a.service", "b.service"]) == others(["a.service", "b.service"]) == ("a.service", "b.service")


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
