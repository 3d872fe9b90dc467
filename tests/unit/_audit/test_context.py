# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an operator says about a node, or knows and the evidence does not show, as options of an audit."""

from __future__ import annotations

import ipaddress
from typing import Any

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._audit import audit_backend, catalogue
from ansible_collections.kubenode.datapath.plugins.module_utils._audit.context import Context
from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Invalid
from ansible_collections.kubenode.datapath.plugins.module_utils._pastes import pastes

# What an operator says about a node is read once, and a wrong value is an error that names it


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


# What an operator knows and the evidence does not show, as the option assume of an audit


PASTE = """\
node7:~# ip rule
0:	from all lookup local
32766:	from all lookup main
32767:	from all lookup default
node7:~# ip route
default via 10.9.1.1 dev eth0
10.244.1.5 dev azv01 scope link
"""


def audited(*checks: str, **assume: Any) -> dict[str, Any]:
    snapshot = pastes.read({"report.txt": PASTE}).snapshot
    audit = audit_backend.Audit(snapshot, catalogue.chosen([*checks]), does_prove=False, assume=assume)
    return audit_backend.result(audit, lambda *_words: pytest.fail("nothing is started"))


def open_checks(result: dict[str, Any]) -> set[str]:
    return {finding["id"] for finding in result["findings"] if finding["state"] == "cannot_tell"}


def test_what_is_shown_is_all_if_the_operator_says_so() -> None:
    assert "rules-by-the-hundred" in open_checks(audited())
    result = audited(rules="shown", nft="shown")
    assert not open_checks(result) & {"rules-by-the-hundred"} and "rules-by-the-hundred" in result["passed"]
    assert result["assumed"] == ["rules=shown", "nft=shown"]


def test_a_subset_that_no_output_shows_is_empty_then() -> None:
    assert open_checks(audited("probe-table-beside-cilium")) == {"probe-table-beside-cilium"}
    # Without a table for the probe, it does not matter that the BPF programs are open.
    assert not open_checks(audited("probe-table-beside-cilium", nft="shown"))
    missing = [entry["what"] for entry in audited("pmtu-filtered", nft="shown")["findings"]]
    assert not any("nftables" in what for what in missing)


def test_a_setting_is_one_of_the_node() -> None:
    assert audited("rp-all-overrides", **{"net.ipv4.conf.all.rp_filter": 1, "addresses": "shown"})["assumed"] == [
        "net.ipv4.conf.all.rp_filter=1",
        "addresses=shown",
    ]


@pytest.mark.parametrize(
    ("assume", "told"),
    [
        ({"nft": "none"}, "assume.nft must be one of shown; 'none' was given"),
        ({"set:x": "shown"}, "assume.set:x must be a fact that is open: "),
        ({"kernel.panic": 1}, "assume must be a setting of a network that decides what happens to a packet, or a fact, such as "),
        ({"net.ipv4.ip_forward": "yes"}, "assume.net.ipv4.ip_forward must be a number"),
    ],
)
def test_what_is_no_value_of_a_fact_is_named(assume: dict[str, Any], told: str) -> None:
    with pytest.raises(Invalid) as error:
        audited(**assume)
    assert str(error.value).startswith(told)


SAVED = """\
node7:~# iptables-save
*nat
:PREROUTING ACCEPT [0:0]
{}COMMIT
node7:~# ip6tables-save
*nat
:PREROUTING ACCEPT [0:0]
COMMIT
"""
TAKEN = "-A PREROUTING -p tcp -m tcp --dport 10250 -j DNAT --to-destination 10.0.0.9:80\n"
NFT = "node7:~# nft list ruleset\ntable inet t {{\n chain c {{\n  type nat hook prerouting priority 0;\n{}\n }}\n}}\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (SAVED.format(""), "passed unless"),
        (SAVED.format(TAKEN), "present"),
        (SAVED.format("") + NFT.format("  accept"), "passed"),
        (SAVED.format("") + NFT.format("  tcp dport 10250 dnat ip to 10.0.0.9:80"), "present"),
        ("", "cannot tell"),  # no rule of iptables is shown, beside which those of nft are few
    ],
)
def test_a_check_concludes_from_the_likely_world_and_says_what_it_guesses(text: str, said: str) -> None:
    snapshot = pastes.read({"report.txt": PASTE + text}).snapshot
    audit = audit_backend.Audit(snapshot, catalogue.chosen(["kubelet-port-taken"]), does_prove=False)
    result = audit_backend.result(audit, lambda *_words: pytest.fail("nothing is started"))
    states = [each["state"] for each in result["findings"]]
    told = {"passed": result["passed"], "passed unless": result["passed_unless"]}
    told |= {name: [state for state in states if state == name.replace(" ", "_")] for name in ("present", "cannot tell")}
    assert [name for name, entries in told.items() if entries] == [said]
    assert [each["ask"] for each in result["passed_unless"]] == ["nft list ruleset"] * (said == "passed unless")
