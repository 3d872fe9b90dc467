# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Pasted text, divided by the commands that printed its parts."""

from __future__ import annotations

import re
import typing as t

from .._routing.neighbour import STATES
from .._routing.route import TYPES

RULE, ROUTE, ROUTE_GET, LINK, NEIGHBOUR, NEXTHOP = "rule", "route", "route get", "link", "neighbor", "nexthop"
IPTABLES, IPTABLES_LIST, IPSET, EBTABLES, EBTABLES_LIST = "iptables", "iptables -L", "ipset", "ebtables", "ebtables -L"
NFT, NFT_JSON, IPVS, SYSCTL, ROUTE_N, IFCONFIG = "nft", "nft -j", "ipvsadm", "sysctl", "route -n", "ifconfig"
IPAMD, BPF, LEGACY_TABLES, MODULES = "ipamd", "bpf", "tables of iptables-legacy", "modules"
FILE, UNITS, NETWORKD, SOCKETS, ORIGIN = "file", "systemctl", "networkctl", "netstat", "origin"
HOSTNAME, DATE = "hostname", "date"  # commands that tell the node's name and the time
EVERY = "*"  # the namespace of ``ip -all netns exec``
UNKNOWN = ""
LONGEST = 500  # characters of a line with a command
Ignore = t.Callable[[str, str], None]  # takes why a line is not understood, and the line


class Part(t.NamedTuple):
    """What one command printed. kind: one of the above. family: "ipv4", "ipv6", or "" if the command does not say.

    table: of routes or of iptables, as the command names it, the setting that it asks for, the link of tc, the path of a file, or
    the units of systemd. is_pod: True if it ran in a pod. chain: of iptables, if the command names one, the direction of tc, what
    systemctl does, or which files head prints. is_cut: True if the command passes its output through a filter, such as grep, or
    asks for some objects, such as the addresses of one link.
    is_save: True if the command prints all tables, as iptables-save does. namespace: in which ``ip netns exec`` ran the command.
    host: in the prompt before the command; empty for none. is_understood: False if a line was not understood.
    is_legacy: True if the command prints the tables of iptables-legacy alone. has_errors: whether its errors are among the lines.
    """

    kind: str
    lines: tuple[str, ...]
    family: str = ""
    table: str = ""
    is_pod: bool = False
    chain: str = ""
    is_cut: bool = False
    is_save: bool = False
    namespace: str = ""
    host: str = ""
    is_understood: bool = True
    is_legacy: bool = False
    has_errors: bool = True

    @property
    def has_all_lines(self) -> bool:
        """Return whether the output has all lines, as far as it shows: without a filter, and without dots in place of lines."""
        return not (self.is_cut or any(line.strip() in _DOTS for line in self.lines))

    @property
    def is_whole(self) -> bool:
        """Return whether the output has all lines, and each of them was understood."""
        return self.is_understood and self.has_all_lines

    @property
    def shows_ports(self) -> bool:
        """Return whether an output of links shows which are ports of a bridge, as ``ip link`` and ``ip addr`` do."""
        return any(_LINK_HEAD.match(line) for line in self.lines)

    @property
    def shows_addresses(self) -> bool:
        """Return whether an output of links has all addresses. ``ip link`` prints none, and ifconfig no secondary ones."""
        return self.kind == LINK and any(_ADDRESS.search(line) for line in self.lines)


_ADDRESS = re.compile(r"\binet6?\b|^\S+ +[A-Z]+ +(?:\S+ +)*[\da-f.:]+/\d")  # the latter of ip -br addr
_LINK_HEAD = re.compile(r"\s*\d+:\s+\S+:\s+<[^>]*>.*\bmtu ")  # neither of ip -br, nor of ip -o addr, nor of ifconfig
_DOTS = ("...", "[...]", "(...)", "\u2026", "<snip>")  # stand for omitted lines


