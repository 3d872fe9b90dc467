# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""A running node or an image of one, and how that is told.

In doubt it is an image: one that is taken for a node would have its builder's kernel changed, a node that is taken for an
image gets what its next boot loads.
"""

from __future__ import annotations

import re
import typing as t

MODES = ("auto", "runtime", "image")
BUILDS = re.compile(r"(^|\.)(chroot|buildah)$")
ENTERS = re.compile(r"(^|\.)nsenter$")
PACKER = ("packer_build_name", "packer_builder_type")  # what its provisioner gives each playbook

# What a pod with hostPID and hostNetwork shares with its node: its network brings the node's name along. buildah's isolation
# "chroot" has a uts of its own, its others a pid; a plain chroot has nothing of its own.
SHARED = frozenset({"net", "pid", "uts"})
# What a runtime gives such a pod nevertheless, and nobody a chroot: one of these at least.
APART = frozenset({"cgroup", "ipc"})

# What systemctl(1) prints under is-system-running where systemd answers it. "offline" is said where systemd is not asked,
# "unknown" where it does not answer, and a stub of an image build, as /bin/true, says nothing.
ANSWERS = frozenset({"initializing", "starting", "running", "degraded", "maintenance", "stopping"})

KINDS = (*sorted(APART | SHARED), "mnt")

ASK = f"""\
command -v systemctl > /dev/null && echo "state $(systemctl is-system-running 2> /dev/null)"
for kind in {" ".join(KINDS)}; do
  echo "$kind $(readlink /proc/self/ns/$kind) $(readlink /proc/1/ns/$kind)"
done
test ! -d /proc/1/root/run/systemd/system || echo systemd
"""


class Verdict(t.NamedTuple):
    is_image: bool
    reason: str


class Seen(t.NamedTuple):
    """What the node answered to ASK.

    state: what ``systemctl is-system-running`` prints; None where there is no systemctl.
    has_proc: whether there is a /proc, without which systemctl can not tell a chroot.
    shared, own: kinds of namespaces that are process 1's, or others. Where process 1's can not be read, they are in neither.
    has_systemd: whether process 1 is systemd, or next to it: in its root is the folder by which sd_booted(3) tells.
    """

    state: str | None
    has_proc: bool = True
    shared: frozenset[str] = frozenset()
    own: frozenset[str] = frozenset()
    has_systemd: bool = False


def by_controller(mode: str, transport: str, variables: t.Container[str]) -> Verdict | None:
    """What needs no look at the node; None where that is needed. ``transport``: the connection plugin's name."""
    if mode == "runtime":
        return Verdict(False, "A running node: mode says so.")
    if mode == "image":
        return Verdict(True, "An image: mode says so.")
    if BUILDS.search(transport):
        return Verdict(True, f"An image: the connection is {transport}.")
    if any(name in variables for name in PACKER):
        return Verdict(True, "An image: Packer builds it.")
    return None


def by_node(seen: Seen, transport: str) -> Verdict:
    """What the node's systemd and namespaces tell."""
    if not seen.has_proc:
        return Verdict(True, "An image: it has no /proc.")
    if seen.state in ANSWERS:
        through = f", entered by {transport}" if ENTERS.search(transport) else ""
        return Verdict(False, f"A running node{through}: systemd runs on it.")
    if seen.has_systemd and seen.shared >= SHARED and seen.own & APART:
        return Verdict(False, "A running node: this is a container in its namespaces, as a DaemonSet's pod is.")
    if seen.state in (None, "offline"):
        return Verdict(True, "An image: systemd does not run on it.")
    said = repr(seen.state) if seen.state else "nothing"
    return Verdict(
        True,
        f"An image: `systemctl is-system-running` said {said}, which is no state of a running systemd. If this is a running"
        " node, set mode to runtime.",
    )


def parse(answer: str) -> Seen:
    """Reads the answer to ASK. What a login shell has said before it is passed over."""
    words = {line.split(" ")[0]: line.split(" ")[1:] for line in answer.splitlines()}
    namespaces = {kind: found for kind, found in words.items() if kind in KINDS and len(found) == 2}
    pairs = {kind: found for kind, found in namespaces.items() if all(found)}
    return Seen(
        words["state"][0] if "state" in words else None,
        any(here for here, _init in namespaces.values()),
        frozenset(kind for kind, (here, init) in pairs.items() if here == init),
        frozenset(kind for kind, (here, init) in pairs.items() if here != init),
        "systemd" in words,
    )
