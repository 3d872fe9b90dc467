# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Listens to what changes on the node: the kernel's notifications, and a look at the settings that have none."""

from __future__ import annotations

import collections
import json
import logging
import os
import select
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from ansible_collections.kubenode.datapath.plugins.module_utils._audit import catalogue
from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import DatapathError
from ansible_collections.kubenode.datapath.plugins.module_utils._core.fields import IPV4, IPV6
from ansible_collections.kubenode.datapath.plugins.module_utils._core.printable import counted
from ansible_collections.kubenode.datapath.plugins.module_utils._interfaces.link_backend import LinkMessages
from ansible_collections.kubenode.datapath.plugins.module_utils._listener import listener_backend, node_change
from ansible_collections.kubenode.datapath.plugins.module_utils._listener.listener_backend import Notifications
from ansible_collections.kubenode.datapath.plugins.module_utils._listener.node_change import (
    RULESET,
    SETTING,
    Burst,
    Change,
    Reader,
)
from ansible_collections.kubenode.datapath.plugins.module_utils._netlink import wire
from ansible_collections.kubenode.datapath.plugins.module_utils._platform import kernel
from ansible_collections.kubenode.datapath.plugins.module_utils._snapshot import settings as settings_model

# include/uapi/linux/rtnetlink.h: RTNLGRP_NEIGH, RTNLGRP_IPV4_NETCONF, RTNLGRP_IPV6_NETCONF; nfnetlink.h: NFNLGRP_NFTABLES
GROUPS = listener_backend.GROUPS | sum(1 << group - 1 for group in (3, 24, 25))
OF_NODE = "/proc/1/ns/net"  # the node's network
RULESETS = 1 << 7 - 1
AT_ONCE = 500  # reads of a socket, between which a signal and an audit have their turn
BUSY, REST = 200, 0.02  # notifications of one read after which the agent rests, and for how many seconds
SETTINGS = 30.0  # seconds between two looks at settings
HISTORY = "changes"  # a file with the last changes; it outlives a container
MOST = 200  # changes in the history
MOST_USUAL = 50  # programs whose changes of rulesets are usual
MOST_NAMED = 3  # changes in a sentence

log = logging.getLogger(__name__)


class Budget:
    """Seconds of a processor for audits: a share of one, of which up to ``most`` seconds are saved."""

    def __init__(self, share: float, most: float, now: float) -> None:
        self._share, self._most = share, most
        self._level, self._at = most, now

    def permits(self, now: float) -> bool:
        return self._now(now) > 0

    def spend(self, seconds: float, now: float) -> None:
        self._level, self._at = self._now(now) - seconds, now

    def _now(self, now: float) -> float:
        return min(self._level + (now - self._at) * self._share, self._most)


class Record(NamedTuple):
    """A change in the history. time: in seconds since 1970. before, after: as those of Change."""

    time: float
    kind: str
    verb: str
    text: str
    program: str
    before: Mapping[str, Any] = {}
    after: Mapping[str, Any] = {}


class Before(NamedTuple):
    """What changed before an audit. sentence: empty if nothing has. is_over: whether no pod was coming or going."""

    sentence: str = ""
    is_over: bool = True


