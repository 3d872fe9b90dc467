# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A twin needs programs of its machine; the error of a module says that the controller can rebuild the node instead."""

from __future__ import annotations

import pytest

pytest.importorskip("ansible")

from ansible_collections.kubenode.datapath.plugins.module_utils import _module  # noqa: E402
from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import MissingProgram  # noqa: E402
from ansible_collections.kubenode.datapath.plugins.module_utils._twin import build_backend  # noqa: E402


def test_a_node_without_nft_is_told_of_the_controller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_backend, "NFT", ("no-such-nft", "nftables"))
    with pytest.raises(MissingProgram, match=r"^no-such-nft \(package nftables\) .*not installed$") as raised:
        build_backend.require_programs()
    assert _module._advice(raised.value).endswith("set trace_on_controller=true or audit_on_controller=true")
