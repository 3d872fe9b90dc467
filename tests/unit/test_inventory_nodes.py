# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The inventory plugin, by the official client, against an API that serves Node objects by HTTP."""

from __future__ import annotations

import json
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest

pytest.importorskip("ansible")
pytest.importorskip("kubernetes")

import yaml
from ansible import constants
from ansible.errors import AnsibleError
from ansible.inventory.data import InventoryData
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.doc_fragments import constructed, inventory_cache

from ansible_collections.kubenode.datapath.plugins.inventory import nodes as plugin_file
from ansible_collections.kubenode.datapath.plugins.inventory.nodes import InventoryModule
from ansible_collections.kubenode.datapath.plugins.plugin_utils import _cluster_nodes
from lab import node_api
from lab.node_api import Api, kubeconfig, node

NAME = InventoryModule.NAME


@pytest.fixture
def api() -> t.Iterator[Api]:
    nodes = [
        node(
            "a",
            "10.0.0.4",
            "aws:///eu-west-1a/i-0a",
            topology_kubernetes_io__region="eu-west-1",
            eks_amazonaws_com__nodegroup="big-1",
        ),
        node("b", "2001:db8::5", "aws:///eu-west-1b/i-0b"),
        node("fargate", "-oProxyCommand=reboot", "aws:///eu-west-1b/1/fargate-1"),
    ]
    for served in nodes[:2]:
        served["status"]["addresses"].append({"type": "InternalDNS", "address": "same"})
    with node_api.serving(nodes, page=2) as server:
        yield server


def plugin() -> InventoryModule:
    """The plugin as Ansible's loader makes it. The loader itself would take over the imports of all unit tests."""
    texts = [plugin_file.DOCUMENTATION, *(one.ModuleDocFragment.DOCUMENTATION for one in (constructed, inventory_cache))]
    options = {name: option for text in texts for name, option in yaml.safe_load(text)["options"].items()}
    constants.config.initialize_plugin_configuration_definitions("inventory", NAME, options)
    made = InventoryModule()
    made._load_name = made.ansible_name = NAME
    made._redirected_names = [NAME]
    return made


def listed(folder: Path, use_cache: bool = True, **options: t.Any) -> InventoryData:
    path = folder / "x.kubenode.yml"
    options.setdefault("kubeconfig", str(folder / "config"))
    path.write_text(json.dumps({"plugin": NAME, **options}))
    made, inventory = plugin(), InventoryData()
    made.parse(inventory, DataLoader(), str(path), use_cache)
    if options.get("cache"):
        made.update_cache_if_changed()
    return inventory


def members(inventory: InventoryData) -> dict[str, list[str]]:
    return {name: sorted(host.name for host in group.hosts) for name, group in inventory.groups.items() if group.hosts}


def test_nodes_are_listed_by_pages_in_safe_groups_with_variables(api: Api, tmp_path: Path) -> None:
    kubeconfig(tmp_path, api.server_port)
    found = listed(tmp_path, label_selector="x=y,z notin (1)", user="ops", jump_host="ops@jump:22,[2001:db8::1]")
    everyone = ["a", "b", "fargate"]
    assert members(found) == {
        **{"nodes": everyone, "pool_big_1": ["a"], "region_eu_west_1": ["a"]},
        **{"cloud_aws": everyone, "os_linux": everyone, "arch_arm64": everyone},
    }
    variables = found.hosts["a"].vars
    assert {
        key: variables[key] for key in ("ansible_host", "ansible_user", "ansible_ssh_common_args", "kubenode_instance_id")
    } == {
        "ansible_host": "10.0.0.4",
        "ansible_user": "ops",
        "ansible_ssh_common_args": "-o 'ProxyJump=ops@jump:22,[2001:db8::1]'",
        "kubenode_instance_id": "i-0a",
    }
    assert found.hosts["b"].vars["ansible_host"] == "2001:db8::5"
    assert found.hosts["fargate"].vars["ansible_host"] == "fargate"  # its other address is invalid
    assert [query.get("continue") for query in api.asked] == [None, ["2"]]
    assert {query["labelSelector"][0] for query in api.asked} == {"x=y,z notin (1)"}


