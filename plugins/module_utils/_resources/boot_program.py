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

# What each program of _agent/ is made of, besides itself.
MODULES = {
    "boot": ("_model.metadata", "_model.problem", "_system.imds", "_system.kernel"),
    "routes": (
        "_converge", "_model.attributes", "_model.fields", "_model.policy", "_model.problem", "_model.route",
        "_model.rt_names", "_model.rule", "_resources.policy_state", "_system.library", "_system.lock",
        "_system.netlink", "_system.rt_tables",
    ),
}  # fmt: skip
MAIN = "import sys\n\nfrom kubenode._agent.{} import main\n\nsys.exit(main())\n"
# The archive says the same whenever it is made: no clock in it. The earliest date that a zip archive can hold.
DATE = (1980, 1, 1, 0, 0, 0)


def archive(program: types.ModuleType | None = None) -> str:
    """The bytes of a program of _agent/, by default boot, as text in which those that are no UTF-8 are surrogates."""
    if program is None:
        # Not imported above: a run that places no boot program shall not pay for it. Ansible sends along what it sees imported.
        from .._agent import boot

        program = boot
    root, _, agent = program.__name__.rpartition("._agent.")
    sources = {"__main__.py": MAIN.format(agent), "kubenode/__init__.py": ""}
    for name in (f"_agent.{agent}", *MODULES[agent]):
        if "." in name:
            sources[f"kubenode/{name.partition('.')[0]}/__init__.py"] = ""
        module = importlib.import_module(f"{root}.{name}")
        sources[f"kubenode/{name.replace('.', '/')}.py"] = inspect.getsource(module)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as zipped:  # not compressed: an operator can read what his node runs
        for name, source in sorted(sources.items()):
            zipped.writestr(zipfile.ZipInfo(name, DATE), source)
    return packed.getvalue().decode("utf-8", "surrogateescape")
