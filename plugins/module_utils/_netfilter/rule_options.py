# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The matches, targets and options that a rule of iptables from elsewhere may have (iptables-extensions(8)).

They act on packets of the rule's network namespace. Not among them: IDLETIMER, LED and SYSRQ, which act on the whole kernel;
AUDIT, SECMARK and CONNSECMARK, which concern security modules; CLUSTERIP, ULOG, RATEEST and rateest, which new kernels
lack or nodes do not use; and the options that name a file: --modprobe, --object-pinned of bpf and --path of cgroup.
"""

from __future__ import annotations

import typing as t

Options = t.Mapping[str, int]  # options with the number of their values

TABLES = ("filter", "nat", "mangle", "raw", "security")
POLICIES = ("ACCEPT", "DROP", "RETURN", "QUEUE", "-")


def table(text: str) -> dict[str, int]:
    """Return the options in a text, each with one "=" for each of its values."""
    return {word.rstrip("="): word.count("=") for word in text.split()}


RULE = table(
    "-p= --protocol= -s= --source= --src= -d= --destination= --dst= -i= --in-interface= -o= --out-interface= -m= --match="
    " -j= --jump= -g= --goto= -f --fragment -c== --set-counters=="
)
_PORTS = "--source-port= --sport= --destination-port= --dport="
_ICMPV6 = "--icmpv6-type="
_TOS = "--set-tos= --and-tos= --or-tos= --xor-tos="
_MATCHES = {
    "addrtype": "--src-type= --dst-type= --limit-iface-in --limit-iface-out",
    "ah": "--ahspi= --ahlen= --ahres",
    "bpf": "--bytecode=",
    "cgroup": "--cgroup=",
    "cluster": "--cluster-total-nodes= --cluster-local-node= --cluster-local-nodemask= --cluster-hash-seed=",
    "comment": "--comment=",
    "connbytes": "--connbytes= --connbytes-dir= --connbytes-mode=",
    "connlabel": "--label= --set",
    "connlimit": "--connlimit-upto= --connlimit-above= --connlimit-mask= --connlimit-saddr --connlimit-daddr",
    "connmark": "--mark=",
    "conntrack": "--ctstate= --ctproto= --ctorigsrc= --ctorigdst= --ctreplsrc= --ctrepldst= --ctorigsrcport= --ctorigdstport="
    " --ctreplsrcport= --ctrepldstport= --ctstatus= --ctexpire= --ctdir=",
    "cpu": "--cpu=",
    "dccp": f"{_PORTS} --dccp-types= --dccp-option=",
    "devgroup": "--src-group= --dst-group=",
    "dscp": "--dscp= --dscp-class=",
    "dst": "--dst-len= --dst-opts=",
    "ecn": "--ecn-tcp-cwr --ecn-tcp-ece --ecn-ip-ect=",
    "esp": "--espspi=",
    "eui64": "",
    "frag": "--fragid= --fraglen= --fragres --fragfirst --fragmore --fraglast",
    "hashlimit": "--hashlimit-upto= --hashlimit-above= --hashlimit= --hashlimit-mode= --hashlimit-srcmask= --hashlimit-dstmask="
    " --hashlimit-name= --hashlimit-burst= --hashlimit-htable-size= --hashlimit-htable-max= --hashlimit-htable-gcinterval="
    " --hashlimit-htable-expire= --hashlimit-rate-match --hashlimit-rate-interval=",
    "hbh": "--hbh-len= --hbh-opts=",
    "helper": "--helper=",
    "hl": "--hl-eq= --hl-lt= --hl-gt=",
    "icmp": "--icmp-type=",
    "icmp6": _ICMPV6,
    "icmpv6": _ICMPV6,
    "ipcomp": "--ipcompspi= --compres",
    "iprange": "--src-range= --dst-range=",
    "ipv6-icmp": _ICMPV6,
    "ipv6header": "--header= --soft",
    "ipvs": "--ipvs --vproto= --vaddr= --vport= --vdir= --vmethod= --vportctl=",
    "length": "--length=",
    "limit": "--limit= --limit-burst=",
    "mac": "--mac-source=",
    "mark": "--mark=",
    "mh": "--mh-type=",
    "multiport": "--source-ports= --sports= --destination-ports= --dports= --ports=",
    "nfacct": "--nfacct-name=",
    "osf": "--genre= --ttl= --log=",
    "owner": "--uid-owner= --gid-owner= --socket-exists --suppl-groups",
    "physdev": "--physdev-in= --physdev-out= --physdev-is-in --physdev-is-out --physdev-is-bridged",
    "pkttype": "--pkt-type=",
    "policy": "--dir= --pol= --strict --reqid= --spi= --proto= --mode= --tunnel-src= --tunnel-dst= --next",
    "quota": "--quota=",
    "realm": "--realm=",
    "recent": "--set --rcheck --update --remove --seconds= --reap --hitcount= --rttl --name= --rsource --rdest --mask=",
    "rpfilter": "--loose --validmark --accept-local --invert",
    "rt": "--rt-type= --rt-segsleft= --rt-len= --rt-0-res --rt-0-addrs= --rt-0-not-strict",
    "sctp": f"{_PORTS} --chunk-types==",
    "set": "--match-set== --return-nomatch --update-counters --update-subcounters --packets-eq= --packets-lt= --packets-gt="
    " --bytes-eq= --bytes-lt= --bytes-gt=",
    "socket": "--nowildcard --transparent --restore-skmark",
    "srh": "--srh-next-hdr= --srh-hdr-len-eq= --srh-hdr-len-gt= --srh-hdr-len-lt= --srh-segs-left-eq= --srh-segs-left-gt="
    " --srh-segs-left-lt= --srh-last-entry-eq= --srh-last-entry-gt= --srh-last-entry-lt= --srh-tag= --srh-psid= --srh-nsid="
    " --srh-lsid=",
    "state": "--state=",
    "statistic": "--mode= --probability= --every= --packet=",
    "string": "--from= --to= --algo= --icase --string= --hex-string=",
    "tcp": f"{_PORTS} --tcp-flags== --syn --tcp-option=",
    "tcpmss": "--mss=",
    "time": "--datestart= --datestop= --timestart= --timestop= --monthdays= --weekdays= --kerneltz --contiguous --utc --localtz",
    "tos": "--tos=",
    "ttl": "--ttl-eq= --ttl-lt= --ttl-gt= --ttl=",
    "u32": "--u32=",
    "udp": _PORTS,
}
_TARGETS = {
    "ACCEPT": "",
    "CHECKSUM": "--checksum-fill",
    "CLASSIFY": "--set-class=",
    "CONNMARK": "--set-xmark= --set-mark= --save-mark --restore-mark --mask= --ctmask= --nfmask= --and-mark= --or-mark="
    " --xor-mark= --left-shift-mark= --right-shift-mark=",
    "CT": "--notrack --helper= --timeout= --ctevents= --expevents= --zone= --zone-orig= --zone-reply=",
    "DNAT": "--to-destination= --random --persistent",
    "DNPT": "--src-pfx= --dst-pfx=",
    "DROP": "",
    "DSCP": "--set-dscp= --set-dscp-class=",
    "ECN": "--ecn-tcp-remove",
    "HL": "--hl-set= --hl-dec= --hl-inc=",
    "HMARK": "--hmark-tuple= --hmark-mod= --hmark-offset= --hmark-rnd= --hmark-src-prefix= --hmark-dst-prefix="
    " --hmark-sport-mask= --hmark-dport-mask= --hmark-spi-mask= --hmark-sport= --hmark-dport= --hmark-spi= --hmark-proto-mask=",
    "LOG": "--log-level= --log-prefix= --log-tcp-sequence --log-tcp-options --log-ip-options --log-uid --log-macdecode",
    "MARK": "--set-xmark= --set-mark= --and-mark= --or-mark= --xor-mark=",
    "MASQUERADE": "--to-ports= --random --random-fully",
    "NETMAP": "--to=",
    "NFLOG": "--nflog-group= --nflog-range= --nflog-size= --nflog-threshold= --nflog-prefix=",
    "NFQUEUE": "--queue-num= --queue-balance= --queue-bypass --queue-cpu-fanout",
    "NOTRACK": "",
    "QUEUE": "",
    "REDIRECT": "--to-ports= --random",
    "REJECT": "--reject-with=",
    "RETURN": "",
    "SET": "--add-set== --del-set== --map-set== --exist --timeout= --map-mark --map-prio --map-queue",
    "SNAT": "--to-source= --random --random-fully --persistent",
    "SNPT": "--src-pfx= --dst-pfx=",
    "SYNPROXY": "--sack-perm --timestamp --wscale= --mss= --ecn",
    "TCPMSS": "--set-mss= --clamp-mss-to-pmtu",
    "TCPOPTSTRIP": "--strip-options=",
    "TEE": "--gateway= --oif=",
    "TOS": _TOS,
    "TPROXY": "--on-port= --on-ip= --tproxy-mark=",
    "TRACE": "",
    "TTL": "--ttl-set= --ttl-dec= --ttl-inc=",
}
MATCHES: t.Mapping[str, Options] = {name: table(options) for name, options in _MATCHES.items()}
TARGETS: t.Mapping[str, Options] = {name: table(options) for name, options in _TARGETS.items()}
# A protocol brings the match of its name (netfilter's xtables_find_match for -p).
_NUMBERS = {1: "icmp", 6: "tcp", 17: "udp", 33: "dccp", 50: "esp", 51: "ah", 58: "icmp6", 132: "sctp"}
PROTOCOLS = {
    **{str(number): name for number, name in _NUMBERS.items()},
    **{name: name for name in _NUMBERS.values()},
    **dict.fromkeys(("icmpv6", "ipv6-icmp"), "icmp6"),
    **dict.fromkeys(("mh", "ipv6-mh", "135"), "mh"),
}
# Further extensions of iptables and xtables-addons. A chain of such a name would be taken for the extension.
NO_CHAINS = frozenset(
    table(
        """
        ACCOUNT AUDIT CHAOS CLUSTERIP CONNSECMARK DELUDE DHCPMAC DNETMAP ECHO FULLCONENAT IDLETIMER IPMARK LED LOGMARK MIRROR
        NDPI PROTO RATEEST RAWDNAT RAWSNAT SAME SECMARK STEAL SYSRQ TARPIT ULOG
        """
    )
)
# Options whose value is a text. iptables-save puts it in quotes if it has other characters than letters, digits, _ and -.
TEXTS = frozenset(("--comment", "--log-prefix", "--nflog-prefix", "--helper"))
QUOTED = frozenset(("--string", "--hex-string", "--u32", "--bytecode"))  # iptables-save always puts the value in quotes
