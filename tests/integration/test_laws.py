# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The laws that each module keeps, on the nodes of faults.cases. What a module alone does is tested in its room.

Each run is watched as in ``make faults``, and foreign objects survive it with their handles and counters. Runs that are killed
or that fail are in faults.test_faults.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from functools import partial
from typing import Any

import pytest
from sampling import sampled

from faults import runner
from faults.cases import ABSENT, CASES, Case, Options
from faults.points import Point
from lab import Lab, snapshot
from lab.node import NamespaceNode

# Foreign objects beside those of the module: names and addresses like its own, in other families, tables and protocols.
NFT = """
table ip6 kube-proxy {
  comment "rules for kube-proxy"
  set cluster-ips { type ipv6_addr; elements = { fd00::1, fd00::2 }; }
  map service-ips { type ipv6_addr . inet_proto . inet_service : verdict; elements = { fd00::1 . tcp . 80 : goto service }; }
  counter seen { packets 3 bytes 180 }
  chain service { meta l4proto tcp dnat to [2001:db8:1::11]:8080; }
  chain nat-prerouting { type nat hook prerouting priority dstnat; ip6 daddr . meta l4proto . th dport vmap @service-ips; }
}
table ip aws-cni {
  chain snat-mark { ct mark set ct mark | 0x80; }
  chain nat-prerouting {
    type nat hook prerouting priority -90; fib daddr type local return; iifname "eni*" jump snat-mark
    meta mark set ct mark & 0x80
  }
}
table ip azureSLBProbe {
  chain prerouting { type filter hook prerouting priority raw; iifname "x" counter packets 5 bytes 300 accept; }
  chain postrouting { type filter hook postrouting priority raw; }
}
table ip6 azureSLBProbe2 { chain prerouting { type filter hook prerouting priority raw; iifname "x" counter; }; }
table inet azureSLBProbe { flags dormant; }
table ip kubenodeReturnPath {
  chain prerouting { type filter hook prerouting priority mangle; iifname "x" counter packets 5 bytes 300; }
}
table inet kubenodeReturnPath2 { flags dormant; }
"""
TABLES = [line.split()[1:3] for line in NFT.splitlines() if line.startswith("table")]
# ``realms`` is an attribute that the collection cannot read: the rule and the route have its protocol, and are foreign.
OTHERS = """
iptables-nft -t mangle -A PREROUTING -i eth0 -m addrtype --dst-type LOCAL --limit-iface-in -j CONNMARK --set-mark 0x80/0x80
iptables-nft -A INPUT -m comment --comment mine -j ACCEPT
ip6tables-nft -t mangle -A FORWARD -p tcp --dport 1 -j MARK --set-mark 7
ip rule add priority 800 from 10.0.1.5 lookup 1003 realms 7 protocol 75
ip rule add priority 701 from 10.99.0.5 lookup 1003 protocol kernel
ip -6 rule add priority 690 from fd99::5 lookup 1003 protocol bird
ip route add 10.77.0.0/16 dev eth0 table 1003 realm 7 proto 75
ip route add 10.78.0.0/16 dev eth0 table 1003 proto static
ip -6 route add fd78::/64 dev eth0 table 1003 proto kernel
"""
LIST = "\n".join(
    [
        *(f"nft -a list table {family} {name}" for family, name in TABLES),
        *(f"{program}-save -t mangle | grep -E '^-|^\\*'" for program in ("iptables-nft", "ip6tables-nft")),
        "iptables-nft-save -t filter | grep mine",
        "ip rule | grep -E 'realms 7|10.99.0.5'; ip -6 rule | grep fd99::5",
        "ip route show table 1003 | grep -E '10.7[78]'; ip -6 route show table 1003 | grep fd78",
    ]
)

