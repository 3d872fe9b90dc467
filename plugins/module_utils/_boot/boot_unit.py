# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""The systemd units of this collection: at boot they load tables, rules and routes, and addresses."""

from __future__ import annotations

import re
import typing as t


class BootCondition(t.NamedTuple):
    """What a unit checks before it loads its table.

    kind: "imds" or "address", see ``_nftables/ipv6_program.py``. python, program: the paths of the interpreter and of the boot
    program.
    """

    kind: str
    interface: str
    python: str
    program: str


class BootUnit(t.NamedTuple):
    """A unit file with its ``name`` and ``text``; ``wanted_by`` is the target or device that starts the unit.

    drop_in: the text of a drop-in for the unit ``beside``; empty for none.
    rehearsal: the command that rehearses the unit's program; empty if it has none.
    """

    name: str
    text: str
    drop_in: str = ""
    beside: str = "nftables.service"
    wanted_by: str = "multi-user.target"
    rehearsal: tuple[str, ...] = ()


# -I ignores the environment and the user's packages, -S the node's packages; -B writes no compiled files.
ISOLATED = ("-I", "-S", "-B")
REHEARSE = "rehearse"  # a boot program's first argument for: try what is needed, and change nothing
# Seconds that a boot program has to find out whether the node has IPv6. kubelet waits for it that long at most.
DEADLINES = {"imds": 60, "address": 30}
NO = 77  # the boot program's exit status on a node without IPv6; no shell and no Python exits with it by itself
LACKS_LIBRARY = 76  # the exit status of a rehearsal if a library that the program needs is missing


def loading_table(family: str, table: str, path: str, condition: BootCondition | None = None) -> BootUnit:
    """The unit that loads ``path`` before kubelet starts. Stopping the unit removes this table alone.

    With default dependencies the unit would come after sysinit.target. On Ubuntu that comes after the network (cloud-init) and so
    after network-pre.target: a cycle. nftables.service, if an operator uses it, flushes every table when it starts, stops and
    reloads. The drop-in for nftables.service loads this table again after each of these, if this unit is active. This unit
    cannot ask for that itself: PartOf= and the like do not reach a unit that is already active when the other one starts.

    condition: decides at each boot whether to load; it needs the network. If it cannot decide, the unit fails. kubelet then
        starts, and systemd tries the unit again.
    """
    text = f"""\
[Unit]
Description=nftables table {family} {table} of kubenode.datapath
DefaultDependencies=no
{_ordering(condition)}
Conflicts=shutdown.target

[Service]
Type=oneshot
RemainAfterExit=yes
TimeoutStartSec=90
{_asking(condition)}ExecStart=nft -f {path}
ExecReload=nft -f {path}
ExecStop=-nft delete table {family} {table}

[Install]
WantedBy=multi-user.target
"""
    name = f"kubenode-nft-{family}-{table}.service"
    anew = f"-systemctl --no-block try-reload-or-restart {name}"
    drop_in = f"[Service]\nExecStartPost={anew}\nExecReload={anew}\nExecStopPost={anew}\n"
    rehearsal = (condition.python, *ISOLATED, condition.program, REHEARSE, *_question(condition)) if condition else ()
    return BootUnit(name, text, drop_in, rehearsal=rehearsal)


def interpreter(text: str) -> str:
    """The Python that a unit of this collection runs; empty if it runs none. text: of the unit file."""
    found = re.search(rf"^Exec(?:Condition|Start)=.*?(\S+) {' '.join(ISOLATED)} ", text, re.MULTILINE)
    return found[1] if found else ""


def loaded_path(text: str) -> str:
    """The file that a unit of this collection loads; empty if the text is not that of such a unit."""
    found = re.search(r"^ExecStart=(?:nft -f|\S+ -I -S -B \S+ \d+) (\S+)", text, re.MULTILINE)
    return found[1] if found else ""


def _ordering(condition: BootCondition | None) -> str:
    if condition is None:
        return """\
After=local-fs.target systemd-modules-load.service nftables.service
Wants=network-pre.target
Before=network-pre.target kubelet.service shutdown.target"""
    return """\
After=local-fs.target systemd-modules-load.service nftables.service network.target
Before=kubelet.service shutdown.target"""


