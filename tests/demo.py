# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``make demo``: an IPv6 health probe that nobody answers, one playbook run, and the probe is answered.

Builds a load balancer, a node and a pod of network namespaces on this machine and takes them down again; this machine's
own network and files stay untouched. Needs root.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from lab import Lab, Node
from lab.load_balancer import PROBE_SOURCE

PLAYBOOK = "kubenode.datapath.aks_dual_stack"
MAP = """
    load balancer               node1                        pod1
    {source:24} eth0  {node:20}  {pod}
"""


def main() -> None:
    with Lab("demo", nodes=[Node("node1", pods=["pod1"])]) as lab, tempfile.TemporaryDirectory() as folder:
        node, pod = lab.node("node1"), lab.pod("pod1")
        inventory = lab.write_inventory(Path(folder) / "inventory.json")
        say("A dual-stack node, its pod, and Azure's load balancer, which is also the node's IPv6 router:")
        print(MAP.format(source=PROBE_SOURCE, node=node.address, pod=pod.address))
        bare = node.snapshot()
        probe(lab, expected=False)

        play(lab, inventory, "--check", "--diff", expected=1)
        play(lab, inventory, expected=1)
        probe(lab, expected=True)
        play(lab, inventory, expected=0)

        play(lab, inventory, "-e", "aks_dual_stack_state=absent", expected=1)
        probe(lab, expected=False)
        expect("The node's network and files are as they were", node.snapshot() == bare)


def probe(lab: Lab, expected: bool) -> None:
    """Probe the pod as the load balancer does."""
    pod = lab.pod("pod1").address
    answers = lab.load_balancer.probe_tcp(pod, 8080)
    say(f"Probe from {PROBE_SOURCE} to the pod: {'answered' if answers else 'no answer'}")
    expect("The probe was to be answered" if expected else "The probe was to stay unanswered", answers == expected)


def play(lab: Lab, inventory: Path, *arguments: str, expected: int) -> None:
    """Run the playbook as a user does, and show what it said."""
    command = ["ansible-playbook", "-i", str(inventory), PLAYBOOK, *arguments]
    say("$ " + " ".join(["ansible-playbook", "-i", "inventory", *command[3:]]))
    done = subprocess.run(
        command, env={**os.environ, **lab.ansible_environment()}, stdout=subprocess.PIPE, text=True, check=False
    )
    print(done.stdout if "--diff" in arguments or done.returncode else done.stdout[done.stdout.rfind("PLAY RECAP") :])
    changed = re.search(r"changed=(\d+)", done.stdout)
    expect(f"The play was to report changed={expected}", changed is not None and int(changed[1]) == expected)


def expect(sentence: str, holds: bool) -> None:
    if not holds:
        sys.exit(f"demo: {sentence}, but that is not so.")


def say(line: str) -> None:
    print(f"\n==> {line}", flush=True)


if __name__ == "__main__":
    main()