# Files that a reader knows. What another one has is known by its form, as the state of ipamd.
_FOLDERS = r"sysctl\.d|systemd/network|systemd/networkd\.conf(?:\.d)?"
_PATHS = (
    rf"(?:/etc/(?:sysctl\.conf|cni/net\.d|nftables\.conf|sysconfig/nftables\.conf|firewalld|kubenode|{_FOLDERS})\b"
    rf"|/run/(?:kubenode|{_FOLDERS})\b|(?:/usr(?:/local)?)?/lib/(?:{_FOLDERS})\b"
    r"|/proc/net/(?:snmp6?|netstat|tcp6?|stat/\w+))"
)
_FILES = re.compile(rf"{_PATHS}\S*")
# A command after a prompt, or on a separate line, where prose may begin with the name of a program. A pod's command follows
# the command that runs it, such as kubectl exec.
_OBJECT = (
    r"(a(?:d(?:d(?:r(?:e(?:s(?:s)?)?)?)?)?)?|l(?:i(?:nk?)?)?|ru(?:le?)?|r(?:o(?:u(?:te?)?)?)?|n(?:e(?:i(?:gh?\w*)?|xthop)?)?)"
)
_TOOL = (
    rf"(?:ip(?:\s+-\S+)*\s+{_OBJECT}(?:\s+[\w -]*|\s+get\s+[\w .:/\"'-]+)?"
    r"|ip6?tables(?:-nft|-legacy)?(?:-save)?(?:\s+-.*)?|ebtables(?:-\w+)*(?:\s+-.*)?"
    r"|ipset\s+(?:-|list|save|l\b|s\b).*|ipvsadm(?:\s+-.*)?|nft\s+(?:-\S+\s+)*list\b.*|sysctl\s+(?:-|net[./]).*"
    r"|route(?:\s+-\S+)*|ifconfig(?:\s+[\w.@:-]+)?|cat\s+/proc/(?:sys/\S+|net/ip6?_tables_names|modules)|lsmod"
    rf"|(?:head|tail)\s+-v\s.*|cat\s+{_PATHS}\S*|systemctl\s+(?:show|is-active|is-enabled|list-units|list-unit-files)\b.*"
    r"|networkctl\s+(?:-\S+\s+)*status\b.*|netstat(?:\s+-\w+)+|hostname|date|systemd-analyze\s+cat-config\s+\S+"
    r"|tc(?:\s+-\S+)*\s+filter\s+(?:show|list|ls)\b.*|bpftool\s+(?:-\S+\s+)*net\b.*)"
)
_SIGNS = r"\xbb\u203a\u25a0-\u27bf\ue0a0-\ue0d4"  # quotation marks, shapes and dingbats that end or begin prompts
_PROMPT = (
    rf"(?:>\s*)?(?:\[[^\]]*\]\s*[#$%]|[{_SIGNS}]\s+[~/][\w/.-]*(?=\s)|[\w.@~:/()\[\]-]*\s*[#$%>{_SIGNS}]"
    r"|[\w.-]+@[\w.-]+\s+\S+\s*[#$%]|[\w.-]+ [~/][\w/.-]* ?[#$])\s*"
)
# Runs a command elsewhere. Before exec, a short name may be an alias, such as k for kubectl.
_RUNNER = r"(?:kubectl|docker|crictl|podman|nerdctl|oc|nsenter|ip\s+netns\s+exec|[a-z][\w-]{0,9}(?:\s+\S+){0,4}\s+exec)"
_WRAPPED = rf"(?:(?P<pod>{_RUNNER}\s.*?)\s(?:--\s+)?)?"
_COMMAND = re.compile(
    rf"(?P<prompt>{_PROMPT})?(?:sudo\s+(?:-\S+\s+)*)?{_WRAPPED}(?:chroot\s+/host\s+)?(?:/\S*/)?(?P<tool>{_TOOL})(?:\s*[|>].*)?\s*"
)
# A command whose output tells nothing. Its prompt, or the program after a lone sign, shows that the line is no output.
_TOOLS = (
    r"kubectl|docker|crictl|podman|nerdctl|oc|nsenter|tcpdump|curl|wget|ping6?|nc|telnet|traceroute|dig|nslookup|cat|grep"
    r"|conntrack|tc|ss|netstat|ethtool|brctl|bridge|arp|dmesg|journalctl|systemctl|uname|hostname|ps|ls|cd|ssh|exit|calicoctl"
    r"|cilium|modprobe|ip|bpftool|nft"
)
_OTHER = re.compile(
    r"(?:>\s*)?(?P<prompt>\[[^\]]+@[^\]]+\]\s*[#$%]|[\w.-]+@[\w.-]+[:\s]\s*[^\s#$%]*\s*[#$%]|(?:[\w.-]+ )?[~/][\w/.-]*\s+[#$]"
    rf"|[~\w.-]*[#$%>{_SIGNS}](?=\s*(?:sudo\s+)?(?:{_TOOLS})\b)|\$(?=\s+[a-z./'\"(]))\s*(?P<command>\S.*)"
)
_HOST = re.compile(r"[\w.-]+@([\w.-]+)")  # in a prompt
_NAMESPACE = re.compile(r"ip\s+netns\s+exec\s+([\w.-]+)")
_EACH_NAMESPACE, _OF_NAMESPACE = re.compile(r"ip\s+-all?\s+netns\s+exec\b\s*"), re.compile(r"netns: ([\w.-]+)")
_MESSAGE = re.compile(r"(?:head|tail): ")
# What stands before the lines of a file: of head and tail, and of systemd-analyze.
_OF_FILE = re.compile(r"==> (/\S+)(?: <==)?|# (/\S+\.(?:conf|network|netdev|link))")
_LONE_PROMPT = re.compile(r"\[?[\w.-]+@[\w.-]+[: ][^\s\]]*\]?[#$]")  # after the last output
MARK = "| "  # before each line of a file, so that none looks like a command
# The prompt of a machine: in a container, the user is root or has no name, and is not at home.
_OF_A_USER = re.compile(r"(?!root@)[\w.-]+@|\[?root@[\w.-]+[: ]~")
_SHELL = re.compile(rf"(?:sudo\s+)?({_RUNNER}\s.*\s(?:/bin/)?\w*sh(?:\s+-\w+)*)")
# These run in the node's own network: programs of the node in pods, nodes in containers, and shells on the node.
_OF_THE_NODE = re.compile(
    r"kube-proxy|calico-node|canal|cilium|aws-node|azure-(?:cns|npm)|terway|weave-net|flannel|kube-router|antrea-agent|ovnkube"
    r"|node-shell|debug\s+node|/host\b|-control-plane\b|-worker\d*\b|\bk3d-|minikube|-t\s+1\s"
)
# The names of such pods, as their DaemonSets make them, or as `kubectl exec` finds one of a DaemonSet.
_AGENT = re.compile(
    r"(?:ds|daemonset|pods?)?/?(?:kube-proxy|calico-node|canal|cilium|aws-node|azure-cns|azure-npm|terway(?:-\w+)?|weave-net"
    r"|kube-flannel(?:-ds)?|kube-router|antrea-agent|ovnkube-node)(?:-[a-z0-9]{3,5})?"
)
_KUBECTL_EXEC = re.compile(r"\b(?:kubectl|oc)\s.*?\bexec\s+(?P<arguments>.*)")
_WITH_VALUE = ("-n", "--namespace", "-c", "--container", "--context", "--kubeconfig")  # options of kubectl exec
# What may stand behind a command whose output stays whole: programs that print all lines, and where errors go.
_WHOLE_PIPE = re.compile(
    r"(?:\s*\|\s*(?:sudo\s+)?(?:tee|less|more|cat|sort|column|nl)\b[^|;&<>`$()]*|\s*2>\s*(?:&1|/dev/null))*\s*"
)
NO_ERRORS = "2>/dev/null"
_BEHIND = re.compile(r"\s*(?:\d?>|[|;&]).*")
END = "```"  # of a fence, which may stand behind the last line
_FENCE = re.compile(r"\s*(?:(?:```|~~~)[\w-]*|</?(?:details|summary|p|br)\b.*)\s*")  # of Markdown and HTML
_TAG = re.compile(r"</?(?:pre|code|span)(?: [^<>]*)?>")  # of HTML, before or behind an output's line
_MARKS = "`*: "  # around a command that a text names
_REMARK = re.compile(r"(?<!\s)\s+(?:<[-=]{2,}|\u2190|//\s).*")  # an arrow to a line, or a remark behind it
# Before a line of a quotation, and before one that a program wrote to a console with the kernel's times.
_BEFORE = re.compile(r"^(?:> ?)+|^\[ *\d+\.\d+\] (?:[\w-]+\[\d+\])? ?: ?")
KERNELS_TYPES = ("broadcast", "multicast", "anycast")  # types of routes that only the kernel adds
_STATES = "|".join([*STATES.values(), "NOARP"])
_TYPES = "|".join([*TYPES, *KERNELS_TYPES])
_OF_A_ROUTE = "(?:dev|via|metric|nexthop|proto|table)"
_PROTOCOLS = r"!?(?:all|tcp|udp|icmp|icmpv6|ipv6-icmp|sctp|esp|gre|\d{1,3})"  # as iptables -L prints them
_LOOKS: tuple[tuple[str, str], ...] = (
    (NFT_JSON, r'\s*\{\s*"nftables"'),
    (IPAMD, r'\{"version":"vpc-cni-ipam/|\{(?:"\d+":\{)?"TotalIPs":'),
    (RULE, r"\s*\d+:\s+(?:not )?from "),
    (LINK, r"\s*\d+:\s+[^\s:]+:\s+<|[^\s:]+:\s+<[A-Z]+(?:,[A-Z\d_-]+)*>"),
    (BPF, r"\s*filter (?:\S+ )*?protocol \S+ pref \d+ \w+|[\w.@-]+\(\d+\)\s+(?:clsact|tcx)/"),
    (IPVS, r"IP Virtual Server|Prot LocalAddress|(?:TCP|UDP|SCTP|FWM)\s+\S+\s+(?:rr|wrr|lc|wlc|sh|dh|mh|sed|nq|lblc|lblcr)\b"),
    (IPSET, r"Name: \S+$|create \S+ (?:hash|bitmap|list):"),
    (NFT, r"table (?:ip|ip6|inet|bridge|netdev|arp) \S+ \{|(?:chain|map|set) \S+ \{"),
    (NEXTHOP, r"id \d+ (?:via|dev|group|blackhole|encap)\b"),
    (SYSCTL, r"net[./]\S+ ?= ?-?\d+|(?:sysctl: cannot stat |cat: )?/proc/sys/net/\S+"),
    (EBTABLES_LIST, r"Bridge (?:table|chain): "),
    (IPTABLES_LIST, r"Chain (?:\S+ \((?:policy|\d+ references)|[A-Z][\w-]+\s*$)"),
    (IPTABLES_LIST, rf"(?:\d+[KMGTPE]? +\d+[KMGTPE]? +)?[\w-]+ +(?:{_PROTOCOLS}) +(?:--|-f|!f) +\S+ +\S+"),
    (IPTABLES, r"\*(?:filter|nat|mangle|raw|security|broute)\s*$"),
    (IPTABLES, r"(?:\[\d+:\d+\] )?-[AIPN] \S+|:\S+ (?:ACCEPT|DROP|RETURN|-)( \[|$)"),
    (ROUTE_N, r"Kernel IP(?:v6)? routing table|Destination\s+(?:Gateway|Next Hop)"),
    (ROUTE_N, r"[\d.]+ +(?:[\d.]+|\*) +[\d.]+ +U[A-Z!]* +\d+ +\d+ +\d+ +\S+$"),
    (NEIGHBOUR, rf"[\da-f.:]+ dev \S+(?: lladdr \S+)?(?: router| proxy| extern_learn)* (?:{_STATES})"),
    # Without the time of a line of tcpdump.
    (ROUTE, rf"(?!\d\d:\d\d:\d\d\.)(?:(?:{_TYPES}) )?(?:default|[\da-f.:]+(?:/\d+)?) (?:.* )?{_OF_A_ROUTE} "),
    (ROUTE, r"(?:unreachable|blackhole|prohibit|throw) (?:default|[\da-f.:]+(?:/\d+)?)"),
)  # fmt: skip
_LOOKING = tuple((kind, re.compile(pattern)) for kind, pattern in _LOOKS)
_BRIDGE_WORDS = re.compile(
    r"arpreply|--ip6?-(?:src|dst|proto)|-p (?:IPv4|IPv6|ARP|802_1Q)\b|--logical-|--to-(?:src|dst) (?:[\da-f]{1,2}:){5}",
    re.IGNORECASE,
)


