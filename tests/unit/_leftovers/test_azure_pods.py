# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""azure-vnet's live pods, and azure-cns's configuration."""

from __future__ import annotations

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._interfaces.interface import Interface
from ansible_collections.kubenode.datapath.plugins.module_utils._leftovers import azure_pods
from ansible_collections.kubenode.datapath.plugins.module_utils._leftovers.azure_pods import LivePod

MAC = "02:00:00:00:00:01"


def test_a_pod_has_the_addresses_of_the_other_end_of_its_link() -> None:
    interfaces = [
        Interface("", "eth0", MAC, frozenset({"10.240.0.2"}), number=2),
        Interface("", "azv0123456", MAC, number=7, peer=3),
        Interface("", "azv0123456789a", MAC, number=6, peer=3, peer_namespace="process 5"),
        Interface("", "lxc0123456789a", MAC, number=8, peer=3, peer_namespace="process 6"),
        Interface("process 5", "eth0", MAC, frozenset({"fd00::7", "10.240.0.7"}), number=3, peer=6),
        Interface("process 6", "eth0", MAC, frozenset({"10.240.0.8"}), number=3, peer=8),
        Interface("process 7", "eth0", MAC, frozenset({"172.18.0.2"}), number=3, peer=7),  # of a namespace inside of a pod
    ]
    assert azure_pods.live_pods(interfaces) == [
        LivePod("azv0123456", ()), LivePod("azv0123456789a", ("10.240.0.7", "fd00::7"))
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "environment", "path"),
    [
        ([], {}, "/usr/local/bin/cns_config.json"),
        (["-c", "tcp://127.0.0.1"], {"CNS_CONFIGURATION_PATH": "/env/cns.json"}, "/env/cns.json"),
        (["-cp", "/a.json"], {"CNS_CONFIGURATION_PATH": "/env/cns.json"}, "/a.json"),
        (["--config-path=/a.json", "-o", "x"], {}, "/a.json"),
        (["cp", "/a.json"], {}, "/usr/local/bin/cns_config.json"),
        (["-cp"], {}, ""),
    ],
)
def test_the_configuration_is_named_by_an_argument_or_the_environment_or_lies_beside(
    arguments: list[str], environment: dict[str, str], path: str
) -> None:
    assert azure_pods.configuration_of(arguments, environment, "/usr/local/bin/azure-cns") == path


@pytest.mark.parametrize(
    ("text", "is_managed"),
    [
        ('{"ManageEndpointState": true}', True),
        ('{"manageendpointstate": true, "Other": 1}', True),
        ('{"ManageEndpointState": false}', False),
        ('{"ManageEndpointState": "true"}', False),
        ("{}", False),
        ("", None),
        ("[]", None),
        ("{", None),
    ],
)
def test_azure_cns_keeps_the_addresses_if_it_is_told_to(text: str, is_managed: bool | None) -> None:
    assert azure_pods.manages_state(text) is is_managed
