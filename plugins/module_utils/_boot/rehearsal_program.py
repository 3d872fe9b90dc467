# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""What a boot program tries before its unit is enabled: whether this Python has everything that the program imports."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import pkgutil
import re
import sys
import typing as t

_INDENTED_IMPORT = re.compile(r"^\s+(?:import|from) ", re.MULTILINE)


def import_everything() -> None:
    """Imports each module of this program, and what its functions import. Raises ImportError, SyntaxError."""
    program = sys.modules[__name__.partition(".")[0]]
    for part in pkgutil.walk_packages(program.__path__, f"{program.__name__}."):
        importlib.import_module(part.name)
        for node in _within_functions(_source(part.name)):
            _import(node, part.name.rpartition(".")[0])


def _source(name: str) -> str:
    spec = importlib.util.find_spec(name)
    loader = t.cast("importlib.abc.InspectLoader", spec and spec.loader)
    return loader.get_source(name) or ""


def _within_functions(source: str) -> t.Iterator[ast.Import | ast.ImportFrom]:
    """The imports inside functions, except those that the program can do without: ctypes, if Python lacks libffi."""
    if not _INDENTED_IMPORT.search(source):  # true of most sources; to parse one takes as long as everything else here
        return
    functions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)]
    inner = [node for function in functions for node in ast.walk(function)]
    optional = {id(node) for one in inner if isinstance(one, ast.Try) and _is_optional(one) for node in one.body}
    for node in inner:
        if isinstance(node, (ast.Import, ast.ImportFrom)) and id(node) not in optional:
            yield node


def _is_optional(block: ast.Try) -> bool:
    """True if the block handles an import that fails."""
    return any(isinstance(one.type, ast.Name) and one.type.id == "ImportError" for one in block.handlers)


def _import(node: ast.Import | ast.ImportFrom, package: str) -> None:
    if isinstance(node, ast.Import):
        for alias in node.names:
            importlib.import_module(alias.name)
        return
    name = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
    module = importlib.import_module(name)
    for alias in node.names:
        if not hasattr(module, alias.name):
            importlib.import_module(f"{name}.{alias.name}")
