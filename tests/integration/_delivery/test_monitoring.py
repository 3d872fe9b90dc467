# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The alerts and the dashboard by a real Prometheus, which scrapes the metrics of real agents."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from lab import collection, host
from lab import prometheus as prometheus_of_debian
from lab.prometheus import Prometheus, free_port, running, serving
from lab.waiting import until
from unit.audits import audit, present, unclear

pytest.importorskip("ansible")
pytest.importorskip("prometheus_client")

COMPONENTS = collection.CHECKOUT / "deploy/kustomize/components"
DASHBOARD = json.loads((COMPONENTS / "dashboard/kubenode-datapath.json").read_text())
RULE = yaml.safe_load((COMPONENTS / "alerts/prometheusrule.yaml").read_text())
CASES = Path(__file__).with_name("alerts.yml")
RANGE = "10s"  # of rates, with a scrape each second

# The metrics of an agent of a profile, or of an agent that audits. The counters grow until the process is ended.
AGENTS = """
import json, sys, time
from kubenode_agent import condition, metrics
from kubenode_agent.playbook import Outcome
from prometheus_client import Gauge

profile, port, result = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])
agent = metrics.AuditMetrics() if result else metrics.ProfileMetrics()
if result:
    Gauge("kube_node_status_condition", "Of kube-state-metrics.", ["condition", "status"]).labels(condition.TYPE, "false").set(1)
agent.identify("1.0", "2.19", profile, 10)
agent.serve("127.0.0.1", port)
while True:
    if result:
        agent.audited(result, "", 1.0)
    else:
        for outcome in (Outcome("changed", modules=("rp_filter",)), Outcome("failed", "no", ("rp_filter",))):
            agent.converged(outcome, False)
    time.sleep(0.2)
"""


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prometheus_of_debian.programs(tmp_path_factory.mktemp("prometheus"))


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rules") / "rules.yml"
    path.write_text(yaml.safe_dump({"groups": RULE["spec"]["groups"]}))
    return path


def test_the_alerts_are_raised_in_their_cases_and_in_no_others(programs: Path, rules: Path) -> None:
    host.run([programs / "promtool", "check", "rules", "--lint-fatal", rules])
    shutil.copy(CASES, rules.parent)
    host.run([programs / "promtool", "test", "rules", rules.with_name(CASES.name)])
    cases = yaml.safe_load(CASES.read_text())["tests"]
    tested = {alert["alertname"] for case in cases for alert in case["alert_rule_test"] if alert["exp_alerts"]}
    assert tested == {rule["alert"] for group in RULE["spec"]["groups"] for rule in group["rules"]}


@pytest.fixture(scope="module")
def prometheus(programs: Path, rules: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    folder = tmp_path_factory.mktemp("data")
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(collection.CHECKOUT / "deploy/image"), os.environ["PYTHONPATH"]]),
    }
    results = {"aks_dual_stack": {}, "audit": audit(present(), present("risk", subject="eth1"), unclear())}
    with contextlib.ExitStack() as afterwards:
        targets = []
        for profile, result in results.items():
            target = free_port()
            command: list[str | Path] = [sys.executable, "-c", AGENTS, profile, str(target), json.dumps(result)]
            afterwards.enter_context(running(command, folder / f"{profile}.log", env=environment))
            targets.append({"targets": [f"127.0.0.1:{target}"], "labels": {"node": "node1", "pod": profile}})
        configuration = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(rules)],
            "scrape_configs": [{"job_name": "kubenode-agent", "static_configs": targets}],
        }
        server = afterwards.enter_context(serving(folder, programs / "prometheus", configuration))
        until("the rates of both agents are known", lambda: len(server.values(f"rate(kubenode_runs_total[{RANGE}])")) >= 5)
        yield server


QUERIES = [(panel["title"], target["expr"]) for panel in DASHBOARD["panels"] for target in panel["targets"]]


@pytest.mark.parametrize(("panel", "query"), QUERIES)
def test_each_panel_of_the_dashboard_shows_what_agents_serve(prometheus: Prometheus, panel: str, query: str) -> None:
    concrete = query.replace("$__rate_interval", RANGE).replace("$node", ".*")
    assert "$" not in concrete
    for name in re.findall(r"kube(?:node)?_\w+", concrete):
        assert prometheus.values(f"count({name})"), f"no agent serves {name}"
    assert prometheus.values(concrete), panel


def test_the_dashboards_list_of_nodes_is_that_of_the_metrics(prometheus: Prometheus) -> None:
    (variable,) = (entry for entry in DASHBOARD["templating"]["list"] if entry["name"] == "node")
    (metric,) = re.findall(r"label_values\((\w+), node\)", variable["definition"])
    assert {entry["metric"]["node"] for entry in prometheus.values(metric)} == {"node1"}


def test_the_alerts_are_evaluated_on_what_agents_serve(prometheus: Prometheus) -> None:
    """The agent of a profile always fails and the audit finds losses; neither agent is stale or down."""
    waiting = {"KubenodePacketsLost", "KubenodePacketsAtRisk", "KubenodeRunFailing"}

    def states() -> dict[str, str]:
        (group,) = prometheus.ask("rules")["groups"]
        assert {rule["health"] for rule in group["rules"]} <= {"ok", "unknown"}, group
        return {rule["name"]: rule["state"] for rule in group["rules"]}

    expected = {
        rule["alert"]: "pending" if rule["alert"] in waiting else "inactive" for rule in RULE["spec"]["groups"][0]["rules"]
    }
    until("the alerts wait for their time", states, expected=expected)
