# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Starts programs: the runner that a module or the boot program gives to its backends.

No program outlives its deadline. If the run is killed, its program is killed with it. A program that must complete its work,
such as a package manager, goes on, but ends at the latest by its own alarm. While a run holds the lock, each program that it
starts holds the lock too, so that the kernel keeps the lock until the last of them has ended. Processes that such a program
has started itself carry the run's mark in their environment; the next run that wants the lock finds and kills them.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import shutil
import signal
import subprocess
import typing as t

from .._core.errors import Failure, Uncertain

# Where a node keeps its administration tools; a login's or a cron job's PATH often lacks them.
SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

DEADLINE = 120.0  # seconds; nft lists 10,000 rules in one, systemd gives a service 90 to stop
GRACE = 5.0  # seconds from SIGTERM to SIGKILL, and from SIGKILL to giving up
ENDINGS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
MARK = "KUBENODE_RUN"  # in the environment of a program that must not outlive its run
WAITING = "kubenode: "  # the beginning of a file's name in memory that shows what the run waits for
LONGEST_NAME = 249 - len(WAITING)  # bytes, memfd_create(2)
PR_SET_PDEATHSIG = 1  # include/uapi/linux/prctl.h
FIRST = 1  # pid of the first process of a PID namespace (pid_namespaces(7))


class Completed(t.NamedTuple):
    """A program that ended: its exit status and its output."""

    rc: int
    stdout: str
    stderr: str


Runner = t.Callable[[t.Sequence[str], t.Optional[str]], Completed]

_shared: set[int] = set()  # descriptors that programs inherit


def find(program: str) -> str | None:
    """Return the program's path; None if the node does not have it. Starts nothing."""
    return shutil.which(program, path=SEARCH_PATH)


@contextlib.contextmanager
def sharing(descriptor: int) -> t.Iterator[None]:
    """Let each program that is started in the block hold the descriptor, and so the lock on its file, until the program ends."""
    _shared.add(descriptor)
    try:
        yield
    finally:
        _shared.discard(descriptor)


def share_nothing() -> None:
    """Let programs of this process inherit no descriptor, for a process that has left those of its run."""
    _shared.clear()


def fork(work: t.Callable[[], object]) -> int:
    """Call the function in a child, which ends with it: with status 1 if it raises anything. Returns the child's pid.

    A signal that ends the run waits meanwhile: Python drops what the hooks of a fork raise. In the child, nothing that a signal
    raises may go on in the caller.
    """
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ENDINGS)
    try:
        child = os.fork()
        if not child:
            try:
                signal.pthread_sigmask(signal.SIG_SETMASK, mask)
                work()
                os._exit(0)
            finally:
                os._exit(1)
        return child
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def run(
    argv: t.Sequence[str],
    stdin: str | None = None,
    environment: t.Mapping[str, str] | None = None,
    seconds: float | None = None,
    completes: bool = False,
) -> Completed:
    """Run a program. The C locale keeps messages recognisable. Bytes that are not UTF-8 become surrogates.

    environment: the program's variables, besides the locale; None for PATH alone.
    seconds: deadline after which the program is killed with all that it started; None for DEADLINE.
    completes: whether the program completes its work if the run ends first.
    Raises Failure if the program cannot be started, and Uncertain if it has not ended in time.
    """
    # Files instead of pipes: a daemon that the program leaves behind would hold a pipe open.
    with (
        _in_memory(stdin or "", _waiting_name(f"runs {_command_text(argv)}")) as input_file,
        _in_memory() as out,
        _in_memory() as error,
    ):
        seconds = DEADLINE if seconds is None else seconds
        bounds, program = _bounds(seconds, completes), None
        variables = {**(environment or {"PATH": SEARCH_PATH}), **({MARK: mark(os.getpid())} if not completes else {})}
        # Signals that end the run are blocked until the program's pid is known, so that it can be ended with the run.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, ENDINGS if bounds else ())
        try:
            try:
                program = _start(argv, (input_file, out, error), variables, bounds)
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            has_ended = _has_ended(program, seconds)
        except BaseException:
            if program and not (completes and _has_ended(program, seconds)):
                _kill(program)
            raise
        if not has_ended:
            fate = "was killed" if _kill(program) else "cannot be killed, as it is stuck in the kernel"
            raise Uncertain(
                f"{_command_text(argv)} (process {program.pid}) did not end within {seconds:g} s and {fate}. Start it by hand to"
                " see what it waits for, then run again"
            )
        return Completed(program.wait(), _text(out), _text(error))


