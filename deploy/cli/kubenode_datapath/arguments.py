# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The command line: what each command takes, as argparse has it. The completion of shells is made of the same parser."""

from __future__ import annotations

import argparse
import ipaddress
import typing as t

COMMANDS = ("trace", "audit", "explain", "snapshot", "commands", "completion")
TRACE, AUDIT, EXPLAIN, SNAPSHOT, SCRIPT, COMPLETION = COMMANDS
LIVE, STDIN = "live", "-"
SHELLS = ("bash", "zsh", "fish")
COMMAND, PLUGIN = "kubenode-datapath", "kubectl-datapath"  # the names under which the program is started
ARRIVES, LOST, CANNOT_TELL, ERROR = range(4)  # exit statuses
SEVERITIES = ("error", "risk", "note")
# As the module datapath_audit has them.
CLOUDS = ("azure", "aws", "alibaba", "other")
PROBE_MODES = ("shared", "servicenodeport")
CNIS = ("aws_vpc_cni", "azure_vnet", "calico", "cilium", "flannel", "terway", "other")
IMAGE = "docker.io/library/busybox:stable"

ABOUT = "Show why a packet does not arrive: rebuild a node in network namespaces, and send the packet and its reply through it."
ABOUT_AUDIT = (
    "Say what is wrong with a node's packet path, try it and its remedy in network namespaces, and name the profile that helps."
)
ABOUT_EXPLAIN = (
    "Say which change of a node is guilty: compare two states of it, try the earlier one with some of the changes in network"
    " namespaces, and name the fewest with which the packet is lost."
)
STATUSES = "Exit status: 0 if packet and reply arrive, 1 if one is lost, 2 if the evidence does not tell, 3 for an error."
STATUSES_OF_AUDIT = (
    "Exit status: 0 if no check finds an error or a risk, 1 if one does, 2 if none does and the evidence leaves a check open,"
    " 3 for an error."
)
STATUSES_OF_EXPLAIN = (
    "Exit status: 0 if packets arrive as before, 1 if changes are guilty of a loss, 2 if that cannot be told, 3 for an error."
)
PACKET = "such as 'tcp 10.0.0.1:40000 > 10.96.0.1:443 in eth0', or a line of tcpdump, conntrack -L or iptables' LOG"
EVIDENCE = (
    "a support bundle, a folder or a file with outputs of commands, or a snapshot; - reads one from standard input, live reads"
    " this node. Several make one node: outputs that an answer asks for stand behind the bundle that lacks them"
)

EVIDENCE_OF_ONE = "a support bundle, a folder or a file with outputs of commands, or a snapshot"
OF_MANY = "which node of a bundle of many"
ASSUME = "a setting or an open fact, by the id that a trace gives, such as nft=shown; may be repeated"


class Parser(argparse.ArgumentParser):
    """A parser whose errors end with the status of an error: argparse's own means that the evidence does not tell."""

    def error(self, message: str) -> t.NoReturn:
        self.exit(ERROR, f"{self.prog}: {message}. {self.prog} --help lists what it takes\n")


