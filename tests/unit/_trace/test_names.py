# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Names of pods and Services in a packet lead to the addresses that a snapshot has for them, or to an error that lists names."""

from __future__ import annotations

import re
from typing import Any

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Invalid
from ansible_collections.kubenode.datapath.plugins.module_utils._trace import entrance, names, packet, packet_text

RULE = (
    '-A KUBE-SERVICES -d {address} -p {protocol} -m comment --comment "{name} cluster IP" -m {protocol} --dport {port} -j KUBE-A'
)
SERVICES = [
    *(("default/api:http", "10.96.0.10/32", "tcp", 80), ("default/api:http", "fd01::10/128", "tcp", 80)),
    *(("default/api:admin", "10.96.0.10/32", "tcp", 8080), ("default/api:admin", "fd01::10/128", "tcp", 8080)),
    *(("kube-system/dns:dns", "10.96.0.53/32", "udp", 53), ("kube-system/dns:dns-tcp", "10.96.0.53/32", "tcp", 53)),
    *(
        ("shop/db", "10.96.0.20/32", "tcp", 5432),
        ("test/db", "10.96.0.30/32", "tcp", 5432),
        ("default/web-0", "10.96.0.40", "tcp", 80),
    ),
]
RULES = [RULE.format(name=name, address=address, protocol=protocol, port=port) for name, address, protocol, port in SERVICES]
SNAPSHOT: dict[str, Any] = {
    "links": [
        {"name": "eth0", "kind": "", "addresses": [{"address": "10.0.0.4/24"}]},
        {
            "name": "veth0",
            "kind": "veth",
            "peer": {"namespace": "namespace cni-1", "name": "eth0", "addresses": ["10.244.0.5", "fe80::1"]},
        },
        {"name": "veth1", "kind": "veth", "peer": {"namespace": "process 7", "name": "eth0", "addresses": ["10.244.0.6"]}},
    ],
    "pod_addresses": [
        {"pod": "default/web-0", "interface": "eth0", "addresses": ["10.244.0.5"]},
        {"pod": "default/web-0", "interface": "net1", "addresses": ["10.9.0.5"]},
        {"pod": "shop/both", "interface": "eth0", "addresses": ["10.244.0.6", "fd00::6"]},
        {"pod": "default/job", "interface": "", "addresses": ["10.244.0.7"]},
        {"pod": "test/job", "interface": "", "addresses": ["10.244.0.8"]},
    ],
    "iptables": [{"family": "ip", "backend": "nft", "table": "nat", "save": "\n".join(["*nat", *RULES, "COMMIT", ""])}],
}


@pytest.mark.parametrize(
    ("line", "shown", "interface"),
    [
        ("default/web-0 -> default/api:80", "tcp 10.244.0.5:40000 > 10.96.0.10:80", "veth0"),
        ("web-0 -> api:http", "tcp 10.244.0.5:40000 > 10.96.0.10:80", "veth0"),
        ("web-0 > api:admin in eth0 mark 0x1", "tcp 10.244.0.5:40000 > 10.96.0.10:8080", "eth0"),
        ("udp web-0:4000 -> dns:53", "udp 10.244.0.5:4000 > 10.96.0.53:53", "veth0"),
        ("web-0 -> kube-system/dns", "tcp 10.244.0.5:40000 > 10.96.0.53:53", "veth0"),
        ("cni-1 -> shop/db", "tcp 10.244.0.5:40000 > 10.96.0.20:5432", "veth0"),
        ("web-0 -> test/job:443", "tcp 10.244.0.5:40000 > 10.244.0.8:443", "veth0"),
        ("icmp web-0 -> both", "icmp 10.244.0.5 > 10.244.0.6", "veth0"),
        ("both -> web-0:80", "tcp 10.244.0.6:40000 > 10.96.0.40:80", "veth1"),
        ("both -> web-0:81", "tcp 10.244.0.6:40000 > 10.244.0.5:81", "veth1"),
        ("[fd00::6]:4 -> api:80 in veth1", "tcp [fd00::6]:4 > [fd01::10]:80", "veth1"),
        ("both -> 192.0.2.1:443", "tcp 10.244.0.6:40000 > 192.0.2.1:443", "veth1"),
    ],
)
def test_a_name_stands_for_an_address(line: str, shown: str, interface: str) -> None:
    sent = entrance.packet(packet_text.options(line), SNAPSHOT)
    assert (str(sent), sent.interface) == (shown, interface)


def test_a_dictionary_takes_names_too() -> None:
    sent = entrance.packet({"source": "default/web-0", "destination": "api", "destination_port": "80"}, SNAPSHOT)
    assert (str(sent), sent.interface) == ("tcp 10.244.0.5:40000 > 10.96.0.10:80", "veth0")
    described = {"destination": "default/api", "destination_port": "8080", "interface": ""}
    of_node = entrance.packet(described, {**SNAPSHOT, "iptables": [{**SNAPSHOT["iptables"][0], "save": f"*nat\n{RULES[2]}"}]})
    assert (str(of_node), of_node.interface) == ("tcp the node > 10.96.0.10:8080", "")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("web-1 -> api:80", "packet.source must be an IP address, or the name of a pod that is known, such as default/web-0; '"),
        ("web-0 -> default/apy:80", "the name of a pod or a Service that is known, such as default/api"),
        ("api -> web-0:80", "packet.source must be an IP address, or the name of a pod that is known, such as cni-1, default"),
        (
            "job -> api:80",
            "packet.source must be one of pod default/job (10.244.0.7), pod test/job (10.244.0.8): add the namespace or the port,"
            " or write the address; 'job' was given",
        ),
        ("web-0 -> db:5432", "one of Service shop/db (10.96.0.20, tcp 5432), Service test/db (10.96.0.30, tcp 5432): add"),
        ("web-0 -> api", "packet.destination must be one of Service default/api (10.96.0.10, tcp 80 http), Service default/"),
        ("both -> api:80", "one of pod shop/both (10.244.0.6), pod shop/both (fd00::6): add"),
        ("web-0 -> dns:81", "packet.destination_port must be a port of Service kube-system/dns (10.96.0.53, tcp 53 dns-tcp), "),
        ("web-0 -> [fd00::6]:80", "packet.destination must be of the address family of packet.source, which is pod default/w"),
        ("web-0 -> 10.0.0.300:80", "packet.destination must be an IP address"),
        ("web-0 -> both:http", "packet.destination_port must be a port from 1 to 65535, for tcp, udp and sctp; 'http' was given"),
    ],
)  # fmt: skip
def test_a_name_without_one_address_is_an_error_that_lists_names(line: str, message: str) -> None:
    with pytest.raises(Invalid, match=re.escape(message)):
        entrance.packet(packet_text.options(line), SNAPSHOT)


def test_an_error_says_that_no_name_is_known() -> None:
    with pytest.raises(Invalid, match="an IP address, because no name of a pod is known; 'web-0' was given"):
        entrance.packet(packet_text.options("web-0 -> api:80"), {})


def test_only_what_needs_no_snapshot_is_checked_before() -> None:
    names.check({"destination": "default/api"})
    with pytest.raises(Invalid, match=r"packet\.destination_port must be a port"):
        names.check({"destination": "10.0.0.1"})
    assert names.resolved({"destination": "10.0.0.1"}, {}) == {"destination": "10.0.0.1"}
    assert packet.OPTIONS["destination_port"].type == "int"


@pytest.mark.parametrize("text", ["10.0.0.1", "fe80::1", "10.0.0.0/8", "", "a b", "a/b/c", "a:80"])
def test_an_address_is_no_name(text: str) -> None:
    assert not names.is_name(text)
