# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The matches, targets and options that a rule of ebtables from elsewhere may have (ebtables-nft(8)).

The options that name a file, --modprobe, --atomic-file and --among-src-file, are not among them.
"""

from __future__ import annotations

from .._netfilter.rule_options import table
from .._netfilter.rule_words import Language

_RULE = table(
    "-p= --protocol= --proto= -s= --source= --src= -d= --destination= --dst= -i= --in-interface= --in-if= -o= --out-interface="
    " --out-if= --logical-in= --logical-out= -j= --jump= -c== --set-counters=="
)
_MATCHES = {
    "802_3": "--802_3-sap= --802_3-type=",
    "among": "--among-src= --among-dst=",
    "arp": "--arp-opcode= --arp-op= --arp-htype= --arp-ptype= --arp-ip-src= --arp-ip-dst= --arp-mac-src= --arp-mac-dst="
    " --arp-gratuitous",
    "ip": "--ip-source= --ip-src= --ip-destination= --ip-dst= --ip-tos= --ip-protocol= --ip-proto= --ip-source-port= --ip-sport="
    " --ip-destination-port= --ip-dport= --ip-icmp-type= --ip-igmp-type=",
    "ip6": "--ip6-source= --ip6-src= --ip6-destination= --ip6-dst= --ip6-tclass= --ip6-protocol= --ip6-proto= --ip6-source-port="
    " --ip6-sport= --ip6-destination-port= --ip6-dport= --ip6-icmp-type=",
    "limit": "--limit= --limit-burst=",
    "log": "--log --log-level= --log-prefix= --log-ip --log-ip6 --log-arp",
    "mark_m": "--mark=",
    "nflog": "--nflog --nflog-group= --nflog-range= --nflog-threshold= --nflog-prefix=",
    "pkttype": "--pkttype-type=",
    "stp": "--stp-type= --stp-flags= --stp-root-prio= --stp-root-addr= --stp-root-cost= --stp-sender-prio= --stp-sender-addr="
    " --stp-port= --stp-msg-age= --stp-max-age= --stp-hello-time= --stp-forward-delay=",
    "vlan": "--vlan-id= --vlan-prio= --vlan-encap=",
}
_TARGETS = {
    **dict.fromkeys(("ACCEPT", "DROP", "CONTINUE", "RETURN"), ""),
    "arpreply": "--arpreply-mac= --arpreply-target=",
    "dnat": "--to-destination= --to-dst= --dnat-target=",
    "mark": "--mark-set= --set-mark= --mark-or= --mark-and= --mark-xor= --mark-target=",
    "redirect": "--redirect-target=",
    "snat": "--to-source= --to-src= --snat-target= --snat-arp",
}
EBTABLES = Language(
    "ebtables",
    ("filter", "nat", "broute"),
    ("ACCEPT", "DROP", "RETURN"),
    {**_RULE, **table(" ".join(_MATCHES.values()))},  # a rule needs no -m
    {name: table(options) for name, options in _MATCHES.items()},
    {name: table(options) for name, options in _TARGETS.items()},
    frozenset(),
    frozenset(("--log-prefix", "--nflog-prefix")),
)
