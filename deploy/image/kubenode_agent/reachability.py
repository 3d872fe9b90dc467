# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Asks the API of Kubernetes over a new connection from the node's network: the proof by which a checkpoint is confirmed.

Started as a program, it exits with status 0 if the API answered.
"""

from __future__ import annotations

import http.client
import os
import subprocess
import sys

from . import api

LIMIT = 15.0  # seconds for a try
ITS_OWN = 500  # statuses from here on may be those of a proxy that does not reach the API
# In the network of the node's process 1, also if an overlay of the DaemonSet takes hostNetwork from the pod.
COMMAND = ("nsenter", "--target=1", "--net", "--", sys.executable, "-m", f"{__package__}.reachability")


def trouble() -> str:
    """Return why the API does not answer in the node's network; empty if it does."""
    try:
        done = subprocess.run(
            COMMAND, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False, timeout=LIMIT
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {LIMIT:g} s"
    except OSError as error:
        return f"{COMMAND[0]}: {error.strerror}"
    return done.stderr.strip() or f"{COMMAND[0]} ended with {done.returncode}" if done.returncode else ""


def ask(node: str) -> str:
    """Ask the API for the node's object, which has several packets. Return why it does not answer; empty if it does.

    A refusal is an answer, because the authority of the cluster has signed the certificate of the server that gave it.
    """
    try:
        api.request("GET", f"{api.NODES}/{node}")
    except api.Refusal as refusal:
        return "" if refusal.status < ITS_OWN else f"the API of Kubernetes answered {' '.join(str(refusal).split())}"
    except (OSError, ValueError, http.client.HTTPException) as error:
        return f"the API of Kubernetes did not answer: {error!s}"
    return ""


if __name__ == "__main__":
    sys.exit(ask(os.environ["KUBENODE_NODE"]) or 0)
