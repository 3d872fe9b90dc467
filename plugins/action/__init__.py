# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Imports what the actions have in common, when Ansible looks for the first of them, which is before it forks.

A module without an action of its name has that of another one, by meta/runtime.yml, which only a worker imports. Without this
file, each worker would compile them anew.
"""

from __future__ import annotations

from ansible_collections.kubenode.datapath.plugins.plugin_utils import _checkpoint, _library, _node_action

__all__ = ["_checkpoint", "_library", "_node_action"]
