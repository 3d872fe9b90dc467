# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""cni_info on a node with the traces of several CNIs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from lab import Lab, azure_vnet, background, cilium, kube_proxy
from lab.azure_bridge import enslave
from lab.node import NamespaceNode
from lab.steps import Steps, warnings
from lab.waiting import until

CONFIGURATIONS = "/etc/cni/net.d"


@pytest.fixture
def node(lab: Lab) -> NamespaceNode:
    node: NamespaceNode = lab.node("node1")
    node.remove(CONFIGURATIONS)  # the host may have podman's
    return node


def look(node: NamespaceNode) -> dict[str, Any]:
    before = node.snapshot()
    found = Steps(node, "cni_info").run()
    assert not found["changed"] and node.snapshot() == before
    return found


TERWAY = """table ip terway_symmetric {
    chain prerouting {
        type filter hook prerouting priority mangle;
        iifname "eth0" ct mark set ct mark & 0xffffffcf | 0x20 comment "terway-symmetric"
        meta mark set ct mark & 0x30 comment "terway-symmetric"
    }
}
"""


def test_the_marks_of_cnis_are_seen_in_every_backend(node: NamespaceNode) -> None:
    marks = [{"link": "eth0", "mask": "0x30", "mark": "0x20", "trouble": ""}]
    for backend in ("nft", "legacy"):
        rule = [f"iptables-{backend}", "-t", "mangle", "-A", "PREROUTING", "-m", "comment", "--comment"]
        node.run([*rule, "AWS, primary ENI", "-i", "eth0", "-j", "CONNMARK", "--set-mark", "0x20/0x30"])
        assert look(node)["marks"][-1]["trouble"] == "no rule copies the mark to the packets of pods"
        node.run([*rule, "AWS, primary ENI", "-i", "eni+", "-j", "CONNMARK", "--restore-mark", "--mask", "0x30"])
    node.run(["nft", "-f", "-"], TERWAY)
    places = {
        "table ip mangle (nft)": "amazon-vpc-cni",
        "table ip terway_symmetric (nft)": "Terway",
        "table ip mangle (legacy)": "amazon-vpc-cni",
    }
    assert look(node)["marks"] == [{**marks[0], "owner": owner, "place": place} for place, owner in places.items()]


def conflist(*types: str) -> str:
    return json.dumps({"name": "net", "plugins": [{"type": one} for one in types]})


def test_a_bare_node(node: NamespaceNode) -> None:
    found = look(node)
    assert (found["plugins"], found["configurations"], found["is_cilium"]) == ([], [], False)
    assert (found["bridge"], found["bridge_ports"], found["others"], found["neighbors"]) == ("", [], {}, [])
    assert found["marks"] == []
    assert found["azure_vnet"] == {"mode": "", "pods": [], "cns": {}}
    assert found["cilium_agent"] == {"trouble": "", "not_ready_taint": "node.cilium.io/agent-not-ready"}


def test_the_agent_is_asked_whether_it_is_healthy(node: NamespaceNode) -> None:
    def trouble() -> str:
        said: str = look(node)["cilium_agent"]["trouble"]
        return said

    cilium.create_links(node)
    refused = trouble()
    assert refused.startswith("does not answer GET /healthz at port 9879 (127.0.0.1: ") and "; ::1: " in refused
    agent = node.serve(cilium.HEALTH_PORT)
    assert trouble() == ""
    agent.status = 503
    assert trouble() == "answers GET /healthz at port 9879 of 127.0.0.1 with the status 503"


def test_the_agents_own_options_name_its_port_and_its_taint(node: NamespaceNode) -> None:
    cilium.create_links(node)
    node.serve(9999)
    options = {"kube-proxy-replacement": "false", "agent-health-port": "9999", "agent-not-ready-taint-key": "example.com/wait"}
    with cilium.agent(node, options):
        assert look(node)["cilium_agent"] == {"trouble": "", "not_ready_taint": "example.com/wait"}


def test_azure_vnets_mode_its_pods_and_azure_cns(lab: Lab, node: NamespaceNode) -> None:
    node.write(f"{CONFIGURATIONS}/10-azure.conflist.cilium_bak", azure_vnet.conflist("azure-vnet"))
    pod = azure_vnet.AzurePod(41)
    node.ip([f"link add {pod.host_link} type veth peer name eth1 netns {lab.pod('pod1').pid}"])
    lab.pod("pod1").ip([f"address add {pod.address}/16 dev eth1"])
    found = look(node)["azure_vnet"]
    assert found == {"mode": "bridge", "pods": [{"link": pod.host_link, "addresses": [pod.address]}], "cns": {}}
    node.run(["sh", "-ec", "mkdir /run/cns && cp /bin/sleep /run/cns/azure-cns"])
    for configured, told in (("", None), ("{}", False), ('{"ManageEndpointState": true}', True)):
        node.write("/run/cns/cns_config.json", configured)
        with background.shell(node, "exec /run/cns/azure-cns 60"):
            until("azure-cns runs", lambda: look(node)["azure_vnet"]["cns"])
            cns = look(node)["azure_vnet"]["cns"]
        assert cns == {"configuration": "/run/cns/cns_config.json", "manages_endpoint_state": told}


