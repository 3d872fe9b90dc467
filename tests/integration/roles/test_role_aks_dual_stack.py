# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role aks_dual_stack as a user runs it: its playbook, on a node with metadata."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sampling import sampled

from lab import Lab, Node, agentbaker, bpf, cilium, playbook
from lab.metadata import Behaviour, MetadataServer
from lab.metadata_replies import DUAL_STACK, IPV4_ONLY
from lab.node import NamespaceNode
from lab.playbook import Played
from lab.steps import Steps

PLAYBOOK = "kubenode.datapath.aks_dual_stack"
AZURE = "neighbor add 192.0.2.254 lladdr 12:34:56:78:9a:bc dev eth0 nud permanent"  # as the gateway of each node in Azure


class Site:
    """A lab with metadata, and the playbook that is run against its node."""

    def __init__(self, lab: Lab, metadata: MetadataServer, inventory: Path) -> None:
        self.lab = lab
        self.node: NamespaceNode = lab.node("node1")
        self.metadata = metadata
        self.inventory = inventory

    def play(self, *arguments: str, **variables: str) -> Played:
        """Run the playbook with a mode: the namespace node has no systemd of its own, and would be taken for an image."""
        return playbook.play(self.inventory, PLAYBOOK, *arguments, variables={"aks_dual_stack_mode": "runtime", **variables})

    def module(self, **options: Any) -> Steps:
        """The role's module on the node, without Ansible's controller. A later run of the playbook has the same Python,
        which units of the boot name."""
        playbook.tell(self.inventory, "node1", ansible_python_interpreter=sys.executable)
        return Steps(self.node, "profile", {"name": "aks_dual_stack", "options": {"mode": "runtime", **options}})

    def is_answered(self) -> bool:
        return self.lab.load_balancer.probe_tcp(self.lab.pod("pod1").address, 8080)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Lab("role", nodes=[Node("node1", pods=["pod1"])]) as lab, MetadataServer(lab.load_balancer) as metadata:
        yield Site(lab, metadata, lab.write_inventory(tmp_path / "inventory.json"))


def _without_tense(output: str) -> str:
    """The output without what is different in check mode: the batches, and the future tense."""
    return re.sub(r"^PLAY \[.*|would (?=change)|changed?", "", output, flags=re.MULTILINE)


@pytest.mark.each_core
def test_a_run_makes_what_check_mode_predicts_and_absent_restores_the_node(site: Site) -> None:
    clean = site.node.snapshot()
    predicted = site.play("--check", "--diff").well()
    assert predicted.changed == 1 and site.node.snapshot() == clean
    played = site.play("--diff").well()
    assert _without_tense(played.output) == _without_tense(predicted.output)
    assert played.changed == 1 and site.is_answered()
    after = site.node.snapshot()
    assert site.play().well().changed == 0 and site.node.snapshot() == after
    assert site.play(aks_dual_stack_state="absent").well().changed == 1
    assert site.node.snapshot() == clean


def test_a_machine_that_is_not_the_node_is_refused_before_a_change(site: Site) -> None:
    """The inventory has the ids of the Node object. They cost no task and no module."""
    site.node.write("/etc/machine-id", f"{1:032x}\n")
    before = site.node.snapshot()
    playbook.tell(site.inventory, "node1", kubenode_name="node1", kubenode_machine_id=f"{2:032x}")
    for arguments in (["--check"], ["-vvv"]):
        refused = site.play(*arguments)
        assert refused.failed and f"its machine id is {1:032x}, and that of the Node object is {2:032x}" in refused.output
    assert {*refused.modules} == {"profile"} and site.node.snapshot() == before
    playbook.tell(site.inventory, "node1", kubenode_machine_id=f"{1:032x}")
    assert {*site.play("-vvv").well().modules} == {"profile"} and site.node.snapshot() != before


def test_the_profile_is_rehearsed_in_a_twin_where_asked(site: Site) -> None:
    before = site.node.snapshot()
    probe = {"source": "fe80::1234:5678:9abc", "destination": site.lab.pod("pod1").address, "destination_port": 8080}
    packets = json.dumps([{**probe, "interface": "eth0"}])
    predicted = site.play("--check", aks_dual_stack_rehearse="true", aks_dual_stack_rehearse_packets=packets).well()
    assert site.node.snapshot() == before and "It arrives with them" in predicted.output, predicted.output
    played = site.play(aks_dual_stack_rehearse="true", aks_dual_stack_rehearse_packets=packets).well()
    assert (played.changed, site.is_answered()) == (1, True)
    gone = site.play(aks_dual_stack_state="absent", aks_dual_stack_rehearse="true", aks_dual_stack_rehearse_packets=packets)
    assert gone.failed and "packets[0] (tcp [fe80::1234:5678:9abc]:40000" in gone.output and site.is_answered()


