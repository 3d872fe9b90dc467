# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Programs that are started: their input, and the processes that they leave."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Failure, Uncertain
from ansible_collections.kubenode.datapath.plugins.module_utils._platform import lock, process
from ansible_collections.kubenode.datapath.plugins.module_utils._platform.process import Completed


def shell(script: str, stdin: str | None = None) -> Completed:
    return process.run(["sh", "-c", script], stdin)


def test_a_child_process_has_its_status_and_both_outputs() -> None:
    assert shell("echo out; echo error >&2; exit 3") == Completed(3, "out\n", "error\n")


@pytest.mark.parametrize("text", ["", "one\r\ntwo", "h\u00f6\udcff", "x" * 2_000_000], ids=["none", "ends", "bytes", "long"])
def test_stdin_arrives_as_it_is_and_what_is_printed_too(text: str) -> None:
    assert process.run(["cat"], text) == Completed(0, text, "")


def test_without_stdin_there_is_nothing_to_read() -> None:
    assert shell("cat") == Completed(0, "", "")


def test_a_file_that_is_opened_anew_is_read_from_its_beginning() -> None:
    assert process.run(["cat", "/dev/stdin"], "text") == Completed(0, "text", "")


def test_a_program_that_was_killed_has_a_negative_status() -> None:
    assert shell("kill -KILL $$").rc == -9


def test_a_daemon_that_is_left_behind_is_not_waited_for() -> None:
    started = time.monotonic()
    assert shell("sleep 5 & echo done") == Completed(0, "done\n", "")
    assert time.monotonic() - started < 4


def test_a_program_gets_the_c_locale_and_what_else_it_is_given() -> None:
    environment = {"PATH": "/usr/bin:/bin", "LC_ALL": "de_DE.UTF-8", "MINE": "1"}
    result = process.run(["sh", "-c", "echo $LC_ALL $PATH $MINE"], None, environment)
    assert result.stdout == "C /usr/bin:/bin 1\n"
    assert shell("echo $LC_ALL $PATH").stdout == f"C {process.SEARCH_PATH}\n"


UNSTARTABLE = {
    "missing": (None, "No such file or directory"),
    "of another machine": (b"\x7fELF\x02\x01\x01" + bytes(57), "Exec format error"),
    "without its interpreter": (b"#!/no/such/interpreter\n", "No such file or directory"),
    "a text": (b"no program\n", "Exec format error"),
}


@pytest.mark.parametrize(("content", "answer"), UNSTARTABLE.values(), ids=UNSTARTABLE.keys())
def test_a_program_that_cannot_be_started_is_named(tmp_path: Path, content: bytes | None, answer: str) -> None:
    program = tmp_path / "nft"
    if content is not None:
        program.write_bytes(content)
        program.chmod(0o755)
    with pytest.raises(Failure, match=f"{program} cannot be started: {answer}"):
        process.run([str(program), "--version"])


# Deadlines


def is_running(pid: str) -> bool:
    """False for a zombie, too."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def ends(pid: str, seconds: float = 3.0) -> bool:
    deadline = time.monotonic() + seconds
    while is_running(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not is_running(pid)


@pytest.fixture
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "GRACE", 0.3)


HANGING = {
    "sleeping": "exec sleep 60",
    "deaf to SIGTERM": "trap '' TERM; sleep 60 & echo $! >> {pids}; while :; do wait; done",
    "waiting for its child": "sleep 60 & echo $! >> {pids}; wait",
}


@pytest.mark.parametrize("is_locked", [False, True], ids=["without lock", "with lock"])
@pytest.mark.parametrize("script", HANGING.values(), ids=HANGING.keys())
def test_a_program_that_hangs_is_killed_with_its_children_and_named(
    tmp_path: Path, short_grace: None, script: str, is_locked: bool
) -> None:
    pids = tmp_path / "pids"
    argv = ["/bin/sh", "-c", f"echo $$ > {pids}; {script.format(pids=pids)}"]
    started = time.monotonic()
    with pytest.raises(Uncertain, match=r"/bin/sh -c .* did not end within 0\.5 s and was killed"):
        if is_locked:
            with lock.exclusive(str(tmp_path / "lock")) as descriptor, process.sharing(descriptor):
                process.run(argv, seconds=0.5)
        else:
            process.run(argv, seconds=0.5)
    assert time.monotonic() - started < 3
    assert all(ends(pid) for pid in pids.read_text().split())


def test_a_program_that_the_kernel_does_not_let_go_of_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, short_grace: None
) -> None:
    """A program that waits in the kernel does not react to SIGKILL; here, the signal is not sent."""
    monkeypatch.setattr(os, "killpg", lambda _pid, _number: None)
    started = time.monotonic()
    with pytest.raises(Uncertain, match="cannot be killed, as it is stuck in the kernel"):
        process.run(["sleep", "3"], seconds=0.2)
    assert time.monotonic() - started < 2


def test_a_deadline_is_kept_without_pidfd_too(monkeypatch: pytest.MonkeyPatch, short_grace: None) -> None:
    def refuse(_pid: int) -> int:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(os, "pidfd_open", refuse)
    assert shell("echo out; exit 3") == Completed(3, "out\n", "")
    with pytest.raises(Uncertain, match="did not end within"):
        process.run(["sleep", "60"], seconds=0.2)


# Runs that are killed or told to end, in a process of their own

RUN = """
import sys
from ansible_collections.kubenode.datapath.plugins.module_utils._platform import lock, process
with lock.exclusive({path!r}) as descriptor, process.sharing(descriptor):
    process.run(["/bin/sh", "-c", {script!r}], seconds={seconds}, completes={completes})
