# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rooms of plugins/module_utils, the imports that each may have, and the kind of a file by its name."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent / "plugins/module_utils"

# A room may import itself and the rooms named here. Each room is below all rooms that name it: there are no cycles.
ROOMS: dict[str, tuple[str, ...]] = {
    "_core": (),
    "_program": (),
    "_files": ("_core",),
    "_platform": ("_core", "_program", "_files"),
    "_netlink": ("_core",),
    "_bpf": ("_core", "_netlink"),
    "_systemd": ("_core", "_files", "_platform"),
    "_boot": ("_core", "_files", "_platform", "_systemd"),
}
SERVICES = tuple(ROOMS)
SUBJECTS = {
    "_kubelet": (),
    "_rp_filter": (),
    "_routing": (),
    "_cloud": ("_routing",),
    "_network_daemons": (),
    "_interfaces": ("_kubelet", "_routing"),
    "_netfilter": (),
    "_ruleset": ("_netfilter",),
    "_cni": ("_interfaces", "_netfilter", "_routing", "_ruleset"),
    "_discovery": ("_cloud", "_interfaces", "_routing"),
    "_nftables": ("_kubelet", "_routing", "_rp_filter"),
    "_ebtables": ("_netfilter",),
    "_leftovers": ("_cni", "_ebtables", "_interfaces", "_netfilter", "_routing"),
    "_snapshot": ("_cni", "_ebtables", "_interfaces", "_netfilter", "_network_daemons", "_routing", "_ruleset"),
    "_listener": ("_discovery", "_interfaces", "_kubelet", "_routing", "_snapshot"),
    "_probe_snat": ("_cloud", "_cni", "_kubelet", "_listener", "_nftables"),
    "_pastes": ("_cni", "_netfilter", "_routing", "_ruleset", "_snapshot"),
    "_twin": ("_ebtables", "_interfaces", "_netfilter", "_nftables", "_probe_snat", "_routing", "_ruleset", "_snapshot"),
    "_commands": ("_ebtables", "_netfilter", "_ruleset", "_twin"),
    "_checkpoint": (),
    # Checks the variables of a role by the models of their subjects.
    "_profiles": (
        *("_checkpoint", "_cloud", "_cni", "_discovery", "_interfaces", "_kubelet", "_leftovers"),
        *("_nftables", "_probe_snat", "_routing"),
    ),
}
ROOMS |= {room: (*SERVICES, *others) for room, others in SUBJECTS.items()}
ROOMS["_parts"] = tuple(ROOMS)
ROOMS["_trace"] = tuple(ROOMS)  # applies changes by the code of any module
ROOMS["_audit"] = tuple(ROOMS)
ROOMS["_explain"] = tuple(ROOMS)
ROOMS["_queries"] = tuple(ROOMS)
ENTRANCES = {"_queries": "_module"}  # files above the rooms, by the room that may import them
ROOMS["_render"] = ("_core", "_snapshot", "_trace", "_audit")
# Each fact has one reader: a rule of nft's JSON that another file reads, two of them will understand differently on some node.
# These alone may name the keys of such rules: the reader of rulesets, that of the collection's own tables, and that of foreign
# rules that a twin gets as they are.
NFT_KEYS = ("expr", "payload")
NFT_READERS = ("_ruleset/nft_json.py", "_ruleset/nft_objects.py", "_nftables/nft_table.py")
# A twin is built from the values of a snapshot. These alone look at a plain one, before it is read: at its form, its size, and
# the routes that matter.
BORDER = ("bounds.py", "full_table.py", "snapshot_form.py")
KEYS_OF_OTHERS = {
    "blueprint.py": {"bridge", "uidrange"},  # of a table of kinds of links, and of the options of a rule
    "build_backend.py": {"nftables"},  # of what nft prints of the twin
    "isolation_backend.py": {"__loader__", "error", "kind", "result", "traceback"},  # of a message
    "lacking.py": {"dev", "family"},  # words of a line for ip
    "legacy_half.py": {"chain", "jump", "rest", "verb"},  # of a regular expression
    "vrfs.py": {"table"},  # of the settings of a link
    "worlds.py": {"rp_filter"},  # of the settings of the kernel
}
CONTROLLER = ("_pastes", "_render")  # rooms that no module imports: as plugin_utils/_program.py
MOST_FILES = 25  # a dozen is usual; a room has more where another room would only move a word
MODELS = (
    *("_platform/node_mode.py", "_platform/sysctl_files.py", "_netlink/attributes.py"),
    *("_bpf/instructions.py", "_systemd/boot_unit.py", "_systemd/program_words.py"),
)

