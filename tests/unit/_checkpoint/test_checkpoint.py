# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the controller does with the answers of modules and nodes."""

from __future__ import annotations

import copy
import json
import time
import types
import typing as t
from pathlib import Path

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._checkpoint import checkpoint as model
from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Invalid

pytest.importorskip("ansible")

from ansible.errors import AnsibleConnectionFailure
from ansible.module_utils.common.validation import check_type_int

from ansible_collections.kubenode.datapath.plugins.plugin_utils import _checkpoint, _connection_watch
from ansible_collections.kubenode.datapath.plugins.plugin_utils._connection_watch import SILENT, Answer, ConnectionWatch

Result = dict[str, t.Any]
LIFE = "3ad5\nnet:[1]\n17"
ALIVE = f"{LIFE}\n900.00\n"  # the node's answer: its boot identity and its uptime
CONFIRMED: Result = {"state": "confirmed", "told": "confirmed", "age": 0}
IMMEDIATE = {"before_header": "immediate: x"}
PERMANENT = {"before_header": "permanent: y"}


class Host:
    """An action on a node with given answers.

    results: of the module. answers: of the node; None for no answer, as also after the last one. proofs: what each try of the
    connection's own proof says, the last one again and again; None for a connection without a proof.
    """

    def __init__(
        self,
        results: t.Sequence[Result | Exception],
        answers: t.Sequence[Result | str | None] = (),
        transport: str = "ssh",
        check: bool = False,
        proofs: t.Sequence[str] | None = None,
        **options: t.Any,
    ) -> None:
        self._task = types.SimpleNamespace(args=options, check_mode=check, action="kubenode.datapath.rp_filter")
        self._results = list(results)
        self._answers = list(answers)
        self._proofs = list(proofs or ())
        self.runs: list[Result] = []
        self.commands: list[str] = []
        self.resets = 0
        self.timeouts: list[int] = []
        self._connection = types.SimpleNamespace(
            transport=transport,
            reset=self._reset,
            has_option=lambda name: name == "timeout" or (name == _checkpoint.PROOF and proofs is not None),
            get_option=lambda name: 10,
            prove=lambda _patience: self._proofs.pop(0) if len(self._proofs) > 1 else self._proofs[0],
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
    ("result", "options"),
    [
        ({"changed": False, "diff": []}, {"checkpoint": 30}),
        ({"changed": True, "diff": [PERMANENT]}, {"checkpoint": 30}),
        ({"changed": True, "diff": [IMMEDIATE]}, {"checkpoint": 0}),
        ({"changed": True, "diff": [IMMEDIATE]}, {"checkpoint": 30, "check": True}),
        ({"changed": True, "diff": [IMMEDIATE]}, {"checkpoint": 30, "check": True, "transport": "local"}),
        ({"failed": True, "msg": "no"}, {"checkpoint": 30}),
        ({"failed": True, "msg": "checkpoint must be"}, {"checkpoint": 3}),
        ({"changed": True, "diff": [PERMANENT]}, {"checkpoint": 30, "immediate": "no", "transport": "local"}),
    ],
)
def test_where_nothing_is_armed_the_module_runs_once_as_it_was_called(result: Result, options: Result) -> None:
    host = Host([copy.deepcopy(result)], **options)
    assert host.execute() == result
    assert (host.runs, host.commands, host.resets) == ([host._task.args], [], 0)


def test_an_armed_change_is_confirmed_over_a_new_connection_and_the_module_run_again() -> None:
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
    assert host.timeouts[-1] == 10  # the former timeout


def test_an_answer_that_was_lost_is_not_a_failure() -> None:
    host = Host([armed(), {"changed": False, "diff": []}], [None, ALIVE], checkpoint=30)
    assert host.execute() == {"changed": True, "diff": [IMMEDIATE]}


@pytest.mark.parametrize(
    ("answers", "sentence"),
    [
        ([{"state": "rolled back", "told": "It was rolled back.", "age": 1}], "rp_filter: It was rolled back."),
        (
            [None, {"state": "rolled back", "told": "It was rolled back.", "age": 1}],
            "rp_filter: It was rolled back. The last try to connect before that: No route to host",
        ),
        ([{"state": "rolled back", "told": "\x1b[2J\u202eBack.", "age": 1}], "rp_filter: \\x1b[2J\\u202eBack."),
        (["4711\nnet:[1]\n17\n1.00\n"], "rp_filter: the node was restarted before"),
        ([], "rp_filter: the controller could not connect to the node again within 30 s"),
    ],
)
def test_a_change_that_is_not_confirmed_fails_the_task_in_one_sentence(answers: list[t.Any], sentence: str) -> None:
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
    [ALIVE, {"state": "none", "told": "", "age": 0}, {"state": "rolled back", "told": "An old one.", "age": 99}],
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
    assert result["msg"].startswith("disk full. The change of the running kernel was confirmed and stays")


