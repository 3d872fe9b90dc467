# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What each boot asks the metadata service: the question in normal form, the rules of an answer, and when to ask again."""

from __future__ import annotations

import struct
import typing as t

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._cloud import eni_layout
from ansible_collections.kubenode.datapath.plugins.module_utils._cloud.metadata import Gateway, Link, Nic, interface
from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Invalid
from ansible_collections.kubenode.datapath.plugins.module_utils._discovery import discovery
from ansible_collections.kubenode.datapath.plugins.module_utils._interfaces import eni_link
from ansible_collections.kubenode.datapath.plugins.module_utils._interfaces.eni_link import EniLink
from ansible_collections.kubenode.datapath.plugins.module_utils._listener.change_event import (
    DELLINK,
    HEADER,
    NEWLINK,
    Dependencies,
    EventFilter,
)
from ansible_collections.kubenode.datapath.plugins.module_utils._listener.schedule import (
    FIRST_QUERY,
    LAST_QUERY,
    LONGEST_QUERY,
    SETTLING,
    MetadataPoll,
)
from ansible_collections.kubenode.datapath.plugins.module_utils._netlink.attributes import pack
from ansible_collections.kubenode.datapath.plugins.module_utils._routing import policy
from ansible_collections.kubenode.datapath.plugins.module_utils._routing.policy import Policy, Query

TABLES = {"main": 254}
LEFT_OUT = {"manage": None, "mark": None, "priorities": None, "pod_interfaces": None, "interface_marks": None, "cloud": "auto"}
AWS: dict[str, t.Any] = {"layout": "aws_vpc_cni", "cloud": "aws"}
NICS = [
    Nic(f"02:00:00:00:00:0{number}", (f"10.0.{number}.10",), gateway=Gateway(f"10.0.{number}.1"), primary=number == 0,
        device_number=number)
    for number in range(3)
]  # fmt: skip
LINKS = [Link(f"eth{number}", f"02:00:00:00:00:0{number}", ifindex=number + 2) for number in range(3)]
NODE = [interface(nic, LINKS) for nic in NICS]


def question(**given: t.Any) -> discovery.Enis:
    return discovery.from_option({**LEFT_OUT, **given})


# The option


@pytest.mark.parametrize(
    ("given", "normal"),
    [
        ({"layout": "terway"}, {"layout": "terway", "cloud": "auto"}),
        ({"layout": "cilium", "cloud": "aws"}, {"layout": "cilium", "cloud": "aws"}),
        ({"layout": "terway", "manage": ["mark_rule"]}, {"layout": "terway", "cloud": "auto", "manage": ["mark_rule"]}),
        ({"layout": "terway", "manage": ["tables", "mark_rule"]}, {"layout": "terway", "cloud": "auto"}),
        ({"layout": "custom", "mark": "0x40"}, {"layout": "custom", "cloud": "auto", "mark": "0x40/0x40"}),
        (
            {"layout": "custom", "priorities": {"mark": "0x4b1", "from_pod": "1301"}},
            {"layout": "custom", "cloud": "auto", "priorities": {"from_pod": 1301, "mark": 1201}},
        ),
        (
            {"layout": "terway", "pod_interfaces": ["veth*"], "priorities": {}},
            {"layout": "terway", "cloud": "auto", "pod_interfaces": ["veth*"]},
        ),
    ],
)
def test_the_question_has_one_normal_form_which_is_its_own(given: dict[str, t.Any], normal: dict[str, t.Any]) -> None:
    assert question(**given) == normal == question(**normal)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"layout": "calico"}, "enis.layout must be one of aws_vpc_cni, cilium, terway, custom; 'calico' was given"),
        ({"layout": "terway", "mark": "0"}, "enis.mark must be MARK or MARK/MASK"),
        ({"layout": "custom", "mark": "green"}, "enis.mark must be MARK or MARK/MASK, numbers up to 0xffffffff"),
        ({"layout": "custom", "priorities": {"pod": 7}}, "enis.priorities.pod must be left out; known here are to_pod"),
        (
            {"layout": "custom", "priorities": {"mark": 9999}},
            "enis.priorities must be in the order to_pod, mark, from_pod",
        ),
        (
            {"layout": "cilium", "cloud": "alibaba"},
            "enis.cloud must be one of auto, aws: the layout cilium needs device numbers",
        ),
        ({"layout": "custom", "cloud": "gcp"}, "enis.cloud must be one of auto, azure, aws, alibaba; 'gcp' was given"),
        ({"layout": "custom", "pod_interfaces": ["a b"]}, r"enis.pod_interfaces[0] must be a link's name"),
    ],
)
def test_a_bad_question_is_named_with_what_is_allowed(given: dict[str, t.Any], told: str) -> None:
    with pytest.raises(Invalid) as error:
        question(**given)
    assert str(error.value).startswith(told)


# Rules and routes of an answer


