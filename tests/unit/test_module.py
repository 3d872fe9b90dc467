# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a module prints."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("ansible")

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.kubenode.datapath.plugins.module_utils._module import Module


@pytest.mark.parametrize("secrets", [set[str](), {"hidden"}])
def test_only_with_secrets_data_are_searched_for_them(secrets: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """On an ansible-core before 2.19, which encodes a result by the method jsonify."""
    searched: list[dict[str, Any]] = []
    printed: list[str] = []

    def return_formatted(self: Module, kwargs: dict[str, Any]) -> None:
        searched.append(kwargs)
        printed.append(self.jsonify(kwargs))

    monkeypatch.setattr(AnsibleModule, "_return_formatted", return_formatted)
    module = Module.__new__(Module)
    module.no_log_values, module._verbosity, module._data = secrets, 0, ("snapshot",)
    module._return_formatted({"changed": False, "snapshot": {"links": ["eth0"]}})
    assert ("snapshot" in searched[0]) == bool(secrets)
    assert json.loads(printed[0]) == {"changed": False, "snapshot": {"links": ["eth0"]}}