@pytest.mark.parametrize("transport", ["local", "community.docker.docker", "containers.podman.podman", "lab_node"])
def test_a_connection_that_proves_nothing_goes_unprotected_or_asks_a_command(transport: str) -> None:
    host = Host([{"changed": True}], checkpoint=30, transport=transport)
    assert host.execute() == {"changed": True}
    assert host.runs == [{"checkpoint": 0}]
    host = Host([armed(), {"changed": False}], [CONFIRMED], checkpoint=30, transport=transport, checkpoint_command="true")
    assert host.execute()["changed"] and host.resets == 0


@pytest.mark.parametrize("transport", ["ssh", "ansible.builtin.ssh", "paramiko", "ansible.netcommon.libssh"])
def test_a_connection_through_the_network_needs_no_command(transport: str) -> None:
    host = Host([armed(), {"changed": False}], [CONFIRMED], checkpoint=30, transport=transport)
    assert host.execute()["changed"] and host.resets == 1


NSENTER = "kubenode.datapath.nsenter"


def test_a_connection_with_a_proof_of_its_own_confirms_as_soon_as_the_proof_succeeds() -> None:
    host = Host([armed(), {"changed": False}], [CONFIRMED], checkpoint=30, transport=NSENTER, proofs=["timed out", ""])
    assert host.execute() == {"changed": True, "diff": [IMMEDIATE]}
    (confirmation,) = host.commands
    assert "/rollback confirm 1f;" in confirmation and host.runs[0]["checkpoint"] == 30


def test_a_proof_that_never_succeeds_leaves_the_change_to_the_nodes_watchdog() -> None:
    answers = [{"state": "armed", "told": "Open.", "age": 1}, {"state": "rolled back", "told": "Back.", "age": 1}]
    host = Host([armed()], answers, checkpoint=30, transport=NSENTER, proofs=["timed out"])
    assert host.execute()["msg"] == "rp_filter: Back. The last try to connect before that: timed out"
    assert len(host.commands) == 2 and all("/rollback status 1f;" in command for command in host.commands)


def test_a_proof_that_succeeds_because_the_node_has_rolled_back_is_no_confirmation() -> None:
    answer = {"state": "rolled back", "told": "Back.", "age": 1}
    host = Host([armed()], [answer], checkpoint=30, transport=NSENTER, proofs=["timed out", ""])
    assert host.execute()["msg"] == "rp_filter: Back. The last try to connect before that: timed out"


# A connection of ssh, which is monitored


class Ssh:
    """The connection of ssh. log: the commands to its master process."""

    transport = "ssh"
    become = None

    def __init__(self, log: Path) -> None:
        self._options: dict[str, t.Any] = {
            "host": "node1", "ssh_args": "-C -o ControlPersist=60s", "ssh_common_args": "", "ssh_extra_args": "", "timeout": 10,
            "reconnection_retries": 2, "ssh_executable": "ssh",
        }  # fmt: skip
        self._origins: dict[str, str] = {}
        self._shell = types.SimpleNamespace(tmpdir="/tmp/x")
        self._log = log
        log.write_text("")

    def has_option(self, name: str) -> bool:
        return name in self._options

    def get_option(self, name: str) -> t.Any:
        return self._options[name]

    def set_option(self, name: str, value: t.Any) -> None:
        self._options[name] = value

    def reset(self) -> None:
        pass

    def _build_command(self, *words: str) -> list[str]:
        return ["sh", "-c", f"echo {words[3]} >> {self._log}"]

    @property
    def commands(self) -> set[str]:
        return set(self._log.read_text().split())


class SshHost(Host):
    """hangs: the module's connection has died, which the action notices when the connection is closed."""

    def __init__(self, log: Path, results: t.Any, answers: t.Any, hangs: float = 0.0) -> None:
        super().__init__(results, answers, checkpoint=30)
        self._connection: t.Any = Ssh(log)
        self._hangs = hangs
        self.seen: list[Result] = []

    def _run(self, arguments: Result) -> Result:
        self.seen.append(dict(self._connection._options))
        end = time.monotonic() + self._hangs
        while time.monotonic() < end:
            if "exit" in self._connection.commands:
                raise AnsibleConnectionFailure("Shared connection closed")
            time.sleep(0.01)
        return super()._run(arguments)


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, seconds in {"CHECK": 0.02, "FIRST_LOOK": 0.1, "PAUSE": 0.02, "SETTLING": 0.05}.items():
        monkeypatch.setattr(_connection_watch, name, seconds)
    return tmp_path / "log"