# What a converged run starts, in check mode as well: the programs that read what netlink does not show.
READERS: dict[str, list[str]] = {
    "nftables_connmark": ["/usr/sbin/nft -j list table inet kubenodeReturnPath"],
    "nftables_probe_snat": ["/usr/sbin/nft -j list table ip6 azureSLBProbe"],
    "profile": ["/usr/sbin/nft -j list table inet kubenodeReturnPath"],
    "ebtables_cleanup": [
        *("/usr/sbin/iptables-nft-save -t mangle", "/usr/sbin/iptables-nft-save -t filter", "/usr/sbin/iptables-nft-save -t nat"),
        *("/usr/sbin/ip6tables-nft-save -t mangle", "/usr/sbin/ebtables-nft-save -c"),
    ],
}
OWN_TMP = ("mkdir", "/tmp")  # before the order of a boot is asked in a mount namespace


class Subject:
    """A module on a node of its case."""

    def __init__(self, case: Case, stage: runner.Stage) -> None:
        self.case = case
        self._site = runner.Site(dataclasses.replace(case, prepare=self._prepare), stage)
        self.clean = self.state()
        self.started: list[str] = []  # the programs of the last run, with the first words of their command lines
        self._foreign = self._listed()

    def _prepare(self, lab: Lab, node: NamespaceNode) -> None:
        self.case.prepare(lab, node)
        self.node = node
        node.run_from_host(["nft", "-f", "-"], NFT)
        node.run_from_host(["sh", "-e", "-c", OTHERS])

    def _listed(self) -> list[str]:
        return self.node.run_from_host(["sh", "-c", LIST]).splitlines()

    def close(self) -> None:
        self._site.close()

    def state(self) -> runner.State:
        return self._site.state()

    def alter(self, change: Callable[[], object]) -> None:
        change()
        self._site.forget()

    def shell(self, script: str) -> None:
        self.alter(partial(self.node.run, ["sh", "-e", "-c", script]))

    def attempt(self, options: Options, check: bool = False) -> tuple[dict[str, Any], list[Point]]:
        """A run's result, failed or not, and the points at which it changes something."""
        outcome = self._site.run({**options, "_ansible_check_mode": check})
        assert outcome.result is not None and not outcome.is_hung and not outcome.left, outcome
        assert self._listed() == self._foreign
        self.started = [point.what for point in outcome.points if not point.is_change]
        return outcome.result, [point for point in outcome.points if point.is_change and point[:2] != OWN_TMP]

    def run(self, options: Options, check: bool = False) -> dict[str, Any]:
        result, points = self.attempt(options, check)
        assert not result.get("failed"), result["msg"]
        assert not points or result["changed"] and not check, points
        return result

    def four(self, options: Options, goal: runner.State | None = None) -> dict[str, Any]:
        """Check, run, check again, run again: the run changes what check mode predicts, and a further run changes nothing."""
        before = self.state()
        predicted = self.run(options, check=True)
        assert predicted["changed"] and predicted["diff"]
        self.expect(before)
        assert self.run(options) == predicted
        after = self.state()
        assert after != before
        for check in (True, False):
            again = self.run(options, check)
            assert (again["changed"], again["diff"]) == (False, [])
            readers = READERS.get(self.case.module, [])
            assert self.started == [program for program in readers if program in self.started], "each once, and no other"
            self.expect(after)
        if goal is not None:
            self.expect(goal)
        return predicted

    def mend(self, options: Options, goal: runner.State) -> None:
        """A run that check mode predicts, and that restores the state."""
        predicted = self.run(options, check=True)
        assert predicted["changed"] and self.run(options) == predicted
        self.expect(goal)

    def refused(self, options: Options) -> str:
        """The error, the same in check mode; nothing has changed."""
        before = self.state()
        (predicted, checked), (result, points) = (self.attempt(options, check) for check in (True, False))
        assert result.get("failed") and predicted.get("failed") and not checked, (predicted, result)
        assert predicted["msg"] == result["msg"]
        self.expect(before)
        return str(result["msg"])

    def expect(self, state: runner.State) -> None:
        here = self.state()
        assert here == state, "; ".join(snapshot.differences(dict(state), dict(here)))

    def files(self) -> dict[str, str]:
        """The files and links that a next boot reads and that the module has made."""
        made = {path: kind for path, kind in self.state()["files"].items() if self.clean["files"].get(path) != kind}
        configuration = {path: kind for path, kind in made.items() if path.startswith("/etc/") and kind[0] in "-l"}
        return {
            path: kind for path, kind in configuration.items() if not path.endswith("/.kubenode")
        }  # the mark of a folder of its own


