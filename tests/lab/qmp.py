# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""QMP, the protocol for commands to a running qemu (qemu's docs/interop/qmp-spec.txt)."""

from __future__ import annotations

import json
import socket
from typing import Any

from lab.entering import LabError

_ANSWER_LIMIT = 30.0  # seconds for an answer or an event; a guest under emulation may take one


class Qmp:
    """One end of a socket pair; qemu has the other end."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._socket.settimeout(_ANSWER_LIMIT)
        self._lines = connection.makefile("r", encoding="utf-8")
        self._events: list[dict[str, Any]] = []
        self._receive()  # the greeting
        self.execute("qmp_capabilities")

    def execute(self, command: str, arguments: dict[str, Any] | None = None, descriptor: int | None = None) -> Any:
        """Runs a command and returns its result. Raises LabError with qemu's message if it fails.

        ``descriptor`` is handed over with the command (getfd).
        """
        message = json.dumps({"execute": command, "arguments": arguments or {}}).encode()
        if descriptor is None:
            self._socket.sendall(message)
        else:
            socket.send_fds(self._socket, [message], [descriptor])
        while True:
            answer = self._receive()
            if "return" in answer:
                return answer["return"]
            if "error" in answer:
                raise LabError(f"qemu refused {command} {arguments}: {answer['error']['desc']}")
            self._events.append(answer)

    def wait_for(self, event: str, device: str) -> None:
        """Return when qemu has reported this event of this device, now or earlier; each event counts once."""
        while True:
            for entry in self._events:
                if entry["event"] == event and entry["data"].get("device") == device:
                    self._events.remove(entry)
                    return
            self._events.append(self._receive())

    def close(self) -> None:
        self._lines.close()
        self._socket.close()

    def _receive(self) -> dict[str, Any]:
        try:
            line = self._lines.readline()
        except TimeoutError as error:
            raise LabError(f"qemu said nothing for {_ANSWER_LIMIT:g} s") from error
        if not line:
            raise LabError("qemu has ended")
        message: dict[str, Any] = json.loads(line)
        return message
