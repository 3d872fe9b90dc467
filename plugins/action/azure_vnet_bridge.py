# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""azure_vnet_bridge on the controller: confirms its checkpoint."""

from __future__ import annotations

from ansible_collections.kubenode.datapath.plugins.plugin_utils._checkpoint import CheckpointAction


class ActionModule(CheckpointAction):
    pass
