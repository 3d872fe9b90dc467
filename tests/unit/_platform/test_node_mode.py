# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which machine a run is on: a running node or an image, and that of which Node object."""

from __future__ import annotations

import subprocess

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Refusal
from ansible_collections.kubenode.datapath.plugins.module_utils._platform import machine_guards, node_mode
from ansible_collections.kubenode.datapath.plugins.module_utils._platform.machine_guards import MACHINE, UUID
from ansible_collections.kubenode.datapath.plugins.module_utils._platform.node_mode import Answer, ModeVerdict

# A running node differs from an image by what the controller knows, or else by systemd and the node's namespaces


KINDS = frozenset({"cgroup", "ipc", "mnt", "net", "pid", "uts"})
RUNTIME, IMAGE = False, True


@pytest.mark.parametrize(
    ("mode", "transport", "variables", "told"),
    [
        ("runtime", "community.general.chroot", {"packer_build_name"}, RUNTIME),
        ("image", "ssh", (), IMAGE),
        ("auto", "chroot", (), IMAGE),
        ("auto", "community.general.chroot", (), IMAGE),
        ("auto", "containers.podman.buildah", (), IMAGE),
        ("auto", "ssh", {"packer_build_name"}, IMAGE),
        ("auto", "ssh", {"packer_builder_type"}, IMAGE),
        ("auto", "local", (), None),
        ("auto", "ssh", {"packer_version"}, None),
        ("auto", "example.tools.chrooted", (), None),
        ("auto", "community.docker.nsenter", (), None),
    ],
)
def test_the_controller_decides_where_it_can(mode: str, transport: str, variables: set[str], told: bool | None) -> None:
    verdict = node_mode.by_controller(mode, transport, variables)
    assert (verdict and verdict.is_image) is told


def answer(state: str | None, separate: str = "", has_systemd: bool = True, unreadable: str = "") -> Answer:
    """``separate``: kinds of namespaces that are not process 1's; ``unreadable``: those that cannot be compared."""
    apart, hidden = frozenset(separate.split()), frozenset(unreadable.split())
    return Answer(state, True, KINDS - apart - hidden, apart, has_systemd)


SYSTEMD = "A running node: systemd runs on it."
CONTAINER = "A running node: this is a container in its namespaces, as a DaemonSet's pod is."
NO_SYSTEMD = "An image: systemd does not run on it."
NO_ANSWER = (
    "An image: `systemctl is-system-running` said {}, which is no state of a running systemd. If this is a running node, set"
    " mode to runtime."
)


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        pytest.param(answer("running"), SYSTEMD, id="node"),
        pytest.param(answer("degraded"), SYSTEMD, id="node with a failed unit"),
        pytest.param(answer("starting"), SYSTEMD, id="node that boots"),
        *(pytest.param(answer(state), SYSTEMD, id=state) for state in ("initializing", "maintenance", "stopping")),
        pytest.param(answer(""), NO_ANSWER.format("nothing"), id="systemctl is a stub, as /bin/true"),
        pytest.param(answer("ok"), NO_ANSWER.format("'ok'"), id="systemctl is a stub that is polite"),
        pytest.param(answer("unknown"), NO_ANSWER.format("'unknown'"), id="systemd does not answer"),
        pytest.param(answer("", "mnt ipc"), CONTAINER, id="privileged pod with a stub"),
        pytest.param(answer("running", unreadable=" ".join(KINDS)), SYSTEMD, id="node, not as root"),
        pytest.param(answer("running", "mnt ipc cgroup"), SYSTEMD, id="pod, after chroot to the node's root"),
        pytest.param(answer("offline", "mnt ipc"), CONTAINER, id="privileged pod"),
        pytest.param(answer("offline", "mnt ipc cgroup"), CONTAINER, id="pod with a cgroup of its own"),
        pytest.param(answer("offline", "mnt cgroup"), CONTAINER, id="pod with hostIPC"),
        pytest.param(answer(None, "mnt ipc"), CONTAINER, id="pod without systemctl"),
        pytest.param(answer("offline", "mnt"), NO_SYSTEMD, id="privileged pod with hostIPC, as unshare -m"),
        pytest.param(answer("offline", "mnt ipc net"), NO_SYSTEMD, id="pod with a network of its own"),
        pytest.param(answer("offline", "mnt ipc pid"), NO_SYSTEMD, id="pod without hostPID"),
        pytest.param(answer("offline", "mnt ipc", has_systemd=False), NO_SYSTEMD, id="pod of a node without systemd"),
        pytest.param(answer("offline", "mnt ipc", unreadable="pid net"), NO_SYSTEMD, id="pod without privileges"),
        pytest.param(answer("offline"), NO_SYSTEMD, id="chroot"),
        pytest.param(answer(None), NO_SYSTEMD, id="chroot without systemd"),
        pytest.param(answer("offline", "mnt"), NO_SYSTEMD, id="unshare -m, chroot"),
        pytest.param(answer("offline", "mnt ipc uts"), NO_SYSTEMD, id="buildah --isolation chroot"),
        pytest.param(answer("offline", "mnt ipc uts cgroup"), NO_SYSTEMD, id="container with --pid host --network host"),
        pytest.param(answer("offline", has_systemd=False), NO_SYSTEMD, id="build container"),
        pytest.param(Answer("running", has_proc=False), "An image: it has no /proc.", id="chroot with /run, without /proc"),
    ],
)
def test_the_node_tells_and_in_doubt_it_is_an_image(node: Answer, reason: str) -> None:
    assert node_mode.by_node(node, "ssh") == ModeVerdict(reason.startswith("An image"), reason)


