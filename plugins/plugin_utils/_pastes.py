# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The controller's side of datapath_trace and datapath_audit: reads the option ``dump``, so that no node gets the parsers of
outputs."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.kubenode.datapath.plugins.module_utils._core import option
from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import DatapathError, Invalid
from ansible_collections.kubenode.datapath.plugins.module_utils._core.option import Option
from ansible_collections.kubenode.datapath.plugins.module_utils._core.printable import all_printable
from ansible_collections.kubenode.datapath.plugins.module_utils._pastes import pastes_backend
from ansible_collections.kubenode.datapath.plugins.module_utils._snapshot import snapshot
from ansible_collections.kubenode.datapath.plugins.module_utils._trace import names, packet, packet_text

_ASSIGNMENT = re.compile(r"\s*(?:\{|[a-z_]+=)")  # at the beginning of a dictionary as Ansible itself reads it from text
PACKET = Option("dict", entries=names.OPTIONS)


Run = t.Callable[[dict[str, t.Any]], dict[str, t.Any]]


def trace(arguments: dict[str, t.Any], run: Run) -> dict[str, t.Any]:
    """The result of datapath_trace with these arguments. run: runs the module."""
    try:
        if arguments.get("packet") is not None:
            arguments = {**arguments, "packet": _described(arguments["packet"])}
    except DatapathError as error:
        return _failed("datapath_trace", error)
    return execute("datapath_trace", arguments, run, _interface(arguments.get("packet") or {}))


def execute(module: str, arguments: dict[str, t.Any], run: Run, interface: str = "") -> dict[str, t.Any]:
    """The result of a module with these arguments.

    run: runs the module, which gets snapshots in place of ``dump`` and ``earlier``. interface: by which a packet comes in.
    """
    options, ignored = {**arguments}, list[str]()
    node = str(options.get("node") or "")
    try:
        if _is_dump(options.get("earlier")):
            earlier = pastes_backend.read(options["earlier"], node, interface)
            options["earlier"], ignored = earlier.snapshot, [f"earlier: {line}" for line in earlier.ignored]
        if options.get("dump") is not None:
            if options.get("snapshot") is not None:
                raise Invalid("dump", options["dump"], "left out if snapshot is given")
            pasted = pastes_backend.read(options.pop("dump"), node, interface)
            options["snapshot"], ignored = pasted.snapshot, [*pasted.ignored, *ignored]
            options.pop("node", None)
    except DatapathError as error:
        return _failed(module, error)
    result = run(options)
    return {**result, **all_printable({"ignored": ignored})} if ignored and not result.get("failed") else result


def _is_dump(earlier: t.Any) -> bool:
    return earlier is not None and not snapshot.is_snapshot(earlier)


def _failed(module: str, error: DatapathError) -> dict[str, t.Any]:
    return all_printable({"failed": True, "changed": False, "msg": f"{module}: {error}"})


def _described(value: t.Any) -> t.Any:
    """The option packet, as a dictionary if it is a line of text."""
    is_line = isinstance(value, str) and not _ASSIGNMENT.match(value)
    return packet_text.options(value) if is_line else value


def _interface(value: t.Any) -> str:
    """The link by which the packet comes in; empty for a packet that is wrong, which the module says."""
    try:
        interface = str(option.typed("packet", PACKET, value).get("interface") or "")
    except Invalid:
        return ""
    return "" if interface == packet.AUTO else interface
