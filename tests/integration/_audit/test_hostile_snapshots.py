# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""No part of a snapshot ends an audit in another way than by findings, or by an error that names the part."""

from __future__ import annotations

import copy
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Invalid
from ansible_collections.kubenode.datapath.plugins.module_utils._twin import assumptions, blueprint, snapshot_form, worlds

from .auditing import concluded
from .healthy_nodes import CIS, eks_ubuntu, flannel

Path = tuple[Any, ...]
LACKING = object()
VALUES = [LACKING, None, 7, -1, "", "x", "x\n\x1b[31m", True, [], ["x"], [None], [{}], {}, {"x": 1}, [{"x": {"y": 1}}]]
# Of subsets that the healthy node does not have.
FURTHER: dict[str, Any] = {
    "firewalls": {
        "nftables.service": {"is_enabled": True, "is_active": False, "file": "/etc/nftables.conf", "flushes": True},
        "firewalld.service": {"is_active": True, "FirewallBackend": "iptables", "FlushAllOnReload": "yes"},
    },
    "units": [{"name": "kubenode-nft-ip6-x.service", "is_enabled": True, "active": "failed", "sub": "failed"}],
    "ebtables": [{"table": "nat", "chain": "PREROUTING", "rules": ["-p IPv4 --ip-dst 10.0.0.9 -j dnat --to-dst 2:0:0:0:9:9"]}],
    "policies": [
        {"protocol": 75, "path": "/etc/kubenode/policy-routes-75.json", "rules": [{"priority": 7, "table": "9"}]}
        | {"routes": [{"to": "default", "dev": "eth0", "table": "9", "family": "ipv4"}]}
    ],
    "ipvs": [{"protocol": "tcp", "address": "10.0.1.200", "port": 80, "scheduler": "rr", "destinations": []}],
    "nftables": [
        {"table": {"family": "ip6", "name": "y"}},
        {"rule": {"family": "inet", "table": "firewalld", "chain": "filter_PREROUTING", "expr": [{"drop": None}]}},
        {"map": {"family": "ip", "table": "kube-proxy", "name": "service-nodeports", "elem": [1]}},
    ],
}


def paths(value: Any, path: Path = ()) -> Iterator[Path]:
    """Each part of the value, and of a list its first two entries."""
    keys = [*value] if isinstance(value, dict) else range(min(len(value), 2)) if isinstance(value, list) else []
    for key in keys:
        yield (*path, key)
        yield from paths(value[key], (*path, key))


def changed(snapshot: Any, path: Path, value: Any) -> Any:
    copied = copy.deepcopy(snapshot)
    place = copied
    for key in path[:-1]:
        place = place[key]
    if value is LACKING:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return copied


def test_a_part_of_another_type_is_named_or_does_not_matter() -> None:
    snapshot = {**eks_ubuntu(CIS).done(), **FURTHER}
    escaped = set()
    for path in paths(snapshot):
        for value in VALUES:
            hostile = changed(snapshot, path, value)
            try:
                snapshot_form.check(hostile)
                concluded(hostile, does_prove=False)
            except Invalid as error:
                assert error.option.startswith("snapshot")
            except Exception as error:  # an exception of any other kind is what the test looks for
                escaped.add((path, repr(value), repr(error)))
    assert escaped == set()


def neighbour_of_tunnel(address: str) -> dict[str, Any]:
    return {"neighbors": {"address": address, "dev": "flannel.1", "mac": "02:00:00:00:00:09", "state": "PERMANENT"}}


def gateway(address: str) -> dict[str, Any]:
    rule = {"family": "ipv4", "priority": 900, "from": "10.9.9.9", "table": "77"}
    return {"rules": rule, "routes": {"family": "ipv4", "table": "77", "to": "default", "via": address, "dev": "eth0"}}


@pytest.mark.parametrize(
    "added",
    [neighbour_of_tunnel("255.255.255.255"), neighbour_of_tunnel("x"), neighbour_of_tunnel("10.244.255.255"), gateway("x")],
)
def test_an_address_that_no_network_has_ends_no_audit(added: dict[str, Any]) -> None:
    snapshot = flannel(CIS).done()
    for subset, entry in added.items():
        snapshot[subset].append(entry)
    assert concluded(snapshot, does_prove=False)["passed"]