def test_the_first_configuration_decides_and_cilium_must_have_been_there(node: NamespaceNode) -> None:
    node.write(f"{CONFIGURATIONS}/10-azure.conflist", conflist("azure-vnet", "portmap"))
    found = look(node)
    assert (found["plugins"], found["cilium_agent"]["trouble"]) == (["azure-vnet", "portmap"], "")
    node.write(f"{CONFIGURATIONS}/05-cilium.conflist", conflist("cilium-cni"))
    node.write(f"{CONFIGURATIONS}/00-broken.conf", "{")
    node.write(f"{CONFIGURATIONS}/01-old.conflist.cilium_bak", conflist("azure-vnet"))
    found = look(node)
    assert (found["plugins"], found["is_cilium"]) == (["cilium-cni"], False)
    assert found["cilium_agent"]["trouble"] == "has not created its link cilium_host"
    assert f"{CONFIGURATIONS}/01-old.conflist.cilium_bak" not in found["configurations"]
    cilium.create_links(node)
    assert look(node)["is_cilium"]


def test_whose_pods_are_here_and_what_others_left(node: NamespaceNode) -> None:
    enslave(node)
    pods = ["azv0123456789a", "lxc0123456789ab", "lxc_health", "calib1c2"]
    node.ip([f"link add {name} type veth peer name p{number}" for number, name in enumerate(pods)])
    node.ip([f"link set {pods[0]} master azure0", "link add cni0 type bridge"])
    node.run(["iptables-nft", "-t", "nat", "-N", "AWS-SNAT-CHAIN-0"])
    node.run(["ip6tables-nft", "-t", "nat", "-N", "FLANNEL-POSTRTG"])
    for link, address in (("azure0", "192.0.2.98"), (pods[1], "192.0.2.99")):
        node.ip([f"neighbour add {address} lladdr 12:34:56:78:9a:bc nud permanent dev {link}"])
    found = look(node)
    assert (found["bridge"], found["bridge_ports"]) == ("azure0", ["azv0123456789a", "eth0"])
    assert found["pods"] == {
        "azure_vnet": ["azv0123456789a"], "cilium": ["lxc0123456789ab"], "other": ["calib1c2"]
    }  # fmt: skip
    assert found["others"] == {
        "amazon-vpc-cni": ["chain AWS-SNAT-CHAIN-0 in ip nat (nft)"],
        "flannel": ["chain FLANNEL-POSTRTG in ip6 nat (nft)", "link cni0"],
    }
    assert found["neighbors"] == ["192.0.2.99 dev lxc0123456789ab lladdr 12:34:56:78:9a:bc PERMANENT"]


def test_chains_of_kube_proxy_are_named_once_it_does_not_run(node: NamespaceNode) -> None:
    for program, chain in (("iptables-nft", "KUBE-SERVICES"), ("iptables-nft", "KUBE-SVC-ABCDEFGHIJKLMN27"), *_KUBELETS):
        node.run([program, "-t", "nat", "-N", chain])
    node.run(["nft", "add table ip6 kube-proxy; add chain ip6 kube-proxy services"])
    leftovers = {"ip nat (nft)": ["KUBE-SERVICES", "KUBE-SVC-ABCDEFGHIJKLMN27"], "ip6 kube-proxy (nft)": ["services"]}
    with _process(node, "kube-proxy"):
        found = look(node)
        assert (found["kube_proxy_leftovers"], warnings(found)) == ({}, [])
    found = look(node)
    assert found["kube_proxy_leftovers"] == leftovers
    assert [one["text"] for one in found["leftovers"]] == ["KUBE-SERVICES and 1 more", "services"]
    assert found["leftovers"][1]["command"] == "nft delete table ip6 kube-proxy"
    (warning,) = warnings(found)
    chains = "KUBE-SERVICES, KUBE-SVC-ABCDEFGHIJKLMN27 in ip nat (nft); services in ip6 kube-proxy (nft)."
    assert chains in warning and "run kube-proxy --cleanup" in warning


_KUBELETS = (("iptables-nft", "KUBE-POSTROUTING"), ("iptables-nft", "KUBE-FIREWALL"), ("ip6tables-nft", "KUBE-MARK-MASQ"))


@contextmanager
def _process(node: NamespaceNode, name: str) -> Iterator[None]:
    """A process with this name, in the network of the node."""
    command = node.command(["sh", "-c", f"printf {name} > /proc/$$/comm; echo; read -r line"])
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:
        assert running.stdout and running.stdout.readline()
        yield
        running.communicate()


MARKS = """
import json, sys
from ansible_collections.kubenode.datapath.plugins.module_utils._cni import marks_backend
from ansible_collections.kubenode.datapath.plugins.module_utils._platform import process
from ansible_collections.kubenode.datapath.plugins.module_utils._ruleset import service_rules

marks = [marks_backend.foreign(marks_backend.read_all(process.run).tables, 75, "")]
service_rules.is_generated = lambda chain: False
marks.append(marks_backend.foreign(marks_backend.read_all(process.run).tables, 75, ""))
print(json.dumps([[mark.text for mark in each] for each in marks]))
"""


@pytest.mark.parametrize("mode", kube_proxy.MODES)
def test_marks_are_found_without_a_look_into_the_chain_of_each_service(node: NamespaceNode, mode: str) -> None:
    kube_proxy.load(node, mode, kube_proxy.services(20))
    node.run(["nft", "-f", "-"], TERWAY)
    path = f"import sys; sys.path[:0] = {sys.path!r}\n"
    some, all_chains = json.loads(node.run([sys.executable, "-c", path + MARKS]).stdout)
    assert some == all_chains and len([text for text in some if "0x4000" in text]) >= 1
