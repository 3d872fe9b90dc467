# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Decides whether a host is a running node or an image of one.

In doubt the verdict is "image". If an image were treated as a node, the run would change its builder's kernel; a node that is
treated as an image still gets the files that its next boot loads.
"""

from __future__ import annotations

import re
import typing as t

from .._core.option import permitted

MODES = ("auto", "runtime", "image")
MODE = permitted("str", "auto", choices=MODES)  # the option of modules and roles
BUILDS = re.compile(r"(^|\.)(chroot|buildah)$")
ENTERS = re.compile(r"(^|\.)nsenter$")
PACKER = ("packer_build_name", "packer_builder_type")  # variables that its provisioner gives each playbook

# Namespaces that a pod with hostPID and hostNetwork shares with its node; hostNetwork implies the uts namespace. buildah's
# isolation "chroot" has its own uts namespace, its other isolations have their own pid; a plain chroot has none of its own.
SHARED = frozenset({"net", "pid", "uts"})
# Namespaces of which a container runtime gives such a pod at least one of its own; a chroot has neither of its own.
APART = frozenset({"cgroup", "ipc"})

# What `systemctl is-system-running` prints if systemd answers (systemctl(1)). It prints "offline" if systemd is not asked and
# "unknown" if systemd does not answer. A stub in an image build, such as /bin/true, prints nothing.
ANSWERS = frozenset({"initializing", "starting", "running", "degraded", "maintenance", "stopping"})

KINDS = (*sorted(APART | SHARED), "mnt")

# Without a newline at its end: ansible-core 2.19 appends " && sleep 0" to a command.
ASK = f"""\
command -v systemctl > /dev/null && echo "state $(systemctl is-system-running 2> /dev/null)"
for kind in {" ".join(KINDS)}; do
  echo "$kind $(readlink /proc/self/ns/$kind) $(readlink /proc/1/ns/$kind)"
done
test ! -d /proc/1/root/run/systemd/system || echo systemd"""


class ModeVerdict(t.NamedTuple):
    is_image: bool
    reason: str

    @property
    def mode(self) -> str:
        """Return the mode that says the same as the verdict."""
        return "image" if self.is_image else "runtime"


class Answer(t.NamedTuple):
    """The node's answer to ASK.

    state: what ``systemctl is-system-running`` prints; None if there is no systemctl.
    has_proc: whether there is a /proc, without which systemctl cannot recognise a chroot.
    shared, separate: kinds of namespaces that are the same as process 1's, or others. A kind is in neither if process 1's cannot
        be read.
    has_systemd: whether systemd manages the root of process 1: it contains the folder that sd_booted(3) looks for.
    """

    state: str | None
    has_proc: bool = True
    shared: frozenset[str] = frozenset()
    separate: frozenset[str] = frozenset()
    has_systemd: bool = False


def by_controller(mode: str, transport: str, variables: t.Container[str]) -> ModeVerdict | None:
    """Return the verdict without asking the node; None if the node must be asked. transport: the connection plugin's name."""
    if mode == "runtime":
        return ModeVerdict(False, "A running node: mode says so.")
    if mode == "image":
        return ModeVerdict(True, "An image: mode says so.")
    if BUILDS.search(transport):
        return ModeVerdict(True, f"An image: the connection is {transport}.")
    if any(name in variables for name in PACKER):
        return ModeVerdict(True, "An image: Packer builds it.")
    return None


def by_node(node: Answer, transport: str) -> ModeVerdict:
    """Return the verdict from the node's systemd and namespaces."""
    if not node.has_proc:
        return ModeVerdict(True, "An image: it has no /proc.")
    if node.state in ANSWERS:
        return ModeVerdict(False, with_transport("A running node: systemd runs on it.", transport))
    if node.has_systemd and node.shared >= SHARED and node.separate & APART:
        return ModeVerdict(False, "A running node: this is a container in its namespaces, as a DaemonSet's pod is.")
    if node.state in (None, "offline"):
        return ModeVerdict(True, "An image: systemd does not run on it.")
    state = repr(node.state) if node.state else "nothing"
    return ModeVerdict(
        True,
        f"An image: `systemctl is-system-running` said {state}, which is no state of a running systemd. If this is a running"
        " node, set mode to runtime.",
    )


def with_transport(reason: str, transport: str) -> str:
    """Return the reason with the connection by which the node was entered."""
    return reason.replace("node:", f"node, entered by {transport}:", 1) if ENTERS.search(transport) else reason


def parse(text: str) -> Answer:
    """Read the answer to ASK. Skips what a login shell printed before it."""
    words = {line.split(" ")[0]: line.split(" ")[1:] for line in text.splitlines()}
    namespaces = {kind: (values[0], values[1]) for kind, values in words.items() if kind in KINDS and len(values) == 2}
    return answer_of(words["state"][0] if "state" in words else None, namespaces, "systemd" in words)


def answer_of(state: str | None, namespaces: t.Mapping[str, tuple[str, str]], has_systemd: bool) -> Answer:
    """Make the answer from its parts. namespaces: by kind, this process's and process 1's; empty for one that cannot be read."""
    pairs = {kind: pair for kind, pair in namespaces.items() if all(pair)}
    return Answer(
        state,
        any(here for here, _init in namespaces.values()),
        frozenset(kind for kind, (here, init) in pairs.items() if here == init),
        frozenset(kind for kind, (here, init) in pairs.items() if here != init),
        has_systemd,
    )
