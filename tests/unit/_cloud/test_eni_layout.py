# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""ENIs in, rules and routes out, as each CNI numbers them; and errors about ENIs."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._cloud import eni_layout
from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Invalid
from ansible_collections.kubenode.datapath.plugins.module_utils._routing import known_programs, policy

Entry = dict[str, t.Any]

# As imds_info returns them on AWS.
PRIMARY: Entry = {
    "name": "eth0",
    "mac": "02:00:00:00:00:01",
    "ipv4": ["10.0.0.10"],
    "ipv6": [],
    "gateway": {"ipv4": "10.0.0.1", "ipv6": None},
    "subnets": ["10.0.0.0/24"],
    "primary": True,
    "master": None,
    "index": 2,
    "device_number": 0,
    "network_card": None,
}
SECOND: Entry = {
    **PRIMARY,
    "name": "eth1",
    "ipv4": ["10.0.1.10", "10.0.1.11", "10.0.1.12"],
    "gateway": {"ipv4": "10.0.1.1", "ipv6": None},
    "primary": False,
    "index": 3,
    "device_number": 1,
}
DUAL_PRIMARY = {**PRIMARY, "ipv6": ["fd00::10"], "gateway": {"ipv4": "10.0.0.1", "ipv6": "fd00::1"}}
DUAL_SECOND = {**SECOND, "ipv6": ["fd00:1::10"], "gateway": {"ipv4": "10.0.1.1", "ipv6": "fd00:1::1"}}
ABSENT = {**SECOND, "name": None, "index": None, "device_number": 2}
GIVEN_PRIMARY: Entry = {"name": "eth0", "primary": True}
GIVEN: Entry = {"name": "eth1", "table": 1101, "gateway": {"ipv4": "10.0.1.1"}}

MARKED_109 = "ip rule 109: from all fwmark 0x80/0x80 lookup main"
MARKED_600 = "ip rule 600: from all fwmark 0x10/0x10 lookup 100"
MARKED_1024 = "ip rule 1024: from all fwmark 0x80/0x80 lookup main"
MARKED_1200 = "ip rule 1200: from all fwmark 0x80/0x80 lookup main"


def aws_table(table: int) -> list[str]:
    return [
        f"ip route 10.0.1.1 dev eth1 table {table} scope link",
        f"ip route default via 10.0.1.1 dev eth1 table {table}",
    ]


