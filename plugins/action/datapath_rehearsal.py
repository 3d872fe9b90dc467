# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""datapath_rehearsal on the controller: lends pyroute2 to a node that lacks it, for changes in the twin."""

from __future__ import annotations

from ansible_collections.kubenode.datapath.plugins.plugin_utils._changes import ChangesAction


class ActionModule(ChangesAction):
    pass