def parts(name: str, text: str) -> list[Part]:
    """Return the parts of a text. name: of the command that printed it, or of its file; may name no command.

    Where prompts name commands, they divide the text. A text without the name of a command is divided by the form of its lines. A
    command that printed nothing is a part too.
    """
    divided = [each for part in _Reader(_named(name)).read(text) for each in _sections(part)]
    return [output for part in divided for output in (_looked_at(part) if part.kind == UNKNOWN else [part])]


_SPAN = re.compile(r"`([^`]+)`")  # of Markdown
_LONE_MARK = re.compile(r"^`(?=[^`]*$)|^([^`]*)`$")  # of inline code of several lines


def quoted(divided: t.Sequence[Part]) -> list[Part]:
    """Return the rules and routes that sentences quote as inline code, if there is no other output of their command.

    One that a sentence quotes beside an output may be of another node, or what its author would like to have.
    """
    lines = [line for part in divided if part.kind == UNKNOWN for line in part.lines]
    spans = [span for line in lines for span in _SPAN.findall(line)]
    kinds = {RULE, ROUTE, IPTABLES, IPTABLES_LIST} - {part.kind for part in divided}
    looked_at = _looked_at(Part(UNKNOWN, tuple(spans))) if spans else []
    return [part._replace(is_cut=True) for part in looked_at if part.kind in kinds]


