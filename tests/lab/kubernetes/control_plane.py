# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The control plane: etcd, kube-apiserver, kube-controller-manager and kube-scheduler, on a machine of their own.

They are children of the lab's process, in a network namespace on the lab's network.
"""

from __future__ import annotations

import secrets
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from lab import apt, entering, host, links, place
from lab.entering import LabError
from lab.kubernetes import binaries
from lab.kubernetes.api import PORT, Api
from lab.load_balancer import LINK, LoadBalancer
from lab.machine import Machine
from lab.namespace import Namespace
from lab.waiting import until
from lab.wiring import veth

ADDRESS, ADDRESS_IPV4 = f"{place.NODES}2", f"{place.NODES_IPV4}2"
SERVICES, SERVICES_IPV4 = "2001:db8:96::/112", "10.96.0.0/16"
DUAL_STACK = "--feature-gates=IPv6DualStack=true"
"""An alpha feature of 1.20, which each program has to be told of."""

_READY_LIMIT = 240.0  # seconds; it takes five, and on a busy machine more than a minute
_AWAKE = 0.1  # seconds between two pauses of an API that is slow
_ETCD = "http://127.0.0.1:2379"
_PORT_NAME = "control0"  # the load balancer's end of the link


class ControlPlane(Machine):
    """``folder`` is for its keys and data, ``logs`` for the output of its programs, in files named after them."""

    def __init__(self, namespace: Namespace, folder: Path, logs: Path) -> None:
        super().__init__(namespace.name, namespace.pid)
        self.token = secrets.token_hex(16)
        self.authority = ""
        """The certificate, in PEM, by which clients know the API; empty until it runs."""
        self._folder = folder
        self._logs = logs
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        folder.mkdir(mode=0o700)
        logs.mkdir(parents=True, exist_ok=True)
        self.api = Api(self, ADDRESS_IPV4, self.token, binaries.folder() / "kubectl", folder)

    def connect(self, front: LoadBalancer) -> None:
        """The link to the nodes, and the route to pods and clients by the lab's router."""
        front.ip([veth(_PORT_NAME, self.pid), f"link set {_PORT_NAME} master {LINK} up"])
        self.ip(
            [
                "link set lo up",
                "link set eth0 up",
                f"address add {ADDRESS}/64 dev eth0 nodad",
                f"address add {ADDRESS_IPV4}/24 dev eth0",
                f"route add default via {place.ROUTER}",
                f"route add default via {place.ROUTER_IPV4}",
            ]
        )
        links.compute_checksums(front, [_PORT_NAME])
        links.compute_checksums(self, ["eth0"])

    def start(self) -> None:
        """Start all programs; returns when the API is ready."""
        folder, programs = self._folder, binaries.folder()
        key, tokens, certificates = folder / "service-accounts.key", folder / "tokens.csv", folder / "certificates"
        host.run(["ssh-keygen", "-q", "-t", "ecdsa", "-m", "PEM", "-N", "", "-f", key])
        tokens.write_text(f'{self.token},administrator,administrator,"system:masters"\n')
        tokens.chmod(0o600)
        apt.unpack("bookworm", "etcd-server", folder)
        self._start(
            folder / "usr/bin/etcd",
            f"--data-dir={folder / 'etcd'}",
            *(f"--{kind}-client-urls={_ETCD}" for kind in ("listen", "advertise")),
            "--listen-peer-urls=http://127.0.0.1:2380",
        )
        self._start(
            programs / "kube-apiserver", DUAL_STACK,
            f"--etcd-servers={_ETCD}",
            f"--advertise-address={ADDRESS_IPV4}", f"--secure-port={PORT}", "--insecure-port=0",
            f"--cert-dir={certificates}",  # the API server writes its own certificate there
            f"--token-auth-file={tokens}", "--authorization-mode=RBAC", "--allow-privileged=true",
            f"--service-cluster-ip-range={SERVICES_IPV4},{SERVICES}",
            f"--service-account-key-file={key}", f"--service-account-signing-key-file={key}",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--kubelet-preferred-address-types=InternalIP",  # names of nodes cannot be resolved
        )  # fmt: skip
        self._wait_until_ready(certificates / "apiserver.crt")
        client = f"--kubeconfig={self.api.configuration}"
        alone = ("--leader-elect=false", "--port=0", "--secure-port=0")
        self._start(
            programs / "kube-controller-manager", DUAL_STACK, client, *alone,
            "--allocate-node-cidrs=false",  # the lab has routes to the pods of each node, and sets their subnets
            "--node-monitor-period=1s",
            f"--service-account-private-key-file={key}", f"--root-ca-file={certificates / 'apiserver.crt'}",
        )  # fmt: skip
        self._start(programs / "kube-scheduler", DUAL_STACK, client, *alone)

    @contextmanager
    def silent(self) -> Iterator[None]:
        """During the block, the API accepts connections and does not answer, as an overloaded one does."""
        api = self._running["kube-apiserver"]
        api.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            api.send_signal(signal.SIGCONT)

    @contextmanager
    def slow(self, seconds: float = 1.0) -> Iterator[None]:
        """During the block, each answer of the API may take this long."""
        ended = threading.Event()

        def hesitate() -> None:
            while not ended.wait(_AWAKE):
                with self.silent():
                    time.sleep(seconds)

        hesitating = threading.Thread(target=hesitate)
        hesitating.start()
        try:
            yield
        finally:
            ended.set()
            hesitating.join()

    def last_lines(self) -> str:
        return self._last_words("kube-apiserver")

    def stop(self) -> None:
        """Kill all programs at once: none of their data is used again."""
        for program in self._running.values():
            program.kill()
        for program in self._running.values():
            program.wait()
        self._running.clear()

    def _start(self, program: Path, *options: str) -> None:
        with (self._logs / f"{program.name}.log").open("w") as sink:
            self._running[program.name] = subprocess.Popen(
                [*entering.ENDS_WITH_US, *self.command([str(program), *options])],
                cwd=self._folder, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, env=entering.ENVIRONMENT,
                start_new_session=True,  # Ctrl-C is for the lab
            )  # fmt: skip

    def _wait_until_ready(self, certificate: Path) -> None:
        ended: list[str] = []

        def is_over() -> bool:
            ended.extend(name for name, program in self._running.items() if program.poll() is not None)
            return bool(ended) or self._is_ready(certificate)

        until("the API is ready", is_over, self, limit=_READY_LIMIT, pause=0.1)
        if ended:
            raise LabError(f"{ended[0]} ended with {self._running[ended[0]].returncode}:\n{self._last_words(ended[0])}")

    def _is_ready(self, certificate: Path) -> bool:
        if not self.authority:
            if not certificate.exists():
                return False
            self.authority = certificate.read_text()
            self.api.trust(self.authority)
        try:
            return self.api.request("/readyz")["text"] == "ok"
        except (OSError, LabError):
            return False

    def _last_words(self, name: str) -> str:
        log = self._logs / f"{name}.log"
        lines: Sequence[str] = log.read_text(errors="replace").splitlines()[-15:]
        return "\n".join([f"{name} printed last:", *lines, f"The whole log is {log}"])
