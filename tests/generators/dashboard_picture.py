# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The picture of the dashboard in docs/pictures: the answers of a Prometheus to its queries, each in its panel, as SVG.

Run by ``make docs``. The samples are those that the agents' own code serves over six hours on three nodes. Their clock is set
here, so that the picture is the same each time. Grafana itself draws a panel in its own style.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

from ansible_collections.kubenode.datapath.plugins.module_utils._render.findings import read
from generators.drawings import FOLDER, STYLE, text
from lab import host, prometheus
from unit.audits import audit, present, unclear

ROOT = Path(__file__).resolve().parents[2]
DASHBOARD = json.loads((ROOT / "deploy/kustomize/components/dashboard/kubenode-datapath.json").read_text())
END, HOURS, STEP = 1_793_534_400, 6, 300  # seconds since 1970, of 2026-11-01 at noon; hours of the picture; seconds of a sample
RANGE = "30m"  # of rates
COLUMN, ROW, GAP, HEAD = 40, 33, 8, 28  # pixels of Grafana's grid of 24 columns, between panels, and of a title
COLOURS = ("#3274d9", "#e0752d", "#56a64b", "#b877d9", "#e02f44", "#8f8f8f")
NO_LABELS = ("__name__", "instance", "job", "pod")  # of a table, which Prometheus adds
MOST_ROWS, MOST_LETTERS = 6, 44
MORE_STYLE = ".big { font-size: 30px; font-weight: bold } .bold { font-weight: bold } .axis { stroke: var(--link) }\n"


class Agent(NamedTuple):
    node: str
    profile: str


AGENTS = [Agent(f"node{number}", profile) for number in (1, 2, 3) for profile in ("audit", "eni_policy_routing")]


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        programs = prometheus.programs(folder / "programs")
        with multiprocessing.get_context("fork").Pool(1, maxtasksperchild=1) as pool:  # an agent has a process of its own
            histories = pool.map(history, AGENTS, chunksize=1)
        (folder / "samples").write_text(openmetrics(histories))
        host.run([programs / "promtool", "tsdb", "create-blocks-from", "openmetrics", folder / "samples", folder / "tsdb"])
        with prometheus.serving(folder, programs / "prometheus", {}, "--storage.tsdb.retention.time=100y") as server:
            picture = svg(server)
    path = FOLDER / "dashboard.svg"
    path.write_text(picture)
    print(f"{path}: {path.stat().st_size} bytes")


def history(agent: Agent) -> list[tuple[int, str]]:
    """Return the times of the samples and what an agent serves at each."""
    sys.path.insert(0, str(ROOT / "deploy/image"))
    from kubenode_agent import condition, metrics
    from kubenode_agent.playbook import Outcome
    from prometheus_client import REGISTRY, Gauge, generate_latest

    moments = range(END - HOURS * 3600, END + 1, STEP)
    served: metrics.Metrics = metrics.AuditMetrics() if agent.profile == "audit" else metrics.ProfileMetrics()
    served.identify("1.0.0", "2.21.5", agent.profile, 10)
    of_api = Gauge("kube_node_status_condition", "Of kube-state-metrics.", ["condition", "status"])
    samples = []
    for number, moment in enumerate(moments):
        with mock.patch("time.time", return_value=moment):
            if number % 2 == 0 and isinstance(served, metrics.AuditMetrics):
                result = audit(*findings(agent.node, number * STEP / 3600))
                served.audited(result, "", 2.4)
                status = condition.of(read(result), condition.Certainty(), None).status
                for each in (condition.TRUE, condition.FALSE, condition.UNKNOWN):
                    of_api.labels(condition.TYPE, each.lower()).set(each == status)
            elif number % 2 == 0 and isinstance(served, metrics.ProfileMetrics):
                state, module = outcome(agent.node, number)
                served.converged(Outcome(state, "no", (module,) if module else (), 3.1 + number % 5), is_new=False)
        samples.append((moment, generate_latest(REGISTRY).decode()))
    return samples


def findings(node: str, hour: float) -> Iterator[dict[str, Any]]:
    """Yield what the audit of a node finds at an hour: a risk of two nodes that a run has mended, and a loss since the third."""
    if node != "node3" and hour < 2:
        yield present("risk", id="networkd-removes-foreign", subject="systemd-networkd")
    if node == "node3" and hour >= 3:
        yield present(id="rp-strict-asymmetric", subject="eth0")
    if node == "node3":
        yield present("note", id="both-backends", subject="iptables")
    yield unclear("ra-route-expires", severity="risk")
    if node == "node1" and hour < 4:
        yield unclear("probe-port-closed")


def outcome(node: str, number: int) -> tuple[str, str]:
    """Return the state of a run of the profile, and the module that changed something or failed."""
    if node == "node3" and 30 <= number < 40:
        return "failed", "policy_routes"
    if (node, number) in {("node2", 44), ("node2", 46), ("node3", 40)}:
        return "changed", "rp_filter" if node == "node2" else "policy_routes"
    return "ok", ""


