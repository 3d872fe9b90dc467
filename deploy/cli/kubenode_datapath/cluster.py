# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads a node of a cluster by kubectl: in the pod of the collection's agent, or in one that kubectl debug starts."""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import subprocess
import typing as t

from ansible_collections.kubenode.datapath.plugins.module_utils._core import nearest
from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import DatapathError, Failure

from . import archive
from .arguments import COMMAND, IMAGE, SNAPSHOT

AGENT = "app.kubernetes.io/name=kubenode-agent"  # the label of deploy/kustomize/base/daemonset.yaml
CONTAINER, CHANGES = "agent", "/run/kubenode-agent/changes"  # of that pod, and the file of kubenode_agent/watch.py
PROFILE = "--profile=sysadmin"  # of kubectl debug, which makes the pod privileged
LIFE = "900"  # seconds after which the pod ends by itself, if this program cannot delete it
PATIENCE = 120  # seconds for the image and the start of the pod
DEADLINE = 300  # seconds for a command of kubectl
# On the node, in the namespaces of its process 1: the program comes by standard input, and no file is written.
ENTER = ("nsenter", "-t", "1", "-m", "-u", "-i", "-n", "-p", "--")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
NOT_STARTED = (126, 127)  # statuses of env(1) for a program that cannot be run, or is not there, which kubectl exec passes on
_STATUS = "command terminated with exit code "
START = """\
import os, shutil, sys
program = os.fdopen(os.memfd_create("kubenode-datapath", 0), "wb")
shutil.copyfileobj(sys.stdin.buffer, program)
program.flush()
os.execv(sys.executable, [sys.executable, "/proc/self/fd/%d" % program.fileno(), *sys.argv[1:]])
"""


def snapshot(options: argparse.Namespace) -> dict[str, t.Any]:
    """Return the snapshot of the node that the options name. Raises Failure."""
    flags = [f"--{name}={value}" for name in ("context", "kubeconfig") if (value := getattr(options, name))]
    node = options.node.rpartition("/")[2]  # of node/NAME
    return Kubectl(flags, options.namespace or "").snapshot(node, options.image)


def node_names(words: t.Sequence[str]) -> list[str]:
    """Return the names of the nodes, to complete a command line; nothing if kubectl cannot tell. words: of that line."""
    return Kubectl([word for word in words if word.startswith(("--context=", "--kubeconfig="))]).node_names()


class Pod(t.NamedTuple):
    namespace: tuple[str, ...]
    name: str
    container: str


class Kubectl:
    """options: of each command, such as ``--context=NAME``. namespace: of the pod that is started; empty for kubectl's own."""

    def __init__(self, options: t.Sequence[str], namespace: str = "") -> None:
        self._options = options
        self._namespace = (f"--namespace={namespace}",) if namespace else ()

    def snapshot(self, node: str, image: str = "") -> dict[str, t.Any]:
        """Return the snapshot of a node. image: of the pod that reads it, in place of the agent's. Raises Failure."""
        pod = None if image else self._agent(node)
        with contextlib.nullcontext(pod) if pod else self._debugging(node, image or IMAGE) as pod:
            program = ("/usr/bin/env", f"PATH={PATH}", "python3", "-c", START, SNAPSHOT)
            words = ("exec", "--stdin", *pod.namespace, f"--container={pod.container}", pod.name, "--", *ENTER, *program)
            try:
                printed = self._run(*words, stdin=archive.running()).stdout
            except NoProgram as error:
                raise Failure(f"{node} cannot run python3 ({error}). {_by_script(node)}") from None
            changes = self._changes(pod) if pod.container == CONTAINER else {}
        try:
            return {**json.loads(printed), **changes}
        except (TypeError, ValueError):
            raise Failure(f"the pod {pod.name} printed no snapshot of {node}: {reason(printed)}") from None

    def node_names(self) -> list[str]:
        """Return the names of the nodes; nothing if kubectl cannot tell."""
        with contextlib.suppress(DatapathError):
            return self._run("get", "nodes", "--output=name").stdout.decode().replace("node/", "").split()
        return []

    def _changes(self, pod: Pod) -> dict[str, t.Any]:
        """Return what the agent has seen change on its node, the newest last; empty for an agent that does not listen."""
        words = ("exec", *pod.namespace, f"--container={pod.container}", pod.name, "--", "cat", CHANGES)
        with contextlib.suppress(DatapathError, ValueError):
            return {"changes": json.loads(self._run(*words).stdout)}
        return {}

    def _agent(self, node: str) -> Pod | None:
        """Find the agent's pod on a node; None without one, or without the right to list pods."""
        fields = f"--field-selector=spec.nodeName={node},status.phase=Running"
        try:
            listed = self._run("get", "pods", "--all-namespaces", f"--selector={AGENT}", fields, "--output=json").stdout
        except DatapathError:
            return None
        pods = [pod["metadata"] for pod in json.loads(listed)["items"]]
        return Pod((f"--namespace={pods[0]['namespace']}",), pods[0]["name"], CONTAINER) if pods else None

    @contextlib.contextmanager
    def _debugging(self, node: str, image: str) -> t.Iterator[Pod]:
        """Start a pod on a node, and delete it in the end."""
        try:
            done = self._run("debug", f"node/{node}", *self._namespace, PROFILE, f"--image={image}", "--", "sleep", LIFE)
        except DatapathError:
            names = self.node_names()
            if names and node not in names:
                raise Failure(f"the cluster has no node {node}, but such as {nearest.listed(node, names)}") from None
            raise
        printed = done.stdout + done.stderr
        name = re.search(r"node-debugger-[a-z0-9.-]+", printed.decode(errors="replace"))
        if not name:
            raise Failure(f"kubectl debug named no pod: {reason(printed)}")
        pod = Pod(self._namespace, name[0], "debugger")
        try:
            self._run("wait", *pod.namespace, "--for=condition=Ready", f"pod/{pod.name}", f"--timeout={PATIENCE}s")
            yield pod
        finally:
            self._run("delete", "pod", *pod.namespace, pod.name, "--grace-period=1", "--wait=false")

    def _run(self, *words: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        command = ["kubectl", *self._options, *words]
        try:
            done = subprocess.run(command, input=stdin, capture_output=True, timeout=DEADLINE, check=False)
        except FileNotFoundError:
            raise Failure("kubectl is not on PATH. Install it, or read the node by kubenode-datapath snapshot on it") from None
        except subprocess.TimeoutExpired:
            raise Failure(f"kubectl {words[0]} did not end within {DEADLINE} s") from None
        if done.returncode:
            if words[0] == "exec" and done.returncode in NOT_STARTED:
                raise NoProgram(reason(done.stderr))
            raise Failure(f"kubectl {words[0]} failed: {reason(done.stderr)}")
        return done


class NoProgram(Failure):
    """The node lacks the program that was to be started there."""


def _by_script(node: str) -> str:
    """Return how to read a node without Python."""
    enter = f"kubectl debug node/{node} -q -i {PROFILE} --image={IMAGE} -- {' '.join(ENTER)} sh"
    return f"Read it by its shell, and use that file: {COMMAND} commands | {enter} > {node}.txt; {COMMAND} audit {node}.txt"


def reason(printed: bytes) -> str:
    """Return the last line that says why: behind it, kubectl exec prints the exit status."""
    lines = printed.decode(errors="replace").strip().splitlines()
    return next((line for line in reversed(lines) if not line.startswith(_STATUS)), "it printed nothing")
