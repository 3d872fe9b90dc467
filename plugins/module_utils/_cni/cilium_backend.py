# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reads the options of the node's Cilium agent, and asks the agent for its health. Starts no process.

The running agent's own folder comes first: it holds the ConfigMap as this agent has read it, in each version of Cilium. The state
is that of the last agent that started, for a node whose agent does not run at the moment.
"""

from __future__ import annotations

import contextlib
import typing as t

from .._files import files
from .._netlink import rtnetlink
from .._platform import processes

if t.TYPE_CHECKING:
    from .cilium import Agent

LINK = "cilium_host"  # the first link that the agent creates
PROCESS = "cilium-agent"
STATE = "/var/run/cilium/state/agent-runtime-config.json"


def find() -> Agent | None:
    """Return the agent that serves this network namespace; None if it has created no link here."""
    if not rtnetlink.index_of(LINK):
        return None
    from . import cilium  # most nodes have no Cilium

    for pid in processes.in_this_network((PROCESS,)):
        options = _options(pid)
        if cilium.REPLACEMENT in options:
            return cilium.agent(f"the configuration of the process {PROCESS} ({pid})", options)
    options = cilium.state(files.text_or_empty(STATE))
    return cilium.agent(STATE, options) if options else cilium.Agent()


def _options(pid: str) -> dict[str, str]:
    from . import cilium

    passed = cilium.arguments(files.text_or_empty(f"/proc/{pid}/cmdline").split("\0"))
    folder = f"/proc/{pid}/root{passed[cilium.CONFIG_DIR]}" if cilium.CONFIG_DIR in passed else ""
    stored = {option: files.text_or_empty(f"{folder}/{option}").strip() for option in cilium.OPTIONS} if folder else {}
    return {option: value for option, value in {**stored, **passed}.items() if value}


# With the header, the agent answers for itself alone, and not for the Kubernetes API and the key-value store.
HEALTH_PATH, HEALTH_HEADERS = "/healthz", {"brief": "true"}
HEALTH_ADDRESSES = ("127.0.0.1", "::1")  # the agent listens at those of the IP versions that it has
HEALTH_TIMEOUT = 5  # seconds, as for the agent's own probes


def health_problem(port: int) -> str:
    """Return why the agent does not count as healthy, as the end of the sentence "the agent ..."; empty if it is healthy."""
    import http.client  # takes a tenth of what a converged run adds to a ping, and most nodes have no Cilium

    failures = []
    for address in HEALTH_ADDRESSES:
        with contextlib.closing(http.client.HTTPConnection(address, port, timeout=HEALTH_TIMEOUT)) as connection:
            try:
                connection.request("GET", HEALTH_PATH, headers=HEALTH_HEADERS)
                status = connection.getresponse().status
            except (OSError, http.client.HTTPException) as error:
                failures.append(f"{address}: {error or type(error).__name__}")
                continue
        if status == http.client.OK:
            return ""
        return f"answers GET {HEALTH_PATH} at port {port} of {address} with the status {status}"
    return f"does not answer GET {HEALTH_PATH} at port {port} ({'; '.join(failures)})"
