# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The objects of deploy/kustomize against the schemas of Kubernetes, and the overlays against the roles that they name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("yaml")

import yaml

ROOT = Path(__file__).resolve().parents[3]
KUSTOMIZE = ROOT / "deploy/kustomize"
OVERLAYS = ("aks-dual-stack", "eni-policy-routing", "cilium-migration", "symmetric-routing")


def objects(folder: str = "base") -> list[dict[str, Any]]:
    found = [one for path in (KUSTOMIZE / folder).glob("*.yaml") for one in yaml.safe_load_all(path.read_text())]
    return [one for one in found if one.get("kind") not in (None, "Kustomization", "Component")]


def test_every_object_is_valid_by_all_schemas_of_the_validator() -> None:
    """Schemas of 1.30 and newer; tests/integration validates the output of kubectl by older schemas too."""
    validator = pytest.importorskip("kubernetes_validate")
    versions = sorted(version for version in validator.utils.all_versions() if version >= "1.30")
    assert len(versions) > 5
    for version in versions:
        for one in [*objects(), *objects("namespace")]:
            validator.validate(one, version, strict=True)
        for one in [*objects("components/own-node"), *objects("components/condition")]:
            validator.validate(one, version, strict=True) if "spec" in one and one["kind"] != "DaemonSet" else None


def test_the_validator_finds_what_is_wrong() -> None:
    validator = pytest.importorskip("kubernetes_validate")
    (daemonset,) = (one for one in objects() if one["kind"] == "DaemonSet")
    daemonset["spec"]["template"]["spec"]["hostPIDs"] = True
    with pytest.raises(validator.ValidationError):
        validator.validate(daemonset, validator.latest_version(), strict=True)


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_an_overlay_has_a_role_and_variables_of_it(overlay: str) -> None:
    (patch,) = yaml.safe_load_all((KUSTOMIZE / "overlays" / overlay / "nodes.yaml").read_text())
    (container,) = patch["spec"]["template"]["spec"]["containers"]
    role = {one["name"]: one["value"] for one in container["env"]}["KUBENODE_PROFILE"]
    assert role == overlay.replace("-", "_")
    specs = yaml.safe_load((ROOT / "roles" / role / "meta/argument_specs.yml").read_text())["argument_specs"]
    known = specs["variables"]["options"]
    assert set(yaml.safe_load((KUSTOMIZE / "overlays" / overlay / "variables.yaml").read_text())) <= set(known)


