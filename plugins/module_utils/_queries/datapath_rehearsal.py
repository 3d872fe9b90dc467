# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rehearses changes in a twin of the node."""

from __future__ import annotations

from .._cni import marks_backend
from .._core.option import Option, Options
from .._module import Module, require_root
from .._platform import processes
from .._snapshot import snapshot, snapshot_backend
from .._trace import changes_backend, packet, rehearsal_backend

OPTIONS: Options = {
    "changes": Option("list", elements="dict", is_required=True),
    "packets": Option("list", [], elements="dict", entries=packet.OPTIONS),
}


def main() -> None:
    module = Module(OPTIONS)
    with module.reporting() as result:
        packets = packet.from_list("packets", module.params["packets"])
        changes = changes_backend.read(module.params["changes"])
        is_role = any(map(changes_backend.is_role, changes))
        trials = [rehearsal_backend.Trial(f"packets[{number}]", sent, keeps_path=is_role) for number, sent in enumerate(packets)]
        require_root()
        changes = changes_backend.without_profiles(changes, module.request())
        rehearsed = _rehearsed(module, changes, trials) if changes else []
        for sentence in rehearsal_backend.warnings(rehearsed):
            module.warn(sentence)
        rehearsal_backend.refuse_losses(rehearsed)
        names = [change.name for change in changes if isinstance(change, changes_backend.Call)]
        result.update(changed=False, rehearsed=[trial.report() for trial in rehearsed], changes=names)


def _rehearsed(
    module: Module, changes: tuple[changes_backend.Change, ...], trials: list[rehearsal_backend.Trial]
) -> list[rehearsal_backend.Rehearsal]:
    observed = snapshot_backend.read(module.run, snapshot.PACKET_PATH, is_compact=True)
    connection = processes.ssh_connection()
    connected = rehearsal_backend.of_connection(connection, observed) if connection else None
    if connected:
        trials = [connected, *trials]
    elif not trials:
        module.warn("Nothing was rehearsed: the controller does not come by SSH, and packets is empty.")
    marked = rehearsal_backend.of_marks(observed, changes, marks_backend.of_links())
    return rehearsal_backend.rehearse(observed, changes, [*trials, *marked], module.run)
