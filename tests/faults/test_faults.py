# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A sample of ``make faults``, always the same, and proof that the harness sees every point."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from itertools import groupby, islice

import pytest

from faults import cases, kinds, runner
from faults.cases import Case, Operation
from faults.kinds import Fault
from lab import Lab, Node

EVERY = 36  # one fault of this many
UPDATES = 3  # one update of this many of a module, and all other operations


@pytest.fixture(scope="module")
def stage() -> Iterator[runner.Stage]:
    with closing(runner.Stage()) as running:
        yield running


def sample() -> Iterator[Operation]:
    for (_case, is_update), operations in groupby(cases.operations(), lambda each: (each.case, each.name.startswith("update"))):
        yield from islice(operations, None, None, UPDATES if is_update else 1)


@pytest.mark.parametrize("operation", list(sample()), ids=str)
def test_a_fault_leaves_nothing_that_the_next_run_does_not_mend(operation: Operation, stage: runner.Stage) -> None:
    row = runner.examine(operation, stage, EVERY * operation.case.rarity)
    assert not row.bad, "\n".join(map(str, row.bad))


# The harness itself

PROBE = Case("nftables_probe_snat")
# strace's lines for calls that are points. nft uses sendmsg for batches only.
CALLS = (
    "trace=open,openat,write,pwrite64,writev,rename,renameat,renameat2,mkdir,mkdirat,rmdir,unlink,unlinkat,symlink,symlinkat,"
    "link,linkat,truncate,ftruncate,sendmsg"
)
POINT = re.compile(
    r"""(?:open|openat)\(.*O_(?:CREAT|TRUNC)
    | (?:write|pwrite64|writev)\([3-9]\d*<(?:/etc|/run|/var)
    | (?:rename|renameat|renameat2|mkdir|mkdirat|rmdir|unlink|unlinkat|symlink|symlinkat|link|linkat|truncate|ftruncate)\(
    | sendmsg\(""",
    re.VERBOSE,
)

# The boot's order is asked in a mount namespace that has its own /tmp and /run.
NO_POINT = re.compile(r"/dev/null|</tmp\b|\"/tmp/|[<\"]/run/systemd\b|^mkdir\(\"[^/]")


def test_no_point_is_missed(stage: runner.Stage) -> None:
    """The points of a run are the calls in its strace that change something."""
    with closing(runner.Site(PROBE, stage)) as site:
        seen = [point.call for point in site.run({}).points if point.is_change]
    with Lab("traced", nodes=[Node("node1")]) as lab:
        node = lab.node("node1")
        trace = ["strace", "-qq", "-f", "-y", "-o", "/run/lab/trace", "-e", CALLS, "env", "PYTHONDONTWRITEBYTECODE=1"]
        assert node.module(PROBE.module, through=trace)["changed"]
        lines = [line.split(maxsplit=1)[1] for line in node.read("/run/lab/trace").splitlines()]
    traced = [line.partition("(")[0] for line in lines if POINT.match(line) and not NO_POINT.search(line)]
    assert Counter(traced) == Counter(seen) and len(seen) > 20


@pytest.mark.parametrize("number", [1, 5, 12])
def test_a_kill_comes_before_its_point(stage: runner.Stage, number: int) -> None:
    with closing(runner.Site(PROBE, stage)) as site:
        whole = site.run({}).points
        site.run(cases.ABSENT)
        killed = site.run({}, Fault(kinds.KILL, number))
    assert killed.result is None and killed.points == whole[:number]


def test_a_full_disk_is_one_to_the_module(stage: runner.Stage) -> None:
    with closing(runner.Site(PROBE, stage)) as site:
        number = next(n for n, point in enumerate(site.run({}).points, 1) if point.call == "write" and point.needs_space)
        site.run(cases.ABSENT)
        result = site.run({}, Fault(kinds.DISK_FULL, number))
    assert result.result is not None and "No space left on device" in result.result["msg"]


@pytest.mark.parametrize("kind", kinds.CHILDREN)
def test_a_child_is_struck_once(stage: runner.Stage, kind: str) -> None:
    with closing(runner.Site(PROBE, stage)) as site:
        site.run({})
        result = site.run({}, Fault(kind, 1))
    started = [point.what for point in result.points if point.call == "execve" and point.by != "sh"]
    assert [what.startswith("/bin/sh -c") for what in started][:2] in ([True], [True, False])
