# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What kube-proxy generates is read by name, where a packet may meet it, and once."""

from __future__ import annotations

import json
from typing import Any
from unittest.mock import Mock

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Failure
from ansible_collections.kubenode.datapath.plugins.module_utils._explain.digest import digest
from ansible_collections.kubenode.datapath.plugins.module_utils._ruleset import (
    generated,
    nft_blocks,
    nft_text,
    observed,
    service_rules,
)
from ansible_collections.kubenode.datapath.plugins.module_utils._ruleset.generated import Generated, Members, Readers
from ansible_collections.kubenode.datapath.plugins.module_utils._ruleset.ruleset import Element, Selection, Statement, Table
from ansible_collections.kubenode.datapath.plugins.module_utils._snapshot.values import Snapshot
from ansible_collections.kubenode.datapath.plugins.module_utils._twin import blueprint, reachable
from ansible_collections.kubenode.datapath.plugins.module_utils._twin.reachable import Flow, packed

PLACE = ("ip6", "kube-proxy")
TEXT = """table ip6 kube-proxy {
chain nat-prerouting {
type nat hook prerouting priority -100; policy accept;
ip6 daddr . meta l4proto . th dport vmap @service-ips
meta l4proto . th dport vmap @service-nodeports
}
chain filter-forward {
type filter hook forward priority -110; policy accept;
ip6 daddr @cluster-ips drop
}
chain mark-for-masquerade {
meta mark set meta mark | 0x00004000
}
}
"""
PODS = {"web": "fd00::1:2", "db": "fd00::1:3"}
CHAINS: dict[str, list[str]] = {}
for _name, _pod in PODS.items():
    _port, _end = f"AAAAAAAA-ns/{_name}/tcp/p", f"endpoint-BBBBBBBB-ns/{_name}/tcp/p__{_pod.replace(':', '.')}/80"
    CHAINS[f"service-{_port}"] = [f"numgen random mod 1 vmap {{ 0 : goto {_end} }}"]
    CHAINS[f"external-{_port}"] = ["jump mark-for-masquerade", f"goto service-{_port}"]
    CHAINS[_end] = [f"meta l4proto tcp dnat ip6 to [{_pod}]:80"]


def _goto(chain: str, *key: str) -> Element:
    return Element(key, Statement("goto", chain))


TCP = ("tcp", "80")
SETS = {
    "service-ips": Members(
        "map",
        ["type ipv6_addr . inet_proto . inet_service : verdict"],
        [
            _goto("service-AAAAAAAA-ns/web/tcp/p", "fd01::1", *TCP),
            _goto("service-AAAAAAAA-ns/db/tcp/p", "fd01::2", *TCP),
            _goto("external-AAAAAAAA-ns/db/tcp/p", "2001:db8::2", *TCP),
        ],
    ),
    "service-nodeports": Members(
        "map", ["type inet_proto . inet_service : verdict"], [_goto("external-AAAAAAAA-ns/web/tcp/p", "tcp", "30001")]
    ),
    "cluster-ips": Members("set", ["type ipv6_addr"], [Element(("fd01::1",)), Element(("fd01::2",))]),
}