@pytest.fixture(scope="module")
def stage() -> Iterator[runner.Stage]:
    with closing(runner.Stage()) as running:
        yield running


@pytest.fixture
def subject(request: pytest.FixtureRequest, stage: runner.Stage) -> Iterator[Subject]:
    with closing(Subject(request.param, stage)) as running:
        yield running


def case_name(case: Case) -> str:
    return f"{case.module}{case.where}"


def of(cases: Mapping[str, Any]) -> Any:
    """The tests of the cases of these modules, with the entries of each."""
    chosen = [(case, cases[case_name(case)]) for case in WRITERS if case_name(case) in cases]
    ids = [case_name(case) for case, _entries in chosen]
    return pytest.mark.parametrize(("subject", "entries"), chosen, indirect=["subject"], ids=ids)


def each(cases: list[Case]) -> Any:
    return pytest.mark.parametrize("subject", cases, indirect=True, ids=case_name)


_CONNMARK = next(case for case in CASES if case.module == "nftables_connmark")
WRITERS = [
    *(case for case in CASES if not case.is_reader),
    dataclasses.replace(_CONNMARK, options={**_CONNMARK.options, "strict": True}, changes={}, where=" strict"),
]
REVERSIBLE = [case for case in WRITERS if case.absent is not None]
# There, absent has AgentBaker's unit load its table again, which nft then lists behind the others.
AKS = next(case.where for case in WRITERS if "AKS" in case.where)
PLANES = [case for case in REVERSIBLE if "immediate" in case.changes or case.where == " strict"]


@each([case for case in CASES if case.is_reader])
def test_a_module_that_reads_changes_nothing(subject: Subject) -> None:
    for check in (True, False):
        assert not subject.run(subject.case.options, check)["changed"]
    subject.expect(subject.clean)


@each([case for case in WRITERS if case.where != AKS])
def test_a_change_is_what_check_mode_predicts_and_absent_restores_the_node(subject: Subject) -> None:
    case = subject.case
    subject.four(case.options)
    assert subject.started == READERS.get(case.module, [])
    if case.absent is not None:
        subject.four(case.absent, goal=subject.clean)
        assert not subject.run(case.absent)["changed"]


# Without a restart, a node differs in nothing that stays. `make test` takes every other change of a case.
@pytest.mark.parametrize(
    ("subject", "change"),
    sampled(
        [(case, change) for case in REVERSIBLE if case.where != AKS for change in case.changes if change != "restart"],
        lambda each: each[1] in [*each[0].changes][::2],
    ),
    indirect=["subject"],
    ids=lambda value: value if isinstance(value, str) else case_name(value),
)
def test_another_option_is_what_check_mode_predicts_and_absent_needs_none(subject: Subject, change: str) -> None:
    before, after = subject.case.changes[change]
    assert subject.case.absent is not None
    subject.run({**subject.case.options, **before})
    subject.four({**subject.case.options, **after})
    subject.mend(subject.case.absent, subject.clean)


@each(PLANES)
def test_each_plane_comes_and_goes_alone(subject: Subject) -> None:
    clean = subject.clean
    for now, later in ((True, False), (False, True)):
        planes = {"immediate": now, "permanent": later}
        result = subject.four({**subject.case.options, **planes})
        assert len(result["diff"]) == 1
        after = subject.state()
        assert {**after, "files": 0} == {**clean, "files": 0} if later else {**after, "files": 0} != {**clean, "files": 0}
        assert bool(subject.files()) == later
        subject.four({**ABSENT, **planes}, goal=clean)