def test_the_time_of_an_audit_grows_with_the_rules_and_not_with_their_square() -> None:
    node = eks_ubuntu(CIS)
    for number in range(6000):
        address = f"10.50.{number >> 8}.{number & 255}"
        node.snapshot["rules"].append({"priority": 1536, "family": "ipv4", "from": address, "table": "2"})
        node.route(address, "eni1", scope="link")
    begin = time.process_time()
    concluded(node.done(), does_prove=False)
    assert time.process_time() - begin < 6  # it takes 0.3 s, and took 33 s when each rule looked through all routes


def test_an_audit_reads_a_hundred_thousand_rules_of_iptables_in_seconds() -> None:
    node = eks_ubuntu(CIS)
    comment = '-m comment --comment "default/service cluster IP"'
    node.iptables("ip", "mangle", *(f"-A PREROUTING -s 10.96.0.1/32 {comment} -j KUBE-SVC-{n}" for n in range(100_000)))
    begin = time.process_time()
    concluded(node.done(), does_prove=False)
    assert time.process_time() - begin < 4  # it takes 0.7 s, and took 15 s when each line was read by shlex


# What no field of the kernel holds, or what Python reads as a number and no program prints.
NUMBERS: list[Any] = [
    *(float("inf"), float("-inf"), float("nan"), 1.5, True, 10**400, -(10**400), 2**32, 2**64, -1, "1e999", "Infinity", "NaN"),
    *("007", "1_000", "\u0661\u0662", "\u00b2", "+1", " 1", "0x", "0x10", "0x1/007", "1" * 5000, "1" * 5000 + "/1", "-1"),
]
NUMBER = re.compile("[0-9]+|0x[0-9a-f/x]+")
ENDS = assumptions.Ends("10.0.0.9", "eth0", "10.0.1.9")
TEXT = """table ip t {
 set s { type ipv4_addr; size 64; }
 map service-nodeports { elements = { tcp . 30080 : goto external-x } }
 chain c { type filter hook prerouting priority 10; policy accept;
  tcp dport 80 counter packets 3 bytes 180 drop
  meta mark set meta mark | 128
 }
}
"""
SAVE = """*mangle
:PREROUTING ACCEPT [7:420]
-A PREROUTING -i eth0 -m addrtype --dst-type LOCAL -j CONNMARK --set-xmark 0x80/0x80
-A PREROUTING -i eni+ -j CONNMARK --restore-mark --nfmask 0x80 --ctmask 0x80
-A PREROUTING -p tcp -m tcp --dport 10250 -j MARK --set-xmark 0x1/0xffffffff
COMMIT
"""


def is_number(value: Any) -> bool:
    return isinstance(value, int) or (isinstance(value, str) and bool(NUMBER.fullmatch(value)))


def at(value: Any, path: Path) -> Any:
    return at(value[path[0]], path[1:]) if path else value


def with_numbers(snapshot: dict[str, Any]) -> Iterator[tuple[Any, dict[str, Any]]]:
    """The snapshot with one number replaced, and the place: a part, or one of the texts of its ruleset."""
    numbers = {(path[0], path[-1]): path for path in paths(snapshot) if is_number(at(snapshot, path))}  # one of each key
    for path in numbers.values():
        for value in NUMBERS:
            yield (path, value), changed(snapshot, path, value)
    for path, text in ((("nftables_text",), TEXT), (("iptables", 0, "save"), SAVE)):
        for match in re.finditer(r"\b(?:0x)?[0-9]+\b", text):
            for value in map(str, NUMBERS):
                yield (path, match.start(), value), changed(snapshot, path, text[: match.start()] + value + text[match.end() :])


def test_a_number_that_no_field_holds_is_named_or_does_not_matter() -> None:
    snapshot = {**eks_ubuntu(CIS).done(), **FURTHER, "nftables_text": TEXT}
    snapshot["iptables"] = [{"family": "ip", "table": "mangle", "backend": "nft", "save": SAVE}, *snapshot["iptables"]]
    named, escaped = set(), set()
    for place, hostile in with_numbers(snapshot):
        try:
            read = snapshot_form.read(hostile)
            concluded(hostile, does_prove=False)
            blueprint.draw(read)
            assumptions.complete(read, {}, ENDS)
            worlds.open_for(read, ENDS)
        except Invalid as error:
            named.add(error.option)
        except Exception as error:  # an exception of any other kind is what the test looks for
            escaped.add((str(place)[:200], repr(error)[:200]))
    assert escaped == set()
    subsets = ("links", "rules", "routes", "settings", "counters", "listeners", "ipvs", "boot")
    assert {*subsets} <= {re.split(r"[.[]", f"{option}.")[1] for option in named}
