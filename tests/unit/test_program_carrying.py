# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller carries its program to a node that lacks it, and no node makes it do more."""

from __future__ import annotations

import types
import zlib
from typing import Any, cast

import house
import pytest

pytest.importorskip("ansible")

from ansible.plugins.action import ActionBase

from ansible_collections.kubenode.datapath.plugins.module_utils._program import program
from ansible_collections.kubenode.datapath.plugins.plugin_utils import _program

Result = dict[str, Any]


class Action:
    """The members of an action that carrying needs. sent: contents by path. runs: the environments of the module's runs."""

    def __init__(self) -> None:
        self.sent: dict[str, bytes] = {}
        self.runs: list[dict[str, str]] = []
        self._task = types.SimpleNamespace(environment=[{"A": "B"}])
        self._connection = types.SimpleNamespace(
            _shell=types.SimpleNamespace(tmpdir=None, join_path=lambda *names: "/".join(names))
        )

    def _make_tmp_path(self) -> None:
        self._connection._shell.tmpdir = "/tmp/task"

    def _transfer_data(self, path: str, data: bytes) -> None:
        self.sent[path] = data

    def _is_become_unprivileged(self) -> bool:
        return False

    def carried(self, *answers: Result) -> Result:
        def execute() -> Result:
            self.runs.append({name: value for entry in self._task.environment for name, value in entry.items()})
            return dict(answers[min(len(self.runs), len(answers)) - 1])

        return _program.carrying(cast(ActionBase, self), execute, needs_program=True)


NAME = program.name_of("1.0.0", program.pack(_program.sources()))
MISSING = {"failed": True, "msg": "missing", "missing_program": NAME}


def test_a_node_that_has_the_program_gets_nothing() -> None:
    action = Action()
    assert action.carried({"changed": False}) == {"changed": False}
    assert (action.sent, action.runs) == ({}, [{"A": "B", program.PROGRAM: NAME, program.ARCHIVE: ""}])
    assert action._task.environment == [{"A": "B"}]


def test_a_node_that_lacks_it_gets_it_once_for_all_runs_of_a_task() -> None:
    action = Action()
    for _run in range(2):
        assert action.carried(MISSING, {"changed": True}) == {"changed": True}
    path, data = action.sent.popitem()
    assert not action.sent and program.unpacked(zlib.decompress(data)) == _program.sources()
    assert [run[program.ARCHIVE] for run in action.runs] == ["", path, path]


LIES: dict[str, tuple[Result, int]] = {
    "it lacks it for ever": (MISSING, 2),
    "another program": ({**MISSING, "missing_program": "kubenode-9.0.0-0123"}, 1),
    "no name": ({**MISSING, "missing_program": {"lie": [NAME]}}, 1),
}


@pytest.mark.parametrize("lie", LIES)
def test_no_node_gets_another_program_or_more_than_one(lie: str) -> None:
    answer, runs = LIES[lie]
    action = Action()
    assert action.carried(answer) == {"failed": True, "msg": "missing"}
    assert (len(action.runs), len(action.sent)) == (runs, runs - 1)


def test_a_program_has_the_rooms_of_modules_and_no_other() -> None:
    rooms = {path.split("/")[1] for path in _program.sources()}
    assert rooms == {*house.ROOMS, "_module.py", "__init__.py"} - {*house.CONTROLLER}
