# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a playbook carries to a node, for a test that ran modules there without one."""

from __future__ import annotations

import sys

from lab import collection
from lab.machine import Machine

_PLACE = """
import sys
sys.path.insert(0, sys.argv[1])
from ansible_collections.kubenode.datapath.plugins.module_utils._core.version import COLLECTION
from ansible_collections.kubenode.datapath.plugins.module_utils._platform import placed_program
from ansible_collections.kubenode.datapath.plugins.module_utils._program import program
from ansible_collections.kubenode.datapath.plugins.plugin_utils import _program

packed = program.pack(_program.sources())
placed_program._place(program.name_of(COLLECTION, packed), packed)
"""


def place_program(node: Machine) -> None:
    """Place the collection's program, as the first run of a playbook does that leaves something on the node."""
    node.run([sys.executable, "-c", _PLACE, str(collection.link())])
