# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Support bundles, each recognised by its files: which command printed a file, by the path of the file.

A bundle has thousands of files. A file that no row of the table knows is not read.
"""

from __future__ import annotations

import re
import typing as t

from .._core import json_object, nearest
from .._core.errors import Invalid
from .._snapshot import firewalls, proc_net
from .._snapshot.settings import may_matter
from . import talos
from .commands import DATE, HOSTNAME, NO_ERRORS

Texts = dict[str, str]  # by command
EKS, AKS, SOS, CILIUM, RANCHER, RETINA, CALICO, AWS_CNI = (
    "eks-log-collector", "AKS log collector", "sosreport", "cilium-bugtool", "Rancher logs collector", "Retina capture",
    "calicoctl node diags", "aws-cni-support",
)  # fmt: skip
ANTREA, BOTTLEROCKET, OPENSHIFT, TALOS, TROUBLESHOOT = (
    "antctl supportbundle", "Bottlerocket's logdog", "OpenShift must-gather", "talosctl support", "troubleshoot.sh",
)  # fmt: skip
LARGEST, EVIDENCE = 32 << 20, 4 << 20  # bytes of an output, and of one that is evidence alone
LARGEST_BOOT_FILE = 1 << 20  # bytes
MOST_NODES = 10  # that an error names
IN_NAMESPACE = "ip netns exec {namespace} "
Split = t.Callable[[str, str], Texts]  # takes the command of the row and the text, and returns texts by command


class Row(t.NamedTuple):
    """A file of a bundle.

    path: a pattern of its path below the bundle's top. Its group "node" is the folder of one of several nodes. command: that
    printed the file; {table}, {namespace}, {key}, {name} and {path} stand for groups of the pattern. is_decisive: whether the
    bundle is recognised by the file. unless: commands whose outputs say the same and more, so that the file is left out if the
    bundle has one of them. split: divides a file with outputs of several commands. most: bytes that are read of it.
    """

    bundle: str
    path: str
    command: str
    is_decisive: bool = False
    unless: tuple[str, ...] = ()
    split: Split | None = None
    most: int = LARGEST


_NETNS = re.compile(r"^netns: (.*)\n", re.MULTILINE)
_TRACED = re.compile(r"^\+ (.*)\n", re.MULTILINE)  # a command, as bash -x prints it
_STARRED = re.compile(r"^\*\*\* Output of (.*?) \*\*\* *\n", re.MULTILINE)
_HEADING = re.compile(r"\A(?:#+ .*\n|\s*\n)+")
_FENCE = re.compile(r"^```.*\n?", re.MULTILINE)


_NO_TABLE = re.compile(r"(?m)^Error: ipv[46]: FIB table does not exist\.$")  # which has no routes


def _of_namespaces(_command: str, text: str) -> Texts:
    """Divide what ``ip -all netns exec bash -x -c`` printed."""
    spaces = _NETNS.split(text)
    texts: Texts = {}
    for namespace, outputs in zip(spaces[1::2], spaces[2::2]):
        commands = _TRACED.split(outputs)
        for command, output in zip(commands[1::2], commands[2::2]):
            if _OF_POD.fullmatch(command) and _NAME.fullmatch(namespace):
                texts[IN_NAMESPACE.format(namespace=namespace) + command] = output
    return texts


_NAME = re.compile(r"[\w.-]+")
_OF_POD = re.compile(r"ip (?:-\S+ )*(?:(?:addr|link|rule|route) show|route show table all)")


def _markdown(command: str, text: str) -> Texts:
    """Return the output of a file that may be a page of Markdown, whose heading is the command."""
    if _NO_TABLE.search(text):
        return {command: ""}
    return {command: _FENCE.sub("", _HEADING.sub("", text))}


def _starred(command: str, text: str) -> Texts:
    """Return the outputs behind lines that name their commands, without those of other commands."""
    named = _STARRED.split(text)
    return {command: "".join(output for name, output in zip(named[1::2], named[2::2]) if name.startswith(command))}


def _executed(command: str, text: str) -> Texts:
    """Return the outputs behind a summary, each behind a line with its command, without listings of rules that were saved."""
    return {command: _LISTING.split(text.partition("\nExecute:\n")[2])[0]}


_LISTING = re.compile(r"(?m)^/\S*iptables-\w+ -vnx .*\n")


def _without_total(command: str, text: str) -> Texts:
    """Return a listing of rules without the number of rules that a collector adds."""
    return {command: re.sub(r"(?m)^=*\s*Total Number of Rules.*\n?", "", text)}


def _sets(_command: str, text: str) -> Texts:
    """Return the second of two outputs of the same sets, which is that of ``ipset --save``."""
    return {"ipset save": "".join(line for line in text.splitlines(keepends=True) if line.startswith(("create ", "add ")))}


def _last_routes(command: str, text: str) -> Texts:
    """Return the last output of a file to which each run of the collector adds one, behind a line and the command."""
    return {command: text.rpartition(f"{command}\n")[2]}


def _filters(_command: str, text: str) -> Texts:
    """Return settings of links, of which there are no others, as sysctl prints them."""
    lines = re.findall(r"(?m)^/proc/sys/(net/\S+ = \d+)$", text)
    return {"sysctl -a | grep rp_filter": "".join(f"{line}\n" for line in lines)}


def _of_uname(command: str, text: str) -> Texts:
    """Return the node's name, which is the second word that ``uname -a`` prints."""
    return {command: "".join(text.split()[1:2])}


