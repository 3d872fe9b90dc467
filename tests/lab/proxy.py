# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An L7 proxy on a node that answers in a pod's place, as Cilium has Envoy do for kube-proxy's node ports.

A packet to the pod turns around in a pair of links (Cilium's cilium_host and cilium_net) and is handed to the proxy's
socket. The proxy answers from the pod's address to the node's own, to which kube-proxy masqueraded the client. On the way out
connection tracking puts the client's address back, and the node routes the answer anew, by the pod's rule. The scene is that of
github.com/cilium/cilium/pull/47739, in which this happens in lo; here it happens in the output hook, before lo.

For policy Cluster. Under Local the client's later packets find the proxy's socket too early (net.ipv4.tcp_early_demux).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lab import links

if TYPE_CHECKING:
    from lab.node import Pod

PORT = 15001
_OUT, _BACK = "proxy0", "proxy1"
_MAC = "02:00:00:00:ff:01"
_MARK = "0x200/0xf00"  # Cilium's for traffic to its proxy, with the table's number
_TABLE = 2004

_DIVERT = f"""
table ip proxy {{
  chain untracked {{
    type filter hook prerouting priority raw
    iifname {_BACK} notrack
  }}
  chain divert {{
    type filter hook prerouting priority -140
    iifname {_BACK} meta l4proto tcp tproxy to :{PORT} meta mark set 0x200 accept
  }}
}}
"""


def put_before(pod: Pod) -> None:
    """Send the node's packets for the pod to a transparent socket at PORT of the node."""
    node = pod.node
    node.ip(
        [
            f"link add {_OUT} type veth peer name {_BACK} address {_MAC}",
            f"link set {_BACK} up",
            f"link set {_OUT} up",
            f"neighbour add {pod.address} lladdr {_MAC} dev {_OUT} nud permanent",
            f"route replace {pod.address}/32 dev {_OUT}",
            f"rule add fwmark {_MARK} lookup {_TABLE} priority 9",
            f"route add local default dev lo table {_TABLE}",
        ]
    )
    links.compute_checksums(node, [_OUT, _BACK])
    # Packets that come back have the node's own address as their source.
    node.set_sysctls({f"net.ipv4.conf.{_BACK}.accept_local": 1, f"net.ipv4.conf.{_BACK}.rp_filter": 0})
    node.run_from_host(["nft", "-f", "-"], _DIVERT)
