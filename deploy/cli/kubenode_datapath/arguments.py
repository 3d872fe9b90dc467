# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The command line: what each command takes, as argparse has it. The completion of shells is made of the same parser."""

from __future__ import annotations

import argparse
import ipaddress
import re
import textwrap
import typing as t

from ansible_collections.kubenode.datapath.plugins.module_utils._core import nearest
from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import DatapathError, Invalid

COMMANDS = ("audit", "trace", "explain", "snapshot", "commands", "completion")
AUDIT, TRACE, EXPLAIN, SNAPSHOT, SCRIPT, COMPLETION = COMMANDS
LIVE, STDIN = "live", "-"
SHELLS = ("bash", "zsh", "fish")
# The names under which the program is started, the last one by kubectl to complete the words of the plugin.
COMMAND, PLUGIN, COMPLETER = "kubenode-datapath", "kubectl-datapath", "kubectl_complete-datapath"
MANUAL = "__manual"  # prints the manual page, for packing.py
ARRIVES, LOST, CANNOT_TELL, ERROR = range(4)  # exit statuses
SEVERITIES = ("error", "risk", "note")
# As the module datapath_audit has them.
CLOUDS = ("azure", "aws", "alibaba", "other")
PROBE_MODES = ("shared", "servicenodeport")
CNIS = ("aws_vpc_cni", "azure_vnet", "calico", "cilium", "flannel", "terway", "other")
FORMATS = TEXT, JSON, YAML, WIDE, MERMAID = ("text", "json", "yaml", "wide", "mermaid")
OF_AUDIT, OF_TRACE, OF_EXPLAIN = (TEXT, WIDE, JSON, YAML), (TEXT, WIDE, JSON, YAML, MERMAID), (TEXT, JSON, YAML)
COLOURS = AUTO, ALWAYS, NEVER = ("auto", "always", "never")
IMAGE = "docker.io/library/busybox:stable"

# What the command line calls options of the modules datapath_trace and datapath_audit, in errors.
NAMES = {
    "assume": "--assume",
    "checks": "--check",
    "commands": "--command",
    "dump": "EVIDENCE",
    "earlier": "BEFORE",
    "finding": "--finding",
    "node": "--node",
    "packet": "PACKET",
    "snapshot": "EVIDENCE",
}

