# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Returns the node's packet path as a snapshot."""

from __future__ import annotations

import gc

from .._core.option import Option, Options
from .._module import Module, require_root
from .._snapshot import snapshot, snapshot_backend

OPTIONS: Options = {
    "gather": Option("list", [*snapshot.SUBSETS], choices=snapshot.SUBSETS, elements="str"),
}


def main() -> None:
    gc.disable()  # there are no reference cycles, and the collector would scan thousands of objects again and again
    module = Module(OPTIONS)
    with module.reporting(data=("snapshot",)) as result:
        require_root()
        subsets = snapshot.subsets(module.params["gather"])
        result.update(changed=False, snapshot=snapshot_backend.read(module.run, subsets))
