# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The templates of packer/: their plugins are declared, and the roles accept the defaults. make image validates and builds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ansible")
hcl2 = pytest.importorskip("hcl2")

from ansible_collections.kubenode.datapath.plugins.plugin_utils import _profiles  # noqa: E402

FOLDER = Path(__file__).resolve().parents[3] / "packer"
TEMPLATES = sorted(path for path in FOLDER.glob("*.pkr.hcl") if path.name != "plugins.pkr.hcl")
BUILT_IN = {"null", "shell", "shell-local"}  # of each Packer
PLUGIN_OF = {"azure-arm": "azure", "amazon-ebs": "amazon"}


def plain(value: Any) -> Any:
    """Return a value without the quotes that the parser keeps."""
    if isinstance(value, dict):
        return {plain(key): plain(content) for key, content in value.items()}
    if isinstance(value, list):
        return [plain(content) for content in value]
    return value.strip('"') if isinstance(value, str) else value


def parsed(path: Path) -> dict[str, Any]:
    with path.open() as file:
        result: dict[str, Any] = plain(hcl2.load(file))
    return result


def names(blocks: list[dict[str, Any]]) -> set[str]:
    return {name for block in blocks for name in block}


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_the_plugins_of_a_template_are_declared(path: Path) -> None:
    (block,) = parsed(FOLDER / "plugins.pkr.hcl")["packer"]
    declared = names(block["required_plugins"])
    template = parsed(path)
    used = names(template["source"]) | names([entry for build in template["build"] for entry in build["provisioner"]])
    assert {PLUGIN_OF.get(name, name) for name in used - BUILT_IN} <= declared


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_the_roles_accept_the_defaults_of_a_template(path: Path) -> None:
    defaults = {name: block.get("default") for entry in parsed(path)["variable"] for name, block in entry.items()}
    assert {*defaults["profiles"]} <= {*_profiles.PROFILES}
    for profile in defaults["profiles"] if defaults["node_variables"] else ():
        assert _profiles.unknown(profile, defaults["node_variables"]) == []
        raw = {name[len(profile) + 1 :]: value for name, value in defaults["node_variables"].items()}
        assert _profiles.check(profile, {**raw, "mode": "image"}).errors == []
