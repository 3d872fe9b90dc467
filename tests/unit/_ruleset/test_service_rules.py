# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What rules say of Services, and which packets they let pass."""

from __future__ import annotations

import time
from typing import Any

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._ruleset import (
    iptables_save,
    nft_json,
    observed,
    passage,
    service_rules,
)
from ansible_collections.kubenode.datapath.plugins.module_utils._ruleset.ruleset import Table
from ansible_collections.kubenode.datapath.plugins.module_utils._ruleset.service_rules import (
    Service,
    endpoints,
    entrances,
    services,
    translated,
)

# Services and their cluster addresses are read from what kube-proxy writes in each of its modes that name them


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
    assert services(observed.tables(snapshot)) == listed


BALANCED = ("192.0.2.7", "tcp", 80)
MALFORMED = {"name": "service-ips", "elem": [element("here", "x"), element("10.0.0.1", "x", port=70000)]}
OF_IPVS = [BALANCED, ("", "fwm", 0)]


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
    assert translated(observed.tables(snapshot), snapshot.get("ipvs", [])) == sorted(ends)


OUTSIDE = """*nat
-A KUBE-NODEPORTS -p tcp -m tcp --dport 30080 -j KUBE-EXT-A
-A KUBE-NODEPORTS -p udp -m udp --dport 30053 -j KUBE-EXT-B
-A KUBE-SERVICES -d 10.96.0.10/32 -p tcp -m tcp --dport 80 -j KUBE-SVC-A
-A KUBE-SERVICES -d 192.0.2.7/32 -p tcp -m tcp --dport 80 -j KUBE-EXT-A
-A KUBE-EXT-A -j KUBE-MARK-MASQ
-A KUBE-EXT-A -j KUBE-SVC-A
-A KUBE-SVC-A -m statistic --mode random --probability 0.5 -j KUBE-SEP-1
-A KUBE-SVC-A -j KUBE-SEP-2
-A KUBE-SEP-1 -p tcp -m tcp -j DNAT --to-destination 10.1.0.5:8080
-A KUBE-SEP-2 -p tcp -m tcp -j DNAT --to-destination 10.1.0.6:8080
COMMIT
"""
CHAIN = "external-A-default/api/tcp/"
MAPPED = f"""table ip kube-proxy {{
    map service-nodeports {{
        elements = {{ tcp . 30080 : goto {CHAIN}, udp . 30053 : goto external-B }}
    }}
    map service-ips {{
        elements = {{ 10.96.0.10 . tcp . 80 : goto service-A, 192.0.2.7 . tcp . 80 : goto {CHAIN} }}
    }}
    chain {CHAIN} {{
        jump mark-for-masquerade
        goto service-A
    }}
    chain service-A {{
        numgen random mod 2 vmap {{ 0 : goto endpoint-1, 1 : goto endpoint-2 }}
    }}
    chain endpoint-1 {{
        meta l4proto tcp dnat to 10.1.0.5:8080
    }}
    chain endpoint-2 {{
        meta l4proto tcp dnat to 10.1.0.6:8080
    }}
}}
"""


@pytest.mark.parametrize(
    "table",
    [
        observed.of_iptables({"iptables": [{"family": "ip", "table": "nat", "save": OUTSIDE}]})[0],
        observed.of_nft({"nftables_text": MAPPED})[0],
    ],
)
def test_requests_from_outside_reach_pods_by_ports_of_the_node_and_by_addresses_of_load_balancers(table: Table) -> None:
    reached = {(*entrance[:3], *sorted(endpoints(table, entrance.chain))) for entrance in entrances(table)}
    pods = ("10.1.0.5", "10.1.0.6")
    assert reached == {("", "tcp", "30080", *pods), ("", "udp", "30053"), ("192.0.2.7", "tcp", "80", *pods)}


LOST = """*nat
:KUBE-SERVICES - [0:0]
:KUBE-NODEPORTS - [0:0]
:KUBE-EXT-A - [0:0]
:KUBE-SVC-A - [0:0]
-A KUBE-EXT-A -j KUBE-SVC-A
-A KUBE-SVC-A ! -s 10.60.0.0/16 -d 10.96.0.12/32 -p tcp -m tcp --dport 80 -j KUBE-MARK-MASQ
COMMIT
"""


@pytest.mark.parametrize(
    ("rule", "ends"),
    [
        ("-A KUBE-NODEPORTS -p tcp -m tcp --dport 30080 -j KUBE-EXT-A", [("10.96.0.12", "tcp", 80)]),
        ("-A KUBE-NODEPORTS -p tcp -m tcp --dport 30080 -j KUBE-SVC-A", [("10.96.0.12", "tcp", 80)]),
        ("", []),  # the chains of a Service that is gone remain for a while
    ],
)
def test_a_service_with_a_node_port_is_translated_although_the_rule_for_its_address_is_lost(
    rule: str, ends: list[tuple[str, str, int]]
) -> None:
    save = LOST.replace("COMMIT", f"{rule}\nCOMMIT" if rule else "COMMIT")
    assert translated(observed.tables({"iptables": [{"family": "ip", "table": "nat", "save": save}]}), []) == ends


