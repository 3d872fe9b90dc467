# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Reads the settings of the node's network from /proc/sys."""

from __future__ import annotations

import socket
import typing as t

from .._core.names import DOTTED
from .._platform import kernel, process
from . import settings as model
from .snapshot import Notes


def settings(_run: process.Runner, _note: Notes) -> dict[str, t.Any]:
    """Return settings of the node and of each link, and effective values. A setting that the kernel lacks is left out."""
    names = [model.ALL, model.DEFAULT, *(name for _index, name in socket.if_nameindex())]
    by_family = {family: _of_links(family, names) for family in model.FAMILIES}
    return {
        "node": {key.translate(DOTTED): value for key, value in _read(model.NODE).items()},
        **by_family,
        "effective": {family: model.effective(family, by_link) for family, by_link in by_family.items()},
    }


def _of_links(family: str, names: t.Iterable[str]) -> dict[str, dict[str, int]]:
    """Return the settings by link, without links that have disappeared since; none if the kernel lacks the family."""
    folders = {name: f"net/{family}/conf/{name}" for name in names}
    read = {name: _read(f"{folder}/{key}" for key in model.LINK[family]) for name, folder in folders.items()}
    return {name: {key.rpartition("/")[2]: value for key, value in values.items()} for name, values in read.items() if values}


def _read(keys: t.Iterable[str]) -> dict[str, int]:
    values = ((key, kernel.setting(key)) for key in keys)
    return {key: value for key, value in values if value is not None}
