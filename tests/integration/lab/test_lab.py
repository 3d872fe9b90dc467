# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab itself, on which every other test depends."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import Lab, LabError, Node, collection, entering
from lab.load_balancer import LINK, PROBE_SOURCE
from lab.machine import Machine
from lab.namespace import FOLDERS
from lab.node import NamespaceNode
from lab.waiting import until

# Clean-up

DOOMED = """
import sys, threading
from lab import Lab, Node

token = sys.argv[1]
lab = Lab(token, nodes=[Node("node1", pods=["pod1"]), Node("node2", pods=["pod2"])], router_advertisements=9)
node = lab.node("node1")
for folder in ("/etc", "/run", "/var/lib", "/root/.ansible"):
    node.write(f"{folder}/{token}", token)
node.ip([f"link add name {token} type veth peer name peer0"])
node.service(30080, [lab.pod("pod1").address])
lab.inventory()
for seconds in (1000, 2000):
    threading.Thread(target=node.run, args=[["sh", "-c", f": {token}; sleep {seconds}"]], daemon=True).start()
replaced = node.replace_program("/usr/sbin/nft", "#!/bin/sh\\nexit 1\\n")
print(*(machine.pid for machine in [lab.load_balancer, lab.client, *lab.nodes, *lab.pods]), flush=True)
sys.stdin.read()
"""


def processes_in(namespaces: set[str]) -> list[str]:
    """Processes, by number and name, in one of these network namespaces."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if os.readlink(process / "ns/net") in namespaces:
                found.append(f"{process.name} {(process / 'comm').read_text().strip()}")
        except OSError:
            continue  # ended meanwhile, or not readable
    return found


def processes_with(token: str) -> list[str]:
    """Processes that have the token in their environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if token.encode() in (process / "environ").read_bytes():
                found.append(process.name)
    return found


def traces(token: str) -> list[str]:
    """Objects of the host with the token: links, mounts, and names in the folders that a lab may change."""
    links = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True).stdout.splitlines()
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    folders = [*FOLDERS, "/root/.ansible", "/run/netns", "/tmp", "/var/tmp", "/dev/shm"]
    names = [f"{folder}/{name}" for folder in folders if os.path.isdir(folder) for name in os.listdir(folder)]
    return [trace for trace in [*links, *mounts, *names] if token in trace]


def test_a_killed_lab_leaves_no_process_namespace_link_mount_or_file(tmp_path: Path) -> None:
    token = f"lab{secrets.token_hex(4)}"
    doomed = subprocess.Popen(
        [sys.executable, "-c", DOOMED, token],
        env={**os.environ, "PYTHONPATH": str(collection.CHECKOUT / "tests"), "TMPDIR": str(tmp_path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert doomed.stdout is not None
    pids = [int(pid) for pid in doomed.stdout.readline().split()]
    namespaces = {entering.network_namespace(pid) for pid in pids}
    assert len(namespaces) == 6
    until("two machines sleep", lambda: sum("sleep" in process for process in processes_in(namespaces)), expected=2)

    doomed.send_signal(signal.SIGKILL)
    doomed.communicate()

    until("the namespaces have no processes", lambda: not processes_in(namespaces))
    assert traces(token) == []
    assert not {LINK, "client0", "port0", "veth-pod1", "peer0"} & set(os.listdir("/sys/class/net"))
    assert list(tmp_path.iterdir()) == []


BUILDS = {
    "packer": "from pathlib import Path; from lab import packer; packer.validate(Path('none.pkr.hcl'))",
    "mmdebstrap": "from lab import images; images.root('sid', ['none'])",
}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["terminated", "killed"])
@pytest.mark.parametrize("program", BUILDS)
def test_what_builds_an_image_ends_with_its_caller(tmp_path: Path, program: str, number: signal.Signals) -> None:
    """A stand-in's build would take an hour."""
    stand_in, begun = tmp_path / program, tmp_path / "begun"
    stand_in.write_text(f"#!/bin/sh\nsetsid sleep 3600 & touch {begun}; exec sleep 3600\n")
    stand_in.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "XDG_CACHE_HOME": str(tmp_path),
        "PYTHONPATH": str(collection.CHECKOUT / "tests"),
    }
    builder = subprocess.Popen([sys.executable, "-c", BUILDS[program]], env=environment)
    until("the build has begun", begun.exists)
    builder.send_signal(number)
    builder.wait()
    until("all processes of the build have ended", lambda: not processes_with(str(tmp_path)))


def test_a_closed_lab_has_ended_its_processes() -> None:
    with Lab("closed", nodes=[Node("node1", pods=["pod1"])]) as lab:
        machines: list[Machine] = [lab.load_balancer, lab.client, *lab.nodes, *lab.pods]
        namespaces = {entering.network_namespace(machine.pid) for machine in machines}
    assert processes_in(namespaces) == []
    with pytest.raises(LabError, match="cannot be read"):
        machines[0].run(["true"])


# The host is not entered


@pytest.fixture
def not_unshared() -> Iterator[subprocess.Popen[bytes]]:
    """A child that is still in the host's namespaces, as a node is right after its fork."""
    with subprocess.Popen(["sleep", "60"]) as child:
        yield child
        child.kill()


def test_a_process_that_has_not_unshared_is_refused(not_unshared: subprocess.Popen[bytes]) -> None:
    machine = Machine("early", not_unshared.pid)
    for enter in (lambda: machine.run(["true"]), lambda: machine.socket(socket.AF_INET6, socket.SOCK_STREAM)):
        with pytest.raises(LabError, match="refused to enter"):
            enter()


def test_process_1_is_refused_or_hidden() -> None:
    with pytest.raises(LabError, match=r"refused to enter|cannot be read"):
        Machine("process 1", 1).run(["true"])


# Properties of a node


def test_a_node_has_its_own_folders_and_links_and_the_hosts_root(lab: Lab) -> None:
    node, other = lab.nodes
    for folder in (*FOLDERS, "/root/.ansible"):
        node.write(f"{folder}/lab-own", "mine")
        assert node.read(f"{folder}/lab-own") == "mine"
        assert not other.exists(f"{folder}/lab-own")
        assert not os.path.exists(f"{folder}/lab-own")
    assert set(node.run(["ls", "/sys/class/net"]).stdout.split()) == {"lo", "eth0", "veth-pod1"}
    root = os.stat("/")
    assert node.run(["stat", "-c", "%d:%i", "/"]).stdout.strip() == f"{root.st_dev}:{root.st_ino}"


def test_a_node_does_not_reach_the_hosts_systemd(lab: Lab) -> None:
    assert not lab.node("node1").exists("/run/systemd/private")
    assert not lab.node("node1").exists("/run/dbus")


# Checksums


def send_datagram(lab: Lab, node: NamespaceNode, spoil: int) -> bool:
    """Send UDP by hand from the probe's address, its checksum off by ``spoil``; answer whether it was echoed."""
    port, payload = 7, b"question"
    with lab.load_balancer.socket(socket.AF_INET6, socket.SOCK_DGRAM) as receiver:
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, LINK.encode())
        receiver.bind((PROBE_SOURCE, 0))
        receiver.settimeout(0.3)
        header = struct.pack("!HHH", receiver.getsockname()[1], port, 8 + len(payload))
        pseudo = socket.inet_pton(socket.AF_INET6, PROBE_SOURCE) + socket.inet_pton(socket.AF_INET6, node.address)
        pseudo += struct.pack("!II", 8 + len(payload), socket.IPPROTO_UDP)
        words = struct.unpack("!%dH" % ((len(pseudo) + 6 + len(payload)) // 2), pseudo + header + payload)
        checksum = ~(sum(words) % 0xFFFF) & 0xFFFF  # RFC 1071
        with lab.load_balancer.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_UDP) as raw:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, LINK.encode())
            raw.bind((PROBE_SOURCE, 0))
            raw.sendto(header + struct.pack("!H", (checksum + spoil) & 0xFFFF) + payload, (node.address, 0))
        try:
            return receiver.recv(100) == payload
        except TimeoutError:
            return False


