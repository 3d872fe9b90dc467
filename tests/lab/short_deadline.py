# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs a Python script with a deadline for programs that a test can wait for: ``short_deadline.py PYTHON SCRIPT ARGUMENT...``.

For NamespaceNode.module(through=...), whose command comes after it.
"""

from __future__ import annotations

import os
import runpy
import sys

from ansible_collections.kubenode.datapath.plugins.module_utils._platform import process

DEADLINE = 1.0
"""Seconds; a program that is killed takes GRACE at most besides."""


def main() -> None:
    process.DEADLINE, process.GRACE = DEADLINE, 0.2
    sys.argv[:] = sys.argv[2:]
    sys.path[0] = os.path.dirname(sys.argv[0])
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