def _sections(part: Part) -> list[Part]:
    """Divide an output about several namespaces or files by its headings. One about files is also a part with what its program
    says besides.
    """
    heading = _OF_NAMESPACE if part.namespace == EVERY else _OF_FILE if part.kind == FILE and not part.table else None
    if heading is None:
        return [part]
    sections: list[tuple[Part, list[str]]] = []
    besides: list[str] = []
    for line in part.lines:
        match = heading.fullmatch(line.removeprefix(MARK).strip())
        if match:
            name = next(filter(None, match.groups()))
            sections.append((part._replace(namespace=name) if heading is _OF_NAMESPACE else part._replace(table=name), []))
        elif sections and not (part.kind == FILE and _MESSAGE.match(line)):
            sections[-1][1].append(line)
        else:
            besides.append(line)
    of_files = [part._replace(lines=tuple(besides))] if part.kind == FILE else []
    return [*of_files, *(section._replace(lines=tuple(lines)) for section, lines in sections)]


class _Reader:
    """Divides a text by its commands. start: the part that its name describes."""

    def __init__(self, start: Part) -> None:
        self._start = self._current = start
        self._lines: list[str] = []
        self._parts: list[Part] = []
        self._is_in_pod, self._nodes_prompt = False, ""  # in a shell of a pod, and the prompt before it
        self._pods_host: str | None = None  # in the first prompt of that shell; empty for none

    def read(self, text: str) -> list[Part]:
        for raw in text.splitlines():
            line = _REMARK.sub("", _BEFORE.sub("", raw.rstrip().replace("\t", " ").replace("\u00a0", " ")))
            if line.endswith(END) and not _FENCE.fullmatch(line):
                self._lines.append(line[: -len(END)])
                line = END
            words = _LONE_MARK.sub(r"\1", _TAG.sub("", line))
            has_tags = words != line
            if _FENCE.fullmatch(line) or (has_tags and _TAG.match(line.lstrip())):
                self._end_block()
            if _FENCE.fullmatch(line) or (has_tags and not words.strip()) or _LONE_PROMPT.fullmatch(words.strip()):
                continue
            if not (len(words) < LONGEST and self._is_command(words.strip())):
                self._lines.append(words)
            if line.endswith(("</code>", "</pre>")):
                self._end_block()
        self._begin(self._start)
        return self._parts

    def _end_block(self) -> None:
        if any(map(str.strip, self._lines)):  # otherwise the command that stands before the block is in it
            self._begin(self._start)

    def _is_command(self, line: str) -> bool:
        every = _EACH_NAMESPACE.search(line)
        line = line[: every.start()] + line[every.end() :] if every else line
        command = _COMMAND.fullmatch(line) or _COMMAND.fullmatch(line.strip(_MARKS))
        other = None if command else _OTHER.fullmatch(line)
        prompt = ((command or other) or {"prompt": ""})["prompt"] or ""
        if self._current.kind == FILE and self._current.host and not _HOST.search(prompt):
            return False  # a remark in a file
        if prompt.strip() == "#" and sum(previous.count("{") - previous.count("}") for previous in self._lines) > 0:
            return False  # a remark in a ruleset of nft
        self._leave(line, prompt.strip())
        is_named = self._start.is_pod and not _OF_A_USER.match(prompt)
        if command:
            is_pod = bool(every) or (bool(command["pod"]) and not _is_of_the_node(line)) or self._is_in_pod
            called = command.string[command.start("tool") :]
            tool = _BEHIND.sub("", called, 1)
            space = _NAMESPACE.match(command["pod"] or "")
            part = _of_command(tool, is_pod or is_named)
            is_cut = _is_filtered(called) or _is_selective(part.kind, tool)
            host = None if command["pod"] else _HOST.search(prompt)
            self._begin(
                part._replace(
                    is_cut=is_cut, namespace=EVERY if every else space[1] if space else "", host=host[1] if host else ""
                )
            )
        elif other:
            self._enter(other["command"], prompt.strip())
            self._begin(Part(UNKNOWN, (), "", "", self._is_in_pod or is_named, is_cut=True))
        return bool(command or other)

    def _leave(self, line: str, prompt: str) -> None:
        """Note that a shell in a pod has ended: by the prompt before it, or by one with another host than the pod's."""
        if line == "exit" or (prompt and prompt == self._nodes_prompt):
            self._is_in_pod = False
        if self._is_in_pod and prompt:
            found = _HOST.search(prompt)
            host = found[1] if found else ""
            self._pods_host = host if self._pods_host is None else self._pods_host
            self._is_in_pod = host == self._pods_host

    def _enter(self, command: str, prompt: str) -> None:
        """Note that a command starts a shell in a pod, or ends one."""
        if command.strip() == "exit":
            self._is_in_pod = False
        shell = _SHELL.fullmatch(command.strip())
        if shell and not _is_of_the_node(shell[1]):
            # The prompt of a shell in another namespace of the node is the node's own.
            self._is_in_pod, self._nodes_prompt = True, "" if shell[1].startswith(("nsenter", "ip")) else prompt
            self._pods_host = None

    def _begin(self, part: Part) -> None:
        self._parts.append(self._current._replace(lines=tuple(self._lines)))
        self._current, self._lines = part, []


