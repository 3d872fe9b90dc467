# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Stays on the node, hears what becomes of a set of policy rules and routes, and has it loaded again where some of it is lost.

Started as ``policy-routes-75.json.pyz 75 PATH`` by a unit of systemd. It stays small: what loads is another process of the same
file (``load 75 PATH``), which ends. It asks nobody and has no timer while nothing happens.

Where the set follows from the node's ENIs, a load also asks the metadata service: at the start (``boot 75 PATH``), when a card
comes or goes, and some times more while something is missing (``ask 75 PATH``, ``_listener/metadata_poll.py``).

As ``rehearse 75 PATH`` it only tries what both processes need, each with the packages that it finds.
"""

from __future__ import annotations

import json
import math
import os
import select
import sys
import time
import traceback
import typing as t

from .._boot.boot_unit import REHEARSE, routes_unit
from .._core.errors import Failure
from . import sender_backend
from .backoff import FIRST, Backoff
from .change_event import KERNEL, RULE_REMOVED, ChangeEvent, Dependencies, EventFilter
from .metadata_poll import MetadataPoll
from .notifications_backend import Notifications
from .sd_notify_backend import notify
from .watched_file_backend import WatchedFile

LOAD, ASK, BOOT = "load", "ask", "boot"  # what a load is told to do
DEBOUNCE = 0.05  # seconds; one program's changes come together
AT_ONCE = 512  # messages between two looks at the clock
CAUSES = 5  # that are kept; a script that starts a process for each rule has one name for all
LOST = ChangeEvent("more happened than could be heard")
OTHER_SET = ChangeEvent("another set was put in force")
PENDING = ChangeEvent("a run held the lock")
ASKED = ChangeEvent("the cloud's metadata says so")
SLOW_END = 9.0  # seconds; with the second that systemd waits, ten from one failure to the next try
WARNING = "<4>"  # for the journal, sd-daemon(3)

ADVICE = {
    "systemd-network": "systemd-networkd removes rules and routes that it did not make when it configures a link. Set"
    " ManageForeignRoutingPolicyRules=no and ManageForeignRoutes=no in networkd.conf, and restart it",
    "nm-cloud-setup": "nm-cloud-setup removes rules that it did not make. Disable nm-cloud-setup.timer and .service",
}


def main(arguments: t.Sequence[str] = ()) -> int:
    *verb, protocol, path = arguments or sys.argv[1:]
    if verb == [REHEARSE]:
        import site

        from .._boot import rehearsal_program

        rehearsal_program.import_everything()
        site.main()  # from here on as the other process: it finds libraries among the node's packages
        verb = ["ready"]
    if verb:
        from . import load_program  # all that a run is made of, for as long as it takes

        return load_program.main([*verb, protocol, path])
    try:
        status = Listener(int(protocol), path).run()
    except Exception:
        traceback.print_exc()
        status = 1
    _end_slowly(routes_unit(int(protocol)))
    return status


def _end_slowly(unit: str) -> None:
    """Waits before a failure ends the process, where systemd had started that again by itself.

    It does so one second after each end, so that a listener that was killed is soon back. A set that can not be loaded would be
    tried as often. At boot and for a run the failure ends at once: kubelet and the run wait for it.
    """
    from .._platform import process

    systemctl = process.find("systemctl")
    if systemctl:
        try:
            asked = process.run([systemctl, "show", "--value", "--property=NRestarts", unit])
        except Failure as failure:
            _log(f"{WARNING}{failure}")
            return
        if asked.stdout.strip() not in ("", "0"):
            time.sleep(SLOW_END)


def _loading(verb: str, protocol: int | str, path: str) -> list[str]:
    """The other process. Unlike this one it may find libraries among the node's packages."""
    return [sys.executable, "-I", "-B", sys.argv[0], verb, str(protocol), path]


