# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The Helm chart, rendered by helm: the objects are those of kustomize, and valid by the schemas of Kubernetes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import installation
import pytest
import yaml

from lab import delivered, host
from lab.delivered import Kustomize, Object
from lab.entering import LabError

PROFILES = ("aks-dual-stack", "eni-policy-routing", "cilium-migration", "symmetric-routing")
AUDIT = "audit"
# kubectl's kustomize adds a namespace to these kinds, which have none. The API ignores it.
AGENT = "app.kubernetes.io/name"
RECOMMENDED = [
    *(f"app.kubernetes.io/{name}" for name in ("instance", "version", "component", "part-of", "managed-by")),
    "helm.sh/chart",
]
NEWER_OF_CLUSTER = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")


@pytest.fixture(scope="module")
def kustomize(tmp_path_factory: pytest.TempPathFactory) -> Kustomize:
    return Kustomize(tmp_path_factory.mktemp("build"))


def values(kustomize: Kustomize, overlay: str) -> dict[str, Any]:
    """Return the chart's values that stand for an overlay."""
    if overlay == AUDIT:
        return {}
    variables = yaml.safe_load((kustomize.folder / "overlays" / overlay / "variables.yaml").read_text())
    return {"profile": overlay.replace("-", "_"), "variables": variables}


def comparable(objects: list[Object]) -> list[Any]:
    """Return the objects without what means nothing: the order of lists, the hash in a name, and the layout of a file.

    The order of a command has a meaning. The labels that only Helm adds are tested below.
    """
    for entry in objects:
        pod = entry.get("spec", {}).get("template")
        for metadata in (entry["metadata"], *([pod["metadata"]] if pod else ())):
            labels = metadata.pop("labels", {})
            for name in RECOMMENDED if pod else (*RECOMMENDED, AGENT):
                labels.pop(name, None)
            metadata.update({"labels": labels} if labels else {})
        if entry["kind"] == "ConfigMap":
            entry["data"] = {name: yaml.safe_load(text) for name, text in entry["data"].items()}
        if entry["kind"] in NEWER_OF_CLUSTER:
            entry["metadata"].pop("namespace", None)
    return _sorted(objects)


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: content if key == "command" else _sorted(content) for key, content in value.items()}
    if isinstance(value, list):
        return sorted(map(_sorted, value), key=yaml.safe_dump)
    return re.sub(r"^(kubenode-variables-.*)-[a-z0-9]{10}$", r"\1", value) if isinstance(value, str) else value


@pytest.mark.parametrize("overlay", [*PROFILES, AUDIT])
def test_the_objects_are_those_of_the_overlay(kustomize: Kustomize, overlay: str) -> None:
    rendered = delivered.objects(delivered.rendered(overlay, values(kustomize, overlay)))
    assert comparable(rendered) == comparable(kustomize.build(f"overlays/{overlay}"))


def test_state_absent_is_the_overlay_absent(kustomize: Kustomize) -> None:
    undoing = {**values(kustomize, "aks-dual-stack"), "state": "absent"}
    rendered = delivered.objects(delivered.rendered("aks-dual-stack", undoing))
    assert comparable(rendered) == comparable(kustomize.build("overlays/absent"))


def test_values_stand_for_the_components_that_an_overlay_names(kustomize: Kustomize) -> None:
    overlay = "overlays/eni-policy-routing"
    plain = values(kustomize, "eni-policy-routing")
    guarded = delivered.objects(delivered.rendered("eni-policy-routing", {**plain, "ownNode": True}))
    assert comparable(guarded) == comparable(kustomize.build(kustomize.with_component(overlay, "own-node")))
    told = delivered.objects(delivered.rendered(AUDIT, {"condition": True}))
    assert comparable(told) == comparable(kustomize.build(kustomize.with_component(f"overlays/{AUDIT}", "condition")))
    older = delivered.objects(delivered.rendered("eni-policy-routing", plain, "1.29.9"))
    assert comparable(older) == comparable(kustomize.build(kustomize.with_component(overlay, "apparmor-annotation")))


