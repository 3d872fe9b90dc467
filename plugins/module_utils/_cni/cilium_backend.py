# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Reads the options of the node's Cilium agent. Read only; starts no process.

The running agent's own folder comes first: it holds the ConfigMap as this agent has read it, in each version of Cilium. The state
is that of the last agent that started, for a node whose agent does not run at the moment.
"""

from __future__ import annotations

from .._files import files
from .._netlink import rtnetlink
from .._platform import processes
from .cilium import CONFIG_DIR, LINK, OPTIONS, REPLACEMENT, Agent, agent, arguments, state

PROCESS = "cilium-agent"
STATE = "/var/run/cilium/state/agent-runtime-config.json"


def find() -> Agent | None:
    """The agent that serves this network namespace; None if it has created no link here."""
    if not rtnetlink.index_of(LINK):
        return None
    for pid in processes.in_this_network((PROCESS,)):
        options = _options(pid)
        if REPLACEMENT in options:
            return agent(f"the configuration of the process {PROCESS} ({pid})", options)
    options = state(_text(STATE))
    return agent(STATE, options) if options else Agent()


def _options(pid: str) -> dict[str, str]:
    given = arguments(_text(f"/proc/{pid}/cmdline").split("\0"))
    folder = f"/proc/{pid}/root{given[CONFIG_DIR]}" if CONFIG_DIR in given else ""
    stored = {option: _text(f"{folder}/{option}").strip() for option in OPTIONS} if folder else {}
    return {option: value for option, value in {**stored, **given}.items() if value}


def _text(path: str) -> str:
    try:
        return files.text(path)
    except OSError:
        return ""
