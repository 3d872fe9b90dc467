# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What needs a kernel of its own, in a VM: version 2 of control groups, a clock that is set, and links of WireGuard."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sampling import sampled

from ansible_collections.kubenode.datapath.plugins.module_utils._platform import memory_group
from lab import Lab, Node
from lab.vm import VmNode

LIMIT = 300  # seconds for a module in an emulated machine; an idle one takes a few
HOUR = 3600
NETWORKD = "systemd-networkd.service"
FOREIGN = "/etc/systemd/networkd.conf.d/10-foreign.conf"
DROP_IN = "/etc/systemd/networkd.conf.d/90-kubenode.conf"
SETTINGS = "[Network]\nManageForeignRoutingPolicyRules=no\nManageForeignRoutes=no\n"

CONFINED = """
import json, subprocess, sys
sys.path.insert(0, "/root")
import memory_group
groups = []
for size in (8, 256):
    program = f"input(); text = b'x' * ({size} << 20)"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, text=True) as child:
        group = memory_group.confine(child.pid, 64 << 20)
        child.communicate("go on")
    groups.append([group.files.bound, group.is_exceeded(), group.peak(), child.returncode, group.folder])
    group.remove()
print(json.dumps(groups))
"""

TUNNELS = """
import socket, struct, sys
sys.path.insert(0, "/root")
from utils._netlink import attributes, packet_marks, wire
family = packet_marks._family()
mark = {2: b"wg0\\0", 7: struct.pack("=I", 51820)}  # WGDEVICE_A_IFNAME, WGDEVICE_A_FWMARK
setting = attributes.message(family, 0, packet_marks.GENL.pack(1, 1, 0) + attributes.pack(mark))  # WG_CMD_SET_DEVICE
assert not wire.exchange([setting], packet_marks._open_generic)
sender = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
sender.setsockopt(socket.SOL_SOCKET, socket.SO_MARK if hasattr(socket, "SO_MARK") else 36, 7)
sender.bind(("::1", 5300))
print(packet_marks.of_wireguard(["wg0", "wg1", "gone"]), packet_marks.of_sockets(socket.IPPROTO_UDP))
"""


@pytest.fixture(scope="module")
def node() -> Iterator[VmNode]:
    with Lab("kernel", nodes=[Node("node1", system="bookworm", vm=True)]) as lab:
        yield lab.node("node1")


@pytest.fixture
def clock(node: VmNode) -> Iterator[VmNode]:
    """The node, whose networkd runs. Its clock is set back at the end."""
    node.run(["systemctl", "start", NETWORKD])
    yield node
    node.run(["sh", "-c", f"rm -f {FOREIGN} {DROP_IN}; systemctl stop {NETWORKD}; hwclock --hctosys"])


def test_a_group_of_version_2_bounds_the_memory_and_goes(node: VmNode) -> None:
    """Beside the group of the session, as version 2 admits no bounds within a group that has processes."""
    node.write("/root/memory_group.py", Path(memory_group.__file__).read_text())
    small, large = json.loads(node.run(["python3", "-c", CONFINED]).stdout)
    assert (small[0], large[0]) == ("memory.max", "memory.max")
    assert (small[1], small[3]) == (False, 0) and (large[1], large[3]) == (True, -9)
    assert all(peak is None or peak <= 64 << 20 for peak in (small[2], large[2]))  # Linux counts it since 5.19
    assert not node.exists(small[4]) and not node.exists(large[4])


def is_changed(node: VmNode, **options: Any) -> bool:
    result = node.module("network_daemons", options, timeout=LIMIT)
    assert not result["failed"], result
    return bool(result["changed"])


def advance(node: VmNode, seconds: int) -> None:
    node.run(["date", "--set", f"{seconds} seconds"])


@pytest.mark.parametrize("jump", sampled([HOUR, -HOUR], lambda jump: jump < 0))
def test_a_clock_that_is_set_after_a_run_restarts_networkd_at_most_once(clock: VmNode, jump: int) -> None:
    assert is_changed(clock)
    advance(clock, jump)
    is_changed(clock)
    assert not is_changed(clock)


@pytest.mark.parametrize(("before", "after"), sampled([(0, HOUR), (-HOUR, 0), (0, -HOUR)], lambda jump: jump[1] < 0))
def test_what_networkd_has_not_read_is_never_taken_for_read(clock: VmNode, before: int, after: int) -> None:
    """before, after: how far the clock is set before and after the file is written."""
    advance(clock, before)
    clock.run(["mkdir", "-p", FOREIGN.rpartition("/")[0]])
    clock.write(FOREIGN, SETTINGS)
    advance(clock, after)
    assert is_changed(clock)


def test_the_marks_of_wireguard_links_and_of_sockets_are_read(node: VmNode) -> None:
    utils = Path(memory_group.__file__).parent.parent
    for file in ("_core/errors.py", *(f"_netlink/{name}.py" for name in ("attributes", "packet_marks", "sock_diag", "wire"))):
        node.run(["mkdir", "-p", f"/root/utils/{file.partition('/')[0]}"])
        node.write(f"/root/utils/{file}", (utils / file).read_text())
    node.ip(["link add wg0 type wireguard", "link add wg1 type wireguard"])
    assert node.run(["python3", "-c", TUNNELS]).stdout == "{'wg0': 51820} {7: 5300}\n"