"""


class Run:
    """A run with the lock whose program writes its pid to ``pid``, and goes on for ``lasts`` seconds."""

    def __init__(self, folder: Path, lasts: float, completes: bool, seconds: float = 60) -> None:
        self.lock, self._pid, self.done = str(folder / "lock"), folder / "pid", folder / "done"
        script = f"echo $$ > {self._pid}.new; mv {self._pid}.new {self._pid}; sleep {lasts}; touch {self.done}"
        code = RUN.format(path=self.lock, script=script, seconds=seconds, completes=completes)
        # Under nohup(1) the tests ignore SIGHUP, and what they start would as well.
        hears = "import signal; signal.signal(signal.SIGHUP, signal.SIG_DFL)\n"
        environment = {**os.environ, "PYTHONPATH": ":".join(sys.path)}
        self.process = os.spawnve(os.P_NOWAIT, sys.executable, [sys.executable, "-c", hears + code], environment)
        while not self._pid.exists():
            time.sleep(0.01)
        self.pid = self._pid.read_text().strip()

    def end(self, number: int) -> None:
        os.kill(self.process, number)
        os.waitpid(self.process, 0)


@pytest.mark.parametrize("is_locked", [False, True], ids=["without lock", "with lock"])
def test_a_killed_run_takes_its_program_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_locked: bool) -> None:
    if not is_locked:
        monkeypatch.setattr(f"{__name__}.RUN", RUN.replace(", process.sharing(descriptor)", ""))
    run = Run(tmp_path, lasts=60, completes=False)
    run.end(signal.SIGKILL)
    assert ends(run.pid)


def test_what_a_killed_runs_program_has_started_keeps_no_other_run_waiting(tmp_path: Path) -> None:
    """The program is a shell, which dies with the run; its sleep lives on, and holds the lock."""
    run = Run(tmp_path, lasts=60, completes=False)
    run.end(signal.SIGKILL)
    assert ends(run.pid)
    with lock.exclusive(run.lock, patience=10):
        assert not run.done.exists()


def test_a_live_runs_program_is_not_killed_for_another_run(tmp_path: Path) -> None:
    run = Run(tmp_path, lasts=2.5, completes=False)
    with lock.exclusive(run.lock, patience=20):
        assert run.done.exists()
    os.waitpid(run.process, 0)


def test_a_program_that_completes_its_work_keeps_the_lock_of_its_killed_run(tmp_path: Path) -> None:
    run = Run(tmp_path, lasts=1, completes=True)
    run.end(signal.SIGKILL)
    with pytest.raises(Failure, match=rf"holds .*: process {run.pid} \(sh\)"), lock.exclusive(run.lock, patience=0.1):
        pytest.fail("held")
    with lock.exclusive(run.lock, patience=5):
        assert run.done.exists()


@pytest.mark.parametrize(("number", "completes"), [(signal.SIGTERM, False), (signal.SIGHUP, False), (signal.SIGTERM, True)])
def test_a_run_that_is_told_to_end_leaves_no_program_behind(tmp_path: Path, number: int, completes: bool) -> None:
    run = Run(tmp_path, lasts=1.5, completes=completes)
    run.end(number)
    assert not is_running(run.pid)
    assert run.done.exists() == completes
    assert not Path(run.lock).exists()


def test_the_deadline_of_a_program_outlives_its_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program was started with an alarm. /proc does not show alarms, so the test waits for the end."""
    code = RUN.replace("with lock", "process.GRACE = 0.1\nwith lock")
    monkeypatch.setattr(f"{__name__}.RUN", code)
    run = Run(tmp_path, lasts=60, completes=True, seconds=1)
    run.end(signal.SIGKILL)
    assert ends(run.pid, 5)


def test_a_program_left_behind_does_not_hold_up_the_run_after_a_run_that_ended_well(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    with lock.exclusive(path) as descriptor, process.sharing(descriptor):
        process.run(["/bin/sh", "-c", "sleep 2 &"])
    with lock.exclusive(path, patience=0.1):
        pass


FORKS = """
import os, signal
from ansible_collections.kubenode.datapath.plugins.module_utils._platform import process
def interrupt(): os.kill(os.getpid(), signal.SIGINT)
HOOK
def say(text): os.write(1, text.encode() + b"\\n")  # in one piece
try:
    child = process.fork(lambda: say("works"))
    say(str(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])))
except KeyboardInterrupt:
    say("interrupted")
"""


@pytest.mark.parametrize(("hook", "printed"), [("after_in_parent", "works interrupted"), ("after_in_child", "1")])
def test_an_interrupt_within_a_fork_is_not_lost(hook: str, printed: str) -> None:
    """A hook is Python's own: logging has one. What it raises is dropped, and a child must not go on in the caller."""
    script = FORKS.replace("HOOK", f"os.register_at_fork({hook}=interrupt)")
    completed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert completed.stderr == "" and sorted(completed.stdout.split()) == sorted(printed.split())