ABOUT = (
    "Say what is wrong with the packet path of a Kubernetes node, and show why one packet does not arrive and which change helps."
    " The node is rebuilt in network namespaces, from a support bundle, from outputs of commands or from itself. Nothing is"
    " changed, neither here nor on the node."
)
ABOUT_AUDIT = (
    "Say what is wrong with a node's packet path, try it and its remedy in network namespaces, and name the profile that helps."
    " Evidence of several nodes, such as a folder of bundles, is a table of findings with their nodes."
)
ABOUT_TRACE = (
    "Show why a packet does not arrive: rebuild a node in network namespaces, and send the packet and its reply through it."
)
ABOUT_EXPLAIN = (
    "Say which change of a node is guilty: compare two states of it, try the earlier one with some of the changes in network"
    " namespaces, and name the fewest with which the packet is lost."
)
ABOUT_SNAPSHOT = "Read {node} as JSON, which audit, trace and explain take as evidence on any machine."
ABOUT_SCRIPT = (
    "Print a script of the shell that prints what audit and trace read of a node, for one without Python, such as of"
    " Bottlerocket, Flatcar or Talos. It changes nothing and reads no secret. Its output is evidence."
)
ABOUT_COMPLETION = "Print the completion of a shell, which evaluates it."
STATUSES = {
    AUDIT: "0 if no check finds an error or a risk, 1 if one does, 2 if none does and the evidence leaves a check open,",
    TRACE: "0 if packet and reply arrive, 1 if one is lost, 2 if the evidence does not tell,",
    EXPLAIN: "0 if packets arrive as before, 1 if changes are guilty of a loss, 2 if that cannot be told,",
}
PACKET_EXAMPLE = "'tcp 10.0.0.9:40000 > 10.96.0.10:80 in eth0'"
# What a person types first, by the command; empty for the whole program. {} is the program.
EXAMPLES = {
    "": ("{} audit node7.tar.gz", f"{{}} trace node7.tar.gz {PACKET_EXAMPLE}", "ssh node7 sudo {} snapshot > node7.json"),
    AUDIT: (
        *("{} audit node7.tar.gz", "sudo {} audit live", "{} audit bundles/            # one node each", "{} audit --list"),
        *("{} audit --explain rp-strict-asymmetric", "{} audit node7.tar.gz nft-list-ruleset.txt"),
    ),
    TRACE: (
        *(f"{{}} trace node7.tar.gz {PACKET_EXAMPLE}", "{} trace node7.json 'tcp default/web-0 -> default/api:http'"),
        *("{} trace node7.json --finding rp-strict-asymmetric", "{} trace live --command 'ip rule del priority 2000' PACKET"),
    ),
    EXPLAIN: ("{} explain monday.json tuesday.json", f"{{}} explain monday.json live {PACKET_EXAMPLE}"),
    SNAPSHOT: ("ssh node7 sudo {} snapshot > node7.json", "sudo {} snapshot --file node7.json"),
    SCRIPT: ("{} commands | ssh node7 sudo sh > node7.txt", "{} audit node7.txt"),
    COMPLETION: ("source <({} completion bash)", "{} completion fish | source"),
}
EXAMPLES_OF_PLUGIN = {
    "": ("{} audit node7", f"{{}} trace node7 {PACKET_EXAMPLE}", "{} snapshot node7 > node7.json"),
    AUDIT: ("{} audit node7", "{} audit node7 -o json", "{} audit node7 --image registry.local/busybox -n kube-system"),
    TRACE: (f"{{}} trace node7 {PACKET_EXAMPLE}", "{} trace node7 --finding rp-strict-asymmetric -o yaml"),
    SNAPSHOT: ("{} snapshot node7 > node7.json",),
    SCRIPT: (EXAMPLES[SCRIPT][0], f"{COMMAND} audit node7.txt"),
}
PACKET = "such as 'tcp 10.0.0.1:40000 > 10.96.0.1:443 in eth0', or a line of tcpdump, conntrack -L or iptables' LOG"
EVIDENCE = (
    "a support bundle, a folder or a file with outputs of commands, or a snapshot; - reads one from standard input, live reads"
    " this node. Several make one node: outputs that an answer asks for stand behind the bundle that lacks them"
)

EVIDENCE_OF_ONE = "a support bundle, a folder or a file with outputs of commands, or a snapshot"
OF_MANY = "which node of a bundle of many"
OF_MANY_AUDIT = "one node of a bundle of many (default: all of them)"
ASSUME = "a setting or an open fact, by the id that a trace gives, such as nft=shown; may be repeated"


class Parser(argparse.ArgumentParser):
    """A parser whose errors end with the status of an error: argparse's own means that the evidence does not tell."""

    def error(self, message: str) -> t.NoReturn:
        end = "" if message.endswith("?") else "."
        self.exit(ERROR, f"{self.prog}: {message}{end} {self.prog} --help lists what it takes\n")

    def _check_value(self, action: argparse.Action, value: t.Any) -> None:
        """Name the nearest words of many."""
        if action.choices is not None and value not in action.choices:
            choices = [str(choice) for choice in action.choices]
            raise argparse.ArgumentError(action, f"invalid choice: '{value}' (choose {_choice(str(value), choices)})")


def _choice(word: str, choices: t.Sequence[str]) -> str:
    near = nearest.names(word, choices) if word else choices
    return f"from {', '.join(choices)}" + (f"; did you mean {near[0]}?" if 0 < len(near) < len(choices) else "")


