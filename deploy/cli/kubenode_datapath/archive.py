# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program as one file, which Python runs: a zip archive of the package."""

from __future__ import annotations

import io
import os
import typing as t
import zipfile
from pathlib import Path

PACKAGE = __name__.partition(".")[0]
PYTHON = b"#!/usr/bin/env python3\n"
# Any Python can run this part, 2.7 as well. An older one cannot read the modules.
MAIN = f"""\
import os
import sys

if sys.version_info < (3, 9):
    here = (sys.executable, sys.version.split()[0])
    sys.stderr.write("kubenode-datapath needs Python 3.9 or newer; %s is Python %s\\n" % here)
    sys.exit(3)
sys.path[0] = os.path.abspath(sys.path[0])
import {PACKAGE}._core.zip_imports
from {PACKAGE}.program import main

sys.exit(main())
"""


def pack(files: t.Mapping[str, bytes]) -> bytes:
    """Return the program with these files of the package, to the same bytes each time. files: contents by path."""
    packed = io.BytesIO(PYTHON)
    packed.seek(0, os.SEEK_END)
    with zipfile.ZipFile(packed, "a") as archive:
        for path, content in sorted({**files, "__main__.py": MAIN.encode()}.items()):
            archive.writestr(entry(path), content)
    return packed.getvalue()


def entry(path: str) -> zipfile.ZipInfo:
    """Return the header of a file that all users may read, with the earliest date that a zip can have."""
    header = zipfile.ZipInfo(path)
    header.external_attr = 0o644 << 16
    header.compress_type = zipfile.ZIP_DEFLATED
    return header


def running() -> bytes:
    """Return this program as one file, whether it was started as one or is an installed package. Raises OSError."""
    path = getattr(globals()["__loader__"], "archive", "")
    if path:
        return Path(path).read_bytes()
    folder = Path(__file__).parent
    return pack({f"{PACKAGE}/{path.relative_to(folder)}": path.read_bytes() for path in folder.rglob("*") if _is_part(path)})


def _is_part(path: Path) -> bool:
    return path.is_file() and "__pycache__" not in path.parts
