# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs one Ansible module, with its arguments as JSON on stdin: ``run_module.py ansible_collections....modules.NAME``.

A module gets the same variables as from ansible-core's own wrapper (AnsiballZ: _ANSIBLE_ARGS and, from 2.19,
_ANSIBLE_PROFILE, the name of the profile by which arguments and results are JSON).
"""

from __future__ import annotations

import runpy
import sys

from ansible.module_utils import basic


def main() -> None:
    name = sys.argv.pop(1)
    basic._ANSIBLE_ARGS = sys.stdin.buffer.read()
    basic._ANSIBLE_PROFILE = "legacy"
    runpy.run_module(name, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
