# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A node program as one file: a zip archive that Python runs, made of the same modules that the Ansible modules use."""

from __future__ import annotations

import io
import os
import typing as t
import zipfile

from .rehearsal_program import own_imports

if t.TYPE_CHECKING:
    import importlib.abc

# Any Python can run this part, 2.7 as well. It names the version that is needed (interpreters.OLDEST). 255 fails a unit.
MAIN = """\
import sys

if sys.version_info < (3, 9):
    found = (sys.executable, sys.version.split()[0])
    sys.stderr.write("kubenode.datapath needs Python 3.9 or newer at boot; %s is Python %s.\\n" % found)
    sys.exit(255)

import kubenode._core.zip_imports
{}from kubenode.{} import main

sys.exit(main())
"""
# A fixed date, so that the same sources always give the same bytes: the earliest that a zip archive can hold.
DATE = (1980, 1, 1, 0, 0, 0)


def archive(program: str, loaded: t.Collection[str] = ()) -> str:
    """Return a node program with all modules that it imports from this collection. program: as ``_probe_snat.ipv6_program``.

    loaded: modules that it loads when it starts, with all that these import, in functions too: so it needs its archive no more.
    The modules are read and not imported, because most runs find the program in place. The archive's bytes are returned as text,
    in which bytes that are not UTF-8 are surrogates.
    """
    imports = "".join(f"import kubenode.{name}\n" for name in sorted(sources(loaded)))
    files = {"__main__.py": MAIN.format(imports, program), "kubenode/__init__.py": ""}
    for name, source in sources([program, *loaded, "_core.zip_imports"]).items():
        room, _dot, module = name.partition(".")
        files |= {f"kubenode/{room}/__init__.py": "", f"kubenode/{room}/{module}.py": source}
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as zipped:  # not compressed, so that an operator can read what the node runs
        for path, source in sorted(files.items()):
            zipped.writestr(zipfile.ZipInfo(path, DATE), source)
    return packed.getvalue().decode("utf-8", "surrogateescape")


def sources(names: t.Iterable[str]) -> dict[str, str]:
    """Map the names of these modules, and of all modules that they import, directly or not, to their sources."""
    ahead, texts = [*names], {}
    while ahead:
        name = ahead.pop()
        if name not in texts:
            texts[name] = _source(name)
            ahead += imported(name.partition(".")[0], texts[name])
    return texts


def _source(name: str) -> str:
    """Ask the loader, as this file may lie in an archive. To find a module in an archive, Python would compile its source."""
    path = os.path.join(os.path.dirname(os.path.dirname(__file__)), *name.split("."))
    try:
        return t.cast("importlib.abc.FileLoader", __spec__ and __spec__.loader).get_data(f"{path}.py").decode()
    except OSError as error:
        raise ModuleNotFoundError(f"{name}, a part of the boot program, is missing") from error


def imported(room: str, source: str) -> t.Iterator[str]:
    """Yield the modules that a source in a room imports: the one named after ``from``, or those named in a room.

    room: empty for a source beside the rooms.
    """
    for full_name, names in own_imports(f"kubenode.{room}".rstrip("."), source):
        base = full_name.partition(".")[2]
        yield from [base] if "." in base else [f"{base}.{name}" for name in names]
