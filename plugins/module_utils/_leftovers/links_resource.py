# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Links and addresses that certainly are azure-vnet's: removes and restores them."""

from __future__ import annotations

import itertools
import typing as t

from .._core.plan import Backend, Plan, Plane, Step, whole
from .._files import files
from .._interfaces.link_backend import Apply, LinkMessages, Restore
from .._interfaces.link_message import Message, Scene
from .._platform import kernel, process
from .._platform.sysctl import Sysctl, Write
from . import azure_leftovers, bridge, removed_link
from .backup_resource import BackupFile, Backups, Look, ObservedBackup
from .leftover import ADDRESS, CHAIN, LINK, RULE, Leftover, findings
from .links_backup import Run
from .removed_link import Gateway, RemovedLink

NAME = "azure-vnet's links and addresses"


class ObservedLinks(t.NamedTuple):
    """settings: those of azSnatbr, keys below /proc/sys with their values."""

    node: Look
    scene: Scene
    settings: tuple[tuple[str, int], ...]
    backup: ObservedBackup
    boot: str


class LinkLeftovers:
    """Ensures that the node has no such links and addresses. Removed ones are kept in a backup. The plan's report is Findings."""

    name = NAME
    plane = Plane.IMMEDIATE

    def __init__(self, run: process.Runner, backend: files.Files, backups: Backups) -> None:
        self._run = run
        self._backups = backups
        self._links = LinkMessages()
        self._sysctl = Sysctl()
        self.backends: t.Sequence[Backend] = (self._links, self._sysctl, backend)

    def observe(self) -> ObservedLinks:
        node = self._backups.look(self._run)
        scene = self._links.scene() if node.facts else Scene()
        settings = self._sysctl.existing(bridge.settings_of(azure_leftovers.NAT_BRIDGE))
        return ObservedLinks(node, scene, settings, self._backups.links.observe(), kernel.boot_identity())

    def plan(self, observed: ObservedLinks) -> Plan:
        facts = observed.node.facts
        leftovers = azure_leftovers.find(facts) if facts else ()
        links = [leftover for leftover in leftovers if leftover.kind not in (RULE, CHAIN)]
        report = findings(links, observed.node.troubles)
        run = _run(observed, report.removed)
        if not (run.links or run.gateways):
            return Plan(report=report)
        numbers = {link.name: link.number for link in observed.scene.links}
        steps = [
            *self._backups.links.steps(observed.backup, (*observed.backup.runs, run)),
            *(Step(f"set {key}", None, Write(key, value)) for link in run.links for key, value in link.settings),
            *(_ending(gateway, removed_link.addition(gateway, numbers)) for gateway in run.gateways),
            # A veth pair before the bridge that it is in: an undo creates the bridge first.
            *(
                Step(
                    f"remove {link.name}",
                    Apply((removed_link.deletion(link, numbers),)),
                    Restore(removed_link.creation(link, numbers)),
                )
                for link in run.links[::-1]
            ),
        ]
        return Plan(tuple(steps), whole(_shown(run.links, run.gateways)), report)


def _run(observed: ObservedLinks, certain: t.Collection[Leftover]) -> Run:
    going = [leftover.text for leftover in certain if leftover.kind == LINK]
    scene = observed.scene
    near, far = azure_leftovers.NAT_LINKS
    kinds = (azure_leftovers.NAT_BRIDGE, "", observed.settings), (near, far, ())
    removed = [
        removed_link.removed(scene, name, peer, {*going, far}, settings) for name, peer, settings in kinds if name in going
    ]
    gateways = [
        removed_link.gateway(scene, leftover.place.partition(" ")[2], leftover.text)
        for leftover in certain
        if leftover.kind == ADDRESS
    ]
    return Run(tuple(removed), tuple(gateways), observed.boot)


class ObservedLinksRestoration(t.NamedTuple):
    """settings: the current values of the settings in the backup; None where the link is gone."""

    scene: Scene
    settings: t.Mapping[str, int | None]
    backup: ObservedBackup
    boot: str


class Back(t.NamedTuple):
    """The objects that a plan restores. differences: those that are not restored, and why. left: the runs that stay in the
    backup."""

    links: tuple[RemovedLink, ...] = ()
    gateways: tuple[Gateway, ...] = ()
    differences: tuple[str, ...] = ()
    left: tuple[Run, ...] = ()


