# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""The boot program as one file: a zip archive that Python runs, made of the very modules that the Ansible modules use."""

from __future__ import annotations

import importlib.util
import inspect
import io
import re
import sys
import types
import typing as t
import zipfile

MAIN = "import sys\n\nfrom kubenode.{} import main\n\nsys.exit(main())\n"
# The archive says the same whenever it is made: no clock in it. The earliest date that a zip archive can hold.
DATE = (1980, 1, 1, 0, 0, 0)
# What a module of ours imports of ours, as it begins; what it imports later, where it needs it, is given with it.
IMPORT = re.compile(r"^from (\.[\w.]*) import (\([^)]*\)|.*)", re.MULTILINE)


def archive(*agents: types.ModuleType) -> str:
    """The program that the first of ``agents``, modules of _agent/, is, with the others and with all that they import of ours.

    Its bytes are returned as text, in which those that are no UTF-8 are surrogates.
    """
    root, _dot, name = agents[0].__name__.rpartition("._agent.")
    sources = {"__main__.py": MAIN.format(f"_agent.{name}"), "kubenode/__init__.py": ""}
    for full_name, source in _sources(agents).items():
        part = full_name[len(root) + 1 :]
        folder, _dot, _name = part.rpartition(".")
        if folder:
            sources[f"kubenode/{folder}/__init__.py"] = ""
        sources[f"kubenode/{part.replace('.', '/')}.py"] = source
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as zipped:  # not compressed: an operator can read what his node runs
        for path, source in sorted(sources.items()):
            zipped.writestr(zipfile.ZipInfo(path, DATE), source)
    return packed.getvalue().decode("utf-8", "surrogateescape")


def _sources(agents: t.Iterable[types.ModuleType]) -> dict[str, str]:
    """By name, those of ``agents`` and of the modules that they import, and these."""
    ahead, found = [agent.__name__ for agent in agents], {}
    while ahead:
        name = ahead.pop()
        if name not in found:
            found[name] = inspect.getsource(sys.modules[name])
            ahead += _imported(name.rpartition(".")[0], found[name])
    return found


def _imported(package: str, source: str) -> t.Iterator[str]:
    """Either the module itself is imported, or what is in it."""
    for relative, names in IMPORT.findall(source):
        base = importlib.util.resolve_name(relative, package)
        modules = {f"{base}.{name}" for name in re.findall(r"\w+", re.sub(r"#.*| as \w+", "", names))}
        yield from modules & sys.modules.keys() or {base}
