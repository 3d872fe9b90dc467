# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role eni_policy_routing as a user runs it: its playbook, on a node whose pods share ENIs, with packets."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sampling import sampled

from lab import Eni, EniLab, collection, playbook
from lab.eni import BACKEND, LOAD_BALANCER, PRIMARY, EniNamespaceNode, EniNode
from lab.metadata import MetadataServer
from lab.metadata_replies import Aws, Nic
from lab.node import POD_PORT
from lab.playbook import Played
from lab.steps import Steps, warnings

PLAYBOOK = "kubenode.datapath.eni_policy_routing"
NODE_PORT = 30080
STRICT, LOOSE = 1, 2
ENI = Eni("eth1", pods=["pod1"], has_address=True)
AWS: dict[str, Any] = {"layout": "aws_vpc_cni", "connmark": "always", "pod_interfaces": ["veth-*"]}
AUTO = {**AWS, "connmark": "auto"}
CUSTOM: dict[str, Any] = {
    "layout": "custom",
    "pod_interfaces": ["veth-*"],
    "enis": [
        {"name": "eth0", "primary": True, "ipv4": [PRIMARY.address]},
        {"name": "eth1", "gateway": {"ipv4": ENI.gateway}, "table": 1101, "pods": [ENI.pod_address(0)]},
    ],
}


class Site:
    """A cloud with AWS's metadata, and the playbook that is run against its node."""

    def __init__(self, lab: EniLab, metadata: MetadataServer, inventory: Path) -> None:
        self.lab = lab
        self.metadata = metadata
        self.node: EniNode = lab.node("node1")
        self._inventory = inventory

    def play(self, *arguments: str, **variables: Any) -> Played:
        """Run the playbook with a mode: the namespace node has no systemd of its own, and would be taken for an image."""
        given = {f"eni_policy_routing_{name}": value for name, value in {"mode": "runtime", **variables}.items()}
        return playbook.play(self._inventory, PLAYBOOK, "-vvv", *arguments, variables=given)

    def module(self, **options: Any) -> Steps:
        """The role's module on the node, without Ansible's controller. A later run of the playbook has the same Python,
        which units of the boot name."""
        playbook.tell(self._inventory, "node1", ansible_python_interpreter=sys.executable)
        assert isinstance(self.node, EniNamespaceNode)
        return Steps(self.node, "profile", {"name": "eni_policy_routing", "options": {"mode": "runtime", **options}})

    def is_node_port_answered(self) -> bool:
        return self.lab.client.fetch(PRIMARY.address, NODE_PORT, timeout=0.5) is not None


@contextmanager
def site_of(tmp_path: Path, cni: bool) -> Iterator[Site]:
    """All links filter strictly, as in many distributions."""
    with EniLab("role", [ENI], cni=cni) as lab:
        node: EniNode = lab.node("node1")
        mac = node.place.mac
        nics = tuple(
            Nic(mac(eni.number), (eni.address,), (), f"10.0.{eni.number}.0/24", device_number=eni.number)
            for eni in (PRIMARY, ENI)
        )
        node.service(NODE_PORT, [ENI.pod_address(0)], "Local")
        node.filter_reverse_path(STRICT)
        with MetadataServer(lab.router, Aws(), nics) as metadata:
            yield Site(lab, metadata, lab.write_inventory(tmp_path / "inventory.json"))


@pytest.fixture
def aws(tmp_path: Path) -> Iterator[Site]:
    """A node with a CNI."""
    with site_of(tmp_path, cni=True) as site:
        yield site


@pytest.fixture
def bare(tmp_path: Path) -> Iterator[Site]:
    """A node without a CNI, whose pods have no connectivity."""
    with site_of(tmp_path, cni=False) as site:
        yield site


# Places the collection's program, as the first run of a playbook does that leaves something on the node.
PLACE = """
import sys
sys.path.insert(0, sys.argv[1])
from ansible_collections.kubenode.datapath.plugins.module_utils._core.version import COLLECTION
from ansible_collections.kubenode.datapath.plugins.module_utils._platform import placed_program
from ansible_collections.kubenode.datapath.plugins.module_utils._program import program
from ansible_collections.kubenode.datapath.plugins.plugin_utils import _program

packed = program.pack(_program.sources())
placed_program._place(program.name_of(COLLECTION, packed), packed)
"""


def four_steps(site: Site, **variables: Any) -> Played:
    """Checked, run, checked again, run again by the role's module, and then by the role, which finds nothing to do."""
    site.module(**variables).four()
    site.node.run([sys.executable, "-c", PLACE, str(collection.link())])
    after = site.node.snapshot()
    again = site.play(**variables).well()
    assert again.changed == 0 and site.node.snapshot() == after, again.output
    return again


