# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Asks the node's Cilium agent whether it is healthy, as kubelet does. Starts no process.

From cilium's sources: daemon/cmd/agenthealth.go, install/kubernetes/cilium/templates/cilium-agent/daemonset.yaml.
"""

from __future__ import annotations

import contextlib
import http.client

# With the header, the agent answers for itself alone, and not for the Kubernetes API and the key-value store.
PATH, HEADERS = "/healthz", {"brief": "true"}
ADDRESSES = ("127.0.0.1", "::1")  # the agent listens at those of the IP versions that it has
LIMIT = 5  # seconds, as for the agent's own probes


def trouble(port: int) -> str:
    """Return why the agent does not count as healthy, as the end of the sentence "the agent ..."; empty if it is healthy."""
    said = []
    for address in ADDRESSES:
        with contextlib.closing(http.client.HTTPConnection(address, port, timeout=LIMIT)) as connection:
            try:
                connection.request("GET", PATH, headers=HEADERS)
                status = connection.getresponse().status
            except (OSError, http.client.HTTPException) as error:
                said.append(f"{address}: {error or type(error).__name__}")
                continue
        if status == http.client.OK:
            return ""
        return f"answers GET {PATH} at port {port} of {address} with the status {status}"
    return f"does not answer GET {PATH} at port {port} ({'; '.join(said)})"
