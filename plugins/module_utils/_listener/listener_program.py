# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The listener: a process that stays on the node and has a policy's rules and routes loaded again when some of them are lost.

A systemd unit starts it as ``policy-routes-75.json.pyz 75 PATH``. It stays small, because loading is done by another process of
the same file (``load 75 PATH``), which then exits. While nothing happens, the listener sends no request and runs no timer.

If the policy follows from the node's ENIs, a load also asks the metadata service: at the start (``boot 75 PATH``), when a
network interface is added or removed, and several more times while something is missing (``ask 75 PATH``; see
``_listener/schedule.py``). If it follows from the node's uplinks, each load reads these, and a change of their addresses or
routes leads to a load.

``rehearse 75 PATH`` only tries what both processes need, each with the packages that it finds.
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

from .._core.errors import Failure
from .._netlink.attributes import HEADER
from .._systemd.program_words import REHEARSE
from . import listener_backend, policy_unit
from .change_event import KERNEL, RULE_REMOVED, ChangeEvent, Dependencies, EventFilter
from .listener_backend import Notifications, WatchedFile, notify, versions
from .schedule import FIRST, Backoff, MetadataPoll

if t.TYPE_CHECKING:
    from .rule_return_backend import RuleReturns

LOAD, ASK, BOOT = "load", "ask", "boot"  # the verbs of load_program that the listener uses
DEBOUNCE = 0.05  # seconds; a program usually makes several changes at once
AT_ONCE = 512  # messages that are read between two looks at the clock
MOST_RETURNED = 8  # rules that are returned without a load: a script may delete thousands
CAUSES = 5  # that are logged; a script that starts a process for each rule gives many causes of one name
LOST = ChangeEvent("messages of the kernel were lost")
OTHER_POLICY = ChangeEvent("a run put another policy in force")
LEASE_CHANGED = ChangeEvent("a lease changed")
PENDING = ChangeEvent("a run held the lock")
METADATA_CHANGED = ChangeEvent("the cloud's metadata says so")
SLOW_END = 9.0  # seconds; with the second that systemd waits (RestartSec=), ten between a failure and the next start
WARNING = "<4>"  # for the journal, sd-daemon(3)

ADVICE = {
    "systemd-network": "systemd-networkd removes rules and routes that it did not create when it configures a link. Set"
    " ManageForeignRoutingPolicyRules=no and ManageForeignRoutes=no in networkd.conf, and restart systemd-networkd",
    "nm-cloud-setup": "nm-cloud-setup removes rules that it did not create. Disable nm-cloud-setup.timer and .service",
}


def main(arguments: t.Sequence[str] = ()) -> int:
    *verb, protocol, path = arguments or sys.argv[1:]
    if verb == [REHEARSE]:
        import site

        from .._boot import rehearsal_program

        rehearsal_program.import_everything()
        site.main()  # adds the node's packages to the search path, where the load process finds libraries
        verb = ["ready"]
    if verb:
        from . import load_program  # imports most of what a run needs; this process exits after the load

        return load_program.main([*verb, protocol, path])
    try:
        status = Listener(int(protocol), path).run()
    except Exception:
        traceback.print_exc()
        status = 1
    _end_slowly(policy_unit.name(int(protocol)))
    return status


def _end_slowly(unit: str) -> None:
    """Delay the exit after a failure, if systemd restarted this process by itself.

    systemd restarts the unit one second after each exit, so that a killed listener is soon back. Without the delay, a policy that
    cannot be loaded would be tried as often. At boot, and when a run starts the unit, the process exits at once: kubelet and the
    run wait for it.
    """
    from .._platform import process

    systemctl = process.find("systemctl")
    if systemctl:
        try:
            result = process.run([systemctl, "show", "--value", "--property=NRestarts", unit])
        except Failure as failure:
            _log(f"{WARNING}{failure}")
            return
        if result.stdout.strip() not in ("", "0"):
            time.sleep(SLOW_END)


def _loading(verb: str, protocol: int | str, path: str) -> list[str]:
    """Return the command of the load process. Unlike this process, it may find libraries among the node's packages (no -S)."""
    return [sys.executable, "-I", "-B", sys.argv[0], verb, str(protocol), path]


class _Load:
    """A load process. Its report arrives through a pipe; it shares the standard error output of this process.

    verb: LOAD, ASK or BOOT. causes: the events that led to this load, each with its sender. noted, returned: see Listener.
    """

    def __init__(
        self,
        verb: str,
        protocol: int,
        path: str,
        causes: dict[ChangeEvent, str],
        noted: dict[bool, float],
        returned: dict[bytes, tuple[str, float]],
    ) -> None:
        self.asks = verb != LOAD
        self.causes = causes
        self.noted = noted
        self.returned = returned
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
        """Wait until the process ends. Returns its report, or None if it failed."""
        with open(self._pipe, encoding="utf-8") as pipe:
            text = pipe.read()
        _pid, status = os.waitpid(self.pid, 0)
        return json.loads(text) if status == 0 else None