class Help(argparse.HelpFormatter):
    """Fills paragraphs, and leaves lines that begin with blanks as they are: examples."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        lines = text.splitlines()
        return "\n".join(line if line.startswith(" ") else textwrap.fill(line, width) for line in lines)


class _InPlaceOf(argparse.Action):
    """An option with which an argument is not required. places: names of the arguments."""

    def __init__(self, *words: t.Any, places: tuple[str, ...] = (), **named: t.Any) -> None:
        super().__init__(*words, **named)
        self._places = places

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: t.Any, option_string: str | None = None
    ) -> None:
        setattr(namespace, self.dest, True if self.nargs == 0 else values)
        for action in parser._actions:
            action.required = action.required and action.dest not in self._places


class _Format(argparse.Action):
    """An older option for a format of the output, such as --json."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: t.Any, option_string: str | None = None
    ) -> None:
        namespace.format = self.const


def parser(is_plugin: bool, version: str) -> Parser:
    """Return the parser. is_plugin: whether kubectl starts the program, whose evidence is then a node of a cluster."""
    name = PLUGIN.replace("-", " ") if is_plugin else COMMAND
    examples = EXAMPLES_OF_PLUGIN if is_plugin else EXAMPLES
    further = f"{name} COMMAND --help has the options and examples of a command."
    whole = Parser(
        prog=name, description=ABOUT, epilog=_epilog(name, examples[""], further), formatter_class=Help, allow_abbrev=False
    )
    whole.add_argument("--version", action="version", version=f"{name} {version}")
    commands = whole.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=Parser)

    def command(word: str, summary: str, description: str) -> Parser:
        ends = f"Exit status: {STATUSES[word]} 3 for an error." if word in STATUSES else ""
        epilog = _epilog(name, examples[word], ends)
        about: dict[str, t.Any] = {"help": summary, "description": description, "epilog": epilog}
        return commands.add_parser(word, **about, formatter_class=Help, allow_abbrev=False)

    node = "a node of the cluster" if is_plugin else "this node"
    audit = command(AUDIT, "say what is wrong with a node, and what helps", ABOUT_AUDIT)
    trace = command(TRACE, "show what becomes of a packet, and what decides", ABOUT_TRACE)
    if not is_plugin:
        _add_explain(command(EXPLAIN, "say which change since is guilty", ABOUT_EXPLAIN))
    snapshot = command(SNAPSHOT, f"read {node}, for an audit or a trace elsewhere", ABOUT_SNAPSHOT.format(node=node))
    command(SCRIPT, "print a script that reads a node without Python", ABOUT_SCRIPT)
    if is_plugin:
        for each in (trace, audit, snapshot):
            _add_cluster(each)
    else:
        evidence = {trace: EVIDENCE, audit: f"{EVIDENCE}. In a folder of bundles or snapshots, each is a node"}
        for each in (trace, audit):
            each.add_argument("evidence", metavar="EVIDENCE", nargs=1 if each is trace else "+", default=[], help=evidence[each])
            each.add_argument("--node", default="", metavar="NODE", help=OF_MANY if each is trace else OF_MANY_AUDIT)
        completion = command(COMPLETION, "print the completion of a shell", ABOUT_COMPLETION)
        completion.add_argument("shell", choices=SHELLS)
    _add_trace(trace)
    _add_audit(audit)
    snapshot.add_argument("--file", "--output", dest="file", metavar="FILE", help="write to FILE instead of standard output")
    return whole


def _epilog(name: str, examples: t.Iterable[str], further: str) -> str:
    return "\n".join(["examples:", *(f"  {line.format(name)}" for line in examples), *(["", further] if further else [])])


def parsed(parser: Parser, words: t.Sequence[str]) -> argparse.Namespace:
    """Parse a command line. A packet of explain may stand behind an option, where argparse has given it up."""
    options, further = parser.parse_known_args(words)
    of_command = commands_of(parser)[options.command]
    if further and (options.command != EXPLAIN or any(word.startswith("-") for word in further)):
        names = [word for action in of_command._actions for word in action.option_strings if word.startswith("--")]
        options_near = [word for word in further if word.startswith("--")]
        near = nearest.names(options_near[0].partition("=")[0], names, 1) if options_near else []
        parser.error(f"unrecognized arguments: {' '.join(further)}" + "".join(f"; did you mean {word}?" for word in near))
    if further:
        options.packet = [*options.packet, *further]
    return options


