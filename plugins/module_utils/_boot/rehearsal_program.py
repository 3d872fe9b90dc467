# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a boot program tries before its unit is enabled: whether this Python has everything that the program imports."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import pkgutil
import re
import sys
import typing as t

# An import from this collection, at a module's head or inside a function.
_OWN_IMPORT = re.compile(r"^ *from (\.[\w.]*) import (\([^)]*\)|.*)", re.MULTILINE)
# An indented import of a module of Python. Few sources have one: to walk through all would take half of a rehearsal.
_INDENTED_IMPORT = re.compile(r"^ +(?:import|from) \w", re.MULTILINE)


def own_imports(package: str, source: str) -> t.Iterator[tuple[str, list[str]]]:
    """Yield what a module of ``package`` imports from this collection: the full name after ``from``, and the names after
    ``import``."""
    for relative, names in _OWN_IMPORT.findall(source):
        yield importlib.util.resolve_name(relative, package), re.findall(r"\w+", re.sub(r"#.*| as \w+", "", names))


def import_everything() -> None:
    """Import each module of this program, and what its functions import. Raises ImportError, SyntaxError."""
    program = sys.modules[__name__.partition(".")[0]]
    for part in pkgutil.walk_packages(program.__path__, f"{program.__name__}."):
        importlib.import_module(part.name)
        source = _source(part.name)
        for name, names in own_imports(part.name.rpartition(".")[0], source):
            _import(name, names)
        for node in _of_python(source):
            if isinstance(node, ast.ImportFrom):
                _import(node.module or "", [alias.name for alias in node.names])
            else:
                for alias in node.names:
                    importlib.import_module(alias.name)


def _source(name: str) -> str:
    spec = importlib.util.find_spec(name)
    loader = t.cast("importlib.abc.InspectLoader", spec and spec.loader)
    return loader.get_source(name) or ""


def _import(name: str, names: t.Sequence[str]) -> None:
    module = importlib.import_module(name)
    for member in names:
        if not hasattr(module, member):
            importlib.import_module(f"{name}.{member}")


def _of_python(source: str) -> t.Iterator[ast.Import | ast.ImportFrom]:
    """Yield the imports of Python's modules in functions, except those that the program can do without, as ctypes without
    libffi."""
    if not _INDENTED_IMPORT.search(source):
        return
    functions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)]
    inner = [node for function in functions for node in ast.walk(function)]
    optional = {id(node) for block in inner if isinstance(block, ast.Try) and _is_optional(block) for node in block.body}
    for node in inner:
        if id(node) not in optional and (isinstance(node, ast.Import) or (isinstance(node, ast.ImportFrom) and not node.level)):
            yield node


def _is_optional(block: ast.Try) -> bool:
    """Return whether the block handles an import that fails."""
    return any(isinstance(handler.type, ast.Name) and handler.type.id == "ImportError" for handler in block.handlers)
