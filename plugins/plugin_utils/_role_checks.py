# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This plugin util is private to the collection: it may change at any time.

"""The requirements on the values of each role's variables, beyond their types. Pure: knows no node and no class of Ansible.

Names of variables are those without the role's prefix. The checks are those of the modules that get the values.
"""

from __future__ import annotations

import re
import typing as t

from ansible_collections.kubenode.datapath.plugins.module_utils._azure_vnet import cleanup_options
from ansible_collections.kubenode.datapath.plugins.module_utils._boot import boot_files
from ansible_collections.kubenode.datapath.plugins.module_utils._checkpoint import checkpoint
from ansible_collections.kubenode.datapath.plugins.module_utils._cloud import eni, eni_layout
from ansible_collections.kubenode.datapath.plugins.module_utils._core import fields, names, version
from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Invalid
from ansible_collections.kubenode.datapath.plugins.module_utils._core.fields import Unfit
from ansible_collections.kubenode.datapath.plugins.module_utils._discovery import discovery
from ansible_collections.kubenode.datapath.plugins.module_utils._interfaces import link_address
from ansible_collections.kubenode.datapath.plugins.module_utils._kubelet import kubelet_units
from ansible_collections.kubenode.datapath.plugins.module_utils._nftables.return_path_table import ReturnPath, service_prefixes
from ansible_collections.kubenode.datapath.plugins.module_utils._probe_snat.probe_table import ProbeSnat
from ansible_collections.kubenode.datapath.plugins.module_utils._routing import policy, rt_names
from ansible_collections.kubenode.datapath.plugins.module_utils._trace import packet

Values = t.Mapping[str, t.Any]
# Takes a value and whether it is to be applied: the state that undoes accepts what an earlier version has installed. Raises
# Invalid, whose option is the variable or a place in it.
Check = t.Callable[[t.Any, bool], object]
# Takes the values of all variables, None for one that was left out, and whether the node is an image, None if that is not known
# yet. Yields sentences, and may raise Invalid like a check.
Rule = t.Callable[[Values, t.Optional[bool]], t.Iterable[str]]


class Role(t.NamedTuple):
    """undo: the state that removes or restores.
    specs: where the argument spec says raw, because Ansible takes no JSON text for a list of dictionaries.
    words: lists that may be given as plain text, as Ansible's type list; JSON text is accepted for every list and dictionary.
    permitted: the variables that a ConfigMap may set (_configmap). Its writer must not become root on the nodes, so a command, an
        argument of one, or a path is never among them. A variable that is not listed is refused.
    refused: the reason for each other variable, for the error and the documentation.
    """

    undo: str = ""
    permitted: frozenset[str] = frozenset()
    refused: t.Mapping[str, str] = {}
    specs: t.Mapping[str, dict[str, t.Any]] = {}
    words: t.Collection[str] = ()
    checks: t.Mapping[str, Check] = {}
    together: Rule = lambda _values, _is_image: ()


def applied(check: t.Callable[[str, t.Any], object], option: str) -> Check:
    """A check that the state that undoes does not need."""
    return lambda given, is_applied: check(option, given) if is_applied else None


def within(option: str, low: int, high: int) -> Check:
    def check(given: t.Any, _is_applied: bool) -> None:
        try:
            fields.number(given, low, high)
        except Unfit as unfit:
            raise Invalid(option, given, str(unfit)) from None

    return check


def _seconds(given: t.Any, _is_applied: bool) -> None:
    checkpoint.seconds(given)


def _protocol(given: t.Any, _is_applied: bool) -> None:
    policy.from_options(given, None, None, {})


def _before(given: t.Sequence[str], _is_applied: bool) -> None:
    kubelet_units.others(given)


def _of_probe_table(option: str, given: t.Any) -> None:
    default: Values = {"table": ProbeSnat().name, "interface": "eth0", "priority": 0}
    probes = [{"source": "fe80::1", "translated": "2001:db8::1"}]
    ProbeSnat.from_options({**default, "probes": probes, option: given})


def _optional_interface(option: str, given: str) -> None:
    if given:
        names.interface(option, given)


def _addresses(given: t.Sequence[str], is_applied: bool) -> None:
    for number, one in enumerate(given if is_applied else ()):
        cleanup_options.address(number, one)


def _packets(given: t.Sequence[Values], _is_applied: bool) -> None:
    packet.from_list("rehearse_packets", given)


PACKETS = {"type": "list", "elements": "dict", "options": packet.OPTIONS}


PROFILE = ("daemons", "filters", "own_addresses", *eni_layout.PARTS, "connmark")  # the parts of eni_policy_routing


def _managed(given: t.Sequence[str], _is_applied: bool) -> None:
    if not given:
        raise Invalid("manage", list(given), f"a list of at least one of {', '.join(PROFILE)}")
    for number, one in enumerate(given):
        if one not in PROFILE:
            raise Invalid(f"manage[{number}]", one, f"one of {', '.join(PROFILE)}")


def _patterns(option: str, given: t.Sequence[str]) -> None:
    for number, one in enumerate(given):
        names.pattern(f"{option}[{number}]", one)