def test_audits_say_what_the_profile_mends_and_what_is_still_there(site: Site) -> None:
    """The profile that translates another source leaves the probe lost."""
    site.node.ip([AZURE])
    audited = {"aks_dual_stack_audit": "true"}
    finding = "probe-untranslated eth0"
    predicted = site.play("--check", "-vvv", **audited).well()
    assert f"Before: risk {finding}: " in predicted.output and "After: " not in predicted.output
    other = json.dumps([{"source": "fe80::10", "translated": "2001:db8:ffff::10"}])
    unmended = site.play(aks_dual_stack_probes=other, **audited).well()
    assert f"After: {finding} is still there." in unmended.output
    said = " ".join(unmended.output.split())
    assert f"With aks_dual_stack applied, {finding} is still there: " in said, "a warning"
    assert "The packet that is lost: tcp [fe80::1234:5678:9abc]:40000 > " in said
    mended = site.play("-vvv", **audited).well()
    assert f"Before: risk {finding}: " in mended.output and f"After: {finding} is gone." in mended.output
    assert [name for name in mended.modules if name != "datapath_audit"] == ["profile"]
    assert mended.modules[-1] == "datapath_audit" and site.is_answered()
    converged = site.play("-vvv", **audited).well()
    assert (converged.changed, converged.modules) == (0, ["datapath_audit", "profile"])
    assert "The audit finds nothing that aks_dual_stack mends, and the run changes nothing." in converged.output
    assert site.play("-vvv", aks_dual_stack_state="absent", **audited).well().modules == ["profile"]


@pytest.mark.parametrize("by", ["imds", "never"])
def test_nothing_is_written_on_a_node_without_ipv6_and_what_was_is_removed(site: Site, by: str) -> None:
    clean = site.node.snapshot()
    site.metadata.nics = (IPV4_ONLY,)
    assert not site.module(ipv6=by).run()["changed"]
    assert site.node.snapshot() == clean
    site.metadata.nics = (DUAL_STACK,)
    assert site.module().run()["changed"]
    site.metadata.nics = (IPV4_ONLY,)
    assert site.module(ipv6=by).run()["changed"]
    assert site.node.snapshot() == clean


def test_an_ipv6_address_of_the_interface_decides(site: Site) -> None:
    site.metadata.stop()
    site.node.ip([f"address del {site.node.address}/64 dev eth0"])
    assert not site.module(ipv6="address").run()["changed"]
    site.node.ip([f"address add {site.node.address}/64 dev eth0 nodad"])
    assert site.module(ipv6="address").run()["changed"]


def test_metadata_that_does_not_answer_fails_the_run_and_changes_nothing(site: Site) -> None:
    site.module().run()
    site.metadata.change(Behaviour(fault="garbage"))
    assert "metadata" in site.module().refused()


def test_a_link_with_a_dot_in_its_name_decides_and_probes_may_be_json_text(site: Site) -> None:
    probes = json.dumps([{"source": "fe80::10", "translated": "2001:db8:ffff::10"}])
    site.node.ip(
        [
            "link add name eth0.100 type veth peer name other",
            "link set eth0.100 up",
            "address add 2001:db8:77::5/64 dev eth0.100 nodad",
        ]
    )
    given = {"aks_dual_stack_interface": "eth0.100", "aks_dual_stack_probes": probes}
    assert site.play("--extra-vars", json.dumps(given), aks_dual_stack_ipv6="address").changed == 1
    assert "fe80::10" in site.node.read("/etc/kubenode/probe-snat.nft")


def test_the_report_says_which_unit_loads_the_table(site: Site) -> None:
    """What the module does beside AgentBaker's unit is in _probe_snat/test_agentbaker.py."""
    agentbaker.place(site.node, is_enabled=False)  # as on Azure Container Linux
    said = site.play("--check").well().output
    assert "The node's image has AgentBaker's files, but ipv6_nftables.service is not enabled." in said
    site.node.run(["nft", "-f", "-"], agentbaker.TABLE)
    agentbaker.place(site.node)
    said = site.play("--check").well().output
    assert "ipv6_nftables.service of the node's image loads the table. The role leaves the table to that unit." in said
    assert "Set aks_dual_stack_agentbaker to take_over" in said
    said = site.play("--check", aks_dual_stack_agentbaker="take_over").well().output
    assert "The role's unit replaces ipv6_nftables.service of the node's image." in said


REPLACING = {"kube-proxy-replacement": "true", "enable-ipv6": "true"}
TABLE_FILE, PROGRAMS_FILE = "/etc/kubenode/probe-snat.nft", "/etc/kubenode/probe-snat.json"


