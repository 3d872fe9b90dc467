# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the controller does with what modules and nodes answer."""

from __future__ import annotations

import json
import types
import typing as t

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._model import checkpoint as model
from ansible_collections.kubenode.datapath.plugins.module_utils._model.problem import Invalid

pytest.importorskip("ansible")

from ansible.errors import AnsibleConnectionFailure
from ansible.module_utils.common.validation import check_type_int

from ansible_collections.kubenode.datapath.plugins.plugin_utils import _checkpoint

Result = dict[str, t.Any]
LIFE = "3ad5\nnet:[1]\n17"
CONFIRMED: Result = {"state": "confirmed", "told": "confirmed", "age": 0}
IMMEDIATE = {"before_header": "immediate: x"}
PERMANENT = {"before_header": "permanent: y"}


class Host:
    """An action on a node that answers as told.

    results: of the module. answers: of the node, None for silence, which is also what follows.
    """

    def __init__(
        self,
        results: t.Sequence[Result | Exception],
        answers: t.Sequence[Result | str | None] = (),
        transport: str = "ssh",
        check: bool = False,
        **options: t.Any,
    ) -> None:
        self._task = types.SimpleNamespace(args=options, check_mode=check, action="kubenode.datapath.rp_filter")
        self._results = list(results)
        self._answers = list(answers)
        self.runs: list[Result] = []
        self.commands: list[str] = []
        self.resets = 0
        self.timeouts: list[int] = []
        self._connection = types.SimpleNamespace(
            transport=transport,
            reset=self._reset,
            has_option=lambda name: name == "timeout",
            get_option=lambda name: 10,
            set_option=lambda name, value: self.timeouts.append(value),
            _shell=types.SimpleNamespace(tmpdir="/tmp/x"),
        )

    def _reset(self) -> None:
        self.resets += 1

    def _low_level_execute_command(self, command: str) -> Result:
        self.commands.append(command)
        answer = self._answers.pop(0) if self._answers else None
        if answer is None:
            raise AnsibleConnectionFailure("No route to host")
        return {
            "rc": 0,
            "stdout": answer if isinstance(answer, str) else f"Hello!\n{json.dumps(answer)}\n",
            "stderr": "",
        }

    def _run(self, arguments: Result) -> Result:
        self.runs.append(arguments)
        result = self._results.pop(0)
        if isinstance(result, Exception):
            raise result
        return dict(result)

    def execute(self) -> Result:
        result = _checkpoint.execute(t.cast(t.Any, self), self._run)
        assert not self._results and not self._answers
        return result


def armed(**more: t.Any) -> Result:
    return {"changed": True, "checkpoint_armed": {"id": "1f", "left": 0.2, "life": LIFE}, "diff": [IMMEDIATE], **more}


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_checkpoint, "GRACE", 0.1)
    monkeypatch.setattr(_checkpoint, "PAUSE", 0.05)


@pytest.mark.parametrize("given", [0, "0", None, "", 5, "30", 3600, 30.0, "30.0", " 3e1 "])
def test_seconds_may_come_as_text_or_as_a_template_divides(given: object) -> None:
    """As AnsibleModule takes them on the node: the controller must know whenever the module arms a checkpoint."""
    assert model.seconds(given) == (check_type_int(given) if given else 0)


@pytest.mark.parametrize("given", [-1, 4, 3601, "soon", "5.5", [5], True, "nan", "inf", "1e99999999"])
def test_seconds_out_of_range_name_the_option(given: object) -> None:
    with pytest.raises(Invalid, match="checkpoint must be 0 for none, or from 5 to 3600 seconds; "):
        model.seconds(given)


@pytest.mark.parametrize(
    "host",
    [
        Host([{"changed": False, "diff": []}], checkpoint=30),
        Host([{"changed": True, "diff": [PERMANENT]}], checkpoint=30),
        Host([{"changed": True, "diff": [IMMEDIATE]}], checkpoint=0),
        Host([{"changed": True, "diff": [IMMEDIATE]}], checkpoint=30, check=True),
        Host([{"changed": True, "diff": [IMMEDIATE]}], checkpoint=30, check=True, transport="local"),
        Host([{"failed": True, "msg": "no"}], checkpoint=30),
        Host([{"failed": True, "msg": "checkpoint must be"}], checkpoint=3),
        Host([{"changed": True, "diff": [PERMANENT]}], checkpoint=30, immediate="no", transport="local"),
    ],
)
def test_where_nothing_is_armed_the_module_runs_once_as_it_was_called(host: Host) -> None:
    result = host._results[0]
    assert host.execute() == result
    assert (host.runs, host.commands, host.resets) == ([host._task.args], [], 0)


