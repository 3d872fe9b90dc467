# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run carries to a node: the program and a library, also for a user who becomes root."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyroute2
import pytest

from lab import Lab, Node, playbook, sealed_run
from lab.node import NamespaceNode
from lab.playbook import Played

# The program on a node, as Ansible itself starts a module: from its first run to ``absent``


FOLDER = "/var/lib/kubenode/lib"
PRESENT = {"kubenode.datapath.rp_filter": {"interfaces": ["eth0"], "mode": "loose"}}
ABSENT = {"kubenode.datapath.rp_filter": {"state": "absent"}}


class Site:
    def __init__(self, lab: Lab, folder: Path) -> None:
        self.node: NamespaceNode = lab.node("node1")
        self._folder, self._inventory = folder, lab.write_inventory(folder / "inventory.json")

    def play(self, task: dict[str, Any], *arguments: str) -> Played:
        path = playbook.write(self._folder / "play.json", [task], hosts="node1")
        return playbook.play(self._inventory, path, "-vvv", *arguments).well()

    def programs(self) -> list[str]:
        return self.node.run(["sh", "-c", f"ls -A {FOLDER} 2>/dev/null || true"]).stdout.split()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Lab("program", nodes=[Node("node1")]) as lab:
        yield Site(lab, tmp_path)


@pytest.mark.each_core
def test_the_program_comes_with_the_first_change_and_goes_with_the_last_thing(site: Site) -> None:
    clean = site.node.snapshot()
    for _time in range(2):  # nothing is kept that a second run would find
        checked = site.play(PRESENT, "--check")
        assert (checked.changed, checked.modules, site.programs()) == (1, ["rp_filter"] * 2, [])
    assert site.node.snapshot() == clean
    assert site.play(PRESENT).changed == 1
    (program,) = site.programs()
    after = site.node.snapshot()
    for arguments in ([], ["--check"]):
        converged = site.play(PRESENT, *arguments)
        assert (converged.changed, converged.modules) == (0, ["rp_filter"])
    assert site.node.snapshot() == after
    # Another version, or a file that was damaged, is replaced.
    site.node.run(["sh", "-c", f"echo >>{FOLDER}/{program}/sources; mkdir {FOLDER}/kubenode-0.9.0-0123456789abcdef"])
    assert [site.play(PRESENT, "--check").changed, site.play(PRESENT).changed, site.play(PRESENT).changed] == [1, 1, 0]
    assert site.programs() == [program] and site.node.snapshot() == after
    assert site.play(ABSENT).changed == 1
    assert site.node.snapshot() == clean
    assert site.play(ABSENT).changed == 0 and site.node.snapshot() == clean


# A carried library that another run removes or replaces while it is loaded


# Loads the library as a run does, waits until its folder has changed, and then needs it for each kind of message.
PROGRAM = """\
import sys
sys.path = [path for path in sys.path if "site-packages" not in path]
from ansible_collections.kubenode.datapath.plugins.module_utils._platform import library
from ansible_collections.kubenode.datapath.plugins.module_utils._routing import route, routing_backend, rule
library.FOLDER = sys.argv[1]
assert not library._own_version("pyroute2")
library.load(library.PYROUTE2)
print("loaded", flush=True)
input()
items = [
    rule.Rule(2, 700, (bytes([10, 0, 0, 5]), 32), table=1003),
    rule.Rule(10, 701, table=1003),
    route.Route(2, 1003, (bytes([10, 0, 0, 0]), 8), type=6),
]
send = routing_backend.Netlink().sender(75)
print(dict(send([routing_backend.Change(routing_backend.ADD, one) for one in items])))
print(len([1 for _one, protocol in routing_backend.Netlink().rules() if protocol == 75]))
"""


@pytest.mark.parametrize("event", ["removed", "replaced by a newer one"])
def test_a_run_goes_on_with_the_library_that_it_has_loaded(tmp_path: Path, event: str) -> None:
    folder = tmp_path / f"pyroute2-{pyroute2.__version__}-0123456789abcdef"
    shutil.copytree(Path(pyroute2.__file__).parent, folder / "pyroute2")
    folder.chmod(0o700)
    command = ["unshare", "--net", sys.executable, "-c", PROGRAM, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdin and program.stdout and program.stdout.readline() == "loaded\n"
        shutil.rmtree(folder)
        if event != "removed":
            newer = tmp_path / "pyroute2-99.0.0-0123456789abcdef"
            (newer / "pyroute2").mkdir(parents=True)
            (newer / "pyroute2/__init__.py").write_text("raise ImportError('another version')\n")
            newer.chmod(0o700)
        said, _none = program.communicate("\n", timeout=30)
    assert said.splitlines() == ["{}", "2"], said


# A user without privileges connects and becomes root, with temporary files in a folder that everybody can read


USER, PASSWORD, TEMPORARY, PLAY, HOSTS = "kubetest", "secret", "/tmp/remote", "/tmp/play.json", "/tmp/hosts.json"
RULES = [{"priority": 700, "from": "10.0.1.10", "table": 1003}]
TASKS = [
    # Its library is lent to the task, and that of the second is carried to the node and removed by the third.
    {
        "kubenode.datapath.datapath_trace": {
            "packet": {"destination": "10.0.0.1", "protocol": "icmp"},
            "changes": [{"policy_routes": {"rules": RULES}}],
        }
    },
    {"kubenode.datapath.policy_routes": {"rules": RULES, "permanent": False}},
    {"kubenode.datapath.policy_routes": {"state": "absent"}},
]


def prepare() -> None:
    subprocess.run(["useradd", "--create-home", "--shell", "/bin/sh", USER], check=True)
    subprocess.run(["chpasswd"], input=f"root:{PASSWORD}\n", text=True, check=True)
    for path in Path(sys.prefix).parents:  # the tools may be in the home of root
        path.chmod(path.stat().st_mode | 0o055)
    Path(TEMPORARY).mkdir()
    Path(TEMPORARY).chmod(0o1777)
    subprocess.run(["/usr/bin/python3", "-m", "venv", "--without-pip", "/tmp/bare"], check=True)  # without pyroute2
    Path(PLAY).write_text(json.dumps([{"hosts": "node", "gather_facts": False, "become": True, "tasks": TASKS}]))
    node = {
        "ansible_connection": "local",
        "ansible_python_interpreter": "/tmp/bare/bin/python",
        "ansible_become_method": "su",
        "ansible_become_password": PASSWORD,
        "ansible_remote_tmp": TEMPORARY,
    }
    Path(HOSTS).write_text(json.dumps({"all": {"hosts": {"node": node}}}))


def play() -> None:
    own = {"HOME": f"/home/{USER}", "ANSIBLE_LOCAL_TEMP": f"/home/{USER}/local", "ANSIBLE_ALLOW_WORLD_READABLE_TMPFILES": "1"}
    environment = [f"{name}={value}" for name, value in {**os.environ, **own}.items()]
    subprocess.run(["runuser", "-u", USER, "--", "env", *environment, "ansible-playbook", "-i", HOSTS, PLAY], check=False)
    # The program stays: this machine has secret files in the collection's folders.
    libraries = Path("/var/lib/kubenode").glob("lib/pyroute2-*")
    print("left:", [str(path) for path in (*Path(TEMPORARY).rglob("*"), *libraries)])


def test_a_task_of_a_user_who_becomes_root_leaves_no_file() -> None:
    """Ansible removes its temporary folder as the user, who cannot remove a library that root has unpacked there."""
    said = sealed_run.run(play, prepare).said
    assert "changed=2" in said and "failed=0" in said, said
    assert said.rstrip().endswith("left: []"), said[-2000:]
