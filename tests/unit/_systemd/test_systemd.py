# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The order of a boot by systemd-analyze, and systemd's socket, played by a thread: an answer is understood, or is an error."""

from __future__ import annotations

import os
import socket
import struct
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._core.converge import converge
from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Failure, Refusal
from ansible_collections.kubenode.datapath.plugins.module_utils._core.plan import Plane
from ansible_collections.kubenode.datapath.plugins.module_utils._listener import policy_unit
from ansible_collections.kubenode.datapath.plugins.module_utils._platform import process
from ansible_collections.kubenode.datapath.plugins.module_utils._systemd import boot_order, manager
from ansible_collections.kubenode.datapath.plugins.module_utils._systemd.boot_order import BootOrder, of_log
from ansible_collections.kubenode.datapath.plugins.module_utils._systemd.unit_resource import EnabledUnit
from ansible_collections.kubenode.datapath.plugins.module_utils._systemd.units import Units
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


HELLO = b"OK 1234\r\n"
REPLY, ERROR, SIGNAL = 2, 3, 4


def message(kind: int, body: bytes, order: str = "<", fields: bytes = b"\5\1u\0\1\0\0\0") -> bytes:
    fixed = struct.pack(f"{order}cBBBIII", b"l" if order == "<" else b"B", kind, 1, 1, len(body), 1, len(fields))
    return fixed + fields + bytes(-len(fields) % 8) + body


def text(value: str, order: str = "<") -> bytes:
    return b"\1s\0\0" + struct.pack(f"{order}I", len(value)) + value.encode() + b"\0"


def job(number: int, order: str = "<") -> bytes:
    return b"\4(uo)\0\0\0" + struct.pack(f"{order}II", number, 1) + b"/\0"


Serve = Callable[[bytes], list[bytes]]


@pytest.fixture
def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Serve:
    """Answers one connection with the given bytes; the list has the requests afterwards."""
    path = str(tmp_path / "private")
    monkeypatch.setattr(manager, "SOCKET", path)
    monkeypatch.setattr(manager, "PATIENCE", 0.5)

    def start(answer: bytes) -> list[bytes]:
        server, asked = socket.socket(socket.AF_UNIX), []
        server.bind(path)
        server.listen()

        def answer_one() -> None:
            with server, server.accept()[0] as connection:
                asked.append(connection.recv(65536))
                connection.sendall(answer)

        threading.Thread(target=answer_one, daemon=True).start()
        return asked

    return start


@pytest.mark.parametrize("order", ["<", ">"])
def test_values_are_read_in_either_byte_order_and_signals_are_passed_over(serve: Serve, order: str) -> None:
    signal = message(SIGNAL, b"something else", order, b"\1\1o\0\1\0\0\0/\0")
    replies = [text("active", order), text("exited", order), text("success", order), job(91, order)]
    asked = serve(HELLO + signal + b"".join(message(REPLY, body, order) for body in replies))
    names = ("ActiveState", "SubState", "Result", "Job")
    assert manager.get(names, "kubenode-nft-ip6-t.service") == ["active", "exited", "success", "91"]
    assert asked[0].startswith(b"\0AUTH EXTERNAL " + str(os.geteuid()).encode().hex().encode() + b"\r\nBEGIN\r\n")
    assert b"/org/freedesktop/systemd1/unit/kubenode_2dnft_2dip6_2dt_2eservice\0" in asked[0]
    assert asked[0].count(b"org.freedesktop.systemd1.Service\0") == 1


def test_systemd_is_asked_for_a_property_of_its_own(serve: Serve) -> None:
    asked = serve(HELLO + message(REPLY, text("starting")))
    assert manager.get(["SystemState"]) == ["starting"]
    assert b"/org/freedesktop/systemd1\0" in asked[0] and b"org.freedesktop.systemd1.Manager\0" in asked[0]


UNREADABLE = {
    "nothing": b"",
    "no": b"REJECTED EXTERNAL\r\n",
    "cut off": HELLO + message(REPLY, text("active"))[:-4],
    "an error": HELLO + message(ERROR, b"\7\0\0\0no such\0"),
    "another type": HELLO + message(REPLY, b"\1b\0\0\1\0\0\0"),
    "an empty answer": HELLO + message(REPLY, b""),
    "silence": HELLO,
}


@pytest.mark.parametrize("answer", UNREADABLE.values(), ids=UNREADABLE.keys())
def test_what_cannot_be_read_is_said_and_systemctl_is_asked(serve: Serve, answer: bytes) -> None:
    serve(answer)
    with pytest.raises((OSError, ValueError)):
        manager.get(["ActiveState"], "x.service")


def test_without_the_socket_systemctl_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manager, "SOCKET", str(tmp_path / "none"))
    said = "ActiveState=active\nSubState=exited\nResult=success\nJob=\n"
    asked: list[list[str]] = []

    def run(argv: list[str], _stdin: object) -> process.Completed:
        asked.append([os.path.basename(argv[0]), *argv[1:]])
        return process.Completed(0, said, "")

    units = Units(run)  # type: ignore[arg-type]
    assert units.verdict("x.service").value == "active"
    assert asked == [["systemctl", "show", "--property=ActiveState,SubState,Result,Job", "x.service"]]
    said = ""
    with pytest.raises(Failure, match="should print ActiveState, SubState, Result, Job, but printed ''"):
        units.verdict("x.service")
