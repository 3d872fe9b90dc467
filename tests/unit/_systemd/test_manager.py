# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""systemd's socket, played by a thread: an answer is understood, or is an error."""

from __future__ import annotations

import os
import socket
import struct
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Failure
from ansible_collections.kubenode.datapath.plugins.module_utils._platform import process
from ansible_collections.kubenode.datapath.plugins.module_utils._systemd import manager
from ansible_collections.kubenode.datapath.plugins.module_utils._systemd.units import Units

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