def diffs(play: Played) -> list[str]:
    return [line for line in play.output.splitlines() if line.startswith(("+", "-"))]


@pytest.mark.each_core
def test_a_run_makes_what_check_mode_predicts_and_absent_restores_the_node(aws: Site) -> None:
    clean = aws.node.snapshot()
    predicted = aws.play("--check", "--diff", **AWS).well()
    assert predicted.changed == 1 and aws.node.snapshot() == clean
    played = aws.play("--diff", **AWS).well()
    assert played.changed == 1 and diffs(played) == diffs(predicted)
    assert aws.is_node_port_answered()
    after = aws.node.snapshot()
    assert aws.play("--check", **AWS).well().changed == 0 and aws.node.snapshot() == after
    assert aws.play(state="absent", **AWS).well().changed == 1
    assert aws.node.snapshot() == clean
    assert aws.play(state="absent", **AWS).well().changed == 0


@pytest.mark.parametrize("remedy", ["loose", "strict"])
def test_the_metadatas_enis_are_routed_as_awss_cni_does_it(aws: Site, remedy: str) -> None:
    clean = aws.node.snapshot()
    assert not aws.is_node_port_answered()
    converged = four_steps(aws, remedy=remedy, **AWS)
    assert converged.modules == ["profile"]
    assert f"Remedy {remedy}: eth0" in converged.output
    assert "There, by the role: 2 rules" in converged.output
    assert f"There: reverse-path filtering {2 if remedy == 'loose' else 1} of eth0" in converged.output
    assert aws.is_node_port_answered()
    rules = aws.node.run(["ip", "rule"]).stdout
    assert re.search("^32765:\tfrom 10.0.1.10 lookup 2 ", rules, re.MULTILINE) and "1024:\tfrom all fwmark 0x80/0x80" in rules
    aws.module(remedy=remedy, state="absent", **AWS).four()
    assert aws.node.snapshot() == clean


def test_the_metadatas_enis_are_rehearsed_in_a_twin(aws: Site) -> None:
    """Before, the request to the node port arrives and its reply is lost; both arrive in the twin, and then on the node."""
    request = {"source": LOAD_BALANCER, "destination": PRIMARY.address, "destination_port": NODE_PORT, "interface": "eth0"}
    rehearsed = aws.play(remedy="strict", rehearse=True, rehearse_packets=[request], **AWS).well()
    # This node lacks the program, whose archive then serves the whole task, and pyroute2, which is lent and then carried.
    assert rehearsed.modules == ["datapath_rehearsal"] * 3 + ["profile"] * 2
    assert "It arrives with them" in rehearsed.output
    assert aws.is_node_port_answered()
    undone = aws.play(remedy="strict", state="absent", rehearse=True, rehearse_packets=[request], **AWS)
    assert undone.failed and "the changes lose packets that arrive without them. packets[0]" in undone.output
    assert aws.is_node_port_answered()


def test_a_remedy_is_changed_for_another_and_nothing_is_left_of_the_former(aws: Site) -> None:
    clean = aws.node.snapshot()
    first: dict[str, dict[str, Any]] = {}
    for remedy in ("strict", "symmetric", "loose", "strict"):
        assert aws.module(remedy=remedy, **AWS).run()["changed"]
        assert aws.is_node_port_answered()
        assert aws.node.snapshot() == first.setdefault(remedy, aws.node.snapshot())
    aws.module(remedy="loose", state="absent").run()
    assert aws.node.snapshot() == clean


def test_symmetric_gives_enis_their_addresses_and_loosens_nothing(bare: Site) -> None:
    """The ENI has no address, the cloud checks sources and the node filters strictly: no other remedy helps a pod here."""
    node = bare.node
    node.ip([f"address delete {ENI.address}/24 dev eth1"])
    node.service(NODE_PORT + 1, [BACKEND], "Cluster", load_balancer_ip=LOAD_BALANCER)
    clean = node.snapshot()
    primary, eni = CUSTOM["enis"]
    given = {**CUSTOM, "enis": [primary, {**eni, "ipv4": [ENI.address]}], "remedy": "symmetric"}
    converged = four_steps(bare, **given)
    assert converged.modules == ["profile"]
    assert f"Remedy symmetric: the ENIs have addresses of their own ({ENI.address} on eth1)" in converged.output
    assert [line for line in node.snapshot()["sysctls"] if "rp_filter" in line] == [
        line for line in clean["sysctls"] if "rp_filter" in line
    ]
    answer = bare.lab.fetch_from("pod1", LOAD_BALANCER, 80)
    assert answer and answer.peer == ENI.address
    assert bare.is_node_port_answered()
    undone = bare.play(remedy="symmetric", state="absent")
    assert undone.changed == 1, undone.output
    assert "Removed: ip rule 1200: from all fwmark 0x80/0x80 lookup main" in undone.output
    assert node.snapshot() == clean


