# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""ipamd's checkpoint and its answer about ENIs say which pod has which address."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._pastes import pastes

WEB = {"k8sPodNamespace": "default", "k8sPodName": "web-0", "interfacesCount": 1}
KEY = {"networkName": "aws-cni", "containerID": "", "ifName": ""}
ALLOCATION = {**KEY, "containerID": "12ab", "ifName": "eth0", "ipv4": "10.12.1.5", "allocationTimestamp": 1, "metadata": WEB}
CHECKPOINT = {"version": "vpc-cni-ipam/1", "allocations": [ALLOCATION, {**ALLOCATION, "ipv4": "10.12.1.6", "metadata": {}}]}
ASSIGNED = {"Address": "10.12.1.5", "IPAMKey": KEY, "IPAMMetadata": WEB, "AssignedTime": "2026-11-26T12:00:00Z"}
FREE = {"Address": "10.12.1.6", "IPAMKey": KEY, "IPAMMetadata": {}}
CIDRS = {
    "10.12.1.5/32": {"Cidr": {"IP": "10.12.1.5", "Mask": "/////w=="}, "IPAddresses": {"10.12.1.5": ASSIGNED}, "IsPrefix": False},
    "10.12.1.6/32": {"Cidr": {"IP": "10.12.1.6", "Mask": "/////w=="}, "IPAddresses": {"10.12.1.6": FREE}, "IsPrefix": False},
    "10.12.9.0/28": {"Cidr": {"IP": "10.12.9.0", "Mask": "////8A=="}, "IPAddresses": None, "IsPrefix": True},
}
ENI = {"ID": "eni-1", "IsPrimary": True, "DeviceNumber": 0, "AvailableIPv4Cidrs": CIDRS, "IPv6Cidrs": None}
POOL = {"TotalIPs": 2, "AssignedIPs": 1, "ENIs": {"eni-1": ENI}}
COMPACT = (",", ":")  # separators, as ipamd writes JSON


@pytest.mark.parametrize(
    ("document", "interface"), [(CHECKPOINT, "eth0"), (POOL, ""), ({"0": POOL, "1": {**POOL, "ENIs": {}}}, "")]
)
def test_addresses_of_pods_are_read_and_free_ones_left_out(document: dict[str, Any], interface: str) -> None:
    pasted = pastes.read({"ipam.json": json.dumps(document, separators=COMPACT), "ip-rule": "0: from all lookup local\n"})
    assert pasted.snapshot["pod_addresses"] == [{"pod": "default/web-0", "interface": interface, "addresses": ["10.12.1.5"]}]
    assert pasted.ignored == []


@pytest.mark.parametrize(
    "document",
    [
        {**CHECKPOINT, "allocations": [{**ALLOCATION, "ipv4": "10.12.1.500"}]},
        {**CHECKPOINT, "allocations": [{**ALLOCATION, "metadata": {**WEB, "k8sPodName": "web\n0"}}]},
        {**CHECKPOINT, "allocations": [{**ALLOCATION, "metadata": {**WEB, "k8sPodName": 5}}]},
        {**CHECKPOINT, "allocations": 5},
        {"0": {"TotalIPs": 1}},
    ],
)
def test_another_form_is_named(document: dict[str, Any]) -> None:
    pasted = pastes.read({"ipam.json": json.dumps(document, separators=COMPACT), "ip-rule": "0: from all lookup local\n"})
    assert not pasted.snapshot["pod_addresses"]
    assert any("is no JSON of ipamd" in sentence for sentence in pasted.ignored)
