# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rules of azure-vnet and azure-cns, as arguments of iptables and ip6tables.

From cni/network/invoker_cns.go, cns/restserver/internalapi_linux.go, network/snat/snat_linux.go and network/network_linux.go.
"""

from __future__ import annotations

from lab.node import NamespaceNode

PODS = "10.241.0.0/16"
PODS6 = "fd00:10:241::/64"
NODE, NODE6 = "10.240.0.4", "fd00:10:240::4"
BACKENDS = ("nft", "legacy")

SWIFT = [
    f"-t nat -A {chain} -m addrtype ! --dst-type local -s {PODS} -d {to} -p {protocol} --dport {port} -j SNAT --to {NODE}"
    for chain in ("SWIFT", "SWIFT-POSTROUTING")
    for to, protocol, port in (("168.63.129.16", "udp", 53), ("168.63.129.16", "tcp", 53), ("169.254.169.254", "tcp", 80))
]
AZURE = [
    *("-t nat -N SWIFT", "-t nat -A POSTROUTING -j SWIFT"),
    *("-t nat -N SWIFT-POSTROUTING", "-t nat -I POSTROUTING 1 -j SWIFT-POSTROUTING", *SWIFT),
    "-t nat -I POSTROUTING 1 -s 169.254.128.0/17 -j MASQUERADE",
    *("-N AZURECNIINPUT", "-I INPUT 1 -j AZURECNIINPUT", "-N AZURECNIOUTPUT", "-I OUTPUT 1 -j AZURECNIOUTPUT"),
    "-I AZURECNIOUTPUT 1 -s 169.254.128.1 -d 169.254.128.9 -j ACCEPT",
    "-I AZURECNIINPUT 1 -i azSnatbr -m state --state ESTABLISHED,RELATED -j ACCEPT",
    *(f"-A {chain} -{side} azSnatbr -d 10.0.0.0/8 -j DROP" for chain, side in (("FORWARD", "i"), ("OUTPUT", "o"))),
    "-I INPUT 1 -i azSnatbr -d 10.0.0.10 -j ACCEPT",
]
# Of the mode transparent-tunnel, which keeps all but the first without pods.
TUNNEL = [
    "-t mangle -A PREROUTING -i azv0123456789a -j MARK --set-mark 3",
    "-t raw -A PREROUTING -i eth0 -m set --match-set azure-tt-local-pods src,dst -j NOTRACK",
]
UNCERTAIN = ["-A FORWARD -j ACCEPT", "-I FORWARD -d 168.63.129.16 -p tcp -m tcp --dport 80 -j DROP"]
AZURE6 = [
    f"-t nat -I POSTROUTING 1 -s {PODS6} -j SNAT --to {NODE6}",
    "-t mangle -I POSTROUTING 1 -j MARK --set-mark 0x0",
]
FOREIGN = [
    "-t nat -N FOREIGN",
    "-t nat -A POSTROUTING -s 10.9.0.0/16 -j MASQUERADE",
    "-t nat -A POSTROUTING -s 10.241.0.0/16 -d 168.63.129.16 -p udp --dport 53 -j SNAT --to 10.240.0.4",
    '-A FORWARD -i azSnatbr -m comment --comment "$(touch /run/bad)" -j ACCEPT',
    "-A FORWARD -d 10.0.0.0/8 -j DROP",
]


def apply(node: NamespaceNode, program: str, rules: list[str]) -> None:
    for rule in rules:
        node.run(["sh", "-c", f"{program} -w {rule.replace('$', chr(92) + '$')}"])


def saved(node: NamespaceNode) -> list[str]:
    """All rules and chains of both backends, without counters."""
    texts = [node.run([f"{program}-{backend}-save"]) for program in ("iptables", "ip6tables") for backend in BACKENDS]
    lines = [line.partition(" [")[0] for text in texts for line in text.stdout.splitlines()]
    return [line for line in lines if line.startswith((":", "-A"))]
