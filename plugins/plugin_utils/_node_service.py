# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Takes a node of azure-vnet's out of service, and back into it, by kubectl on the controller.

A node that was cordoned before stays cordoned, unless a run cordoned it that did not end. The annotation of that run means
nothing once the node is uncordoned.
"""

from __future__ import annotations

import dataclasses
import re
import subprocess
import time
import typing as t

from ansible_collections.kubenode.datapath.plugins.module_utils._core import form
from ansible_collections.kubenode.datapath.plugins.module_utils._core.printable import first_of

ANNOTATION = "kubenode.datapath/cordoned"
DRY_RUN = "--dry-run=client"
# Only these fields are asked for: what a pod is told to run may be secret.
NODE_FIELDS = (
    r"--output=jsonpath={.spec.unschedulable}|{.metadata.annotations.kubenode\.datapath/cordoned}"
    r"|{.metadata.labels.kubernetes\.azure\.com/cluster}|{.spec.taints[*].key}"
)
CONTROLLER = ".metadata.ownerReferences[?(@.controller==true)]"
POD_FIELDS = (
    "--output=jsonpath={range .items[*]}{.metadata.namespace}|{.metadata.name}|"
    f"{{{CONTROLLER}.kind}}|{{{CONTROLLER}.name}}|"
    r'{.status.conditions[?(@.type=="Ready")].status}|{.status.podIPs[*].ip}{"\n"}{end}'
)
LIVING = "status.phase!=Succeeded,status.phase!=Failed"
STAYING = ("DaemonSet", "Node")  # the kinds of controllers whose pods a drain leaves; Node is that of static pods
PAUSE = 2.0  # seconds between two looks at pods that are awaited
MOST = 3  # pods that a sentence names
LINKS = form.many(form.record({"link": form.LINE, "addresses": form.LINES}))  # of pods
# The name of a node or a pod is a subdomain of RFC 1123, and that of a namespace a label.
SUBDOMAIN = re.compile(r"(?=.{1,253}\Z)[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")

Pod = dict[str, t.Any]
Pods = dict[str, t.Any]


class Failure(Exception):
    """The node's service could not be changed, or must not be. The text says why."""


@dataclasses.dataclass
class Kubectl:
    """kubectl on the controller. words: its command. run: runs a command there. In check mode writes are dry runs."""

    words: t.Sequence[str]
    run: t.Callable[[t.Sequence[str]], subprocess.CompletedProcess[str]]
    is_check: bool

    def read(self, *words: str, names: t.Sequence[str] = ()) -> str:
        """Return what a command prints. names: its arguments, which cannot be taken for options."""
        return self._run([*self.words, *words, *(["--", *names] if names else [])])

    def write(self, *words: str, names: t.Sequence[str]) -> None:
        self.read(*words, *([DRY_RUN] if self.is_check else []), names=names)

    def _run(self, command: t.Sequence[str]) -> str:
        ended = self.run(command)
        if ended.returncode:
            complaint = ended.stderr.strip() or ended.stdout.strip() or "it printed nothing"
            raise Failure(f"{' '.join(command)}: exit status {ended.returncode}: {complaint}")
        return ended.stdout


class Node(t.NamedTuple):
    """What Kubernetes says of a node. cluster: AKS's label, which it sets on each of its nodes."""

    is_cordoned: bool
    is_annotated: bool
    cluster: str
    taints: list[str]


@dataclasses.dataclass
class Outcome:
    """What is known of the node and was done.

    cordoned: whether this run cordoned it, or a former one that did not end. was_cordoned: whether others cordoned it before.
    pods: those of azure-vnet, as live_pods() returns them.
    """

    changed: bool = False
    cordoned: bool = False
    was_cordoned: bool = False
    aks_cluster: str = ""
    pods: Pods = dataclasses.field(default_factory=dict)


class Waits(t.NamedTuple):
    """How to say what is waited for. note: takes the text; empty for nothing. drain: does so while its block runs."""

    note: t.Callable[[str], None]
    drain: t.ContextManager[None]


