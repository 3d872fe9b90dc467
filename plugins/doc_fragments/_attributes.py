# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options: {}
attributes:
  check_mode:
    description: Can run in check mode and return the changes that a run would make, without making them.
    support: full
    details:
      - Check mode computes the plan of the run and does not apply it. It shows the same diff as the run.
  diff_mode:
    description: Returns what changed, or in check mode would change, in diff mode.
    support: full
    details:
      - A list with one entry for each plane that changes.
  idempotent:
    description:
      - When run twice in a row outside check mode, with the same arguments, the second invocation changes nothing.
      - This assumes that no other program changes the node meanwhile.
    support: full
    details:
      - A run that changed something observes the node again before it returns, and fails if it would change the node once more.
  platform:
    description: Target operating systems.
    platforms: linux
    support: full
"""

    # Instead of the above.
    READ_ONLY = r"""
options: {}
attributes:
  check_mode:
    description: Can run in check mode and return changed status prediction without modifying target.
    support: full
    details:
      - This module never changes anything.
  diff_mode:
    description: Returns what changed, or in check mode would change, in diff mode.
    support: N/A
    details:
      - This module never changes anything.
  idempotent:
    description:
      - When run twice in a row outside check mode, with the same arguments, the second invocation changes nothing.
    support: N/A
    details:
      - This module never changes anything.
  platform:
    description: Target operating systems.
    platforms: linux
    support: full
"""

    ACTION = r"""
options: {}
attributes:
  action:
    description: Indicates that this has an action plugin, so that parts of it run on the controller.
    support: full
"""

    ALL_GROUP = r"""
options: {}
attributes:
  action_group:
    description: Use C(group/kubenode.datapath.all) in C(module_defaults) to set defaults.
    support: full
    membership:
      - kubenode.datapath.all
"""

    NODE_GROUP = r"""
options: {}
attributes:
  action_group:
    description: Use C(group/kubenode.datapath.node) or C(group/kubenode.datapath.all) in C(module_defaults) to set defaults.
    support: full
    membership:
      - kubenode.datapath.all
      - kubenode.datapath.node
"""