def _named(name: str) -> Part:
    """Return the part whose command a name contains: ``ip-route-show-table-1003``, ``ip6tables-save``, ``ip -6 rule``."""
    if name.strip().startswith("cat /") and _FILES.fullmatch(name.strip()[len("cat ") :]):
        return _of_command(name.strip(), False)
    words = re.sub(r"\.(txt|log|out|json)$", "", name.strip())
    space = _NAMESPACE.match(words)
    if space:
        return _named(words[space.end() :])._replace(is_pod=True, namespace=space[1])
    every = _EACH_NAMESPACE.match(words)
    if every:
        return _named(words[every.end() :])._replace(is_pod=True, namespace=EVERY)
    if words in (HOSTNAME, DATE):
        return _of_command(words, False)
    if words.startswith(
        ("cat /proc/", "lsmod", "head -v ", "tail -v ", "systemctl ", "networkctl ", "netstat -", "systemd-analyze cat-config ")
    ):
        return _of_command(_BEHIND.sub("", words, 1), False)._replace(is_cut=_is_filtered(words))
    name_words = re.split(r"[\W_]+", words.lower())
    is_pod = "pod" in name_words and not {"node", "host"} & {*name_words}
    match = re.match(
        r"(?:sudo[- ])?(ip6?tables|ebtables|ipset|ipvsadm|nft|sysctl|route|ifconfig|ip|tc|bpftool)(?:[-_ ]|$)", words
    )
    if not match:
        return Part(UNKNOWN, (), is_pod=is_pod)
    command = words.removeprefix("sudo ")
    if match[1] in ("ip", "route", "ifconfig", "tc", "bpftool"):  # whose words stand behind dashes in the name of a file
        command = f"{match[1]} " + re.sub(r"[-_](?=[^\W\d_]|\d{2,}|-)", " ", words[match.end(1) :])
        command = _BARE_OPTIONS.sub(lambda bare: re.sub(r"(\w+)", r"-\1", bare[0]), command)
    part = _of_command(command, is_pod)
    table = next((name for name in name_words if name in _TABLES), "")
    if part.kind == IPTABLES and table and not part.table:
        part = part._replace(table=table, is_save=False)
    shown = words.removeprefix("sudo ") if " " in words else command
    is_cut = bool(_FILTERS & {*name_words}) or _is_filtered(words) or _is_selective_name(part.kind, shown)
    return part._replace(is_cut=is_cut, has_errors=NO_ERRORS not in words)