_PROPERTY = re.compile(r"(?:(?:Id|LoadState|ActiveState|SubState|UnitFileState|Result)=.*)?\n", re.MULTILINE)


def _states(command: str, text: str) -> Texts:
    """Return the states of units among all of their properties, of which some have several lines."""
    return {command: "".join(line for line in text.splitlines(keepends=True) if _PROPERTY.fullmatch(line))}


def _servers(_command: str, text: str) -> Texts:
    """Return the last of several outputs of ipvsadm, if it is installed."""
    listed = text.rpartition("IP Virtual Server")
    return {"ipvsadm -Ln": listed[1] + listed[2]} if listed[1] else {}


def _unless_empty(command: str, text: str) -> Texts:
    """Return an output that is empty where its command failed, too."""
    return {command: text} if text.strip() else {}


def _without_error(command: str, text: str) -> Texts:
    """Return JSON of ip. The collector of AKS asks for IPv6 addresses of tables, which ip refuses."""
    return {command: text} if text.lstrip()[:1] == "[" else {}


def _by_program(_command: str, text: str) -> Texts:
    """Return the outputs of iptables-save and ip6tables-save, which stand one behind the other in any order."""
    texts: Texts = {}
    for part in filter(str.strip, re.split(r"(?m)^(?=# Generated by )", text)):
        program = re.match(r"# Generated by (ip6?tables)-", part)
        command = f"{program[1] if program else 'iptables'}-save -c"
        texts[command] = texts.get(command, "") + part
    return texts


def _node_of_agent(command: str, text: str) -> Texts:
    """Return the name of the node in the state of Antrea's agent."""
    name = re.search(r"(?mi)^noderef:\n(?: +.*\n)*? +name: ([\w.-]+)$", text)
    return {command: name[1]} if name else {}


def _loaded(command: str, text: str) -> Texts:
    """Return the modules that troubleshoot.sh found loaded, as lsmod prints them."""
    modules = json_object.parse(text) or {}
    loaded = (name for name, about in modules.items() if isinstance(about, dict) and about.get("status") == "loaded")
    return {command: "".join(f"{name} 0 0\n" for name in loaded)} if modules else {}


def _settings(command: str, text: str) -> Texts:
    """Return settings in JSON as sysctl prints them."""
    pairs = json_object.parse(text) or {}
    return {command: "".join(f"{key} = {value}\n" for key, value in pairs.items())} if pairs else {}


def _listing(bundle: str, path: str, program: str, table: str, split: Split | None = None) -> Row:
    return Row(bundle, path, f"{program} -t {table} -nvL", unless=(f"{program}-save", f"{program}-save {NO_ERRORS}"), split=split)


