# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The catalogue of checks in docs/audit.md, and docs/symptoms.md."""

from __future__ import annotations

from pathlib import Path

import house

from ansible_collections.kubenode.datapath.plugins.module_utils._audit import catalogue
from generators import check_catalogue


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
