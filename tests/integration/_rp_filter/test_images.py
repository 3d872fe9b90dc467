# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""rp_filter on images that are strict by their files: what it says of the next boot is what the boot's own tools do."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from sampling import sampled

from lab import Lab, steps
from lab.node import NamespaceNode
from lab.steps import warnings

PATH = "/etc/sysctl.d/90-kubenode-rp-filter.conf"
MODES = {"off": 0, "strict": 1, "loose": 2}
TOOLS = {"At the next boot": "/usr/lib/systemd/systemd-sysctl", "at the next `sysctl --system`": "sysctl --system"}


def lines(**values: int) -> str:
    names = {"every": "*"}
    return "".join(f"net.ipv4.conf.{names.get(name, name)}.rp_filter = {value}\n" for name, value in values.items())


STRICT = lines(all=1, default=1)
CILIUM = "-net.ipv4.conf.lxc*.rp_filter = 0\n-net.ipv4.conf.cilium_*.rp_filter = 0\nnet.ipv4.conf.all.rp_filter = 0\n"
# The files of an image, and that of them which decides about conf/all at boot, if it is not 0.
IMAGES: dict[str, tuple[dict[str, str], str]] = {
    "Azure Linux 4": (
        {"/usr/lib/sysctl.d/70-azurelinux-hardening.conf": lines(all=1, default=1, every=1)},
        "/usr/lib/sysctl.d/70-azurelinux-hardening.conf",
    ),
    "CIS on Ubuntu": (
        {"/etc/sysctl.d/10-network-security.conf": lines(default=2, all=2), "/etc/sysctl.d/99-sysctl.conf": STRICT},
        "/etc/sysctl.d/99-sysctl.conf",
    ),
    "CIS on RHEL": (
        {
            "/usr/lib/sysctl.d/50-redhat.conf": lines(default=1, every=1) + "-net.ipv4.conf.all.rp_filter\n",
            "/etc/sysctl.d/60-netipv4_sysctl.conf": STRICT,
        },
        "/etc/sysctl.d/60-netipv4_sysctl.conf",
    ),
    "image-builder on Ubuntu": (
        {"/usr/lib/sysctl.d/50-default.conf": lines(default=2, every=2), "/etc/sysctl.d/99-kubernetes.conf": lines(all=1)},
        "/etc/sysctl.d/99-kubernetes.conf",
    ),
    "Ubuntu": ({"/etc/sysctl.d/10-network-security.conf": lines(default=2, all=2)}, "/etc/sysctl.d/10-network-security.conf"),
    "a CNI's file, and sysctl.conf": (
        {"/etc/sysctl.d/99-zzz-override_cilium.conf": CILIUM, "/etc/sysctl.conf": lines(all=1, every=1)},
        "/etc/sysctl.conf",
    ),
    "AKS Flex Node": (
        {"/etc/sysctl.d/999-sysctl-aks.conf": lines(all=0, default=0), "/etc/sysctl.conf": lines(all=1, every=1)},
        "/etc/sysctl.conf",
    ),
}  # fmt: skip

run, refused, four_steps = steps.of("rp_filter")


@pytest.fixture
def node(lab: Lab) -> NamespaceNode:
    node = lab.node("node1")
    clear = "rm -rf /etc/sysctl.d/* /etc/sysctl.conf /run/sysctl.d; mount -t tmpfs tmpfs /usr/lib/sysctl.d"
    node.run(["sh", "-c", f"{clear}; mount -t tmpfs tmpfs /usr/local/lib"])
    return node


def effective(node: NamespaceNode) -> int:
    return max(int(node.read(f"/proc/sys/net/ipv4/conf/{name}/rp_filter")) for name in ("all", "eth0"))


EACH_ONCE = [*zip(IMAGES, itertools.cycle(MODES))]


@pytest.mark.parametrize(("image", "mode"), sampled(itertools.product(IMAGES, MODES), lambda pair: pair in EACH_ONCE))
def test_the_next_boot_is_foretold(node: NamespaceNode, image: str, mode: str) -> None:
    files, decider = IMAGES[image]
    for path, text in files.items():
        node.write(path, text)
    tool = "At the next boot" if decider != "/etc/sysctl.conf" else "at the next `sysctl --system`"
    node.run(["sh", "-c", f"{TOOLS[tool]} > /dev/null"])
    before = node.snapshot()
    desired: dict[str, Any] = {"interfaces": ["eth0"], "mode": mode}
    every = int(node.read("/proc/sys/net/ipv4/conf/all/rp_filter"))
    if every > MODES[mode]:
        error = refused(node, **desired)
        assert (
            f"of {decider} sets it to {every} {tool.lower()}" in error and "set raise_all to true: then every other link" in error
        )
        desired["raise_all"] = True
    said = warnings(four_steps(node, **desired))
    for occasion, command in TOOLS.items():
        if not any(occasion.lower() in warning.lower() for warning in said):
            node.run(["sh", "-c", f"{command} > /dev/null"])
            assert effective(node) == MODES[mode], occasion
            assert not run(node, **desired)["changed"]
    assert all(any(path in warning for path in files) for warning in said)
    run(node, state="absent")
    node.run(["sh", "-c", f"{TOOLS[tool]} > /dev/null"])
    assert node.snapshot() == before


def test_a_value_that_no_file_sets_is_a_programs(node: NamespaceNode) -> None:
    node.set_sysctls({"net.ipv4.conf.all.rp_filter": 1})
    assert "No file of sysctl.d sets net.ipv4.conf.all.rp_filter so: a program wrote it." in refused(
        node, interfaces=["eth0"], mode="off"
    )