# Options of ip whose dashes a name has in place of blanks, before the object: "ip-d-link".
_BARE_OPTIONS = re.compile(r"(?<=^ip )\s*(?:(?:br|brief|d|details|j|o|p|s)\s+)+(?=\S)")
_TABLES = ("filter", "nat", "mangle", "raw", "security")
_FILTERS = {"awk", "cut", "egrep", "fgrep", "grep", "head", "sed", "tail"}
# Words in the name of a file that say nothing about the command's arguments.
_OF_A_NAME = re.compile(r"\s+(?:node|host|worker|master|before|after|old|new|good|bad|all|output|full|without|pod)\w*|\s+\d+$")
_OF_PARTS = {
    NFT: {"table", "tables", "chain", "chains", "set", "sets", "map", "maps"},
    IPSET: {"t", "terse", "n", "name", "names"},
}


def _is_selective_name(kind: str, command: str) -> bool:
    """Return whether the name of an output, which may be that of a file, is a command that prints some objects only."""
    command = " ".join(command.split())
    if " " not in command:
        if kind == SYSCTL:
            return not re.search(r"[\W_]a(?:ll)?\b", command)
        return bool(_OF_PARTS.get(kind, set()) & {*re.split(r"[\W_]+", command)})
    return _is_selective(kind, command) and _is_selective(kind, _OF_A_NAME.sub("", command))


# Of iptables, in a command line or in a file's name. Short options are often clustered: -xvnL, -nvt nat.
_TABLE_OPTION = re.compile(r"(?:^|\s)-\w*t\s+(\w+)|(?:^|\s)-t(\w+)|--table[= ](\w+)|-t-(\w+)")
_RULES_OPTION = re.compile(r"(?:^|[\s_-])-?[nvw]*S\b|--list-rules?\b")
_CHAIN_OPTION = re.compile(r"(?:-[a-zA-Z]*[LS]|--list(?:-rules?)?)(?:[ _-]+([A-Z][\w-]+|cali-[\w-]+)|\s+([^\s|>;&-][^\s|>;&]*))")
_LIST_OPTION = re.compile(r"(?:^|[\s_-])-?[nvxw46]*L[nvxw]*(?=$|[\s_-])|(?:^|[\s-])list(?!-rule)\b")


