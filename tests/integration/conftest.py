# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fixtures of all tests on a real kernel."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from lab import Lab, Node, snapshot
from lab.node import NamespaceNode
from lab.podman import Podman

_begun: dict[Path, float] = {}  # when the first test of a file began
_START = time.monotonic()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--share", type=float, metavar="SECONDS", help="begin no test of a file later than this after its first one")
    parser.addoption("--budget", type=float, metavar="SECONDS", help="begin no test later than this after the start")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Before the fixtures, which may build a lab."""
    share, budget, now = item.config.getoption("share"), item.config.getoption("budget"), time.monotonic()
    if share is not None and now - _begun.setdefault(item.path, now) > share:
        pytest.skip("make test runs it: the file has had its share of the time")
    if budget is not None and now - _START > budget:
        pytest.skip("make test runs it: the time is over")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """With a budget, a run in which each test was skipped has told nothing, and is no success."""
    reporter: Any = session.config.pluginmanager.get_plugin("terminalreporter")
    stats = reporter.stats if reporter and session.config.getoption("budget") is not None else {}
    if "skipped" in stats and not {"passed", "failed", "error"} & stats.keys():
        reporter.write_line(f"not run: each of {len(stats['skipped'])} tests was skipped", red=True)
        session.exitstatus = pytest.ExitCode.NO_TESTS_COLLECTED


def pytest_assertrepr_compare(op: str, left: Any, right: Any) -> list[str] | None:
    """The summary of a run shows a failure's first line, which says here in what two snapshots differ."""
    if op == "==" and all(isinstance(side, dict) and "nft" in side and "links" in side for side in (left, right)):
        return ["the snapshots differ: " + "; ".join(snapshot.differences(left, right))]
    return None


@pytest.fixture(autouse=True)
def company(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test with the mark ``alone`` measures time, so the other worker runs no test meanwhile.

    Each test holds one lock, shared, or exclusively if it is alone. The turnstile in front keeps later tests
    from overtaking a test that waits to be alone.
    """
    folder = request.config.rootpath / ".build"
    folder.mkdir(exist_ok=True)
    kind = fcntl.LOCK_EX if request.node.get_closest_marker("alone") else fcntl.LOCK_SH
    with (folder / "turnstile.lock").open("w") as turnstile, (folder / "tests.lock").open("w") as running:
        fcntl.flock(turnstile, fcntl.LOCK_EX)
        fcntl.flock(running, kind)
        fcntl.flock(turnstile, fcntl.LOCK_UN)
        yield


@pytest.fixture
def lab() -> Iterator[Lab]:
    """Two nodes with a pod each, new for every test: a lab is built in a tenth of a second."""
    with Lab("test", nodes=[Node("node1", pods=["pod1"]), Node("node2", pods=["pod2"])]) as running:
        yield running


@pytest.fixture
def node(lab: Lab) -> NamespaceNode:
    """The first node of the lab; a file may have a node or a lab of its own."""
    first: NamespaceNode = lab.node("node1")
    return first


@pytest.fixture(scope="module")
def podman() -> Iterator[Podman]:
    """Containers that boot. The tests of a file share one Podman, which removes all its containers at its end."""
    with closing(Podman()) as running:
        yield running