class Listener:
    """The listener of one policy. ``run`` returns only if the first load fails; systemd then starts the unit again."""

    def __init__(self, protocol: int, path: str) -> None:
        self._protocol = protocol
        self._path = path
        self._notifications = Notifications()
        self._filter = EventFilter(protocol, Dependencies())
        self._poll = select.poll()
        self._poll.register(self._notifications, select.POLLIN)
        self._record = WatchedFile()
        self._record_version: list[int] = []  # the version of the record that the newest load has read
        self._folders: list[str] = []  # with the leases that the policy follows from
        self._leases: dict[str, list[int]] = {}  # the versions of the files there that the newest load has read
        self._poll.register(self._record, select.POLLIN)
        self._load: _Load | None = None
        self._loader = 0  # the newest load's process id, which is also the netlink port of its changes
        self._is_ready = False
        self._contests = Backoff()  # restorations of what other programs removed
        self._losses = Backoff(longest=FIRST)  # of what the kernel removed with a link or address; short pauses
        self._failures = Backoff()  # failed loads
        self._metadata_poll = MetadataPoll(again=0.0)
        self._not_before = 0.0  # when the next load may begin
        self._noted: dict[bool, float] = {}  # when the first event for the next load came, by is_contest
        self._causes: dict[ChangeEvent, str] = {}
        self._returns: RuleReturns | None = None
        # Rules that are back without a load since the last one began, and in how many seconds, by what the kernel said of them.
        self._returned: dict[bytes, tuple[str, float]] = {}
        self._during_load: list[bytes | None] = []  # received during a load, which may have read the kernel earlier
        self._waiting: list[str] = []
        self._missing: list[str] = []
        self._advised: set[str] = set()

    def run(self) -> int:
        self._start()
        from .rule_return_backend import RuleReturns  # while the first load works, for which kubelet waits

        self._returns = RuleReturns()
        while True:
            for descriptor, _event in self._poll.poll(self._timeout()):
                if descriptor == self._notifications.fileno():
                    self._receive()
                elif descriptor == self._record.fileno():
                    self._check_record()
                elif self._load and not self._finish(self._load):
                    return 1
            due = self._next()
            if due is not None and time.monotonic() >= due:
                self._start()

    def _next(self) -> float | None:
        """Return when the next load begins, by the monotonic clock. None while a load runs, or if there is no reason for one."""
        if self._load is not None:
            return None
        backoffs = {True: self._contests, False: self._losses}
        times = [max(since + DEBOUNCE, backoffs[is_contest].until) for is_contest, since in self._noted.items()]
        if self._metadata_poll.due is not None:
            times.append(self._metadata_poll.due)
        return max(min(times), self._not_before) if times else None

    def _timeout(self) -> int | None:
        """Return milliseconds until a load is due; None to wait for the next message without a limit."""
        due = self._next()
        return None if due is None else math.ceil(max(0.0, due - time.monotonic()) * 1000)

    def _receive(self) -> None:
        for message in self._notifications.pending(AT_ONCE):
            if self._load is not None and len(self._during_load) <= AT_ONCE:
                self._during_load.append(message if len(self._during_load) < AT_ONCE else None)
            self._judge(message, returns=True)
        self._metadata_poll = self._metadata_poll.with_links(self._filter.eni_links, time.monotonic())

    def _check_record(self) -> None:
        """Notice a new record or lease.

        A run may put a policy in force without a change of the kernel, if foreign objects satisfy it, and a DHCP client may be
        configured to set no route.
        """
        if self._record.version() != self._record_version and self._load is None:
            self._note(OTHER_POLICY)
        if self._folders and self._load is None and versions(self._folders) != self._leases:
            self._note(LEASE_CHANGED)

    def _judge(self, message: bytes | None, returns: bool = False) -> None:
        event = LOST if message is None else self._filter.concern(message)
        own = (self._loader, self._returns.port if self._returns else self._loader)
        if event and (event.port == KERNEL or event.port not in own):
            if returns and message and event.clause == RULE_REMOVED and event.is_contest:
                self._return_rule(message)
            self._note(event)

    def _return_rule(self, deletion: bytes) -> None:
        """Return a rule that a program has deleted, once for each load, and not in the pause between two restorations."""
        key, received = deletion[HEADER.size :], time.monotonic()
        may_return = self._is_ready and received >= self._contests.until and len(self._returned) < MOST_RETURNED
        if self._returns and may_return and key not in self._returned:
            rule = self._returns.put_back(deletion, (self._record.path, self._path))
            if rule:
                self._returned[key] = rule, time.monotonic() - received

    def _note(self, event: ChangeEvent) -> None:
        self._noted.setdefault(event.is_contest, time.monotonic())
        if event not in self._causes and len(self._causes) < CAUSES:
            self._causes[event] = listener_backend.sender(event.port) if event.port != KERNEL else ""

    def _start(self) -> None:
        verb, asking = LOAD, self._metadata_poll.due
        if asking is not None and asking <= time.monotonic():
            verb = ASK if self._is_ready else BOOT
            self._causes.setdefault(METADATA_CHANGED, "")
        self._load = _Load(verb, self._protocol, self._path, self._causes, self._noted, self._returned)
        self._loader = self._load.pid
        self._poll.register(self._load, select.POLLIN)
        self._causes, self._noted, self._returned = {}, {}, {}

    def _finish(self, load: _Load) -> bool:
        """Evaluate a load that has ended. Returns False if the first load failed, so that there is no state to go on from."""
        self._load = None
        self._poll.unregister(load)
        report, now = load.report(), time.monotonic()
        if report is None:
            self._failures = self._failures.restored(now)
            self._not_before = now + max(self._failures.pause, FIRST)
            self._noted, self._causes = {**self._noted, **load.noted}, {**load.causes, **self._causes}
            self._returned = {**load.returned, **self._returned}
            return self._is_ready
        self._filter = EventFilter(self._protocol, Dependencies(**report["interest"]))
        seconds = now - load.since
        if load.returned and not (report["added"] or report["removed"]):
            seconds = max(taken for _rule, taken in load.returned.values())
        report["added"] = [*dict.fromkeys([*(rule for rule, _taken in load.returned.values()), *report["added"]])]
        if load.asks or report["asked"]:
            self._metadata_poll = self._answered(report["asked"], now)
        during_load, self._during_load = self._during_load, []
        if self._is_ready and (report["added"] or report["removed"]):
            self._not_before = now
            if True in load.noted:
                self._contests = self._contests.restored(now)
            else:
                self._losses = self._losses.restored(now)
        elif load.asks:
            self._not_before = now  # no pause: most of its time was spent on the metadata service
        else:
            self._not_before = now + (now - load.started)  # loads that change nothing take at most half of the time
        for message in during_load:
            self._judge(message)
        self._metadata_poll = self._metadata_poll.with_links(self._filter.eni_links, now)
        self._log_result(load, report, round(seconds * 1000))
        self._record_version = report["version"]
        self._folders, self._leases = report["folders"], report["leases"]
        self._record.watch(report["record"], self._folders)
        self._check_record()
        if report["pending"]:
            self._note(PENDING)
        return True

    def _answered(self, answer: dict[str, t.Any] | None, now: float) -> MetadataPoll:
        """Return the metadata poll after a load with a query.

        answer: from its report; None if the policy follows from no ENIs.
        """
        missing = answer["missing"] if answer else []
        if missing != self._missing:
            self._missing = missing
            _log(f"{WARNING}Missing: {'; '.join(missing)}" if missing else "Missing: nothing any more")
        if not answer:
            return MetadataPoll()
        return self._metadata_poll.after_query(self._filter.eni_links, now, answer["is_answered"], not missing)

    def _log_result(self, load: _Load, report: dict[str, t.Any], milliseconds: int) -> None:
        changes = [f"{verb}: {'; '.join(report[verb])}" for verb in ("added", "removed") if report[verb]]
        if not self._is_ready:
            nothing = "Rules or routes are missing, and a run holds the lock" if report["pending"] else "No change was needed"
            _log(f"{'Ready' if report['pending'] else 'In force'} after {milliseconds} ms. {'. '.join(changes) or nothing}")
        elif changes:
            causes = dict.fromkeys(f"{event.clause}{sender and f' by {sender}'}" for event, sender in load.causes.items())
            _log(
                f"{'In force' if load.asks else 'Restored'} after {milliseconds} ms, as {'; '.join(causes)}. {'. '.join(changes)}"
            )
            if True in load.noted:
                self._advise({sender for event, sender in load.causes.items() if event.clause == RULE_REMOVED})
        if report["waiting"] != self._waiting:
            self._waiting = report["waiting"]
            _log(f"Waiting: {'; '.join(self._waiting) or 'nothing any more'}")
        waiting = f"waiting for {len(self._waiting)}" if self._waiting else "all is in force"
        notify(*([] if self._is_ready else ["READY=1"]), f"STATUS=Listening, {waiting}")
        self._is_ready = True

    def _advise(self, culprits: t.Collection[str]) -> None:
        if self._contests.pause:
            _log(
                f"{WARNING}Restored {self._contests.times} times in a row rules or routes that another program removes."
                f" If it goes on, the next restoration comes after {self._contests.pause:g} s at the earliest"
            )
        for name in [name for name in ADVICE if name not in self._advised and f"({name}" in " ".join(culprits)]:
            self._advised.add(name)
            _log(WARNING + ADVICE[name])


def _log(sentence: str) -> None:
    sys.stdout.write(f"{sentence}\n")
    sys.stdout.flush()
