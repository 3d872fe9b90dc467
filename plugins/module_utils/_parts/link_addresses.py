# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The parts of the module link_addresses."""

from __future__ import annotations

from functools import partial

from .._boot.boot_files import BootRecord
from .._core.errors import Invalid
from .._core.option import Option, Options, texts
from .._core.parts import CHECKPOINT, TWO_PLANES, Parts, Request
from .._core.plan import Guard, Resource
from .._files.files import Files
from .._files.folder_guards import roots_folders
from .._interfaces import address_unit, link_address
from .._interfaces.boot_link_addresses import BootLinkAddresses
from .._interfaces.link_backend import LinkMessages
from .._interfaces.live_link_addresses import (
    Changes,
    LiveLinkAddresses,
)
from .._kubelet import kubelet_units
from .._kubelet.kubelet_guards import kubelet_starters
from .._network_daemons.daemon_guards import links_of_networkd
from .._network_daemons.daemons_backend import Networkd
from .._platform import kernel
from .._systemd.unit_files import path_of
from .._systemd.units import Units

OPTIONS: Options = {
    **TWO_PLANES,
    **CHECKPOINT,
    **kubelet_units.OPTIONS,
    "addresses": Option("list", elements="dict", entries=texts("dev", "address")),
}

LONG_LISTS = ("addresses",)


def parts(request: Request) -> Parts:
    entries = request.entries("addresses")
    if entries is None and request.is_present:
        raise Invalid("addresses", entries, "given where state is present")
    listed = None if entries is None else link_address.from_options(entries)

    files = Files()
    units, before = Units(request.run), kubelet_units.others(request.params["before"])
    boot = BootLinkAddresses(files, units, before)
    gone = boot.addresses() if listed is None else listed
    desired = listed or () if request.is_present else [address for address in boot.addresses() if address not in gone]
    placed = boot.resources(list(desired))
    live = LiveLinkAddresses(LinkMessages(), files, boot, listed, request.is_present)
    resources: list[Resource] = [live, *placed]
    if kernel.is_own_root() and not request.params["immediate"]:
        resources.insert(0, BootRecord(live, *placed))
    guards: list[Guard] = []
    if request.is_present and request.params["immediate"]:
        guards.append(partial(links_of_networkd, Networkd(request.run), live.links))
    if desired and request.params["permanent"]:
        names = sorted({address_unit.name(address.dev) for address in desired})
        guards += [partial(roots_folders, path_of(names[0]))] if request.is_present else []
        guards.append(partial(kubelet_starters, units, names, before))
    return Parts(resources, guards, lambda outcome: {"addresses": (outcome.report(live) or Changes()).report()})
