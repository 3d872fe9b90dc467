# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an operator says about a node is read once, and a wrong value is an error that names it."""

from __future__ import annotations

import ipaddress
from typing import Any

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._audit.context import Context
from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Invalid


def test_what_is_left_out_is_empty() -> None:
    assert Context.from_options({}) == Context.from_options(dict.fromkeys(Context._fields)) == Context()


def test_ranges_are_networks_of_both_families() -> None:
    ranges = ["10.96.0.0/12", "fd00:10:96::/112"]
    assert Context.from_options({"service_ranges": ranges}).service_ranges == tuple(map(ipaddress.ip_network, ranges))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"probe_mode": "both"}, "context.probe_mode must be one of shared, servicenodeport; 'both' was given"),
        ({"cni": "AWS"}, "context.cni must be one of aws_vpc_cni, azure_vnet, calico, "),
        ({"cloud": ["azure"]}, "context.cloud must be one of azure, "),
        ({"pod_ranges": ["10.0.0.0/8", "10.0.0.1/8"]}, "context.pod_ranges[1] must be a network without host bits, "),
        ({"service_ranges": [7]}, "context.service_ranges[0] must be a network"),
    ],
)
def test_a_wrong_value_is_named_with_what_is_allowed(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(Invalid) as error:
        Context.from_options(options)
    assert str(error.value).startswith(sentence)
