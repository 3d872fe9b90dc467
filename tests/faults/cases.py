# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The modules of the collection, their options, and the state of their nodes: data.

LEFT_OUT has the options that no operation changes. nftables_package installs packages, and these nodes share /usr with
their host: see tests/integration/_nftables/test_nftables_package.py.
node_mode runs on the controller, and changes nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from lab import Lab, agentbaker, azure_vnet, bpf
from lab.azure_bridge import enslave
from lab.azure_vnet import AzurePod
from lab.node import NamespaceNode
from lab.waiting import until

Options = Mapping[str, Any]
Change = tuple[Options, Options]
"""The options before and after, beside those of the case."""

LEFT_OUT = {
    # They name a second set of objects, and a node with both sets is correct.
    "ebtables_cleanup": {"backup", "owner"},
    "nftables_connmark": {"table"},
    "nftables_probe_snat": {"table"},
    "policy_routes": {
        "protocol",
        "enis",
        "uplinks",
    },  # enis, uplinks: their results are rules and routes as in the lists; enis needs a metadata service
    "rp_filter": {"path"},
    # name, options: what follows from them are options of modules. identity: another machine is refused. rehearse and what it
    # sends: the controller's, and a rehearsal changes nothing.
    "profile": {"identity", "later_interfaces", "mode", "name", "options", "rehearse", "rehearse_checks", "rehearse_packets"},
    # There is one bridge and one interface, which the module finds without the options.
    "azure_vnet_bridge": {"bridge", "interface"},
}
"""By module. The kills under ``checkpoint`` are in tests/integration/_checkpoint/test_checkpoint.py."""
ABSENT = {"state": "absent"}
BEFORE: dict[str, Change] = {"before": ({}, {"before": ["my-kubelet.service"]})}
PLANES: dict[str, Change] = {
    "immediate": ({"immediate": False}, {"immediate": True}),
    "permanent": ({"permanent": False}, {"permanent": True}),
}


@dataclasses.dataclass(frozen=True)
class Case:
    """A module.

    prepare: gives the node what the module needs. options: of present. changes: the values that *update* changes, by option.
    absent: the options that undo a run; None if no options do, and each run gets a new node.
    varies: files whose text differs in each run, because it contains times and the order in which objects were found.
    lists: options without which absent removes everything that the module owns. is_reader: the module changes nothing.
    where: the node, for the names of operations, if the module has more than one case.
    rarity: the factor by which a sample has fewer of its faults than of another module's.
    """

    module: str
    options: Options = dataclasses.field(default_factory=dict)
    changes: Mapping[str, Change] = dataclasses.field(default_factory=dict)
    absent: Options | None = dataclasses.field(default_factory=lambda: ABSENT)
    prepare: Callable[[Lab, NamespaceNode], None] = lambda lab, node: None
    varies: tuple[str, ...] = ()
    lists: tuple[str, ...] = ()
    is_reader: bool = False
    where: str = ""
    rarity: int = 1


@dataclasses.dataclass(frozen=True)
class Operation:
    """One run that is struck.

    before: the options of the run that makes the state from which it starts; None for a node without objects of the collection.
    after: the options of the run itself. backs: those of the runs that must restore the first snapshot afterwards.
    """

    case: Case
    name: str
    before: Options | None
    after: Options
    backs: tuple[Options, ...]

    def __str__(self) -> str:
        return f"{self.case.module}, {self.name}"


def operations() -> Iterator[Operation]:
    for case in CASES:
        for operation in _operations(case):
            yield dataclasses.replace(operation, name=f"{operation.name}{case.where}")


def _operations(case: Case) -> Iterator[Operation]:
    if case.is_reader:
        yield Operation(case, "read", None, case.options, ())
        return
    if case.absent is None:
        yield Operation(case, "absent", None, case.options, ())
        yield Operation(case, "absent again", case.options, case.options, ())
        return
    backs = _backs(case, case.options)
    yield Operation(case, "present", None, case.options, backs)
    yield Operation(case, "present again", case.options, case.options, backs)
    for option, (before, after) in case.changes.items():
        target = {**case.options, **after}
        yield Operation(case, f"update {option}", {**case.options, **before}, target, _backs(case, target))
    yield Operation(case, "absent", case.options, case.absent, (case.absent,))


