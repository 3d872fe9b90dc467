# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``make demo``: an IPv6 health probe that gets no answer, one playbook run, and it is answered, also after a reboot.

Builds a load balancer and a pod of network namespaces and a node that runs systemd in a container, and takes them down
again; this machine's own network and files stay untouched. Needs root.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from lab import Lab, Node, host, images
from lab.load_balancer import PROBE_SOURCE

SYSTEM = "bookworm"
PLAYBOOK = "kubenode.datapath.aks_dual_stack"
TABLE = "ip6 azureSLBProbe"
MAP = """
    load balancer                node1: Debian 12, no nftables         pod1
    {source:25}    eth0  {node:20}            {pod}
"""


def main() -> None:
    if sys.argv[1:] == ["--system"]:  # begun while the tools are installed; the lab waits until it is there
        images.root(SYSTEM, images.NODE_PACKAGES)
        return
    print("Building the lab. The first time, the node's system is installed from Debian packages, for a minute or two.")
    node = Node("node1", pods=["pod1"], system=SYSTEM, without=["nftables"])
    with Lab("demo", nodes=[node], metadata=True) as lab, tempfile.TemporaryDirectory() as folder:
        show(lab, lab.write_inventory(Path(folder) / "inventory.json"))


def show(lab: Lab, inventory: Path) -> None:
    node = lab.node("node1")
    node.place_kubelet_stand_in()
    say("A dual-stack node, its pod, and Azure's load balancer, which is also the node's IPv6 router:")
    print(MAP.format(source=PROBE_SOURCE, node=node.address, pod=lab.pod("pod1").address))
    bare = node.snapshot()
    probe(lab, expected=False)
    audit(lab, inventory, finds=True)

    play(lab, inventory, "--check", "--diff", changes=True)
    play(lab, inventory, changes=True)
    probe(lab, expected=True)
    audit(lab, inventory, finds=False)
    play(lab, inventory, changes=False)

    say("The node reboots")
    node.reboot()
    expect("kubelet was to start after the table", TABLE in node.kubelet_starts()[-1].tables)
    print(f"    when kubelet started, the node had: table {TABLE}")
    probe(lab, expected=True)
    play(lab, inventory, changes=False)

    play(lab, inventory, "-e", "aks_dual_stack_state=absent", changes=True)
    probe(lab, expected=False)
    expect("the node's files, packages, rules and routes were to be as before", node.snapshot() == bare)
    say("The node's files, packages, rules and routes are as they were.")


def probe(lab: Lab, expected: bool) -> None:
    """Probe the pod as the load balancer does."""
    answers = lab.load_balancer.probe_tcp(lab.pod("pod1").address, 8080)
    say(f"Probe from {PROBE_SOURCE} to the pod: {'answered' if answers else 'no answer'}")
    expect(f"the probe was {'' if expected else 'not '}to be answered", answers == expected)


def audit(lab: Lab, inventory: Path, finds: bool) -> None:
    """Ask the node what is wrong with it. Its twin is built here: the node has no nft. The lab has no mark of Azure's network."""
    command = ["ansible-playbook", "-i", str(inventory), "kubenode.datapath.audit", "-e", "audit_on_controller=true"]
    say("$ ansible-playbook -i inventory kubenode.datapath.audit -e ...    # asks the node what is wrong with it")
    variables = json.dumps({"audit_context": {"cloud": "azure", "probe_mode": "servicenodeport"}})
    environment = {**os.environ, **lab.ansible_environment()}
    result = subprocess.run([*command, "-e", variables], env=environment, stdout=subprocess.PIPE, text=True, check=False)
    printed = re.search(r'"msg": (\[.*?^    \])', result.stdout, re.MULTILINE | re.DOTALL)
    print("\n".join(f"    {line}" for line in json.loads(printed[1])) if printed else result.stdout)
    is_there = "probe-untranslated eth0" in result.stdout and "nftables_probe_snat" in result.stdout
    expect(f"the audit was {'' if finds else 'not '}to find that the probe is not translated", is_there is finds)


def play(lab: Lab, inventory: Path, *arguments: str, changes: bool, playbook: str = PLAYBOOK) -> None:
    """Run the playbook as a user does; show the whole output of a check with its diff, and the end of a run's output."""
    command = ["ansible-playbook", "-i", str(inventory), playbook, *arguments]
    say("$ " + " ".join(["ansible-playbook", "-i", "inventory", *command[3:]]))
    environment = {**os.environ, **lab.ansible_environment()}
    result = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    changed = re.search(r"changed=(\d+)", result.stdout)
    is_well = result.returncode == 0 and changed is not None and (int(changed[1]) > 0) is changes
    is_whole = "--diff" in arguments or not is_well
    print(result.stdout if is_whole else result.stdout[result.stdout.rfind("PLAY RECAP") :].strip())
    expect(f"the play was {'' if changes else 'not '}to change the node", is_well)


def expect(sentence: str, holds: bool) -> None:
    if not holds:
        sys.exit(f"{Path(sys.argv[0]).stem}: {sentence}, and that is not so.")


def say(line: str) -> None:
    print(f"\n==> {line}", flush=True)


if __name__ == "__main__":
    host.reported(main)
