# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The images that pods are made of: they are written here, and imported on each node, as there is no registry.

Both are Debian's static busybox: ``PAUSE`` holds a pod's namespaces, ``SERVER`` answers HTTP at SERVER_PORT, over IPv4 and IPv6,
with JSON that tells the client's address as the pod saw it and the pod's host name.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from lab import apt, host

PAUSE, SERVER = "localhost/lab/pause:1", "localhost/lab/server:1"
SERVER_PORT = 8080

_COMMANDS = {
    PAUSE: ["/bin/sleep", "infinity"],
    SERVER: ["/bin/httpd", "-f", "-p", str(SERVER_PORT), "-h", "/www"],
}
_ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())

# httpd runs cgi-bin/index.cgi for a folder without an index.html. An IPv4 client is [::ffff:192.0.2.1] to it.
_ANSWER = """\
#!/bin/sh
peer=${REMOTE_ADDR#[}
peer=${peer%]}
printf 'Content-Type: application/json\\r\\n\\r\\n{"peer": "%s", "host": "%s"}\\n' "${peer#::ffff:}" "$(hostname)"
"""


def write(path: Path) -> None:
    """Write the archive of both images, for ``ctr images import``."""
    with tempfile.TemporaryDirectory() as folder:
        apt.unpack("bookworm", "busybox-static", Path(folder))
        layer = _layer(Path(folder, "bin/busybox"))
    files = {"layer.tar": layer}
    manifest: list[dict[str, Any]] = []
    for name, command in _COMMANDS.items():
        configuration = {
            "architecture": _ARCHITECTURE,
            "os": "linux",
            "config": {"Cmd": command, "Env": ["PATH=/bin"]},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
        }
        text = json.dumps(configuration).encode()
        files[f"{hashlib.sha256(text).hexdigest()}.json"] = text
        manifest.append({"Config": list(files)[-1], "RepoTags": [name], "Layers": ["layer.tar"]})
    files["manifest.json"] = json.dumps(manifest).encode()
    with tarfile.open(path, "w") as archive:
        for name, content in files.items():
            _add(archive, name, content)


def write_context(folder: Path) -> str:
    """Write a folder from which docker builds SERVER, on the busybox of a registry; return the tag."""
    folder.mkdir()
    (folder / "index.cgi").write_text(_ANSWER)
    (folder / "index.cgi").chmod(0o755)
    lines = ["FROM docker.io/library/busybox:1.37", "COPY index.cgi /www/cgi-bin/", f"CMD {json.dumps(_COMMANDS[SERVER])}"]
    (folder / "Containerfile").write_text("\n".join([*lines, ""]))
    return SERVER.rpartition(":")[2]


def _layer(busybox: Path) -> bytes:
    applets = host.run([busybox, "--list"]).split()
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w") as archive:
        _add(archive, "bin/busybox", busybox.read_bytes(), 0o755)
        _add(archive, "www/cgi-bin/index.cgi", _ANSWER.encode(), 0o755)
        for applet in applets:
            if applet != "busybox":
                link = tarfile.TarInfo(f"bin/{applet}")
                link.type, link.linkname = tarfile.SYMTYPE, "busybox"
                archive.addfile(link)
    return whole.getvalue()


def _add(archive: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    archive.addfile(entry, io.BytesIO(content))