_PROGRAMS = ("iptables", "ip6tables")
_ALL_ROUTES = ("ip route show table all",)  # of both families
_CHECKPOINT = "cat /var/run/aws-node/ipam.json"  # of ipamd
_NETWORKING, _FIREWALL = "sos_commands/networking", "sos_commands/firewall_tables"  # of sos
_FOLDERS, _DROP_IN = "(?:etc|run|usr/local/lib|usr/lib|lib)", r"[^/.][^/]*\.conf"  # of files for the next boot
_CNI = r"[\w-][\w.-]*\.(?:conf|conflist|json)"  # what a runtime reads of the folder of CNIs
OF_KERNEL = (
    *(*proc_net.COUNTERS, proc_net.TRACKING, proc_net.ROUTING),
    *(f"/proc/net/{name}" for name in proc_net.SOCKETS),
)
_OF_NAMESPACE = rf"{_NETWORKING}/namespaces/(?P<namespace>[\w.-]+)/ip_netns_exec_(?P=namespace)_"
_NODE, _HOST = r"nodes/(?P<node>[^/]+)", r"host-collectors/(?:(?P<node>[^/]+)/)?"
_AGENT = r"(?P<node>agent_[^/]+|[^/]+\.tar\.gz)"  # an archive of antctl, or its folder
_RUN, _ABOUT = "[^/]+", "run-host: "  # the name of a command, and what stands before it where a file is about the command
ROWS = (
    Row(EKS, r"networking/iprule\.txt", "ip -4 rule show", is_decisive=True),
    Row(EKS, r"networking/ip6rule\.txt", "ip -6 rule show"),
    Row(EKS, r"networking/iproute\.txt", "ip route show table all", is_decisive=True),
    Row(EKS, r"networking/ip6route\.txt", "ip -6 route show table all", unless=_ALL_ROUTES),
    Row(EKS, r"networking/ifconfig\.txt", "ifconfig"),
    Row(EKS, r"networking/ipset\.txt", "ipset save", split=_sets),
    Row(EKS, r"networking/ipvsadm\.txt", "ipvsadm -Ln", split=_servers),
    Row(EKS, r"networking/conntrack6?\.txt", "conntrack -L", split=_starred, most=EVIDENCE),
    Row(EKS, r"sysctls/sysctl_all\.txt", "sysctl -a"),
    Row(EKS, r"ipamd/ipam\.json", _CHECKPOINT),
    Row(EKS, r"ipamd/enis\.json", "curl http://localhost:61679/v1/enis", unless=(_CHECKPOINT,)),
    *(Row(EKS, rf"networking/{program}-save\.txt", f"{program}-save {NO_ERRORS}") for program in _PROGRAMS),
    *(
        _listing(EKS, rf"networking/{program}-{table}\.txt", program, table, _without_total)
        for program in _PROGRAMS
        for table in ("mangle", "filter", "nat")
    ),
    Row(EKS, r"system/services\.txt", "systemctl list-units"),
    Row(EKS, r"system/netstat\.txt", "netstat -plant", most=EVIDENCE),
    Row(EKS, r"kernel/uname\.txt", HOSTNAME, split=_of_uname),
    Row(EKS, rf"cni/(?P<path>{_CNI})", "cat /etc/cni/net.d/{path}", most=LARGEST_BOOT_FILE),
    Row(AKS, r"collect/ip_4_addr\.json", "ip -4 -d -j addr show", is_decisive=True),
    Row(AKS, r"collect/ip_6_addr\.json", "ip -6 -d -j addr show", split=_without_error),
    Row(AKS, r"collect/ip_(?P<family>[46])_neighbor\.json", "ip -{family} -d -j neighbor show"),
    Row(AKS, r"collect/ip_4_route\.json", "ip -4 -d -j route show", is_decisive=True),
    Row(AKS, r"collect/ip_6_route\.json", "ip -6 -d -j route show table all"),
    Row(AKS, r"collect/ip_link\.json", "ip -d -j link show", is_decisive=True),
    Row(AKS, r"collect/ip_netconf\.json", "ip -d -j netconf show"),
    Row(AKS, r"collect/ip_rule\.json", "ip -4 -d -j rule show"),
    *(Row(AKS, rf"collect/{program}\.txt", f"{program} -t filter -nvL") for program in _PROGRAMS),
    Row(AKS, r"collect/nftables\.json", "nft -jn list ruleset"),
    Row(AKS, r"collect/nftables\.txt", "nft -n list ruleset"),  # since 2026
    Row(AKS, r"collect/sysctl\.txt", "sysctl -a"),
    Row(AKS, r"(?:collect/)?proc/net/ip(?P<family>6?)_tables_names", "cat /proc/net/ip{family}_tables_names"),
    Row(AKS, r"proc/modules", "cat /proc/modules"),
    Row(AKS, rf"etc/cni/net\.d/(?P<path>{_CNI})", "cat /etc/cni/net.d/{path}", most=LARGEST_BOOT_FILE),
    Row(AKS, r"collect/conntrack\.txt", "conntrack -L", most=EVIDENCE),
    Row(AKS, r"collect/ip_netns_commands\.txt", "ip netns exec", split=_of_namespaces),
    *(
        Row(AKS, rf"collect/ip_netns_(?P<namespace>[\w.-]+)/ip_{name}\.json", IN_NAMESPACE + command, split=_without_error)
        for name, command in (
            ("(?P<family>[46])_addr", "ip -{family} -d -j addr show"),
            ("(?P<family>[46])_neighbor", "ip -{family} -d -j neighbor show"),
            ("4_route", "ip -4 -d -j route show"),
            ("6_route", "ip -6 -d -j route show table all"),
            ("link", "ip -d -j link show"),
            ("rule", "ip -4 -d -j rule show"),
        )
    ),
    Row(SOS, rf"{_NETWORKING}/ip_-d_address", "ip -d address", is_decisive=True),
    Row(SOS, rf"{_NETWORKING}/ip_-s_-d_link", "ip -s -d link"),
    Row(SOS, rf"{_NETWORKING}/ip_route_show_table_all", "ip route show table all", is_decisive=True),
    Row(SOS, rf"{_NETWORKING}/ip_-6_route_show_table_all", "ip -6 route show table all", unless=_ALL_ROUTES),
    Row(SOS, rf"{_NETWORKING}/ip_-(?P<family>[46])_rule_list", "ip -{family} rule list", is_decisive=True),
    Row(SOS, rf"{_NETWORKING}/ip_-s_-s_neigh_show", "ip -s -s neigh show"),
    Row(SOS, rf"{_FIREWALL}/nft_-a_list_ruleset", "nft -a list ruleset"),
    Row(SOS, rf"{_FIREWALL}/nft_list_ruleset", "nft list ruleset", unless=("nft -a list ruleset",)),
    *(
        Row(SOS, rf"{_FIREWALL}/{program}_-t_(?P<table>\w+)_-nvL", f"{program} -t {{table}} -nvL")
        for program in _PROGRAMS
    ),
    *(
        Row(SOS, rf"{_FIREWALL}/{program}_-vnxL", f"{program} -t filter -vnxL", unless=(f"{program} -t filter -nvL",))
        for program in _PROGRAMS
    ),
    Row(SOS, r"proc/net/ip(?P<family>6?)_tables_names", "cat /proc/net/ip{family}_tables_names"),
    Row(SOS, r"proc/modules", "cat /proc/modules"),
    Row(SOS, r"sos_commands/ipvs/ipvsadm_-Ln", "ipvsadm -Ln"),
    Row(SOS, r"sos_commands/kernel/sysctl_-a", "sysctl -a"),
    Row(SOS, r"sos_commands/host/hostname", HOSTNAME),
    Row(SOS, r"sos_commands/systemd/systemctl_list-units_--all", "systemctl list-units --all"),
    Row(SOS, r"sos_commands/systemd/systemctl_list-unit-files", "systemctl list-unit-files"),
    Row(SOS, r"sos_commands/systemd/systemctl_show_service_--all", "systemctl show '*service'", split=_states),
    Row(SOS, rf"{_NETWORKING}/networkctl_status_-a", "networkctl status -a"),
    Row(SOS, r"sos_commands/ebpf/bpftool_net_list", "bpftool net list"),
    *(Row(SOS, path[1:], f"cat {path}", most=EVIDENCE) for path in OF_KERNEL),
    *(
        Row(SOS, f"(?P<path>{path})", "cat /{path}", most=LARGEST_BOOT_FILE)
        for path in (
            r"etc/sysctl\.conf",  # to which a distribution may link
            rf"{_FOLDERS}/sysctl\.d/{_DROP_IN}",
            rf"{_FOLDERS}/systemd/networkd\.conf",
            rf"{_FOLDERS}/systemd/networkd\.conf\.d/{_DROP_IN}",
            rf"etc/cni/net\.d/{_CNI}",
            *(re.escape(path[1:]) for path in (*firewalls.NFTABLES_FILES, firewalls.FIREWALLD_FILE)),
        )
    ),
    *(
        Row(SOS, _OF_NAMESPACE + name, IN_NAMESPACE + command)
        for name, command in (
            ("ip_-d_address_show", "ip -d address show"),
            ("ip_route_show_table_all", "ip route show table all"),
            ("ip_-4_rule_list", "ip -4 rule list"),
            ("ip_-6_rule_list", "ip -6 rule list"),
            ("ip_-s_-s_neigh_show", "ip -s -s neigh show"),
        )
    ),
    *(
        Row(CILIUM, rf"cmd/{name}\.md", command, is_decisive=is_decisive, split=_markdown)
        for name, command, is_decisive in (
            ("ip-a", "ip a", True),
            ("ip--d--s-l", "ip -d -s l", True),
            ("ip--(?P<family>[46])-r", "ip -{family} r", True),
            ("ip--(?P<family>[46])-n", "ip -{family} n", False),
            ("ip-rule", "ip rule", False),
            ("ip--6-rule", "ip -6 rule", False),
            (r"ip--(?P<family>[46])-route-show-table-(?P<table>\d+)", "ip -{family} route show table {table}", False),
            ("ip(?P<family>6?)tables(?P<backend>|-nft|-legacy)-save--c", "ip{family}tables{backend}-save -c", False),
            ("ip6tables(?P<backend>|-nft|-legacy)--S", "ip6tables{backend} -S", False),
            ("sysctl--a", "sysctl -a", False),
            ("bpftool-net-show", "bpftool net show", False),
            ("hostname", HOSTNAME, False),
        )
    ),
    Row(RANCHER, r"networking/ipaddrshow", "ip addr show", is_decisive=True),
    Row(RANCHER, r"networking/ipv6addrshow", "ip -6 addr show", unless=("ip addr show",)),
    Row(RANCHER, r"networking/iplinkshow", "ip -s link show"),
    Row(RANCHER, r"networking/iprule", "ip rule show", is_decisive=True),
    Row(RANCHER, r"networking/ipv6rule", "ip -6 rule show"),
    Row(RANCHER, r"networking/iproute", "ip route show table all", is_decisive=True),
    Row(RANCHER, r"networking/ipv6route", "ip -6 route show", unless=_ALL_ROUTES),
    Row(RANCHER, r"networking/ipneighbour", "ip neighbour"),
    Row(RANCHER, r"networking/ipv6neighbour", "ip -6 neighbour", unless=("ip neighbour",)),
    Row(RANCHER, r"networking/nft_ruleset", "nft list ruleset"),
    Row(RANCHER, r"networking/ipvsadm", "ipvsadm -ln"),
    *(Row(RANCHER, rf"networking/{program}save", f"{program}-save") for program in _PROGRAMS),
    *(
        _listing(RANCHER, f"networking/{program}{name}", program, table)
        for program in _PROGRAMS
        for name, table in (("", "filter"), ("nat", "nat"), ("mangle", "mangle"))
    ),
    Row(RANCHER, r"systeminfo/sysctla", "sysctl -a"),
    Row(RANCHER, r"systeminfo/hostname", HOSTNAME),
    Row(RETINA, r"ip-resources\.txt", "outputs of ip", is_decisive=True, split=_executed),
    Row(RETINA, r"iptables-rules\.txt", "outputs of iptables", split=_executed),
    Row(CALICO, r"diagnostics/ipv(?P<family>[46])_route", "ip -{family} route", is_decisive=True),
    Row(CALICO, r"diagnostics/ipv(?P<family>[46])_addr", "ip -{family} addr", is_decisive=True),
    Row(CALICO, r"diagnostics/ipv4_tables", "iptables-save -c"),
    Row(CALICO, r"diagnostics/ipv6_tables", "ip6tables-save -c"),
    Row(CALICO, r"diagnostics/ipsets", "ipset list"),
    Row(CALICO, r"diagnostics/ipset_container", "ipset list", unless=("ipset list",)),
    Row(CALICO, r"diagnostics/hostname", HOSTNAME),
    Row(CALICO, r"diagnostics/date", DATE),
    Row(AWS_CNI, r"aws-routed-eni/iprule\.out", "ip rule show", is_decisive=True),
    Row(AWS_CNI, r"aws-routed-eni/route\.out", "ip route show table all", is_decisive=True, split=_last_routes),
    Row(AWS_CNI, r"aws-routed-eni/ifconfig\.out", "ifconfig"),
    Row(AWS_CNI, r"aws-routed-eni/iptables-save\.out", "iptables-save"),
    *(
        _listing(AWS_CNI, rf"aws-routed-eni/iptables{name}\.out", "iptables", table)
        for name, table in (("", "filter"), ("-nat", "nat"), ("-mangle", "mangle"))
    ),
    Row(AWS_CNI, r"aws-routed-eni/sysctls\.out", "sysctl -a", split=_filters),
    Row(AWS_CNI, r"aws-routed-eni/eni\.out", "curl http://localhost:61679/v1/enis"),
    Row(AWS_CNI, rf"aws-routed-eni/cni/(?P<path>{_CNI})", "cat /etc/cni/net.d/{path}", most=LARGEST_BOOT_FILE),
    Row(RETINA, r"proc-sys-net/(?P<key>.+)", "sysctl -a"),
    Row(ANTREA, rf"{_AGENT}/agentinfo", HOSTNAME, is_decisive=True, split=_node_of_agent),
    Row(ANTREA, rf"{_AGENT}/address", "ip address"),
    Row(ANTREA, rf"{_AGENT}/link", "ip link"),
    Row(ANTREA, rf"{_AGENT}/rule", "ip rule"),
    Row(ANTREA, rf"{_AGENT}/route-table-all", "ip route show table all"),
    Row(ANTREA, rf"{_AGENT}/route", "ip route", unless=_ALL_ROUTES),
    Row(ANTREA, rf"{_AGENT}/iptables", "iptables-save -c", split=_by_program),
    Row(ANTREA, rf"{_AGENT}/nftables", "nft list ruleset", split=_unless_empty),
    Row(ANTREA, rf"{_AGENT}/ipset", "ipset save"),
    Row(BOTTLEROCKET, r"bottlerocket-logs/iptables-(?P<table>filter|nat)", "iptables -t {table} -nvL", is_decisive=True),
    Row(OPENSHIFT, rf"{_NODE}/ip\.txt", "ip a", is_decisive=True),  # of the must-gather of CNV
    Row(OPENSHIFT, rf"{_NODE}/nftables", "nft list ruleset", is_decisive=True, split=_unless_empty),
    Row(OPENSHIFT, rf"{_NODE}/etc/cni/net\.d/(?P<path>{_CNI})", "cat /etc/cni/net.d/{path}", most=LARGEST_BOOT_FILE),
    *(
        Row(TALOS, rf"resources/{name}\.net\.talos\.dev\.yaml", command, is_decisive=True)
        for name, command in (
            ("linkstatuses", talos.LINKS),
            ("addressstatuses", talos.ADDRESSES),
            ("routestatuses", talos.ROUTES),
            ("routingrulestatuses", talos.RULES),
        )
    ),
    Row(TALOS, r"resources/hostnamestatuses\.net\.talos\.dev\.yaml", HOSTNAME, split=talos.hostname),
    Row(TROUBLESHOOT, rf"{_HOST}run-host/(?P<name>{_RUN})(?<!-stderr)\.txt", "{name}", is_decisive=True),
    Row(TROUBLESHOOT, rf"{_HOST}run-host/(?P<name>{_RUN})-info\.json", _ABOUT + "{name}", most=LARGEST_BOOT_FILE),
    Row(TROUBLESHOOT, rf"{_HOST}system/sysctl\.json", "sysctl -a", is_decisive=True, split=_settings),
    Row(TROUBLESHOOT, rf"{_HOST}system/kernel_modules\.json", "cat /proc/modules", is_decisive=True, split=_loaded),
)  # fmt: skip
_PATTERNS = [re.compile(rf"(?P<top>(?:.*?/)??){row.path}") for row in ROWS]  # the shortest top, as usr/lib/x ends with lib/x