@each(REVERSIBLE)
def test_options_as_text_mean_the_same(subject: Subject) -> None:
    options = dict(subject.case.options)
    planes = {"immediate": True, "permanent": True} if subject.case in PLANES else {}
    subject.run(options)
    assert not subject.run({name: _text(value) for name, value in {**options, **planes}.items()})["changed"]
    for spelling in SPELLINGS.get(subject.case.module, ()):
        assert not subject.run({**options, **spelling})["changed"]


SPELLINGS: dict[str, list[Options]] = {
    "nftables_connmark": [{"pod_interfaces": "veth-*"}, {"mark": 128, "mask": "0x80"}],
    "nftables_probe_snat": [{"priority": "-300"}],
    "policy_routes": [{"protocol": "75"}],
    "rp_filter": [{"interfaces": "eth0,eth*"}, {"interfaces": "eth*,eth0"}],
}


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if isinstance(value, str) else json.dumps(value)


@each([case for case in PLANES if case.module.startswith("nftables")])
def test_a_file_that_was_removed_or_altered_is_put_right(subject: Subject) -> None:
    options, node = subject.case.options, subject.node
    subject.run(options)
    good = subject.state()
    assert subject.files()
    for path, kind in subject.files().items():
        subject.alter(partial(node.remove, path))
        subject.mend(options, good)
        if kind.startswith("-"):
            subject.alter(partial(node.write, path, f"{node.read(path)}# mine\n"))
            subject.mend(options, good)


FOREIGN_FILES = ("mkdir", "ln -s /etc/hostname", "cp /etc/hostname")


@pytest.mark.parametrize("kinds", sampled((1, len(FOREIGN_FILES)), lambda kinds: kinds == 1))  # at each path
@each(PLANES)
def test_a_foreign_file_in_its_place_is_refused_and_left_by_absent(subject: Subject, kinds: int) -> None:
    case = subject.case
    subject.run(case.options)
    paths = list(subject.files())
    subject.run(ABSENT)
    makers = itertools.cycle(FOREIGN_FILES)
    for path, make in ((path, next(makers)) for path in paths for _kind in range(kinds)):
        subject.run({**case.options, "permanent": False})
        subject.shell(f"mkdir -p {path.rpartition('/')[0]}; {make} {path}")
        files = subject.state()["files"]
        assert path in subject.refused(case.options), make
        subject.run(ABSENT)
        assert files.items() - subject.state()["files"].items() <= {(p, k) for p, k in files.items() if p.startswith("/run/")}
        subject.shell(f"rm -r {path}; rmdir -p --ignore-fail-on-non-empty {path.rpartition('/')[0]}")
        subject.expect(subject.clean)


SECOND: dict[str, Options] = {
    "nftables_connmark": {"table": "other", "primary_interface": "eth1", "mark": "0x10", "path": "/etc/kubenode/other.nft"},
    "nftables_connmark strict": {"table": "other", "mark": "0x10", "path": "/etc/kubenode/other.nft"},
    "nftables_probe_snat": {"table": "probeSnat", "interface": "ens3", "path": "/etc/kubenode/other.nft"},
    "policy_routes": {"rules": [{"priority": 710, "to": "10.0.1.7", "table": "main"}], "routes": [], "protocol": 76},
    "rp_filter": {"interfaces": ["eth2"], "mode": "strict", "path": "/etc/sysctl.d/91-other.conf"},
}


@of(SECOND)
def test_two_sets_live_side_by_side(subject: Subject, entries: Options) -> None:
    options = {**subject.case.options, "interfaces": ["eth0"]} if "mode" in entries else subject.case.options
    second = {**options, **entries}
    subject.run(second)
    alone = subject.state()
    subject.run(options)
    assert not subject.run(second)["changed"] and not subject.run(options)["changed"]
    subject.mend(ABSENT, alone)
    assert not subject.run(second)["changed"]
    narrow = {name: value for name, value in second.items() if name not in subject.case.lists}
    subject.mend({**narrow, **ABSENT}, subject.clean)