class Kernel:
    """What is read, and how often. asked: names."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        readers = Readers(lambda place, name: self._of(place, CHAINS, name), lambda place, name: self._of(place, SETS, name))
        self.generated = Generated({PLACE: Selection(CHAINS.keys(), SETS.keys())}, readers, "[1]")
        self.snapshot = {"nftables": [], "nftables_text": TEXT, generated.KEY: self.generated}

    def _of(self, place: tuple[str, str], values: dict[str, Any], name: str) -> Any:
        assert place == PLACE
        self.asked.append(name)
        return values[name]

    @property
    def table(self) -> Table:
        (table,) = observed.of_nft(self.snapshot)
        return table


def test_a_table_has_what_its_text_lacks_by_name_alone() -> None:
    kernel = Kernel()
    table = kernel.table
    assert {*table.chains} == {"nat-prerouting", "filter-forward", "mark-for-masquerade"} and not {*table.sets}
    assert all(name in table.chains for name in CHAINS) and "other" not in table.chains
    assert len([*table.rules()]) == 4 and kernel.asked == []
    assert table.chains["external-AAAAAAAA-ns/web/tcp/p"].rules[1].statements == (
        Statement("goto", "service-AAAAAAAA-ns/web/tcp/p"),
    )
    assert table.sets["cluster-ips"] == SETS["cluster-ips"].elements
    assert [*kernel.table.chains["external-AAAAAAAA-ns/web/tcp/p"].rules] and len(kernel.asked) == 2
    with pytest.raises(KeyError):
        table.chains["other"]


def test_a_packet_reads_what_it_may_meet() -> None:
    kernel = Kernel()
    flow = Flow(frozenset(map(packed, ("2001:db8::9", "fd01::1"))), frozenset(["tcp"]), frozenset(["80"]))
    drawn = reachable.reduced(blueprint.draw(Snapshot.of(kernel.snapshot)), flow)
    (table,) = nft_text.tables(drawn.ruleset_text)
    web = [name for name in CHAINS if "/web/" in name and not name.startswith("external-")]
    assert {*table.chains} == {"nat-prerouting", "filter-forward", *web}
    assert [element.key for element in table.sets["service-ips"]] == [("fd01::1", *TCP)]
    assert [element.key for element in table.sets["cluster-ips"]] == [("fd01::1",)]
    assert sorted(kernel.asked) == sorted([*web, *SETS]) and drawn.generated is None and not drawn.notes
    assert [rule.statements[-1].target for rule in table.chains[web[-1]].rules] == ["[fd00::1:2]:80"]


def test_what_is_not_understood_reads_all() -> None:
    kernel = Kernel()
    drawn = reachable.whole(blueprint.draw(Snapshot.of(kernel.snapshot)))
    (table,) = nft_text.tables(drawn.ruleset_text)
    assert {*table.chains} == {"nat-prerouting", "filter-forward", "mark-for-masquerade", *CHAINS}
    assert {name: [*table.sets[name]] for name in table.sets} == {name: [*each.elements] for name, each in SETS.items()}
    unknown = {**kernel.snapshot, "nftables_text": TEXT.replace("meta l4proto .", "dnat to @somewhere\nmeta l4proto .")}
    flow = Flow(frozenset(map(packed, ("2001:db8::9", "fd01::1"))), frozenset(["tcp"]), frozenset(["80"]))
    (table,) = nft_text.tables(reachable.reduced(blueprint.draw(Snapshot.of(unknown)), flow).ruleset_text)
    assert {*CHAINS} < {*table.chains}


def test_a_line_that_is_not_permitted_is_no_part_of_a_twin(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Kernel()
    monkeypatch.setitem(CHAINS, "service-AAAAAAAA-ns/web/tcp/p", ['include "/etc/passwd"', "drop"])
    drawn = reachable.whole(blueprint.draw(Snapshot.of(kernel.snapshot)))
    assert "passwd" not in drawn.ruleset_text
    assert any("passwd" in str(note) for note in drawn.notes)


def test_a_name_that_ends_a_table_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Kernel()
    monkeypatch.setitem(CHAINS, "service-AAAAAAAA-ns/web/tcp/p", ["goto a\n}\n}\ntable ip x { chain y {"])
    with pytest.raises(Failure, match="ip6 kube-proxy has a name that ends it"):
        reachable.whole(blueprint.draw(Snapshot.of(kernel.snapshot)))


def test_routes_are_not_left_out_by_addresses_that_are_not_read() -> None:
    drawn = blueprint.draw(Snapshot.of(Kernel().snapshot))
    assert not reachable.names_all_addresses(drawn)
    assert reachable.names_all_addresses(drawn._replace(generated=None))


def test_the_entrances_of_pods_are_found_by_the_names_of_chains() -> None:
    kernel = Kernel()
    found = {pod: entrance.port for pod, entrance in service_rules.for_pods(kernel.table, [PODS["web"], "fd00::7"])}
    assert found == {PODS["web"]: "30001"}
    assert not any("/db/" in name for name in kernel.asked)
    whole = nft_blocks.find(TEXT).completed({PLACE: kernel.generated.lines(PLACE, kernel.generated.blocks[PLACE])})
    (table,) = nft_text.tables(whole)
    assert [*service_rules.for_pods(table, PODS.values())] == [*service_rules.for_pods(kernel.table, PODS.values())]
    assert len([*service_rules.for_pods(table, PODS.values())]) == 2


def test_a_failure_to_read_is_that_of_the_question() -> None:
    def fails(_place: tuple[str, str], _name: str) -> Any:
        raise Failure("the chain changed")

    lacking = Generated({PLACE: Selection(CHAINS.keys(), SETS.keys())}, Readers(fails, fails), "[1]")
    snapshot = {**Kernel().snapshot, generated.KEY: lacking}
    with pytest.raises(Failure, match="the chain changed"):
        reachable.whole(blueprint.draw(Snapshot.of(snapshot)))


def test_a_snapshot_from_elsewhere_lacks_nothing() -> None:
    given = json.loads(json.dumps({"nftables": [], "nftables_text": TEXT, generated.KEY: {"blocks": {}}}))
    assert Snapshot.of(given).generated is None and generated.of(given) is None
    assert [table.name for table in observed.of_nft(given)] == ["kube-proxy"]


def test_a_digest_is_another_one_after_a_change_of_what_is_not_read() -> None:
    first, same, changed = (Kernel().snapshot for _kernel in range(3))
    changed[generated.KEY] = Generated({}, Readers(Mock(), Mock()), "[2]")
    assert digest(first) == digest(same) != digest(changed)