class Unused(t.NamedTuple):
    """Files that are not read, by a pattern of their paths. reason: a clause."""

    bundle: str
    path: str
    reason: str


_OF_CLUSTER = "it is about the cluster, and not about a node's network"
UNUSED = (
    Unused(ANTREA, rf"{_AGENT}/(?:flows|groups|ovsports)", "a twin has no Open vSwitch"),
    Unused(ANTREA, rf"{_AGENT}/(?:appliedtogroups|addressgroups|networkpolicies)", _OF_CLUSTER),
    Unused(BOTTLEROCKET, r"bottlerocket-logs/settings\.json", "it has what was set, and not what the kernel has"),
    Unused(BOTTLEROCKET, r"bottlerocket-logs/(?:signpost|wicked|journalctl\.log)", "it is no output about a node's network"),
    Unused(OPENSHIFT, r"cluster-scoped-resources/nmstate\.io/.*", "nmstate leaves out routes that the kernel or a CNI added"),
    Unused(OPENSHIFT, r"cluster-scoped-resources/.*", _OF_CLUSTER),
    Unused(OPENSHIFT, r"namespaces/[^/]+/pods/[^/]+/(?:ip_link|netns_ip_a)", "it does not say of which node it is"),
    Unused(OPENSHIFT, r"network_logs/.*", "a twin has no OVN"),
    Unused(OPENSHIFT, r"nodes/[^/]+/(?:bridge|vlan)", "a twin has no VLANs of bridges"),
    Unused(TALOS, r"kubernetesResources/.*", _OF_CLUSTER),
    Unused(TALOS, r"resources/kernelparamstatuses\..*", "it has what Talos set, and not what the kernel has"),
    Unused(TALOS, r"resources/nftableschains\..*", "it has what Talos set, and not the rules of the kernel"),
    Unused(TROUBLESHOOT, r"(?:support-bundle|preflightbundle)[^/]*/cluster-resources/.*", _OF_CLUSTER),
    Unused(TROUBLESHOOT, rf"{_HOST}system/ipv4Interfaces\.json", "it has no addresses"),
    Unused(TROUBLESHOOT, rf"{_HOST}run-host/{_RUN}-stderr\.txt", "it has the errors of a command"),
)


