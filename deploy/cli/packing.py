# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Builds the command kubenode-datapath, to the same bytes each time: a wheel, and one file that Python runs.

    packing.py FOLDER    write the wheel, kubenode-datapath.pyz, kubectl-datapath and kubectl_complete-datapath into the folder

Both contain kubenode_datapath/, the rooms of plugins/module_utils that it reaches, and the modules of pyroute2 by which a twin
changes rules and routes. It needs Python 3.11 and pyroute2, and is a build backend (PEP 517) too.
"""

from __future__ import annotations

import base64
import hashlib
import importlib
import importlib.metadata
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PLUGINS = HERE.parents[1] / "plugins"
sys.path[:0] = [str(HERE), str(PLUGINS)]

from kubenode_datapath import archive  # noqa: E402

PACKAGE = archive.PACKAGE
LIBRARY = "pyroute2"
MANUAL = "share/man/man1/kubenode-datapath.1"  # in the environment of the wheel, where man finds it
BY_NAME = ("_parts", "_profiles")
LICENSE = HERE.parents[1] / "LICENSE"
# How the command imports the rooms where it lies in the repository. In the package they are beside it.
_ROOMS = re.compile(r"^( *from )ansible_collections\.kubenode\.datapath\.plugins\.module_utils(\.)", re.MULTILINE)
WHEEL = "Wheel-Version: 1.0\nGenerator: packing.py\nRoot-Is-Purelib: true\nTag: py3-none-any\n"

Files = dict[str, bytes]  # contents by path


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "kubenode-datapath.pyz"
    program.write_bytes(archive.pack(package()))
    program.chmod(0o755)
    for name in ("kubectl-datapath", "kubectl_complete-datapath"):
        shutil.copy(program, folder / name)
    build_wheel(str(folder))


def build_wheel(wheel_directory: str, config_settings: object = None, metadata_directory: str | None = None) -> str:
    """Write the wheel into a folder, and return its name (PEP 517)."""
    stem = f"{PACKAGE}-{version()}"
    information = f"{stem}.dist-info"
    files = {**package(), f"{stem}.data/data/{MANUAL}": _manual()}
    files |= {f"{information}/{name}": content for name, content in _information().items()}
    lines = [f"{path},sha256={_digest(content)},{len(content)}" for path, content in sorted(files.items())]
    files[f"{information}/RECORD"] = "\n".join([*lines, f"{information}/RECORD,,", ""]).encode()
    name = f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(Path(wheel_directory, name), "w") as wheel:
        for path, content in files.items():  # RECORD is the last one
            wheel.writestr(archive.entry(path), content)
    return name


def _manual() -> bytes:
    """Return the manual page, which the program makes of its own help."""
    with tempfile.NamedTemporaryFile(suffix=".pyz") as program:
        program.write(archive.pack(package()))
        program.flush()
        return subprocess.run([sys.executable, program.name, "__manual"], check=True, capture_output=True).stdout


def version() -> str:
    return str(importlib.import_module("module_utils._core.version").COLLECTION)


def package() -> Files:
    """Return the package: the command, what it reaches, and the library."""
    sources = {path.name: _ROOMS.sub(r"\1\2", path.read_text()) for path in sorted((HERE / PACKAGE).glob("*.py"))}
    files = {f"{PACKAGE}/{name}": text.encode() for name, text in sources.items()}
    programs = importlib.import_module("module_utils._boot.program_archive")
    for name, source in programs.sources(["_core.zip_imports", *_reached(sources)]).items():
        room, _dot, module = name.partition(".")
        files |= {f"{PACKAGE}/{room}/__init__.py": b"", f"{PACKAGE}/{room}/{module}.py": source.encode()}
    return files | {f"{PACKAGE}/_libraries/{path}": content for path, content in _library().items()}


def _reached(sources: dict[str, str]) -> Iterator[str]:
    """Yield the files of rooms that the command imports, such as ``_trace.packet``, and those that it loads by name."""
    programs = importlib.import_module("module_utils._boot.program_archive")
    for text in sources.values():
        yield from (name for name in programs.imported("", text) if name.startswith("_"))
    yield from (f"{room}.{path.stem}" for room in BY_NAME for path in sorted((PLUGINS / "module_utils" / room).glob("*.py")))


def _library() -> Files:
    """Return the modules of the library that are loaded to encode a message, its licences, and what names its version."""
    module = importlib.import_module("module_utils._platform.library")
    module.load(LIBRARY)
    loaded = [sys.modules[name] for name in sorted(sys.modules) if name.startswith(f"{LIBRARY}.")]
    (site,) = {str(path.__file__).rpartition(f"/{LIBRARY}/")[0] for path in loaded}
    paths = [Path(str(each.__file__)) for each in loaded]
    distribution = importlib.metadata.distribution(LIBRARY)
    paths += [Path(str(path.locate())) for path in distribution.files or () if re.search(r"/(METADATA|LICENSE[^/]*)$", str(path))]
    return {f"{LIBRARY}/__init__.py": b"", **{str(path.relative_to(site)): path.read_bytes() for path in paths}}


def _information() -> Files:
    tomllib = importlib.import_module("tomllib")  # of Python 3.11, which mypy does not know for 3.10
    project = tomllib.loads((HERE / "pyproject.toml").read_text())["project"]
    scripts = [f"{name} = {place}" for name, place in project["scripts"].items()]
    return {
        "METADATA": _metadata(project).encode(),
        "WHEEL": WHEEL.encode(),
        "entry_points.txt": "\n".join(["[console_scripts]", *scripts, ""]).encode(),
        "licenses/LICENSE": LICENSE.read_bytes(),
    }


def _metadata(project: dict[str, Any]) -> str:
    """Return the core metadata of the project (packaging.python.org/specifications/core-metadata)."""
    lines = [
        "Metadata-Version: 2.4",
        f"Name: {project['name']}",
        f"Version: {version()}",
        f"Summary: {project['description']}",
        f"Keywords: {','.join(project['keywords'])}",
        f"License-Expression: {project['license']}",
        "License-File: LICENSE",
        f"Requires-Python: {project['requires-python']}",
        *(f"Classifier: {classifier}" for classifier in project["classifiers"]),
        *(f"Project-URL: {name}, {url}" for name, url in project["urls"].items()),
        "Description-Content-Type: text/markdown",
    ]
    return "\n".join([*lines, "", (HERE / project["readme"]).read_text()])


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
