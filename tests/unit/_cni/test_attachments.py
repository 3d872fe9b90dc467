# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A record of the container runtime says which pod has which addresses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._cni import attachments_backend
from ansible_collections.kubenode.datapath.plugins.module_utils._cni.attachments_backend import Attachment

RECORD: dict[str, Any] = {
    "kind": "cniCacheV1",
    "containerId": "1234",
    "config": "eyJuYW1lIjogInBvZHMifQ==",
    "ifName": "eth0",
    "networkName": "pods",
    "netns": "/var/run/netns/cni-1",
    "cniArgs": [["IgnoreUnknown", "1"], ["K8S_POD_NAMESPACE", "default"], ["K8S_POD_NAME", "web-0"]],
    "result": {"cniVersion": "1.0.0", "ips": [{"address": "10.244.0.5/24", "gateway": "10.244.0.1"}, {"address": "fd00::5/64"}]},
}
WEB = Attachment("default/web-0", "eth0", ("10.244.0.5", "fd00::5"), "/var/run/netns/cni-1")


@pytest.mark.parametrize(
    ("change", "attachment"),
    [
        ({}, WEB),
        ({"result": {"cniVersion": "0.2.0", "ip4": {"ip": "10.244.0.5/24"}}}, WEB._replace(addresses=("10.244.0.5",))),
        ({"netns": None}, WEB._replace(netns="")),
        ({"ifName": "net1"}, WEB._replace(interface="net1")),
        ({"ifName": "lo"}, None),
        ({"kind": "other"}, None),
        ({"cniArgs": [["IgnoreUnknown", "1"]]}, None),
        ({"cniArgs": 5}, None),
        ({"result": {"ips": []}}, None),
        ({"result": {"ips": ["10.244.0.5"]}}, None),
    ],
)  # fmt: skip
def test_a_record_of_a_pod_has_its_addresses(change: dict[str, Any], attachment: Attachment | None) -> None:
    assert attachments_backend.attachment(json.dumps({**RECORD, **change})) == attachment


@pytest.mark.parametrize("text", ["", "[]", "{", "null", "[" * 100_000])
def test_another_text_is_no_record(text: str) -> None:
    assert attachments_backend.attachment(text) is None


def test_records_whose_network_namespace_has_gone_are_left_out(tmp_path: Path) -> None:
    namespace, results = tmp_path / "cni-2", tmp_path / "results"
    namespace.touch()
    results.mkdir()
    changes: dict[str, dict[str, Any]] = {"a": {}, "b": {"netns": str(namespace)}, "c": {"netns": None, "ifName": "net1"}}
    for name, change in changes.items():
        (results / f"pods-{name}-eth0").write_text(json.dumps({**RECORD, **change}))
    (results / "folder").mkdir()
    kept = [WEB._replace(netns=str(namespace)), WEB._replace(netns="", interface="net1")]
    assert attachments_backend.attachments(str(results)) == kept
    assert attachments_backend.attachments(str(tmp_path / "none")) == []
    assert kept[0].entry() == {"pod": "default/web-0", "interface": "eth0", "addresses": ["10.244.0.5", "fd00::5"]}
