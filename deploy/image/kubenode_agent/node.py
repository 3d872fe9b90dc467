# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The node's object in Kubernetes: a label, a taint, and events. The node is converged whether the API answers or not."""

from __future__ import annotations

import collections
import datetime
import logging
from collections.abc import Callable
from typing import Any

from kubernetes import client, config
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

TIMEOUT = (3, 10)  # seconds to connect, and to get an answer
LABELS = "kubenode.datapath"
COMPONENT = "kubenode-agent"
MOST_EVENTS = 10  # that wait for the API
LONGEST = 1000  # characters of an event's message (the API takes 1,024)
NAMESPACE = "default"  # of events of objects without a namespace

log = logging.getLogger(__name__)


class Node:
    """name: of the node. Events that the API does not take are kept, and sent with flush()."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._api: client.CoreV1Api | None = None
        self._events: collections.deque[tuple[str, str, str]] = collections.deque(maxlen=MOST_EVENTS)
        self._last: tuple[str, str, str] | None = None

    def label(self, profile: str, version: str | None) -> bool:
        """Labels the node with the version of its profile; None for no profile. False if the API did not accept the label."""
        return self._tried("label", lambda api: self._label(api, profile.replace("_", "-"), version))

    def remove_taint(self, key: str) -> bool:
        """Removes the taint, so that ordinary pods are scheduled to the node. False if the API did not accept the change."""
        return self._tried("taint", lambda api: self._remove_taint(api, key))

    def event(self, kind: str, reason: str, message: str) -> None:
        """kind: Normal or Warning. The same event is not sent twice in a row."""
        if self._last != (kind, reason, message):
            self._last = kind, reason, message
            self._events.append(self._last)
            self.flush()

    def flush(self) -> None:
        """Sends the events that the API has not taken yet."""
        while self._events and self._tried("event", lambda api: self._event(api, *self._events[0])):
            self._events.popleft()

    def _tried(self, what: str, call: Callable[[client.CoreV1Api], None]) -> bool:
        try:
            if self._api is None:
                config.load_incluster_config()
                self._api = client.CoreV1Api()
            call(self._api)
        except (ApiException, HTTPError, OSError, ValueError, config.ConfigException) as error:
            log.warning("The API did not take the %s of node %s: %s", what, self._name, " ".join(str(error).split())[:300])
            return False
        return True

    def _label(self, api: client.CoreV1Api, profile: str, version: str | None) -> None:
        patch = {"metadata": {"labels": {f"{LABELS}/{profile}": version}}}
        api.patch_node(self._name, patch, _request_timeout=TIMEOUT)

    def _remove_taint(self, api: client.CoreV1Api, key: str) -> None:
        taints = api.read_node(self._name, _request_timeout=TIMEOUT).spec.taints or []
        for number in reversed(range(len(taints))):
            if taints[number].key == key:
                place = f"/spec/taints/{number}"
                # Another program may change the list meanwhile: the patch is refused then, and sent again after the next run.
                patch = [{"op": "test", "path": f"{place}/key", "value": key}, {"op": "remove", "path": place}]
                api.patch_node(self._name, patch, _request_timeout=TIMEOUT)

    def _event(self, api: client.CoreV1Api, kind: str, reason: str, message: str) -> None:
        now = datetime.datetime.now(datetime.timezone.utc)
        # kubelet's events of a node have the node's name as the uid, by which kubectl describe finds them.
        about = {"apiVersion": "v1", "kind": "Node", "name": self._name, "uid": self._name}
        event: dict[str, Any] = {
            "metadata": {"generateName": f"{self._name}.", "namespace": NAMESPACE},
            "involvedObject": about,
            "type": kind,
            "reason": reason,
            "message": message[:LONGEST],
            "source": {"component": COMPONENT, "host": self._name},
            "firstTimestamp": now.isoformat(),
            "lastTimestamp": now.isoformat(),
            "count": 1,
        }
        api.create_namespaced_event(NAMESPACE, event, _request_timeout=TIMEOUT)
