# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The documentation site; `make docs` builds it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from generators import drawings

TESTS = Path(__file__).resolve().parents[1]
DOCS = TESTS.parent / "docs"


def test_the_list_of_guides_for_the_ansible_documentation_names_each_guide() -> None:
    named = re.findall(r"/docs/([\w-]+\.md)>", (DOCS / "docsite/rst/guides.rst").read_text())
    assert sorted(named) == sorted(path.name for path in DOCS.glob("*.md"))


@pytest.mark.parametrize("page", ["reliability.md", "threat-model.md"])
def test_each_promise_names_tests_that_exist(page: str) -> None:
    named = re.findall(r"^- `([\w/]+\.py)::(\w+)`", (DOCS / page).read_text(), re.MULTILINE)
    assert named
    missing = [name for path, name in named if f"def {name}(" not in (TESTS / path).read_text()]
    assert not missing


def test_the_site_has_each_guide_in_a_list() -> None:
    """A page in none of the lists fails the build of the site, which `make test` leaves out."""
    named = re.findall(r"^docs/([\w-]+)$", (DOCS / "docsite/site/index.md").read_text(), re.MULTILINE)
    assert sorted(named) == sorted(path.stem for path in DOCS.glob("*.md"))


def test_the_drawings_are_those_of_their_descriptions() -> None:
    drawn = {name: drawings.svg(panel) for name, panel in drawings.PANELS.items()}
    assert drawn == {name: (drawings.FOLDER / f"{name}.svg").read_text() for name in drawn}, "run `make docs`"


def test_each_picture_is_shown_on_a_page() -> None:
    pages = "".join(
        path.read_text() for path in [*DOCS.glob("*.md"), *DOCS.parent.glob("deploy/**/*.md"), DOCS.parent / "README.md"]
    )
    assert set(re.findall(r"pictures/([\w.-]+)", pages)) == {path.name for path in drawings.FOLDER.iterdir()}


def test_the_page_of_modules_names_each_module_and_plugin() -> None:
    page = (DOCS / "modules.md").read_text()
    folders = ("callback", "connection", "filter", "inventory", "lookup", "modules")
    public = {path.stem for folder in folders for path in (DOCS.parent / "plugins" / folder).glob("*.py")}
    assert public <= set(re.findall(r"`(\w+)`", page))
    listed = re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)
    assert listed == sorted(listed) == sorted({path.stem for path in (DOCS.parent / "plugins/modules").glob("*.py")})


def test_the_readme_links_no_picture_that_the_collection_lacks() -> None:
    """Galaxy shows the README alone, so that a relative picture would be a broken one."""
    pictures = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", (DOCS.parent / "README.md").read_text())
    assert pictures and all(picture.startswith("https://") for picture in pictures)
    of_repository = [name for picture in pictures for name in re.findall(r"datapath/main/(docs/.*)", picture)]
    assert of_repository and all((DOCS.parent / name).is_file() for name in of_repository)
