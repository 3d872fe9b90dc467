# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The package, its record and the service's mask in the loop; versions; and the command lines of each package manager."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._core import converge as loop
from ansible_collections.kubenode.datapath.plugins.module_utils._core import version
from ansible_collections.kubenode.datapath.plugins.module_utils._core.converge import converge
from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Failure, Invalid, Refusal, Uncertain
from ansible_collections.kubenode.datapath.plugins.module_utils._core.plan import Outcome, Plane
from ansible_collections.kubenode.datapath.plugins.module_utils._files import files
from ansible_collections.kubenode.datapath.plugins.module_utils._nftables import package_resource
from ansible_collections.kubenode.datapath.plugins.module_utils._nftables.package_resource import HOLD, RECORD
from ansible_collections.kubenode.datapath.plugins.module_utils._platform import packages
from ansible_collections.kubenode.datapath.plugins.module_utils._systemd.unit_resource import MaskedUnit, harmless, state_of
from unit.fakes import FakePackages, FakeUnits, RootedFiles, Script

UNIT = "nftables.service"
MASK = f"/etc/systemd/system/{UNIT}"
OLD, NEW = "1.0.6-2+deb12u2", "1.1.3-1"


class Node:
    """A root with the folders that every node has, and the backends on it."""

    def __init__(self, root: Path, manager: FakePackages, is_running: bool = True) -> None:
        for folder in ("etc/systemd/system", "run/systemd/system", "run/systemd/units", "var/lib"):
            (root / folder).mkdir(parents=True)
        self.root = root
        self.manager = manager
        self.files = RootedFiles(root)
        self.units = FakeUnits(root, is_running)

    def package(self, minimum: str | None = "0.9.8") -> package_resource.InstalledPackage:
        desired = version.wanted("minimum_version", minimum) if minimum else None
        return package_resource.InstalledPackage(
            t.cast(packages.Packages, self.manager), self.files, t.cast(t.Any, self.units), self.manager.nft, desired
        )

    def mask(self, desired: bool) -> MaskedUnit:
        return MaskedUnit(self.files, t.cast(t.Any, self.units), UNIT, desired)

    def run(self, resource: t.Any, check: bool = False) -> Outcome:
        return converge([resource], {Plane.PERMANENT}, check=check)

    def tree(self) -> list[str]:
        return sorted(str(path.relative_to(self.root)) for path in self.root.rglob("*"))


@pytest.fixture
def manager(monkeypatch: pytest.MonkeyPatch) -> FakePackages:
    """A node's package manager; nft is installed if its package is."""
    fake = FakePackages({"nftables": OLD})
    monkeypatch.setattr(package_resource.process, "find", lambda name: "/usr/sbin/nft" if "nftables" in fake.packages else None)
    return fake


@pytest.fixture
def node(tmp_path: Path, manager: FakePackages) -> Node:
    return Node(tmp_path, manager)


def four_steps(node: Node, make: t.Callable[[], t.Any]) -> Outcome:
    """Checked, run, checked again, run again. Returns the outcome of the first run."""
    before = node.tree(), dict(node.manager.packages)
    predicted = node.run(make(), check=True)
    assert predicted.changed
    assert (node.tree(), node.manager.packages) == before
    result = node.run(make())
    assert result.changed
    assert result.diff() == predicted.diff()
    count = len(node.manager.performed)
    assert not node.run(make(), check=True).changed
    assert not node.run(make()).changed
    assert len(node.manager.performed) == count
    return result


# The package


def test_create_modify_delete_delete_again(node: Node) -> None:
    before = node.tree()
    assert four_steps(node, node.package).diff()[0]["after"] == f"nftables {OLD}\n"
    assert node.files.read(RECORD)
    node.manager.mirror = node.manager.index = {"nftables": NEW}
    (entry,) = four_steps(node, lambda: node.package("1.1")).diff()
    assert (entry["before"], entry["after"]) == (f"nftables {OLD}\n", f"nftables {NEW}\n")
    four_steps(node, lambda: node.package(None))
    assert node.tree() == before
    assert not node.run(node.package(None)).changed