BACK: Result = {"state": "rolled back", "told": "Back.", "age": 0.0}
YOUNG = "4711\nnet:[1]\n17\n0.17\n"  # another boot identity: the node has just started


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        (
            [None, {"state": "armed", "told": "", "age": 1}, BACK, BACK],
            "rp_filter: Back. The connection broke while the module",
        ),
        ([ALIVE, None, YOUNG, YOUNG], "rp_filter: the node was restarted while the module ran, so that a change"),
    ],
    ids=["rolled back", "restarted"],
)
def test_a_connection_that_died_without_a_word_is_hung_up(log: Path, answers: list[t.Any], said: str) -> None:
    host = SshHost(log, [], answers, hangs=20.0)
    result = host.execute()
    assert result["failed"] and result["msg"].startswith(said)
    assert host._connection.commands == {"check", "exit"}
    assert host._connection._options["ssh_args"] == "-C -o ControlPersist=60s"


def test_a_module_that_takes_its_time_is_left_alone(log: Path) -> None:
    old: Result = {"state": "rolled back", "told": "An old one.", "age": 99.0}
    waiting = [{"state": "none", "told": "", "age": 0}, old, ALIVE] * 300
    host = SshHost(log, [{"changed": False}], waiting, hangs=0.5)
    assert _checkpoint.execute(t.cast(t.Any, host), host._run) == {"changed": False}
    assert "exit" not in host._connection.commands and len(host._answers) < len(waiting)


def test_a_module_that_soon_ends_is_not_looked_after(log: Path) -> None:
    host = SshHost(log, [{"changed": False}], [])
    assert host.execute() == {"changed": False} and host.commands == []


def test_a_broken_connection_is_tried_again_once_it_is_certain_that_nothing_came_of_it(log: Path) -> None:
    none: Result = {"state": "none", "told": "", "age": 0}
    host = SshHost(log, [AnsibleConnectionFailure("Broken pipe"), {"changed": False}], [none])
    assert host.execute() == {"changed": False}
    assert [seen["reconnection_retries"] for seen in host.seen] == [0, 0]
    assert host._connection._options["reconnection_retries"] == 2
    host = SshHost(log, [AnsibleConnectionFailure("Broken pipe")] * 3, [none] * 3)
    with pytest.raises(AnsibleConnectionFailure, match="Broken pipe"):
        host.execute()
    host = SshHost(log, [AnsibleConnectionFailure("Broken pipe")], [BACK])
    assert host.execute()["msg"].startswith("rp_filter: Back.")


def test_without_a_master_process_ssh_itself_ends_a_dead_connection_after_the_deadline(log: Path) -> None:
    host = SshHost(log, [{"changed": False}] * 2, [])
    host.execute = lambda: _checkpoint.execute(t.cast(t.Any, host), host._run)  # type: ignore[method-assign]
    host.execute()
    host._connection.set_option("ssh_args", "-C")
    host.execute()
    assert [seen["ssh_extra_args"] for seen in host.seen] == ["", "-o ServerAliveInterval=13 -o ServerAliveCountMax=2"]


def test_the_checkpoint_of_another_task_is_none_of_ours(log: Path) -> None:
    host = SshHost(log, [], [{"state": "armed", "told": "", "age": 500.0}])
    watch = ConnectionWatch(t.cast(t.Any, host), 30)
    assert not watch._is_lost(watch._look(host))


@pytest.mark.parametrize("uptime", ["12.50", "5012.50", "", "?"])
def test_a_node_whose_uptime_cannot_be_is_not_taken_for_restarted(log: Path, uptime: str) -> None:
    """lxcfs counts a container's uptime from its own start, while the kernel counts the start of process 1 from the host's."""
    answer = _connection_watch.parse(f"6d5b\nnet:[4026531840]\n500000\n{uptime}\n")
    watch = ConnectionWatch(t.cast(t.Any, SshHost(log, [], [])), 30)
    watch._connected = time.monotonic() - 10
    assert answer.state == "gone"
    assert not watch.is_restarted(answer)
    assert watch.is_restarted(_connection_watch.parse("6d5b\nnet:[4026531840]\n500000\n5003.00\n"))


