# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""The boot program as one file: a zip archive that Python runs, made of the very modules that the Ansible modules use."""

from __future__ import annotations

import importlib
import inspect
import io
import types
import zipfile

MAIN = "import sys\n\nfrom kubenode.{} import main\n\nsys.exit(main())\n"
# The archive says the same whenever it is made: no clock in it. The earliest date that a zip archive can hold.
DATE = (1980, 1, 1, 0, 0, 0)


def archive(agent: types.ModuleType) -> str:
    """The program that ``agent``, a module of _agent/, is, with what it names as PARTS.

    Its bytes are returned as text, in which those that are no UTF-8 are surrogates.
    """
    root, _dot, name = agent.__name__.rpartition("._agent.")
    sources = {"__main__.py": MAIN.format(f"_agent.{name}"), "kubenode/__init__.py": ""}
    for part in (f"_agent.{name}", *agent.PARTS):
        folder, _dot, _name = part.rpartition(".")
        if folder:
            sources[f"kubenode/{folder}/__init__.py"] = ""
        module = importlib.import_module(f"{root}.{part}")
        sources[f"kubenode/{part.replace('.', '/')}.py"] = inspect.getsource(module)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as zipped:  # not compressed: an operator can read what his node runs
        for path, source in sorted(sources.items()):
            zipped.writestr(zipfile.ZipInfo(path, DATE), source)
    return packed.getvalue().decode("utf-8", "surrogateescape")