def _backs(case: Case, options: Options) -> tuple[Options, ...]:
    """The options of absent: those of the run, if they have the same effect, and none."""
    assert case.absent is not None
    narrow = ("immediate", "permanent", *case.lists)
    own = {name: value for name, value in options.items() if name not in narrow} | dict(case.absent)
    return (case.absent,) if own == case.absent else (own, case.absent)


# The state of nodes


def _links(_lab: Lab, node: NamespaceNode) -> None:
    """A second interface with an address, and a link that has neither."""
    for number, (name, peer) in enumerate((("eth1", "peer1"), ("eth2", "peer2")), 1):
        macs = node.place.mac(number), node.place.mac(number + 16)
        node.ip([f"link add {name} address {macs[0]} type veth peer name {peer} address {macs[1]}"])
        node.set_sysctls({f"net/ipv6/conf/{one}/addr_gen_mode".replace("/", "."): 1 for one in (name, peer)})
        node.ip([f"link set {peer} up", f"link set {name} up"])
    node.ip(["address add 10.0.1.254/24 dev eth1"])
    # A busy machine notices carriers late, and routes follow them (net/core/link_watch.c).
    until(f"all links of {node.name} have a carrier", lambda: "NO-CARRIER" not in node.run(["ip", "link"]).stdout)


def _agents(_lab: Lab, node: NamespaceNode) -> None:
    """The hotplug of cloud-init, and the helper that Debian 11 starts for each interface."""
    node.write("/etc/cloud/cloud.cfg.d/05_logging.cfg", "logging: {}\n")
    for name in ("75-cloud-ifupdown.rules", "90-cloud-init-hook-hotplug.rules"):
        node.write(f"/etc/udev/rules.d/{name}", 'SUBSYSTEM=="net", RUN+="/bin/true"\n')


def _filtering_links(lab: Lab, node: NamespaceNode) -> None:
    """Strict by conf/all, as sysctl.conf of some distributions has it."""
    _links(lab, node)
    node.set_sysctls({"net.ipv4.conf.all.rp_filter": 1})


def _foreign_table(lab: Lab, node: NamespaceNode) -> None:
    _links(lab, node)
    node.run_from_host(["nft", "-f", "-"], "table inet cni { set pods { type ipv4_addr; elements = { 192.0.2.7 }; }; }\n")


def _foreign_program(lab: Lab, node: NamespaceNode) -> None:
    _links(lab, node)
    for link in ("eth0", "eth1"):
        bpf.attach(node, "tcx", "cil_from_netdev", link)


def _aks_image(_lab: Lab, node: NamespaceNode) -> None:
    agentbaker.place(node)
    node.run_from_host(["nft", "-f", "-"], agentbaker.TABLE)


GONE = [AzurePod(number) for number in range(1, 4)]
MOVED = AzurePod(9)  # there is no evidence that this pod has gone


def _azure_past(_lab: Lab, node: NamespaceNode) -> None:
    """No pod of azure-vnet is live, so the module moves its files too."""
    azure_vnet.past(node, node.place.mac(), GONE)
    azure_vnet.ebtables(node, azure_vnet.pod_rules("10.99.0.1", MOVED.mac))
    node.ip([f"route add {pod.address}/32 dev {azure_vnet.BRIDGE}" for pod in GONE])
    for words in ("-A POSTROUTING -s 10.9.0.0/16 -j RETURN", "-N SWIFT", "-I POSTROUTING 1 -j SWIFT"):
        node.run(["iptables-nft", "-t", "nat", *words.split()])
    # Down, because a bridge without ports loses its carrier some time after it is up.
    node.ip(["link add azSnatbr address 02:00:00:00:aa:01 type bridge", "address add 169.254.128.1/17 dev azSnatbr"])