def test_the_pod_gets_no_more_than_its_page_explains() -> None:
    (daemonset,) = (one for one in objects() if one["kind"] == "DaemonSet")
    spec = daemonset["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    page = (ROOT / "deploy/README.md").read_text()
    assert "privileged" not in container["securityContext"] and not any("hostPath" in one for one in spec["volumes"])
    asked = [*container["securityContext"]["capabilities"]["add"], "hostPID", "hostNetwork"]
    assert [one for one in asked if f"| `{one}` |" not in page] == []


@pytest.mark.parametrize(
    ("folder", "profile"),
    [("base", "RuntimeDefault"), ("components/audit", "Unconfined"), ("components/seccomp-unconfined", "Unconfined")],
)
def test_only_an_agent_that_builds_twins_is_unconfined(folder: str, profile: str) -> None:
    (daemonset,) = (one for one in objects(folder) if one["kind"] == "DaemonSet")
    assert daemonset["spec"]["template"]["spec"]["securityContext"] == {"seccompProfile": {"type": profile}}


@pytest.mark.parametrize("component", ["own-node", "condition"])
def test_the_policys_binding_follows_its_name(component: str) -> None:
    """kubectl of Debian 13 renames the reference by itself; 1.28 and 1.29, which Debian does not have, do not."""
    folder = KUSTOMIZE / "components" / component
    (name,) = yaml.safe_load((folder / "kustomization.yaml").read_text())["configurations"]
    (reference,) = yaml.safe_load((folder / name).read_text())["nameReference"]
    (field,) = reference["fieldSpecs"]
    named = {one["kind"]: one for one in objects(f"components/{component}")}
    assert named[field["kind"]]["spec"][field["path"].removeprefix("spec/")] == named[reference["kind"]]["metadata"]["name"]


AGENT = "system:serviceaccount:kubenode-datapath:kubenode-agent"
NODE_NAME = "authentication.kubernetes.io/node-name"
REQUESTS = [
    (AGENT, {NODE_NAME: ["node1"]}, "node1", True),
    (AGENT, {NODE_NAME: ["node1"]}, "node2", False),
    (AGENT, {NODE_NAME: ["node1"]}, "node", False),
    (AGENT, {}, "node1", False),
    (AGENT, {"other": ["node1"]}, "node1", False),
    (f"{AGENT}-eni-policy-routing", {NODE_NAME: ["node1"]}, "node2", False),
    ("system:node:node1", {}, "node1", True),
    ("system:serviceaccount:own-namespace:kubenode-agent", {NODE_NAME: ["node1"]}, "node1", True),
    ("system:serviceaccount:own-namespace:kubenode-agent", {NODE_NAME: ["node1"]}, "node2", False),
    ("system:serviceaccount:kubenode-agent:other", {}, "node2", True),
    ("own:system:serviceaccount:a:kubenode-agent", {}, "node2", True),
    ("administrator", {}, "node2", True),
]


@pytest.mark.parametrize(("user", "extra", "node", "is_allowed"), REQUESTS)
def test_the_policy_lets_an_agent_change_its_own_node_only(user: str, extra: dict[str, Any], node: str, is_allowed: bool) -> None:
    """Evaluates its expressions with another CEL than Kubernetes', because no API of the lab is new enough to have policies."""
    request = {"request": {"userInfo": {"username": user, "extra": extra}}, "object": {"metadata": {"name": node}}}
    assert allows("own-node", request) == is_allowed
    state = {"metadata": {"name": node}, "status": {"conditions": []}}
    assert allows("condition", {**request, "object": state, "oldObject": state}) == is_allowed


def allows(component: str, request: dict[str, Any]) -> bool:
    """Evaluate the policy of a component for a request."""
    celpy = pytest.importorskip("celpy")
    (policy,) = (one for one in objects(f"components/{component}") if one["kind"] == "ValidatingAdmissionPolicy")
    environment = celpy.Environment()

    def holds(one: dict[str, str]) -> bool:
        return bool(environment.program(environment.compile(one["expression"])).evaluate(celpy.json_to_cel(request)))

    return not all(map(holds, policy["spec"]["matchConditions"])) or all(map(holds, policy["spec"]["validations"]))


READY = {"type": "Ready", "status": "True"}
HEALTHY = {"type": "KubenodeDatapathHealthy", "status": "True"}
BEFORE = {
    "metadata": {"name": "node1", "resourceVersion": "1", "labels": {"a": "b"}, "managedFields": [{"manager": "kubelet"}]},
    "status": {"conditions": [READY], "capacity": {"cpu": "2"}},
}
CHANGES: list[tuple[dict[str, Any], bool]] = [
    ({}, True),
    ({"status": {"conditions": [READY, HEALTHY]}}, True),
    ({"status": {"conditions": [HEALTHY, READY]}, "metadata": {"managedFields": []}}, True),
    ({"status": {"conditions": [{**READY, "status": "False"}, HEALTHY]}}, False),
    ({"status": {"conditions": [HEALTHY]}}, False),
    ({"status": {"conditions": [READY, {**HEALTHY, "type": "MemoryPressure"}]}}, False),
    ({"status": {"capacity": {"cpu": "200"}}}, False),
    ({"status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.1"}]}}, False),
    ({"metadata": {"labels": {"a": "c"}}}, False),
    ({"metadata": {"annotations": {"a": "b"}}}, False),
    ({"metadata": {"labels": None}}, False),
    ({"metadata": {"finalizers": ["example.com/a"]}}, False),
]


@pytest.mark.parametrize(("change", "is_allowed"), CHANGES)
def test_the_policy_lets_an_agent_set_one_condition_and_nothing_else(change: dict[str, Any], is_allowed: bool) -> None:
    after = {part: {**content, **change.get(part, {})} for part, content in BEFORE.items()}
    after = {part: {name: value for name, value in content.items() if value is not None} for part, content in after.items()}
    request = {"userInfo": {"username": f"{AGENT}-audit", "extra": {NODE_NAME: ["node1"]}}}
    assert allows("condition", {"request": request, "object": after, "oldObject": BEFORE}) == is_allowed
    with_condition = {**BEFORE, "status": {**BEFORE["status"], "conditions": [READY, HEALTHY]}}
    removing = {"request": request, "object": BEFORE, "oldObject": with_condition}
    assert allows("condition", removing)


def test_each_overlay_has_a_port_of_its_own_in_three_places() -> None:
    ports = []
    for path in (KUSTOMIZE / "overlays").glob("*/nodes.yaml"):
        template = yaml.safe_load(path.read_text())["spec"]["template"]
        (container,) = template["spec"]["containers"]
        (setting,) = (entry["value"] for entry in container["env"] if entry["name"] == "KUBENODE_METRICS_PORT")
        (port,) = container["ports"]
        assert port["name"] == "metrics" and setting == template["metadata"]["annotations"]["prometheus.io/port"]
        assert str(port["containerPort"]) == setting
        ports.append(setting)
    assert len(ports) == len({*ports}) == 5
