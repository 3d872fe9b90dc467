# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What tests find or put on a node that is not ours, told once."""

from __future__ import annotations

# As an image of AKS loads it: another order of the set, another spelling, no policy, the flush idiom.
AGENTBAKERS_TABLE = """
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

# A shell script: /mnt becomes a root with all of the node in it that is not the root of process 1.
ANOTHER_ROOT = """
mount -t tmpfs tmpfs /mnt
for entry in /*; do
  if [ -L $entry ]; then cp -P $entry /mnt
  elif [ -d $entry ] && [ $entry != /mnt ]; then mkdir /mnt$entry && mount --rbind $entry /mnt$entry
  fi
done
"""

# For what runs through it, process 1 was started just now: what boots read is older.
BOOTED_NOW = ("unshare", "--pid", "--fork", "--mount-proc")