class _InPlaceOfPacket(argparse.Action):
    """An option with which no packet is required."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: t.Any, option_string: str | None = None
    ) -> None:
        setattr(namespace, self.dest, values)
        for action in parser._actions:
            action.required = action.required and action.dest != "packet"


def parser(is_plugin: bool, version: str) -> Parser:
    """Return the parser. is_plugin: whether kubectl starts the program, whose evidence is then a node of a cluster."""
    name = PLUGIN.replace("-", " ") if is_plugin else COMMAND
    whole = Parser(prog=name, description=ABOUT, epilog=STATUSES, allow_abbrev=False)
    whole.add_argument("--version", action="version", version=f"{name} {version}")
    commands = whole.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=Parser)
    trace = _command(commands, TRACE, "show what becomes of a packet, and what decides", ABOUT, STATUSES)
    audit = _command(commands, AUDIT, "say what is wrong with a node, and what helps", ABOUT_AUDIT, STATUSES_OF_AUDIT)
    node = "a node of the cluster" if is_plugin else "this node"
    reads = f"Read {node} as JSON, which trace, audit and the modules datapath_trace and datapath_audit take as evidence."
    snapshot = _command(commands, SNAPSHOT, f"read {node}, for a trace or an audit elsewhere", reads)
    if is_plugin:
        for each in (trace, audit, snapshot):
            _add_cluster(each)
    else:
        for each in (trace, audit):
            each.add_argument("evidence", metavar="EVIDENCE", nargs=1 if each is trace else "+", help=EVIDENCE)
            each.add_argument("--node", default="", metavar="NODE", help=OF_MANY)
        _add_explain(commands)
        prints = (
            "Print a script of the shell that prints what trace and audit read of a node, for one without Python, such as of"
            " Bottlerocket, Flatcar or Talos. Its output is evidence: sh commands.sh > node.txt"
        )
        commands.add_parser(SCRIPT, help="print a script that reads a node without Python", description=prints)
        writes = "Print the completion of a shell, which evaluates it: source <(%(prog)s bash)"
        completion = commands.add_parser(COMPLETION, help="print the completion of a shell", description=writes)
        completion.add_argument("shell", choices=SHELLS)
    _add_trace(trace)
    _add_audit(audit)
    snapshot.add_argument("--output", metavar="FILE", help="write to FILE instead of standard output")
    return whole


def parsed(parser: Parser, words: t.Sequence[str]) -> argparse.Namespace:
    """Parse a command line. A packet of explain may stand behind an option, where argparse has given it up."""
    options, further = parser.parse_known_args(words)
    if further and (options.command != EXPLAIN or any(word.startswith("-") for word in further)):
        parser.error(f"unrecognized arguments: {' '.join(further)}")
    if further:
        options.packet = [*options.packet, *further]
    return options


def _command(
    commands: argparse._SubParsersAction[Parser], name: str, summary: str, description: str, statuses: str | None = None
) -> Parser:
    return commands.add_parser(name, help=summary, description=description, epilog=statuses, allow_abbrev=False)


def _add_trace(trace: argparse.ArgumentParser) -> None:
    trace.add_argument("packet", metavar="PACKET", nargs="+", default=[], help=PACKET)
    finding = "a finding of audit with the same evidence, whose packet is sent: its id, and behind a colon its subject if needed"
    trace.add_argument("--finding", default="", action=_InPlaceOfPacket, metavar="ID[:SUBJECT]", help=finding)
    _add_context(trace)
    change = "a command of ip, nft, iptables, ipset, ebtables, bridge or sysctl to try in the copy of the node; may be repeated"
    trace.add_argument("--command", action="append", default=[], dest="changes", metavar="COMMAND", help=change)
    form = trace.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print the answer as JSON, as the module datapath_trace returns it")
    form.add_argument("--mermaid", action="store_true", help="print the path as a Mermaid diagram, for an issue")
    trace.add_argument("--html", metavar="FILE", help="write a page with the path, too")


def _add_explain(commands: argparse._SubParsersAction[Parser]) -> None:
    explain = _command(commands, EXPLAIN, "say which change since is guilty", ABOUT_EXPLAIN, STATUSES_OF_EXPLAIN)
    before = f"the earlier state: {EVIDENCE_OF_ONE}. Or one folder whose outputs have before and after in their names"
    explain.add_argument("before", metavar="BEFORE", help=before)
    after = f"the later state, or {LIVE} for this node"
    explain.add_argument("after", metavar="AFTER", nargs="?", default="", help=after)
    explain.add_argument("packet", metavar="PACKET", nargs="*", help=f"{PACKET} (default: each path that pods and Services need)")
    explain.add_argument("--node", default="", metavar="NODE", help=OF_MANY)
    explain.add_argument("--assume", action="append", default=[], metavar="FACT=VALUE", help=ASSUME)
    explain.add_argument("--json", action="store_true", help="print the answer as JSON")


def _add_audit(audit: argparse.ArgumentParser) -> None:
    check = "a check to make, by its id, or error, risk or note for all of that severity; may be repeated (default: all)"
    audit.add_argument("--check", action="append", default=[], dest="checks", metavar="ID_OR_SEVERITY", help=check)
    _add_context(audit)
    form = audit.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print the findings as JSON, as the module datapath_audit returns them")
    lines = (
        "print one line of at most 80 characters for a monitor, and let findings of this severity alone decide the exit status"
    )
    form.add_argument("--line", choices=SEVERITIES, metavar="SEVERITY", help=lines)
    skips = "do not try findings and remedies in a copy of the node: what a packet decides cannot be told then"
    audit.add_argument("--no-prove", action="store_false", dest="prove", help=skips)


def _add_context(audit: argparse.ArgumentParser) -> None:
    """Add what no node shows, and what the evidence does not show."""
    audit.add_argument("--assume", action="append", default=[], metavar="FACT=VALUE", help=ASSUME)
    audit.add_argument("--cloud", choices=CLOUDS, help="the cloud of the node (default: marks of Azure's network on it decide)")
    mode = "what the load balancer probes: the health port 10256 (shared), or the ports of each Service, as is Azure's default"
    audit.add_argument("--probe-mode", choices=PROBE_MODES, help=mode)
    audit.add_argument("--cni", choices=CNIS, help="the CNI of the node (default: its configuration and links decide)")
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
    command.add_argument("--node", required=True, metavar="NODE", help="the node that is read")
    image = f"read it from a pod that kubectl debug starts with this image (default: the pod of the agent if it runs, or {IMAGE})"
    command.add_argument("--image", default="", metavar="IMAGE", help=image)
    for name in ("namespace", "context", "kubeconfig"):
        command.add_argument(f"--{name}", metavar=name.upper(), help="as kubectl takes it")


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
    """Return the words of a plugin of kubectl with its usual command, trace, if they begin with none."""
    begins = not words or words[0] in (*COMMANDS, "-h", "--help", "--version")
    return words if begins else (TRACE, *words)