# Expected are lines of `ip rule` and `ip route`, as the sources of the CNIs make them.
CASES: dict[str, tuple[str, list[Entry], list[str], list[str]]] = {
    "aws: one ENI": ("aws_vpc_cni", [PRIMARY], [MARKED_1024], []),
    "aws: the device number and one": (
        "aws_vpc_cni",
        [PRIMARY, SECOND],
        [MARKED_1024, "ip rule 32765: from 10.0.1.10 lookup 2"],
        aws_table(2),
    ),
    "aws: another network card": (
        "aws_vpc_cni",
        [PRIMARY, {**SECOND, "network_card": 1, "device_number": 0}],
        [MARKED_1024, "ip rule 32765: from 10.0.1.10 lookup 10100"],
        aws_table(10100),
    ),
    "aws: an ENI of another network card that is not its first": (
        "aws_vpc_cni",
        [PRIMARY, {**SECOND, "network_card": 2, "device_number": 3}],
        [MARKED_1024, "ip rule 32765: from 10.0.1.10 lookup 10203"],
        aws_table(10203),
    ),
    "aws: one that is not plugged in": ("aws_vpc_cni", [PRIMARY, ABSENT], [MARKED_1024], []),
    "aws: both families, of which no router announces itself in the metadata": (
        "aws_vpc_cni",
        [{**DUAL_PRIMARY, "gateway": PRIMARY["gateway"]}, {**DUAL_SECOND, "gateway": SECOND["gateway"]}],
        [
            MARKED_1024,
            MARKED_1024.replace("ip rule", "ip -6 rule"),
            "ip rule 32765: from 10.0.1.10 lookup 2",
            "ip -6 rule 32765: from fd00:1::10 lookup 2",
        ],
        [
            *aws_table(2),
            "ip -6 route fe80:ec2::1 dev eth1 table 2 metric 1024",
            "ip -6 route default via fe80:ec2::1 dev eth1 table 2 metric 1024",
        ],
    ),
    "cilium: ten and the interface's number, no rule for its address": (
        "cilium",
        [PRIMARY, SECOND],
        [MARKED_109],
        aws_table(11),
    ),
    "terway: a thousand and the link's index": (
        "terway",
        [PRIMARY, SECOND],
        [MARKED_600],
        [
            "ip route default via 10.0.0.1 dev eth0 onlink table 100",
            "ip route default via 10.0.1.1 dev eth1 onlink table 1003",
        ],
    ),
    "terway: both families": (
        "terway",
        [DUAL_PRIMARY, DUAL_SECOND],
        [MARKED_600, MARKED_600.replace("ip rule", "ip -6 rule")],
        [
            "ip route default via 10.0.0.1 dev eth0 onlink table 100",
            "ip -6 route default via fd00::1 dev eth0 onlink table 100 metric 1024",
            "ip route default via 10.0.1.1 dev eth1 onlink table 1003",
            "ip -6 route default via fd00:1::1 dev eth1 onlink table 1003 metric 1024",
        ],
    ),
    "terway: IPv6 without a known router": (
        "terway",
        [{**DUAL_PRIMARY, "gateway": PRIMARY["gateway"]}, {**SECOND, "index": None}],
        [MARKED_600],
        ["ip route default via 10.0.0.1 dev eth0 onlink table 100"],
    ),
    "custom: pods": (
        "custom",
        [GIVEN_PRIMARY, {**GIVEN, "pods": ["10.0.1.11", "10.0.1.16/28"]}],
        [
            MARKED_1200,
            "ip rule 1100: from all to 10.0.1.11 lookup main",
            "ip rule 1300: from 10.0.1.11 lookup 1101",
            "ip rule 1100: from all to 10.0.1.16/28 lookup main",
            "ip rule 1300: from 10.0.1.16/28 lookup 1101",
        ],
        ["ip route default via 10.0.1.1 dev eth1 onlink table 1101"],
    ),
    "custom: exceptions of the rules by source, where the subnets are known": (
        "custom",
        [
            {**PRIMARY, "subnets": ["10.0.0.0/24", "fd00::/64"]},
            {**GIVEN, "pods": ["10.0.1.11"], "ipv4": ["10.0.1.10"], "subnets": ["10.0.1.0/24"]},
        ],
        [
            MARKED_1200,
            "ip rule 1100: from all to 10.0.1.11 lookup main",
            "ip rule 1297: from 10.0.1.11 to 10.0.0.0/24 lookup main suppress_prefixlength 24",
            "ip rule 1298: from 10.0.1.11 to 10.0.0.0/24 lookup 1101",
            "ip rule 1299: from 10.0.1.11 lookup main suppress_prefixlength 0",
            "ip rule 1300: from 10.0.1.11 lookup 1101",
            "ip rule 1397: from 10.0.1.10 to 10.0.0.0/24 lookup main suppress_prefixlength 24",
            "ip rule 1398: from 10.0.1.10 to 10.0.0.0/24 lookup 1101",
            "ip rule 1399: from 10.0.1.10 lookup main suppress_prefixlength 0",
            "ip rule 1400: from 10.0.1.10 lookup 1101",
        ],
        ["ip route default via 10.0.1.1 dev eth1 onlink table 1101"],
    ),
    "custom: no exceptions while the subnets of an ENI are not known": (
        "custom",
        [
            PRIMARY,
            {**GIVEN, "pods": ["10.0.1.11"]},
            {**GIVEN, "name": "eth2", "table": 1102, "gateway": {"ipv4": "10.0.2.1"}, "ipv4": ["10.0.2.9"]},
        ],
        [
            MARKED_1200,
            "ip rule 1100: from all to 10.0.1.11 lookup main",
            "ip rule 1300: from 10.0.1.11 lookup 1101",
            "ip rule 1397: from 10.0.2.9 to 10.0.0.0/24 lookup main suppress_prefixlength 24",
            "ip rule 1398: from 10.0.2.9 to 10.0.0.0/24 lookup 1102",
            "ip rule 1399: from 10.0.2.9 lookup main suppress_prefixlength 0",
            "ip rule 1400: from 10.0.2.9 lookup 1102",
        ],
        [
            "ip route default via 10.0.1.1 dev eth1 onlink table 1101",
            "ip route default via 10.0.2.1 dev eth2 onlink table 1102",
        ],
    ),
    "custom: IPv6 pods, an address, text for numbers": (
        "custom",
        [
            {**GIVEN_PRIMARY, "primary": "true"},
            {"name": "eth1", "table": "1101", "gateway": {"ipv6": "fe80::1"}, "pods": ["fd00:1::11"], "ipv6": ["fd00:1::10"]},
        ],
        [
            MARKED_1200,
            "ip -6 rule 1100: from all to fd00:1::11 lookup main",
            "ip -6 rule 1300: from fd00:1::11 lookup 1101",
            "ip -6 rule 1400: from fd00:1::10 lookup 1101",
        ],
        ["ip -6 route default via fe80::1 dev eth1 onlink table 1101 metric 1024"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("layout", "enis", "rules", "routes"), CASES.values(), ids=CASES.keys())
def test_each_layout_is_that_of_its_cni(layout: str, enis: list[Entry], rules: list[str], routes: list[str]) -> None:
    desired = eni_layout.desired(layout, enis)
    wanted = policy.from_options(75, desired.rules, desired.routes, {"main": 254})
    assert [str(rule) for rule in wanted.rules or ()] == rules
    assert [str(route) for route in wanted.routes or ()] == routes


@pytest.mark.parametrize(("layout", "enis"), [case[:2] for case in CASES.values()], ids=CASES.keys())
def test_the_two_parts_of_a_layout_are_all_of_it_and_share_nothing(layout: str, enis: list[Entry]) -> None:
    whole = eni_layout.desired(layout, enis)
    marked, tables = (eni_layout.desired(layout, enis, parts=[part]) for part in ("mark_rule", "tables"))
    assert [*marked.rules, *tables.rules] == whole.rules and [*marked.routes, *tables.routes] == whole.routes
    assert all("fwmark" in rule for rule in marked.rules) and not any("fwmark" in rule for rule in tables.rules)
    assert whole._replace(rules=[], routes=[]) == marked._replace(rules=[], routes=[])


@pytest.mark.parametrize("case", [case for name, case in CASES.items() if "card" not in name])
def test_no_layout_is_in_the_way_of_a_known_cni(case: tuple[str, list[Entry], list[str], list[str]]) -> None:
    desired = eni_layout.desired(*case[:2])
    wanted = policy.from_options(75, desired.rules, desired.routes, {"main": 254})
    assert known_programs.warnings(wanted.rules or (), wanted.routes or ()) == []


def test_exceptions_are_missed_where_they_belong_and_subnets_are_unknown() -> None:
    second = {**GIVEN, "ipv4": ["10.0.1.10"]}
    assert eni_layout.lacks_exceptions("custom", [GIVEN_PRIMARY, second])
    assert not eni_layout.lacks_exceptions("custom", [PRIMARY, second])
    assert not eni_layout.lacks_exceptions("custom", [GIVEN_PRIMARY, GIVEN]), "no rule by source"
    assert not eni_layout.lacks_exceptions("terway", [GIVEN_PRIMARY, second]), "the CNI's"


def test_custom_takes_another_mark_and_other_priorities() -> None:
    enis = [GIVEN_PRIMARY, {**GIVEN, "pods": ["10.0.1.11"]}]
    desired = eni_layout.desired("custom", enis, "0x100/0x300", {"to_pod": 700, "mark": "701", "from_pod": 702})
    assert [rule["priority"] for rule in desired.rules] == [701, 700, 702]
    assert (desired.rules[0]["fwmark"], desired.mark, desired.mask) == ("0x100/0x300", "0x100", "0x300")
    assert (desired.primary_interface, desired.pod_interfaces, desired.marks_itself) == ("eth0", [], False)


@pytest.mark.parametrize(
    ("mark", "bits", "mask"), [("0x100", "0x100", "0x100"), (1, "1", "1"), ("1/1", "1", "1"), ("4/0xf", "4", "0xf")]
)
@pytest.mark.parametrize("layout", ["custom", "aws_vpc_cni"])
def test_a_mark_is_its_own_mask_unless_one_is_given(layout: str, mark: object, bits: str, mask: str) -> None:
    desired = eni_layout.desired(layout, [GIVEN_PRIMARY], mark)
    assert (desired.rules[0]["fwmark"], desired.mark, desired.mask) == (f"{bits}/{mask}", bits, mask)
    assert eni_layout.adapted(layout, mark, None).bits == (int(bits, 0), int(mask, 0))


WAY: Entry = {"name": "eth1", "mark": "0x20"}
ABSENT_WAY: Entry = {"name": "eth2", "mark": 0x40}


@pytest.mark.parametrize(
    ("layout", "enis", "rules"),
    [
        ("aws_vpc_cni", [PRIMARY, SECOND], [(1024, "ipv4", 2)]),
        ("aws_vpc_cni", [DUAL_PRIMARY, DUAL_SECOND], [(1024, "ipv4", 2), (1024, "ipv6", 2)]),
        ("cilium", [PRIMARY, SECOND], [(109, "ipv4", 11)]),
        ("terway", [PRIMARY, SECOND], [(600, "ipv4", 1003)]),
        ("terway", [PRIMARY, {**SECOND, "index": None}], []),
        ("custom", [GIVEN_PRIMARY, {**GIVEN, "ipv4": ["10.0.1.10"]}], [(1200, "ipv4", 1101)]),
        ("aws_vpc_cni", [PRIMARY], []),
        ("aws_vpc_cni", [PRIMARY, ABSENT], []),
    ],
)
def test_an_enis_mark_is_looked_up_in_its_table(layout: str, enis: list[Entry], rules: list[tuple[int, str, int]]) -> None:
    plain, desired = (eni_layout.desired(layout, enis, "0x80", interface_marks=marks) for marks in (None, [WAY, ABSENT_WAY]))
    added = [one for one in desired.rules if one not in plain.rules]
    assert added == [{"priority": a, "fwmark": "0x20/0xe0", "table": c, "family": b} for a, b, c in rules]
    assert [one for one in desired.rules if one not in added] == plain.rules and desired.routes == plain.routes
    assert (desired.mark, desired.mask, plain.mask, plain.interfaces) == ("0x80", "0xe0", "0x80", [])
    assert desired.interfaces == [WAY, {"name": "eth2", "mark": "0x40"}]


def test_a_mark_gives_no_eni_the_table_of_another_whatever_part_is_managed() -> None:
    """Cilium numbers the ENIs of each network card alike: eth1 has table 11, and eth2 none."""
    second_card = {**SECOND, "name": "eth2", "mac": "02:00:00:00:00:03", "ipv4": ["10.0.2.10"], "network_card": 1}
    marks = [{"name": "eth2", "mark": "0x20"}]
    for parts in (eni_layout.PARTS, ["mark_rule"]):
        desired = eni_layout.desired("cilium", [PRIMARY, SECOND, second_card], parts=parts, interface_marks=marks)
        assert [rule for rule in desired.rules if rule.get("fwmark", "").startswith("0x20")] == []
        assert [*desired.left_out] == ["eth2"]


@pytest.mark.parametrize(
    ("marks", "told"),
    [
        ("eth1", "interface_marks must be a list of dictionaries with name and mark; 'eth1' was"),
        (["eth1"], "interface_marks[0] must be a dictionary with name and mark; 'eth1' was"),
        ([{"name": "eth1"}], "interface_marks[0] must be a dictionary with name and mark; {"),
        ([{**WAY, "table": 2}], "interface_marks[0] must be a dictionary with name and mark; {"),
        ([{**WAY, "name": "eth*"}], "interface_marks[0].name must be a link's name"),
        (
            [{**WAY, "name": "eth0"}],
            "interface_marks must be of secondary ENIs; the option mark is that of the primary ENI; 'eth0'",
        ),
        ([WAY, {**WAY, "mark": 1}], "interface_marks[1].name must be another ENI than that of another entry; 'eth1' was"),
        ([{**WAY, "mark": "0"}], "interface_marks[0].mark must be a number from 1 to 4294967295; '0' was"),
        ([WAY, {**WAY, "name": "eth2"}], "interface_marks[1].mark must be another mark than that of another entry; '0x20' was"),
        (
            [{**WAY, "mark": "0xa0"}],
            "interface_marks[0].mark must be a mark that the rule of the primary ENI, 0x80/0x80, does not",
        ),
    ],
)
def test_marks_of_enis_that_cannot_be_told_apart_are_named(marks: t.Any, told: str) -> None:
    with pytest.raises(Invalid) as error:
        eni_layout.desired("aws_vpc_cni", [PRIMARY, SECOND], interface_marks=marks)
    assert str(error.value).startswith(told)


def test_secondary_enis_that_are_plugged_in_have_their_first_ipv4_address_to_be_given() -> None:
    third = {**SECOND, "name": "eth2", "ipv4": [], "ipv6": ["fd00:2::10"]}
    for layout in ("aws_vpc_cni", "cilium", "terway"):
        assert eni_layout.desired(layout, [DUAL_PRIMARY, DUAL_SECOND, ABSENT, third]).addresses == [
            {"dev": "eth1", "address": "10.0.1.10"}
        ]


def test_who_marks_by_default_is_told() -> None:
    marks = {name: eni_layout.desired(name, [PRIMARY]).marks_itself for name in eni_layout.LAYOUTS}
    assert marks == {"aws_vpc_cni": True, "cilium": True, "terway": False, "custom": False}


BAD: list[tuple[str, t.Any, dict[str, t.Any], str]] = [
    ("calico", [PRIMARY], {}, "layout must be one of aws_vpc_cni, cilium, terway, custom; 'calico'"),
    ("custom", None, {}, "enis must be a list"),
    ("custom", [], {}, r"enis must be a list of at least one ENI, .*; \[\] was given$"),
    ("custom", ["eth0"], {}, r"enis\[0\] must be a dictionary with name, mac, .*; 'eth0' was given$"),
    ("custom", [SECOND], {}, r"enis\[\]\.primary must be true for exactly one ENI.*\[\] was given"),
    ("custom", [PRIMARY, PRIMARY], {}, r"enis\[\]\.primary must .*\['eth0', 'eth0'\]"),
    ("custom", [{**PRIMARY, "name": None}], {}, r"enis\[0\]\.name must be the link"),
    ("custom", [{**PRIMARY, "primary": "maybe"}], {}, r"enis\[0\]\.primary must be true or false; 'maybe' was given$"),
    ("custom", [PRIMARY, {**GIVEN, "pods": ["x"]}], {}, r"enis\[1\]\.pods\[0\] must be an IP address, a prefix"),
    ("custom", [{**PRIMARY, "name": "a/b"}], {}, r"enis\[0\]\.name must be a link's name"),
    (
        "custom", [{**PRIMARY, "nmae": "eth0"}], {},
        r"enis\[0\]\.nmae must be left out; known here are name, mac, ipv4, ipv6, gateway, .*; 'eth0' was given$",
    ),
    ("custom", [{**PRIMARY, "master": "br0"}], {}, r"enis\[0\]\.master must be left out: .*; 'br0' was given$"),
    (
        "custom", [{**PRIMARY, "gateway": "10.0.0.1"}], {},
        r"enis\[0\]\.gateway must be a dictionary with ipv4 and ipv6; '10.0.0.1' was given$",
    ),
    (
        "custom", [{**PRIMARY, "gateway": {"ipv4": "fd00::1"}}], {},
        r"enis\[0\]\.gateway\.ipv4 must be an IPv4 address; 'fd00::1' was given$",
    ),
    ("custom", [{**PRIMARY, "ipv4": "10.0.0.10"}], {}, r"enis\[0\]\.ipv4 must be a list of addresses; '10.0.0.10' was given$"),
    ("custom", [{**PRIMARY, "ipv4": ["10.0.0.256"]}], {}, r"enis\[0\]\.ipv4 must be an IP address; '10.0.0.256' was given$"),
    ("custom", [{**PRIMARY, "index": 0}], {}, r"enis\[0\]\.index must be a number from 1"),
    ("custom", [PRIMARY, {**SECOND, "index": None}], {}, r"enis\[1\]\.table must be given"),
    ("custom", [PRIMARY, {**GIVEN, "pods": "10.0.1.11"}], {}, r"enis\[1\]\.pods must be a list; '10.0.1.11' was given$"),
    ("custom", [PRIMARY, {**GIVEN, "pods": ["all"]}], {}, r"enis\[1\]\.pods\[0\] must be an IP address, .*; 'all' was given$"),
    (
        "custom", [{**PRIMARY, "pods": ["10.0.0.11"]}], {},
        r"enis\[0\]\.pods must be left out: table main .*; \['10.0.0.11'\] was given$",
    ),
    ("custom", [PRIMARY, {**GIVEN, "pods": ["fd00::11"]}], {}, r"enis\[1\]\.gateway\.ipv6 must be given"),
    ("custom", [PRIMARY, {"name": "eth1", "table": 9, "ipv4": ["10.0.1.9"]}], {}, r"enis\[1\]\.gateway\.ipv4 must be given"),
    ("custom", [PRIMARY], {"mark": "0x100/0x80"}, "mark must be MARK or MARK/MASK, .* within the mask; '0x100/0x80' was given$"),
    ("custom", [PRIMARY], {"mark": "0"}, "mark must be MARK or MARK/MASK"),
    (
        "custom", [PRIMARY], {"priorities": "low"},
        "priorities must be a dictionary with to_pod, mark, from_pod, from_address; 'low' was given$",
    ),
    (
        "custom", [PRIMARY], {"priorities": {"pod": 7}},
        r"priorities\.pod must be left out; known here are to_pod, mark, from_pod, from_address; 7 was given$",
    ),
    (
        "custom", [PRIMARY, {**GIVEN, "pods": ["10.0.1.11"]}], {"priorities": {"mark": 1297}},
        r"priorities must be with mark below from_pod - 3, as .*; {'mark': 1297, 'from_pod': 1300} was given$",
    ),
    ("custom", [PRIMARY], {"priorities": {"from_pod": 3}}, r"priorities\.from_pod must be a number from 4 to 32765; 3"),
    ("custom", [{**PRIMARY, "subnets": ["10.0.0.1/24"]}], {}, r"enis\[0\]\.subnets\[0\] must be a prefix without host bits"),
    ("custom", [PRIMARY], {"priorities": {"mark": 0}}, r"priorities\.mark must be a number from 1 to 32765; 0"),
    *(
        (
            "custom", [PRIMARY], {"priorities": {"mark": mark}},
            "priorities must be in the order to_pod, mark, from_pod, as the first rule that matches decides;"
            rf" {{'to_pod': 1100, 'mark': {mark}, 'from_pod': 1300}} was given$",
        )
        for mark in (1100, 1300)
    ),
    ("cilium", [PRIMARY], {"mark": "0x100/0x80"}, "mark must be MARK or MARK/MASK"),
    ("terway", [PRIMARY], {"priorities": {"mark": 7}}, "priorities must be left out"),
    ("aws_vpc_cni", [PRIMARY, {**SECOND, "gateway": {}}], {}, r"enis\[1\]\.gateway\.ipv4 must be given"),
    ("terway", [{**PRIMARY, "gateway": {}}], {}, r"enis\[0\]\.gateway\.ipv4 must be given"),
    ("aws_vpc_cni", [PRIMARY, {**SECOND, "pods": ["10.0.1.11"]}], {}, r"enis\[1\]\.pods must be left out: aws_vpc_cni"),
    ("aws_vpc_cni", [PRIMARY, {**SECOND, "device_number": 0}], {}, r"enis\[1\]\.device_number must be given.*; 0 was"),
    ("cilium", [PRIMARY, {**SECOND, "device_number": None}], {}, r"enis\[1\]\.device_number must be given.*; None was"),
]  # fmt: skip


@pytest.mark.parametrize(("layout", "enis", "options", "told"), BAD)
def test_bad_input_is_named_with_what_is_allowed(layout: str, enis: t.Any, options: dict[str, t.Any], told: str) -> None:
    with pytest.raises(Invalid, match=f"^{told}"):
        eni_layout.desired(layout, enis, **options)