def _of_command(command: str, is_pod: bool) -> Part:
    """Return the part that a command prints."""
    words = command.split()
    program = re.split(r"[-_]", words[0])[0].rpartition("/")[2]
    number = re.search(r"(?<!table)\s-*(?:inet)?([46])(?=\s|$)", command)
    family = "ipv6" if program == "ip6tables" else f"ipv{number[1]}" if number and program in ("ip", "route") else ""
    if program in ("iptables", "ip6tables"):
        table = _TABLE_OPTION.search(command)
        is_list = bool(_LIST_OPTION.search(command)) and "save" not in command
        of = next(filter(None, table.groups()), "") if table else "filter" if _RULES_OPTION.search(command) else ""
        if not is_list and "save" not in command and not _RULES_OPTION.search(command):
            return Part(UNKNOWN, (), family, of, is_pod)  # words before an output of any kind
        chain = _CHAIN_OPTION.search(command)
        kind = IPTABLES_LIST if is_list else IPTABLES
        part = Part(kind, (), family or "ipv4", of, is_pod, (chain[1] or chain[2]) if chain else "")
        return part._replace(is_save="save" in command and not of, is_legacy="-legacy" in words[0])
    if program == "ebtables":
        table = re.search(r"(?:-t\s*|-t-)(\w+)", command)
        return Part(EBTABLES if "save" in command else EBTABLES_LIST, (), "", table[1] if table else "", is_pod)
    if program == "ip":
        objects = [word for word in words[1:] if re.fullmatch(_OBJECT, word)]
        kinds = {"a": LINK, "l": LINK, "n": NEIGHBOUR}
        if objects:
            of_routes = ROUTE_GET if re.search(r"[ -]get\b", command) else ROUTE
            kind = (
                NEXTHOP if objects[0] == NEXTHOP else kinds.get(objects[0][0], RULE if objects[0].startswith("ru") else of_routes)
            )
            table = re.search(r"\btable[ -](\S+)|\bt (\d+)$", command)
            return Part(kind, (), family, (table[1] or table[2]) if table and kind == ROUTE else "", is_pod)
        return Part(UNKNOWN, (), family, "", is_pod)
    if program == "tc":
        link, direction = re.search(r"\bdev\s+(\S+)", command), re.search(r"\b(?:ingress|egress)\b", command)
        return Part(BPF, (), "", link[1] if link else "", is_pod, direction[0] if direction else "")
    simple = {"bpftool": BPF, "ipset": IPSET, "ipvsadm": IPVS, "route": ROUTE_N, "ifconfig": IFCONFIG}
    names = re.search(r"/proc/net/ip(6?)_tables_names$", command.strip())
    if names:
        return Part(LEGACY_TABLES, (), "ipv6" if names[1] else "ipv4", "", is_pod)
    if command.endswith(("/proc/modules", "lsmod")):
        return Part(MODULES, (), "", "", is_pod)
    if words[0] == "systemctl":
        units = [
            word.strip("'\"")
            for word in words[2:]
            if "=" not in word and not (word.startswith("-") or words[words.index(word) - 1] == "-p")
        ]
        return Part(UNITS, (), "", " ".join(units), is_pod, words[1])
    if words[0] in (HOSTNAME, DATE):
        return Part(ORIGIN, (), "", words[0], is_pod)
    if words[0] == "netstat":
        letters = {*"".join(words[1:])}
        return Part(SOCKETS if "n" in letters and letters & {*"al"} and not letters & {*"girsu"} else UNKNOWN, (), "", "", is_pod)
    if words[0] == "networkctl":
        return Part(NETWORKD, (), "", "", is_pod)
    if words[0] in ("head", "tail", "systemd-analyze"):
        return Part(FILE, (), "", "", is_pod, " ".join(words[1:]))
    if program == "cat" and _FILES.fullmatch("".join(words[1:2])):
        return Part(FILE, (), "", words[1], is_pod)
    if program in ("sysctl", "cat"):
        key = re.search(r"(?:/proc/sys/|\s)(net[./][\w./@-]+)$", command.strip())
        return Part(SYSCTL, (), family, key[1] if key else "", is_pod)
    if program == "nft":
        return Part(NFT_JSON if re.search(r"(?:^|[ -])-?-(?:json|[a-z]{0,3}j[a-z]{0,3})\b", command) else NFT, (), "", "", is_pod)
    return Part(simple.get(program, UNKNOWN), (), family, "", is_pod)