class RestoredLinks:
    """Ensures that the links and addresses that runs of this boot removed exist again. The boot has removed those of earlier
    runs.

    A link or address stays in the backup if another link has the address now, or if the address's link is gone. The plan's
    report is Back.
    """

    name = NAME
    plane = Plane.IMMEDIATE

    def __init__(self, backend: files.Files, kept: BackupFile) -> None:
        self._links = LinkMessages()
        self._sysctl = Sysctl()
        self._backup = kept
        self.backends: t.Sequence[Backend] = (self._links, self._sysctl, backend)

    def observe(self) -> ObservedLinksRestoration:
        kept = self._backup.observe()
        keys = [key for run in kept.runs for link in run.links for key, _value in link.settings]
        settings = {key: self._sysctl.read(key) for key in keys}
        return ObservedLinksRestoration(self._links.scene() if kept.runs else Scene(), settings, kept, kernel.boot_identity())

    def plan(self, observed: ObservedLinksRestoration) -> Plan:
        back = _back(observed)
        numbers = _numbers(observed.scene, back.links)
        steps = [
            *(
                _creation(link.name, messages)
                for link in back.links
                if (messages := removed_link.creation(link, numbers, observed.scene))
            ),
            *(Step(f"set {key}", Write(key, value)) for link in back.links for key, value in link.settings),
            *(
                _creation(f"{gateway.address} on {gateway.link}", removed_link.addition(gateway, numbers))
                for gateway in back.gateways
            ),
            *self._backup.steps(observed.backup, back.left),
        ]
        return Plan(tuple(steps), whole(after=_shown(back.links, back.gateways)), back)


def _back(observed: ObservedLinksRestoration) -> Back:
    runs = [run for run in observed.backup.runs if run.boot == observed.boot]
    ended = ["the links and addresses of a clean-up before this boot, which the boot has removed"]
    differences = ended * (len(observed.backup.runs) - len(runs))
    existing = {link.name: link for link in observed.scene.links}
    numbers = {name: link.number for name, link in existing.items()}
    there = {*existing}
    names = {link.number: link.name for link in observed.scene.links}
    holders = {str(address).partition("/")[0]: names[address.link] for address in observed.scene.addresses}
    back: list[RemovedLink] = []
    gateways: list[Gateway] = []
    left: list[Run] = []
    for run in runs:
        barred = Run((), (), run.boot)
        for link in run.links:
            addresses = [address.partition("/")[0] for address, _flags in link.addresses]
            held = [address for address in addresses if holders.get(address, link.name) != link.name]
            if any(restored.name == link.name for restored in back):
                continue  # the oldest run has its former state
            if all(end.name in existing and removed_link.is_of(link, existing[end.name]) for end in link.ends):
                # A killed run has not removed it, or not restored all of it.
                is_whole = all(observed.settings[key] == value for key, value in link.settings)
                is_whole = is_whole and not removed_link.creation(link, numbers, observed.scene)
                back += [] if is_whole or held else [link]
            elif there & {end.name for end in link.ends}:
                differences.append(f"link {link.name} exists already")
            elif held:
                differences.append(f"link {link.name}: {holders[held[0]]} has its address {held[0]} now")
                barred = barred._replace(links=(*barred.links, link))
            else:
                back.append(link)
                there |= {end.name for end in link.ends}
        for gateway in run.gateways:
            holder = holders.get(gateway.address.partition("/")[0], "")
            if holder == gateway.link:
                continue
            if holder or gateway.link not in there:
                why = f"{holder} has it now" if holder else f"there is no link {gateway.link}"
                differences.append(f"address {gateway.address} of {gateway.link}: {why}")
                barred = barred._replace(gateways=(*barred.gateways, gateway))
            else:
                gateways.append(gateway)
        left += [barred] if barred.links or barred.gateways else []
    return Back(tuple(back), tuple(dict.fromkeys(gateways)), tuple(differences), tuple(left))


def _numbers(scene: Scene, created: t.Iterable[RemovedLink]) -> dict[str, int]:
    """Return the index of each link by its name. A link gets its former index, or a new one if another link has that now."""
    numbers = {link.name: link.number for link in scene.links}
    ends = [end for link in created for end in link.ends if end.name not in numbers]
    free = itertools.count(max([*numbers.values(), *(end.number for end in ends)], default=0) + 1)
    for end in ends:
        numbers[end.name] = next(free) if end.number in numbers.values() else end.number
    return numbers


def reported(back: Back) -> list[dict[str, str]]:
    """Return the restored objects, as the module returns them."""
    return [
        *({"kind": LINK, "place": "links", "text": link.name} for link in back.links),
        *({"kind": ADDRESS, "place": f"link {gateway.link}", "text": gateway.address} for gateway in back.gateways),
    ]


def _creation(what: str, messages: tuple[Message, ...]) -> Step:
    return Step(f"restore {what}", Apply(messages), Apply(messages).inverse())


def _ending(gateway: Gateway, messages: tuple[Message, ...]) -> Step:
    removal = Apply(tuple(message.inverse() for message in messages))
    return Step(f"remove {gateway.address} from {gateway.link}", removal, removal.inverse())


def _shown(removed: t.Iterable[RemovedLink], gateways: t.Iterable[Gateway]) -> str:
    lines = []
    for link in removed:
        lines.append(f"ip link {link.name}" + (f" peer {link.ends[1].name}" if len(link.ends) > 1 else " type bridge"))
        lines += [f"ip address {address} dev {link.name}" for address, _flags in link.addresses]
        lines += [f"ip neigh {address} dev {link.name} lladdr {mac}" for address, mac in link.neighbours]
    lines += [f"ip address {gateway.address} dev {gateway.link}" for gateway in gateways]
    return "".join(f"{line}\n" for line in lines)
