# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""The node labels that kubelet was given, from its configuration files and its command line."""

from __future__ import annotations

import os
import re

from .._platform import files, processes

# AKS writes KUBELET_NODE_LABELS to /etc/default/kubelet; kubeadm's drop-in and rpm distributions use the others.
CONFIGURATION = ("etc/default/kubelet", "etc/sysconfig/kubelet")
DROP_INS = "etc/systemd/system/kubelet.service.d"


def has_label(label: str, root: str = "/") -> bool:
    """True if kubelet registers the node with ``label``, a "key=value"."""
    word = re.compile(rf"(?<![\w./-]){re.escape(label)}(?![\w./-])")
    lines = (line for text in _sources(root) for line in text.splitlines() if not line.lstrip().startswith("#"))
    return any(word.search(line) for line in lines)


def _sources(root: str) -> list[str]:
    paths = [root + name for name in CONFIGURATION]
    paths += [f"{root}{DROP_INS}/{name}" for name in _names(root + DROP_INS) if name.endswith(".conf")]
    command_lines = [_line(f"{root}proc/{pid}/cmdline") for pid in processes.named(("kubelet",), f"{root}proc")]
    return [*map(_text, paths), *command_lines]


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
