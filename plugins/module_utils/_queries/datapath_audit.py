# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Audits this node, or a snapshot of another one."""

from __future__ import annotations

import typing as t

from .._audit import audit_backend, catalogue, context
from .._audit.node import SUBSETS
from .._core.option import Option, Options
from .._module import Module, require_root
from .._snapshot import snapshot

OPTIONS: Options = {
    "snapshot": Option("dict"),
    "dump": Option("raw"),
    "node": Option("str"),
    "checks": Option("list", elements="str", is_words=True),
    "context": Option("dict", entries=context.OPTIONS),
    "assume": Option("dict", {}),
    "prove": Option("bool", True),
    "print": Option("bool", False),  # by the action plugin
}


def main() -> None:
    module = Module(OPTIONS)
    with module.reporting() as result:
        options = module.params
        checks = catalogue.chosen(options["checks"])
        snapshot.refuse_dump(options)
        is_own = options["snapshot"] is None
        if is_own:
            require_root()
        node = of_this_node(module) if is_own else options["snapshot"]
        audit = audit_backend.Audit(node, checks, options["context"] or {}, options["prove"], is_own, assume=options["assume"])
        result.update(changed=False, **audit_backend.result(audit, module.run), ignored=[])


def of_this_node(module: Module) -> dict[str, t.Any]:
    """Return what checks read of this node, and the settings that they need besides."""
    # Imported where needed: an audit of another node's snapshot does not read this one.
    from .._snapshot import snapshot_backend

    return snapshot_backend.read(module.run, SUBSETS, catalogue.SETTINGS, is_compact=True)
