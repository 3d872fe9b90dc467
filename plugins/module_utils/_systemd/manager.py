# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reads properties from systemd's private socket, as systemctl does, without starting systemctl.

A converged run needs the state of a unit. No file tells it: /run/systemd/units/invocation:UNIT exists for an active unit, but
also for one that is only starting; it is missing for a unit that has failed, but also for one that was skipped.
``systemctl show`` takes 10 to 60 ms, this takes 1 to 5 ms.

The code covers only the part of the D-Bus specification (dbus.freedesktop.org) that org.freedesktop.DBus.Properties.Get needs.
The socket works without a D-Bus daemon, and accepts only root.
"""

from __future__ import annotations

import os
import re
import socket
import struct
import typing as t

SOCKET = "/run/systemd/private"
PATIENCE = 5.0  # seconds for one answer; without it, the caller asks systemctl

_ROOT = "/org/freedesktop/systemd1"
_MANAGER = "org.freedesktop.systemd1.Manager"
_UNIT = "org.freedesktop.systemd1.Unit"
_OF_SERVICES = {"Result": "org.freedesktop.systemd1.Service"}  # properties that only services have

_CALL, _REPLY, _ERROR = 1, 2, 3  # message types; signals (4) are ignored
_PATH, _INTERFACE, _MEMBER, _SIGNATURE = 1, 2, 3, 8  # header fields


class _Property(t.NamedTuple):
    path: str
    interface: str
    name: str


def get(names: t.Sequence[str], unit: str = "") -> list[str]:
    """Return properties of a unit, or of systemd itself if ``unit`` is empty. Numbers are returned as text.

    Raises OSError, and ValueError if the answer is an error or cannot be parsed.
    """
    properties = [_of_unit(unit, name) if unit else _Property(_ROOT, _MANAGER, name) for name in names]
    calls = b"".join(_call(item, serial) for serial, item in enumerate(properties, 1))
    # sd-bus sends all of this at once as well: bus-socket.c, bus_socket_start_auth_client()
    hello = b"\0AUTH EXTERNAL " + str(os.geteuid()).encode().hex().encode() + b"\r\nBEGIN\r\n"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as bus:
        bus.settimeout(PATIENCE)
        bus.connect(SOCKET)
        bus.sendall(hello + calls)
        with bus.makefile("rb") as answers:
            reply = answers.readline()
            if not reply.startswith(b"OK "):
                raise ValueError(f"{SOCKET} answered {reply!r}")
            try:
                return [_value(*_answer(answers)) for _property in properties]
            except (struct.error, UnicodeDecodeError, IndexError) as error:
                raise ValueError(f"{SOCKET} sent an answer that cannot be parsed: {error}") from error


def _of_unit(unit: str, name: str) -> _Property:
    """Return the property of a unit. The unit's name is escaped as by systemd's bus_label_escape()."""
    label = re.sub(r"[^A-Za-z0-9]|^[0-9]", lambda match: f"_{ord(match[0]):02x}", unit)
    return _Property(f"{_ROOT}/unit/{label}", _OF_SERVICES.get(name, _UNIT), name)


def _call(wanted: _Property, serial: int) -> bytes:
    body = _padded(_string(wanted.interface), 4) + _string(wanted.name)
    fields = b""
    for code, kind, value in (
        (_PATH, b"o", wanted.path),
        (_INTERFACE, b"s", "org.freedesktop.DBus.Properties"),
        (_MEMBER, b"s", "Get"),
    ):
        fields = _padded(fields, 8) + bytes([code, 1]) + kind + b"\0" + _string(value)
    fields = _padded(fields, 8) + bytes([_SIGNATURE, 1]) + b"g\0" + b"\2ss\0"
    fixed = struct.pack("<cBBBIII", b"l", _CALL, 0, 1, len(body), serial, len(fields))
    return _padded(fixed + fields, 8) + body


def _string(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<I", len(raw)) + raw + b"\0"


def _padded(data: bytes, to: int) -> bytes:
    return data + bytes(-len(data) % to)


def _answer(answers: t.BinaryIO) -> tuple[str, bytes]:
    """Return the byte order and the body of the next reply. systemd answers calls in their order."""
    while True:
        fixed = answers.read(16)
        order = "<" if fixed[:1] == b"l" else ">"
        _order, kind, _flags, _version, length, _serial, fields = struct.unpack(f"{order}cBBBIII", fixed)
        answers.read(fields + -fields % 8)
        body = answers.read(length)
        if len(body) != length:
            raise ValueError(f"{SOCKET} sent {len(body)} bytes instead of {length}")
        if kind == _ERROR:
            raise ValueError(f"{SOCKET} sent an error: {body[4:].decode(errors='replace')!r}")
        if kind == _REPLY:
            return order, body


def _value(order: str, body: bytes) -> str:
    """Return the value of a variant: length of the signature, signature, NUL, and the value at the next multiple of its
    alignment."""
    kind, at = body[1 : 1 + body[0]].decode(), 2 + body[0]
    if kind not in ("s", "(uo)"):
        raise ValueError(f"{SOCKET} sent a value of type {kind!r}")
    at += -at % (8 if kind == "(uo)" else 4)
    (number,) = struct.unpack_from(f"{order}I", body, at)
    return body[at + 4 : at + 4 + number].decode() if kind == "s" else str(number)
