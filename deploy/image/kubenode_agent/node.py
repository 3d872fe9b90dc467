# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The node's object in Kubernetes: label, taint, condition, events. The node is converged whether the API answers or not."""

from __future__ import annotations

import collections
import datetime
import json
import logging
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from . import api
from . import condition as conditions
from .condition import Condition

LIMIT = 15.0  # seconds for a request: an answer that comes byte by byte never meets the limit between two parts
FIRST, LAST = 4.0, 60.0  # seconds until a request that failed is repeated; doubled each time
LABELS = "kubenode.datapath"
COMPONENT = "kubenode-agent"
MOST_EVENTS = 10  # that wait for the API
HEARTBEAT = 300.0  # seconds after which a condition that stays the same is sent again, as kubelet does
RENEWED = 1800.0  # seconds after which the same event is sent again: the API forgets events after an hour
LONGEST = 1000  # characters of an event's message (the API takes 1,024)
NAMESPACE = "default"  # of events of objects without a namespace
EVENTS = f"/api/v1/namespaces/{NAMESPACE}/events"
WRONG = (400, 413, 422)  # statuses by which the API refuses an object for its content

log = logging.getLogger(__name__)


class Node:
    """name: of the node. Events that the API does not take are kept, and sent with flush(). path: of a file with them, which
    outlives a container; None for none.
    """

    def __init__(self, name: str, path: Path | None = None) -> None:
        self._name = name
        self._request: threading.Thread | None = None
        self._pauses: dict[str, tuple[float, float]] = {}  # by what is told: when it is tried again, and the pause after that
        self._path = path
        self._events: collections.deque[tuple[str, str, str, str]] = collections.deque(_events(path), MOST_EVENTS)
        self._last: tuple[str, str, str] | None = None
        self._renewed = 0.0
        self._condition: tuple[Condition, datetime.datetime] | None = None  # with the time of the audit
        self._changed = ""  # when its status was first another one than before
        self._since: tuple[str, str] | None = None  # the status that the API has, and since when; None before it was asked
        self._beat = 0.0  # when a condition that stays the same is sent again
        self._is_told = True  # whether the API has the condition

    @property
    def room(self) -> int:
        """Return how many events can be queued without losing one that waits."""
        return MOST_EVENTS - len(self._events)

    def label(self, profile: str, version: str | None) -> bool:
        """Label the node with the version of its profile; None for no profile. False if the API did not accept the label."""
        return self._tried("label", lambda: self._label(profile.replace("_", "-"), version))

    def remove_taint(self, key: str) -> bool:
        """Remove the taint, so that ordinary pods are scheduled to the node. False if the API did not accept the change."""
        return self._tried("taint", lambda: self._remove_taint(key))

    def event(self, kind: str, reason: str, message: str) -> None:
        """Queue an event. kind: Normal or Warning. The same event is not sent twice in a row, except to renew it."""
        if self._last != (kind, reason, message) or time.monotonic() > self._renewed:
            self.queue(kind, reason, message)

    def queue(self, kind: str, reason: str, message: str) -> None:
        """Queue an event, even if it is the same as the last one."""
        self._last, self._renewed = (kind, reason, message), time.monotonic() + RENEWED
        self._events.append((kind, reason, message, _now().isoformat()))
        self._keep_events()
        self.flush()

    @property
    def has_condition(self) -> Condition | None:
        """Return the condition that was set last."""
        return self._condition[0] if self._condition else None

    def set_condition(self, condition: Condition) -> None:
        """Set the condition of the node after an audit. It is sent if it is another one, or to show that audits go on."""
        now, last = _now(), self.has_condition
        if last is None or last.status != condition.status:
            self._changed = _text(now)
        self._is_told = self._is_told and last == condition and time.monotonic() < self._beat
        self._condition = condition, now
        self.flush()

    def flush(self) -> None:
        """Send the condition and the events that the API has not taken yet."""
        if self._condition and not self._is_told:
            condition, audited = self._condition
            self._is_told = self._tried("condition", lambda: self._set_condition(condition, _text(audited), self._changed))
            self._beat = time.monotonic() + HEARTBEAT
        while self._events and self._tried("event", lambda: self._event(*self._events[0])):
            self._events.popleft()
            self._keep_events()

    def _keep_events(self) -> None:
        if self._path:
            self._path.write_text(json.dumps([*self._events]))

    def _tried(self, what: str, call: Callable[[], None]) -> bool:
        due, pause = self._pauses.get(what, (0.0, FIRST))
        if time.monotonic() < due:
            return False
        trouble = self._requested(call)
        if not trouble:
            self._pauses.pop(what, None)
            return True
        self._pauses[what] = time.monotonic() + pause * random.uniform(0.75, 1.25), min(2 * pause, LAST)
        log.warning("The API did not take the %s of node %s: %s", what, self._name, " ".join(trouble.split())[:300])
        return False

    def _requested(self, call: Callable[[], None]) -> str:
        """Send a request. Return what went wrong; empty if nothing did. No longer than LIMIT, whatever the API does meanwhile."""
        if self._request and self._request.is_alive():
            return "it has not answered the request before this one"
        answers: list[str] = []

        def ask() -> None:
            try:
                call()
            except Exception as error:  # whatever an API answers must not end the agent
                answers.append(str(error) or repr(error))
            else:
                answers.append("")

        self._request = threading.Thread(target=ask, daemon=True)
        self._request.start()
        self._request.join(LIMIT)
        return answers[0] if answers else f"no answer within {LIMIT:g} s"

    def _label(self, profile: str, version: str | None) -> None:
        label = f"{LABELS}/{profile}"
        patched = self._patched(api.MERGE_PATCH, {"metadata": {"labels": {label: version}}})
        if (patched["metadata"].get("labels") or {}).get(label) != version:
            raise ValueError("it answered with a node that has another one")

    def _remove_taint(self, key: str) -> None:
        taints = _taints(api.request("GET", f"{api.NODES}/{self._name}"))
        for number in reversed(range(len(taints))):
            if taints[number]["key"] == key:
                place = f"/spec/taints/{number}"
                # Another program may change the list meanwhile: the patch is refused then, and sent again later.
                patch = [{"op": "test", "path": f"{place}/key", "value": key}, {"op": "remove", "path": place}]
                taints = _taints(self._patched(api.JSON_PATCH, patch))
        if any(taint["key"] == key for taint in taints):
            raise ValueError("it answered with a node that still has it")

    def _set_condition(self, condition: Condition, audited: str, changed: str) -> None:
        """audited: the time of the audit. changed: when the status became this one, unless the API has had it for longer."""
        if self._since is None:  # a patch that changes nothing is answered with the node, and needs no other permission
            former = _condition(self._patched(api.MERGE_PATCH, {}, "/status"))
            self._since = former.get("status", ""), former.get("lastTransitionTime", "")
        status, since = self._since
        since = since if status == condition.status and since else changed
        times = {"lastHeartbeatTime": audited, "lastTransitionTime": since}
        patch = {"status": {"conditions": [{"type": conditions.TYPE, **condition._asdict(), **times}]}}
        patch["status"]["conditions"][0]["message"] = condition.message[:LONGEST]
        if _condition(self._patched(api.MERGE_PATCH, patch, "/status")).get("status") != condition.status:
            raise ValueError("it answered with a node that has another one")
        self._since = condition.status, since

    def _patched(self, kind: str, patch: dict[str, Any] | list[dict[str, Any]], part: str = "") -> dict[str, Any]:
        return api.request("PATCH", f"{api.NODES}/{self._name}{part}", patch, kind)

    def _event(self, kind: str, reason: str, message: str, when: str) -> None:
        # kubelet's events of a node have the node's name as the uid, by which kubectl describe finds them.
        about = {"apiVersion": "v1", "kind": "Node", "name": self._name, "uid": self._name}
        event: dict[str, Any] = {
            "metadata": {"generateName": f"{self._name}.", "namespace": NAMESPACE},
            "involvedObject": about,
            "type": kind,
            "reason": reason,
            "message": message[:LONGEST],
            "source": {"component": COMPONENT, "host": self._name},
            "firstTimestamp": when,
            "lastTimestamp": when,
            "count": 1,
        }
        try:
            api.request("POST", EVENTS, event)
        except api.Refusal as refusal:
            if refusal.status not in WRONG:
                raise
            # The API will never take it, and the events behind it would wait.
            log.warning("The API refused an event of node %s: %s", self._name, " ".join(str(refusal).split())[:300])


def _events(path: Path | None) -> Iterator[tuple[str, str, str, str]]:
    """Yield the events in a file, oldest first: type, reason, message and time."""
    with suppress(OSError, ValueError):  # it is not there yet, or a write was cut short
        yield from (tuple(entry) for entry in json.loads(path.read_text()) if len(entry) == 4) if path else ()


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.timezone.utc)


def _text(time: datetime.datetime) -> str:
    """Return a time as conditions have it, in whole seconds."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")


def _condition(node: dict[str, Any]) -> dict[str, Any]:
    """Return the agent's condition of the node; empty if it has none."""
    return next((entry for entry in node["status"].get("conditions") or () if entry["type"] == conditions.TYPE), {})


def _taints(node: dict[str, Any]) -> list[dict[str, Any]]:
    return list(node["spec"].get("taints") or ())