def test_what_was_there_before_is_not_ours_to_remove_even_when_we_upgraded_it(node: Node) -> None:
    node.manager.packages = {"nftables": "0.9.3-2"}
    four_steps(node, node.package)
    assert node.files.read(RECORD) is None
    assert not node.run(node.package(None)).changed
    assert node.manager.packages == {"nftables": OLD}


def unstartable(argv: t.Sequence[str], stdin: str | None = None) -> t.NoReturn:
    raise Failure(f"{argv[0]} cannot be started: Exec format error")


def test_an_nft_that_cannot_be_started_is_told_and_stops_no_absent(node: Node) -> None:
    node.run(node.package())
    node.manager.nft = unstartable  # type: ignore[method-assign]
    with pytest.raises(Refusal, match="nftables .* is installed, but /usr/sbin/nft cannot be started: Exec format error"):
        node.run(node.package(), check=True)
    assert node.run(node.package(None)).changed
    assert "nftables" not in node.manager.packages


def test_what_others_need_by_now_stays_and_is_told(node: Node) -> None:
    node.run(node.package())
    node.manager.dependants = ["firewalld"]
    package = node.package(None)
    assert not node.run(package).changed
    assert list(package.warnings()) == [
        "nftables is left installed, though this collection installed it: firewalld depends on nftables"
    ]
    assert package.result() == {"version": "1.0.6", "path": "/usr/sbin/nft"}
    node.manager.dependants = []
    assert node.run(node.package(None)).changed


@pytest.mark.parametrize("index", [{}, {"nftables": "0.9.3-2"}], ids=["no package", "too old"])
def test_an_index_that_does_not_do_is_refreshed_once_and_check_mode_says_so(node: Node, index: dict[str, str]) -> None:
    node.manager.index = index
    package = node.package()
    (entry,) = node.run(package, check=True).diff()
    assert entry["after"] == "nftables 0.9.8 or newer, if the refreshed index has it\n"
    assert package.result() == {"version": None, "path": None}
    assert "A run refreshes the index first" in next(iter(package.warnings()))
    package = node.package()
    assert node.run(package).diff() == [entry]
    assert package.result() == {"version": "1.0.6", "path": "/usr/sbin/nft"}
    assert not list(package.warnings())
    assert sum(isinstance(result, packages.Refresh) for result in node.manager.performed) == 1


def test_check_mode_knows_the_version_from_the_index(node: Node) -> None:
    package = node.package()
    node.run(package, check=True)
    assert package.result() == {"version": "1.0.6", "path": None}


def test_no_sufficient_version_changes_nothing(node: Node) -> None:
    before = node.tree()
    with pytest.raises(Failure, match=r"minimum_version is 2\.0, .* Nothing was changed"):
        node.run(node.package("2.0"))
    assert node.tree() == before


def test_a_foreign_nft_that_hides_the_package_is_refused(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.manager.packages = {"nftables": OLD}
    answer = packages.process.Completed(0, "nftables v0.9.3 (Topsy)\n", "")
    monkeypatch.setattr(node.manager, "nft", lambda argv, stdin: answer)
    with pytest.raises(Refusal, match="/usr/sbin/nft is nft 0.9.3"):
        node.run(node.package())


@pytest.mark.parametrize("kind", [packages.Install, packages.Upgrade, packages.Remove])
def test_the_service_is_held_whenever_the_package_changes(node: Node, kind: type) -> None:
    current = []
    node.manager.changing = lambda: current.append(HOLD in node.units.loaded)
    if kind is packages.Upgrade:
        node.manager.packages = {"nftables": "0.9.3-2"}
    node.run(node.package())
    if kind is packages.Remove:
        node.run(node.package(None))
    assert isinstance(node.manager.performed[-1], kind)
    assert current and all(current)
    assert not node.units.loaded
    assert not node.files.is_folder(os.path.dirname(HOLD))


def test_without_systemd_nothing_is_held(tmp_path: Path, manager: FakePackages) -> None:
    node = Node(tmp_path, manager, is_running=False)
    node.manager.changing = lambda: pytest.fail("held") if node.files.read(HOLD) else None
    assert node.run(node.package()).changed


def test_an_installation_that_fails_is_rolled_back_with_the_service_held(node: Node) -> None:
    before, current = node.tree(), []
    node.manager.changing = lambda: current.append(HOLD in node.units.loaded)
    node.manager.fails = (packages.Install,)
    with pytest.raises(Failure, match="install nftables, failed: dpkg: no. All changes were undone"):
        node.run(node.package())
    assert [type(result) for result in node.manager.performed] == [packages.Install, packages.Remove]
    assert current == [True, True]
    assert node.tree() == before
    assert not node.units.loaded


def test_what_a_killed_run_held_is_let_go_after_its_package_manager_has_ended(node: Node) -> None:
    before = node.tree()
    node.manager.changing = sys.exit
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "perform", _without_undo(loop.perform))
        with pytest.raises(SystemExit):
            node.run(node.package())
    assert HOLD in node.units.loaded
    node.manager.packages = {"nftables": OLD}  # dpkg has gone on and finished
    node.manager.changing = lambda: None
    four_steps(node, node.package)
    assert isinstance(node.manager.performed[-1], packages.Wait)
    assert not node.units.loaded
    node.run(node.package(None))
    assert node.tree() == before


