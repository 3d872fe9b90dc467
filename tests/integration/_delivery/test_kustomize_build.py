# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The output of kubectl for deploy/kustomize, against the schemas of Kubernetes 1.20 to the newest."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import installation
import pytest

from lab import delivered
from lab.delivered import Kustomize, Object

OVERLAYS = ("aks-dual-stack", "eni-policy-routing", "cilium-migration", "symmetric-routing", "audit")
# The last release with the schemas of 1.20, and its requirements.
OLDER = ["kubernetes-validate==1.24.1", "jsonschema==4.17.3", "setuptools==80.9.0"]
OLDER_VERSIONS = ("1.20", "1.21", "1.22", "1.23", "1.24")


@pytest.fixture(scope="module")
def kustomize(tmp_path_factory: pytest.TempPathFactory) -> Kustomize:
    return Kustomize(tmp_path_factory.mktemp("build"))


@pytest.fixture(scope="module")
def older() -> Path:
    pythons = installation.interpreters()
    return installation.venv(pythons[max(pythons)], OLDER) / "kubernetes-validate"


def validated(program: Path, version: str, *paths: Path) -> subprocess.CompletedProcess[str]:
    command = [str(program), "--strict", "--no-warn", f"--kubernetes-version={version}", *map(str, paths)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def is_older(version: str) -> bool:
    """Return whether a version of Kubernetes needs the annotation of AppArmor."""
    return int(version.split(".")[1]) < 30


def test_what_is_applied_is_valid_by_all_schemas(kustomize: Kustomize, older: Path, tmp_path: Path) -> None:
    validator = pytest.importorskip("kubernetes_validate")
    newer = sorted(set(validator.utils.all_versions()), key=lambda version: tuple(map(int, version.split("."))))
    assert newer[0].startswith("1.25.") and len(newer) > 10, "none is left out between both"
    names = ("namespace", *(f"overlays/{overlay}" for overlay in (*OVERLAYS, "absent")))
    built = {str(entry): entry for name in names for entry in kustomize.build(name)}
    paths = []
    for name in names[1:]:
        path = tmp_path / f"{name.replace('/', '-')}.yaml"
        path.write_text(kustomize.text(kustomize.with_component(name, "apparmor-annotation")))
        paths.append(path)
    annotated = {str(entry): entry for path in paths for entry in delivered.objects(path.read_text())}
    for version in newer:
        for entry in (annotated if is_older(version) else built).values():
            validator.validate(entry, version, strict=True)
    for version in OLDER_VERSIONS:
        completed = validated(older, version, *paths)
        assert completed.returncode == 0, completed.stdout + completed.stderr
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(paths[0].read_text().replace("hostPID:", "hostPIDs:"))
    assert validated(older, OLDER_VERSIONS[0], wrong).returncode != 0, "the validator finds what is wrong"


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_deletion_of_an_overlay_leaves_the_others(kustomize: Kustomize, overlay: str) -> None:
    others = {key(one) for name in OVERLAYS for one in kustomize.build(f"overlays/{name}") if name != overlay}
    assert not others & {key(one) for one in kustomize.build(f"overlays/{overlay}")}


def key(one: Object) -> tuple[str, str]:
    return one["kind"], one["metadata"]["name"]


def test_the_overlay_absent_is_the_same_daemonset_that_undoes(kustomize: Kustomize) -> None:
    (present,), (absent,) = (
        [one for one in kustomize.build(f"overlays/{name}") if one["kind"] == "DaemonSet"]
        for name in ("aks-dual-stack", "absent")
    )
    (container,) = absent["spec"]["template"]["spec"]["containers"]
    undoes = {"name": "KUBENODE_STATE", "value": "absent"}
    assert undoes in container["env"]
    container["env"].remove(undoes)
    assert absent == present


def test_the_agent_that_audits_has_fewer_rights_and_no_variables(kustomize: Kustomize) -> None:
    audit, profile = ({one["kind"]: one for one in kustomize.build(f"overlays/{name}")} for name in ("audit", OVERLAYS[0]))
    assert audit["ClusterRole"]["rules"] == [{"apiGroups": [""], "resources": ["events"], "verbs": ["create"]}]
    assert "ConfigMap" in profile and "ConfigMap" not in audit
    pods = [objects["DaemonSet"]["spec"]["template"]["spec"] for objects in (audit, profile)]
    containers = [pod["containers"][0] for pod in pods]
    few, many = ({*container["securityContext"]["capabilities"]["add"]} for container in containers)
    assert many - few == {"CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL"} and few < many
    assert containers[0]["securityContext"]["capabilities"]["drop"] == ["ALL"]
    assert containers[0]["securityContext"]["readOnlyRootFilesystem"] is True
    assert [mount["name"] for mount in containers[0]["volumeMounts"]] == [volume["name"] for volume in pods[0]["volumes"]]
    assert "variables" not in [volume["name"] for volume in pods[0]["volumes"]]


@pytest.mark.parametrize(("overlay", "component"), [("eni-policy-routing", "own-node"), ("audit", "condition")])
def test_the_policy_of_a_pool_is_bound_in_any_namespace(kustomize: Kustomize, overlay: str, component: str) -> None:
    """An overlay's nameSuffix renames the policy, and must also rename the reference in the binding."""
    pool = kustomize.with_component(f"overlays/{overlay}", component, namespace="own")
    built = {entry["kind"]: entry for entry in kustomize.build(pool)}
    name = built["ValidatingAdmissionPolicy"]["metadata"]["name"]
    assert (built["ValidatingAdmissionPolicyBinding"]["spec"]["policyName"], name) == (
        name,
        f"kubenode-{component}-{overlay}",
    )
    account = (
        f"system:serviceaccount:{built['ServiceAccount']['metadata']['namespace']}:{built['ServiceAccount']['metadata']['name']}"
    )
    (condition,) = built["ValidatingAdmissionPolicy"]["spec"]["matchConditions"]
    assert re.match(condition["expression"].split("'")[1], account)
