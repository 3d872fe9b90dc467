# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The package that contains nft, and the record that this collection installed it."""

from __future__ import annotations

import typing as t

from .._core.errors import Failure, Refusal, Uncertain
from .._core.plan import Plan, Plane, Step, whole
from .._core.version import Version, of_nft, of_package
from .._files import files
from .._files.managed_files import ManagedFiles, ObservedFiles, text
from .._platform import packages, process
from .._systemd import units
from .._systemd.units import with_reload

PACKAGE = "nftables"
RECORD = "/var/lib/kubenode/nftables-package"
RECORD_TEXT = f"{PACKAGE} was not installed here. kubenode.datapath installed it, and removes it with state=absent.\n"

# Maintainer scripts restart nftables.service after an upgrade (Debian from bookworm, rpm's %systemd_postun_with_restart) and
# stop it before a removal (%systemd_preun). Each time, ExecStop flushes every table of the node. systemd refuses both while
# this drop-in exists. If a run is killed, its dpkg may continue and is still blocked. The drop-in is in /run, so a boot
# removes it.
HOLD = "/run/systemd/system/nftables.service.d/90-kubenode-hold.conf"
HOLD_TEXT = f"""\
# In place only while {PACKAGE} is installed, upgraded or removed, so that the package's scripts do not flush all tables.
[Unit]
RefuseManualStart=yes
RefuseManualStop=yes
"""


class ObservedPackage(t.NamedTuple):
    """path, version: of nft; "" and None if nft is not installed. recorded: the record that this collection installed it.

    says: nft's path and version, or why there is none, as a clause for a message.
    installed, candidate: the package's versions according to the package manager. obstacle: why it cannot be removed.
    These three are read only if the plan needs them.
    hold: the drop-in that keeps nftables.service from being started or stopped. is_managed: True if systemd runs.
    """

    path: str
    version: Version | None
    recorded: ObservedFiles
    hold: ObservedFiles
    is_managed: bool
    installed: str = ""
    candidate: str = ""
    obstacle: str = ""
    says: str = ""