def edited(family: str, table: str, old: str, new: str) -> str:
    """A script that replaces a part of a table."""
    lines = [
        f"nft list table {family} {table} > /tmp/table; sed 's/{old}/{new}/' /tmp/table > /tmp/edited",
        "! cmp -s /tmp/table /tmp/edited",
        f"nft delete table {family} {table}; nft -f /tmp/edited",
    ]
    return " && ".join(lines)


def table_drifts(family: str, table: str, kind: str, chain: str) -> dict[str, str]:
    """The ways in which another program alters a table."""
    name = f"{family} {table}"
    words = {
        "a rule added": f"add rule {name} {chain} accept",
        "a rule put first": f"insert rule {name} prerouting accept",
        "rules gone": f"flush chain {name} prerouting",
        "the other chain's rules gone": f"flush chain {name} {chain}",
        "all rules gone": f"flush table {name}",
        "a chain added": f"add chain {name} mine",
        "a set added": f"add set {name} mine {{ type {kind}; }}",
        "a counter added": f"add counter {name} mine",
        "asleep": f"add table {name} {{ flags dormant; }}",
        "another policy": f"add chain {name} prerouting {{ policy drop; }}",
        "gone": f"delete table {name}",
    }
    return {drift: f"nft '{line}'" for drift, line in words.items()}


_MARKS = ("inet", "kubenodeReturnPath")
_PROBES = ("ip6", "azureSLBProbe")
_SETTING = "sysctl -qw net.ipv4.conf"
DRIFTS: dict[str, dict[str, str]] = {
    "link_addresses": {
        "an address gone": "ip address del 10.0.1.10/32 dev eth1",
        "all of a link gone": "ip address flush dev eth2 scope global",
    },
    "nftables_connmark strict": {
        **table_drifts(*_MARKS, kind="ipv4_addr", chain="output"),
        "another priority": edited(*_MARKS, "priority mangle", "priority filter"),
        "another type": edited(*_MARKS, "type route", "type filter"),
        "each direction": edited(*_MARKS, "ct direction original ", ""),
        "another mark": edited(*_MARKS, "| 0x00000080", "| 0x00000081"),
        "another pattern": edited(*_MARKS, '"veth-\\*"', '"veth-pod1"'),
        "the setting": f"{_SETTING}.eth0.src_valid_mark=0",
        "its record": "rm /run/kubenode/src-valid-mark.jsonl",
    },
    "nftables_probe_snat": {
        **table_drifts(*_PROBES, kind="ipv6_addr", chain="postrouting"),
        "another hook": edited(*_PROBES, "hook prerouting priority raw", "hook input priority raw"),
        "another priority": edited(*_PROBES, "hook prerouting priority raw", "hook prerouting priority -299"),
        "the script": "echo 'flush ruleset' > /etc/kubenode/probe-snat.nft",
    },
    "policy_routes": {
        "a rule gone": "ip rule del priority 700 to 10.0.1.5",
        "a rule put last": "ip rule del priority 701 from 10.0.1.5 lookup 1003 protocol 75"
        " && ip rule add priority 701 from 10.0.1.5 lookup 1003 protocol 75",
        "a rule added": "ip rule add priority 9 lookup 7 protocol 75",
        "a route gone": "ip route del blackhole 10.8.0.0/16 table 1003",
        "another gateway": "ip route change default via 10.0.1.9 dev eth1 table 1003 protocol 75",
        "a table gone": "ip route flush table 1003 protocol 75 && ip route add 10.77.0.0/16 dev eth0 table 1003 realm 7 proto 75",
    },
    "rp_filter": {
        "a setting": f"{_SETTING}.eth0.rp_filter=0",
        "another link": f"{_SETTING}.eth1.rp_filter=1",
    },
}


def without_records(state: runner.State) -> dict[str, Any]:
    """A state without the former values of settings: what another program has set is the former value of the next run."""
    return {**state, "files": {path: kind for path, kind in state["files"].items() if not path.endswith(".jsonl")}}


