# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reads other software that affects a node's packet path, and what the kernel counted: network daemons, firewalls, what the next
boot sets, CNI, this collection's units and records, listening sockets, neighbours of pods, counters, versions."""

from __future__ import annotations

import os
import socket
import typing as t
from pathlib import Path

from .._cni import cni_backend
from .._core import version
from .._core.errors import Failure
from .._files import files
from .._interfaces.link_backend import LinkMessages
from .._interfaces.link_message import IFINFO
from .._netlink import sock_diag
from .._netlink.attributes import attributes
from .._network_daemons import daemons_backend
from .._network_daemons.daemons_backend import Networkd
from .._platform import kernel, process, sysctl
from .._routing import policy
from .._routing.rt_tables_backend import tables
from .._systemd import unit_resource
from .._systemd.units import Units
from . import firewalls, pods_backend, proc_net
from . import settings as boot_model
from .snapshot import Notes


def policies(_run: process.Runner, note: Notes) -> list[dict[str, t.Any]]:
    """Return the policy of each protocol, with the path of its record. One that a boot discovers has no lists in a file."""
    texts = {}
    for path in (path for folder in policy.RECORD_FOLDERS for path in sorted(Path(folder).glob(policy.RECORD_FILES))):
        try:
            texts[str(path)] = files.text(str(path))
        except OSError as error:
            note(str(path), f"The record could not be read: {error}.")
    entries, refused = policy.recorded(texts, tables())
    for name, reason in refused.items():
        note(name, f"The record could not be read: {reason}.")
    return entries


CONNECTIONS = {"count": "net/netfilter/nf_conntrack_count", "max": "net/netfilter/nf_conntrack_max"}


def counters(_run: process.Runner, _note: Notes) -> dict[str, t.Any]:
    """Return counters since the start of the network namespace. What the kernel lacks is left out. Raises Failure."""
    values = proc_net.counters(*map(files.text_or_empty, proc_net.COUNTERS))
    connections = ((name, kernel.setting(key)) for name, key in CONNECTIONS.items())
    return {
        "packets": {name: value for name, value in sorted(values.items()) if name.endswith(proc_net.DROPS)},
        "connections": {
            **{name: value for name, value in connections if value is not None},
            **proc_net.sums(files.text_or_empty(proc_net.TRACKING), proc_net.TRACKED),
        },
        "routing": proc_net.sums(files.text_or_empty(proc_net.ROUTING), proc_net.MARTIANS),
        "otherhost": _otherhost(),
    }


def _otherhost() -> dict[str, int]:
    """Return the packets for other MAC addresses by link, without links that dropped none."""
    statistics = {
        link.name: attributes(link.body, IFINFO.size).get(proc_net.IFLA_STATS64, b"") for link in LinkMessages().links()
    }
    dropped = {name: proc_net.otherhost_dropped(each) for name, each in statistics.items()}
    return {name: count for name, count in dropped.items() if count}


IFUPDOWN = "networking.service"
OWN_UNITS = "kubenode-*"
# By program, the kernel module that it would load, even to tell its version.
PROGRAMS = {"nft": "nfnetlink", "iptables": "nfnetlink", "ebtables": "nfnetlink", "ipset": "ip_set"}


def network_daemons(run: process.Runner, _note: Notes) -> dict[str, t.Any]:
    """Return which daemons are on the node, whether each is active, networkd's version, and by which file it manages a link."""
    units, networkd = Units(run), Networkd(run)
    daemons = {name.partition(",")[0]: is_active for name, is_active in daemons_backend.agents(units).items()}
    if networkd.is_installed():
        daemons["systemd-networkd"] = networkd.started() is not None
    if process.find("ifup"):
        daemons["ifupdown"] = units.is_active(IFUPDOWN)
    files = {name: networkd.managing(index) for index, name in socket.if_nameindex()}
    managed = {name: path for name, path in files.items() if path}
    return {"daemons": daemons, "networkd_version": networkd.version(), "networkd_files": managed}