def _nameless(pattern: str) -> str:
    """Return a pattern whose groups have no names, so that it can stand beside others."""
    return re.sub(r"\(\?P=namespace\)", r"[\\w.-]+", re.sub(r"\?P<\w+>", "?:", pattern))


def _any_of(table: t.Iterable[Row | Unused]) -> re.Pattern[str]:
    return re.compile("(?:.*/)?(?:" + "|".join(f"({_nameless(row.path)})" for row in table) + ")")


_ANY, _ANY_UNUSED = _any_of(ROWS), _any_of(UNUSED)


def unused(path: str) -> Unused | None:
    """Return why a file is not read, if it is one of a known collector."""
    match = _ANY_UNUSED.fullmatch(path)
    return UNUSED[match.lastindex - 1] if match and match.lastindex else None


def most(path: str) -> int:
    """Return how many bytes of a file are read, which are none if no row of the table knows the file."""
    if not _ANY.fullmatch(path):
        return 0
    _above, is_setting, key = path.partition("/proc-sys-net/")
    if is_setting and not may_matter(f"net/{key}"):  # a tree of thousands of files
        return 0
    return max(row.most for row, pattern in zip(ROWS, _PATTERNS) if pattern.fullmatch(path))


class _File(t.NamedTuple):
    row: Row
    groups: dict[str, str]
    text: str