@contextlib.contextmanager
def waiting(text: str) -> t.Iterator[None]:
    """Show what this process waits for during the block, as run() shows its program: as the name of a file in memory.

    Each process of root sees the name in /proc. Nothing is written to the node, and a killed run leaves nothing.
    """
    with _in_memory(name=_waiting_name(text)):
        yield


def mark(pid: int) -> str:
    """Return a text that identifies a process, even if its pid is reused or exists in another namespace; empty if it has
    ended."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            started = file.read().rpartition(")")[2].split()[19]  # proc_pid_stat(5): 22
        return f"{pid} {started} {os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return ""


def _start(
    argv: t.Sequence[str],
    files: tuple[t.BinaryIO, t.BinaryIO, t.BinaryIO],
    environment: t.Mapping[str, str],
    bounds: t.Callable[[], None] | None,
) -> subprocess.Popen[bytes]:
    """Start a program in its own session. So it can be killed with its children, and only the run gets a terminal's signals."""
    input_file, out, error = files
    try:
        # pylint: disable-next=ansible-bad-function,subprocess-popen-preexec-fn
        return subprocess.Popen(
            list(argv),
            stdin=input_file,
            stdout=out,
            stderr=error,
            env={**environment, "LC_ALL": "C"},
            start_new_session=True,
            pass_fds=tuple(_shared),
            preexec_fn=bounds,
        )
    except OSError as problem:  # no such program, one for another machine, one without its interpreter
        raise Failure(f"{argv[0]} cannot be started: {problem.strerror}. Reinstall the package that it belongs to") from problem


def _bounds(seconds: float, completes: bool) -> t.Callable[[], None] | None:
    """Make the kernel end a program whose run was killed: together with the run, or at the latest after the deadline.

    Running Python code between fork and exec costs 5 ms, because the child then needs a copy of Python's memory. But only the
    child itself can request this. A wrapper such as timeout(1) may be killed alone, and costs about the same.
    None if there is no need: the kernel ends a PID namespace with its first process, as which a twin runs.
    """
    run = os.getpid()
    if run == FIRST:
        return None
    control = _prctl()
    latest = math.ceil(seconds + 3 * GRACE)  # a run that is alive ends it earlier

    def bound() -> None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDINGS)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(latest)  # alarm(2): exec keeps it, fork does not
        if control and not completes:
            control(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
            if os.getppid() != run:  # the run was killed before prctl
                os._exit(1)

    return bound


def _prctl() -> t.Callable[..., int] | None:
    """Return prctl(2); None if Python was built without libffi."""
    try:
        import ctypes
    except ImportError:
        return None
    return t.cast("t.Callable[..., int]", ctypes.CDLL(None).prctl)


def _has_ended(program: subprocess.Popen[bytes], seconds: float) -> bool:
    """Wait for the program, without polling: Popen.wait() with a limit polls, in the end every 50 ms."""
    try:
        descriptor = os.pidfd_open(program.pid)
    except (AttributeError, OSError):  # Linux before 5.3, or a container that forbids it
        with contextlib.suppress(subprocess.TimeoutExpired):
            program.wait(seconds)
        return program.returncode is not None
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(seconds * 1000))
    finally:
        os.close(descriptor)


def _kill(program: subprocess.Popen[bytes]) -> bool:
    """End the program, and its children in the same session. False if the program has not ended."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(program.pid, number)
        has_ended = _has_ended(program, GRACE)
    return has_ended


def _command_text(argv: t.Sequence[str]) -> str:
    """Return a command line for the operator, without the variables that env(1) is given."""
    return " ".join(word for word in argv if word.startswith("-") or "=" not in word)


def _waiting_name(text: str) -> str:
    line = " ".join(text.split()).encode(errors="replace")
    return WAITING + line[:LONGEST_NAME].decode(errors="ignore")


def _in_memory(text: str = "", name: str = "kubenode") -> t.BinaryIO:
    file = os.fdopen(os.memfd_create(name), "w+b")
    file.write(text.encode("utf-8", "surrogateescape"))
    file.seek(0)  # also flushes what was written
    return file


def _text(file: t.BinaryIO) -> str:
    file.seek(0)
    return file.read().decode("utf-8", "surrogateescape")
