# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The agent as the controller of its own checkpoint: in a pod of a node that boots, with the API behind the node's uplink."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import installation
import pytest
import yaml

from lab import collection, entering, inventory
from lab.agent_api import Api
from lab.container import SystemdNode
from lab.uplinks import V4, UplinkLab
from lab.waiting import until

pytest.importorskip("prometheus_client")

PORT = 9463
ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
# A pod shares processes, network and name with its node, and has files of its own: those of this machine.
POD = ("unshare", "--mount", "--ipc", "--cgroup", "--mount-proc", "sh", "-c")
START = f'mount -t tmpfs none /run && mkdir -p {ACCOUNT} && mount --bind "$0" {ACCOUNT} && exec "$@"'
# The pod's main() without the manifest that Galaxy writes.
AGENT = "import sys; from kubenode_agent import __main__ as main; main._collection = lambda: '1.0'; sys.exit(main.main())"
PERMANENT = "/etc/kubenode/policy-routes-75.json"  # what the next boot loads
FETCH = f"import urllib.request; print(urllib.request.urlopen('http://127.0.0.1:{PORT}/metrics').read().decode())"
PATIENCE = 180.0  # seconds for two runs on a busy machine


class Site:
    """A node with two uplinks, the API at the client's address, and the files of a pod in ``folder``."""

    def __init__(self, lab: UplinkLab, api: Api, folder: Path) -> None:
        self.lab, self.api, self.folder = lab, api, folder
        self.node: SystemdNode = lab.node("node1")
        self.log = folder / "log"

    def configure(self, gateway: str) -> None:
        """Write the ConfigMap. gateway: of eth0."""
        uplinks = [{"name": "eth0", "gateway": gateway}, {"name": "eth1", "gateway": V4.gateway(1)}]
        (self.folder / "variables.yaml").write_text(yaml.safe_dump({"symmetric_routing_uplinks": uplinks}))

    @contextlib.contextmanager
    def agent(self, **settings: str) -> Iterator[None]:
        pod = ["nsenter", f"--target={self.node.pid}", "--pid", "--net", "--uts", "--", *POD, START]
        environment = {
            **entering.ENVIRONMENT,
            **inventory.environment(),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "ANSIBLE_COLLECTIONS_PATH": collection.path(installation.collections()),
            "PYTHONPATH": f"{collection.CHECKOUT / 'deploy/image'}:{collection.path(installation.collections())}",
            "KUBENODE_PROFILE": "symmetric_routing",
            "KUBENODE_NODE": "node1",
            "KUBENODE_VARIABLES": str(self.folder),
            "KUBENODE_RUN": str(self.folder),
            "KUBENODE_METRICS_PORT": str(PORT),
            "KUBERNETES_SERVICE_HOST": V4.client,
            "KUBERNETES_SERVICE_PORT": str(self.api.server_port),
            **settings,
        }
        with self.log.open("w") as log:
            running = subprocess.Popen(
                [*pod, str(self.folder), sys.executable, "-c", AGENT], env=environment, stdout=log, stderr=log
            )
            try:
                yield
            finally:
                running.terminate()
                running.wait(120)

    def events(self, reason: str) -> list[str]:
        return [event["message"] for event in self.api.events if event["reason"] == reason]

    def metrics(self) -> str:
        return self.node.run_from_host([sys.executable, "-c", FETCH])

    def routing(self) -> list[str]:
        """The rules and routes of the profile."""
        output = [self.node.run_from_host(["ip", *words]) for words in (["rule"], ["route", "show", "table", "all"])]
        return [line for line in "".join(output).splitlines() if "proto 75" in line]

    def last_lines(self) -> str:
        return self.log.read_text()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with UplinkLab("agent", system="bookworm") as lab, lab.client.in_network(lambda: Api(tmp_path, V4.client)) as api:
        threading.Thread(target=api.serve_forever, args=(0.01,), daemon=True).start()
        yield Site(lab, api, tmp_path)
        api.shutdown()


def test_a_gateway_that_cuts_off_the_api_is_rolled_back_and_the_right_one_is_confirmed(site: Site) -> None:
    clean = site.routing()
    site.configure(gateway=f"{V4.segments[0]}77")
    with site.agent(KUBENODE_CHECKPOINT="15"):
        until("the roll-back is an event", lambda: site.events("Failed"), site, limit=PATIENCE)
        (failed,) = site.events("Failed")
        assert "was rolled back at" in failed and "within 15 s" in failed and "the API of Kubernetes did not answer" in failed
        assert failed.partition(": ")[2] in site.last_lines()
        assert 'kubenode_runs_total{result="failed"} 1.0' in site.metrics()
        assert site.routing() == clean and not site.node.exists(PERMANENT)

        site.configure(gateway=V4.gateway(0))
        until("the right gateway is confirmed", lambda: site.events("Applied"), site, limit=PATIENCE)
        assert site.routing() != clean and site.node.exists(PERMANENT)
        (warned,) = {*site.events("Warned")}
        assert "eth1 has the address" in warned and warned.partition(": ")[2] in site.last_lines()
        assert "kubenode_warnings_total 2.0" in site.metrics()