def test_a_wrong_checksum_is_noticed(lab: Lab, node: NamespaceNode) -> None:
    node.serve(7)
    assert send_datagram(lab, node, spoil=0)
    assert not send_datagram(lab, node, spoil=1)


# Snapshots

CHANGES = {
    "nft": (["nft", "add", "table", "ip6", "t"], ["nft", "delete", "table", "ip6", "t"]),
    "rules -6": (["ip", "-6", "rule", "add", "pref", "9", "lookup", "99"], ["ip", "-6", "rule", "del", "pref", "9"]),
    "routes -4": (
        ["ip", "route", "add", "198.51.100.0/24", "dev", "eth0", "table", "99"],
        ["ip", "route", "flush", "table", "99"],
    ),
    "addresses": (
        ["ip", "address", "add", "2001:db8::9", "dev", "lo", "nodad"],
        ["ip", "address", "del", "2001:db8::9", "dev", "lo"],
    ),
    "sysctls": (["sysctl", "-w", "net.ipv4.conf.eth0.rp_filter=2"], ["sysctl", "-w", "net.ipv4.conf.eth0.rp_filter=0"]),
    "files": (["touch", "/etc/new"], ["rm", "/etc/new"]),
}


def test_a_snapshot_tells_a_change_and_equals_the_first_when_it_is_undone(node: NamespaceNode) -> None:
    before = node.snapshot()
    for part, (do, undo) in CHANGES.items():
        node.run(do)
        changed = node.snapshot()
        assert part in {key for key in before if before[key] != changed[key]}
        node.run(undo)
        assert node.snapshot() == before, part


FILE_CHANGES = [
    "echo x >> /etc/hosts",
    "chmod 0600 /etc/hosts",
    "chown 1 /etc/hosts",
    "rm /etc/hosts",
    "rm -r /etc/default",
    "mkdir /etc/default",
    "mkdir -p /var/lib/a/b",
    "ln -s nowhere /etc/systemd/system/x.service",
    "mkfifo /run/pipe",
]


def test_a_snapshot_tells_each_change_of_a_file(node: NamespaceNode) -> None:
    before = node.snapshot()["files"]
    for change in FILE_CHANGES:
        node.run(["sh", "-c", change])
        after = node.snapshot()["files"]
        assert after != before, change
        before = after


# The connection plugin


def ansible(lab: Lab, inventory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = Path(sys.executable).with_name("ansible")
    environment = {**os.environ, **lab.ansible_environment(), "ANSIBLE_NOCOLOR": "1"}
    return subprocess.run(
        [command, "--inventory", inventory, *arguments], env=environment, text=True, capture_output=True, check=False
    )


def test_the_connection_refuses_the_host(lab: Lab, tmp_path: Path, not_unshared: subprocess.Popen[bytes]) -> None:
    inventory = lab.write_inventory(tmp_path / "hosts.json")
    pid_file = tmp_path / "pid"
    pid_file.write_text(f"{not_unshared.pid}\n")
    refused = ansible(lab, inventory, "node1", "-e", f"lab_node_pid_file={pid_file}", "-m", "ping")
    assert refused.returncode != 0
    assert "refused to enter process" in refused.stdout + refused.stderr
