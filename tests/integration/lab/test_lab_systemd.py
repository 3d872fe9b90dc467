# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes of the lab that run systemd: how they boot, what they have after each boot, and how they end."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sampling import sampled

from lab import Lab, Node, images, nft_versions
from lab.container import SystemdNode
from lab.entering import LabError
from lab.podman import Podman
from lab.prober import Prober
from lab.waiting import until

# Nodes that run systemd boot, and end with their lab as those of namespaces do


ANOTHER_LAB = """
import sys, time
from lab.container import SystemdNode
from lab.podman import Podman
podman = Podman()
node = SystemdNode("node", podman, podman.image("bookworm"))
node.start()
node.wait_until_booted()
print(podman.folder, node.pid, podman.holder, flush=True)
time.sleep(600)
"""


FAKE_MMDEBSTRAP = """#!/bin/sh
echo built >> @LOG@
for word; do case $word in */roots/*) folder=$word ;; esac; done
sleep 0.3
mkdir "$folder"
"""


# Other tests boot the other releases.
@pytest.mark.parametrize("suite", sampled(nft_versions.SUITES, lambda suite: suite == "bullseye"))
def test_a_node_of_each_release_boots_and_has_its_nft(podman: Podman, suite: str) -> None:
    node = SystemdNode(f"boots-{suite}", podman, podman.image(suite))
    node.start()
    assert node.wait_until_booted() == "running"
    assert f"v{nft_versions.SUITES[suite]} " in node.run(["nft", "--version"]).stdout
    assert [line.split()[0] for line in node.run(["ip", "-br", "link"]).stdout.splitlines()] == ["lo"]


def test_a_failed_unit_is_named(podman: Podman) -> None:
    node = SystemdNode("fails", podman, podman.image("bookworm"))
    node.start()
    node.wait_until_booted()
    _enable(node, "broken", "/bin/false")
    with pytest.raises(LabError, match=r"broken\.service"):
        node.reboot()
    assert node.wait_until_booted(states=("running", "degraded")) == "degraded"
    node.stop()
    with pytest.raises(LabError):
        node.run(["true"])


@pytest.mark.parametrize("killed", [["lab"], ["holder", "lab"]])
def test_a_killed_lab_leaves_nothing_and_disturbs_no_other(podman: Podman, killed: list[str]) -> None:
    bystander = SystemdNode(f"bystander-{len(killed)}", podman, podman.image("bookworm"))
    bystander.start()
    bystander.wait_until_booted()
    lab = subprocess.Popen([sys.executable, "-c", ANOTHER_LAB], stdout=subprocess.PIPE, text=True, env=_environment())
    assert lab.stdout is not None
    folder, node, holder = lab.stdout.readline().split()
    pids = {"lab": lab.pid, "holder": int(holder)}
    for name in killed:
        os.kill(pids[name], signal.SIGKILL)
    lab.wait()
    lab.stdout.close()
    if "holder" in killed:  # then the next lab cleans up
        Podman().close()
    until(f"{folder} is removed", lambda: not Path(folder).exists(), pause=0.1)
    until("the node has ended", lambda: not Path("/proc", node).exists(), pause=0.1)
    assert folder not in Path("/proc/mounts").read_text()
    assert bystander.wait_until_booted() == "running"


def test_a_lab_that_cannot_be_removed_does_not_hold_up_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a failed removal printed was taken for the end of a lab that had just begun, which then waited for ever."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    left = tmp_path / "kubenode-datapath/containers/0-left"
    foreign = left / "foreign"
    foreign.mkdir(parents=True)
    (left / "lock").touch()
    subprocess.run(["mount", "-t", "tmpfs", "none", foreign], check=True)
    try:
        Podman().close()
        assert foreign.exists()
    finally:
        subprocess.run(["umount", foreign], check=True)
    Podman().close()
    assert not left.exists()


def test_the_machine_s_own_podman_knows_nothing_of_it(podman: Podman) -> None:
    node = SystemdNode("unknown", podman, podman.image("bookworm"))
    listed = subprocess.run(["podman", "ps", "--all", "--format", "{{.Names}}"], capture_output=True, text=True, check=False)
    assert node.name not in listed.stdout.split()


def test_two_builders_build_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    fake = tmp_path / "bin" / "mmdebstrap"
    fake.parent.mkdir()
    fake.write_text(FAKE_MMDEBSTRAP.replace("@LOG@", f"{tmp_path}/log"))
    fake.chmod(0o755)
    code = "from lab import images; print(images.root('bookworm', ['a']))"
    environment = {**_environment(), "PATH": f"{fake.parent}:{os.environ['PATH']}"}
    half = tmp_path / "kubenode-datapath/roots" / f".{images.key('bookworm', ['a'])}.unfinished"
    half.mkdir(parents=True)  # as after a killed build
    build = [sys.executable, "-c", code]
    builders = [subprocess.Popen(build, stdout=subprocess.PIPE, text=True, env=environment) for _builder in range(2)]
    answers = {builder.communicate()[0].splitlines()[-1] for builder in builders}
    assert len(answers) == 1
    assert Path(answers.pop()).is_dir()
    assert (tmp_path / "log").read_text() == "built\n"
    assert not half.exists()