def mark_as_the_cni(node: EniNode, backend: str, mark: str) -> None:
    """The rules of amazon-vpc-cni with AWS_VPC_K8S_CNI_CONNMARK, for the names of the lab's pod links."""
    comment = ["-m", "comment", "--comment", "AWS, primary ENI"]
    local = ["-m", "addrtype", "--dst-type", "LOCAL", "--limit-iface-in"]
    to_mangle(node, backend, "-A", "PREROUTING", "-i", "eth0", *comment, *local, "-j", "CONNMARK", "--set-mark", f"{mark}/{mark}")
    to_mangle(node, backend, "-A", "PREROUTING", "-i", "veth+", *comment, "-j", "CONNMARK", "--restore-mark", "--mask", mark)


def accept_as_calico(node: EniNode, backend: str) -> None:
    established = ["-m", "conntrack", "--ctstate", "RELATED,ESTABLISHED"]
    to_mangle(node, backend, "-N", "cali-PREROUTING")
    to_mangle(node, backend, "-A", "cali-PREROUTING", *established, "-j", "ACCEPT")
    to_mangle(node, backend, "-I", "PREROUTING", "-j", "cali-PREROUTING")


def to_mangle(node: EniNode, backend: str, *words: str) -> None:
    node.run([f"iptables-{backend}", "-t", "mangle", *words])


def has_table(node: EniNode) -> bool:
    return "kubenodeReturnPath" in node.run(["nft", "list", "tables"]).stdout


@pytest.mark.parametrize("backend", sampled(["nft", "legacy"], lambda backend: backend == "nft"))
def test_the_marks_of_the_cni_are_read_and_the_roles_own_come_where_they_do_not_suffice(aws: Site, backend: str) -> None:
    """The CNI uses a non-default mark; then Calico accepts packets before they reach the CNI's rules."""
    node, given = aws.node, AUTO
    mark_as_the_cni(node, backend, "0x100")
    played = four_steps(aws, **given)
    seen = f"Rules of amazon-vpc-cni in table ip mangle ({backend}) mark connections with 0x100/0x100"
    assert f"Connections that arrive on eth0 are left to the CNI. {seen}." in played.output
    assert not has_table(node) and "1024:\tfrom all fwmark 0x100/0x100 lookup main" in node.run(["ip", "rule"]).stdout
    assert '"mark": "0x100/0x100"' in node.read("/etc/kubenode/policy-routes-75.json"), "for the next boot"
    assert aws.is_node_port_answered()

    accept_as_calico(node, backend)
    assert not aws.is_node_port_answered()
    played = aws.play(**given)
    assert played.well().changed == 1
    hidden = f"{seen}, but that does not suffice: a rule of chain cali-PREROUTING accepts packets before they reach them."
    assert f"are marked by the table of nftables_connmark. {hidden}" in played.output
    assert has_table(node) and aws.is_node_port_answered()

    to_mangle(node, backend, "-D", "PREROUTING", "1")
    assert aws.module(**given).run()["changed"]
    never = aws.play("--check", **{**given, "connmark": "never"})
    assert "are not marked by the role, because eni_policy_routing_connmark is never. Rules of amazon-vpc-cni" in never.output
    assert not has_table(node) and aws.is_node_port_answered()


def test_what_the_cni_holds_already_satisfies(aws: Site) -> None:
    aws.node.ip(
        [
            "rule add fwmark 0x80/0x80 lookup main priority 1024",
            "rule add from 10.0.1.10 lookup 2 priority 32765",
            "route add 10.0.1.1 dev eth1 table 2 scope link",
            "route add default via 10.0.1.1 dev eth1 table 2",
        ]
    )
    before = aws.node.snapshot()
    played = aws.play(layout="aws_vpc_cni")
    after = aws.node.snapshot()
    assert not played.failed
    assert "There, by protocol boot: ip route default via 10.0.1.1 dev eth1 table 2" in played.output
    assert "Changed from 1: reverse-path filtering 2 of eth0" in played.output and "Added" not in played.output
    assert [after[key] for key in ("rules -4", "routes -4")] == [before[key] for key in ("rules -4", "routes -4")]