def openmetrics(histories: Sequence[Sequence[tuple[int, str]]]) -> str:
    """Return all samples as promtool reads them, with the labels that a scrape of the agent's pod adds."""
    from prometheus_client.parser import text_string_to_metric_families

    families: dict[tuple[str, str], list[str]] = {}
    for agent, samples in zip(AGENTS, histories, strict=True):
        for moment, page in samples:
            for family in text_string_to_metric_families(page):
                if family.name.startswith(("kubenode_", "kube_node_")) and not family.name.endswith("_created"):
                    lines = families.setdefault((family.name, family.type), [])
                    lines += [_sample(agent, sample, moment) for sample in family.samples]
    parts = [f"# TYPE {name} {kind}\n{''.join(lines)}" for (name, kind), lines in families.items()]
    return f"{''.join(parts)}# EOF\n"


def _sample(agent: Agent, sample: Any, moment: int) -> str:
    labels = {**sample.labels, "node": agent.node, "pod": f"kubenode-agent-{agent.profile}"}
    shown = ",".join(f"{name}={json.dumps(value)}" for name, value in labels.items())
    return f"{sample.name}{{{shown}}} {sample.value} {moment}\n"


def svg(server: prometheus.Prometheus) -> str:
    """Return the picture of all panels."""
    width = 24 * COLUMN + GAP
    height = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in DASHBOARD["panels"]) * ROW + GAP
    panels = [line for panel in DASHBOARD["panels"] for line in draw(server, panel)]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">',
            f"<title>The dashboard: {', '.join(panel['title'] for panel in DASHBOARD['panels'])}</title>",
            f"<style>{STYLE}{MORE_STYLE}</style>",
            f'<rect class="card" width="{width}" height="{height}" rx="8"/>',
            *panels,
            "</svg>\n",
        ]
    )


def draw(server: prometheus.Prometheus, panel: dict[str, Any]) -> Iterator[str]:
    """Yield the elements of a panel."""
    place = panel["gridPos"]
    left, top = place["x"] * COLUMN + GAP, place["y"] * ROW + GAP
    width, height = place["w"] * COLUMN - GAP, place["h"] * ROW - GAP
    (target,) = panel["targets"]
    query = target["expr"].replace("$__rate_interval", RANGE).replace("$node", ".*")
    yield f'<g transform="translate({left} {top})"><rect class="box" width="{width}" height="{height}" rx="4"/>'
    yield text(10, 19, panel["title"], "title")
    if panel["type"] == "stat":
        yield from stat(server.values(query, time=END), panel["fieldConfig"]["defaults"], width, height)
    elif panel["type"] == "table":
        yield from table(server.values(query, time=END), width)
    else:
        start = END - HOURS * 3600
        answer = server.ask("query_range", query=query, start=start, end=END, step=STEP)
        yield from lines(answer["result"], target["legendFormat"], width, height)
    yield "</g>"


def stat(answer: list[Any], defaults: dict[str, Any], width: int, height: int) -> Iterator[str]:
    value = float(answer[0]["value"][1])
    steps = [step for step in defaults.get("thresholds", {}).get("steps", ()) if value >= (step["value"] or 0)]
    colour = f' style="fill:{steps[-1]["color"]}"' if steps else ""
    yield f'<text class="big middle" x="{width // 2}" y="{height // 2 + 22}"{colour}>{value:g}</text>'


def table(answer: list[Any], width: int) -> Iterator[str]:
    rows = [{name: value for name, value in entry["metric"].items() if name not in NO_LABELS} for entry in answer]
    names = sorted({name for row in rows for name in row})
    for at, name in enumerate(names):
        x = 10 + at * (width - 20) // len(names)
        yield text(x, HEAD + 16, name, "small bold")
        for number, row in enumerate(sorted(rows, key=lambda row: [row.get(name, "") for name in names])[:MOST_ROWS]):
            yield text(x, HEAD + 40 + 22 * number, row.get(name, "")[:MOST_LETTERS], "small")


def lines(answer: list[Any], legend: str, width: int, height: int) -> Iterator[str]:
    """Yield a line for each series, above its legend. Where a series has no sample, its line has a gap."""
    series = sorted((_named(legend, entry["metric"]), _numbers(entry["values"])) for entry in answer)
    most = max((value for _name, values in series for _moment, value in values), default=0) or 1
    left, top, right, bottom = 52, HEAD + 8, width - 12, height - 46
    for share in (0, 0.5, 1):
        y = round(bottom - share * (bottom - top))
        yield f'<path class="axis" d="M{left} {y}H{right}"/>{text(left - 6, y + 4, f"{share * most:.4g}", "small end")}'
    x = left
    for (name, values), colour in zip(series, COLOURS):
        path, before = "", 0
        for moment, value in values:
            here = left + (moment - END + HOURS * 3600) * (right - left) / (HOURS * 3600)
            height_of = bottom - value / most * (bottom - top)
            path += f"{'L' if moment - before == STEP else 'M'}{here:.1f} {height_of:.1f}"
            before = moment
        yield f'<path class="way" style="stroke:{colour};stroke-width:1.6" d="{path}"/>'
        yield f'<rect x="{x}" y="{height - 22}" width="12" height="4" fill="{colour}"/>{text(x + 17, height - 15, name, "small")}'
        x += 30 + 7 * len(name)


def _numbers(values: list[Any]) -> list[tuple[int, float]]:
    """Return the samples that are numbers: a quantile of nothing is none."""
    return [(moment, float(value)) for moment, value in values if value != "NaN"]


def _named(legend: str, labels: dict[str, str]) -> str:
    for name, value in labels.items():
        legend = legend.replace(f"{{{{{name}}}}}", value)
    return legend


if __name__ == "__main__":
    host.reported(main)
