# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes and pods."""

from __future__ import annotations

import abc
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from lab import collection, entering, module_process, programs, snapshot
from lab.machine import Machine
from lab.namespace import FOLDERS, Namespace
from lab.place import Place
from lab.server import Server, Servers
from lab.service import IPTABLES_JUMPS, IPV6, Backend, Family, Policy, Service, iptables_rules, nft_ruleset
from lab.waiting import eventually

POD_PORT = 8080
"""Where each pod serves HTTP and echoes UDP."""
LOCK = "/run/kubenode.lock"
"""What a run, or a load of a boot program, holds while it changes the node. It is removed when it is released."""

# ansible-core's arguments for every module, besides its options (ansible/module_utils/common/parameters.py, PASS_VARS).
_INTERNAL_ARGUMENTS = {
    "_ansible_debug": False,
    "_ansible_keep_remote_files": False,
    "_ansible_no_log": False,
    "_ansible_remote_tmp": "/root/.ansible/tmp",
    "_ansible_selinux_special_fs": [],
    "_ansible_shell_executable": "/bin/sh",
    "_ansible_socket": None,
    "_ansible_syslog_facility": "LOG_USER",
    "_ansible_tmpdir": None,
    "_ansible_tracebacks_for": [],
    "_ansible_verbosity": 0,
    "_ansible_version": "2.19.0",
}


def module_arguments(name: str, options: Mapping[str, Any], check: bool = False, diff: bool = True) -> dict[str, Any]:
    """The arguments of a module: its options and ansible-core's own."""
    return {
        **_INTERNAL_ARGUMENTS,
        "_ansible_check_mode": check,
        "_ansible_diff": diff,
        "_ansible_module_name": name,
        **options,
    }


class Pod(Machine):
    """A pod: a network namespace on the host's files, behind a veth of its node."""

    def __init__(self, namespace: Namespace, address: str, node: ClusterNode) -> None:
        super().__init__(namespace.name, namespace.pid)
        self.address = address
        self.node = node

    @property
    def link(self) -> str:
        """The node's end of the pod's link."""
        return f"veth-{self.name}"


class ClusterNode(Machine, abc.ABC):
    """A node, as the cloud, Ansible and a test use it, of any kind."""

    pid_file: Path
    """Has the pid by which Ansible enters the node, where it does."""

    family: Family = IPV6
    """The IP version of its services."""

    place: Place
    pods: list[Pod]

    def join(self, place: Place, servers: Servers) -> None:
        """Become part of a cloud. A node outside of a cloud has no address and no servers."""
        self.place = place
        self.pods = []
        self._servers = servers
        self.forget_services()

    @property
    def address(self) -> str:
        return self.place.address

    @property
    def ipv4(self) -> str:
        return self.place.ipv4

    @property
    def pod_subnet(self) -> str:
        return self.place.pod_subnet

    @property
    def connection(self) -> dict[str, Any]:
        """The variables with which Ansible connects to the node."""
        return {
            "ansible_connection": "lab_node",
            "lab_node_namespaces": " ".join(self.namespaces),
            "lab_node_pid_file": str(self.pid_file),
        }

    @abc.abstractmethod
    def module(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        check: bool = False,
        diff: bool = True,
        timeout: float = 60,
    ) -> dict[str, Any]:
        """Run a module of the collection on the node; returns its result.

        ``failed`` and ``rc`` (the process's own if the module gives none) are always there.
        """

    @abc.abstractmethod
    def snapshot(self) -> dict[str, Any]:
        """The node's network and its files; see lab.snapshot for what is left out.

        Equal snapshots mean that none of it changed. Mounts of ``read_only`` and ``full`` are left out.
        """

    # Programs

    def replace_program(self, path: str, script: str) -> programs.Replacement:
        """Put a script in a program's place; ``@REAL@`` in the script is the path of the original program."""
        return programs.Replacement(self, {path: script})

    def count_processes(self, names: Iterable[str] = programs.COUNTED) -> AbstractContextManager[list[list[str]]]:
        """``with node.count_processes() as calls:`` fills ``calls`` with the argv of each program started in the block."""
        return programs.counted(self, names)

    # Files that cannot be written

    @contextmanager
    def read_only(self, folder: str) -> Iterator[None]:
        """A folder in which every write is refused (EROFS)."""
        self.run(["mount", "--bind", folder, folder])
        self.run(["mount", "-o", "remount,bind,ro", folder])
        try:
            yield
        finally:
            self.run(["umount", "--lazy", folder])

    @contextmanager
    def full(self, folder: str) -> Iterator[None]:
        """An empty folder, made when missing, on a file system that is full (ENOSPC): it takes names, but not a byte."""
        page = 4096  # the smallest tmpfs is one page, and the filler takes it
        self.run(["mkdir", "-p", folder])
        self.run(["mount", "-t", "tmpfs", "-o", f"size={page}", "lab-full", folder])
        try:
            self.write(f"{folder}/.filler", "x" * page)
            yield
        finally:
            self.run(["umount", "--lazy", folder])

    # Servers on a node, until it reboots

    def serve(self, port: int, status: int = 200) -> Server:
        """Serve a port of the node itself, TCP and UDP. It listens when this returns; ``status`` can be set later."""
        return self._servers.start(self, port, status)

    def stop_serving(self, server: Server) -> None:
        self._servers.stop(server)

    def service(
        self,
        node_port: int,
        endpoints: Sequence[str],
        policy: Policy = "Cluster",
        health_check_node_port: int | None = None,
        target_port: int = POD_PORT,
        backend: Backend = "nftables",
        load_balancer_ip: str | None = None,
        load_balancer_port: int = 80,
    ) -> Server | None:
        """Add a service of type LoadBalancer (TCP and UDP), as kube-proxy on this node would.

        ``endpoints`` are addresses of pods, of any node. With ``health_check_node_port`` the node itself answers 200
        there while it has an endpoint of its own, otherwise 503 (as pkg/proxy/healthcheck/service_health.go
        of kubernetes does); that server is returned.
        """
        local = {pod.address for pod in self.pods}
        used = tuple(address for address in endpoints if policy == "Cluster" or address in local)
        self._services[backend].append(Service(node_port, used, target_port, policy, load_balancer_ip, load_balancer_port))
        self._load_services(backend)
        if health_check_node_port is None:
            return None
        return self.serve(health_check_node_port, status=200 if local & set(endpoints) else 503)

    def forget_services(self) -> None:
        """Stop all servers, which listen in the network of the former boot; the rules of services ended with that network."""
        self._servers.stop_all(self)
        self._services: dict[Backend, list[Service]] = {"nftables": [], "iptables": []}

    def _load_services(self, backend: Backend) -> None:
        services = self._services[backend]
        if backend == "nftables":
            self.run_from_host(["nft", "-f", "-"], nft_ruleset(services, self.family))
            return
        program = self.family.iptables
        self.run_from_host([f"{program}-restore", "--noflush"], iptables_rules(services))
        if len(services) == 1:
            for chain, target in IPTABLES_JUMPS:
                self.run_from_host([program, "-t", "nat", "-A", chain, "-j", target])