def nodes(files: t.Mapping[str, str]) -> dict[str, Texts]:
    """Return the outputs of each node by its name, none if the files are of no bundle.

    files: texts by path, whose first part is the name of the folder or archive.
    """
    tops: dict[str, dict[str, list[_File]]] = {}  # files by bundle, by the path above the bundle
    for path, text in sorted(files.items()):
        for row, pattern in zip(ROWS, _PATTERNS):
            match = pattern.fullmatch(path)
            if match:
                groups = match.groupdict()
                top = groups.pop("top") + (groups.pop("node", "") or "")
                of_bundle = tops.setdefault(top, {}).setdefault(row.bundle, [])
                of_bundle.append(_File(row, groups, text))
    texts: dict[str, Texts] = {}
    for top, bundles in tops.items():
        decisive = {bundle: sum(file.row.is_decisive for file in of_bundle) for bundle, of_bundle in bundles.items()}
        bundle = max(decisive, key=lambda name: decisive[name])
        if decisive[bundle]:
            texts[top] = _OF_BUNDLE.get(bundle, dict)(_texts(bundles[bundle]))
    return _named(texts)


def _texts(files: t.Sequence[_File]) -> Texts:
    """Return the outputs of the files by command."""
    commands = {file.row.command.format(**file.groups) for file in files if file.text.strip()}
    texts: dict[str, list[str]] = {}
    for file in files:
        row, command = file.row, file.row.command.format(**file.groups)
        if commands.isdisjoint(row.unless):
            text = f"net/{file.groups['key']} = {file.text}" if "key" in file.groups else file.text
            divided = row.split(command, text) if row.split else {command: text}
            for name, output in divided.items():
                texts.setdefault(name, []).append(output)
    return {command: "".join(outputs) for command, outputs in texts.items()}