def test_nodes_by_systems_manager(api: Api, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kubeconfig(tmp_path, api.server_port)
    found = listed(tmp_path, connection="amazon.aws.aws_ssm", compose={"ansible_aws_ssm_bucket_name": "'files'"})
    assert members(found)["nodes"] == ["a", "b"]
    assert {key: value for key, value in found.hosts["a"].vars.items() if key.startswith("ansible")} == {
        "ansible_connection": "amazon.aws.aws_ssm",
        "ansible_aws_ssm_instance_id": "i-0a",
        "ansible_aws_ssm_region": "eu-west-1",
        "ansible_aws_ssm_bucket_name": "files",
    }
    assert "Node fargate has no instance id" in "".join(capsys.readouterr()).replace("\n", " ")


def test_variables_and_groups_of_the_user(api: Api, tmp_path: Path) -> None:
    kubeconfig(tmp_path, api.server_port)
    found = listed(
        tmp_path,
        compose={"first": "(kubenode_ipv6 + kubenode_ipv4) | first", "bad": "missing_variable"},
        groups={"six": "kubenode_ipv6"},
        keyed_groups=[
            {"key": "kubenode_labels['eks.amazonaws.com/nodegroup'] | default('')", "prefix": "ng", "default_value": "none"}
        ],
    )
    assert found.hosts["b"].vars["first"] == "2001:db8::5"
    assert "bad" not in found.hosts["b"].vars
    assert (members(found)["ng_big_1"], members(found)["ng_none"]) == (["a"], ["b", "fargate"])
    assert "six" not in members(found)  # a list is no condition


def said(capsys: pytest.CaptureFixture[str]) -> str:
    return " ".join("".join(capsys.readouterr()).split())


def test_a_node_takes_no_place_of_another_machine(api: Api, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kubeconfig(tmp_path, api.server_port)
    names = {"loopback": "127.0.0.1", "name": "b", "first": "10.0.0.4", "second": "10.0.0.4", "whole": "10.0.0.5"}
    api.nodes = [node(name, address) for name, address in names.items()]
    api.nodes[0]["status"]["addresses"][1]["address"] = "localhost"
    found = listed(tmp_path)
    assert {name: host.vars["ansible_host"] for name, host in found.hosts.items()} == {"name": "name", "whole": "10.0.0.5"}
    warnings = said(capsys)
    for warning in (
        "Node loopback: its InternalIP '127.0.0.1' is not used, because it is loopback",
        "Node loopback: its Hostname 'localhost' is not used, because it is a name of the controller itself",
        "Node loopback has no address of InternalIP, ExternalIP, Hostname; it is not in the inventory",
        "Node name: its InternalIP 'b' is not used, because it is no IP address in the usual form",
        "Nodes first and second have the address 10.0.0.4 in common, so that one Node object is stale or wrong",
    ):
        assert warning in warnings, warnings


def test_the_host_name_of_the_controller_is_no_address(api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kubeconfig(tmp_path, api.server_port)
    monkeypatch.setattr(plugin_file.socket, "gethostname", lambda: "a")
    assert "a" not in listed(tmp_path, address_types=["Hostname"]).hosts


@pytest.mark.parametrize(("connection", "instance"), [("ssh", "i-0a"), ("amazon.aws.aws_ssm", "i-0b")])
def test_two_nodes_of_one_instance_are_both_left_out(
    api: Api, tmp_path: Path, capsys: pytest.CaptureFixture[str], connection: str, instance: str
) -> None:
    kubeconfig(tmp_path, api.server_port)
    api.nodes = [node(name, f"10.0.0.{number}", f"aws:///zone/{instance}") for number, name in enumerate("ab", 1)]
    assert not listed(tmp_path, connection=connection).hosts
    assert f"Nodes a and b have the instance id {instance} in common" in said(capsys)


def test_a_node_that_nothing_tells_from_another_machine_is_left_out(
    api: Api, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kubeconfig(tmp_path, api.server_port)
    del api.nodes[0]["status"]["nodeInfo"]["machineID"]
    api.nodes[1]["status"]["nodeInfo"].update(machineID="", systemUUID="{{ 1 }}")
    assert [*listed(tmp_path).hosts] == ["a", "fargate"]
    assert "Node b has no machine id and no system UUID in its nodeInfo" in said(capsys)


def test_clones_of_an_image_are_named(api: Api, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kubeconfig(tmp_path, api.server_port)
    for served in api.nodes:
        served["status"]["nodeInfo"]["machineID"] = "0a" * 16
    assert listed(tmp_path).hosts["a"].vars["kubenode_machine_id"] == "0a" * 16
    assert "Nodes a, b, fargate have one machine id" in said(capsys)


@pytest.mark.parametrize("name", ["nodes", "all", "ungrouped"])
def test_a_node_with_the_name_of_a_group_does_not_draw_its_members_into_another(
    api: Api, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """Ansible takes the node's name for the group, so that all nodes would join a pool that one node has chosen."""
    kubeconfig(tmp_path, api.server_port)
    api.nodes = [node("a", "10.0.0.4"), node(name, "10.0.0.5", agentpool="secret")]
    found = listed(tmp_path, strict=True)
    assert members(found)["nodes"] == ["a"] and "pool_secret" not in members(found)
    assert f"Node {name} has the name of a group" in "".join(capsys.readouterr()).replace("\n", " ")


@pytest.mark.parametrize(
    "name", ["localhost", "127.0.0.1", "::1", "a,b", "A", "-oProxyCommand=x", "{{ 1 }}", "a\x1b[2J", ".", ""]
)
def test_a_node_with_a_name_of_the_controller_or_of_no_node_is_left_out(
    api: Api, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """Ansible would send tasks for localhost to a node that calls itself so."""
    kubeconfig(tmp_path, api.server_port)
    api.nodes = [node("a.b-c", "10.0.0.4"), node(name, "10.0.0.5")]
    found = listed(tmp_path)
    assert [*found.hosts] == ["a.b-c"] and found.localhost is None
    said = "".join(capsys.readouterr()).replace("\n", "")
    assert "has no name that a node may have" in " ".join(said.split()) and "\x1b[2J" not in said


HOSTILE = ["a,b", "../../etc", "x y", "all", "{{ 1 + 1 }}", "nodes", "\x1b[2J", "x" * 300, "ungrouped"]


@pytest.mark.parametrize("value", HOSTILE)
def test_a_label_moves_its_own_node_only_and_into_a_group_with_a_prefix(api: Api, tmp_path: Path, value: str) -> None:
    kubeconfig(tmp_path, api.server_port)
    api.nodes = [node("a", "10.0.0.4"), node("b", "10.0.0.5", agentpool=value, topology_kubernetes_io__zone=value)]
    usual = {"all", "ungrouped", "nodes", "os_linux", "arch_arm64"}
    found = listed(tmp_path)
    added = {name for name in found.groups if name not in usual}
    assert all(name.startswith(("pool_", "zone_", "region_")) and name.replace("_", "").isalnum() for name in added)
    assert all([host.name for host in found.groups[name].hosts] == ["b"] for name in added)


@pytest.mark.parametrize(
    ("options", "token", "said"),
    [
        ({"strict": True, "address_types": ["ExternalIP"]}, "secret", "Node a has no address of ExternalIP"),
        ({"strict": True, "address_types": ["InternalDNS"]}, "secret", "Nodes a and b have the address same in common"),
        (
            {"strict": True, "connection": "community.aws.aws_ssm"},
            "secret",
            "Node fargate has no instance id .* 'aws:///eu-west-1b/1/f",
        ),
        ({"strict": True, "compose": {"bad": "missing_variable"}}, "secret", "Could not set bad for host a"),
        ({"jump_host": "-v"}, "secret", "jump_host is '-v'; it must be USER@HOST:PORT"),
        ({"jump_host": "a -o ProxyCommand=b"}, "secret", "jump_host is 'a -o"),
        (
            {"jump_host": "a", "user": "b", "connection": "amazon.aws.aws_ssm"},
            "secret",
            "jump_host and user: only with connection ssh",
        ),
        ({"connection": "telnet"}, "secret", "telnet"),
        ({}, "stolen", "http://127.0.0.1:[0-9]+ did not list the nodes: 403 nodes is forbidden: User cannot list"),
        ({"context": "gone"}, "secret", "http://127.0.0.1:1 did not list the nodes: .*Check kubeconfig and context"),
        ({"context": "none"}, "secret", "could not be read from the kubeconfig .*config, context none"),
        ({"kubeconfig": "/none"}, "secret", "could not be read from the kubeconfig /none"),
    ],
)
def test_an_inventory_that_cannot_be_read_says_why(
    api: Api, tmp_path: Path, options: dict[str, t.Any], token: str, said: str
) -> None:
    kubeconfig(tmp_path, api.server_port, token)
    with pytest.raises(AnsibleError, match=said):
        listed(tmp_path, **options)


@pytest.mark.parametrize(("behind", "said"), [("proxy", "404 Not Found"), ("strange", ".*Check kubeconfig and context")])
def test_a_server_that_is_no_api_is_named(api: Api, tmp_path: Path, behind: str, said: str) -> None:
    path = Path(kubeconfig(tmp_path, api.server_port))
    path.write_text(path.read_text().replace(f":{api.server_port}", f":{api.server_port}/{behind}"))
    with pytest.raises(AnsibleError, match=f"did not list the nodes: {said}"):
        listed(tmp_path)


def test_a_missing_client_is_named_with_what_installs_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugin_file, "kubernetes", None)
    with pytest.raises(AnsibleError, match="has no package kubernetes.*pip install kubernetes.*python3-kubernetes"):
        listed(tmp_path)


def test_a_pod_uses_its_service_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "192.0.2.1")
    with pytest.raises(AnsibleError, match="[Ss]ervice"):
        listed(tmp_path, kubeconfig=None)


def test_the_cache_spares_the_api_and_depends_on_what_was_asked(
    api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubeconfig(tmp_path, api.server_port)
    cache: dict[str, t.Any] = {"cache": True, "cache_plugin": "jsonfile", "cache_connection": str(tmp_path / "cache")}
    first = members(listed(tmp_path, **cache))
    assert (members(listed(tmp_path, **cache)), len(api.asked)) == (first, 2)
    listed(tmp_path, label_selector="a=b", **cache)
    assert len(api.asked) == 4
    listed(tmp_path, False, **cache)  # ansible-inventory --flush-cache
    assert len(api.asked) == 6
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    listed(tmp_path, **cache)
    assert len(api.asked) == 8
    reduced = _cluster_nodes.reduced
    monkeypatch.setattr(_cluster_nodes, "reduced", lambda served: {**reduced(served), "of_the_next_version": ""})
    listed(tmp_path, **cache)
    assert len(api.asked) == 10


def test_ansible_finds_the_plugin_by_the_name_in_the_file(api: Api, tmp_path: Path) -> None:
    path = tmp_path / "kubenode.yml"
    path.write_text(json.dumps({"plugin": NAME, "kubeconfig": kubeconfig(tmp_path, api.server_port), "keyed_groups": []}))
    command = [str(Path(sys.executable).parent / "ansible-inventory"), "--inventory", str(path), "--graph", "pool_big_1"]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["@pool_big_1:", "|--a"]


@pytest.mark.parametrize(("name", "is_one"), [("kubenode.yml", True), ("aks.kubenode.yaml", True), ("hosts.yml", False)])
def test_the_name_of_the_file(tmp_path: Path, name: str, is_one: bool) -> None:
    (tmp_path / name).touch()
    assert plugin().verify_file(str(tmp_path / name)) is is_one