def _translates(site: Site) -> str:
    """What translates a probe now, on both planes: all else of both backends must be absent."""
    has_table = "table ip6 azureSLBProbe" in site.node.snapshot()["nft"]
    assert has_table is site.node.exists(TABLE_FILE) is not site.node.exists(PROGRAMS_FILE)
    return "nftables" if has_table else "bpf"


@pytest.mark.parametrize("hook", sampled(["ingress", "tcx"], lambda hook: hook == "tcx"))
def test_auto_translates_by_programs_where_cilium_takes_probes(site: Site, hook: bpf.Hook) -> None:
    """Beside a program that hands TCP over IPv6 to the link of the pod, as those of Cilium do with what they have translated."""
    cilium.create_links(site.node)
    bpf.attach(site.node, hook, "cil_from_netdev", to=site.lab.pod("pod1").link)
    assert not site.is_answered()
    with cilium.agent(site.node, REPLACING):
        clean = site.node.snapshot()
        predicted = site.play("--check", "--diff").well()
        assert predicted.changed == 1 and site.node.snapshot() == clean
        played = site.play("--diff").well()
        assert _without_tense(played.output) == _without_tense(predicted.output)
        kind = {"ingress": "tc"}.get(hook, hook)
        taken = f"{kind} cil_from_netdev of Cilium on eth0 takes them before nftables sees them."
        assert f"Probes are translated by BPF programs: {taken}" in played.output
        assert "Need of the programs: possible." in played.output
        assert "nftables_package (absent): nothing to do" in played.output and "table ip6" not in played.output
        assert site.is_answered() and _translates(site) == "bpf"
        after = site.node.snapshot()
        again = site.play("-vvv").well()
        assert (again.changed, again.modules) == (0, ["profile"]) and site.node.snapshot() == after
        assert site.play(aks_dual_stack_state="absent").well().changed == 1
        assert site.node.snapshot() == clean and not site.is_answered()


def test_a_node_that_gets_cilium_moves_to_the_programs_in_one_run_and_back(site: Site) -> None:
    clean = site.node.snapshot()
    profile = site.module()
    first = profile.run()
    assert first["node"]["backend"] == _translates(site) == "nftables" and site.is_answered()
    cilium.create_links(site.node)
    bpf.attach(site.node, "tcx", "cil_from_netdev", to=site.lab.pod("pod1").link)
    with cilium.agent(site.node, REPLACING):
        moved = profile.four()
        assert moved["node"]["backend"] == _translates(site) == "bpf" and site.is_answered()
    unclear = profile.run()
    assert not unclear["changed"] and "those of an earlier run stay" in unclear["node"]["backend_reason"]
    bpf.detach(site.node, "tcx", "cil_from_netdev")
    site.node.ip(["link delete cilium_host"])
    returned = profile.four()
    assert returned["node"]["backend"] == _translates(site) == "nftables" and site.is_answered()
    profile.run(options={"mode": "runtime", "state": "absent"})
    site.node.run(["sh", "-c", "rm /run/background*"])  # the agent's
    assert site.node.snapshot() == clean


def test_the_backend_of_the_option_is_taken_as_it_is(site: Site) -> None:
    chosen = site.module(backend="bpf").run()
    assert chosen["node"]["backend_reason"] == "Probes are translated by BPF programs: aks_dual_stack_backend says so."
    assert _translates(site) == "bpf" and site.is_answered()
    site.module(backend="nftables").run()
    assert _translates(site) == "nftables" and site.is_answered()


def test_a_rehearsal_beside_cilium_says_that_a_twin_has_no_programs(site: Site) -> None:
    probe = {"source": "fe80::1234:5678:9abc", "destination": site.lab.pod("pod1").address, "destination_port": 8080}
    given = {
        "aks_dual_stack_rehearse": "true",
        "aks_dual_stack_rehearse_packets": json.dumps([{**probe, "interface": "eth0"}]),
    }
    before = site.node.snapshot()
    standing_in = site.play("--check", aks_dual_stack_backend="bpf", **given).well()
    assert site.node.snapshot() == before and "It arrives with them" in standing_in.output, "the table in the programs' place"
    cilium.create_links(site.node)
    bpf.attach(site.node, "tcx", "cil_from_netdev", to=site.lab.pod("pod1").link)
    with cilium.agent(site.node, REPLACING):
        played = site.play(**given).well()
        said = " ".join(played.output.split())
        assert "packets[0] cannot be rehearsed: BPF programs on the path decide, and a twin has none: cil_from_netdev" in said
        assert played.changed == 1 and site.is_answered()
        assert site.play(aks_dual_stack_state="absent", **given).well().changed == 1
