# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""kube-proxy itself, as it is released, on a node of namespaces."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from lab import entering
from lab.node import NamespaceNode
from lab.prober import Prober
from lab.upstream import services
from lab.upstream.api import Api
from lab.upstream.services import Service
from lab.waiting import until

Mode = Literal["nftables", "iptables"]

HEALTH_PORT = 10256
FOLDER = "/run/kube-proxy"
_PROGRAM = f"{FOLDER}/kube-proxy"  # the process has this name, whatever the file's is
_LAST_ALPHA = (1, 30)
"""Up to this version, the mode nftables is behind a feature gate that is off."""


def version(binary: Path) -> tuple[int, int]:
    """Return the version of the program, such as (1, 36)."""
    output = subprocess.run([binary, "--version"], capture_output=True, text=True, check=True).stdout
    match = re.search(r"v(\d+)\.(\d+)", output)
    assert match, output
    return int(match[1]), int(match[2])


class KubeProxy:
    """kube-proxy on a node, and the API that it reads.

    ``port_ranges``: of the node's addresses at which node ports are served; by default the mode's own choice, which is the first
    address of each IP version in mode nftables, and all in mode iptables.
    """

    def __init__(
        self,
        binary: Path,
        node: NamespaceNode,
        mode: Mode,
        addresses: Sequence[str],
        pod_ranges: Sequence[str],
        port_ranges: Sequence[str] = (),
    ) -> None:
        self.node, self.mode, self._port_ranges = node, mode, list(port_ranges)
        self.api = Api(node)
        self.api.store.put([services.node(node.name, addresses, pod_ranges), services.service_ranges()])
        self.is_alpha = mode == "nftables" and version(binary) <= _LAST_ALPHA
        self._log = os.memfd_create("kube-proxy.log")
        self._process: subprocess.Popen[bytes] | None = None
        node.write(f"{FOLDER}/kubeconfig", self.api.kubeconfig)
        node.write(f"{FOLDER}/config", json.dumps(self._configuration()))
        node.run(["ln", "-sf", str(binary), _PROGRAM])

    def start(self) -> None:
        """Start the program, and wait until it has written its rules."""
        self._process = self._run("--config", f"{FOLDER}/config")
        health = Prober(self.node)
        until("kube-proxy is healthy", lambda: health.http("127.0.0.1", HEALTH_PORT, 1.0, 1, "/healthz"), self)

    def stop(self) -> None:
        """End the program. Its rules stay."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
            self._process = None

    def restart(self) -> None:
        self.stop()
        self.start()

    def clean_up(self) -> None:
        """Let the program remove its rules of all modes."""
        self.stop()
        process = self._run("--config", f"{FOLDER}/config", "--cleanup")
        assert process.wait() == 0, self.last_lines()

    def close(self) -> None:
        self.stop()
        self.api.close()
        os.close(self._log)

    def serve(self, *served: Service) -> None:
        """Announce Services, and wait until the rules of the last are there."""
        self.api.store.put(services.manifests(served))
        until(f"the rules have {served[-1].name}", lambda: self._has_rules(served[-1]), self)

    def rules(self) -> str:
        """Return the rules of the node, of both IP versions."""
        if self.mode == "nftables":
            return self.node.run_from_host(["nft", "list", "ruleset"])
        return "".join(self.node.run_from_host([program]) for program in ("iptables-save", "ip6tables-save"))

    def last_lines(self) -> str:
        """Return the end of the log (lab.waiting.Witness)."""
        size = os.fstat(self._log).st_size
        return os.pread(self._log, 4000, max(0, size - 4000)).decode(errors="replace")

    def _has_rules(self, service: Service) -> bool:
        rules = self.rules()
        return all(re.search(rf"{address}(?![\w.:])", rules) for address in service.addresses)

    def _run(self, *options: str) -> subprocess.Popen[bytes]:
        command = self.node.command([_PROGRAM, *options])
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log, env=entering.ENVIRONMENT, cwd="/"
        )

    def _configuration(self) -> dict[str, Any]:
        """Return the configuration. Sizes and timeouts of conntrack are the whole machine's; 0 keeps them."""
        return {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "mode": self.mode,
            "hostnameOverride": self.node.name,
            "clientConnection": {"kubeconfig": f"{FOLDER}/kubeconfig", "contentType": "application/json"},
            "detectLocalMode": "NodeCIDR",
            "nodePortAddresses": self._port_ranges,
            "healthzBindAddress": f"127.0.0.1:{HEALTH_PORT}",
            "metricsBindAddress": "127.0.0.1:10249",
            "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
            "oomScoreAdj": 0,
            "iptables": {"minSyncPeriod": "100ms"},
            "nftables": {"minSyncPeriod": "100ms"},
            "featureGates": {"NFTablesProxyMode": True} if self.is_alpha else {},
        }