def test_a_profile_that_builds_a_twin_may_call_pivot_root(kustomize: Kustomize) -> None:
    """As with the component for it; without a twin the pod has the default profile of the runtime."""
    plain = values(kustomize, "eni-policy-routing")
    for name, value, profile in (
        ("audit", True, "Unconfined"),
        ("rehearse", True, "Unconfined"),
        ("rehearse", False, "RuntimeDefault"),
    ):
        chosen = {**plain, "variables": {**plain["variables"], f"eni_policy_routing_{name}": value}}
        built = {entry["kind"]: entry for entry in delivered.objects(delivered.rendered("eni-policy-routing", chosen))}
        security = built["DaemonSet"]["spec"]["template"]["spec"]["securityContext"]
        assert security == {"seccompProfile": {"type": profile}}
    unconfined = kustomize.build(kustomize.with_component("overlays/eni-policy-routing", "seccomp-unconfined"))
    (daemonset,) = (entry for entry in unconfined if entry["kind"] == "DaemonSet")
    assert daemonset["spec"]["template"]["spec"]["securityContext"] == {"seccompProfile": {"type": "Unconfined"}}


MONITORING = ("podMonitor", "alerts", "dashboard", "networkPolicy")


def test_values_stand_for_the_overlay_that_watches_the_agents(kustomize: Kustomize) -> None:
    rendered = delivered.objects(delivered.rendered(AUDIT, {name: {"enabled": True} for name in MONITORING}))
    plain = kustomize.build(f"overlays/{AUDIT}")
    assert comparable(rendered) == comparable([*plain, *kustomize.build("overlays/monitoring")])
    (rule,) = (entry for entry in rendered if entry["kind"] == "PrometheusRule")
    assert "{{ $labels.node }}" in rule["spec"]["groups"][0]["rules"][0]["annotations"]["summary"]


@pytest.mark.parametrize("overlay", [*PROFILES, AUDIT])
def test_what_is_rendered_is_valid_by_the_schemas_of_each_version(kustomize: Kustomize, overlay: str) -> None:
    """For versions before 1.30 the pod has the annotation of AppArmor, and all else is the same."""
    validator = pytest.importorskip("kubernetes_validate")
    minors = {int(version.split(".")[1]): version for version in validator.utils.all_versions()}
    assert min(minors) == 25 and len(minors) > 10
    chosen = {**values(kustomize, overlay), "dashboard": {"enabled": True}, "networkPolicy": {"enabled": True}}
    for rendered_for, some in (("1.29.0", range(25, 30)), ("1.30.0", range(30, max(minors) + 1))):
        chosen["ownNode"] = 30 in some
        chosen["condition"] = 30 in some and overlay == AUDIT
        for entry in delivered.objects(delivered.rendered(overlay, chosen, rendered_for)):
            for minor in some:
                validator.validate(entry, minors[minor], strict=True)


def test_changed_variables_are_a_configmap_of_another_name(kustomize: Kustomize) -> None:
    """A ConfigMap that changes in place would reach all nodes at the same time."""
    names = set()
    for source in ("imds", "address"):
        chosen = {"profile": "aks_dual_stack", "variables": {"aks_dual_stack_ipv6": source}}
        built = {entry["kind"]: entry for entry in delivered.objects(delivered.rendered("pool", chosen))}
        volumes = {volume["name"]: volume for volume in built["DaemonSet"]["spec"]["template"]["spec"]["volumes"]}
        assert volumes["variables"]["configMap"]["name"] == built["ConfigMap"]["metadata"]["name"]
        names.add(built["ConfigMap"]["metadata"]["name"])
    assert len(names) == 2