def _without_undo(perform: t.Callable[[t.Any, t.Any], None]) -> t.Callable[[t.Any, t.Any], None]:
    """A killed run performs no undo."""
    dead = False

    def until_death(resource: t.Any, operation: t.Any) -> None:
        nonlocal dead
        if not dead:
            dead = isinstance(operation, packages.Install)
            perform(resource, operation)

    return until_death


# The mask


def test_mask_and_unmask(node: Node) -> None:
    before = node.tree()
    (entry,) = four_steps(node, lambda: node.mask(True)).diff()
    assert entry["after"] == f"# {MASK} -> /dev/null\n"
    assert node.files.read(MASK) == files.Target("/dev/null")
    four_steps(node, lambda: node.mask(False))
    assert node.tree() == before


def test_a_foreign_mask_satisfies_and_stays(node: Node) -> None:
    node.files.perform(files.Put(MASK, files.Target("/dev/null")))
    before = node.tree()
    for desired in (True, False):
        assert not node.run(node.mask(desired)).changed
    assert node.tree() == before


def test_a_unit_of_the_operator_is_not_replaced(node: Node) -> None:
    node.files.perform(files.Put(MASK, files.Content("[Service]\n", owner=(os.getuid(), os.getgid()))))
    with pytest.raises(Refusal, match="Move it away, or set service to ignore"):
        node.run(node.mask(True))
    assert not node.run(node.mask(False)).changed


@pytest.mark.parametrize(
    ("enabled", "active", "masked", "warned"),
    [
        (False, False, False, ""),
        (True, False, False, "is enabled:"),
        (False, True, False, "is active:"),
        (True, True, False, "is enabled and active:"),
        (True, True, True, ""),
    ],
)
def test_a_service_that_may_flush_is_told(node: Node, enabled: bool, active: bool, masked: bool, warned: str) -> None:
    node.units.enabled = {UNIT} if enabled else set()
    if active:
        node.units.active = {UNIT}
    if masked:
        node.files.perform(files.Put(MASK, files.Target("/dev/null")))
    assert state_of(node.files, t.cast(t.Any, node.units), UNIT) == (enabled, active, masked)
    warnings = " ".join(harmless(node.files, t.cast(t.Any, node.units), UNIT))
    assert (warned in warnings) if warned else not warnings


# Versions


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1.0.6-2+deb12u2", "1.0.6"),
        ("1:1.0.9-2.azl3", "1.0.9"),
        ("0.9.3-2", "0.9.3"),
        ("1.1.6~rc1-1", "1.1.6"),
        ("", None),
        ("(none)", None),
    ],
)
def test_the_upstream_version_of_a_package(text: str, expected: str | None) -> None:
    found = version.of_package(text)
    assert (str(found) if found else None) == expected


def test_the_version_that_nft_tells() -> None:
    assert str(version.of_nft("nftables v1.0.6 (Lester Gooch #5)\n")) == "1.0.6"
    assert version.of_nft("nft: command not found") is None


def test_versions_are_ordered_by_number() -> None:
    texts = ["0.9", "0.9.8", "0.10", "1", "1.0.6", "1.1", "1.10"]
    versions = [version.wanted("minimum_version", text) for text in texts]
    assert sorted(reversed(versions)) == versions
    assert version.wanted("minimum_version", "1.1.0") == version.wanted("minimum_version", "1.1")