def test_a_boot_and_a_run_record_the_same() -> None:
    """A run gets the rules from the filter, a boot computes them; the listener reads the record of either."""
    told = eni_layout.desired("aws_vpc_cni", NODE)
    found = discovery.rules_and_routes(AWS, NODE)
    run, boot = (
        policy.from_options(75, desired.rules, desired.routes, TABLES)._replace(query=Query("enis", AWS)).text()
        for desired in (told, found)
    )
    assert run == boot
    assert found.unfit == {}


def test_a_boot_asks_for_the_managed_part_only() -> None:
    """If tables are not managed, an ENI that has no number yet is no error."""
    found = discovery.rules_and_routes({**AWS, "manage": ["mark_rule"]}, [NODE[0], {**NODE[1], "device_number": 0}, NODE[2]])
    assert [rule["priority"] for rule in found.rules] == [1024]
    assert (found.routes, found.unfit, found.left_out) == ([], {}, {})


def test_each_boot_makes_the_rules_of_the_enis_marks() -> None:
    marks = [{"name": "eth1", "mark": "32"}]
    enis = question(layout="aws_vpc_cni", interface_marks=marks)
    assert enis["interface_marks"] == [{"name": "eth1", "mark": "0x20"}]
    found = discovery.rules_and_routes(enis, NODE)
    desired = eni_layout.desired("aws_vpc_cni", NODE, interface_marks=marks)
    assert found.rules == desired.rules != discovery.rules_and_routes(AWS, NODE).rules
    (rule,) = (one for one in found.rules if one.get("fwmark") == "0x20/0xa0")
    assert rule["table"] == 2
    alone = discovery.rules_and_routes({**enis, "manage": ["mark_rule"]}, NODE)
    assert (alone.rules, alone.routes) == ([one for one in desired.rules if "fwmark" in one], [])


def test_an_eni_that_is_not_described_in_full_does_not_keep_the_others() -> None:
    found = discovery.rules_and_routes(AWS, [NODE[0], {**NODE[1], "device_number": 0}, NODE[2]])
    assert (found.rules, found.routes) == discovery.rules_and_routes(AWS, [NODE[0], NODE[2]])[:2]
    (reason,) = found.unfit.values()
    assert reason.startswith("eth1: ") and "device_number must be given" in reason


@pytest.mark.parametrize("lie", [{"device_number": 1}, {"ipv4": NODE[1]["ipv4"]}], ids=["number", "address"])
def test_an_eni_that_contradicts_another_does_not_keep_the_others(lie: dict[str, t.Any]) -> None:
    """As an ENI on another network card, before the metadata names the card."""
    found = discovery.rules_and_routes(AWS, [*NODE[:2], {**NODE[2], **lie}])
    assert (found.rules, found.routes) == discovery.rules_and_routes(AWS, NODE[:2])[:2]
    (reason,) = found.unfit.values()
    assert "must be unique; " in reason
    policy.from_options(75, found.rules, found.routes, TABLES)


def test_of_two_enis_of_one_number_on_two_cards_the_first_has_the_table_at_a_run_and_at_boot() -> None:
    """Cilium numbers the ENIs of all cards in one range."""
    enis = [*NODE[:2], {**NODE[2], "device_number": 1, "network_card": 1}]
    told, found = eni_layout.desired("cilium", enis), discovery.rules_and_routes(question(layout="cilium"), enis)
    assert (found.rules, found.routes, found.left_out) == (told.rules, told.routes, told.left_out)
    assert found.unfit == {} and {route["dev"] for route in found.routes} == {"eth1"}
    ((name, reason),) = found.left_out.items()
    assert name == "eth2" and reason.startswith(
        "eth2 (network card 1) has no rules and routes: the layout gives it table 11, as eth1 (network card 0), which comes first"
    )
    assert [one["dev"] for one in told.addresses] == ["eth1", "eth2"]
    assert eni_layout.desired("aws_vpc_cni", enis).left_out == {}, "amazon-vpc-cni numbers them by card"


def test_without_a_primary_one_there_is_no_desired_state() -> None:
    with pytest.raises(Invalid):
        discovery.rules_and_routes(AWS, NODE[1:])


def test_the_file_holds_the_question_and_the_record_the_answer_as_well() -> None:
    rules = [{"priority": 700, "from": "10.0.1.10", "table": 2}]
    record = policy.from_options(75, rules, [], TABLES)._replace(query=Query("enis", AWS))
    for_boot = record.for_boot()
    assert for_boot == Policy(75, query=Query("enis", AWS), places=record.places)
    assert for_boot.text() == '{\n"protocol": 75,\n"enis": {"layout": "aws_vpc_cni", "cloud": "aws"}\n}\n'
    assert not for_boot.is_empty and not for_boot.is_known and record.is_known
    for one in (record, for_boot):
        assert policy.from_text(one.text(), TABLES).text() == one.text()
        assert policy.from_text(one.text(), TABLES, ()).text() == for_boot.text()
    plain = record._replace(query=None)
    assert plain.for_boot() == plain
    assert policy.from_text(plain.text(), TABLES, ()).text() == Policy(75).text()


# Network interfaces that a cloud may know

ETHER, LOOPBACK = 1, 772