class NodeService:
    """The service of one node. outcome: is filled on the way. Raises Failure for a name that no node has."""

    def __init__(self, kubectl: Kubectl, name: str, waits: Waits, outcome: Outcome) -> None:
        self._kubectl, self._waits, self._outcome = kubectl, waits, outcome
        self._name = _checked_name("node", name, SUBDOMAIN)

    def take_out(self, options: t.Mapping[str, t.Any], cni: t.Mapping[str, t.Any], is_due: bool) -> None:
        """Cordon and drain the node if there is something to do on it, as the options permit. Raises Failure.

        options: those of the profile cilium_migration. cni: the result of cni_info. is_due: whether there are leftovers.
        """
        outcome, node = self._outcome, self._node()
        outcome.aks_cluster, outcome.was_cordoned = node.cluster, node.is_cordoned and not node.is_annotated
        outcome.cordoned = node.is_cordoned and node.is_annotated
        if options["state"] == "absent":
            self._require_agent(node, cni["cilium_agent"]["not_ready_taint"])
            if links := cni["azure_vnet"]["pods"]:
                outcome.pods = live_pods(self._pods(), links)
        evicted = outcome.pods.get("evictable") if options["drain"] else ()
        restarted = outcome.pods.get("daemonset") if options["restart_daemonset_pods"] else ()
        if is_due or evicted or restarted:
            self._cordon(node)
            if options["drain"]:
                with self._waits.drain:
                    self._write("drain", *options["drain_options"], names=[self._name])
        elif node.is_annotated and not node.is_cordoned:
            self._release()
        if restarted:
            self._restart(restarted, options["restart_timeout"])

    def take_in(self) -> None:
        """Uncordon the node if the outcome says that it is cordoned. Raises Failure."""
        if self._outcome.cordoned:
            self._write("uncordon", names=[self._name])
            self._release()
            self._outcome.cordoned = False

    def _node(self) -> Node:
        printed = self._kubectl.read("get", "node", NODE_FIELDS, names=[self._name])
        fields = printed.strip("\n").split("|")
        if len(fields) != len(Node._fields):
            raise Failure(
                f"kubectl printed {printed[:200]!r} about {self._name}; four fields were expected, separated by |. Nothing was"
                f" changed. Run the same command on the controller: {' '.join(self._kubectl.words)} get node {self._name}"
                f" '{NODE_FIELDS}'"
            )
        return Node(fields[0] == "true", fields[1] == "true", fields[2], fields[3].split())

    def _require_agent(self, node: Node, taint: str) -> None:
        if taint in node.taints:
            raise Failure(
                f"{self._name} has the taint {taint}, which Cilium's operator removes when the agent is ready. Nothing was"
                " changed. See the logs of the operator and of the node's agent."
            )

    def _pods(self) -> str:
        return self._kubectl.read(*pods_command(self._name))

    def _cordon(self, node: Node) -> None:
        if not node.is_cordoned:
            # The annotation comes first: a run that follows a killed one knows by it that it may uncordon the node.
            self._write("annotate", "node", "--overwrite", names=[self._name, f"{ANNOTATION}=true"])
            self._write("cordon", names=[self._name])
            self._outcome.cordoned = True

    def _release(self) -> None:
        self._write("annotate", "node", names=[self._name, f"{ANNOTATION}-"])

    def _restart(self, pods: t.Sequence[Pod], timeout: int) -> None:
        """Delete pods of DaemonSets, which a drain leaves. Each DaemonSet creates its pod again, which Cilium connects."""
        for pod in pods:
            self._waits.note(f"waits for the end of the pod {_name(pod)}")
            self._write("delete", "pod", f"--namespace={pod['namespace']}", f"--timeout={timeout}s", names=[pod["name"]])
        if not self._kubectl.is_check:
            self._await({pod["owner"] for pod in pods}, {pod["name"] for pod in pods}, timeout)

    def _await(self, owners: set[str], former: set[str], timeout: int) -> None:
        """Wait until each controller has a ready pod besides the former ones. An API that does not answer is asked again."""
        end = time.monotonic() + timeout
        while True:
            ready, trouble = set[str](), ""
            try:
                ready = {pod["owner"] for pod in parse(self._pods()) if pod["ready"] and pod["name"] not in former}
            except Failure as failure:
                trouble = f". The last answer was: {failure}"
            if owners <= ready:
                return
            awaited = f"a ready pod of the {', '.join(sorted(owners - ready))} on {self._name}"
            if time.monotonic() > end:
                raise Failure(f"within {timeout} s there was not {awaited}{trouble}")
            self._waits.note(f"waits for {awaited}")
            time.sleep(PAUSE)

    def _write(self, *words: str, names: t.Sequence[str]) -> None:
        self._outcome.changed = True
        self._kubectl.write(*words, names=names)