def _enable(node: SystemdNode, name: str, command: str) -> None:
    """Enables a unit that starts early, as a unit before kubelet must."""
    text = f"[Service]\nType=oneshot\nExecStart={command}\n[Install]\nWantedBy=sysinit.target\n"
    node.write(f"/etc/systemd/system/{name}.service", text)
    node.run(["systemctl", "enable", f"{name}.service"])


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path(images.__file__).parents[1])}


# A node that runs systemd has the links of the lab and its own programs after each of its boots


UNIT = """
[Unit]
DefaultDependencies=no
Before=sysinit.target
{more}
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart={command}
[Install]
WantedBy=sysinit.target
"""


@pytest.fixture(scope="module")
def running() -> Iterator[Lab]:
    """A node that boots and one that does not, side by side."""
    nodes = [Node("node1", pods=["pod1", "pod2"], system="bookworm"), Node("node2", pods=["pod3"])]
    with Lab("boot", nodes=nodes) as lab:
        yield lab


@pytest.fixture
def node(running: Lab) -> Iterator[SystemdNode]:
    node: SystemdNode = running.node("node1")
    yield node
    node.forget_services()
    node.run(["sh", "-c", "systemctl disable --quiet early kubelet; rm -f /etc/systemd/system/early.service"], check=False)
    node.run_from_host(["nft", "flush", "ruleset"])


def enable(node: SystemdNode, command: str, more: str = "") -> None:
    node.write("/etc/systemd/system/early.service", UNIT.format(command=command, more=more))
    node.run(["systemctl", "enable", "--quiet", "early.service"])


def reboot_from_inside(node: SystemdNode) -> None:
    before = node.pid
    node.run(["systemctl", "reboot"], check=False)  # the command's own end is part of the reboot
    node.follow_reboot(before)


@pytest.mark.parametrize("reboot", [SystemdNode.reboot, reboot_from_inside], ids=["by the lab", "by itself"])
def test_a_reboot_loses_tables_and_listeners_and_brings_the_network_back(
    running: Lab, node: SystemdNode, reboot: Callable[[SystemdNode], None]
) -> None:
    before = node.snapshot()
    endpoints = [pod.address for pod in node.pods]
    node.module("nftables_probe_snat", {"permanent": False})
    node.ip(["rule add priority 77 table 77"])
    node.service(30080, endpoints, health_check_node_port=32000)
    assert node.snapshot() != before
    with node.socket(socket.AF_INET6, socket.SOCK_DGRAM):  # a process still holds the network of the boot before
        reboot(node)
    assert node.snapshot() == before
    for pod in running.pods:
        assert Prober(node).icmp(pod.address, timeout=1.0, tries=1)
    assert running.client.fetch(node.address, 32000, timeout=0.3) is None
    node.service(30081, endpoints, health_check_node_port=32000)
    assert running.client.fetch(node.address, 32000) is not None
    assert running.client.fetch(node.address, 30081) is not None
    assert running.client.fetch(node.address, 30080, timeout=0.3) is None


CHANGES = [
    ("files", "touch /etc/new"),
    ("files", "touch /var/lib/new"),
    ("files", "chmod 0700 /etc/default"),
    ("files", "systemctl mask --runtime --quiet systemd-pstore"),
    ("packages", "dpkg --remove --force-depends libjansson4"),
    ("rules -4", "ip rule add priority 9 lookup 99"),
    ("sysctls", "sysctl -q -w net.ipv4.conf.eth0.log_martians=1"),
]


def test_a_snapshot_tells_each_change() -> None:
    with Lab("snapshot", nodes=[Node("node1", system="bookworm")]) as lab:
        node = lab.node("node1")
        node.run(["apt-mark", "manual", "libjansson4"])
        before = node.snapshot()
        assert node.snapshot() == before
        for part, change in CHANGES:
            node.run(["sh", "-c", change])
            after = node.snapshot()
            assert [key for key in before if before[key] != after[key]][-1] == part, change
            before = after


# Kubelet's stand-in


def test_kubelets_stand_in_tells_whether_the_table_was_there_before_it(node: SystemdNode) -> None:
    node.place_kubelet_stand_in()
    assert node.kubelet_starts() == []
    node.reboot()
    load = "/usr/sbin/nft add table ip6 early"
    enable(node, f"/bin/sh -c 'sleep 0.3; {load}'", more="Before=kubelet.service")
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    node.reboot()
    after = time.clock_gettime(time.CLOCK_BOOTTIME)
    without, with_table = node.kubelet_starts()
    assert without.tables == ()
    assert with_table.tables == ("ip6 early",)
    assert without.clock < before < with_table.clock < after
    assert node.run(["systemctl", "is-active", "kubelet"]).stdout == "active\n"
