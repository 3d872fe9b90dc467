# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""AgentBaker's unit, as in images of AKS: a table, a script and a unit that act like AgentBaker's."""

from __future__ import annotations

from lab.booting import BootingNode
from lab.machine import Machine

NAME = "ipv6_nftables.service"
UNIT = f"/etc/systemd/system/{NAME}"
LINK = f"/etc/systemd/system/multi-user.target.wants/{NAME}"
RULESET = "/etc/systemd/system/ipv6_nftables"
SCRIPT = "/opt/scripts/ipv6_nftables.sh"

# Another order of the set than the collection's, another spelling, no policy, and a flush before the load.
TABLE = """
define slb_lla = fe80::1234:5678:9abc
define slb_gua = 2603:1062:0:1:fe80:1234:5678:9abc
table ip6 azureSLBProbe
flush table ip6 azureSLBProbe
table ip6 azureSLBProbe {
  chain prerouting {
    type filter hook prerouting priority -300
    iifname eth0 icmpv6 type { nd-neighbor-solicit, nd-router-advert, nd-neighbor-advert } counter accept
    iifname eth0 ip6 saddr $slb_lla ip6 saddr set $slb_gua counter
  }
  chain postrouting {
    type filter hook postrouting priority -300
    oifname eth0 ip6 daddr $slb_gua ip6 daddr set $slb_lla counter
  }
}
"""

# No unit waits for this one, it has no ExecStop=, and it is restarted every 10 seconds until it succeeds.
_UNIT = f"""\
[Unit]
Before=kubelet.service
[Service]
Type=simple
RemainAfterExit=true
ExecStart=/usr/bin/python3 {SCRIPT}
Restart=on-failure
RestartSec=10
[Install]
WantedBy=multi-user.target
"""
# AgentBaker's script uses bash, curl and jq, which the nodes lack: one request, no retry, then nft.
_SCRIPT = f"""\
import json, subprocess, urllib.request
url = "http://169.254.169.254/metadata/instance/network/interface?api-version=2021-02-01"
nics = json.load(urllib.request.urlopen(urllib.request.Request(url, headers={{"Metadata": "true"}})))
if any(one["privateIpAddress"] for nic in nics for one in nic["ipv6"]["ipAddress"]):
    subprocess.run(["nft", "-f", "{RULESET}"], check=True)
"""


def place(node: Machine, is_enabled: bool = True) -> None:
    """Write AgentBaker's files, and enable its unit. With the unit disabled, the node is like one of Azure Container Linux.

    Its script is written where it can run, on a node that boots: other nodes share /opt with their host.
    """
    node.write(RULESET, TABLE)
    node.write(UNIT, _UNIT)
    if isinstance(node, BootingNode):
        node.write(SCRIPT, _SCRIPT)
    if is_enabled:
        node.run(["mkdir", "-p", LINK.rpartition("/")[0]])
        node.run(["ln", "-s", UNIT, LINK])
