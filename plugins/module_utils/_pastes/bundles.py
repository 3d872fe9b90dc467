# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Support bundles, each recognised by its files: which command printed a file, by the path of the file.

A bundle has thousands of files. A file that no row of the table knows is not read.
"""

from __future__ import annotations

import re
import typing as t

from .._core.errors import Invalid
from .._snapshot.settings import may_matter

Texts = dict[str, str]  # by command
EKS, AKS, SOS, CILIUM, RANCHER, RETINA, CALICO, AWS_CNI = (
    "eks-log-collector", "AKS log collector", "sosreport", "cilium-bugtool", "Rancher logs collector", "Retina capture",
    "calicoctl node diags", "aws-cni-support",
)  # fmt: skip
LARGEST, EVIDENCE = 32 << 20, 4 << 20  # bytes of an output, and of one that is evidence alone
LARGEST_BOOT_FILE = 1 << 20  # bytes
HOSTNAME = "hostname"  # a command whose output is the node's name
IN_NAMESPACE = "ip netns exec {namespace} "
Split = t.Callable[[str, str], Texts]  # takes the command of the row and the text, and returns texts by command


class Row(t.NamedTuple):
    """A file of a bundle.

    path: a pattern of its path below the bundle's top. command: that printed the file; {table}, {namespace}, {key} and {path}
    stand for groups of the pattern. is_decisive: whether the bundle is recognised by the file. unless: commands whose outputs say
    the same and more, so that the file is left out if the bundle has one of them. split: divides a file with outputs of several
    commands. most: bytes that are read of it.
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


def _servers(_command: str, text: str) -> Texts:
    """Return the last of several outputs of ipvsadm, if it is installed."""
    listed = text.rpartition("IP Virtual Server")
    return {"ipvsadm -Ln": listed[1] + listed[2]} if listed[1] else {}


def _listing(bundle: str, path: str, program: str, table: str, split: Split | None = None) -> Row:
    return Row(bundle, path, f"{program} -t {table} -nvL", unless=(f"{program}-save",), split=split)


