# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Services and their cluster addresses are read from what kube-proxy writes in each of its modes that name them."""

from __future__ import annotations

import time
from typing import Any

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._ruleset.service_rules import Service, services, translated

SAVE = """*nat
-A KUBE-SERVICES -d 10.96.0.10/32 -p tcp -m comment --comment "default/api:http cluster IP" -m tcp --dport 80 -j KUBE-SVC-A
-A KUBE-SERVICES ! -s 10.1.0.0/16 -d 10.96.0.10/32 -p tcp -m comment --comment "default/api:http cluster IP" -m tcp --dport 80 -j
-A KUBE-SERVICES -d 192.0.2.7/32 -p tcp -m comment --comment "default/api:http loadbalancer IP" -m tcp --dport 80 -j KUBE-EXT-A
-A KUBE-SERVICES -d 10.96.0.11/32 -p udp -m comment --comment "default/dns cluster IP" -m udp --dport 53 -j KUBE-SVC-B
-A KUBE-SERVICES -d 10.96.0.12/32 -p tcp -m comment --comment "default/idle:web has no endpoints" -m tcp --dport 80 -j REJECT
-A KUBE-SERVICES -m comment --comment "kubernetes service nodeports; NOTE: this must be the last rule" -j KUBE-NP
-A KUBE-SERVICES -d 10.96.0.13/32 -p tcp -m comment --comment "open
-A KUBE-SERVICES -d 10.96.0.15/32 -p tcp -m comment --comment "default/far:http cluster IP" -m tcp --dport 800000 -j X
-A OTHER -d 10.96.0.14/32 -p tcp -m comment --comment "default/other:http cluster IP" -m tcp --dport 80 -j X
COMMIT
"""
API = Service("default/api", "10.96.0.10", "tcp", 80, "http")
IDLE = Service("default/idle", "10.96.0.12", "tcp", 80, "web")
LOCAL = Service("default/near", "fd01::9", "sctp", 9, "")
TEXT = """table ip kube-proxy {
    map service-ips {
        elements = { 10.96.0.10 . tcp . 80 : goto service-ULMVA6XW-default/api/tcp/http,
     192.0.2.7 . tcp . 80 : goto external-ULMVA6XW-default/api/tcp/http,
     fd01::9 . sctp . 9 : goto local-2QRHZV4L-default/near/sctp/ }
    }
    map firewall-ips {
        elements = { 192.0.2.7 . tcp . 80 comment "default/api:http" : goto firewall-ULMVA6XW-default/api/tcp/http }
    }
    map no-endpoint-services {
        elements = { 10.96.0.12 . tcp . 80 comment "default/idle:web" : goto reject-chain }
    }
}
"""


def element(address: str, chain: str, comment: str = "", protocol: str = "tcp", port: int = 80) -> list[Any]:
    key = {"concat": [address, protocol, port]}
    return [{"elem": {"val": key, "comment": comment}} if comment else key, {"goto": {"target": chain}}]


MAPS = {
    "service-ips": [
        element("10.96.0.10", "service-ULMVA6XW-default/api/tcp/http"),
        element("192.0.2.7", "external-ULMVA6XW-default/api/tcp/http"),
        element("fd01::9", "local-2QRHZV4L-default/near/sctp/", "", "sctp", 9),
        *([], [1, 2], [{"concat": []}, {"goto": {}}], [{"concat": ["a", "tcp", "x"]}, {"goto": {"target": "c"}}], 5),
    ],
    "no-endpoint-services": [element("10.96.0.12", "reject-chain", "default/idle:web")],
    "firewall-ips": [element("192.0.2.7", "firewall-ULMVA6XW-default/api/tcp/http", "default/api:http")],
}
JSON = [{"table": {"name": "kube-proxy"}}, *({"map": {"name": name, "elem": listed}} for name, listed in MAPS.items())]


@pytest.mark.parametrize(
    ("snapshot", "listed"),
    [
        (
            {"iptables": [{"family": "ip", "table": "nat", "save": SAVE}]},
            [API, Service("default/dns", "10.96.0.11", "udp", 53, ""), IDLE],
        ),
        ({"nftables_text": TEXT}, [API, IDLE, LOCAL]),
        ({"nftables": JSON}, [API, IDLE, LOCAL]),
        ({"nftables": None}, []),
    ],
)
def test_cluster_addresses_are_listed_with_their_services(snapshot: dict[str, Any], listed: list[Service]) -> None:
    assert services(snapshot) == listed


BALANCED = ("192.0.2.7", "tcp", 80)
MALFORMED = {"name": "service-ips", "elem": [element("here", "x"), element("10.0.0.1", "x", port=70000)]}
OF_IPVS = [{"protocol": "tcp", "address": "192.0.2.7", "port": 80}, {"protocol": "fwm", "fwmark": "0x1"}]


@pytest.mark.parametrize(
    ("snapshot", "ends"),
    [
        (
            {"iptables": [{"family": "ip", "table": "nat", "save": SAVE}]},
            [*(service[1:4] for service in (API, IDLE)), ("10.96.0.11", "udp", 53), BALANCED],
        ),
        ({"nftables_text": TEXT}, [*(service[1:4] for service in (API, IDLE, LOCAL)), BALANCED]),
        ({"nftables": JSON}, [*(service[1:4] for service in (API, IDLE, LOCAL)), BALANCED]),
        ({"ipvs": OF_IPVS}, [BALANCED]),
        ({"nftables": [{"map": MALFORMED}]}, []),
    ],
)
def test_addresses_of_load_balancers_are_translated_too(snapshot: dict[str, Any], ends: list[tuple[str, str, int]]) -> None:
    assert translated(snapshot, snapshot.get("ipvs", [])) == sorted(ends)


@pytest.mark.parametrize("text", ["a" * 300_000, f"10.0.0.1 . tcp . {'1' * 300_000} : goto x", '1 . t . 1 comment "' * 20_000])
def test_a_hostile_text_takes_linear_time(text: str) -> None:
    began = time.process_time()
    assert services({"nftables_text": text}) == []
    assert time.process_time() - began < 5