def firewalls_of_node(run: process.Runner, _note: Notes) -> dict[str, t.Any]:
    """Return the services that flush rulesets and that are on the node, with what their configuration says."""
    units = Units(run)
    services = [name for name in (firewalls.NFTABLES, firewalls.FIREWALLD) if units.named(name)]
    states: dict[str, dict[str, t.Any]] = {}
    for name in services:
        state = unit_resource.state_of(files.Files(), units, name)
        states[name] = {"is_enabled": state.has_links, "is_active": state.active, "is_masked": state.masked}
    if firewalls.NFTABLES in states:
        path = next((path for path in firewalls.NFTABLES_FILES if os.path.exists(path)), "")
        states[firewalls.NFTABLES].update(file=path, flushes=firewalls.flushes(files.text_or_empty(path)))
    if firewalls.FIREWALLD in states:
        states[firewalls.FIREWALLD].update(firewalls.of_firewalld(files.text_or_empty(firewalls.FIREWALLD_FILE)))
    return states


def boot(run: process.Runner, note: Notes) -> dict[str, t.Any]:
    """Return what the files of sysctl.d and of systemd-networkd set at the next boot."""
    files = sysctl.configuration(lambda sentence: note("settings", sentence))
    return boot_model.boot(files, {path: file.text for path, file in Networkd(run).configuration().items()})


def configurations(_run: process.Runner, note: Notes) -> list[dict[str, t.Any]]:
    """Return the CNI configurations in the order in which runtimes read them.

    Names and types only: the rest may contain secrets.
    """
    entries = []
    for path, configuration in cni_backend.configurations().items():
        if configuration.plugins:
            entry = {"path": path, "name": configuration.name, "plugins": list(configuration.plugins)}
            entries.append({**entry, "is_inert": configuration.is_inert})
        elif not configuration.is_inert:
            note(path, "It is not the JSON of a CNI configuration, or has no plugins.")
    return entries


def units(run: process.Runner, note: Notes) -> list[dict[str, t.Any]]:
    """Return the units of this collection. active, sub and result are empty if systemd does not answer."""
    backend = Units(run)
    entries = []
    for name in sorted(backend.named(OWN_UNITS)):
        active = sub = result = ""
        try:
            active, sub, result, _job = backend.state(name)
        except Failure as failure:
            note(name, f"Its state could not be read: {failure}")
        entries.append({"name": name, "is_enabled": backend.is_enabled(name), "active": active, "sub": sub, "result": result})
    return entries


def listeners(_run: process.Runner, _note: Notes) -> list[dict[str, t.Any]]:
    """Return the listening TCP sockets of the node. Raises Failure."""
    return pods_backend.listening(opener=sock_diag.open_socket if pods_backend.has_diagnosis() else None)


def versions(run: process.Runner, note: Notes) -> dict[str, str | None]:
    """Return the versions as the programs print them; None for a program that is not installed, or that is not started."""
    texts: dict[str, str | None] = {"collection": version.COLLECTION, "kernel": os.uname().release}
    for program, module in PROGRAMS.items():
        path, texts[program] = process.find(program), None
        if path and kernel.is_ready(module):
            completed = run([path, "--version"], None)
            texts[program] = completed.stdout.strip() or None
            if completed.rc or not texts[program]:
                note(program, f"{program} --version failed: {completed.stderr.strip() or completed.rc}")
        elif path:
            note(program, f"It was not asked for its version, because that would load the kernel module {module}.")
    return texts


READERS: dict[str, t.Callable[[process.Runner, Notes], t.Any]] = {
    "network_daemons": network_daemons,
    "firewalls": firewalls_of_node,
    "boot": boot,
    "cni": configurations,
    "units": units,
    "policies": policies,
    "listeners": listeners,
    "pod_neighbors": pods_backend.neighbors,
    "counters": counters,
    "versions": versions,
}