def commands_of(parser: argparse.ArgumentParser) -> t.Mapping[str, argparse.ArgumentParser]:
    """Return the parsers of the commands by their names."""
    (commands,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    return t.cast("t.Mapping[str, argparse.ArgumentParser]", commands.choices)


def _add_output(command: argparse.ArgumentParser, formats: t.Sequence[str]) -> argparse._MutuallyExclusiveGroup:
    form = command.add_mutually_exclusive_group()
    about = "the form of the answer (default: text); wide adds the checks that passed and the task of each remedy"
    form.add_argument("-o", "--output", dest="format", choices=formats, default=TEXT, metavar="FORMAT", help=_of(about, formats))
    form.add_argument("--json", action=_Format, nargs=0, const=JSON, dest="format", help="the same as -o json")
    colours = "whether the text has colours (default: auto, which looks at the terminal, NO_COLOR and FORCE_COLOR)"
    command.add_argument("--color", choices=COLOURS, default=AUTO, metavar="WHEN", help=_of(colours, COLOURS))
    return form


def _of(about: str, choices: t.Sequence[str]) -> str:
    return f"{', '.join(choices)}: {about}"


def _add_trace(trace: argparse.ArgumentParser) -> None:
    trace.add_argument("packet", metavar="PACKET", nargs="+", default=[], help=PACKET)
    finding = "a finding of audit with the same evidence, whose packet is sent: its id, and behind a colon its subject if needed"
    named: dict[str, t.Any] = {"default": "", "metavar": "ID[:SUBJECT]", "help": finding}
    trace.add_argument("--finding", action=_InPlaceOf, places=("packet",), **named)
    _add_context(trace)
    change = "a command of ip, nft, iptables, ipset, ebtables, bridge or sysctl to try in the copy of the node; may be repeated"
    trace.add_argument("--command", action="append", default=[], dest="changes", metavar="COMMAND", help=change)
    form = _add_output(trace, OF_TRACE)
    mermaid = "the same as -o mermaid: a diagram, for an issue"
    form.add_argument("--mermaid", action=_Format, nargs=0, const=MERMAID, dest="format", help=mermaid)
    trace.add_argument("--html", metavar="FILE", help="write a page with the path, too")


def _add_explain(explain: argparse.ArgumentParser) -> None:
    before = f"the earlier state: {EVIDENCE_OF_ONE}. Or one folder whose outputs have before and after in their names"
    explain.add_argument("before", metavar="BEFORE", help=before)
    after = f"the later state, or {LIVE} for this node"
    explain.add_argument("after", metavar="AFTER", nargs="?", default="", help=after)
    explain.add_argument("packet", metavar="PACKET", nargs="*", help=f"{PACKET} (default: each path that pods and Services need)")
    explain.add_argument("--node", default="", metavar="NODE", help=OF_MANY)
    explain.add_argument("--assume", action="append", default=[], metavar="FACT=VALUE", help=ASSUME)
    _add_output(explain, OF_EXPLAIN)


def _add_audit(audit: argparse.ArgumentParser) -> None:
    instead: dict[str, t.Any] = {"action": _InPlaceOf, "places": ("evidence", "node")}
    audit.add_argument("--list", dest="lists", nargs=0, default=False, help="list the checks with their severities", **instead)
    about = "say what a check looks at, what a user sees of its trouble, what helps, and who reported it"
    audit.add_argument("--explain", dest="about", default="", metavar="ID", help=about, **instead)
    check = "a check to make, by its id, or error, risk or note for all of that severity; may be repeated (default: all)"
    audit.add_argument("--check", action="append", default=[], dest="checks", metavar="ID_OR_SEVERITY", help=check)
    skips = "do not try findings and remedies in a copy of the node: what a packet decides cannot be told then"
    audit.add_argument("--no-prove", action="store_false", dest="prove", help=skips)
    _add_context(audit)
    form = _add_output(audit, OF_AUDIT)
    lines = (
        "print one line of at most 80 characters for a monitor, and let findings of this severity alone decide the exit status"
    )
    audit.add_argument("--html", metavar="FILE", help="write a page with the findings, too")
    form.add_argument("--line", choices=SEVERITIES, metavar="SEVERITY", help=lines)


def _add_context(command: argparse.ArgumentParser) -> None:
    """Add what no node shows, and what the evidence does not show."""
    audit = command.add_argument_group("what no node shows")
    audit.add_argument("--assume", action="append", default=[], metavar="FACT=VALUE", help=ASSUME)
    cloud = "the cloud of the node (default: marks of Azure's network on it decide)"
    audit.add_argument("--cloud", choices=CLOUDS, metavar="CLOUD", help=_of(cloud, CLOUDS))
    mode = "what the load balancer probes: the health port 10256 (shared), or the ports of each Service, as is Azure's default"
    audit.add_argument("--probe-mode", choices=PROBE_MODES, metavar="MODE", help=_of(mode, PROBE_MODES))
    cni = "the CNI of the node (default: its configuration and links decide)"
    audit.add_argument("--cni", choices=CNIS, metavar="CNI", help=_of(cni, CNIS))
    for kind in ("service", "pod"):
        text = f"a network of the addresses of {kind}s in the cluster; may be repeated"
        named: dict[str, t.Any] = {"dest": f"{kind}_ranges", "metavar": "CIDR", "help": text}
        audit.add_argument(f"--{kind}-range", action="append", default=[], type=_network, **named)


def _network(text: str) -> str:
    try:
        return str(ipaddress.ip_network(text))
    except ValueError:
        expected = "a network without host bits, such as 10.96.0.0/12"
        raise argparse.ArgumentTypeError(f"must be {expected}; '{text}' was given") from None


def _add_cluster(command: argparse.ArgumentParser) -> None:
    command.add_argument("node", metavar="NODE", help="the node that is read, as kubectl get nodes names it, also as node/NAME")
    image = f"read it from a pod that kubectl debug starts with this image (default: the pod of the agent if it runs, or {IMAGE})"
    command.add_argument("--image", default="", metavar="IMAGE", help=image)
    command.add_argument("-n", "--namespace", metavar="NAMESPACE", help="of the pod that is started, as kubectl takes it")
    for name in ("context", "kubeconfig"):
        command.add_argument(f"--{name}", metavar=name.upper(), help="as kubectl takes it")


def sentence(error: DatapathError) -> str:
    """Return an error in the words of the command line."""
    if not isinstance(error, Invalid):
        return str(error)
    return str(error.renamed(re.sub(r"^\w+", lambda word: NAMES.get(word[0], word[0]), error.option)))


def assumptions(parser: Parser, assumed: t.Iterable[str]) -> dict[str, str]:
    """Return the values of --assume by their names. A name may contain an equals sign, and a value does not."""
    values = {}
    for text in assumed:
        fact, sign, value = text.rpartition("=")
        if not sign or not fact:
            parser.error(f"--assume must be FACT=VALUE, such as rp_filter:eth0=1; '{text}' was given")
        values[fact.strip()] = value.strip()
    return values


def completed(words: t.Sequence[str]) -> t.Sequence[str]:
    """Return the words of a plugin of kubectl as the parser takes them: its usual command is trace, and a node may stand behind
    --node, too.
    """
    begins = not words or words[0] in (*COMMANDS, "-h", "--help", "--version")
    command, *rest = words if begins else (TRACE, *words)
    for number, word in enumerate(rest):
        name, sign, value = word.partition("=")
        if name == "--node" and (sign or rest[number + 1 :]):
            behind = number + (1 if sign else 2)
            return [command, value or rest[number + 1], *rest[:number], *rest[behind:]]
    return [command, *rest] if words else words