class Watch:
    """folder: of the history. Raises OSError, DatapathError."""

    def __init__(self, folder: Path) -> None:
        if os.stat(OF_NODE).st_ino != os.stat("/proc/self/ns/net").st_ino:
            raise OSError("the pod is not in the network of its node (hostNetwork)")
        self._sockets = [Notifications(GROUPS)]
        try:
            self._sockets.append(Notifications(RULESETS, wire.NETFILTER, node_change.NEWGEN))
        except OSError as error:  # a kernel without nf_tables
            log.warning("Changes of nftables are found with the next interval only: %s", error.strerror)
        self._poll = select.poll()
        for each in self._sockets:
            self._poll.register(each, select.POLLIN)
        self._reader = _reader()
        self._settings, self._settings_due = _settings(), time.monotonic() + SETTINGS
        self._usual: collections.OrderedDict[str, None] = collections.OrderedDict()
        self._path = folder / HISTORY
        self.history: collections.deque[Record] = collections.deque(_read(self._path), MOST)
        self._senders: dict[int, str] = {}  # of the burst, by their ports
        self.burst = Burst()

    def receive(self, seconds: float) -> None:
        """Wait for notifications, and note what they report."""
        now = time.monotonic()
        if now >= self._settings_due:
            self._look_at_settings()
            self._settings_due = now + SETTINGS
        if self._poll.poll(max(0.0, seconds) * 1000):
            self._read()

    def is_unusual(self) -> bool:
        return self.burst.is_lost or bool(self.burst.unusual(time.monotonic(), self._usual))

    def is_quiet(self) -> bool:
        """Return whether nothing has changed since the burst began."""
        self._read()
        return not self.burst

    def close(self) -> Before:
        """Begin a new burst. What changes during the audit that follows is of the new one."""
        self._read()
        now, burst = time.monotonic(), self.burst
        self.burst = burst.rest(now)
        # What is gone is more likely to be missed.
        listed = sorted(burst.unusual(now, self._usual) or burst.changes, key=lambda change: change.verb != node_change.REMOVED)
        named = [self._searched(change) for change in listed[:MOST_NAMED]]
        for name in {node_change.name_of(change.program) for change in burst.changes if change.kind == RULESET} - {""}:
            self._usual[name] = None
            self._usual.move_to_end(name)
        while len(self._usual) > MOST_USUAL:
            self._usual.popitem(last=False)
        self._senders.clear()
        if burst.is_lost:
            self._reader = _reader()
        if any(change.kind == SETTING for change in burst.changes):  # of a link, which may be one of the whole node, too
            self._settings = _settings()
        if burst:
            self._write()
        more = len(burst.changes) - len(named)
        sentences = [
            *(change.sentence for change in named),
            *([f"{counted(more, 'change')} more"] if more else []),
            *(["more than the kernel could tell"] if burst.is_lost else []),
        ]
        return Before("; ".join(sentences), not burst.has_pods and not self.burst)

    def _searched(self, change: Change) -> Change:
        """Return a change with its program, if a search of all processes finds it."""
        if not change.port or change.program:
            return change
        program = listener_backend.sender(change.port)
        for number, record in enumerate(self.history):
            if record[1:5] == (change.kind, change.verb, change.text, ""):
                self.history[number] = record._replace(program=program)
        return change._replace(program=program)

    def _read(self) -> None:
        now, count = time.monotonic(), 0
        for each in self._sockets:
            for message in each.pending(AT_ONCE):
                count += 1
                if message is None:
                    self.burst.lose(now)
                    continue
                self._sender(self._reader.port(message))  # before all else, because it may be about to end
                change = self._reader.change(message)
                if change:
                    self._note(change, now)
        if count > BUSY or self.burst.has_pods:  # their changes come one by one, and nobody asks who made them
            time.sleep(REST)

    def _note(self, change: Change, now: float) -> None:
        change = change if change.program else change._replace(program=self._sender(change.port))
        sides = dict(change.before), dict(change.after)
        self.history.append(Record(round(time.time(), 3), change.kind, change.verb, change.text, change.program, *sides))
        self.burst.add(change, now)

    def _sender(self, port: int) -> str:
        """Return what has a port now; empty if that is not known, or if a burst has too many of them."""
        if port and port not in self._senders and len(self._senders) < BUSY:
            self._senders[port] = listener_backend.sender_at_once(port)
        return self._senders.get(port, "")

    def _look_at_settings(self) -> None:
        settings = _settings()
        for key, value in settings.items():
            former = self._settings.get(key)
            if former != value:
                sides = [{} if each is None else {"settings": settings_model.of_one(key, each)} for each in (former, value)]
                change = Change(SETTING, node_change.CHANGED, f"{key} = {value},", before=sides[0], after=sides[1])
                self._note(change, time.monotonic())
        self._settings = settings

    def _write(self) -> None:
        new = self._path.with_suffix(".new")
        new.write_text(json.dumps([record._asdict() for record in self.history]))
        new.replace(self._path)


def _reader() -> Reader:
    links = LinkMessages()
    settings = [
        body for family in (IPV4, IPV6) for body in wire.dump(node_change.GETNETCONF, bytes([family, 0, 0, 0]), "settings")
    ]
    return Reader([link.body for link in links.links()], [address.body for address in links.addresses()], settings)


def _settings() -> dict[str, int]:
    """Return settings of the whole node. Those of links have notifications, where packets meet them most."""
    of_links = [
        f"net/{family}/conf/{link}/{key}"
        for family in settings_model.FAMILIES
        for link in (settings_model.ALL, settings_model.DEFAULT)
        for key in settings_model.LINK[family]
    ]
    keys = [*settings_model.NODE, *(key.replace(".", "/") for key in catalogue.SETTINGS), *of_links]
    read = {key.replace("/", "."): kernel.setting(key) for key in keys}
    return {key: value for key, value in read.items() if value is not None}


def _read(path: Path) -> Iterator[Record]:
    with suppress(OSError, ValueError, TypeError):  # it is not there yet, or a write was cut short
        yield from [Record(**entry) for entry in json.loads(path.read_text())]


def watching(folder: Path) -> Watch | None:
    """Return the watch; None, with the reason in the log, if the kernel does not permit it."""
    try:
        return Watch(folder)
    except (OSError, DatapathError) as error:
        log.warning("The agent does not listen to changes, and audits by its interval alone: %s", error)
        return None
