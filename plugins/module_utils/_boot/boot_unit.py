# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""The systemd units that load at boot what is ours."""

from __future__ import annotations

import re
import typing as t


class BootCondition(t.NamedTuple):
    """What a unit asks before it loads.

    kind: "imds" or "address", see the boot program.
    """

    kind: str
    interface: str
    python: str
    program: str


class BootUnit(t.NamedTuple):
    """A unit's file ``name`` and its ``text``; ``wanted_by`` is the target that starts it.

    drop_in: what the unit adds to the unit ``beside`` it; empty for nothing.
    rehearsal: the command by which its program, if it has one, is rehearsed.
    """

    name: str
    text: str
    drop_in: str = ""
    beside: str = "nftables.service"
    wanted_by: str = "multi-user.target"
    rehearsal: tuple[str, ...] = ()


# -I keeps the environment and the user's packages out of it, -S the node's, -B leaves no compiled files.
ISOLATED = ("-I", "-S", "-B")
REHEARSE = "rehearse"  # the first argument of a boot program that is to try what it needs, and to change nothing
# Seconds that a unit's boot program has to learn whether the node has IPv6. kubelet waits for it that long at the most.
DEADLINES = {"imds": 60, "address": 30}
NO = 77  # the boot program's exit status for a node without IPv6; no shell and no Python ends so by itself
LACKS_LIBRARY = 76  # and that of a rehearsal which finds no library that the program needs


def loading_table(family: str, table: str, path: str, condition: BootCondition | None = None) -> BootUnit:
    """The unit that loads ``path`` before kubelet is up; stopping it removes this table alone.

    Default dependencies would order it after sysinit.target, which on Ubuntu comes after the network (cloud-init) and so
    after network-pre.target: a cycle. nftables.service, where an operator uses it, flushes every table when it starts,
    stops and reloads. Its drop-in has the table loaded anew after each of these, where this unit is active; a unit can not
    ask for that by itself, as PartOf= and its like do not reach one that is active when the other is started.

    condition: what decides at each boot whether to load; it needs the network. Where it can not tell, the unit fails, so
        that kubelet goes on, and is tried again.
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
    """The Python that a unit of ours runs; empty where it runs none."""
    found = re.search(rf"^Exec(?:Condition|Start)=.*?(\S+) {' '.join(ISOLATED)} ", text, re.MULTILINE)
    return found[1] if found else ""


def loaded_path(text: str) -> str:
    """The file that a unit of ours loads; empty where the text is no such unit's."""
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
    """Only the program's own NO may say "skip", but systemd takes each status from 1 to 254 for it.

    That includes what comes before the program has a say: 203 of systemd itself for an interpreter that has gone, 127 of the
    loader, 1 and 2 of a Python that can not start or finds no program. So something else has to stand between, which fails
    the unit by 255. A shell does it, with a script that is the same in all units: the command comes as its arguments, which
    it neither splits nor expands. Nothing in systemd turns a status into another (SuccessExitStatus= does not reach
    ExecCondition=), and from ExecStartPre= and ExecStart= there is no way to skip a unit.
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
    """The unit that loads the rules and routes of ``path`` before kubelet is up, and stays to restore what is lost of them.

    It is ready once it has loaded what can be: it waits for the network, and for no link beyond. It takes nothing away when
    it stops: pods would lose their way.

    digest: of the program, so that the unit of another program is another one, which is started anew.

    systemd starts it again for ever, a second after each end; the program slows down those that follow a failure.
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
    """The link that such a unit is for."""
    name = unit[len(ADDRESSES) : -len(".service")]
    return re.sub(r"\\x([0-9a-f]{2})", lambda found: chr(int(found[1], 16)), name)


def adding_addresses(link: str, addresses: t.Iterable[str]) -> BootUnit:
    """The unit that gives a link its addresses whenever the link appears, at boot as after that.

    The link's device brings it, and takes it along. An address that is there already, whoever has added it, is left as it is:
    ``add`` is refused then, which ``-`` has systemd not mind. kubelet does not wait for a link that is not plugged in.

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
    """What such a unit adds, as it was told."""
    return re.findall(r"^ExecStart=-ip address add (.*)$", text, re.MULTILINE)


def _escaped(link: str) -> str:
    """A link's name within a unit's, as systemd-escape(1) does it."""
    return re.sub(r"[^A-Za-z0-9:_.]", lambda found: f"\\x{ord(found[0]):02x}", link)
