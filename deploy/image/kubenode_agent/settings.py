# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The agent's settings, from environment variables of the DaemonSet."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

from ansible_collections.kubenode.datapath.plugins.module_utils._checkpoint.checkpoint import SHORTEST

PROFILES = ("aks_dual_stack", "eni_policy_routing", "cilium_migration", "symmetric_routing")
AUDIT = "audit"  # in place of a profile: the node is audited, and not changed
UNDO = {"cilium_migration": "restored"}  # the state that undoes a profile, if it is not absent
LOW, HIGH = 0.1, 1440.0  # minutes between two runs
LONGEST = 600  # seconds of a checkpoint: a node that is cut off waits for its end, and a run is killed after half an hour


class Refused(ValueError):
    """The agent cannot run with its settings; ``str()`` is the sentence for the operator."""


@dataclasses.dataclass(frozen=True)
class Settings:
    """profile: the role, or AUDIT. undoes: whether the profile is removed instead of applied. node: the name of this pod's node.

    folder: where the ConfigMap is mounted. state: the folder of the readiness files. interval: minutes between two runs.
    checkpoint: seconds within which the API must answer after a change; 0 for no checkpoint unless the ConfigMap sets one.
    taint: key of the taint that is removed from a converged node; empty for none. address, port: of the metrics; port 0 for none.
    condition: whether an audit sets a condition of the node.
    """

    profile: str
    node: str
    undoes: bool = False
    folder: Path = Path("/etc/kubenode-agent")
    state: Path = Path("/run/kubenode-agent")
    interval: float = 10.0
    taint: str = "kubenode.datapath/not-ready"
    address: str = ""
    port: int = 9463
    checkpoint: int = 60
    condition: bool = False

    @property
    def desired_state(self) -> str:
        """Return the role's state that undoes the profile."""
        return UNDO.get(self.profile, "absent")


def from_environment(variables: Mapping[str, str]) -> Settings:
    """Raise Refused."""
    profile = variables.get("KUBENODE_PROFILE", "")
    if profile not in (*PROFILES, AUDIT):
        raise Refused(f"KUBENODE_PROFILE must be one of {', '.join((*PROFILES, AUDIT))}; {profile!r} was given")
    node = variables.get("KUBENODE_NODE", "")
    if not node:
        raise Refused("KUBENODE_NODE must be the name of the node (fieldRef spec.nodeName); nothing was given")
    state = variables.get("KUBENODE_STATE", "present")
    if state not in ("present", "absent"):
        raise Refused(f"KUBENODE_STATE must be present or absent; {state!r} was given")
    if profile == AUDIT and state == "absent":
        raise Refused("KUBENODE_STATE must be present for an audit, which leaves nothing on the node; 'absent' was given")
    condition = variables.get("KUBENODE_CONDITION") or "false"
    if condition not in (("true", "false") if profile == AUDIT else ("false",)):
        raise Refused(f"KUBENODE_CONDITION must be true or false, and true only for an audit; {condition!r} was given")
    usual = Settings(profile, node)
    return Settings(
        profile,
        node,
        state == "absent",
        Path(variables.get("KUBENODE_VARIABLES") or usual.folder),
        Path(variables.get("KUBENODE_RUN") or usual.state),
        _number(variables, "KUBENODE_INTERVAL", usual.interval, LOW, HIGH),
        variables.get("KUBENODE_TAINT", usual.taint),
        variables.get("KUBENODE_METRICS_ADDRESS", usual.address),
        int(_number(variables, "KUBENODE_METRICS_PORT", usual.port, 0, 65535)),
        int(_number(variables, "KUBENODE_CHECKPOINT", usual.checkpoint, SHORTEST, LONGEST, zero=True)),
        condition == "true",
    )


def _number(variables: Mapping[str, str], name: str, usual: float, low: float, high: float, zero: bool = False) -> float:
    """Return a number within the bounds, or 0 if zero says that it may be."""
    text = variables.get(name)
    if not text:
        return usual
    try:
        value = float(text)
    except ValueError:
        value = low - 1
    if not (low <= value <= high or (zero and value == 0)):
        raise Refused(f"{name} must be {'0 or ' if zero else ''}a number from {low:g} to {high:g}; {text!r} was given")
    return value