@pytest.mark.parametrize("given", ["", "1.", ".1", "1..0", "v1.0", "1.0-1", "1.0\n", "latest", "1.٣"])
def test_a_version_that_is_none_is_refused(given: str) -> None:
    with pytest.raises(Invalid, match="minimum_version must be .* was given"):
        version.wanted("minimum_version", given)


# Which package manager

HAS = {
    "debian": {"apt-get", "dpkg"},
    "azure": {"tdnf", "rpm"},
    "both": {"tdnf", "dnf", "rpm"},
    "all": {"apt-get", "dpkg", "tdnf", "dnf", "rpm"},
    "nothing": set(),
}


@pytest.mark.parametrize(
    ("release", "has", "expected"),
    [
        ({"ID": "debian"}, "debian", "apt"),
        ({"ID": "ubuntu", "ID_LIKE": "debian"}, "all", "apt"),
        ({"ID": "linuxmint", "ID_LIKE": "ubuntu debian"}, "all", "apt"),
        ({"ID": "azurelinux"}, "azure", "tdnf"),
        ({"ID": "azurelinux"}, "both", "tdnf"),
        ({"ID": "rocky", "ID_LIKE": "rhel centos fedora"}, "all", "dnf"),
        ({"ID": "unheard-of"}, "azure", "tdnf"),
        ({}, "debian", "apt"),
        ({"ID": "debian"}, "nothing", None),
        ({"ID": "azurelinux", "ID_LIKE": "flatcar", "VARIANT_ID": "azurecontainerlinux"}, "both", None),
        ({"ID": "flatcar"}, "both", None),
    ],
)
def test_the_manager_is_the_distributions_own(
    release: dict[str, str], has: str, expected: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packages.process, "find", lambda name: name if name in HAS[has] else None)
    found = packages.manager_of(release)
    assert (found.name if found else None) == expected


def test_without_a_manager_the_error_says_what_the_system_is() -> None:
    backend = packages.Packages(Script({}), {"ID": "flatcar", "PRETTY_NAME": "Flatcar 4152"}, 0)
    assert backend.name is None
    with pytest.raises(Refusal, match="this is Flatcar 4152, .* Nothing was changed"):
        backend.installed("nftables")


# The command lines of each package manager

LISTED = "Available Packages\nnftables.x86_64    1:1.0.9-1.azl3  base\nnftables.x86_64    1:1.0.10-2.azl3 base\n"
POLICY = "nftables:\n  Installed: (none)\n  Candidate: 1.0.6-2+deb12u2\n  Version table:\n"


def backend(manager: packages.Manager, script: Script, monkeypatch: pytest.MonkeyPatch, patience: float = 0) -> packages.Packages:
    monkeypatch.setattr(packages, "manager_of", lambda release: manager._replace(locks=(), listing_locks=()))
    monkeypatch.setattr(packages, "PAUSE", 0.01)
    return packages.Packages(script, {}, patience)


