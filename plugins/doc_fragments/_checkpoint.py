# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This doc fragment is private to the collection: it may change at any time.

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  checkpoint:
    description:
      - Seconds, from 5 to 3600, after which the node takes back by itself what was changed in the running kernel, unless the
        controller has come back over a new connection and confirmed it. V(0) is for no checkpoint.
      - What the next boot loads is written after that, so that a node which reboots before has taken the change back, too.
      - The task fails where the change was taken back. What other programs have changed meanwhile stays.
      - Armed only where the running kernel is to be changed; not in check mode, and not without C(immediate).
      - While it is armed, every other change of the node by a module of this collection is refused.
      - Proves something only over connections through the node's network, as C(ssh). Over others O(checkpoint_command) has to
        say that all is well; without it the change is made without a checkpoint, with a warning.
    type: int
    default: 0
  checkpoint_command:
    description:
      - A shell command that is run on the node, over the new connection and as the user who runs the module, before O(checkpoint)
        is confirmed. Where it does not end with status 0 within the time that is left, the change is taken back at once.
      - Has no meaning without O(checkpoint).
    type: str
"""