def _azure_bridge(_lab: Lab, node: NamespaceNode) -> None:
    enslave(node)


_RULES = [
    {"priority": 700, "to": "10.0.1.5", "table": "main"},
    {"priority": 701, "from": "10.0.1.5", "table": 1003},
    {"priority": 701, "from": "10.0.1.5", "iif": "eth1", "action": "prohibit"},
    {"priority": 690, "fwmark": "0x80/0x80", "table": "main", "family": "ipv6"},
]
_OTHER_RULES = [_RULES[1], _RULES[0], _RULES[2], {"priority": 701, "to": "10.0.1.6", "table": 1004}]
_ROUTES = [
    {"table": 1003, "to": "default", "via": "10.0.1.1", "dev": "eth1"},
    {"table": 1003, "to": "10.0.1.1", "dev": "eth1"},
    {"table": 1003, "to": "10.8.0.0/16", "type": "blackhole"},
]
_OTHER_ROUTES = [
    {"table": 1003, "to": "default", "via": "10.0.1.2", "dev": "eth1", "mtu": 1400},
    {"table": 1004, "to": "default", "via": "10.0.1.1", "dev": "eth1"},
]
_ADDRESSES = [
    {"dev": "eth1", "address": "10.0.1.10"},
    {"dev": "eth2", "address": "2001:db8:1::10"},
    {"dev": "eth2", "address": "10.0.2.10"},
]
_OTHER_ADDRESSES = [{"dev": "eth1", "address": "10.0.1.11"}, {"dev": "eth1", "address": "10.0.1.10"}]

_MARKS = {"primary_interface": "eth0", "pod_interfaces": ["veth-*"]}
# The three remedies of the role eni_policy_routing. Each has one table at most: a restored table is listed after all others.
_REST: tuple[dict[str, Any], ...] = (
    {"network_daemons": {"restart": False}},
    {"policy_routes": {"rules": _RULES, "routes": _ROUTES}},
)
_LOOSE = [
    *_REST,
    {"rp_filter": {"interfaces": ["eth0"], "mode": "loose"}},
    {"link_addresses": ABSENT},
    {"nftables_connmark": _MARKS},
]
_STRICT = [
    *_REST,
    {"rp_filter": {"interfaces": ["eth0"], "mode": "strict"}},
    {"link_addresses": ABSENT},
    {"nftables_connmark": {**_MARKS, "strict": True}},
]
_SYMMETRIC = [
    *_REST,
    {"rp_filter": ABSENT},
    {"link_addresses": {"addresses": _ADDRESSES}},
    {"nftables_connmark": {**_MARKS, "strict": True}},
]

