# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""What kubelet was told on this node: its labels, from its configuration and from its command line."""

from __future__ import annotations

import re
from pathlib import Path

# AKS writes KUBELET_NODE_LABELS to /etc/default/kubelet; kubeadm's drop-in and rpm distributions use the others.
CONFIGURATION = ("etc/default/kubelet", "etc/sysconfig/kubelet")
DROP_INS = "etc/systemd/system/kubelet.service.d"


def has_label(label: str, root: str = "/") -> bool:
    """Whether ``label``, as "key=value", is among the labels with which kubelet registers the node."""
    word = re.compile(rf"(?<![\w./-]){re.escape(label)}(?![\w./-])")
    return any(word.search(text) for text in _sources(Path(root)))


def _sources(root: Path) -> list[str]:
    files = [root / name for name in CONFIGURATION]
    files += sorted((root / DROP_INS).glob("*.conf"))
    files += [process / "cmdline" for process in _processes(root / "proc")]
    return [_text(file) for file in files]


def _processes(proc: Path) -> list[Path]:
    return [folder for folder in proc.glob("[0-9]*") if _text(folder / "comm").strip() == "kubelet"]


def _text(file: Path) -> str:
    try:
        return file.read_text(errors="replace")
    except OSError:
        return ""
