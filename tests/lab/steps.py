# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A module on a node, in the steps that prove it: checked, run, checked again, run again."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lab.node import NamespaceNode


def warnings(result: Mapping[str, Any]) -> list[str]:
    """The warnings in a module's result, which differ in form from one ansible-core to another."""
    return [warning if isinstance(warning, str) else warning["event"]["msg"] for warning in result.get("warnings", [])]


@dataclasses.dataclass(frozen=True)
class Steps:
    """``options`` are given to every call, and may be overridden by it. ``through``: see NamespaceNode.module."""

    node: NamespaceNode
    module: str
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    through: Sequence[str] = ()

    def call(self, check: bool = False, **options: Any) -> dict[str, Any]:
        """The result of the module, also of a failure."""
        return self.node.module(self.module, {**self.options, **options}, check=check, through=self.through)

    def run(self, check: bool = False, **options: Any) -> dict[str, Any]:
        result = self.call(check, **options)
        assert not result["failed"], result.get("msg", result)
        return result

    def refused(self, check_fails: bool = True, **options: Any) -> str:
        """The error; the same in check mode, unless only the kernel can refuse (``check_fails``). The node must be unchanged."""
        before = self.node.snapshot()
        errors = [self.call(check, **options) for check in (True, False)]
        assert [error["failed"] for error in errors] == [check_fails, True], errors
        assert not check_fails or errors[0]["msg"] == errors[1]["msg"]
        assert self.node.snapshot() == before
        return str(errors[1]["msg"])

    def four(self, **options: Any) -> dict[str, Any]:
        """Checked, run, checked again, run again: the run makes the predicted change, and a further run changes nothing."""
        before = self.node.snapshot()
        predicted = self.run(check=True, **options)
        assert predicted["changed"]
        assert self.node.snapshot() == before
        result = self.run(**options)
        assert result == predicted
        after = self.node.snapshot()
        assert after != before
        for check in (True, False):
            again = self.run(check=check, **options)
            assert (again["changed"], again["diff"]) == (False, [])
            assert self.node.snapshot() == after
        return result


def of(module: str, **given: Any) -> tuple[Callable[..., dict[str, Any]], Callable[..., str], Callable[..., dict[str, Any]]]:
    """``run``, ``refused`` and ``four`` of a module, each called with the node and the module's options. given: those of all."""

    def run(node: NamespaceNode, check: bool = False, **options: Any) -> dict[str, Any]:
        return Steps(node, module, given).run(check, **options)

    def refused(node: NamespaceNode, check_fails: bool = True, **options: Any) -> str:
        return Steps(node, module, given).refused(check_fails, **options)

    def four(node: NamespaceNode, **options: Any) -> dict[str, Any]:
        return Steps(node, module, given).four(**options)

    return run, refused, four
