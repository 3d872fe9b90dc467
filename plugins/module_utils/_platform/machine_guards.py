# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Guards for a machine that is not the Node that a run means, and for a root that the running kernel does not belong to.

An SSH host key proves an address, not the name of a node. A chroot, an image in the making and a pod have a root of their own.
"""

from __future__ import annotations

import os
import typing as t

from .._core.errors import Refusal
from .._core.option import Option, Options
from . import kernel


def require_own_root(desired: str = "immediate is true", remedy: str = "Set immediate to false here") -> t.Iterable[str]:
    """Refuse to change the running kernel from a root that does not belong to it.

    desired: the option that asks for the change, for the error. remedy: what to do.
    """
    if not kernel.is_own_root():
        raise Refusal(
            f"{desired}, but this root is not process 1's (a chroot, an image that is being built, or a container): the"
            f" running kernel is another system's. Nothing was changed. {remedy}; or, in a pod on its node, enter the"
            " node's root, by the connection kubenode.datapath.nsenter or by a chroot into it"
        )
    return ()


MACHINE, UUID = "machine_id", "system_uuid"
# The option of a module. All values are as the Node object has them, in status.nodeInfo.
OPTION: Options = {"identity": Option("dict", entries={name: Option("str") for name in ("name", MACHINE, UUID)})}
# Where kubelet reads them (google/cadvisor, utils/sysinfo and machine/machine.go). Its boot id changes with each boot, which the
# Node object shows late. Root alone reads the UUID.
FILES = {MACHINE: ("/etc/machine-id", "/var/lib/dbus/machine-id"), UUID: ("/sys/class/dmi/id/product_uuid",)}
NAMES = {MACHINE: "machine id", UUID: "system UUID"}


def require_node(identity: t.Mapping[str, str | None] | None) -> None:
    """Refuse to run on another machine than that of a Node object. identity: the option; None for no comparison."""
    reason = difference(identity or {}, observe())
    if reason:
        raise Refusal(
            f"this machine, which calls itself {os.uname().nodename}, is not known to be the node"
            f" {(identity or {}).get('name') or 'of the inventory'}: {reason}. Nothing was changed. Correct the addresses of the"
            " Node object; if the machine was replaced, list the nodes again with --flush-cache; if its kubelet runs in a"
            " container with a machine id of its own, set kubenode_machine_id and kubenode_system_uuid to '' by compose in the"
            " file of the inventory"
        )


def difference(identity: t.Mapping[str, str | None], observed: t.Mapping[str, str]) -> str:
    """Return why the observed machine is not, or may not be, that of a Node object; empty if it is, or if nothing is expected."""
    expected = {name: (identity.get(name) or "").lower() for name in FILES}
    compared = [name for name in FILES if expected[name] and observed[name]]
    for name in compared:
        if expected[name] != observed[name].lower():
            return f"its {NAMES[name]} is {observed[name]}, and that of the Node object is {expected[name]}"
    if compared or not any(expected.values()):
        return ""
    return " and ".join(f"{NAMES[name]} {expected[name]}" for name in FILES if expected[name]) + " cannot be read on it"


def observe() -> dict[str, str]:
    """Return the machine id and the system UUID; empty for one that cannot be read."""
    return {name: next((line for path in paths for line in kernel.lines(path)), "").strip() for name, paths in FILES.items()}