def test_what_is_armed_is_confirmed_over_a_new_connection_and_the_module_run_again() -> None:
    host = Host(
        [
            armed(interfaces={"eth0": 1}, warnings=["wet", "cold"]),
            {"changed": True, "interfaces": {}, "diff": [PERMANENT], "warnings": ["cold", "dark"]},
        ],
        [CONFIRMED],
        checkpoint="30",
        checkpoint_command="it's well",
    )
    assert host.execute() == {
        "changed": True,
        "interfaces": {"eth0": 1},
        "diff": [IMMEDIATE, PERMANENT],
        "warnings": ["wet", "cold", "dark"],
    }
    assert host.resets == 1 and host.runs == [host._task.args] * 2
    assert "/rollback confirm 1f 'it'\"'\"'s well';" in host.commands[0]
    assert host.timeouts[-1] == 10  # as it was


def test_an_answer_that_was_lost_is_not_a_failure() -> None:
    host = Host([armed(), {"changed": False, "diff": []}], [None, LIFE + "\n"], checkpoint=30)
    assert host.execute() == {"changed": True, "diff": [IMMEDIATE]}


@pytest.mark.parametrize(
    ("answers", "sentence"),
    [
        ([{"state": "rolled back", "told": "It was rolled back.", "age": 1}], "rp_filter: It was rolled back."),
        (
            [None, {"state": "rolled back", "told": "It was rolled back.", "age": 1}],
            "rp_filter: It was rolled back. The last try to connect before that: No route to host",
        ),
        (["4711\nnet:[1]\n"], "rp_filter: the node was started anew before"),
        ([], "rp_filter: the controller could not come back to the node over a new connection within 30 s"),
    ],
)
def test_what_is_not_confirmed_fails_the_task_in_one_sentence(answers: list[t.Any], sentence: str) -> None:
    host = Host([armed()], answers, checkpoint=30)
    result = host.execute()
    assert result["failed"] and result["msg"].startswith(sentence)
    assert host._connection._shell.tmpdir is None and len(host.runs) == 1


def test_a_module_whose_connection_broke_is_asked_after() -> None:
    answer = {"state": "rolled back", "told": "Back.", "age": -1.0}
    host = Host([AnsibleConnectionFailure("Broken pipe")], [answer], checkpoint=30)
    assert host.execute()["msg"] == "rp_filter: Back. The connection broke while the module ran: Broken pipe"


@pytest.mark.parametrize(
    "answer",
    [LIFE, {"state": "none", "told": "", "age": 0}, {"state": "rolled back", "told": "An old one.", "age": 99}],
)
def test_a_connection_that_broke_before_anything_was_armed_stays_that_error(answer: t.Any) -> None:
    host = Host([AnsibleConnectionFailure("Broken pipe")], [answer], checkpoint=30)
    with pytest.raises(AnsibleConnectionFailure, match="Broken pipe"):
        host.execute()


def test_a_change_that_is_undone_by_another_program_each_time_is_given_up() -> None:
    result = Host([armed()] * 3, [CONFIRMED] * 3, checkpoint=30).execute()
    assert result["failed"] and "each of 3 times" in result["msg"]


def test_an_error_after_the_confirmation_says_what_stays() -> None:
    result = Host([armed(), {"failed": True, "msg": "disk full"}], [CONFIRMED], checkpoint=30).execute()
    assert result["failed"] and result["changed"]
    assert result["msg"].startswith("disk full. The running kernel was changed and confirmed before")


@pytest.mark.parametrize("transport", ["local", "community.docker.docker", "containers.podman.podman", "lab_node"])
def test_a_connection_that_proves_nothing_goes_unprotected_or_asks_a_command(transport: str) -> None:
    host = Host([{"changed": True}], checkpoint=30, transport=transport)
    assert host.execute() == {"changed": True}
    assert host.runs == [{"checkpoint": 0}]
    host = Host(
        [armed(), {"changed": False}], [CONFIRMED], checkpoint=30, transport=transport, checkpoint_command="true"
    )
    assert host.execute()["changed"] and host.resets == 0


@pytest.mark.parametrize("transport", ["ssh", "ansible.builtin.ssh", "paramiko", "ansible.netcommon.libssh"])
def test_a_connection_through_the_network_needs_no_command(transport: str) -> None:
    host = Host([armed(), {"changed": False}], [CONFIRMED], checkpoint=30, transport=transport)
    assert host.execute()["changed"] and host.resets == 1