def test_a_node_that_is_entered_through_namespaces_is_said_to_be() -> None:
    verdict = node_mode.by_node(answer("running"), "community.docker.nsenter")
    assert verdict == (RUNTIME, "A running node, entered by community.docker.nsenter: systemd runs on it.")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "state running\nipc ipc:[1] ipc:[1]\nmnt mnt:[3] mnt:[2]\nsystemd\n",
            Answer("running", True, frozenset({"ipc"}), frozenset({"mnt"}), True),
        ),
        ("state offline\nipc ipc:[1] \n", Answer("offline", True)),
        ("ipc  \nmnt  \n", Answer(None, False)),
        ("Welcome to node1\n\nipc\nstate offline\nuts uts:[1] uts:[1]\n", Answer("offline", True, frozenset({"uts"}))),
        ("state \nipc ipc:[1] ipc:[1]\n", Answer("", True, frozenset({"ipc"}))),
    ],
)
def test_the_answer_is_read(text: str, expected: Answer) -> None:
    assert node_mode.parse(text) == expected


@pytest.mark.parametrize("appended", ["", " && sleep 0"], ids=["alone", "as ansible-core 2.19 completes it"])
def test_this_machine_is_asked(appended: str) -> None:
    result = subprocess.run(["sh", "-c", node_mode.ASK + appended], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")
    answered = node_mode.parse(result.stdout)
    assert answered.has_proc and answered.shared | answered.separate <= KINDS


# Whether a machine is that of a Node object


A, B = "0a" * 16, "0b" * 16
HERE = {MACHINE: A, UUID: "4C4C4544-0042"}


@pytest.mark.parametrize(
    ("identity", "observed", "reason"),
    [
        ({}, HERE, ""),
        ({"name": "node1", MACHINE: "", UUID: None}, HERE, ""),
        ({MACHINE: A}, HERE, ""),
        ({MACHINE: A.upper(), UUID: "4c4c4544-0042"}, HERE, ""),
        ({MACHINE: A, UUID: "x"}, {MACHINE: A, UUID: ""}, ""),
        ({MACHINE: A, UUID: "4c4c4544-0042"}, {**HERE, MACHINE: ""}, ""),
        ({MACHINE: B}, HERE, f"its machine id is {A}, and that of the Node object is {B}"),
        # A clone of an image that keeps its machine id.
        ({MACHINE: A, UUID: "other"}, HERE, "its system UUID is 4C4C4544-0042, and that of the Node object is other"),
        ({MACHINE: B, UUID: "4c4c4544-0042"}, HERE, f"its machine id is {A}, and"),
        ({MACHINE: A, UUID: "u"}, {MACHINE: "", UUID: ""}, f"machine id {A} and system UUID u cannot be read on it"),
        ({UUID: "u"}, {MACHINE: A, UUID: ""}, "system UUID u cannot be read on it"),
    ],
)
def test_a_machine_is_the_node_if_nothing_differs_and_something_is_equal(
    identity: dict[str, str | None], observed: dict[str, str], reason: str
) -> None:
    difference = machine_guards.difference(identity, observed)
    assert difference.startswith(reason) and bool(difference) is bool(reason)


def test_this_machine_is_itself_and_no_other() -> None:
    here = machine_guards.observe()
    machine_guards.require_node(None)
    machine_guards.require_node(here)
    with pytest.raises(Refusal, match="is not known to be the node node7: .* Nothing was changed. .*--flush-cache"):
        machine_guards.require_node({"name": "node7", MACHINE: B, UUID: "none"})
