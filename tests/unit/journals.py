# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The journal of a checkpoint, with the backends of all modules."""

from __future__ import annotations

import typing as t

from ansible_collections.kubenode.datapath.plugins.module_utils._checkpoint.checkpoint import JournalEntry, vocabulary
from ansible_collections.kubenode.datapath.plugins.module_utils._core import codec
from ansible_collections.kubenode.datapath.plugins.module_utils._core.plan import UndoBackend
from ansible_collections.kubenode.datapath.plugins.module_utils._ebtables.ebtables_backend import Ebtables
from ansible_collections.kubenode.datapath.plugins.module_utils._files.files import Files
from ansible_collections.kubenode.datapath.plugins.module_utils._interfaces.link_backend import LinkMessages
from ansible_collections.kubenode.datapath.plugins.module_utils._leftovers.removed_link_backend import RemovedLinks
from ansible_collections.kubenode.datapath.plugins.module_utils._leftovers.resolved_backend import Resolved
from ansible_collections.kubenode.datapath.plugins.module_utils._netfilter.iptables_backend import Iptables
from ansible_collections.kubenode.datapath.plugins.module_utils._network_daemons.daemons_backend import Networkd
from ansible_collections.kubenode.datapath.plugins.module_utils._nftables.nft_backend import Nft
from ansible_collections.kubenode.datapath.plugins.module_utils._platform.packages import Packages
from ansible_collections.kubenode.datapath.plugins.module_utils._platform.sysctl import Sysctl
from ansible_collections.kubenode.datapath.plugins.module_utils._routing.routing_backend import Netlink
from ansible_collections.kubenode.datapath.plugins.module_utils._systemd.units import Units

BACKENDS: tuple[type[UndoBackend], ...] = (
    *(Files, Sysctl, Units, Packages, Netlink, LinkMessages, Resolved, Nft, Networkd, Ebtables, Iptables, RemovedLinks),
)
KNOWN = vocabulary(BACKENDS)


def entry(summary: str, undo: t.Any, is_backup: bool = False) -> str:
    """The line of a step in the journal."""
    backend = next(kind for kind in BACKENDS if type(undo) in kind.OPERATIONS)
    return codec.encode(JournalEntry(summary, codec.name_of(backend), undo, is_backup), KNOWN)