class NamespaceNode(ClusterNode):
    """A node that is a network and a mount namespace: its own /etc, /run and /var/lib, and the host's process 1."""

    def __init__(self, namespace: Namespace) -> None:
        super().__init__(namespace.name, namespace.pid, entering.NAMESPACE_NODE)
        self.pid_file = namespace.pid_file
        self._layers = Path(namespace.layers)

    def module(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        check: bool = False,
        diff: bool = True,
        timeout: float = 60,
        collections: Path | None = None,
        through: Sequence[str] = (),
    ) -> dict[str, Any]:
        """Run a module with the Python of the caller and without Ansible's controller: in a fraction of the time.

        ``name`` may be full (``namespace.collection.name``), for another collection under ``collections``.
        ``through`` is a command that runs the command after it, such as ``["strace", "-f"]``.
        A module that died without a result has ``stdout`` and ``stderr`` instead.
        """
        namespace, package, module = name.split(".") if "." in name else ("kubenode", "datapath", name)
        full_name = f"ansible_collections.{namespace}.{package}.plugins.modules.{module}"
        text = json.dumps({"ANSIBLE_MODULE_ARGS": module_arguments(name, arguments or {}, check, diff)})
        environment = {"PYTHONPATH": str(collections or collection.link())}
        if through:
            command = [*through, sys.executable, module_process.PROGRAM, full_name]
            result = self.run(command, text, check=False, timeout=timeout, environment=environment)
        else:
            entering.refuse_host(self.pid)
            result = module_process.run(self.pid, full_name, text, timeout, {**entering.ENVIRONMENT, **environment})
        return _result(result) if collections else _documented(name, _result(result))

    def snapshot(self) -> dict[str, Any]:
        """A snapshot as of every node; its files by their differences from the host's.

        A program that works beside the test may hold the lock of runs for a moment, whose end is waited for.
        """
        files: dict[str, str] = {}

        def is_free() -> bool:
            files.clear()
            files.update(snapshot.files(self._layers, FOLDERS))
            return LOCK not in files

        eventually(is_free, limit=3)
        return {**snapshot.network(self), "files": files}


def _result(completed: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """The JSON that a module printed, or the way in which it died."""
    try:
        result: dict[str, Any] = json.loads(completed.stdout)
    except json.JSONDecodeError:
        message = f"the module ended with {completed.returncode} and no result"
        return {
            "failed": True,
            "rc": completed.returncode,
            "msg": message,
            "stdout": completed.stdout,
            "stderr": completed.stderr,
        }
    result.setdefault("failed", completed.returncode != 0)
    result.setdefault("rc", completed.returncode)
    return result


def _documented(name: str, result: dict[str, Any]) -> dict[str, Any]:
    """The result of a module, which must have what its RETURN says: a controller refuses another one."""
    from ansible_collections.kubenode.datapath.plugins.plugin_utils import _node_answer  # not on the path of each program

    if "stdout" not in result:
        permitted = _node_answer.permitted(result, f"kubenode.datapath.{name}", "the node")
        assert permitted == result, permitted.get("msg", [*result.keys() - permitted.keys()])
    return result