def _command(option: str, given: t.Sequence[str]) -> None:
    if not given or not given[0].strip():
        raise Invalid(option, list(given), "a command, or a list of at least one word")


def _targets(option: str, given: t.Sequence[Values]) -> None:
    for number, one in enumerate(given):
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}|[0-9A-Fa-f:.]{2,45}", one["address"]):
            raise Invalid(f"{option}[{number}].address", one["address"], "an IP address or the name of a host")
        within(f"{option}[{number}].port", 1, 65535)(one["port"], True)


def _combination(values: Values, is_image: bool | None) -> t.Iterator[str]:
    """The requirements on combinations of eni_policy_routing's variables."""
    if values["state"] != "present" or set(values["manage"]) == {"daemons"}:
        return
    layout, remedy, connmark, enis, primary, pods = (
        values[name] for name in ("layout", "remedy", "connmark", "enis", "primary_interface", "pod_interfaces")
    )
    managed = values["manage"]
    is_marked = connmark != "never" and "connmark" in managed
    if layout is None:
        yield (
            f"eni_policy_routing_layout must be one of {', '.join([*eni_layout.LAYOUTS][:-1])} and custom; nothing was given."
            " Nothing was changed. Set the layout of the node's CNI, or custom for a CNI that makes no rules"
        )
    unmarked = "eni_policy_routing_connmark is never" if connmark == "never" else "eni_policy_routing_manage lacks connmark"
    if remedy == "strict" and "filters" in managed and not is_marked:
        yield (
            f"eni_policy_routing_remedy is strict and {unmarked}: every reply to a pod that comes in by the primary ENI would be"
            " dropped. Nothing was changed. Set eni_policy_routing_connmark to auto and list connmark, or set the remedy to loose"
        )
    for name in ("interface_marks", "service_addresses"):
        if values[name] and connmark == "never":
            yield (
                f"eni_policy_routing_{name} needs the table that marks connections, and eni_policy_routing_connmark is never."
                " Nothing was changed. Set eni_policy_routing_connmark to auto, or leave the former out"
            )
    if is_image and enis is None and not primary:
        yield (
            "eni_policy_routing_primary_interface must be given for an image, and was not: reverse-path filtering and marks are"
            " set by the name of the primary ENI's network interface. Nothing was changed. Set it to the name that udev gives"
            " the interface on the nodes, for example eth0 or ens5"
        )
    if is_image and enis is None and remedy == "symmetric" and "own_addresses" in managed:
        yield (
            "eni_policy_routing_remedy must be loose or strict for an image whose nodes discover their ENIs at boot; symmetric"
            " was given. Nothing was changed. Choose another remedy, or give the ENIs and their addresses in"
            " eni_policy_routing_enis"
        )
    if layout is None:
        return
    adapted = eni_layout.adapted(layout, values["mark"], values["priorities"])
    if is_marked and not pods and not adapted.pod_links:
        is_marked = False
        yield (
            f"eni_policy_routing_pod_interfaces must be given for the layout {layout} if connections are marked, and was not."
            " Nothing was changed. Set the names or patterns of the node's ends of the pods' interfaces, or"
            " eni_policy_routing_connmark to never"
        )
    if enis is None:
        try:
            discovery.from_option(values)
        except Invalid as error:
            yield f"eni_policy_routing_{str(error).removeprefix('enis.')}"
            return
    if enis is not None or primary:  # otherwise the metadata service tells the primary interface
        interfaces = [{"name": primary, "primary": True}] if enis is None else enis
        marks = values["interface_marks"]
        desired = eni_layout.desired(layout, interfaces, values["mark"], values["priorities"], managed, marks)
        yield from _unfit_enis(desired, values)
        if is_marked:
            _return_path(desired, values)
    if "filters" in managed and remedy != "symmetric":
        _filtered(values)


def _unfit_enis(desired: eni_layout.DesiredLayout, values: Values) -> t.Iterator[str]:
    """The errors that the modules would report for the rules, routes and addresses that follow from the ENIs."""
    try:
        policy.from_options(values["protocol"], desired.rules, desired.routes, rt_names.TABLES)
        if values["remedy"] == "symmetric" and "own_addresses" in values["manage"]:
            link_address.from_options(desired.addresses)
    except Invalid as error:
        yield f"eni_policy_routing_enis must give valid rules, routes and addresses: {error}"


def _filtered(values: Values) -> None:
    """rp_filter takes fewer names than the other modules."""
    if values["primary_interface"]:
        named = {"primary_interface": values["primary_interface"]}
    else:
        enis = eni.from_list("enis", values["enis"]) if values["enis"] else ()
        named = {f"{one.option}.name": one.name for one in enis if one.primary}
    if values["remedy"] == "loose":
        named.update({f"interface_marks[{number}].name": one["name"] for number, one in enumerate(values["interface_marks"])})
    for option, name in named.items():
        if "=" in name:
            raise Invalid(option, name, "a link's name without =, as no line of sysctl.d(5) can set rp_filter of it")