class _Load:
    """Another process of this program, which loads. Its report comes by a pipe, its complaints go where ours go.

    verb: what it is told to do. causes: why, and by whom; noted: as the listener's.
    """

    def __init__(
        self, verb: str, protocol: int, path: str, causes: dict[ChangeEvent, str], noted: dict[bool, float]
    ) -> None:
        self.asks = verb != LOAD
        self.causes = causes
        self.noted = noted
        self.started = time.monotonic()
        self.since = min(noted.values(), default=self.started)
        self._pipe, report = os.pipe()
        command = _loading(verb, protocol, path)
        actions = [(os.POSIX_SPAWN_DUP2, report, 1)]
        # pylint: disable-next=ansible-bad-function  # there is no AnsibleModule here
        self.pid = os.posix_spawn(command[0], command, os.environ, file_actions=actions)
        os.close(report)

    def fileno(self) -> int:
        return self._pipe

    def report(self) -> dict[str, t.Any] | None:
        """Waits for its end. None where it failed."""
        with open(self._pipe, encoding="utf-8") as pipe:
            text = pipe.read()
        _pid, status = os.waitpid(self.pid, 0)
        return json.loads(text) if status == 0 else None


class Listener:
    """One set. ``run`` returns only where it can not be loaded at all: systemd then tries again."""

    def __init__(self, protocol: int, path: str) -> None:
        self._protocol = protocol
        self._path = path
        self._news = Notifications()
        self._watch = EventFilter(protocol, Dependencies())
        self._poll = select.poll()
        self._poll.register(self._news, select.POLLIN)
        self._record = WatchedFile()
        self._known: list[int] = []  # its version that the newest load has read
        self._poll.register(self._record, select.POLLIN)
        self._load: _Load | None = None
        self._loader = 0  # the newest load's process, and so the port of what it changes
        self._is_ready = False
        self._contests = Backoff()  # what programs keep undoing
        self._losses = Backoff(longest=FIRST)  # what goes with a link or an address, and has to be back soon after it
        self._failures = Backoff()  # of loads
        self._inquiry = MetadataPoll(again=0.0)
        self._rested = 0.0  # when the next load may begin
        self._noted: dict[bool, float] = {}  # when the first reason for the next load came, by whether it is a contest
        self._causes: dict[ChangeEvent, str] = {}
        self._meanwhile: list[bytes | None] = []  # heard during a load, which may have looked before or after
        self._waiting: list[str] = []
        self._missing: list[str] = []
        self._advised: set[str] = set()

    def run(self) -> int:
        self._start()
        while True:
            for descriptor, _event in self._poll.poll(self._patience()):
                if descriptor == self._news.fileno():
                    self._hear()
                elif descriptor == self._record.fileno():
                    self._compare()
                elif self._load and not self._finish(self._load):
                    return 1
            due = self._next()
            if due is not None and time.monotonic() >= due:
                self._start()

    def _next(self) -> float | None:
        """When the next load is to begin; None while there is one, or no reason for any."""
        if self._load is not None:
            return None
        backoffs = {True: self._contests, False: self._losses}
        times = [max(since + DEBOUNCE, backoffs[is_contest].until) for is_contest, since in self._noted.items()]
        if self._inquiry.due is not None:
            times.append(self._inquiry.due)
        return max(min(times), self._rested) if times else None

    def _patience(self) -> int | None:
        """Milliseconds until a load is due; None for as long as it takes until there is news."""
        due = self._next()
        return None if due is None else math.ceil(max(0.0, due - time.monotonic()) * 1000)

    def _hear(self) -> None:
        for message in self._news.pending(AT_ONCE):
            if self._load is not None and len(self._meanwhile) <= AT_ONCE:
                self._meanwhile.append(message if len(self._meanwhile) < AT_ONCE else None)
            self._judge(message)
        self._inquiry = self._inquiry.seen(self._watch.cards, time.monotonic())

    def _compare(self) -> None:
        """A run may put another set in force that changes nothing in the kernel, as others fulfil it."""
        if self._record.version() != self._known and self._load is None:
            self._note(OTHER_SET)

    def _judge(self, message: bytes | None) -> None:
        concern = LOST if message is None else self._watch.concern(message)
        if concern and (concern.port == KERNEL or concern.port != self._loader):
            self._note(concern)

    def _note(self, concern: ChangeEvent) -> None:
        self._noted.setdefault(concern.is_contest, time.monotonic())
        if concern not in self._causes and len(self._causes) < CAUSES:
            self._causes[concern] = sender_backend.of(concern.port) if concern.port != KERNEL else ""

    def _start(self) -> None:
        verb, asking = LOAD, self._inquiry.due
        if asking is not None and asking <= time.monotonic():
            verb = ASK if self._is_ready else BOOT
            self._causes.setdefault(ASKED, "")
        self._load = _Load(verb, self._protocol, self._path, self._causes, self._noted)
        self._loader = self._load.pid
        self._poll.register(self._load, select.POLLIN)
        self._causes, self._noted = {}, {}

    def _finish(self, load: _Load) -> bool:
        """False where there is nothing to go on from: the very first load has failed."""
        self._load = None
        self._poll.unregister(load)
        report, now = load.report(), time.monotonic()
        if report is None:
            self._failures = self._failures.restored(now)
            self._rested = now + max(self._failures.pause, FIRST)
            self._noted, self._causes = {**self._noted, **load.noted}, {**load.causes, **self._causes}
            return self._is_ready
        self._watch = EventFilter(self._protocol, Dependencies(**report["interest"]))
        if load.asks:
            self._inquiry = self._answered(report["asked"], now)
        meanwhile, self._meanwhile = self._meanwhile, []
        if self._is_ready and (report["added"] or report["removed"]):
            self._rested = now
            if True in load.noted:
                self._contests = self._contests.restored(now)
            else:
                self._losses = self._losses.restored(now)
        elif load.asks:
            self._rested = now  # what it took was the metadata's time
        else:
            self._rested = now + (now - load.started)  # half of the time, whoever keeps us looking for nothing
        for message in meanwhile:
            self._judge(message)
        self._inquiry = self._inquiry.seen(self._watch.cards, now)
        self._tell(load, report, round((now - load.since) * 1000))
        self._known = report["version"]
        self._record.watch(report["record"])
        self._compare()
        if report["pending"]:
            self._note(PENDING)
        return True

    def _answered(self, asked: dict[str, t.Any] | None, now: float) -> MetadataPoll:
        """What follows a load that may have asked the metadata. asked: what came of it; None where the set needs none."""
        missing = asked["missing"] if asked else []
        if missing != self._missing:
            self._missing = missing
            _log(f"{WARNING}Missing: {'; '.join(missing)}" if missing else "Missing: nothing any more")
        if not asked:
            return MetadataPoll()
        return self._inquiry.asked(self._watch.cards, now, asked["is_answered"], not missing)

    def _tell(self, load: _Load, report: dict[str, t.Any], milliseconds: int) -> None:
        changes = [f"{verb}: {'; '.join(report[verb])}" for verb in ("added", "removed") if report[verb]]
        if not self._is_ready:
            nothing = (
                "Something is missing, and a run holds the lock" if report["pending"] else "Nothing had to be changed"
            )
            _log(
                f"{'Ready' if report['pending'] else 'In force'} after {milliseconds} ms. {'. '.join(changes) or nothing}"
            )
        elif changes:
            causes = dict.fromkeys(f"{concern.what}{who and f' by {who}'}" for concern, who in load.causes.items())
            _log(
                f"{'In force' if load.asks else 'Restored'} after {milliseconds} ms, as {'; '.join(causes)}. {'. '.join(changes)}"
            )
            if True in load.noted:
                self._advise({who for concern, who in load.causes.items() if concern.what == RULE_REMOVED})
        if report["waiting"] != self._waiting:
            self._waiting = report["waiting"]
            _log(f"Waiting: {'; '.join(self._waiting) or 'nothing any more'}")
        waiting = f"waiting for {len(self._waiting)}" if self._waiting else "all is in force"
        notify(*([] if self._is_ready else ["READY=1"]), f"STATUS=Listening, {waiting}")
        self._is_ready = True

    def _advise(self, culprits: t.Collection[str]) -> None:
        if self._contests.pause:
            _log(
                f"{WARNING}Restored {self._contests.times} times in a row what another program removes: where it does so again,"
                f" the next restoration comes after {self._contests.pause:g} s at the earliest"
            )
        for name in [name for name in ADVICE if name not in self._advised and f"({name}" in " ".join(culprits)]:
            self._advised.add(name)
            _log(WARNING + ADVICE[name])


def _log(sentence: str) -> None:
    sys.stdout.write(f"{sentence}\n")
    sys.stdout.flush()
