# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The agent's metrics for Prometheus."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator, Mapping
from typing import Any

from prometheus_client import REGISTRY, Counter, Gauge, Histogram, start_http_server
from prometheus_client.core import GaugeMetricFamily

from ansible_collections.kubenode.datapath.plugins.module_utils._render import prometheus

from .playbook import Outcome

# A run that finds nothing to do takes some seconds, one that installs a package minutes.
SECONDS = (1, 2.5, 5, 10, 30, 60, 300, 1800)
NODE_LABEL = "node"  # of samples of many nodes; a scrape of an agent knows the node


class Metrics:
    """The metrics of every agent. results: of runs."""

    def __init__(self, *results: str) -> None:
        self._runs = Counter("kubenode_runs", "Runs, by result.", ["result"])
        self._seconds = Histogram("kubenode_run_seconds", "Duration of a run.", buckets=SECONDS)
        self._last = Gauge("kubenode_last_success_timestamp_seconds", "When a run last succeeded.")
        self._warnings = Counter("kubenode_warnings", "Warnings of runs.")
        self._interval = Gauge("kubenode_interval_seconds", "Time between two runs that succeed.")
        self._build = Gauge("kubenode_build_info", "Versions.", ["version", "ansible_core", "profile"])
        for result in results:
            self._runs.labels(result)

    def serve(self, address: str, port: int) -> None:
        """Serve the metrics. address: to listen at; empty for all of the node, of both families."""
        start_http_server(port, addr=address or ("::" if socket.has_dualstack_ipv6() else "0.0.0.0"))

    def identify(self, version: str, ansible_core: str, profile: str, interval: float) -> None:
        """Set what stays the same as long as the agent runs. interval: minutes between two runs."""
        self._build.labels(version, ansible_core, profile).set(1)
        self._interval.set(interval * 60)

    def warned(self, count: int) -> None:
        self._warnings.inc(count)

    def _ran(self, result: str, seconds: float, is_well: bool) -> None:
        self._runs.labels(result).inc()
        self._seconds.observe(seconds)
        if is_well:
            self._last.set_to_current_time()


class ProfileMetrics(Metrics):
    def __init__(self) -> None:
        super().__init__("ok", "changed", "failed")
        self._changes = Counter("kubenode_changes", "Changes of the node, by module.", ["module"])
        self._drift = Counter("kubenode_drift", "Changes although the desired state was the same, by module.", ["module"])
        self._failures = Counter("kubenode_failures", "Failed runs, by module.", ["module"])
        self._refusals = Counter("kubenode_refused_variables", "ConfigMaps that were refused.")
        self._converged = Gauge("kubenode_converged", "1 if the last run brought the node to the desired state.")

    def converged(self, outcome: Outcome, is_new: bool) -> None:
        """Count a run. is_new: whether the desired state has changed since the last run that succeeded."""
        self._ran(outcome.state, outcome.seconds, outcome.is_well)
        self._converged.set(outcome.is_well)
        if not outcome.is_well:
            self._failures.labels(outcome.modules[0] if outcome.modules else "none").inc()
            return
        for module in outcome.modules:
            self._changes.labels(module).inc()
            if not is_new:
                self._drift.labels(module).inc()

    def refused(self) -> None:
        self._refusals.inc()
        self._converged.set(0)


class AuditMetrics(Metrics):
    def __init__(self) -> None:
        super().__init__("ok", "failed")
        self._findings: list[prometheus.Metric] = []
        REGISTRY.register(self)

    def audited(self, result: Mapping[str, Any], trouble: str, seconds: float) -> None:
        """Count an audit. After one that failed, the findings and the time of the last one before it stay.

        result: of datapath_audit. trouble: why there is none; empty if there is.
        """
        self._ran("failed" if trouble else "ok", seconds, not trouble)
        if not trouble:
            self._findings = prometheus.metrics({"": result}, int(time.time()))

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the metrics of the last audit, as prometheus_client demands it of a collector."""
        for metric in self._findings:
            samples = [{name: value for name, value in labels.items() if name != NODE_LABEL} for labels in metric.samples]
            family = GaugeMetricFamily(metric.name, metric.about, labels=[*samples[0]] if samples else None)
            for labels in samples:
                family.add_metric([*labels.values()], metric.value)
            yield family