_LISTING = r"(?:\s+(?:s(?:h(?:ow?)?)?|l(?:i(?:st?)?)?|ls|lst))?"
# The commands that print all objects of a kind. Of routes, those of a table; of others, one may name a link, for example.
_WHOLE = {
    kind: re.compile(pattern)
    for kind, pattern in {
        RULE: rf"ip(?:\s+-\S+)*\s+{_OBJECT}{_LISTING}",
        ROUTE: rf"ip(?:\s+-\S+)*\s+{_OBJECT}{_LISTING}(?:\s+t(?:able)?\s+\S+)?",
        LINK: rf"ip(?:\s+-\S+)*\s+{_OBJECT}{_LISTING}",
        NEIGHBOUR: rf"ip(?:\s+-\S+)*\s+{_OBJECT}{_LISTING}",
        NFT: r"nft(?:\s+-[aeinNpsSuyj]+|\s+--(?:handle|stateless|numeric\S*|json))*\s+list\s+ruleset",
        NFT_JSON: r"nft(?:\s+-[aeinNpsSuyj]+|\s+--(?:handle|stateless|numeric\S*|json))*\s+list\s+ruleset",
        IPSET: r"ipset\s+(?:-L|-S|--?list|--?save|list|save|l|s)(?:\s+-(?:s|o\s+(?:plain|save)))*",
        IPVS: r"ipvsadm(?:\s+(?:-[LlnSZ]+|--(?:list|save|numeric|stats|rate|exact|sort|nosort)))*",
        EBTABLES: r"ebtables(?:-\w+)*(?:\s+-c)?",
        SYSCTL: r"sysctl(?:\s+-\w+)*\s+(?:-\w*[aA]\w*|--all)(?:\s+-\w+)*",
        IFCONFIG: r"ifconfig(?:\s+-a)?",
    }.items()
}


def _is_of_the_node(line: str) -> bool:
    """Return whether a command that runs in a pod or container shows the node's own network."""
    executed = _KUBECTL_EXEC.search(line)
    if not executed:
        return bool(_OF_THE_NODE.search(line))
    words = executed["arguments"].split()
    while words and words[0].startswith("-"):
        del words[: 2 if words[0] in _WITH_VALUE else 1]
    return bool(words and _AGENT.fullmatch(words[0])) or bool(re.search(r"/host\b|-t\s+1\s", line))


def _is_filtered(command: str) -> bool:
    """Return whether a program behind a command may leave out lines of its output."""
    behind = _BEHIND.search(command)
    return behind is not None and not _WHOLE_PIPE.fullmatch(behind[0])


def _is_selective(kind: str, tool: str) -> bool:
    """Return whether a command prints some objects of a kind only. Outputs of iptables say so by their chains."""
    whole = _WHOLE.get(kind)
    return whole is not None and not whole.fullmatch(tool.strip())


def _looked_at(part: Part) -> list[Part]:
    """Return a text without a command, divided where its lines begin to have the form of another command's output."""
    parts: list[Part] = []
    kind, lines = UNKNOWN, list[str]()
    for line in part.lines:
        look = next((name for name, pattern in _LOOKING if pattern.match(line.lstrip() if name != NFT_JSON else line)), None)
        if look and look != kind and not (kind == NFT and not line[:1].strip()) and kind != NFT_JSON:
            parts.append(part._replace(kind=kind, lines=tuple(lines)))
            kind, lines = look, []
        lines.append(line)
    parts.append(part._replace(kind=kind, lines=tuple(lines)))
    outputs = (part for part in parts if any(map(str.strip, part.lines)))
    shown = [output._replace(is_cut=output.is_cut or not _is_whole_by_form(output)) for output in outputs]
    return [_bridged(output) if output.kind == IPTABLES else output for output in shown]


_FIRST_RULE = re.compile(r"\s*\d+:\s+from all lookup local\b")


def _is_whole_by_form(part: Part) -> bool:
    """Return whether lines without their command may be a whole output: iptables-save with an end of each table, or ip rule."""
    return part.kind == IPTABLES or (part.kind == RULE and any(map(_FIRST_RULE.match, part.lines)))


def _bridged(part: Part) -> Part:
    """Return a part with its family, or as one of ebtables, whose rules have other options than those of iptables."""
    if any(_BRIDGE_WORDS.search(line) for line in part.lines):
        return part._replace(kind=EBTABLES, is_cut=True)
    is_ipv6 = any(re.search(r" (?:-s|-d|--to-\w+) \S*::", line) for line in part.lines)
    return part._replace(family=part.family or ("ipv6" if is_ipv6 else "ipv4"))
