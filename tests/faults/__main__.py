# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``make faults``: strike every operation with every fault, print the table, and write it into docs/reliability.md.

    python -m faults [--every NUMBER] [TEXT ...]

With a number, one fault of so many; with texts, the operations that have one of them in "module, operation". A whole run
writes the document, interrupts runs of the tests themselves, and runs the thorough tests that `make test` leaves out. The exit
status is 1 where a promise was broken.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import datetime
import re
import subprocess
import sys
import threading
from collections.abc import Sequence

from faults import cases, interruptions, runner
from faults.runner import Row
from lab import collection, host

WORKERS = 2
DOCUMENT = collection.CHECKOUT / "docs/reliability.md"
_BEGIN, _END = "<!-- table of make faults -->\n", "<!-- end of the table -->\n"
_worker = threading.local()


def examine(operation: cases.Operation, every: int) -> Row:
    """In a worker, which has one stage for all of its operations."""
    if not hasattr(_worker, "stage"):
        _worker.stage = runner.Stage()
    return runner.examine(operation, _worker.stage, every)


def table(rows: Sequence[Row]) -> str:
    """In Markdown, in the order of the cases."""
    head = ("module", "operation", "points", "kills", "bad")
    lines = [(row.module, row.operation, str(row.points), str(row.kills), str(len(row.bad))) for row in rows]
    totals = ("all", "", *(str(sum(int(line[column]) for line in lines)) for column in (2, 3, 4)))
    shown = [head, *lines, totals]
    widths = [max(len(line[column]) for line in shown) for column in range(5)]
    text = ["| " + " | ".join(f"{cell:{width}}" for cell, width in zip(line, widths)) + " |\n" for line in shown]
    text.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|\n")
    return "".join(text)


def write(rows: Sequence[Row]) -> None:
    """Put the table between its marks in the document."""
    text = DOCUMENT.read_text()
    new = f"{_BEGIN}\nThe whole run of {datetime.date.today()}:\n\n{table(rows)}\n{_END}"
    DOCUMENT.write_text(re.sub(f"{_BEGIN}.*?{_END}", lambda _found: new, text, flags=re.DOTALL))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m faults", description=__doc__.splitlines()[0])
    parser.add_argument("--every", type=int, default=1, help="strike with one fault of so many")
    parser.add_argument("text", nargs="*", help='only operations with this in "module, operation"')
    options = parser.parse_args()
    chosen = [
        operation for operation in cases.operations() if not options.text or any(text in str(operation) for text in options.text)
    ]
    rows: dict[int, Row] = {}
    with concurrent.futures.ThreadPoolExecutor(WORKERS) as workers:  # the work is done in other processes
        running = {workers.submit(examine, operation, options.every): n for n, operation in enumerate(chosen)}
        for result in concurrent.futures.as_completed(running):
            row = rows[running[result]] = result.result()
            print(
                f"{row.module}, {row.operation}: {row.kills} faults, {len(row.bad)} bad",
                *row.bad,
                sep="\n  ",
                flush=True,
            )
    in_order = [row for _number, row in sorted(rows.items())]
    print(f"\n{table(in_order)}")
    is_bad = any(row.bad for row in in_order)
    if options.every == 1 and not options.text:
        write(in_order)
        is_bad |= interruptions.strike_all(interruptions.WORKS) > 0
        is_bad |= subprocess.call([sys.executable, "-m", "pytest", "-m", "thorough", "tests/unit", "tests/integration"]) > 0
    return 1 if is_bad else 0


if __name__ == "__main__":
    host.reported(main)
