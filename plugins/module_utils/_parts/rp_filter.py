# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The parts of the module rp_filter."""

from __future__ import annotations

import typing as t
from functools import partial

from .._boot import boot_files
from .._core import names
from .._core.option import Option, Options
from .._core.parts import CHECKPOINT, TWO_PLANES, Effects, Parts, Request
from .._core.plan import Guard, Outcome, Resource
from .._files import managed_files
from .._files.files import Files
from .._files.folder_guards import roots_folders
from .._platform import kernel
from .._platform.sysctl import Sysctl, configuration
from .._profiles import ownership_backend
from .._profiles.ownership import unowned
from .._rp_filter import reverse_path_guards
from .._rp_filter.live_reverse_path import RECORDS, LiveReversePath
from .._rp_filter.reverse_path import (
    HEADING,
    MODES,
    RP_FILTER,
    DesiredFilter,
    sysctl_text,
)

OPTIONS: Options = {
    **TWO_PLANES,
    **CHECKPOINT,
    "interfaces": Option("list", elements="str", is_words=True),
    "mode": Option("str", choices=(*MODES,)),
    "raise_all": Option("bool", False),
    "path": Option("path", "/etc/sysctl.d/90-kubenode-rp-filter.conf"),
}
# Of systemd-sysctl, which reads lines of settings and executes nothing.
SYSCTL_FOLDERS = ("/etc/sysctl.d",)


def announced(request: Request) -> Effects:
    """Return the effects that the modules before this one must know, too."""
    return Effects(loosens=not (request.is_present and request.params["mode"] == "strict"))


def parts(request: Request) -> Parts:
    path = names.boot_path(request.params["path"], request.is_present, beside=SYSCTL_FOLDERS)
    desired = DesiredFilter.from_options(request.params) if request.is_present else None
    backend, files = Sysctl(), Files()
    # In another root, the kernel's links belong to the builder, not to the node.
    links = backend.links() if kernel.is_own_root() else {}
    texts = configuration(request.warn)
    other_files = {name: text for name, text in texts.items() if name != path}
    text = sysctl_text(desired, links, other_files) if desired else None

    placed = managed_files.ManagedFiles(files, [managed_files.text(path, text, begins=HEADING)])
    changing = placed if request.params["permanent"] else None
    live = LiveReversePath(backend, files, desired, path, configuration=texts, file=changing)
    resources: list[Resource] = [live, placed] if desired else [placed, live]
    if links and not request.params["immediate"]:
        resources.insert(0, boot_files.BootRecord(live, placed))
    chosen: list[Guard] = [partial(reverse_path_guards.unreadable_record, files, RECORDS[RP_FILTER])] if links else []
    if desired and request.is_alone:
        chosen.append(partial(unowned, ownership_backend.read(files), "rp_filter", request.params))
    if desired and links:
        later = path if request.params["permanent"] else None
        chosen.append(partial(reverse_path_guards.missing_links, desired, links, later, request.params["immediate"]))
    if desired and text and request.params["permanent"]:
        chosen.append(partial(roots_folders, path))
        chosen.append(partial(reverse_path_guards.boot_order, desired, path, {**other_files, path: text}))

    def report(outcome: Outcome) -> dict[str, t.Any]:
        interfaces = outcome.report(live)
        if interfaces is None:  # the running kernel is not managed: before and after are the same
            settings = live.observe().settings if links else None
            interfaces = live.report(settings, settings) if settings else {}
        return {"interfaces": interfaces}

    return Parts(resources, chosen, report)
