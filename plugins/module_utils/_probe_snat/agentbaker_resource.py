# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""AgentBaker's unit, which loads the probe table on AKS node images, and its replacement by the unit of this collection."""

from __future__ import annotations

import typing as t

from .._core.plan import Plan, Plane, Step, whole
from .._files import files, managed_files
from .._nftables.nft_table import Table
from .._systemd import unit_files, units
from .._systemd.units import with_reload
from .probe_table import ProbeSnat

# Azure/AgentBaker, parts/linux/cloud-init/artifacts/ipv6_nftables*, and where vhdbuilder/packer/packer_source.sh copies them.
# Each image has the files. vhdbuilder/packer/install-dependencies.sh enables the unit on Ubuntu and Azure Linux, and not on
# Azure Container Linux.
UNIT = "ipv6_nftables.service"
FILES = (unit_files.path_of(UNIT), "/etc/systemd/system/ipv6_nftables", "/opt/scripts/ipv6_nftables.sh")
TABLE = ProbeSnat()


def loaded_table() -> Table:
    """Return the table as AgentBaker's unit loads it: it translates packets to every destination."""
    return TABLE.table(not_probed=())


def state(backend: files.Files, systemd: units.Units) -> str:
    """Return the state of AgentBaker on this node: "enabled" if its unit is, "disabled" if only its files are there, or else
    "absent"."""
    if systemd.is_enabled(UNIT):
        return "enabled"
    return "disabled" if any(backend.read(path) is not None for path in FILES) else "absent"


class ObservedAgentBaker(t.NamedTuple):
    """drop_in: what is at the drop-in's path. is_managed: systemd runs here. is_enabled, is_active: AgentBaker's unit."""

    drop_in: managed_files.ObservedFiles
    is_managed: bool
    is_enabled: bool
    is_active: bool


class ReplacedUnit:
    """Keeps AgentBaker's unit from loading its table while the unit ``by`` is enabled (``desired``), or no longer does.

    A drop-in makes systemd skip AgentBaker's unit as long as the link that enables ``by`` exists. AgentBaker's files and the
    links that enable its unit are not changed. So at each boot exactly one of the two units loads the table, at whichever step
    a run was killed. The drop-in is also the record of the replacement: it is placed first, and removed last.

    AgentBaker's unit has no ExecStop=, so to stop it changes no table. It is stopped because its script may be about to load
    the table.

    starts: whether to stop the unit, and to start it again if it is enabled.
    """

    plane = Plane.PERMANENT

    def __init__(self, backend: files.Files, systemd: units.Units, by: str, desired: bool, starts: bool) -> None:
        self.name = f"{unit_files.path_of(UNIT)}.d/{by.rpartition('.')[0]}.conf"
        self._backend = backend
        self._systemd = systemd
        self.backends = (backend, systemd)
        self.is_desired = desired
        self._starts = starts
        text = f"[Unit]\nConditionPathExists=!{unit_files.link_of(by)}\n" if desired else None
        entry = managed_files.text(self.name, text)
        self._drop_in = managed_files.ManagedFiles(backend, [entry], "agentbaker", "set agentbaker to report")

    def is_in_force(self) -> bool:
        """Return whether an earlier run has replaced the unit."""
        file = self._backend.read(self.name)
        return isinstance(file, files.Content) and file.text.startswith(managed_files.HEADING)

    def observe(self) -> ObservedAgentBaker:
        return ObservedAgentBaker(
            self._drop_in.observe(), self._systemd.is_running(), self._systemd.is_enabled(UNIT), self._systemd.is_active(UNIT)
        )

    def plan(self, observed: ObservedAgentBaker) -> Plan:
        plan = self._drop_in.plan(observed.drop_in)
        placing = with_reload(plan.steps, observed.is_managed)
        acts = self._starts and observed.is_managed
        if self.is_desired:
            stopping = [Step(f"stop {UNIT}", units.Forget(UNIT), units.Start(UNIT))] if acts and observed.is_active else []
            objects = plan.objects if placing else whole(f"# {UNIT}: active\n", f"# {UNIT}: inactive\n")
            return Plan((*placing, *stopping), objects) if placing or stopping else Plan()
        if placing and acts and observed.is_enabled and not observed.is_active:
            # The link that enables the other unit is gone, so systemd no longer skips this one. If the start fails, systemd
            # repeats it: AgentBaker's unit has Restart=on-failure.
            start = Step(f"start {UNIT}", units.Start(UNIT), units.Forget(UNIT), is_optional=True)
            return plan._replace(steps=(start, *placing))
        return plan._replace(steps=placing)