@pytest.mark.parametrize(
    ("manager", "listing", "candidate"),
    [
        (packages.APT, POLICY, "1.0.6-2+deb12u2"),
        (packages.APT, POLICY.replace("1.0.6-2+deb12u2", "(none)"), ""),
        (packages.TDNF, LISTED, "1:1.0.10-2.azl3"),
        (packages.DNF, LISTED, "1:1.0.10-2.azl3"),
        (packages.DNF, "", ""),
    ],
    ids=["apt", "apt has none", "tdnf", "dnf", "dnf has none"],
)
def test_the_newest_version_in_the_index(
    manager: packages.Manager, listing: str, candidate: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = Script({" ".join(manager.available): [(0, listing, "")]})
    assert backend(manager, script, monkeypatch).candidate("nftables") == candidate


@pytest.mark.parametrize(
    ("manager", "answer", "expected"),
    [
        (packages.APT, (0, "installed 1.0.6-2\n", ""), "1.0.6-2"),
        (packages.APT, (0, "half-configured 1.0.6-2\n", ""), "1.0.6-2"),
        (packages.APT, (0, "config-files 1.0.6-2\n", ""), ""),
        (packages.APT, (1, "", "dpkg-query: no packages found matching nftables\n"), ""),
        (packages.TDNF, (0, "installed 1:1.0.9-2.azl3\n", ""), "1:1.0.9-2.azl3"),
        (packages.DNF, (1, "package nftables is not installed\n", ""), ""),
    ],
)
def test_the_installed_version(
    manager: packages.Manager, answer: tuple[int, str, str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = Script({" ".join(manager.installed[:1]): [answer]})
    assert backend(manager, script, monkeypatch).installed("nftables") == expected


@pytest.mark.parametrize("manager", packages.MANAGERS, ids=lambda manager: manager.name)
def test_a_file_that_the_mirror_has_replaced_is_found_after_one_refresh(
    manager: packages.Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = (1, "", "E: Failed to fetch http://mirror/nftables.deb  404  Not Found\n")
    script = Script({" ".join(manager.install): [gone, (0, "", "")]})
    backend(manager, script, monkeypatch).perform(packages.Install("nftables"))
    assert script.asked == [[*manager.install, "nftables"], [*manager.refresh], [*manager.install, "nftables"]]


@pytest.mark.parametrize("manager", packages.MANAGERS, ids=lambda manager: manager.name)
def test_another_failure_is_final_and_repeats_the_answer(manager: packages.Manager, monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script({" ".join(manager.upgrade): [(1, "", "W: noise\nE: Held packages were changed\n")]})
    with pytest.raises(Failure, match=f"{manager.upgrade[0]}: E: Held packages were changed"):
        backend(manager, script, monkeypatch).perform(packages.Upgrade("nftables"))
    assert len(script.asked) == 1


def test_a_configuration_that_was_changed_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    for verified, command in (("??5?????? c /etc/nftables.conf\n", "--remove"), ("", "--purge")):
        script = Script({"dpkg-query": [(0, "installed 1.0.6-2", "")], "--verify": [(0, verified, "")]})
        backend(packages.APT, script, monkeypatch).perform(packages.Remove("nftables"))
        assert script.asked[-1] == ["dpkg", command, "nftables"]


def test_what_is_not_installed_is_not_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script({"rpm --query": [(1, "", "")]})
    backend(packages.TDNF, script, monkeypatch).perform(packages.Remove("nftables"))
    assert len(script.asked) == 1


# Locks

LOCKED = (100, "", "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 7 (apt-get)\n")


def test_a_command_that_does_not_end_is_named_without_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages.process, "find", lambda _name: "/usr/bin/env")
    sleeping = packages.APT._replace(install=("sleep",))
    run = functools.partial(packages.process.run, seconds=0.2, completes=True)
    manager = backend(sleeping, t.cast(Script, run), monkeypatch)
    named = r"^/usr/bin/env sleep 60 \(process \d+\) did not end within 0.2 s and was killed\. .*, or raise command_timeout$"
    with pytest.raises(Uncertain, match=named):
        manager.perform(packages.Install("60"))


def test_a_lock_that_another_process_takes_just_before_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script({"install": [LOCKED, LOCKED, (0, "", "")]})
    backend(packages.APT, script, monkeypatch, patience=5).perform(packages.Install("nftables"))
    assert len(script.asked) == 3


def test_a_lock_that_stays_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Failure, match=r"/var/lib/apt/lists/lock\. It is held by process 7 .*raise lock_timeout"):
        backend(packages.APT, Script({"install": [LOCKED]}), monkeypatch).perform(packages.Install("nftables"))


def test_a_held_lock_file_is_named_with_its_holder_and_nothing_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "lock"
    monkeypatch.setattr(packages, "manager_of", lambda release: packages.TDNF._replace(locks=(str(path),)))
    script = Script({})
    manager = packages.Packages(script, {}, patience=0)
    manager.perform(packages.Wait())  # no such file: no process holds it
    program = "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.lockf(f, fcntl.LOCK_EX); print('held', flush=True); input()"
    command = [sys.executable, "-c", program, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None and holder.stdin is not None and holder.stdout.readline() == "held\n"
        with pytest.raises(Failure, match=rf"{path} is held by process {holder.pid} \(python"):
            manager.perform(packages.Install("nftables"))
        holder.stdin.write("\n")
    assert not script.asked