@pytest.mark.parametrize(
    ("rule", "is_one"),
    [
        ("-d 10.96.0.1/32 -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.60.5.5", True),
        ("-d 10.96.0.1/32 -j DNAT --to-destination 10.60.5.5", True),
        ("-d 10.96.0.1/32 -p tcp -m tcp --dport 443 -j DNAT --to-destination 10.60.5.5", False),
        ("-d 10.96.0.1/32 -p udp -m udp --dport 80 -j DNAT --to-destination 10.60.5.5", False),
        ("-d 10.96.0.10/32 -j DNAT --to-destination 10.60.5.5", False),
        ("-d 10.96.0.1/32 -p tcp -j ACCEPT", False),
    ],
)
def test_an_address_is_translated_if_some_rule_does_it(rule: str, is_one: bool) -> None:
    save = f"*nat\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING {rule}\nCOMMIT\n"
    tables = observed.tables({"iptables": [{"family": "ip", "table": "nat", "save": save}]})
    assert service_rules.is_translated(tables, "10.96.0.1", "tcp", 80) == is_one


@pytest.mark.parametrize(
    ("chain", "is_of_one"),
    [
        *[("KUBE-SVC-NPX46M4PTMTKRN6Y", True), ("KUBE-SEP-TCOU7JCQXEZGVUNU", True), ("KUBE-SVC-NPX46M4PTMTKRN6", False)],
        *[("service-ULMVA6XW-ns1/svc1/tcp/p80", True), ("endpoint-5OJB2KTY-ns1/svc1/tcp/p80__10.180.0.1/80", True)],
        *[("KUBE-SERVICES", False), ("KUBE-MARK-MASQ", False), ("services", False), ("service-endpoints-check", False)],
    ],
)
def test_the_chains_of_one_service_are_known_by_their_names(chain: str, is_of_one: bool) -> None:
    assert service_rules.is_generated(chain) == is_of_one


@pytest.mark.parametrize("text", ["a" * 300_000, f"10.0.0.1 . tcp . {'1' * 300_000} : goto x", '1 . t . 1 comment "' * 20_000])
def test_a_hostile_text_takes_linear_time(text: str) -> None:
    began = time.process_time()
    assert services(observed.tables({"nftables_text": text})) == []
    assert time.process_time() - began < 5


# A rule drops every packet of a kind only if no rule before it may accept one


PACKET: passage.Packet = {"meta l4proto": "icmp".__eq__, "ct state": "related".__eq__, "iifname": "eth0".__eq__}
ACCEPT, DROP = "-A INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT", "-A INPUT -p icmp -j DROP"

OTHERS = "-A INPUT -m conntrack ! --ctstate ESTABLISHED -j REJECT"


def dropping(table: Table, chain: str = "INPUT") -> str | None:
    rule = passage.dropping(table, chain, PACKET)
    return rule and (rule.line or rule.chain)


@pytest.mark.parametrize(
    ("rules", "policy", "line"),
    [
        ([DROP], "ACCEPT", DROP),
        ([ACCEPT, DROP], "ACCEPT", None),
        (["-A INPUT -i lo -j ACCEPT", "-A INPUT -p tcp -j ACCEPT", DROP], "ACCEPT", DROP),
        (["-A INPUT -p icmp -m limit --limit 9/sec -j ACCEPT", DROP], "ACCEPT", None),
        (["-A INPUT -s 192.0.2.1/32 -j DROP"], "ACCEPT", None),
        (["-A INPUT -p tcp -j DROP", "-A INPUT ! -i eth0 -j DROP"], "ACCEPT", None),
        ([OTHERS], "ACCEPT", OTHERS),
        (["-A INPUT -p icmp -j A", "-A A -j DROP"], "ACCEPT", "-A A -j DROP"),
        (["-A INPUT -p icmp -j A", "-A A -j RETURN", "-A A -j DROP"], "ACCEPT", None),
        (["-A INPUT -m mark --mark 1 -j A", "-A A -j DROP"], "ACCEPT", None),
        (["-A INPUT -m set --match-set trusted src -j ACCEPT", DROP], "ACCEPT", None),
        (["-A INPUT -g A", DROP, "-A A -p tcp -j DROP"], "ACCEPT", None),
        (["-A INPUT -j A", "-A A -j INPUT", DROP], "ACCEPT", DROP),
        ([], "DROP", "INPUT policy drop"),
        ([ACCEPT], "DROP", None),
    ],
)  # fmt: skip
def test_a_rule_of_iptables(rules: list[str], policy: str, line: str | None) -> None:
    text = "\n".join(["*filter", f":INPUT {policy}", ":A -", *rules, "COMMIT", ""])
    assert dropping(iptables_save.read("ip", "filter", text)) == line


STATES = [["established", {"accept": None}], ["invalid", {"drop": None}]]


@pytest.mark.parametrize(
    ("statements", "is_dropped"),
    [
        ([{"drop": None}], True),
        ([{"limit": {"rate": 9, "per": "second", "inv": True}}, {"drop": None}], False),
        ([{"vmap": {"key": {"ct": {"key": "state"}}, "data": {"set": [*STATES, ["related", {"drop": None}]]}}}], True),
        ([{"vmap": {"key": {"ct": {"key": "state"}}, "data": {"set": [*STATES, ["related", {"accept": None}]]}}}], False),
        ([{"vmap": {"key": {"ct": {"key": "state"}}, "data": {"set": STATES}}}], False),
        ([{"vmap": {"key": {"meta": {"key": "mark"}}, "data": "@marks"}}], False),
    ],
)
def test_a_rule_of_nft(statements: list[dict[str, object]], is_dropped: bool) -> None:
    about = {"family": "inet", "table": "t"}
    chain = {"chain": {**about, "name": "INPUT", "type": "filter", "hook": "input", "policy": "accept"}}
    (table,) = nft_json.tables([chain, {"rule": {**about, "chain": "INPUT", "expr": statements}}])
    assert (dropping(table) is not None) == is_dropped