def _of_runs(texts: Texts) -> Texts:
    """Return outputs by the commands that troubleshoot.sh ran. What one printed that failed is not whole."""
    runs = {name: json_object.parse(texts.pop(_ABOUT + name, "")) for name in [*texts] if not name.startswith(_ABOUT)}
    return {
        re.sub(r"^\S*/", "", str(about.get("command"))) + (_CUT if about.get("exitCode") != "0" else "")
        if about
        else name: texts[name]
        for name, about in runs.items()
    }


_CUT = " | uniq"  # behind a command whose output is not whole
_OF_BUNDLE: dict[str, t.Callable[[Texts], Texts]] = {TALOS: talos.outputs, TROUBLESHOOT: _of_runs}
_EXTENSION = re.compile(r"\.(?:tar\.gz|tgz|tar\.xz|txz|tar|zip)$")


def _named(texts: dict[str, Texts]) -> dict[str, Texts]:
    """Return the outputs by the names of the nodes: their own, or those of their folders, or the paths of these."""
    hosts = {top: of_node.pop(HOSTNAME, "").strip() for top, of_node in texts.items()}
    folders = {top: _EXTENSION.sub("", top.rstrip("/").rpartition("/")[2]) for top in texts}
    for names in (hosts, folders):
        if all(names.values()) and len({*names.values()}) == len(names):
            return {names[top]: of_node for top, of_node in texts.items()}
    return {top.rstrip("/"): of_node for top, of_node in texts.items()}