def test_values_reach_the_pod() -> None:
    chosen = {
        "image": {"repository": "registry.test/agent", "tag": "9"},
        "metrics": {"enabled": False},
        "env": [{"name": "KUBENODE_TAINT", "value": ""}],
        "maxUnavailable": "25%",
        "interval": "0.5",  # as --set delivers it
        "imagePullSecrets": [{"name": "account"}],
    }
    built = {entry["kind"]: entry for entry in delivered.objects(delivered.rendered("x", chosen))}
    daemonset = built["DaemonSet"]
    pod = daemonset["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["image"] == "registry.test/agent:9" and "ports" not in container
    settings = {entry["name"]: entry.get("value") for entry in container["env"]}
    assert [settings[f"KUBENODE_{name}"] for name in ("METRICS_PORT", "TAINT", "INTERVAL")] == ["0", "", "0.5"]
    assert daemonset["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailable"] == "25%"
    assert pod["imagePullSecrets"] == [{"name": "account"}]


@pytest.mark.parametrize("profile", ["audit", "aks_dual_stack"])
def test_each_object_has_the_recommended_labels_and_those_of_the_values(profile: str) -> None:
    chosen = {
        "profile": profile,
        "commonLabels": {"team": "network", "app.kubernetes.io/part-of": "platform"},
        "podLabels": {"tier": "node"},
        "podAnnotations": {"prometheus.io/scrape": "false", "example.com/a": "b"},
        "serviceAccount": {"annotations": {"example.com/c": "d"}},
        "ownNode": True,
        "condition": profile == "audit",
        **{name: {"enabled": True} for name in MONITORING},
    }
    version = installation.version()
    expected = dict(
        zip(
            (AGENT, *RECOMMENDED),
            ("kubenode-agent", "2026", version, "agent", "platform", "Helm", f"kubenode-datapath-{version}"),
        )
    )
    built = delivered.objects(delivered.rendered("2026", chosen, "1.29"))
    assert len({entry["kind"] for entry in built}) == 10
    own = {"kubenode-dashboard": {"grafana_dashboard": "1"}}
    for entry in built:
        assert entry["metadata"]["labels"] == {**expected, "team": "network", **own.get(entry["metadata"]["name"], {})}
    objects = {entry["kind"]: entry for entry in built}
    pod = objects["DaemonSet"]["spec"]["template"]["metadata"]
    selector = objects["DaemonSet"]["spec"]["selector"]["matchLabels"]
    assert pod["labels"] == {**expected, **selector, "team": "network", "tier": "node"}
    assert pod["annotations"] == {
        "prometheus.io/scrape": "false",
        "prometheus.io/port": "9466" if profile == "audit" else "9463",
        "container.apparmor.security.beta.kubernetes.io/agent": "unconfined",
        "example.com/a": "b",
    }
    assert objects["ServiceAccount"]["metadata"]["annotations"] == {"example.com/c": "d"}


@pytest.mark.parametrize(
    ("override", "name", "policy"),
    [
        ({}, "kubenode-agent-x", "kubenode-{}-x"),
        ({"nameOverride": "acme"}, "acme-x", "acme-x-{}"),
        ({"fullnameOverride": "acme"}, "acme", "acme-{}"),
        ({"nameOverride": "other", "fullnameOverride": "kubenode-agents"}, "kubenode-agents", "kubenode-agents-{}"),
    ],
)
def test_another_name_is_that_of_all_objects_and_its_account_is_restricted(
    override: dict[str, str], name: str, policy: str
) -> None:
    """A policy that did not know the account would let it change the status of every node."""
    built = delivered.objects(delivered.rendered("x", {**override, "condition": True, "ownNode": True}))
    names = {entry["kind"]: entry["metadata"]["name"] for entry in built if not entry["kind"].startswith("Validating")}
    assert names == dict.fromkeys(("ServiceAccount", "ClusterRole", "ClusterRoleBinding", "DaemonSet"), name)
    policies = {entry["metadata"]["name"]: entry["spec"] for entry in built if entry["kind"] == "ValidatingAdmissionPolicy"}
    bound = {entry["spec"]["policyName"] for entry in built if entry["kind"] == "ValidatingAdmissionPolicyBinding"}
    assert {*policies} == bound == {policy.format(part) for part in ("condition", "own-node")}
    (pod,) = (entry["spec"]["template"]["spec"] for entry in built if entry["kind"] == "DaemonSet")
    account = f"system:serviceaccount:{delivered.NAMESPACE}:{pod['serviceAccountName']}"
    for spec in policies.values():
        (condition,) = spec["matchConditions"]
        pattern = re.search(r"matches\('(.+)'\)$|== '(.+)'$", condition["expression"])
        assert pattern and re.match(pattern[1] or f"{re.escape(pattern[2])}$", account)


def test_a_digest_counts_instead_of_the_tag() -> None:
    image = {"repository": "registry.test:5000/agent", "tag": "9", "digest": DIGEST}
    (daemonset,) = (
        entry for entry in delivered.objects(delivered.rendered("x", {"image": image})) if entry["kind"] == "DaemonSet"
    )
    (container,) = daemonset["spec"]["template"]["spec"]["containers"]
    assert container["image"] == f"registry.test:5000/agent@{DIGEST}"


def test_a_name_or_a_class_of_digits_stays_a_text() -> None:
    (daemonset,) = (
        entry
        for entry in delivered.objects(delivered.rendered("2026", {"priorityClassName": "7"}))
        if entry["kind"] == "DaemonSet"
    )
    assert daemonset["spec"]["selector"]["matchLabels"]["kubenode.datapath/profile"] == "2026"
    assert daemonset["spec"]["template"]["spec"]["priorityClassName"] == "7"


DIGEST = f"sha256:{'0123456789abcdef' * 4}"
REFUSED = [
    ({"profile": "eni"}, "/profile"),
    ({"interval": 0}, "/interval"),
    ({"interval": "often"}, "/interval"),
    ({"intervall": 5}, "intervall"),
    ({"state": "absent"}, "/state"),
    ({"profile": "aks_dual_stack", "condition": True}, "/condition"),
    ({"variables": {"aks_dual_stack_ipv6": "imds"}}, "/variables"),
    ({"profile": "aks_dual_stack", "variables": {"aks_dual_stack_path": "/etc/cron.d/x"}}, "aks_dual_stack_path"),
    ({"profile": "aks_dual_stack", "variables": {"eni_policy_routing_layout": "custom"}}, "eni_policy_routing_layout"),
    ({"profile": "aks_dual_stack", "variables": {"aks_dual_stack_ipv6": "no"}}, "/variables/aks_dual_stack_ipv6"),
    ({"profile": "aks_dual_stack", "variables": {"aks_dual_stack_priority": "low"}}, "/variables/aks_dual_stack_priority"),
    ({"profile": "aks_dual_stack", "variables": {"aks_dual_stack_probes": [{"source": "::1"}]}}, "probes/0"),
    ({"metrics": {"port": 70000}}, "/metrics/port"),
    ({"image": {"repository": "registry.test/agent\n          command: [sh]"}}, "/image/repository"),
    ({"image": {"tag": "1 # \n"}}, "/image/tag"),
    ({"image": {"digest": "sha256:0123"}}, "/image/digest"),
    ({"image": {"digest": DIGEST.upper()}}, "/image/digest"),
    ({"image": {"digest": f"{DIGEST}\n"}}, "/image/digest"),
    ({"image": {"digest": DIGEST.replace("sha256", "md5")}}, "/image/digest"),
    ({"fullnameOverride": "Agents"}, "/fullnameOverride"),
    ({"nameOverride": "a_b"}, "/nameOverride"),
    ({"podLabels": {"app.kubernetes.io/name": "x"}}, "/podLabels/app.kubernetes.io~1name"),
    ({"commonLabels": {"kubenode.datapath/profile": "x"}}, "/commonLabels/kubenode.datapath~1profile"),
    ({"podAnnotations": {"a": 1}}, "/podAnnotations/a"),
    ({"env": [{"name": "KUBENODE_PROFILE", "value": "aks_dual_stack"}]}, "/env/0/name"),
    ({"env": [{"value": "1"}]}, "/env/0"),
]  # fmt: skip


@pytest.mark.parametrize(("wrong", "place"), REFUSED)
def test_helm_refuses_wrong_values_and_names_their_place(wrong: dict[str, Any], place: str) -> None:
    with pytest.raises(LabError, match=re.escape(place)):
        delivered.rendered("x", wrong)


def test_helm_finds_nothing_wrong_with_the_chart(tmp_path: Path) -> None:
    host.run([installation.helm(), "lint", "--strict", delivered.CHART])
    host.run([installation.helm(), "package", delivered.CHART, f"--destination={tmp_path}"])
    assert [path.name for path in tmp_path.iterdir()] == [f"kubenode-datapath-{installation.version()}.tgz"]