KINDS = {
    "backend": lambda name: name.endswith(("_backend", "_backends")),
    "resource": lambda name: name.endswith("_resource") or name.startswith(("live_", "boot_")),
    "guard": lambda name: name.endswith("_guards"),
    "node program": lambda name: name.endswith("_program"),
}


def kind(path: Path) -> str:
    """Return the kind of a subject's file. A file without a mark in its name is a model, which is pure."""
    return next((kind for kind, matches in KINDS.items() if matches(path.stem)), "model")


def files(room: str) -> list[Path]:
    return sorted(path for path in (ROOT / room).glob("*.py") if path.name != "__init__.py")


def models() -> list[Path]:
    """Return the pure files: those of the core, those in MODELS, and of each subject those of no other kind."""
    named = [ROOT / name for name in MODELS]
    return files("_core") + named + [path for room in SUBJECTS for path in files(room) if kind(path) == "model"]


def keys(path: Path) -> Iterator[str]:
    """Yield the texts by which a file looks up entries of dictionaries."""
    for node in ast.walk(ast.parse(path.read_text())):
        looked_up = node.slice if isinstance(node, ast.Subscript) else None
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("get", "pop"):
            looked_up = next(iter(node.args), None)
        if isinstance(looked_up, ast.Constant) and isinstance(looked_up.value, str):
            yield looked_up.value


def called(path: Path) -> Iterator[str]:
    """Yield what a file calls, as it stands there."""
    yield from (ast.unparse(node.func) for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call))


def plain_readings(path: Path) -> Iterator[str]:
    """Yield the expressions by which a check of the audit reads a snapshot itself, and not the values of a node."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and node.attr in ("snapshot", "demand"):
            yield f"{path.name}: {ast.unparse(node)}"
    yield from (f"{path.name}: {key}" for key in keys(path) if key not in OTHER_KEYS)


OTHER_KEYS = ("aws_vpc_cni", "interface")  # of a table of CNIs and of a packet
SENTENCES = ("reason", "sentence", "what", "clause", "text")  # fields that are for people
_PARSING = (
    *("startswith", "endswith", "partition", "rpartition", "split", "find", "removeprefix", "removesuffix"),
    *("search", "match", "fullmatch", "findall", "finditer"),
)


def decisions_by_words(path: Path) -> Iterator[str]:
    """Yield the expressions by which a file compares or parses a sentence of an answer or a finding."""
    for node in ast.walk(ast.parse(path.read_text())):
        operands: list[ast.expr] = []
        if isinstance(node, ast.Compare):
            operands = [node.left, *node.comparators]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _PARSING:
            operands = [node.func.value, *node.args]
        if any(map(_is_sentence, operands)):
            yield f"{path.parent.name}/{path.name}: {ast.unparse(node)}"


def _is_sentence(node: ast.expr) -> bool:
    name = node.slice.value if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) else ""
    return (node.attr if isinstance(node, ast.Attribute) else name) in SENTENCES


def imported(path: Path) -> Iterator[tuple[str, ...]]:
    """Yield what a file imports: ("", module) for Python's own, (room, file) for the collection's."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (("", alias.name.partition(".")[0]) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield "", (node.module or "").partition(".")[0]
        elif isinstance(node, ast.ImportFrom):
            words = [path.parent.name] * (node.level == 1) + (node.module.split(".") if node.module else [])
            yield from ([(words[0], words[1])] if len(words) > 1 else [(words[0], alias.name) for alias in node.names])
