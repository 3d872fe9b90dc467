# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The blocks of docs/recipes.md, run as they stand there, on nodes that boot."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from lab import Lab, Node, collection, playbook
from lab.container import SystemdNode
from lab.playbook import Played

PROFILE = "kubenode.datapath.aks_dual_stack"
TABLE = "ip6 azureSLBProbe"
PAGE = (collection.CHECKOUT / "docs/recipes.md").read_text()


def block(section: str, language: str) -> str:
    """The code block of a section, as a reader copies it."""
    (text,) = re.findall(rf"^## {section}\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
    (found,) = re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return str(found)


def bare(name: str, system: str, *lacks: str) -> Node:
    """A node whose apt can install the packages that it lacks."""
    return Node(name, pods=["pod1"], system=system, without=["nftables", *lacks], besides=lacks)


def is_answered(lab: Lab) -> bool:
    return bool(lab.load_balancer.probe_tcp(lab.pod("pod1").address, 8080))


def boots_with_the_table(lab: Lab, *others: str) -> None:
    node: SystemdNode = lab.node("node1")
    node.reboot()
    assert set(node.kubelet_starts()[-1].tables) == {TABLE, *others}
    assert is_answered(lab)


# image-builder's variables for each play besides the user's, and the steps of its sysprep that could break a profile:
# packages are held, apt's lists and the machine id go, and with "uninitialized" the next boot applies systemd's presets.
GIVEN = ("packer_build_name=sig-ubuntu-2404", "packer_builder_type=azure-arm", "http_proxy= https_proxy= no_proxy= python_path=")
PROXIES = {name: "" for name in ("http_proxy", "https_proxy", "no_proxy", "PYTHONPATH")}
SYSPREP = (
    "dpkg-query -f '${binary:Package}\\n' -W | xargs apt-mark hold && rm -rf /var/lib/apt/lists/* /var/tmp/*"
    " && echo uninitialized > /etc/machine-id && : > /etc/hostname"
)
CONFIGURATION = "[defaults]\nremote_tmp = /tmp/.ansible\ninject_facts_as_vars = False\n"


@pytest.fixture(scope="module")
def builder() -> Iterator[Lab]:
    with Lab("image-builder", nodes=[bare("node1", "bookworm")], metadata=True) as lab:
        yield lab


def build(lab: Lab, folder: Path) -> Played:
    """A play of the shape of image-builder's, with the variables that its Packer template takes from the recipe."""
    recipe = json.loads(block("Cluster API on Azure", "json"))
    roles = {"ansible.builtin.include_role": {"name": "{{ role }}"}, "loop": "{{ node_custom_roles_post.split() }}"}
    tasks = [
        {"name": "Include custom roles", **roles, "loop_control": {"loop_var": "role"}},
        {"name": "Complete the image", "ansible.builtin.shell": SYSPREP, "changed_when": False},
    ]
    play = folder / "node.yml"
    play.write_text(json.dumps([{"hosts": "all", "become": True, "environment": PROXIES, "tasks": tasks}]))
    (folder / "ansible.cfg").write_text(CONFIGURATION)
    words = [*GIVEN, f'node_custom_roles_post="{recipe["node_custom_roles_post"]}"', recipe["ansible_user_vars"]]
    arguments = [part for word in words for part in ("--extra-vars", word)]
    hosts = lab.write_inventory(folder / "inventory.json")
    return playbook.play(hosts, play, *arguments, environment={"ANSIBLE_CONFIG": str(folder / "ansible.cfg")}).well()


def test_image_builder_ends_with_an_image_that_boots_with_the_table(builder: Lab, tmp_path: Path) -> None:
    node: SystemdNode = builder.node("node1")
    node.place_kubelet_stand_in()
    node.run(["systemctl", "mask", "--quiet", "systemd-firstboot.service"])  # asks for a time zone, and the node has no console
    for changed in (1, 0):
        result = build(builder, tmp_path)
        assert result.changed == changed, result.output
        assert "An image: Packer builds it." in result.output
        assert node.run(["nft", "list", "tables"]).stdout == ""
    assert not is_answered(builder)
    boots_with_the_table(builder, "inet filter")  # of nftables.service, which Debian's presets enable, and which flushes first
    hosts = builder.write_inventory(tmp_path / "inventory.json")
    run = playbook.play(hosts, PROFILE, "-e", "kubenode_target=all").well()
    assert run.changed == 0 and "A running node: systemd runs on it." in run.output, run.output


@pytest.fixture(scope="module")
def joining() -> Iterator[Lab]:
    with Lab("capi", nodes=[bare("node1", "trixie", "ansible-core")], metadata=True) as lab:
        yield lab


def commands(folder: Path) -> str:
    """The commands of the recipe; the collection is built here, because the node has no way to Galaxy."""
    collection.build(folder)
    given = yaml.safe_load(block("Cluster API on Azure", "yaml"))["preKubeadmCommands"]
    offline_lines = [one.replace("install kubenode.datapath", "install --offline /srv/collection/*.tar.gz") for one in given]
    assert offline_lines != given
    return "\n".join(["set -ex", *offline_lines, ""])


def test_the_commands_before_kubeadm_install_and_run_the_profile(joining: Lab, tmp_path: Path) -> None:
    """As in a service such as cloud-init, which has no home and no locale."""
    node: SystemdNode = joining.node("node1")
    node.write("/srv/commands.sh", commands(tmp_path))
    node.copy_in(tmp_path, "/srv/collection")
    for changed in (1, 0):
        ran = node.run(["systemd-run", "--wait", "--pipe", "--quiet", "sh", "/srv/commands.sh"], check=False, timeout=300)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        assert re.search(rf"^localhost +: ok=\d+ +changed={changed} ", ran.stdout, re.MULTILINE), ran.stdout
        assert is_answered(joining)
    node.place_kubelet_stand_in()
    boots_with_the_table(joining)
