# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The parts of the module network_daemons."""

from __future__ import annotations

import socket
import time
import typing as t
from functools import partial

from .._core.option import STATE, Option, Options
from .._core.parts import Parts, Request
from .._core.plan import Guard, Resource
from .._files import managed_files
from .._files.files import Files, text_or_empty
from .._files.folder_guards import roots_folders
from .._network_daemons import daemons_backend, daemons_resource, known_daemons, networkd
from .._network_daemons.daemon_guards import (
    later_file,
    network_daemons,
    second_default,
)
from .._network_daemons.daemons_backend import File, Networkd
from .._network_daemons.daemons_resource import NetworkdSettings, has_read
from .._network_daemons.known_daemons import Daemon
from .._platform import kernel
from .._routing import known_programs, routing_backend
from .._routing.rule import IPV6, Rule
from .._snapshot import firewalls
from .._systemd.units import Units

OPTIONS: Options = {
    "state": STATE,
    "restart": Option("bool", True),
    "agents": Option("str", "masked", choices=("masked", "ignore")),
}


def parts(request: Request) -> Parts:
    units, backend = Units(request.run), Networkd(request.run)
    is_running = units.is_running()
    restarts = is_running and request.params["restart"]

    configuration, started = backend.configuration(), backend.started() if is_running else None
    texts = {path: file.text for path, file in configuration.items()}
    version = backend.version()
    keys = networkd.known(version) if backend.is_installed() else ()
    text = networkd.drop_in(version) if request.is_present and keys and _is_needed(configuration, keys) else None
    settings = _settings(texts, text, keys)

    files, agents = Files(), daemons_backend.agents(units)
    is_masked = request.is_present and request.params["agents"] == "masked"
    switched = daemons_resource.switched(files, agents, daemons_backend.overruled(), is_masked)
    remnants = _remnants() if kernel.is_own_root() else {}
    daemons = [*known_daemons.agent_daemons(switched.agents, switched.paths, remnants), *_firewalld(units)]
    if backend.is_installed():
        active = restarts or started is None or has_read(configuration, keys, started)
        daemons.insert(0, known_daemons.networkd_daemon(started is not None, version, settings, active))
    resource = NetworkdSettings(files, backend, text, keys if request.is_present else (), restarts)
    guards: list[Guard] = [partial(later_file, settings), partial(network_daemons, daemons)] if request.is_present else []
    guards += [partial(second_default, backend)] if request.is_present and kernel.is_own_root() else []
    if text:
        guards.insert(0, partial(roots_folders, networkd.PATH))
    resources: list[Resource] = [resource, *daemons_resource.placed(files, switched)]
    return Parts(resources, guards, lambda _outcome: {"daemons": [_report(daemon) for daemon in daemons]}, groundwork=resources)


def _remnants() -> dict[str, list[known_daemons.Remnant]]:
    """Return the rules in the ranges of agents whose tables have routes, by agent."""
    listed = routing_backend.rules_at(known_programs.OF_AGENTS)
    rules = [(agent, rule) for rule, _protocol in listed if (agent := known_programs.agent_of(rule))]
    links = dict(socket.if_nameindex())
    tables = {route.table for route, _protocol in routing_backend.listed_routes(links)} if rules else set()
    remnants: dict[str, list[known_daemons.Remnant]] = {}
    for agent, rule in rules:
        if rule.table in tables:
            remnants.setdefault(agent, []).append(known_daemons.Remnant(str(rule), _deletion(rule)))
    return remnants


def _deletion(rule: Rule) -> str:
    program = "ip -6" if rule.family == IPV6 else "ip"
    selector = str(rule).partition(": ")[2]
    return f"{program} rule del priority {rule.priority} {selector}; {program} route flush table {rule.table}"


def _firewalld(units: Units) -> list[Daemon]:
    if not units.named(firewalls.FIREWALLD):
        return []
    path = firewalls.FIREWALLD_FILE
    flushes = firewalls.of_firewalld(text_or_empty(path))["FlushAllOnReload"] != "no"
    return [known_daemons.firewalld_daemon(units.is_active(firewalls.FIREWALLD), flushes, path)]


def _is_needed(configuration: t.Mapping[str, File], keys: t.Sequence[str]) -> bool:
    """Return whether the drop-in exists, or the permanent files do not set all keys to no.

    An existing drop-in stays, because another file that has the settings may be removed later. A file that was changed in the
    future, before the clock was set back, does not show whether networkd has read it.
    """
    now = time.time()
    lasting = {path: file for path, file in configuration.items() if not path.startswith(networkd.PASSING)}
    texts = {path: file.text for path, file in lasting.items() if file.changed <= now}
    return networkd.PATH in configuration or any(networkd.setting(texts, key).value for key in keys)


def _settings(texts: dict[str, str], text: str | None, keys: t.Sequence[str]) -> dict[str, networkd.Setting]:
    """Return the settings after the run."""
    other_files = {path: other for path, other in texts.items() if path != networkd.PATH}
    after = other_files if text is None else {**other_files, networkd.PATH: managed_files.HEADING + text}
    return {key: networkd.setting(after, key) for key in keys}


def _report(daemon: Daemon) -> dict[str, t.Any]:
    return {name: value for name, value in daemon._asdict().items() if name != "remedy"}