@pytest.mark.thorough
def test_the_mark_rule_alone_is_managed_beside_a_cni_that_has_the_rest(aws: Site) -> None:
    """The CNI's marks, table and filter are there, and its rule for the marks is lost."""
    node = aws.node
    mark_as_the_cni(node, "nft", "0x80")
    node.filter_reverse_path(LOOSE)
    node.ip(
        [
            "rule add from 10.0.1.10 lookup 2 priority 32765",
            "route add 10.0.1.1 dev eth1 table 2 scope link",
            "route add default via 10.0.1.1 dev eth1 table 2",
        ]
    )
    clean = node.snapshot()
    assert not aws.is_node_port_answered()
    converged = four_steps(aws, **AUTO, manage=["mark_rule"])
    assert "Remedy" not in converged.output
    assert "because eni_policy_routing_manage does not list connmark. Rules of amazon-vpc-cni" in converged.output
    assert aws.is_node_port_answered()
    after = node.snapshot()
    assert {key for key in clean if after[key] != clean[key]} == {"rules -4", "files"}
    (added,) = set(after["rules -4"]) - set(clean["rules -4"])
    assert added == "1024:\tfrom all fwmark 0x80/0x80 lookup 254 proto 75"
    files = {path for path in set(after["files"]) - set(clean["files"]) if path.startswith("/etc/")}
    other_files = {path for path in files if "policy-routes-75" not in path}
    assert other_files == {"/etc/kubenode", "/etc/kubenode/.kubenode", "/etc/kubenode/owned-by-eni_policy_routing"} != files
    assert '"manage": ["mark_rule"]' in node.read("/etc/kubenode/policy-routes-75.json"), "for the next boot"
    assert aws.play(**AUTO, manage='["mark_rule"]', state="absent").changed == 1
    assert node.snapshot() == clean


def test_the_marks_rule_that_a_run_adds_comes_before_the_cnis_rules_for_pods(aws: Site) -> None:
    aws.node.ip(["rule add from 10.0.1.11 lookup 2 priority 1536"])
    assert not [warning for warning in warnings(aws.module(**AWS).run(check=True)) if "comes after" in warning]


def test_a_part_that_manage_does_not_list_is_left_as_it_is(aws: Site) -> None:
    clean = aws.node.snapshot()
    aws.module(**AWS).run()
    whole = aws.node.snapshot()
    assert aws.play(**AWS, manage="mark_rule,tables,connmark", state="absent").changed == 1
    assert not has_table(aws.node) and aws.node.snapshot()["rules -4"] == clean["rules -4"]
    assert aws.node.snapshot()["sysctls"] == whole["sysctls"] != clean["sysctls"]
    aws.module(**AWS, manage=["filters", "daemons"], state="absent").run()
    assert aws.node.snapshot() == clean


@pytest.mark.thorough
def test_the_daemons_alone_need_no_layout_and_no_metadata(aws: Site) -> None:
    """As with the AWS CNI on an image whose networkd would remove its rules."""
    clean = aws.node.snapshot()
    played = four_steps(aws, manage=["daemons"])
    assert "systemd-networkd" in played.output and "Connections that arrive" not in played.output
    assert aws.play(manage=["daemons"], state="absent").changed == 1
    assert aws.node.snapshot() == clean


@pytest.mark.thorough
def test_custom_does_without_a_cni_and_takes_text(bare: Site) -> None:
    clean = bare.node.snapshot()
    assert not bare.lab.fetch_from("pod1", BACKEND, POD_PORT)
    priorities = {"from_pod": 1350}
    given = {"enis": CUSTOM["enis"], "pod_interfaces": ["veth-*"], "priorities": priorities}
    text = {"protocol": "76", **{name: json.dumps(value) for name, value in given.items()}}
    converged = bare.play(**{**CUSTOM, **text})
    assert converged.changed == 1 and not bare.metadata.requests
    answer = bare.lab.fetch_from("pod1", BACKEND, POD_PORT)
    assert answer and answer.peer == ENI.pod_address(0)
    assert bare.is_node_port_answered()
    assert bare.play(**CUSTOM, protocol=76, priorities=priorities).changed == 0
    bare.play(state="absent", protocol=76)
    assert bare.node.snapshot() == clean


def test_a_node_where_systemd_does_not_run_is_an_image_and_its_metadata_is_not_asked(aws: Site) -> None:
    before = aws.node.snapshot()
    image = aws.play(mode="auto", primary_interface="eth0", **AWS)
    assert "An image: systemd does not run on it" in image.output and image.changed == 1
    assert not aws.metadata.requests
    after = aws.node.snapshot()
    assert {key: after[key] for key in after if key != "files"} == {key: before[key] for key in before if key != "files"}
    policy_file = aws.node.read("/etc/kubenode/policy-routes-75.json")
    assert '"enis": {"layout": "aws_vpc_cni", "cloud": "auto", "pod_interfaces": ["veth-*"]}' in policy_file
    aws.module(mode="auto", state="absent").run()
    assert aws.node.snapshot() == before


def test_a_layout_that_would_drop_replies_is_refused_and_changes_nothing(aws: Site) -> None:
    refused = aws.module(layout="cilium", remedy="strict", connmark="never").refused()
    assert "every reply to a pod that comes in by the primary ENI would be dropped" in refused
