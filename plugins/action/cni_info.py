# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""cni_info on the controller: checks the node's answer."""

from __future__ import annotations

from ansible_collections.kubenode.datapath.plugins.plugin_utils._node_action import ModuleAction


class ActionModule(ModuleAction):
    pass
