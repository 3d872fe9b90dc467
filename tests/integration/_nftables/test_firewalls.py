# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The table beside Debian's ufw and firewalld, loaded by a run and by a boot: probes and DHCPv6 replies pass."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from lab import Lab, Node, agentbaker, apt
from lab.container import SystemdNode
from lab.load_balancer import PROBE_SOURCE, PROBE_TRANSLATED, dhcpv6_source
from lab.waiting import until


class Firewall(NamedTuple):
    """``setup`` enables the firewall and permits packets to pods; ``holds`` succeeds if its rules are loaded.

    ``remedy``: commands that permit the DHCPv6 replies that AgentBaker's table translates; empty if none are needed.
    """

    packages: tuple[str, ...]
    setup: str
    holds: str
    remedy: str


FIREWALLS = {
    "ufw": Firewall(
        ("ufw",),
        "ufw default allow routed && ufw --force enable",
        "ip6tables --list-rules ufw6-before-input",
        f"ufw allow in on eth0 proto udp from {PROBE_TRANSLATED} port 547 to any port 546",  # docs/probe-snat.md
    ),
    # netbase: firewalld looks protocols up in /etc/protocols
    "firewalld": Firewall(
        ("firewalld", "netbase"),
        'echo \'<policy target="ACCEPT"><ingress-zone name="ANY"/><egress-zone name="ANY"/></policy>\''
        " > /etc/firewalld/policies/pods.xml && systemctl restart firewalld",
        "nft list chain inet firewalld filter_INPUT",
        "",
    ),
}


@pytest.mark.parametrize("firewall", FIREWALLS.values(), ids=FIREWALLS.keys())
def test_probes_are_answered_and_dhcpv6_replies_arrive_after_a_run_and_after_a_boot(firewall: Firewall) -> None:
    with Lab("firewall", nodes=[Node("node1", pods=["pod1"], system="bookworm")]) as lab:
        machine: SystemdNode = lab.node("node1")
        apt.publish(machine, apt.packages("bookworm", firewall.packages))
        machine.run(["apt-get", "update"])
        machine.run(["apt-get", "install", "--yes", *firewall.packages], timeout=300)

        def holds() -> bool:
            return machine.run(["sh", "-c", firewall.holds], check=False).returncode == 0

        machine.run(["sh", "-c", firewall.setup])
        # firewalld loads its rules after systemd regards it as started.
        until("the firewall has loaded its rules", holds, machine)
        assert dhcpv6_source(lab.load_balancer, machine) == PROBE_SOURCE
        assert not lab.load_balancer.probe_tcp(lab.pod("pod1").address, 8080, timeout=0.3)

        machine.run(["nft", "-f", "-"], agentbaker.TABLE)
        if firewall.remedy:
            assert dhcpv6_source(lab.load_balancer, machine) is None
            machine.run(["sh", "-c", firewall.remedy])
        assert dhcpv6_source(lab.load_balancer, machine) == PROBE_TRANSLATED

        for occasion in ("run", "boot"):
            if occasion == "run":
                assert machine.module("nftables_probe_snat")["changed"]
            else:
                machine.reboot()
            until(f"the firewall has loaded its rules after {occasion}", holds, machine)
            assert dhcpv6_source(lab.load_balancer, machine) == PROBE_SOURCE, occasion
            assert lab.load_balancer.probe_tcp(lab.pod("pod1").address, 8080), occasion
            assert not machine.module("nftables_probe_snat")["changed"], occasion
