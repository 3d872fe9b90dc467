# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A user without privileges connects and becomes root, with temporary files in a folder that everybody can read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from lab import sealed_run

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