def pods_command(node: str) -> list[str]:
    """Return the words of kubectl that list a node's living pods, for parse()."""
    return ["get", "pods", "--all-namespaces", f"--field-selector=spec.nodeName={node},{LIVING}", POD_FIELDS]


def parse(listing: str, links: t.Iterable[t.Mapping[str, t.Any]] = ()) -> list[Pod]:
    """Read the output of pods_command(). links: of pods, as cni_info has them. Raises Failure."""
    try:
        link_of = {address: pod["link"] for pod in form.inside("links", LINKS, links) for address in pod["addresses"]}
    except form.Refused as error:
        raise Failure(f"{error.of('cni_info')}.") from None
    return [_pod(line, link_of) for line in listing.splitlines() if line.strip()]


def _pod(line: str, link_of: t.Mapping[str, str]) -> Pod:
    try:
        namespace, name, kind, owner, ready, addresses = line.split("|")
    except ValueError:
        raise Failure(f"kubectl printed {line!r}; six fields were expected, separated by |") from None
    return {
        "namespace": _checked_name("namespace", namespace, LABEL),
        "name": _checked_name("pod", name, SUBDOMAIN),
        "kind": kind,
        "owner": f"{kind} {namespace}/{owner}" if kind else "",
        "ready": ready == "True",
        "link": next((link_of[address] for address in addresses.split() if address in link_of), ""),
    }


def live_pods(listing: str, links: t.Sequence[t.Mapping[str, t.Any]]) -> Pods:
    """Sort the pods on azure-vnet's links by what ends them. unnamed: links without a pod in Kubernetes. Raises Failure."""
    pods = [pod for pod in parse(listing, links) if pod["link"]]
    links_of_pods = {pod["link"] for pod in pods}
    return {
        "evictable": [pod for pod in pods if pod["kind"] not in STAYING],
        "daemonset": [pod for pod in pods if pod["kind"] == "DaemonSet"],
        "static": [pod for pod in pods if pod["kind"] == "Node"],
        "unnamed": [pod["link"] for pod in links if pod["link"] not in links_of_pods],
    }


def evictions(lines: t.Sequence[str]) -> str:
    """Say which pods of a listing a drain waits for. Empty if there are none, or if the listing cannot be read."""
    try:
        names = [_name(pod) for pod in parse("\n".join(lines)) if pod["kind"] not in STAYING]
    except Failure:
        return ""
    return f"waits for the eviction of {first_of(names, MOST)}" if names else ""


def _checked_name(kind: str, name: str, form: re.Pattern[str]) -> str:
    """Return the name. Raises Failure for a name that Kubernetes does not permit."""
    if not form.fullmatch(name):
        raise Failure(
            f"{name[:80]!r} is not the name of a {kind} in Kubernetes, which has lower-case letters, digits, '-' and '.' only."
            " Nothing was done with it"
        )
    return name


def _name(pod: Pod) -> str:
    return f"{pod['namespace']}/{pod['name']}"
