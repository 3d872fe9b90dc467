# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The audits of nodes as metrics, for the textfile collector of Prometheus' node exporter."""

from __future__ import annotations

import typing as t

from . import findings

METRICS = {
    "kubenode_datapath_finding": "Findings of datapath_audit that are present, one for each node, check and subject.",
    "kubenode_datapath_cannot_tell": "Checks of datapath_audit that cannot tell.",
    "kubenode_datapath_audit_timestamp_seconds": "When the node was audited, in seconds since 1970.",
    "kubenode_datapath_not_audited": "Nodes that could not be audited, or whose answer is refused.",
}
Labels = t.Mapping[str, str]


class Metric(t.NamedTuple):
    """samples: the labels of each; each only once, as the format demands. value: of all samples."""

    name: str
    about: str
    samples: list[Labels]
    value: int


def metrics(results: object, time: int) -> list[Metric]:
    """Return the metrics. time: of the audit, in seconds. Raises Refused."""
    fleet = findings.fleet(results)
    present = [
        {"id": finding.id, "severity": finding.severity, "subject": finding.subject, "node": node}
        for node, finding in fleet.present
    ]
    unclear = [{"id": finding.id, "node": node} for node, finding in fleet.unclear]
    series: list[tuple[list[dict[str, str]], int]] = [
        *((present, 1), (unclear, 1)),
        *(([{"node": node} for node in fleet.audited], time), ([{"node": node} for node in fleet.failed], 1)),
    ]
    return [
        Metric(name, about, [*{tuple(labels.items()): labels for labels in samples}.values()], value)
        for (name, about), (samples, value) in zip(METRICS.items(), series)
    ]


def text(results: object, time: int) -> str:
    """Return the metrics in a text that is valid by both formats, Prometheus' own and OpenMetrics. Raises Refused.

    The end is a comment in the former, and the latter demands it.
    """
    return "".join([*map(_text, metrics(results, time)), "# EOF\n"])


def _text(metric: Metric) -> str:
    lines = [f"{metric.name}{{{_labels(labels)}}} {metric.value}" for labels in metric.samples]
    return "\n".join([f"# HELP {metric.name} {metric.about}", f"# TYPE {metric.name} gauge", *lines, ""])


def _labels(labels: Labels) -> str:
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())


def _escaped(value: str) -> str:
    """Return the value of a label as prometheus.io/docs/instrumenting/exposition_formats demands; it has no line breaks."""
    return value.replace("\\", "\\\\").replace('"', '\\"')