class InstalledPackage:
    """Installs or upgrades nft to ``minimum`` or newer. None removes the package if this collection installed it.

    If nft is new enough, no package manager is started, no matter how nft was installed.

    units_gone: units that the run removes before the package, so that they do not need it.
    """

    name = PACKAGE
    plane = Plane.PERMANENT

    def __init__(
        self,
        manager: packages.Packages,
        backend: files.Files,
        systemd: units.Units,
        run: process.Runner,
        minimum: Version | None,
        units_gone: t.Collection[str] = (),
    ) -> None:
        self.backends = (backend, manager, systemd)
        self._manager = manager
        self._systemd = systemd
        self._run = run
        self._minimum = minimum
        self._units_gone = frozenset(units_gone)
        record, *hold = (text(RECORD, RECORD_TEXT if minimum else None), text(HOLD, HOLD_TEXT), text(HOLD, None))
        instead = "install or remove nftables without this module"
        self._record = ManagedFiles(backend, [record], "state", instead)
        self._hold, self._release = (ManagedFiles(backend, [entry], "state", instead) for entry in hold)
        self._observed: ObservedPackage | None = None

    def observe(self) -> ObservedPackage:
        path = process.find("nft") or ""
        version, says = self._version(path) if path else (None, "nft is not found")
        observed = ObservedPackage(
            path, version, self._record.observe(), self._release.observe(), self._systemd.is_running(), says=says
        )
        if self._minimum is None:
            if observed.recorded.states[RECORD] is not None and (installed := self._manager.installed(PACKAGE)):
                users = ", ".join(sorted(self._systemd.named("kubenode-nft-*.service") - self._units_gone))
                obstacle = f"{users} needs it" if users else self._manager.obstacle(PACKAGE)
                observed = observed._replace(installed=installed, obstacle=obstacle)
        elif not self._is_enough(version):
            installed = self._manager.installed(PACKAGE)
            observed = observed._replace(installed=installed, candidate=self._manager.candidate(PACKAGE))
        self._observed = observed
        return observed

    def _version(self, path: str) -> tuple[Version | None, str]:
        """Return nft's version, None if it prints none, and a clause about it for messages."""
        try:
            version = of_nft(self._run([path, "--version"], None).stdout)
        except Uncertain:
            raise
        except Failure as failure:  # a program that cannot be started is not nft
            return None, str(failure)
        return version, f"{path} is nft {version}" if version else f"{path} prints no nft version"

    def _is_enough(self, version: Version | None) -> bool:
        return version is not None and self._minimum is not None and version >= self._minimum

    def plan(self, observed: ObservedPackage) -> Plan:
        if self._minimum is None:
            return self._plan_absent(observed)
        if self._is_enough(observed.version):
            return Plan(tuple(self._let_go(observed)))
        return self._plan_present(observed, self._minimum)

    def _plan_present(self, observed: ObservedPackage, minimum: Version) -> Plan:
        if self._is_enough(of_package(observed.installed)):
            raise Refusal(
                f"package {PACKAGE} {observed.installed} is installed, but {observed.says}. Nothing was changed."
                f" Remove or replace the nft that comes first in {process.SEARCH_PATH}"
            )
        is_known = self._is_enough(of_package(observed.candidate))
        refresh = Step("refresh the package index", packages.Refresh(PACKAGE, minimum))
        steps = [] if is_known else [refresh]
        if observed.installed:
            back = packages.Downgrade(PACKAGE, observed.installed)
            steps += self._current(observed, [Step(f"upgrade {PACKAGE}", packages.Upgrade(PACKAGE), back)])
        else:
            # The record comes first, so that after a killed run state=absent still removes the package. The undo step comes
            # before the installation, so that an installation that fails halfway is undone.
            way_back = Step(f"begin with {PACKAGE}", undo=packages.Remove(PACKAGE))
            steps += self._record.plan(observed.recorded).steps
            steps += self._current(observed, [way_back, Step(f"install {PACKAGE}", packages.Install(PACKAGE))])
        unknown = f"{minimum} or newer, if the refreshed index has it"
        after = observed.candidate if is_known else unknown
        return Plan(tuple(steps), whole(_version_text(observed.installed), _version_text(after)))

    def _plan_absent(self, observed: ObservedPackage) -> Plan:
        if observed.obstacle:
            return Plan(tuple(self._let_go(observed)))
        steps = self._let_go(observed)
        if observed.installed:
            steps = self._current(observed, [Step(f"remove {PACKAGE}", packages.Remove(PACKAGE), packages.Install(PACKAGE))])
        steps += self._record.plan(observed.recorded).steps
        return Plan(tuple(steps), whole(_version_text(observed.installed)))

    def _current(self, observed: ObservedPackage, work: list[Step]) -> list[Step]:
        """Return the steps ``work``, during which systemd does not start or stop nftables.service.

        The same holds when it is rolled back.
        """
        if not observed.is_managed:
            return work
        holding = self._hold.plan(observed.hold).steps
        releasing = self._release.plan(self._hold.reached(observed.hold)).steps
        return [*with_reload(holding, True), *work, *with_reload(releasing, True)]

    def _let_go(self, observed: ObservedPackage) -> list[Step]:
        """Remove the hold that a killed run left, after the package manager that the run started has ended."""
        release = self._release.plan(observed.hold).steps
        waiting = Step("wait for the package manager", packages.Wait())
        return [waiting, *with_reload(release, True)] if release else []

    def result(self) -> dict[str, str | None]:
        """Return nft's version and path after the run; in check mode, the version that a run would install."""
        observed = self._observed
        if observed is None or (self._minimum is None and observed.installed and not observed.obstacle):
            return {"version": None, "path": None}
        if self._minimum is None or self._is_enough(observed.version):
            return {"version": str(observed.version) if observed.version else None, "path": observed.path or None}
        coming = of_package(observed.candidate)
        return {"version": str(coming) if coming and self._is_enough(coming) else None, "path": None}

    def warnings(self) -> t.Iterator[str]:
        """Yield warnings about a package that stays installed, and, in check mode, about a run whose result is not known."""
        observed = self._observed
        if observed and observed.obstacle:
            yield f"{PACKAGE} is left installed, though this collection installed it: {observed.obstacle}"
        if observed and self._minimum and not self._is_enough(observed.version) and self.result()["version"] is None:
            yield (
                f"The package index on this node has no {PACKAGE} {self._minimum} or newer (it has:"
                f" {observed.candidate or 'none'}). A run refreshes the index first, and fails if it still has no such version."
            )


def _version_text(version: str) -> str:
    return f"{PACKAGE} {version}\n" if version else ""
