# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The answer of systemd-analyze about the order of a boot, as the versions of systemd print it, and what a run makes of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._core.converge import converge
from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Failure, Refusal
from ansible_collections.kubenode.datapath.plugins.module_utils._core.plan import Plane
from ansible_collections.kubenode.datapath.plugins.module_utils._listener import policy_unit
from ansible_collections.kubenode.datapath.plugins.module_utils._platform import process
from ansible_collections.kubenode.datapath.plugins.module_utils._systemd import boot_order
from ansible_collections.kubenode.datapath.plugins.module_utils._systemd.boot_order import BootOrder, of_log
from ansible_collections.kubenode.datapath.plugins.module_utils._systemd.enabled_unit import EnabledUnit
from unit.fakes import FakeUnits, RootedFiles

UNIT = policy_unit.unit(75, "/etc/x", "/usr/bin/python3", "/etc/x.pyz", before=["a.service"])
PLAIN = policy_unit.unit(75, "/etc/x", "/usr/bin/python3", "/etc/x.pyz")
CONTROL = """\
kubenode-cycle-1.target: Found ordering cycle on kubenode-cycle-2.target/start
kubenode-cycle-1.target: Found dependency on kubenode-cycle-1.target/start
kubenode-cycle-1.target: Job kubenode-cycle-2.target/start deleted to break ordering cycle starting with x.target/start
"""
FOREIGN = """\
a.service: Found ordering cycle on b.service/verify-active
a.service: Found dependency on a.service/start
a.service: Unable to break cycle starting with a.service/start
"""
OWN = f"""\
sockets.target: Found ordering cycle on {UNIT.name}/start
sockets.target: Found dependency on basic.target/start
sockets.target: Found dependency on sockets.target/start
sockets.target: Job {UNIT.name}/start deleted to break ordering cycle starting with sockets.target/start
"""
OF_262 = f"""\
basic.target: Found ordering cycle: sockets.target/start after {UNIT.name}/start after basic.target/start - after sockets.target
basic.target: Job sockets.target/start deleted to break ordering cycle starting with basic.target/start
a.target: Found ordering cycle: kubenode-cycle-1.target/start after kubenode-cycle-2.target/start - after kubenode-cycle-1.target
a.target: Job kubenode-cycle-2.target/start deleted to break ordering cycle starting with kubenode-cycle-1.target/start
"""
LATE = OWN.replace(UNIT.name, boot_order.LATE)
ORDERS = {
    "no cycle": (CONTROL, BootOrder(True)),
    "a foreign cycle": (CONTROL + FOREIGN, BootOrder(True)),
    "a cycle": (FOREIGN + OWN + CONTROL, BootOrder(True, (UNIT.name, "basic.target", "sockets.target"))),
    "a cycle of the late target": (CONTROL + LATE, BootOrder(True, (boot_order.LATE, "basic.target", "sockets.target"))),
    "a cycle in the words of systemd 262": (OF_262, BootOrder(True, ("sockets.target", UNIT.name, "basic.target"))),
    "silence": ("", BootOrder(False)),
    "an error": ("Failed to initialize manager: No such file or directory\n", BootOrder(False)),
    "other words": ("a.target: Cyclic ordering: kubenode-cycle-1.target, kubenode-cycle-2.target\n", BootOrder(False)),
}


@pytest.mark.parametrize(("log", "order"), ORDERS.values(), ids=ORDERS.keys())
def test_a_cycle_is_read_and_an_answer_without_the_control_is_no_answer(log: str, order: BootOrder) -> None:
    assert of_log(log, UNIT.name) == order


def test_without_systemd_analyze_the_order_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "SEARCH_PATH", "/nowhere")
    assert boot_order.read(UNIT, is_placed=False) == BootOrder(False)


@pytest.fixture
def units(tmp_path: Path) -> FakeUnits:
    (tmp_path / "etc/systemd/system").mkdir(parents=True)
    return FakeUnits(tmp_path)


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize(
    ("unit", "order", "said"),
    [
        (
            UNIT,
            BootOrder(True, ("a.service", UNIT.name)),
            "a.service after kubenode-policy-routes-75.service after a.service. Nothing was changed",
        ),
        (
            UNIT,
            BootOrder(True, ("a.service", UNIT.name)),
            "Name in the option before only units that start kubelet, not a.service",
        ),
        (PLAIN, BootOrder(True, ("a.service", UNIT.name)), "See their drop-ins"),
        (
            UNIT,
            BootOrder(True, ("a.service", boot_order.LATE, "basic.target")),
            "needs a.service earlier: basic.target after a.service",
        ),
        (UNIT, BootOrder(False), "cannot be ordered before a.service, because systemd could not be asked"),
    ],
)
def test_a_unit_that_would_break_the_boot_is_refused_before_anything_is_written(
    units: FakeUnits, tmp_path: Path, unit: boot_order.BootUnit, order: BootOrder, said: str, check: bool
) -> None:
    units.order = order
    with pytest.raises(Refusal, match=said):
        converge([EnabledUnit(RootedFiles(tmp_path), units, unit, True, True)], {Plane.PERMANENT}, check=check)
    assert not any(files for _folder, _folders, files in os.walk(tmp_path)) and units.systemd.asked == []


def test_a_cycle_that_only_the_placed_units_show_fails_the_run_and_is_undone(units: FakeUnits, tmp_path: Path) -> None:
    answers = [BootOrder(True), BootOrder(True, ("a.service", UNIT.name))]
    units.boot_order = lambda unit, is_placed=False: answers[is_placed]  # type: ignore[method-assign]
    second = policy_unit.unit(76, "/etc/x", "/usr/bin/python3", "/etc/x.pyz", before=["a.service"])
    both = [EnabledUnit(RootedFiles(tmp_path), units, unit, True, True) for unit in (UNIT, second)]
    with pytest.raises(Failure, match="leaving out any unit of it: a.service after .*All changes were undone"):
        converge(both, {Plane.PERMANENT})
    assert not list(tmp_path.rglob("*.service")) and units.systemd.states == {}
    converge(both[:1], {Plane.PERMANENT})  # it is what systemd was asked about, so that the answer stands


def test_absent_and_a_converged_unit_ask_nothing(units: FakeUnits, tmp_path: Path) -> None:
    def hold(desired: bool) -> None:
        converge([EnabledUnit(RootedFiles(tmp_path), units, UNIT, desired, True)], {Plane.PERMANENT})

    hold(True)
    units.order = BootOrder(True, ("a.service", UNIT.name))
    hold(True)
    hold(False)
    assert not list(tmp_path.rglob("*.service"))
