# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Traces a packet through this node, or a snapshot of another one."""

from __future__ import annotations

import typing as t

from .._audit import audit_backend, context
from .._core.errors import Invalid
from .._core.option import Option, Options
from .._module import Module, require_root
from .._snapshot import snapshot
from .._trace import changes_backend, entrance, names, trace_backend
from . import datapath_audit

OPTIONS: Options = {
    "packet": Option("dict", entries=names.OPTIONS),
    "finding": Option("str"),
    "context": Option("dict", entries=context.OPTIONS),
    "snapshot": Option("dict"),
    "dump": Option("raw"),
    "earlier": Option("raw"),
    "node": Option("str"),
    "assume": Option("dict", {}),
    "changes": Option("list", [], elements="dict"),
    "commands": Option("list", [], elements="str"),
    "reply": Option("bool", True),
    "print": Option("bool", False),  # by the action plugin
}


def main() -> None:
    module = Module(OPTIONS)
    with module.reporting() as result:
        options = module.params
        audit_backend.refuse_both(options["packet"], options["finding"])
        if options["packet"]:
            names.check(options["packet"])
        changes = changes_backend.read(options["changes"], options["commands"])
        snapshot.refuse_dump(options)
        earlier = _earlier(options)
        is_own = options["snapshot"] is None
        if is_own:
            require_root()
            changes = changes_backend.without_profiles(changes, module.request())
        else:
            changes_backend.refuse_profiles(changes)
        asked = changes, options["reply"]
        if options["finding"]:
            observed = datapath_audit.of_this_node(module) if is_own else options["snapshot"]
            audit = audit_backend.Audit(observed, (), options["context"] or {}, is_own=is_own, assume=options["assume"])
            answer = audit_backend.repeated(audit, options["finding"], *asked, module.run)
        else:
            observed = _of_this_node(module, earlier is None) if is_own else options["snapshot"]
            if earlier is None:  # two states are compared as they are
                observed = trace_backend.about(observed, changes, options["packet"])
            sent = entrance.packet(options["packet"], observed)
            question = trace_backend.Question(observed, sent, options["assume"], *asked, is_own=is_own)
            answer = trace_backend.answer(question, module.run)
        result.update(changed=False, **answer.plain(), node=snapshot.Origin.of(observed)._asdict(), ignored=[])
        if earlier is not None:
            from .._explain import explain_backend  # only two states need the differences

            explained = explain_backend.explain(earlier, observed, sent, options["assume"], module.run)
            result["explanation"] = explained.plain()


def _earlier(options: t.Mapping[str, t.Any]) -> dict[str, t.Any] | None:
    """Return the earlier snapshot; None without one. Raises Invalid."""
    earlier = options["earlier"]
    if earlier is None:
        return None
    if not snapshot.is_snapshot(earlier):
        raise Invalid("earlier", earlier, "a snapshot as datapath_info returns it; the action plugin reads others")
    if options["finding"] or options["changes"] or options["commands"]:
        raise Invalid("earlier", "a snapshot", "left out with a finding, and with changes in the twin")
    return t.cast("dict[str, t.Any]", earlier)


def _of_this_node(module: Module, is_compact: bool) -> dict[str, t.Any]:
    # Imported where needed: a trace of another node's snapshot does not read this one.
    from .._snapshot import snapshot_backend

    return snapshot_backend.read(module.run, snapshot.PACKET_PATH, is_compact=is_compact)