_STAMP = re.compile(r"20\d\d-\d\d-\d\d(?:[_T-]\d\d[_:]?\d\d(?:[_:]?\d\d)?(?:[-_]?UTC|Z)?)?|20\d{6}-?\d{6}")


def origin(name: str, node: str) -> Texts:
    """Return the name of a node, and the time in the name of its bundle if it has one, as outputs of commands.

    node: its key among the nodes of the bundle.
    """
    found = _STAMP.search(name)
    return {HOSTNAME: node.rpartition("/")[2], **({DATE: found[0]} if found else {})}


def folders(files: t.Mapping[str, str]) -> dict[str, Texts]:
    """Return the outputs of each folder by its name, of files that are of no bundle and whose names people chose."""
    texts: dict[str, Texts] = {}
    for path, text in sorted(files.items()):
        folder, _slash, name = path.rpartition("/")
        texts.setdefault(folder, {})[name] = text
    return _named(texts)


def of_node(texts: t.Mapping[str, Texts], node: str) -> Texts:
    """Return the outputs of a node. Raises Invalid, which lists the names, if they are of several and none is named.

    node: its name; empty if the outputs are of one node.
    """
    if not node and len(texts) == 1:
        return next(iter(texts.values()))
    if node in texts:
        return texts[node]
    raise Invalid("node", node, f"one of the nodes of the bundle: {nearest.listed(node, texts, MOST_NODES)}")
