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
      - Over C(ssh) the task ends at most 20 seconds after the node has rolled back, also where the module's own connection died
        without a word, as by a restart of the node. Over other connections it ends when their plugin gives up.
      - With C(async) the task fails before anything is changed, whether a checkpoint is set or not. The controller confirms a
        checkpoint within the task, and an asynchronous task does not wait for its module.
      - While it is armed, every other change of the node by a module of this collection is refused.
      - Proves something only over connections through the node's network, as C(ssh). Over others O(checkpoint_command) has to
        say that all is well; without it the change is made without a checkpoint, with a warning.
    type: int
    default: 0
  checkpoint_command:
    description:
      - A shell command that is run on the node, over the new connection and as the user who runs the module, before O(checkpoint)
        is confirmed. Where it does not end with status 0 within the time that is left, the change is taken back at once.
      - The command has ended when its shell has; what it leaves in the background is not waited for. A command that does not
        end in time is killed, with what it has started.
      - Has no meaning without O(checkpoint).
    type: str
"""