def _return_path(desired: eni_layout.DesiredLayout, values: Values) -> None:
    ReturnPath.from_options(
        {
            "table": "kubenodeReturnPath",
            "primary_interface": values["primary_interface"] or desired.primary_interface,
            "pod_interfaces": values["pod_interfaces"] or desired.pod_interfaces,
            "interfaces": desired.interfaces,
            "mark": desired.mark,
            "mask": desired.mask,
            "strict": values["remedy"] != "loose",
        }
    )


# Why a ConfigMap cannot set a variable; each ends a sentence with "because".
COMMAND = "it is a command"
ARGUMENTS = "it becomes a part of a command"
PATH = "it is a path"
KUBECTL = "the agent has no kubectl"
HOST = "it is a host of an inventory"

ROLES = {
    "aks_dual_stack": Role(
        undo="absent",
        permitted=frozenset(
            {
                *("state", "ipv6", "mode", "table", "interface", "priority", "probes", "before", "agentbaker"),
                *("nftables_minimum_version", "nftables_service", "nftables_lock_timeout"),
                *("later_interfaces", "rehearse", "rehearse_packets"),
            }
        ),
        refused={"path": PATH},
        words=("before",),
        specs={
            "probes": {
                "type": "list",
                "elements": "dict",
                "options": {
                    "source": {"type": "str", "required": True},
                    "translated": {"type": "str", "required": True},
                },
            },
            "rehearse_packets": PACKETS,
        },
        checks={
            "table": lambda given, is_applied: names.table("table", given, is_applied),
            "interface": applied(_of_probe_table, "interface"),
            "priority": applied(_of_probe_table, "priority"),
            "probes": applied(_of_probe_table, "probes"),
            "path": boot_files.option,
            "before": _before,
            "rehearse_packets": _packets,
            "nftables_minimum_version": applied(version.wanted, "nftables_minimum_version"),
            "nftables_lock_timeout": within("nftables_lock_timeout", 0, fields.UINT32),
        },
    ),
    "cilium_migration": Role(
        undo="restored",
        permitted=frozenset(
            {
                *("state", "mode", "addresses", "backend", "neighbors", "routes", "iptables", "links", "checkpoint"),
                *("bridge", "bridge_name", "bridge_interface", "bridge_checkpoint"),
                *("rehearse", "rehearse_packets", "grace", "verify"),
            }
        ),
        refused={
            "backup": PATH,
            "checkpoint_command": COMMAND,
            "bridge_checkpoint_command": COMMAND,
            "verify_command": COMMAND,
            "verify_from": HOST,
            "kubectl": COMMAND,
            "drain_options": ARGUMENTS,
            "node_name": ARGUMENTS,
            "cordon": KUBECTL,
            "drain": KUBECTL,
            "restart_daemonset_pods": KUBECTL,
            "restart_timeout": KUBECTL,
        },
        specs={
            "verify": {
                "type": "list",
                "elements": "dict",
                "options": {"address": {"type": "str", "required": True}, "port": {"type": "int", "required": True}},
            },
            "rehearse_packets": PACKETS,
        },
        words=("addresses", "kubectl"),
        checks={
            "addresses": _addresses,
            "backup": cleanup_options.backup,
            "bridge_name": applied(_optional_interface, "bridge_name"),
            "bridge_interface": applied(_optional_interface, "bridge_interface"),
            "checkpoint": _seconds,
            "bridge_checkpoint": _seconds,
            "kubectl": lambda given, _is_applied: _command("kubectl", given),
            "grace": within("grace", 0, 86400),
            "restart_timeout": within("restart_timeout", 1, 86400),
            "rehearse_packets": _packets,
            "verify": lambda given, _is_applied: _targets("verify", given),
        },
    ),
    "eni_policy_routing": Role(
        undo="absent",
        permitted=frozenset(
            {
                *("state", "manage", "remedy", "mode", "layout", "enis", "cloud", "primary_interface", "pod_interfaces"),
                *("mark", "priorities", "connmark", "service_addresses", "interface_marks", "raise_all", "protocol", "before"),
                *("restart_networkd", "nftables", "checkpoint", "later_interfaces", "rehearse", "rehearse_packets"),
            }
        ),
        refused={"checkpoint_command": COMMAND},
        specs={
            "rehearse_packets": PACKETS,
            "enis": {"type": "list", "elements": "dict"},
            "interface_marks": {
                "type": "list",
                "elements": "dict",
                "options": {"name": {"type": "str", "required": True}, "mark": {"type": "str", "required": True}},
            },
        },
        words=("before", "manage", "pod_interfaces", "service_addresses"),
        checks={
            "manage": _managed,
            "primary_interface": applied(names.network_interface, "primary_interface"),
            "pod_interfaces": applied(_patterns, "pod_interfaces"),
            "service_addresses": lambda given, is_applied: service_prefixes(given) if is_applied else None,
            "protocol": _protocol,
            "before": _before,
            "rehearse_packets": _packets,
            "checkpoint": _seconds,
        },
        together=_combination,
    ),
}
