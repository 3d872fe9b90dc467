# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Evidence about a node as a snapshot: a file, a folder, standard input, this node, or a node of a cluster."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import typing as t

from ansible_collections.kubenode.datapath.plugins.module_utils._audit import catalogue
from ansible_collections.kubenode.datapath.plugins.module_utils._audit.context import Context
from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Invalid, Refusal
from ansible_collections.kubenode.datapath.plugins.module_utils._pastes import pastes_backend
from ansible_collections.kubenode.datapath.plugins.module_utils._pastes.archive_backend import MOST_BYTES
from ansible_collections.kubenode.datapath.plugins.module_utils._platform import process
from ansible_collections.kubenode.datapath.plugins.module_utils._snapshot import snapshot_backend
from ansible_collections.kubenode.datapath.plugins.module_utils._snapshot.snapshot import SUBSETS

from . import cluster
from .arguments import LIVE, STDIN


class Evidence(t.NamedTuple):
    """snapshot: in the format of datapath_info. ignored: sentences about lines that were not understood.

    source: where it is from. is_own: whether it is about this node.
    """

    snapshot: dict[str, t.Any]
    ignored: list[str]
    source: str
    is_own: bool = False


def this_node(subsets: t.Sequence[str] = SUBSETS, is_compact: bool = False) -> dict[str, t.Any]:
    """Read this node. Raises Refusal without root. is_compact: as of snapshot_backend.read()."""
    if os.geteuid() != 0:
        raise Refusal(f"root is needed to read this node, and this is user {os.geteuid()}. Run it again with sudo")
    return snapshot_backend.read(process.run, subsets, catalogue.SETTINGS, is_compact)


def evidence(options: argparse.Namespace, is_plugin: bool, subsets: t.Sequence[str], interface: str = "") -> Evidence:
    """Read what the options of a command name.

    subsets: of a snapshot of this node. interface: by which a packet comes in. Raises DatapathError.
    """
    if is_plugin:
        return Evidence(cluster.snapshot(options), [], "a node of the cluster")
    if options.evidence == [LIVE]:
        return Evidence(this_node((*subsets, "versions"), is_compact=True), [], "this node", is_own=True)
    if LIVE in options.evidence:
        raise Invalid("dump", " ".join(options.evidence), f"{LIVE} alone, or evidence that was collected")
    return _read(options.evidence, options.node, interface)


def of_dump(dump: t.Any, node: str, interface: str) -> Evidence:
    """Read one place, or outputs by their names. dump: a path, STDIN, LIVE, or a dictionary. Raises DatapathError."""
    if dump == LIVE:
        return Evidence(this_node(), [], "this node", is_own=True)
    return _read([dump], node, interface)


def context_of(options: argparse.Namespace) -> dict[str, t.Any]:
    """Return what no node shows, as the options of a command have it."""
    return {name: getattr(options, name) for name in Context._fields}


def _read(evidence: t.Sequence[t.Any], node: str, interface: str) -> Evidence:
    """Read files, folders and standard input. node, interface: as for pastes_backend.read(). Raises Invalid."""
    source = ", ".join("standard input" if each == STDIN else str(each) for each in evidence)
    with tempfile.TemporaryFile() as file:  # an archive is read from a file; this one has no name, and ends with the program
        if STDIN in evidence:
            _copy(sys.stdin.buffer, file)
        places = [f"/dev/fd/{file.fileno()}" if each == STDIN else each for each in evidence]
        return Evidence(*pastes_backend.read(places, node, interface), source)


def _copy(source: t.BinaryIO, target: t.IO[bytes]) -> None:
    """Copy a stream. Raises Invalid for more bytes than an archive may have."""
    size = 0
    while block := source.read(1 << 20):
        size += len(block)
        if size > MOST_BYTES:
            raise Invalid("dump", STDIN, f"an input of at most {MOST_BYTES} bytes")
        target.write(block)
    target.flush()
