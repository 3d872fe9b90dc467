# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""The node's azure-cns. Read only; starts no process."""

from __future__ import annotations

import os

from .._files import files
from .._platform import processes
from .azure_pods import CNS, Cns, configuration_of, manages_state


def find() -> Cns | None:
    """The azure-cns that runs in this network namespace; None if there is none."""
    for pid in processes.in_this_network((CNS,)):
        environment = dict(pair.partition("=")[::2] for pair in files.text_or_empty(f"/proc/{pid}/environ").split("\0"))
        arguments = files.text_or_empty(f"/proc/{pid}/cmdline").split("\0")[1:]
        path = configuration_of(arguments, environment, _executable(pid))
        root = f"/proc/{pid}/root" if path.startswith("/") else f"/proc/{pid}/cwd/"
        return Cns(path, manages_state(files.text_or_empty(root + path)))
    return None


def _executable(pid: str) -> str:
    """The path of the program, in the root of its process."""
    try:
        return os.readlink(f"/proc/{pid}/exe")
    except OSError:
        return ""
