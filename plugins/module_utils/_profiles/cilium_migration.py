# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The profile cilium_migration: its options, and the modules that they stand for on a node that azure-vnet served."""

from __future__ import annotations

import re
import typing as t

from .._checkpoint import checkpoint
from .._core import names, option
from .._core.errors import Invalid
from .._core.option import ARGUMENTS, COMMAND, HOST, KUBECTL, Option, Values, applied, permitted, within
from .._leftovers import cleanup_options
from .._platform import node_mode

if t.TYPE_CHECKING:
    from .composition import Step

UNDO = "restored"


def _optional_interface(place: str, value: str) -> None:
    if value:
        names.interface(place, value)


def _command(value: t.Sequence[str], _is_applied: bool) -> None:
    if not value or not value[0].strip():
        raise Invalid("kubectl", [*value], "a command, or a list of at least one word")


def _verified(value: t.Sequence[Values], _is_applied: bool) -> None:
    for number, target in enumerate(value):
        place = f"verify[{number}]"
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}|[0-9A-Fa-f:.]{2,45}", target["address"]):
            raise Invalid(f"{place}.address", target["address"], "an IP address or the name of a host")
        within(f"{place}.port", 1, 65535)(target["port"], True)


def _seconds(place: str) -> option.Check:
    def check(value: int, _is_applied: bool) -> None:
        try:
            checkpoint.seconds(value)
        except Invalid as error:
            raise error.renamed(place) from None

    return check


TARGET = {**option.texts("address"), "port": Option("int", is_required=True)}
OPTIONS: option.Options = {
    "state": permitted("str", "absent", choices=("absent", UNDO)),
    "mode": node_mode.MODE,
    **option.targeting("ebtables_cleanup", cleanup_options.OPTIONS),
    "iptables": permitted("bool", True, targets=("ebtables_cleanup.iptables",)),
    "links": permitted("bool", True, targets=("ebtables_cleanup.links",)),
    "checkpoint": permitted("int", 0, check=_seconds("checkpoint")),
    "checkpoint_command": Option("str", "", refused=COMMAND),
    "bridge": permitted("bool", False),
    "bridge_name": permitted("str", "", check=applied(_optional_interface, "bridge_name")),
    "bridge_interface": permitted("str", "", check=applied(_optional_interface, "bridge_interface")),
    "bridge_checkpoint": permitted("int", 60, check=_seconds("bridge_checkpoint")),
    "bridge_checkpoint_command": Option("str", "", refused=COMMAND),
    "cordon": Option("bool", False, refused=KUBECTL),
    "drain": Option("bool", False, refused=KUBECTL),
    "restart_daemonset_pods": Option("bool", False, refused=KUBECTL),
    "restart_timeout": Option("int", 300, refused=KUBECTL, check=within("restart_timeout", 1, 86400)),
    "drain_options": Option(
        "list",
        ["--ignore-daemonsets", "--delete-emptydir-data", "--timeout=300s"],
        elements="str",
        refused=ARGUMENTS,
    ),
    "kubectl": Option("list", ["kubectl"], elements="str", is_words=True, refused=COMMAND, check=_command),
    "node_name": Option("str", refused=ARGUMENTS),
    "grace": permitted("int", 15, check=within("grace", 0, 86400)),
    "verify": permitted("list", [], elements="dict", entries=TARGET, check=_verified),
    "verify_from": Option("str", refused=HOST),
    "verify_command": Option("list", [], elements="str", refused=COMMAND),
}


def conflicts(_options: Values, _is_image: bool | None) -> t.Iterable[str]:
    return ()


def checkpoint_of(options: Values) -> tuple[int, str]:
    """Return the seconds and the command of the checkpoint. With the bridge, the longer time and both commands count."""
    names = ("", "bridge_") if options["bridge"] and options["state"] != UNDO else ("",)
    commands = [command for name in names if (command := options[f"{name}checkpoint_command"])]
    both = " && ".join(f"({command}\n)" for command in commands)
    return max(options[f"{name}checkpoint"] for name in names), commands[0] if len(commands) == 1 else both


class Facts(t.NamedTuple):
    """The plan depends on no facts: each module finds out what there is to do."""

    def report(self) -> dict[str, t.Any]:
        return {}

    def warnings(self) -> list[str]:
        return []


def observe(_options: Values, _is_image: bool, _run: object) -> None:
    """Observe nothing: the plan depends on the options alone."""


def facts(_options: Values, _observed: None) -> Facts:
    return Facts()


def plan(options: Values, _facts: Facts) -> list[Step]:
    """Return the modules with their options, in the order in which they are applied.

    The bridge goes last, when no leftover uses it.
    """
    steps: list[Step] = [("ebtables_cleanup", {"state": options["state"], **option.passed(OPTIONS, options, "ebtables_cleanup")})]
    if options["bridge"] and options["state"] != UNDO:
        names_of = {"bridge": options["bridge_name"] or None, "interface": options["bridge_interface"] or None}
        steps.append(("azure_vnet_bridge", names_of))
    return steps
