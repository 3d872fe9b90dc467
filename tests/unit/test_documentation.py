# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The documentation: its site, which `make docs` builds, its pages of checks, and what they promise."""

from __future__ import annotations

import datetime
import fnmatch
import re
from pathlib import Path
from typing import Any

import house
import pytest

pytest.importorskip("yaml")

from ansible_collections.kubenode.datapath.plugins.module_utils._audit import catalogue  # noqa: E402
from generators import check_catalogue, drawings, profile_facts  # noqa: E402
from publishing import site_versions  # noqa: E402

TESTS = Path(__file__).resolve().parents[1]
DOCS = TESTS.parent / "docs"


def test_the_list_of_guides_for_the_ansible_documentation_names_each_guide() -> None:
    listed = re.findall(r"/docs/([\w-]+\.md)>", (DOCS / "docsite/rst/guides.rst").read_text())
    assert sorted(listed) == sorted(path.name for path in DOCS.glob("*.md"))


@pytest.mark.parametrize("page", ["reliability.md", "threat-model.md"])
def test_each_promise_names_tests_that_exist(page: str) -> None:
    listed = re.findall(r"^- `([\w/]+\.py)::(\w+)`", (DOCS / page).read_text(), re.MULTILINE)
    assert listed
    missing = [name for path, name in listed if f"def {name}(" not in (TESTS / path).read_text()]
    assert not missing


