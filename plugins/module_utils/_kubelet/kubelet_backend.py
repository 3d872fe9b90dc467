# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Facts about the node's kubelet: its labels, from configuration files and command line, and the services that run it."""

from __future__ import annotations

import functools
import re

from .._files import files
from .._platform import processes

# AKS writes KUBELET_NODE_LABELS to /etc/default/kubelet; kubeadm's drop-in and rpm distributions use the others.
CONFIGURATION = ("etc/default/kubelet", "etc/sysconfig/kubelet")
DROP_INS = "etc/systemd/system/kubelet.service.d"
KUBELET = "kubelet"
# k3s and MicroK8s run kubelet as a part of a larger process (k3s-io/k3s, cmd/k3s/main.go).
PROCESSES = (KUBELET, "k3s-server", "k3s-agent", "kubelite")


def has_label(label: str, root: str = "/") -> bool:
    """Return whether kubelet registers the node with ``label``, a "key=value"."""
    word = re.compile(rf"(?<![\w./-]){re.escape(label)}(?![\w./-])")
    lines = (line for text in _sources(root) for line in text.splitlines() if not line.lstrip().startswith("#"))
    return any(word.search(line) for line in lines)


def services(root: str = "/") -> set[str]:
    """Return the systemd services that kubelet's processes belong to, by their control groups."""
    names = (_service(files.text_or_empty(f"{root}proc/{pid}/cgroup")) for pid in _running(root))
    return {service for service in names if service}


def _service(groups: str) -> str:
    """Return the service in the text of a /proc/PID/cgroup; empty for none.

    In systemd's hierarchy, named or cgroup v2's, the first component that is no slice is a unit. The groups below it are the
    unit's own, or those of a container in it.
    """
    for line in groups.splitlines():
        _number, controllers, path = (line.split(":", 2) + ["", ""])[:3]
        if controllers in ("", "name=systemd"):
            unit = next((name for name in path.split("/") if name and not name.endswith(".slice")), "")
            if unit.endswith(".service"):
                return unit
    return ""


@functools.cache
def _running(root: str) -> dict[str, str]:
    """Return the names of kubelet's processes by pid.

    Looked for once in a run, because it takes a file of each process of the node.
    """
    return processes.named(PROCESSES, f"{root}proc")


def _sources(root: str) -> list[str]:
    paths = [root + name for name in CONFIGURATION]
    paths += [f"{root}{DROP_INS}/{name}" for name in files.names_or_none(root + DROP_INS) if name.endswith(".conf")]
    command_lines = [files.text_or_empty(f"{root}proc/{pid}/cmdline") for pid, name in _running(root).items() if name == KUBELET]
    return [*map(files.text_or_empty, paths), *command_lines]
