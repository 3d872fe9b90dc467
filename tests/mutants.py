# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``make mutants``: mutmut changes the pure code in small ways, one at a time, and the unit tests must notice.

FILES names what to change, without folder and suffix (``make mutants FILES="rule route"``); left out: all of it.
Prints each mutant that no test noticed, as a diff, and then the counts of each file.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter, deque
from pathlib import Path

import house
from mutmut.mutation.diff_apply import get_diff_for_mutant
from mutmut.stats import status_by_exit_code

ROOT = Path(__file__).resolve().parent.parent
COLLECTION = Path("ansible_collections/kubenode/datapath")
# mutmut works on a tree whose folders are the names of the modules, and changes a copy of it in mutants/.
WORK = ROOT / ".build/mutants"
# Verdicts with a column of their own. A mutant that never ends counts as noticed.
TOLD = ("killed", "timeout", "survived", "no tests")
# These tests read the checkout, or run the sources as programs, which lack mutmut.
OUTSIDE = (
    *("test_house", "test_documentation", "test_toolchain"),
    *("test_the_program_is_whole", "test_a_rehearsal_of_the_question", "test_a_rehearsal_asks_for_nothing"),
    "test_the_version_of_the_collection",
)
SETTINGS = """
[tool.mutmut]
source_paths = ["ansible_collections"]
only_mutate = {files}
pytest_add_cli_args = ["--hypothesis-profile=mutants"]
pytest_add_cli_args_test_selection = ["tests/unit", "-k", {selection}]
use_git_change_detection = false
process_isolation = "forkserver"
"""


def main() -> None:
    names = os.environ.get("FILES", "").split()
    files = house.models()
    unknown = set(names) - {path.stem for path in files}
    if unknown:
        sys.exit(f"FILES: {', '.join(sorted(unknown))} is none of the pure code: {' '.join(path.stem for path in files)}")
    chosen = [COLLECTION / path.relative_to(ROOT) for path in files if not names or path.stem in names]
    lay_out(chosen)
    os.chdir(WORK)
    run_mutmut()
    report(chosen)


def lay_out(chosen: list[Path]) -> None:
    """Creates the tree anew each time, because mutmut keeps the verdicts of an earlier run even if the tests have changed."""
    shutil.rmtree(WORK, ignore_errors=True)
    ignored = shutil.ignore_patterns("__pycache__", "integration")
    for name in ("plugins", "meta", "roles"):
        shutil.copytree(ROOT / name, WORK / COLLECTION / name, ignore=ignored)
    shutil.copytree(ROOT / "tests", WORK / "tests", ignore=ignored)
    settings = SETTINGS.format(
        files=json.dumps([str(path) for path in chosen]), selection=json.dumps(f"not ({' or '.join(OUTSIDE)})")
    )
    (WORK / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text() + settings)


def run_mutmut() -> None:
    """Shows the progress once a minute: mutmut itself prints it ten times a second."""
    command = [str(Path(sys.executable).with_name("mutmut")), "run"]
    env = {**os.environ, "PYTHONPATH": str(WORK / "tests")}
    lines: deque[str] = deque(maxlen=60)
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as running:
        assert running.stdout
        shown = time.monotonic()
        for line in running.stdout:  # text after a carriage return counts as a new line
            lines.append(line)
            if time.monotonic() - shown > 60:
                shown = time.monotonic()
                print(line.rstrip(), flush=True)
    if running.returncode:
        sys.exit(f"{''.join(lines)}\nmutmut failed with status {running.returncode}")


def report(chosen: list[Path]) -> None:
    rows = []
    for path in chosen:
        meta = Path("mutants") / f"{path}.meta"
        codes = json.loads(meta.read_text())["exit_code_by_key"] if meta.exists() else {}
        verdicts = {name: status_by_exit_code[code] for name, code in codes.items()}
        for name, verdict in verdicts.items():
            if verdict not in ("killed", "timeout"):
                print(f"\n{path.name}: {verdict}\n{get_diff_for_mutant(name, path=path)}")
        counts = Counter(verdicts.values())
        told = [counts[verdict] for verdict in TOLD]
        rows.append((path.name, [len(verdicts), *told, len(verdicts) - sum(told)]))
    rows.append(("all", [sum(column) for column in zip(*(counts for _name, counts in rows), strict=True)]))
    print(f"\n{'file':24}", *(f"{heading:>9}" for heading in ("mutants", *TOLD, "other")))
    for name, numbers in rows:
        print(f"{name:24}", *(f"{number:9}" for number in numbers))


if __name__ == "__main__":
    main()
