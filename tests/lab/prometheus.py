# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Debian's Prometheus on this machine, which scrapes what it is told to and answers queries."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lab import apt
from lab.waiting import until


def programs(folder: Path) -> Path:
    """Unpack prometheus and promtool into a folder, and return the folder of the programs."""
    for package in ("prometheus", "promtool"):
        apt.unpack("trixie", package, folder)
    return folder / "usr/bin"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


@contextlib.contextmanager
def running(command: list[str | Path], log: Path, **options: Any) -> Iterator[None]:
    """Run a command while the block runs."""
    with log.open("wb") as sink, subprocess.Popen(command, stdout=sink, stderr=sink, **options) as process:
        try:
            yield
        finally:
            process.kill()


class Prometheus:
    """port: at which it answers."""

    def __init__(self, port: int) -> None:
        self.port = port

    def ask(self, path: str, **parameters: Any) -> Any:
        """Return the data of an answer of the API; None without an answer."""
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with contextlib.suppress(ConnectionError, urllib.request.HTTPError), urllib.request.urlopen(url) as answer:
            return json.loads(answer.read())["data"]
        return None

    def values(self, query: str, **parameters: Any) -> list[Any]:
        return (self.ask("query", query=query, **parameters) or {"result": []})["result"]


@contextlib.contextmanager
def serving(folder: Path, program: Path, configuration: dict[str, Any], *options: str) -> Iterator[Prometheus]:
    """Run Prometheus while the block runs. folder: for its data. configuration: as in prometheus.yml."""
    path, port = folder / "prometheus.yml", free_port()
    path.write_text(json.dumps(configuration))
    places = [f"--config.file={path}", f"--storage.tsdb.path={folder}/tsdb", f"--web.listen-address=127.0.0.1:{port}"]
    with running([program, *places, *options], folder / "prometheus.log"):
        server = Prometheus(port)
        until("Prometheus answers", lambda: server.ask("status/runtimeinfo") is not None)
        yield server