def test_a_node_that_does_not_answer_may_have_been_armed_until_that_was_known(log: Path) -> None:
    """Otherwise the play could give up shortly before the node has rolled back and can answer again."""

    class Unreachable:
        def _low_level_execute_command(self, _command: str) -> t.Any:
            time.sleep(0.3)
            raise AnsibleConnectionFailure("Connection timed out")

    watch = ConnectionWatch(t.cast(t.Any, SshHost(log, [], [])), 30)
    began = time.monotonic()
    assert watch._look(Unreachable()).state == SILENT
    first = watch.latest
    assert first >= began + 0.3 + 30
    watch._look(Unreachable())
    assert watch.latest == first


@pytest.mark.parametrize(
    ("answer", "silent", "deadline", "is_lost"),
    [
        (Answer(SILENT, ""), 29, None, False),
        (Answer(SILENT, ""), 31, None, True),
        (Answer(SILENT, ""), 1, 1, True),
        (Answer("armed", ""), None, 1, False),
        (Answer("armed", ""), None, 11, True),
        (Answer("none", ""), None, None, False),
    ],
)
def test_how_long_a_node_is_waited_for(
    log: Path, answer: Answer, silent: float | None, deadline: float | None, is_lost: bool
) -> None:
    """silent, deadline: seconds ago."""
    watch, now = ConnectionWatch(t.cast(t.Any, SshHost(log, [], [])), 30), time.monotonic()
    watch._silent = None if silent is None else now - silent
    watch._deadline = None if deadline is None else now - deadline
    assert watch._is_lost(answer) is is_lost


ARMED_AT, BACK_AT = 1767323045.0, 1767323075.9  # 2026-01-02 03:04:05 UTC


def test_an_armed_checkpoint_says_whose_it_is_since_when_and_for_how_long() -> None:
    one = model.Armed("1f", "rp_filter, from 192.0.2.7", ARMED_AT, 30, 99.0, (1, 2), (3, 4), (5, 6))
    assert str(one) == "the checkpoint of rp_filter, from 192.0.2.7, armed at 2026-01-02 03:04:05 UTC for 30 s"


@pytest.mark.parametrize(
    ("fields", "count"),
    [
        ({}, "0 steps undone"),
        ({"steps": 1}, "1 step undone"),
        ({"steps": 2, "left": ("a is b",)}, "2 steps undone"),
        ({"steps": 3, "failed": ("c: no", "d: no")}, "3 steps undone"),
        ({"steps": 4, "left": ("a", "b"), "failed": ("c: no",)}, "4 steps undone"),
    ],
)
def test_a_roll_back_says_when_and_why_and_what_is_not_as_it_was(fields: Result, count: str) -> None:
    text = str(model.RolledBack("1f", "rp_filter", ARMED_AT, BACK_AT, 30.9, "it was not confirmed", **fields))
    begin = "the change of rp_filter was rolled back at 2026-01-02 03:04:35 UTC, as it was not confirmed; "
    assert text.startswith(f"{begin}{count}.")
    lists = [fields[name] for name in ("left", "failed") if name in fields]
    told = text[len(f"{begin}{count}.") :]
    assert told.count(".") == told.count(": ") - sum(one.count(": ") for items in lists for one in items) == len(lists)
    assert all(f": {'; '.join(items)}." in told for items in lists)


@pytest.mark.parametrize("given", [-2, -1, 1, 2, 4, 3601])
def test_the_refusal_of_seconds_repeats_them(given: int) -> None:
    with pytest.raises(Invalid, match=f"; {given} was given$"):
        model.seconds(given)


def test_the_shortest_and_the_longest_time_are_times() -> None:
    assert [model.seconds(one) for one in (5, 3600)] == [5, 3600]


@pytest.mark.parametrize(
    "line",
    [
        *("{", '{"state": 1}', '{"other": 1}', '{"state": "armed", "told": {}}', '{"state": "ready", "told": ""}'),
        *(f'{{"state": "armed", "told": "", "age": {age}}}' for age in ('"soon"', "Infinity", "NaN", "-100", f"1{'0' * 400}")),
    ],
)
def test_what_the_program_does_not_answer_is_asked_again(line: str) -> None:
    with pytest.raises(AnsibleConnectionFailure, match="the node answered"):
        _connection_watch.parse(line)


def test_the_sentence_of_the_program_has_a_bound_and_no_control_characters() -> None:
    answer = _connection_watch.parse('{"state": "none", "told": "\\u001b[2J' + "x" * 10_000 + '"}')
    assert answer.told.startswith("\\x1b[2Jx") and len(answer.told) < 2100