def test_the_site_has_each_guide_in_a_list() -> None:
    """A page in none of the lists fails the build of the site, which `make test` leaves out."""
    listed = re.findall(r"^docs/([\w-]+)$", (DOCS / "docsite/site/index.md").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(path.stem for path in DOCS.glob("*.md"))


def test_the_first_screen_has_the_words_of_troubles_and_leads_each_reader_to_a_page_of_half_a_screen() -> None:
    head = " ".join((DOCS.parent / "README.md").read_text().partition("## Description")[0].split())
    for word in ("LoadBalancer", "NodePort", "time out", "health probe", "`rp_filter`", "martian"):
        assert word in head
    pages = sorted(path.name for path in DOCS.glob("for-*.md"))
    assert len(pages) == 6 and sorted(re.findall(r"docs/(for-[\w-]+\.md)", head)) == pages
    assert max(len((DOCS / page).read_text().split()) for page in pages) < 250


REPOSITORY = re.compile(r"https://github\.com/kubenode/datapath/(?:blob|tree)/main/")
LINK = re.compile(r'\]\(([^)\s]+)\)|(?:src|srcset|href)="([^"]+)"')
PAGES = [
    path.relative_to(DOCS.parent)
    for pattern in ("*.md", "docs/*.md", "roles/*/README.md", "deploy/**/*.md", "examples/*.md")
    for path in DOCS.parent.glob(pattern)
    if path.name != "CHANGELOG.md"  # whose anchors are its generator's
]


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page as GitHub makes them."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_each_link_leads_to_a_file_and_a_heading_and_none_leaves_the_archive(page: Path) -> None:
    """The pages that Galaxy installs name what it does not install by its address in the repository."""
    root, is_packed = DOCS.parent, not is_left_out(page)
    for link in filter(None, (word for pair in LINK.findall((root / page).read_text()) for word in pair)):
        address, _hash, anchor = REPOSITORY.sub("", link).partition("#")
        if "://" in address or address.startswith("mailto:"):
            continue
        folder = root if REPOSITORY.match(link) else (root / page).parent
        target = (folder / address).resolve() if address else root / page
        target = target / "README.md" if anchor and target.is_dir() else target
        assert target.exists(), link
        assert not anchor or target.suffix != ".md" or anchor in anchors(target), link
        if folder != root:
            assert not is_packed or not is_left_out(target.relative_to(root)), f"{link} is not in the archive"
            assert page.parent.name != "chart" or target.is_relative_to(folder), f"{link} is not in the chart's archive"


def is_left_out(path: Path) -> bool:
    """Return whether the collection's archive lacks a file or a folder."""
    patterns = re.findall(
        r"^  - \"?([^\"\n]+)", (DOCS.parent / "galaxy.yml").read_text().partition("build_ignore:")[2], re.MULTILINE
    )
    return any(fnmatch.fnmatch(str(each), pattern) for each in (path, *path.parents) for pattern in patterns)


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


# The folder with the sites of all versions


def test_each_version_keeps_its_site_and_the_newest_release_is_the_front(tmp_path: Path) -> None:
    for version in ("v1.9.0", "main", "v1.10.0", "v1.2.3", "v1.9.0"):
        site = tmp_path / "html"
        site.mkdir(exist_ok=True)
        (site / "index.html").write_text(version)
        site_versions.add(tmp_path / "pages", site, version)
    pages = tmp_path / "pages"
    assert (pages / "v1.9.0/index.html").read_text() == "v1.9.0"
    assert 'url=v1.10.0/"' in (pages / "index.html").read_text()
    listed = re.findall(r'href="(.*)/"', (pages / "versions.html").read_text())
    assert listed == ["v1.10.0", "v1.9.0", "v1.2.3", "main"]


def test_before_the_first_release_the_front_is_the_main_branch(tmp_path: Path) -> None:
    (tmp_path / "html").mkdir()
    site_versions.add(tmp_path / "pages", tmp_path / "html", site_versions.NEXT)
    assert 'url=main/"' in (tmp_path / "pages/index.html").read_text()


def test_a_page_that_a_version_no_longer_has_is_removed(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    for folder in (old, new):
        folder.mkdir()
    (old / "gone.html").touch()
    for site in (old, new):
        site_versions.add(tmp_path / "pages", site, site_versions.NEXT)
    assert not (tmp_path / "pages/main/gone.html").exists()


# The catalogue of checks in docs/audit.md, and docs/symptoms.md


def test_the_catalogue_is_that_of_the_checks() -> None:
    page = check_catalogue.PAGE.read_text()
    assert page == check_catalogue.renewed(page), (
        "run `make docs`, or `python3 tests/toolchain.py run python -m generators.check_catalogue`"
    )


def test_each_check_has_an_entry_and_a_renewal_changes_nothing_else() -> None:
    page = check_catalogue.PAGE.read_text()
    emptied = page[: page.index(check_catalogue.BEGIN)] + check_catalogue.BEGIN + "old\n" + check_catalogue.END + "after\n"
    assert check_catalogue.renewed(emptied) == f"{page}after\n"
    assert [line[4:] for line in page.splitlines() if line.startswith("### ")] == [check.id for check in catalogue.CHECKS]


def test_the_page_of_symptoms_is_that_of_the_checks() -> None:
    assert check_catalogue.SYMPTOMS.read_text() == check_catalogue.symptoms_page(), "run `make docs`"


def test_each_check_explains_a_symptom_under_an_id_of_its_own() -> None:
    assert [check.id for check in catalogue.CHECKS if not check.symptoms] == []
    assert len({check.id for check in catalogue.CHECKS}) == len(catalogue.CHECKS)


def test_each_file_of_checks_is_in_the_catalogue() -> None:
    files = {path.stem for path in house.files("_audit") if path.stem.endswith("_checks")}
    assert {Path(str(file.__file__)).stem for file in catalogue.FILES} == files, "name the file in _audit/catalogue.py"


# The tables of docs/which-profile.md, from docs/facts.yml

TABLES = profile_facts.read()
FACT: dict[str, Any] = {
    "subject": "s",
    "claim": "C",
    "checked": datetime.date(2026, 1, 1),
    "references": ["open https://github.com/o/r/issues/1"],
}


def test_the_tables_of_profiles_are_those_of_the_facts() -> None:
    page = profile_facts.PAGE.read_text()
    assert page == profile_facts.renewed(page, TABLES), "run `make docs`"
    assert [*TABLES] == re.findall("<!-- facts: (.*) -->", page)


def test_each_fact_is_stated_once_with_a_citation_and_the_pages_cite_the_same_threads() -> None:
    assert not [*profile_facts.mistakes(TABLES, [page.read_text() for page in DOCS.glob("*.md")])]
    keys = {"subject", "claim", "checked", "references", "first", "last", "unreproduced"}
    assert all({*FACT} <= {*fact} <= keys and str(fact["claim"])[-1] != "." for fact in profile_facts.facts(TABLES))


@pytest.mark.parametrize(
    ("change", "mistake"),
    [
        ({"subject": "S", "claim": "Not C"}, "two entries state S"),
        ({"subject": "t", "references": []}, "t has no reference"),
        (
            {"subject": "t", "references": ["closed https://github.com/o/r/issues/1"]},
            "issues/1 is closed, and open in another entry",
        ),
        ({"subject": "t", "references": ["https://github.com/o/r/issues/1"]}, "is none of open, closed, merged, read"),
        (
            {"subject": "t", "references": ["open https://github.com/o/r/pull/1"]},
            "o/r 1 is cited as an issue and as a pull request",
        ),
    ],
)
def test_facts_that_contradict_each_other_are_refused(change: dict[str, Any], mistake: str) -> None:
    def mistakes(*facts: dict[str, Any]) -> str:
        return "\n".join(profile_facts.mistakes({"table": [{"facts": [fact]} for fact in facts]}))

    assert mistakes(FACT) == "" and mistake in mistakes(FACT, {**FACT, **change})


def test_a_fact_is_too_old_for_a_release_after_120_days() -> None:
    tables = {"table": [{"facts": [FACT]}]}
    days = [FACT["checked"] + datetime.timedelta(days) for days in (120, 121)]
    assert [profile_facts.overdue(tables, day) for day in days] == [[], ["s"]]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({}, "C ([r 1](https://github.com/o/r/issues/1), open)."),
        (
            {"first": "1", "last": "2", "unreproduced": "no"},
            "C (since 1 up to 2; [r 1](https://github.com/o/r/issues/1), open; not reproduced: no).",
        ),
        (
            {"first": "unreleased", "references": ["read https://github.com/o/r/blob/main/a/%20.go"]},
            "C (in no release by January 2026; [r  .go](https://github.com/o/r/blob/main/a/%20.go)).",
        ),
        ({"references": ["read https://docs.test/a"], "last": "2"}, "C (up to 2; [docs.test](https://docs.test/a))."),
    ],
)
def test_a_fact_is_written_with_its_versions_and_citations(change: dict[str, Any], sentence: str) -> None:
    begin = profile_facts.BEGIN.format("t")
    row = {"cluster": "c", "facts": [{**FACT, **change}], "profile": "p"}
    assert f"\n| c | p | {sentence} |\n" in profile_facts.renewed(f"{begin}old{profile_facts.END}", {"t": [row]})
