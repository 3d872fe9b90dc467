# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""The node labels that kubelet was given, from its configuration files and its command line."""

from __future__ import annotations

import os
import re

from .._platform import files

# AKS writes KUBELET_NODE_LABELS to /etc/default/kubelet; kubeadm's drop-in and rpm distributions use the others.
CONFIGURATION = ("etc/default/kubelet", "etc/sysconfig/kubelet")
DROP_INS = "etc/systemd/system/kubelet.service.d"


def has_label(label: str, root: str = "/") -> bool:
    """True if kubelet registers the node with ``label``, a "key=value".

    A node runs hundreds of processes. Reading them with pathlib would double the work of a run that changes nothing.
    """
    word = re.compile(rf"(?<![\w./-]){re.escape(label)}(?![\w./-])")
    lines = (line for text in _sources(root) for line in text.splitlines() if not line.lstrip().startswith("#"))
    return any(word.search(line) for line in lines)


def _sources(root: str) -> list[str]:
    paths = [root + name for name in CONFIGURATION]
    paths += [f"{root}{DROP_INS}/{name}" for name in _names(root + DROP_INS) if name.endswith(".conf")]
    command_lines = [_line(f"{process}/cmdline") for process in _processes(f"{root}proc")]
    return [*map(_text, paths), *command_lines]


def _processes(proc: str) -> list[str]:
    """The /proc folders of processes named kubelet."""
    numbers = (name for name in _names(proc) if name.isdigit())
    return [f"{proc}/{number}" for number in numbers if _line(f"{proc}/{number}/comm") == "kubelet\n"]


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _text(path: str) -> str:
    try:
        return files.text(path)
    except OSError:
        return ""


def _line(path: str) -> str:
    """The text of a /proc file. No other program can have created it, so files.regular() is not needed."""
    try:
        with open(path, errors="replace") as file:
            return file.read()
    except OSError:
        return ""