def link(kind: int, number: int, name: str, of_kind: str = "", device: int = ETHER) -> bytes:
    info = {18: pack({1: of_kind.encode() + b"\0"})} if of_kind else {}
    body = struct.pack("=BxHiII", 0, device, number, 1, 0) + pack(
        {3: name.encode() + b"\0", 1: bytes([2, 0, 0, 0, 0, number]), **info}
    )
    return struct.pack("=IHHII", HEADER.size + len(body), kind, 0, 1, 0) + body


@pytest.mark.parametrize(
    ("message", "is_eni_link"),
    [
        (link(NEWLINK, 3, "eth1"), True),
        (link(NEWLINK, 3, "eth1", "veth"), True),
        (link(NEWLINK, 3, "eni1a2b", "veth"), False),
        (link(NEWLINK, 3, "lxc12", "netkit"), False),
        (link(NEWLINK, 3, "br0", "bridge"), False),
        (link(NEWLINK, 3, "lo", device=LOOPBACK), False),
    ],
)
def test_an_eni_link_is_a_link_that_a_cloud_may_know(message: bytes, is_eni_link: bool) -> None:
    watch = EventFilter(75, Dependencies(pods=["eni*", "vlan*"]))
    assert watch.concern(message) is None  # a new link alone removes no rule or route
    assert watch.eni_links == (frozenset([EniLink(3, "eth1", "02:00:00:00:00:03")]) if is_eni_link else frozenset())


def test_eni_links_are_counted_only_where_the_set_follows_from_them() -> None:
    watch = EventFilter(75, Dependencies())
    watch.concern(link(NEWLINK, 3, "eth1"))
    assert watch.eni_links == frozenset()


def test_an_eni_link_that_goes_or_gets_another_name_is_another_set() -> None:
    eth1 = (3, "eth1", "02:00:00:00:00:03")
    watch = EventFilter(75, Dependencies(eni_links=[eth1], pods=[]))
    assert watch.eni_links == {EniLink(*eth1)}
    watch.concern(link(NEWLINK, 3, "eth1"))
    assert watch.eni_links == {EniLink(*eth1)}
    watch.concern(link(NEWLINK, 3, "ens6"))
    assert watch.eni_links == {EniLink(3, "ens6", eth1[2])}
    watch.concern(link(DELLINK, 3, "ens6"))
    assert watch.eni_links == frozenset()


# When a boot asks

ETH0, ETH1 = EniLink(2, "eth0", "02:00:00:00:00:00"), EniLink(3, "eth1", "02:00:00:00:00:01")
ONE, BOTH = frozenset([ETH0]), frozenset([ETH0, ETH1])
SETTLED = MetadataPoll().after_query(ONE, 100.0, is_answered=True, is_complete=True)


def test_an_idle_node_sends_no_request() -> None:
    assert SETTLED.due is None
    assert SETTLED.with_links(ONE, 5000.0).due is None


def test_an_eni_link_that_comes_or_goes_is_asked_for_when_it_has_settled() -> None:
    for eni_links in (BOTH, frozenset()):
        changed = SETTLED.with_links(eni_links, 200.0)
        assert changed.due == 200.0 + SETTLING
        assert changed.with_links(eni_links, 200.3).due == 200.0 + SETTLING
        assert changed.after_query(eni_links, 201.0, is_answered=True, is_complete=True).due is None


def test_a_link_that_came_and_has_gone_again_is_not_asked_for() -> None:
    assert SETTLED.with_links(BOTH, 200.0).with_links(ONE, 200.1).due is None


def pauses(is_answered: bool, questions: int) -> list[float]:
    inquiry, now, found = SETTLED.with_links(BOTH, 200.0), 200.0, []
    for _number in range(questions):
        if inquiry.due is None:
            break
        found.append(inquiry.due - now)
        now = inquiry.due
        inquiry = inquiry.after_query(BOTH, now, is_answered, is_complete=False)
    return found


def test_an_eni_link_that_the_metadata_does_not_name_is_given_up() -> None:
    assert pauses(is_answered=True, questions=100) == [SETTLING, FIRST_QUERY, 2.0, 4.0, 8.0, 16.0, 32.0, LAST_QUERY]


def test_silence_is_never_given_up() -> None:
    found = pauses(is_answered=False, questions=100)
    assert len(found) == 100 and found[1:4] == [FIRST_QUERY, 2.0, 4.0] and found[-1] == LONGEST_QUERY


def test_another_eni_link_begins_anew() -> None:
    inquiry = SETTLED
    for _number in range(9):
        inquiry = inquiry.after_query(ONE, 300.0, is_answered=True, is_complete=False)
    assert inquiry.due is None
    assert inquiry.after_query(BOTH, 400.0, is_answered=True, is_complete=False).due == 400.0 + FIRST_QUERY


def test_an_eni_link_among_pods_links_is_none() -> None:
    found = {eni_link.IFLA_IFNAME: b"cali1\0", eni_link.IFLA_ADDRESS: bytes(6)}
    assert eni_link.of(ETHER, 9, found, discovery.pod_interfaces({"layout": "terway"})) is None
    assert eni_link.of(ETHER, 9, found, discovery.pod_interfaces({"layout": "terway", "pod_interfaces": ["veth*"]}))
