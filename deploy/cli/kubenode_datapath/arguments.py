# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The command line: what each command takes, as argparse has it. The completion of shells is made of the same parser."""

from __future__ import annotations

import argparse
import typing as t

TRACE, SNAPSHOT, COMPLETION = COMMANDS = ("trace", "snapshot", "completion")
LIVE, STDIN = "live", "-"
SHELLS = ("bash", "zsh", "fish")
COMMAND, PLUGIN = "kubenode-datapath", "kubectl-datapath"  # the names under which the program is started
ARRIVES, LOST, CANNOT_TELL, ERROR = range(4)  # exit statuses
IMAGE = "docker.io/library/busybox:stable"

ABOUT = "Show why a packet does not arrive: rebuild a node in network namespaces, and send the packet and its reply through it."
STATUSES = "Exit status: 0 if packet and reply arrive, 1 if one is lost, 2 if the evidence does not tell, 3 for an error."
PACKET = "such as 'tcp 10.0.0.1:40000 > 10.96.0.1:443 in eth0', or a line of tcpdump, conntrack -L or iptables' LOG"
EVIDENCE = (
    "a support bundle, a folder or a file with outputs of commands, or a snapshot; - reads one from standard input, live reads"
    " this node"
)


class Parser(argparse.ArgumentParser):
    """A parser whose errors end with the status of an error: argparse's own means that the evidence does not tell."""

    def error(self, message: str) -> t.NoReturn:
        self.exit(ERROR, f"{self.prog}: {message}. {self.prog} --help lists what it takes\n")


def parser(is_plugin: bool, version: str) -> Parser:
    """Return the parser. is_plugin: whether kubectl starts the program, whose evidence is then a node of a cluster."""
    name = PLUGIN.replace("-", " ") if is_plugin else COMMAND
    whole = Parser(prog=name, description=ABOUT, epilog=STATUSES, allow_abbrev=False)
    whole.add_argument("--version", action="version", version=f"{name} {version}")
    commands = whole.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=Parser)
    what = {"description": ABOUT, "epilog": STATUSES, "allow_abbrev": False}
    trace = commands.add_parser(TRACE, help="show what becomes of a packet, and what decides", **what)  # type: ignore[arg-type]
    node = "a node of the cluster" if is_plugin else "this node"
    reads = f"Read {node} as JSON, which trace and the module datapath_trace take as evidence."
    snapshot = commands.add_parser(SNAPSHOT, help=f"read {node}, for a trace elsewhere", description=reads, allow_abbrev=False)
    if is_plugin:
        for each in (trace, snapshot):
            _add_cluster(each)
    else:
        trace.add_argument("evidence", metavar="EVIDENCE", help=EVIDENCE)
        trace.add_argument("--node", default="", metavar="NODE", help="which node of a bundle of many")
        writes = "Print the completion of a shell, which evaluates it: source <(%(prog)s bash)"
        completion = commands.add_parser(COMPLETION, help="print the completion of a shell", description=writes)
        completion.add_argument("shell", choices=SHELLS)
    _add_trace(trace)
    snapshot.add_argument("--output", metavar="FILE", help="write to FILE instead of standard output")
    return whole


def _add_trace(trace: argparse.ArgumentParser) -> None:
    trace.add_argument("packet", metavar="PACKET", nargs="+", help=PACKET)
    assume = "a setting or an open fact, by the id that the answer gives; may be repeated"
    trace.add_argument("--assume", action="append", default=[], metavar="FACT=VALUE", help=assume)
    change = "a command of ip, nft, iptables, ipset, ebtables, bridge or sysctl to try in the copy of the node; may be repeated"
    trace.add_argument("--command", action="append", default=[], dest="changes", metavar="COMMAND", help=change)
    form = trace.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print the answer as JSON, as the module datapath_trace returns it")
    form.add_argument("--mermaid", action="store_true", help="print the path as a Mermaid diagram, for an issue")
    trace.add_argument("--html", metavar="FILE", help="write a page with the path, too")


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
