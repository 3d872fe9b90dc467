# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``make fuzz``: the property tests in rounds, each with a seed of its own, until MINUTES are over or one fails.

Each part of the tests gets the same share of the time, and at least one round. ``make fuzz SEED=...`` repeats a failing round.
The failing example is written into the test as an ``@example``, which every later run of the test tries first, whatever the seed.
The options of a trace are too long for that: a test writes those that fail to .build/fuzz/options.json.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import time
from pathlib import Path

HOSTILE = "tests/integration/_trace/test_hostile_inputs.py"
PARTS = [["tests/unit"]]
if os.geteuid() == 0:  # the property tests of tests/integration need root, for the namespaces in which they run
    PARTS += [[HOSTILE], ["tests/integration", f"--ignore={HOSTILE}"]]
PATCHES = Path(os.environ["HYPOTHESIS_STORAGE_DIRECTORY"]) / "patches"


def main() -> None:
    minutes = float(os.environ.get("MINUTES") or 5) / len(PARTS)
    repeated = os.environ.get("SEED")
    rounds = 0
    for part in PARTS:
        end = time.monotonic() + 60 * minutes
        is_first = True
        while is_first or (time.monotonic() < end and not repeated):
            is_first = False
            rounds += 1
            seed = repeated or str(random.randrange(2**32))
            print(f"=== round {rounds}: {part[0]} with seed {seed}", flush=True)
            if found_failure(seed, part):
                keep()
                sys.exit(f"seed {seed} found a failure; `make fuzz SEED={seed}` repeats it")
    print(f"=== {rounds} rounds found nothing")


def found_failure(seed: str, part: list[str]) -> bool:
    for patch in PATCHES.glob("*.patch"):
        patch.unlink()
    options = ["-m", "hypothesis", "--hypothesis-profile=fuzz", f"--hypothesis-seed={seed}"]
    env = {**os.environ, "PYTHONHASHSEED": seed}
    result = subprocess.run([sys.executable, "-m", "pytest", "-q", *options, *part], env=env, check=False)
    if result.returncode not in (0, 1):
        sys.exit(f"pytest did not come to its end: status {result.returncode}")
    return result.returncode == 1


def keep() -> None:
    """Hypothesis writes a patch, except for an example that Python cannot read back from its text (``st.data()``)."""
    patches = list(PATCHES.glob("*.patch"))
    for patch in patches:
        if subprocess.call(["git", "apply", str(patch)]) != 0:
            sys.exit(f"git cannot apply {patch}, which has the example that failed. Write it into the test by hand")
        print(f"Added to the tests as an example:\n{patch.read_text()}")
        for name in re.findall(r"(?m)^\+\+\+ (.+)$", patch.read_text()):
            import_example(Path(name))
    if not patches:
        print("Python cannot read back the text of what was found: write an @example by hand, from the output above.")


def import_example(path: Path) -> None:
    def names(found: re.Match[str]) -> str:
        return f"from hypothesis import {', '.join(sorted({'example', *found[1].split(', ')}))}"

    path.write_text(re.sub(r"(?m)^from hypothesis import (.+)$", names, path.read_text(), count=1))


if __name__ == "__main__":
    main()
