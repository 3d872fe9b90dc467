# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""A node program as one file: a zip archive that Python runs, made of the same modules that the Ansible modules use."""

from __future__ import annotations

import functools
import importlib.util
import io
import typing as t
import zipfile

from .rehearsal_program import own_imports

if t.TYPE_CHECKING:
    import importlib.abc
    import importlib.machinery

# Any Python can run this part, 2.7 as well. It names the version that is needed (interpreters.OLDEST). 255 fails a unit.
MAIN = """\
import sys

if sys.version_info < (3, 9):
    found = (sys.executable, sys.version.split()[0])
    sys.stderr.write("kubenode.datapath needs Python 3.9 or newer at boot; %s is Python %s.\\n" % found)
    sys.exit(255)

from kubenode.{} import main

sys.exit(main())
"""
# A fixed date, so that the same sources always give the same bytes: the earliest that a zip archive can hold.
DATE = (1980, 1, 1, 0, 0, 0)


def archive(program: str) -> str:
    """A node program with all modules that it imports from this collection. program: as ``_nftables.ipv6_program``.

    The modules are read and not imported, because most runs find the program in place. The archive's bytes are returned as text,
    in which bytes that are not UTF-8 are surrogates.
    """
    root = __name__.rpartition("._boot.")[0]
    sources = {"__main__.py": MAIN.format(program), "kubenode/__init__.py": ""}
    for full_name, source in _sources(f"{root}.{program}").items():
        part = full_name[len(root) + 1 :]
        folder, _dot, _name = part.rpartition(".")
        if folder:
            sources[f"kubenode/{folder}/__init__.py"] = ""
        sources[f"kubenode/{part.replace('.', '/')}.py"] = source
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as zipped:  # not compressed, so that an operator can read what the node runs
        for path, source in sorted(sources.items()):
            zipped.writestr(zipfile.ZipInfo(path, DATE), source)
    return packed.getvalue().decode("utf-8", "surrogateescape")


def _sources(first: str) -> dict[str, str]:
    """By full name, the sources of a module and of all modules that it imports, directly or not."""
    ahead, found = [first], {}
    while ahead:
        name = ahead.pop()
        if name not in found:
            found[name] = t.cast("importlib.abc.InspectLoader", _spec(name).loader).get_source(name) or ""
            ahead += _imported(name.rpartition(".")[0], found[name])
    return found


def _imported(package: str, source: str) -> t.Iterator[str]:
    """The full names of the modules that a source imports: the one named after ``from``, or those named in a package."""
    for base, names in own_imports(package, source):
        is_package = _spec(base).submodule_search_locations is not None
        yield from [f"{base}.{name}" for name in names] if is_package else [base]


@functools.cache
def _spec(name: str) -> importlib.machinery.ModuleSpec:
    found = importlib.util.find_spec(name)
    if found is None:
        raise ModuleNotFoundError(f"{name}, a part of the boot program, is missing")
    return found
