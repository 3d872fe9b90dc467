# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The shape of a snapshot."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._core import version
from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Invalid
from ansible_collections.kubenode.datapath.plugins.module_utils._snapshot import snapshot, snapshot_backend, software_backend
from ansible_collections.kubenode.datapath.plugins.module_utils._snapshot.snapshot import Unread

GALAXY = Path(__file__).resolve().parents[3] / "galaxy.yml"


def test_each_subset_has_a_reader() -> None:
    assert (*snapshot_backend.READERS, *software_backend.READERS) == snapshot.SUBSETS


def test_subsets_are_read_once_and_in_one_order() -> None:
    assert snapshot.subsets(["routes", "links", "routes"]) == ["links", "routes"]
    with pytest.raises(Invalid, match=r"gather must be a list of at least one of links, .*; \[\] was given"):
        snapshot.subsets([])


def test_what_could_not_be_read_is_named_beside_the_rest() -> None:
    composed = snapshot.compose({"links": [], "nftables": None}, [Unread("nftables", "", "nft is not installed.")])
    assert composed == {
        "format": 1,
        "links": [],
        "nftables": None,
        "unread": [{"subset": "nftables", "object": "", "reason": "nft is not installed."}],
    }


def test_the_version_of_the_collection_is_that_of_galaxy() -> None:
    assert re.search(r"^version: (\S+)$", GALAXY.read_text(), re.MULTILINE)[1] == version.COLLECTION  # type: ignore[index]
