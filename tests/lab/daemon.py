# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A lab in a separate process, for tools that start and end.

Its folder contains ``inventory.json``, ``control`` (the socket for commands) and ``log``; that of a cluster also ``kubectl``.
The lab ends by a command, when the folder is deleted, and when no request has come for some time (by default IDLE_LIMIT). It then
removes its files, except the log. However the lab ends, its machines end with it.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import socket
import socketserver
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lab import entering
from lab.base import Cloud
from lab.cloud import Lab, Node
from lab.commands import COMMANDS
from lab.eni import Eni, EniLab
from lab.entering import LabError
from lab.kubernetes import Cluster
from lab.uplinks import UplinkLab
from lab.waiting import until

CLUSTER = Path("cluster")
"""The declaration of a cluster with two nodes and a metadata service: a word in a file's place."""

IDLE_LIMIT = 3600.0  # seconds
_START_LIMIT = 3600.0  # seconds; the first lab on a machine builds an image, the first cluster compiles Kubernetes
_INVENTORY, _CONTROL, _KUBECTL, _LOG = "inventory.json", "control", "kubectl", "log"
_DOWN = "down"
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def start(folder: Path, declaration: Path, idle: float = IDLE_LIMIT) -> None:
    """Build the lab that a JSON file declares, with the arguments of ``Lab`` and ``Node``, of ``EniLab`` and ``Eni``, or, in
    objects ``cluster`` and ``uplinks``, of ``Cluster`` and ``UplinkLab``. CLUSTER is a cluster with a metadata service.

    Returns when it stands.

    It ends by itself when no request comes for ``idle`` seconds.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if _is_up(folder):
        raise LabError(f"there is a lab in {folder} already")
    _remove_leftovers(folder)
    with (folder / _LOG).open("w") as sink:
        daemon = subprocess.Popen(
            [*entering.ENDS_WITH_US, sys.executable, "-m", __name__, folder, declaration, str(idle)],
            stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, start_new_session=True,
        )  # fmt: skip
    try:
        _wait_until_up(folder, daemon)
    except BaseException:
        daemon.terminate()
        raise


def _wait_until_up(folder: Path, daemon: subprocess.Popen[bytes]) -> None:
    until(
        f"the lab is built; its log is {folder / _LOG}",
        lambda: _is_up(folder) or daemon.poll() is not None,
        limit=_START_LIMIT,
        pause=0.02,
    )
    if daemon.poll() is not None:
        raise LabError(f"the lab could not be built:\n{(folder / _LOG).read_text()}")


def stop(folder: Path) -> None:
    """End the lab; return when all of it is gone. Succeeds without a lab too."""
    if _is_up(folder):
        ask(folder, [_DOWN])
    else:
        _remove_leftovers(folder)


def _remove_leftovers(folder: Path) -> None:
    """Removes the files that a killed lab left."""
    for name in (_INVENTORY, _CONTROL, _KUBECTL):
        (folder / name).unlink(missing_ok=True)


def ask(folder: Path, words: list[str]) -> Any:
    """The lab's answer to a command. Raises LabError if it refuses, or if there is no lab."""
    try:
        with _connected(folder) as connection, connection.makefile("rw") as stream:
            print(json.dumps(words), file=stream, flush=True)
            line = stream.readline()
    except OSError as error:
        raise LabError(f"there is no lab in {folder}: {error.strerror}") from error
    if not line:
        raise LabError(f"the lab ended before it answered; its log is {folder / _LOG}")
    answer = json.loads(line)
    if "error" in answer:
        raise LabError(answer["error"])
    return answer["answer"]


def _is_up(folder: Path) -> bool:
    try:
        with _connected(folder):
            return True
    except OSError:
        return False


@contextlib.contextmanager
def _connected(folder: Path) -> Iterator[socket.socket]:
    """By the folder's descriptor: the whole path may be too long for a socket."""
    place = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(f"/proc/self/fd/{place}/{_CONTROL}")
            yield connection
    finally:
        os.close(place)


class _Control(socketserver.UnixStreamServer):
    """Answers one command after another, until the lab is to end."""

    timeout = 0.5  # seconds between two looks at the folder and the clock

    def __init__(self, lab: Cloud, folder: Path, ending: contextlib.ExitStack) -> None:
        os.chdir(folder)  # a socket's path may have 107 bytes
        super().__init__(_CONTROL, _Command)
        self.lab = lab
        self.ending = ending
        self.is_over = False
        self.asked = time.monotonic()
        self._folder = folder

    def serve(self, idle: float) -> None:
        while not self.is_over and (self._folder / _CONTROL).exists() and time.monotonic() - self.asked < idle:
            self.handle_request()


class _Command(socketserver.StreamRequestHandler):
    server: _Control
    timeout = 10  # seconds that a client may take to send its command

    def handle(self) -> None:
        line = self.rfile.readline()
        if not line:  # a client only checked that the daemon is there
            return
        self.wfile.write(json.dumps(self._answer(json.loads(line))).encode() + b"\n")
        self.server.asked = time.monotonic()

    def _answer(self, words: list[str]) -> dict[str, Any]:
        if words == [_DOWN]:
            self.server.is_over = True
            self.server.ending.close()  # before the answer: nothing is left when it arrives
            return {"answer": None}
        try:
            return {"answer": COMMANDS[words[0]](self.server.lab, *words[1:])}
        except Exception as error:  # after any error, the lab goes on
            return {"error": str(error) or repr(error)}


def _declared(name: str, declared: dict[str, Any]) -> Cloud:
    if "cluster" in declared:
        return Cluster(name, **declared["cluster"])
    if "uplinks" in declared:
        return UplinkLab(name, declared["uplinks"]["system"])
    if "enis" in declared:
        return EniLab(name, [Eni(**eni) for eni in declared.pop("enis")], **declared)
    return Lab(name, [Node(**node) for node in declared.pop("nodes")], **declared)


def _main(folder: Path, declaration: Path, idle: float) -> None:
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(1))
    with contextlib.ExitStack() as ending:  # until the lab is built, it ends with its starter; after that it stays
        declared = {"cluster": {"metadata": True}} if declaration == CLUSTER else json.loads(declaration.read_text())
        lab = ending.enter_context(_declared(folder.name, declared))
        ending.callback(_remove_leftovers, folder)
        lab.write_inventory(folder / _INVENTORY)
        if isinstance(lab, Cluster):
            lab.write_kubectl(folder / _KUBECTL)
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, 0)
        with _Control(lab, folder, ending) as control:
            control.serve(idle)


if __name__ == "__main__":
    _main(Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3]))