@of(DRIFTS)
def test_whatever_was_altered_is_put_right(subject: Subject, entries: Mapping[str, str]) -> None:
    options = subject.case.options
    subject.run(options)
    good = subject.state()
    for drift, script in entries.items():
        subject.shell(script)
        predicted = subject.run(options, check=True)
        assert predicted["changed"], drift
        assert subject.run(options) == predicted, drift
        assert without_records(subject.state()) == without_records(good), drift
    assert not subject.run(options)["changed"]


# One entry for each kind of check; the tables of all wrong values are in the unit tests of the models.
BAD_INPUT: dict[str, list[tuple[str, Options]]] = {
    "ebtables_cleanup": [
        ("addresses[1] must be an address", {"addresses": ["10.240.0.1", "pod-7"]}),
        ("addresses[0] must be an address", {"addresses": ["10.240.0.1/16"]}),
        ("addresses[0] must be an address", {"addresses": ["0.0.0.0/0"]}),
        ("value of backend must be one of", {"backend": "iptables"}),
        ("value of owner must be one of", {"owner": "flannel"}),
        ("backup must be", {"backup": "relative"}),
        *(
            ("backup must be in or below a folder that is named kubenode", {"backup": folder})  # a boot or a program reads others
            for folder in ("/run/kubenode-backup", "/etc/cni/net.d", "/etc/cron.d")
        ),
        (
            "backup must be a folder that exists or whose parent exists; /srv/kubenode/none is not a folder",
            {"backup": "/srv/kubenode/none/backup"},
        ),
    ],
    "link_addresses": [
        ("addresses must be given where state is present", {}),
        *(
            (told, {"addresses": [{"dev": "eth1", "address": "10.0.1.10"}, entry]})
            for told, entry in (
                ("addresses[1].address must be a string; None was given", {"dev": "eth1"}),
                ("addresses[1].dev must be a string; None was given", {"address": "10.0.1.1"}),
                ("addresses[1].dev must be a link's name", {"dev": "a b", "address": "10.0.1.1"}),
                ("addresses[1].address must be an IP address, or ADDRESS/LENGTH", {"dev": "eth1", "address": "10.0.1"}),
                ("addresses[1].address must be an IP address, or ADDRESS/LENGTH", {"dev": "eth1", "address": "10.0.1.1/33"}),
                ("addresses[1].address must be a unicast address", {"dev": "eth1", "address": "fe80::1"}),
                ("addresses[1].address must be a unicast address", {"dev": "eth1", "address": "224.0.0.1"}),
                ("addresses[1].address must be of length 32", {"dev": "eth1", "address": "10.0.1.10/24"}),
                ("addresses[1].scope must be left out", {"dev": "eth1", "address": "10.0.1.1", "scope": "link"}),
                ("addresses[1] must be a dictionary with dev and address", "eth1"),
            )
        ),
    ],
    "nftables_connmark": [
        ("immediate must be true if permanent is false", {"immediate": False, "permanent": False}),
        ("primary_interface must be a link's name", {"primary_interface": 'eth0" accept'}),
        ("pod_interfaces[0] must be a link's name", {"pod_interfaces": ["{ eni1 }"]}),
        ("mark must be within mask 0x00000040", {"mask": "0x40"}),
        ("table must be a word", {"table": 'a"; flush ruleset; "'}),
        ("path must be in a folder that exists or whose parent exists", {"path": "/etc/kubenode-one/two/three.nft"}),
        ("path must be in or below a folder that", {"path": "/etc/systemd/system/mine.service"}),
    ],
    "nftables_probe_snat": [
        ("immediate must be true if permanent is false", {"immediate": False, "permanent": False}),
        ("table must be a word", {"table": 'a"; flush ruleset; "'}),
        ("dictionary requested, could not parse JSON", {"probes": "[" * 100_000}),
        ("interface must be a link's name", {"interface": "eth0 counter drop"}),
        ("path must be an absolute path", {"path": "relative"}),
        ("path must be in a folder that exists or whose parent exists", {"path": "/etc/kubenode-one/two/three.nft"}),
        ("path must be in or below a folder that", {"path": "/etc/ld.so.preload"}),
        ("priority must be an integer", {"priority": True}),
    ],
    "policy_routes": [
        ("rules must be given if state is present, unless routes, enis or uplinks are given", {}),
        ("aws_vpc_cni, cilium, terway, custom, got: calico found in enis", {"enis": {"layout": "calico"}}),
        (
            "enis.priorities must be left out: the layout terway has its own",
            {"enis": '{"layout": "terway", "priorities": {"mark": 5}}'},
        ),
        (
            "enis.clod. Supported parameters include: cloud, interface_marks, layout, manage, mark",
            {"enis": {"layout": "terway", "clod": "aws"}},
        ),
        ("enis.cloud must be one of auto, aws: the layout cilium", {"enis": {"layout": "cilium", "cloud": "azure"}}),
        (
            "routes must be given if enis and the other list are given: both follow from the ENIs",
            {"enis": {"layout": "terway"}, "rules": []},
        ),
        (
            "rules must be given if uplinks and the other list are given: both follow from the uplinks",
            {"uplinks": [{"name": "eth0"}], "routes": []},
        ),
        ("uplinks must be left out if enis is given", {"uplinks": [{"name": "eth0"}], "enis": {"layout": "terway"}}),
        ("uplinks[0].gateway must be the IPv4 address of the uplink's", {"uplinks": '[{"name": "eth0", "gateway": "::1"}]'}),
        (
            "rules[1] must be unique; rules[0] has the same priority and selector but another meaning",
            {"rules": [{"priority": 7, "table": 7}, {"priority": 7, "table": 8}]},
        ),
        (
            "routes[0].dev must be a link of this node (for ip route default dev eth7 table 7 scope link); 'eth7' was given",
            {"routes": [{"table": 7, "to": "default", "dev": "eth7"}]},
        ),
        (
            "routes[0].via must be a neighbour on eth0 by a connected route, or onlink must be true",
            {"routes": [{"table": 7, "to": "default", "dev": "eth0", "via": "10.66.0.1"}]},
        ),
        (
            "routes[1].via must be a neighbour on one link, by a connected route of its own table or of main, or given with dev;",
            {"routes": [{"table": 7, "to": "192.0.2.1", "dev": "eth0"}, {"table": 7, "to": "default", "via": "10.66.0.1"}]},
        ),
        ("rules[0].goto must be the priority of a listed or existing rule", {"rules": [{"priority": 7, "goto": 900}]}),
        ("protocol must be one that no other program uses; 4 belongs to static", {"protocol": 4, "rules": []}),
        ("rules must be a list of dictionaries, or JSON text of one", {"rules": "from all"}),
        *(
            ("path must be in or below", {"rules": [], "path": path})  # which a boot empties
            for path in ("/run/kubenode/policy-routes-75.json", "/run/kubenode/set.json", "/var/run/set.json")
        ),
        ("immediate must be true if permanent is false", {"immediate": False, "permanent": False, "rules": []}),
    ],
    "rp_filter": [
        ("immediate must be true if permanent is false", {"immediate": False, "permanent": False}),
        ("value of mode must be one of: off, strict, loose", {"mode": "lose"}),
        ("interfaces[1] must be a link or a pattern of links", {"interfaces": ["eth0", "all"]}),
        ("interfaces[0] must be a link's name", {"interfaces": ["eth0/1"]}),
        ("path must be an absolute path", {"path": "/etc/sysctl.d/a b.conf"}),
        ("path must be in /etc/sysctl.d, or in or below a folder", {"path": "/run/sysctl.d/90-kubenode-rp-filter.conf"}),
        ("path must be in /etc/sysctl.d, or in or below a folder", {"path": "/run/kubenode/rp-filter.jsonl"}),
    ],
}


@of(BAD_INPUT)
def test_bad_input_is_named_and_changes_nothing(subject: Subject, entries: list[tuple[str, Options]]) -> None:
    valid = {name: value for name, value in subject.case.options.items() if name not in subject.case.lists}
    for message, options in entries:
        assert message in subject.refused({**valid, **options}), options
