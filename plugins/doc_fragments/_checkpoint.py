# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  checkpoint:
    description:
      - Seconds, from 5 to 3600, after which the node rolls back the change of its running kernel by itself, unless the controller
        has connected to the node again, over a new connection, and has confirmed the change. V(0) means no checkpoint.
      - The files for the next boot are written after the confirmation. So a reboot before the confirmation rolls the change back,
        too.
      - The task fails if the change was rolled back. Changes by other programs meanwhile stay.
      - The checkpoint is armed only if the running kernel is to be changed; not in check mode, and not without C(immediate).
      - Over C(ssh) the task ends at most 20 seconds after the node has rolled back, even if the module's own connection died
        without an error, for example because the node was restarted. Over other connections it ends when their plugin gives up.
      - With C(async) the task fails before anything is changed, whether a checkpoint is set or not. The controller confirms a
        checkpoint within the task, and an asynchronous task does not wait for its module.
      - While a checkpoint is armed, every other change of the node by a module of this collection is refused.
      - A new connection proves something only if it goes through the node's network, as with C(ssh). Over other connections
        O(checkpoint_command) has to check the node; without it the change is made without a checkpoint, with a warning.
    type: int
    default: 0
  checkpoint_command:
    description:
      - A shell command that is run on the node, over the new connection and as the user who runs the module, before O(checkpoint)
        is confirmed. If it does not end with status 0 within the time that is left, the change is rolled back at once.
      - The command has ended when its shell has ended; processes in the background are not waited for. A command that does not
        end in time is killed, with the processes that it has started.
      - Has no meaning without O(checkpoint).
    type: str
"""