CASES = (
    Case("azure_vnet_bridge", absent=None, prepare=_azure_bridge),
    Case("cni_info", prepare=_azure_past, is_reader=True),
    Case("datapath_info", prepare=_azure_past, is_reader=True),
    Case(
        "ebtables_cleanup",
        {"iptables": True, "links": True},
        changes={
            "addresses": ({}, {"addresses": ["10.99.0.0/16"]}),
            "backend": ({"backend": "legacy"}, {}),
            "neighbors": ({"neighbors": False}, {}),
            "routes": ({"routes": False}, {}),
            "iptables": ({"iptables": False}, {}),
            "links": ({"links": False}, {}),
        },
        absent={"state": "restored"},
        prepare=_azure_past,
        varies=("/var/lib/kubenode/backup/azure_vnet.json",),
        rarity=3,
    ),
    Case("imds_info", {"cloud": "azure", "timeout": 2, "retries": 1}, is_reader=True),
    Case(
        "link_addresses",
        {"addresses": _ADDRESSES},
        changes={"addresses": ({}, {"addresses": _OTHER_ADDRESSES}), **BEFORE, **PLANES},
        prepare=_links,
        lists=("addresses",),
    ),
    Case(
        "network_daemons",
        changes={"restart": ({}, {"restart": False}), "agents": ({}, {"agents": "ignore"})},
        prepare=_agents,
    ),
    Case(
        "nftables_connmark",
        {"primary_interface": "eth0", "pod_interfaces": ["veth-*"]},
        changes={
            "primary_interface": ({}, {"primary_interface": "eth1"}),
            "pod_interfaces": ({}, {"pod_interfaces": ["eni*", "veth-pod1"]}),
            "interfaces": ({}, {"interfaces": [{"name": "eth1", "mark": "0x100"}]}),
            "service_addresses": ({}, {"service_addresses": ["203.0.113.0/24"]}),
            "mark": ({"mask": "0xff"}, {"mark": "0x40", "mask": "0xff"}),
            "mask": ({}, {"mask": "0xf0"}),
            "strict": ({}, {"strict": True}),
            "strict off": ({"strict": True}, {}),
            "path": ({"strict": True}, {"strict": True, "path": "/etc/kubenode/other.nft"}),
            "path to another folder": ({}, {"path": "/etc/kubenode-other/return-path.nft"}),
            **BEFORE,
            **PLANES,
        },
        prepare=_foreign_table,
    ),
    Case(
        "nftables_probe_snat",
        changes={
            "interface": ({}, {"interface": "eth1"}),
            "priority": ({}, {"priority": -290}),
            "probes": ({}, {"probes": [{"source": "fe80::10", "translated": "2001:db8:ffff::10"}]}),
            "comment": ({}, {"comment": "By the platform team"}),
            "path": ({}, {"path": "/etc/kubenode/other.nft"}),
            "path to another folder": ({}, {"path": "/etc/kubenode-other/probe-snat.nft"}),
            "boot_condition": ({}, {"boot_condition": "address"}),
            **BEFORE,
            **PLANES,
        },
        prepare=_foreign_table,
    ),
    Case(
        "nftables_probe_snat",
        {"agentbaker": "take_over"},
        changes={
            "agentbaker": ({"agentbaker": "report"}, {}),
            "agentbaker back": ({}, {"agentbaker": "report"}),
            "priority": ({}, {"priority": -290}),
        },
        prepare=_aks_image,
        where=" on an image of AKS",
    ),
    Case(
        "nftables_probe_snat",
        {"backend": "bpf"},
        changes={
            "backend": ({"backend": "nftables"}, {}),
            "backend back": ({}, {"backend": "nftables"}),
            "interface": ({}, {"interface": "eth1"}),
            "probes": ({}, {"probes": [{"source": "fe80::10", "translated": "2001:db8:ffff::10"}]}),
            "path": ({}, {"path": "/etc/kubenode/other.nft"}),
            **BEFORE,
            **PLANES,
        },
        prepare=_foreign_program,
        where=" by BPF",
    ),
    Case(
        "policy_routes",
        {"rules": _RULES, "routes": _ROUTES},
        changes={
            "rules": ({}, {"rules": _OTHER_RULES}),
            "routes": ({}, {"routes": _OTHER_ROUTES}),
            "path": ({}, {"path": "/etc/kubenode/other.json"}),
            "path to another folder": ({}, {"path": "/etc/kubenode-other/routes.json"}),
            **BEFORE,
            **PLANES,
        },
        prepare=_links,
        lists=("rules", "routes"),
    ),
    Case(
        "profile",
        {"mode": "runtime", "modules": _LOOSE},
        changes={
            "modules": ({}, {"modules": _STRICT}),
            "modules to symmetric": ({"modules": _STRICT}, {"modules": _SYMMETRIC}),
        },
        absent={**ABSENT, "mode": "runtime", "modules": _LOOSE},
        prepare=_filtering_links,
        lists=("modules",),
        rarity=4,
    ),
    Case(
        "rp_filter",
        {"interfaces": ["eth0", "eth*"], "mode": "loose"},
        changes={
            "interfaces": ({}, {"interfaces": ["eth1"]}),
            "mode": ({}, {"mode": "strict"}),
            "raise_all": ({}, {"mode": "off", "raise_all": True}),
            **PLANES,
        },
        prepare=_filtering_links,
    ),
)