_PROGRAMS = ("iptables", "ip6tables")
_ALL_ROUTES = ("ip route show table all",)  # of both families
_CHECKPOINT = "cat /var/run/aws-node/ipam.json"  # of ipamd
_NETWORKING, _FIREWALL = "sos_commands/networking", "sos_commands/firewall_tables"  # of sos
_FOLDERS, _DROP_IN = "(?:etc|run|usr/local/lib|usr/lib|lib)", r"[^/.][^/]*\.conf"  # of files for the next boot
_CNI = r"[\w-][\w.-]*\.(?:conf|conflist|json)"  # what a runtime reads of the folder of CNIs
_OF_NAMESPACE = rf"{_NETWORKING}/namespaces/(?P<namespace>[\w.-]+)/ip_netns_exec_(?P=namespace)_"
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
    *(Row(EKS, rf"networking/{program}-save\.txt", f"{program}-save") for program in _PROGRAMS),
    *(
        _listing(EKS, rf"networking/{program}-{table}\.txt", program, table, _without_total)
        for program in _PROGRAMS
        for table in ("mangle", "filter", "nat")
    ),
    Row(EKS, rf"cni/(?P<path>{_CNI})", "cat /etc/cni/net.d/{path}", most=LARGEST_BOOT_FILE),
    Row(AKS, r"collect/ip_4_addr\.json", "ip -4 -d -j addr show", is_decisive=True),
    Row(AKS, r"collect/ip_6_addr\.json", "ip -6 -d -j addr show"),
    Row(AKS, r"collect/ip_(?P<family>[46])_neighbor\.json", "ip -{family} -d -j neighbor show"),
    Row(AKS, r"collect/ip_4_route\.json", "ip -4 -d -j route show", is_decisive=True),
    Row(AKS, r"collect/ip_6_route\.json", "ip -6 -d -j route show table all"),
    Row(AKS, r"collect/ip_link\.json", "ip -d -j link show", is_decisive=True),
    Row(AKS, r"collect/ip_netconf\.json", "ip -d -j netconf show"),
    Row(AKS, r"collect/ip_rule\.json", "ip -4 -d -j rule show"),
    *(Row(AKS, rf"collect/{program}\.txt", f"{program} -t filter -nvL") for program in _PROGRAMS),
    Row(AKS, r"collect/nftables\.json", "nft -jn list ruleset"),
    Row(AKS, r"collect/sysctl\.txt", "sysctl -a"),
    Row(AKS, r"collect/proc/net/ip(?P<family>6?)_tables_names", "cat /proc/net/ip{family}_tables_names"),
    Row(AKS, r"collect/conntrack\.txt", "conntrack -L", most=EVIDENCE),
    Row(AKS, r"collect/ip_netns_commands\.txt", "ip netns exec", split=_of_namespaces),
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
    *(
        Row(SOS, f"(?P<path>{path})", "cat /{path}", most=LARGEST_BOOT_FILE)
        for path in (
            r"etc/sysctl\.conf",  # to which a distribution may link
            rf"{_FOLDERS}/sysctl\.d/{_DROP_IN}",
            rf"{_FOLDERS}/systemd/networkd\.conf",
            rf"{_FOLDERS}/systemd/networkd\.conf\.d/{_DROP_IN}",
            rf"etc/cni/net\.d/{_CNI}",
        )
    ),
    *(
        Row(SOS, _OF_NAMESPACE + name, IN_NAMESPACE + command)
        for name, command in (
            ("ip_-d_address_show", "ip -d address show"),
            ("ip_route_show_table_all", "ip route show table all"),
            ("ip_-4_rule_list", "ip -4 rule list"),
            ("ip_-6_rule_list", "ip -6 rule list"),
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
)  # fmt: skip
_PATTERNS = [re.compile(rf"(?P<top>(?:.*?/)??){row.path}") for row in ROWS]  # the shortest top, as usr/lib/x ends with lib/x


# Collectors that print no packet path, or in which this collection reads files with the names of commands alone: a file of each.
OTHERS = {
    "Bottlerocket's logdog": re.compile(r".*/bottlerocket-logs/.*"),
    "OpenShift must-gather": re.compile(r".*/cluster-scoped-resources/.*"),
    "troubleshoot.sh": re.compile(r".*/(?:support-bundle|preflightbundle)[^/]*/(?:cluster-resources|host-collectors)/.*"),
    "antctl supportbundle": re.compile(r".*/(?:appliedtogroups|ovsports)"),
    "talosctl support": re.compile(r".*/kubernetesResources/nodes\.yaml"),
}


def other_collector(path: str) -> str:
    """Return the name of a collector whose bundles are not read, by the path of one of its files; empty for another file."""
    return next((name for name, pattern in OTHERS.items() if pattern.fullmatch(f"/{path}")), "")


def _nameless(pattern: str) -> str:
    """Return a pattern whose groups have no names, so that it can stand beside others."""
    return re.sub(r"\(\?P=namespace\)", r"[\\w.-]+", re.sub(r"\?P<\w+>", "?:", pattern))


_ANY = re.compile("(?:.*/)?(?:" + "|".join(_nameless(row.path) for row in ROWS) + ")")


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
                of_bundle = tops.setdefault(groups.pop("top"), {}).setdefault(row.bundle, [])
                of_bundle.append(_File(row, groups, text))
    texts: dict[str, Texts] = {}
    for top, bundles in tops.items():
        decisive = {bundle: sum(file.row.is_decisive for file in of_bundle) for bundle, of_bundle in bundles.items()}
        bundle = max(decisive, key=lambda name: decisive[name])
        if decisive[bundle]:
            texts[top] = _texts(bundles[bundle])
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


_EXTENSION = re.compile(r"\.(?:tar\.gz|tgz|tar\.xz|txz|tar|zip)$")


def _named(texts: dict[str, Texts]) -> dict[str, Texts]:
    """Return the outputs by the names of the nodes: their own, or those of their folders, or the paths of these."""
    hosts = {top: of_node.pop(HOSTNAME, "").strip() for top, of_node in texts.items()}
    folders = {top: _EXTENSION.sub("", top.rstrip("/").rpartition("/")[2]) for top in texts}
    for names in (hosts, folders):
        if all(names.values()) and len({*names.values()}) == len(names):
            return {names[top]: of_node for top, of_node in texts.items()}
    return {top.rstrip("/"): of_node for top, of_node in texts.items()}


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
    raise Invalid("node", node, f"one of the nodes of the bundle: {', '.join(sorted(texts))}")
