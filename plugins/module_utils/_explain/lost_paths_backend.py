# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which paths of a node packets passed in an earlier snapshot, and pass no more."""

from __future__ import annotations

import contextlib
import typing as t

from .._audit import audit_backend, path_checks, sweep_backend
from .._audit.suspicion import Unobserved
from .._audit.sweep_backend import ARRIVES, IS_LOST
from .._core.errors import Invalid
from .._platform import process
from .._snapshot import values
from .._snapshot.values import Entry
from .._trace import entrance
from .._trace.packet import Packet, from_options
from .._twin import snapshot_form
from .._twin.work_backend import Work

MOST = 8  # paths, each lost for another reason


def since(before: Entry, after: Entry, assume: t.Mapping[str, t.Any], run: process.Runner) -> list[Packet]:
    """Return a packet for each reason for which paths are lost, which all packets passed before. Raises DatapathError."""
    for snapshot in (before, after):
        snapshot_form.check(snapshot)
    links = {link.name for link in values.links(after)}
    sent = {packet: missed for packet, missed in _sent(before) if not packet.interface or packet.interface in links}
    assume = {**audit_backend.ASSUMED, **assume}
    work = Work()
    old = sweep_backend.fates(before, [*sent.items()], assume, run, False, work)
    passing = [packet for packet, fate in zip(sent, old) if fate.outcome == ARRIVES]
    new = sweep_backend.fates(after, [(packet, None) for packet in passing], assume, run, False, work)
    lost: dict[str, Packet] = {}
    for packet, fate in zip(passing, new):
        if fate.outcome == IS_LOST:
            lost.setdefault(fate.decider, packet)
    return [*lost.values()][:MOST]


def _sent(before: Entry) -> t.Iterator[sweep_backend.Sent]:
    paths = path_checks.paths.look(audit_backend.Audit(before, ()).node)
    with contextlib.suppress(Unobserved):  # the paths before it are known
        for trial in (path.trial for path in paths if path.trial):
            with contextlib.suppress(Invalid):  # of an end that the snapshot does not show
                yield entrance.placed(from_options(trial.packet), before), trial.missed