def _asking(condition: BootCondition | None) -> str:
    """The lines that run the condition's program. Only its exit status NO may skip the unit.

    systemd skips a unit for each exit status of ExecCondition= from 1 to 254. That includes statuses from before the program
    runs: 203 of systemd itself if the interpreter is missing, 127 of the loader, 1 and 2 of a Python that cannot start or does
    not find the program. So a shell script runs the command, and turns each other status into 255, which fails the unit. The
    script is the same in all units: the command is passed as arguments, which the shell neither splits nor expands. systemd
    itself cannot map one status to another (SuccessExitStatus= does not apply to ExecCondition=), and neither ExecStartPre= nor
    ExecStart= can skip a unit.
    """
    if condition is None:
        return ""
    command = " ".join((condition.python, *ISOLATED, condition.program, *_question(condition)))
    script = f'"$$@"; status=$$?; case $$status in 0|{NO}) exit $$status;; esac; exit 255'
    return f"""\
ExecCondition=/bin/sh -c '{script}' sh {command}
Restart=on-failure
RestartSec=10
"""


def _question(condition: BootCondition) -> tuple[str, ...]:
    return condition.kind, condition.interface, str(DEADLINES[condition.kind])


def routes_unit(protocol: int) -> str:
    """The name of the unit that loads the rules and routes of a protocol."""
    return f"kubenode-policy-routes-{protocol}.service"


def loading_routes(protocol: int, path: str, python: str, program: str, digest: str = "") -> BootUnit:
    """The unit that loads the rules and routes of ``path`` before kubelet starts, then stays and restores those that are lost.

    It is ready once everything is loaded that can be: it waits for the network, and not for further links. It removes nothing
    when it stops, because pods would lose their routes.

    digest: the program's SHA-256. A new program changes the unit's text, and so the unit is restarted.

    systemd restarts the unit without a limit, one second after each exit. The program itself delays its exit after a failure.
    """
    text = f"""\
[Unit]
Description=Policy routes of protocol {protocol} of kubenode.datapath
Wants=network-online.target
After=network-online.target
Before=kubelet.service
StartLimitIntervalSec=0

[Service]
Type=notify
# SHA-256 {digest}
ExecStart={python} {" ".join(ISOLATED)} {program} {protocol} {path}
Restart=always
RestartSec=1

[Install]
WantedBy=multi-user.target
"""
    rehearsal = (python, *ISOLATED, program, REHEARSE, str(protocol), path)
    return BootUnit(routes_unit(protocol), text, rehearsal=rehearsal)


ADDRESSES = "kubenode-addresses-"


def addresses_unit(link: str) -> str:
    """The name of the unit that gives a link its addresses."""
    return f"{ADDRESSES}{_escaped(link)}.service"


def addresses_link(unit: str) -> str:
    """The link to which such a unit gives addresses."""
    name = unit[len(ADDRESSES) : -len(".service")]
    return re.sub(r"\\x([0-9a-f]{2})", lambda found: chr(int(found[1], 16)), name)


def adding_addresses(link: str, addresses: t.Iterable[str]) -> BootUnit:
    """The unit that gives a link its addresses whenever the link appears, at boot and later.

    The link's device unit starts and stops it. An address that the link already has is left as it is: ``ip address add`` then
    fails, and ``-`` makes systemd ignore the failure. kubelet does not wait for a link that is not plugged in.

    addresses: each with the words that ip(8) takes after ``ip address add``.
    """
    device = f"sys-subsystem-net-devices-{_escaped(link)}.device"
    commands = "\n".join(f"ExecStart=-ip address add {address}" for address in addresses)
    text = f"""\
[Unit]
Description=Addresses of {link} of kubenode.datapath
BindsTo={device}
After={device}
Before=kubelet.service

[Service]
Type=oneshot
RemainAfterExit=yes
{commands}

[Install]
WantedBy={device}
"""
    return BootUnit(addresses_unit(link), text, wanted_by=device)


def added_addresses(text: str) -> list[str]:
    """The addresses of such a unit, as adding_addresses() takes them."""
    return re.findall(r"^ExecStart=-ip address add (.*)$", text, re.MULTILINE)


def _escaped(link: str) -> str:
    """A link's name, escaped for the name of a unit as by systemd-escape(1)."""
    return re.sub(r"[^A-Za-z0-9:_.]", lambda found: f"\\x{ord(found[0]):02x}", link)
