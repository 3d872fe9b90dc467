# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs and files that keep a run waiting, and runs that are killed while a program works."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lab import short_deadline
from lab.node import LOCK, NamespaceNode
from lab.steps import warnings
from lab.waiting import eventually, until

CHECKPOINT = "/run/kubenode-checkpoint"
NFT = "/usr/sbin/nft"
SHORT = [sys.executable, str(Path(short_deadline.__file__))]
PROBE, RETURN_PATH = "nftables_probe_snat", "nftables_connmark"
TABLES: dict[str, dict[str, Any]] = {
    PROBE: {},
    RETURN_PATH: {"primary_interface": "eth0", "pod_interfaces": ["veth-*"]},
}

# The first call that loads a table writes its parent's process ID, so that a test can kill the run.
LOADING = '#!/bin/bash\n[ "$1" = -f ] && [ ! -e /run/caller ] || exec @REAL@ "$@"\necho $PPID > /run/caller; {work}\n'
SLOW = LOADING.format(work='sleep 1.5; @REAL@ "$@"; touch /run/loaded')
HANGING = LOADING.format(work="exec sleep 600")


def run(node: NamespaceNode, module: str = PROBE, **options: Any) -> dict[str, Any]:
    result = node.module(module, {**TABLES.get(module, {}), **options})
    assert not result["failed"], result.get("msg", result)
    return result


@contextmanager
def killed_while_nft_loads(node: NamespaceNode, script: str, number: int = signal.SIGKILL) -> Iterator[None]:
    """A run that is killed after its nft, which is ``script``, has started. nft goes on during the block."""
    with node.replace_program(NFT, script):
        play = threading.Thread(target=node.module, args=(PROBE,))
        play.start()
        try:
            until("nft was called", lambda: node.exists("/run/caller"))
            node.run(["sh", "-c", f"kill -{number} $(cat /run/caller)"])
        finally:
            play.join()
        yield


def has_table(node: NamespaceNode) -> bool:
    return "azureSLBProbe" in node.run_from_host(["nft", "list", "tables"])


def hangs(node: NamespaceNode) -> bool:
    """Whether an nft hangs on the node. Hanging programs of other nodes, which share its process IDs, do not count."""
    return node.run(["sh", "-c", "pgrep -fx --ns $$ --nslist mnt 'sleep 600'"], check=False).returncode == 0


def test_after_a_killed_run_absent_is_the_last_word(node: NamespaceNode) -> None:
    """The killed run's nft would load the table after absent has returned."""
    with killed_while_nft_loads(node, SLOW):
        run(node, state="absent")
        assert not has_table(node) and not node.exists(LOCK)
        assert not eventually(lambda: has_table(node), limit=3)


def test_a_killed_run_does_not_leave_an_nft_that_hangs(node: NamespaceNode) -> None:
    with killed_while_nft_loads(node, HANGING):
        until("nft was ended", lambda: not hangs(node))
    assert run(node)["changed"]
    assert not run(node)["changed"]


def test_a_run_that_is_told_to_end_takes_its_nft_along(node: NamespaceNode) -> None:
    before = node.snapshot()["nft"]
    with killed_while_nft_loads(node, SLOW, signal.SIGTERM):
        assert not eventually(lambda: node.snapshot()["nft"] != before, limit=3)
    assert not node.exists(LOCK)


@pytest.mark.parametrize("state", ["present", "absent"])
def test_what_a_killed_run_left_in_run_goes_with_the_next_although_it_changes_nothing(node: NamespaceNode, state: str) -> None:
    run(node, state=state)
    clean = node.snapshot()
    for path in (LOCK, f"{CHECKPOINT}/rollback.pyz"):
        node.write(path, "")
    after = node.snapshot()
    assert not node.module(PROBE, {"state": state}, check=True)["changed"]
    assert node.snapshot() == after  # check mode changes nothing
    assert not run(node, state=state)["changed"]
    assert node.snapshot() == clean


def test_a_run_waits_for_another_before_it_says_that_there_is_nothing_to_do(node: NamespaceNode) -> None:
    with node.replace_program(NFT, SLOW):
        loading = threading.Thread(target=node.module, args=(PROBE,))
        loading.start()
        until("nft was called", lambda: node.exists("/run/caller"))
        assert run(node, state="absent")["changed"]
        loading.join()
    assert not has_table(node)


HANGS = {"listing": '#!/bin/bash\n[ "$2" = list ] && exec sleep 600\nexec @REAL@ "$@"\n', "loading": HANGING}


@pytest.mark.parametrize("module", TABLES)
@pytest.mark.parametrize(("what", "script"), HANGS.items(), ids=HANGS)
def test_an_nft_that_hangs_ends_the_run_with_its_name(node: NamespaceNode, module: str, what: str, script: str) -> None:
    before = node.snapshot()
    with node.replace_program(NFT, script):
        result = node.module(module, TABLES[module], through=SHORT)
    node.remove("/run/caller")
    assert result["failed"]
    assert f"{NFT} {'-j list table' if what == 'listing' else '-f -'}" in result["msg"]
    assert f"did not end within {short_deadline.DEADLINE:g} s and was killed" in result["msg"]
    assert node.snapshot() == before


@pytest.mark.parametrize("module", [RETURN_PATH, "rp_filter"])
def test_a_fifo_in_sysctl_d_keeps_no_run_waiting(node: NamespaceNode, module: str) -> None:
    desired: dict[str, dict[str, Any]] = {
        "rp_filter": {"interfaces": ["eth0"], "mode": "loose"},
        RETURN_PATH: {"strict": True},
    }
    options = desired[module]
    node.run(["mkfifo", "/etc/sysctl.d/50-odd.conf"])
    result = run(node, module, **options)
    assert result["changed"]
    said = [warning for warning in warnings(result) if "/etc/sysctl.d/50-odd.conf was not read" in warning]
    assert len(said) == 1 and "it is no regular file, but a FIFO" in said[0]
    assert not run(node, module, **options)["changed"]
    assert run(node, module, **options, state="absent")["changed"]


BROKEN = {
    "for another machine": (["sh", "-c", "printf '\\177ELF\\2\\1\\1' > /run/nft"], "Exec format error"),
    "without its interpreter": (["sh", "-c", "echo '#!/no/such' > /run/nft"], "No such file or directory"),
}


@pytest.mark.parametrize(("make", "answer"), BROKEN.values(), ids=BROKEN)
def test_an_nft_that_cannot_be_started_is_named(node: NamespaceNode, make: list[str], answer: str) -> None:
    node.run(make)
    node.run(["chmod", "0755", "/run/nft"])
    node.run(["mount", "--bind", "/run/nft", NFT])
    for module, options in {**TABLES, "nftables_package": {}}.items():
        result = node.module(module, options)
        assert result["failed"] and f"{NFT} cannot be started: {answer}" in result["msg"], result
    node.run(["umount", NFT])


GARBAGE = {"nothing": "", "words": "hello", "another shape": '{"nftables": [{"table": 1}]}', "half": '{"nftables": [{'}


@pytest.mark.parametrize("answer", GARBAGE.values(), ids=GARBAGE)
def test_an_nft_that_answers_garbage_is_an_error_and_stops_no_absent(node: NamespaceNode, answer: str) -> None:
    clean = node.snapshot()
    run(node)
    before = node.snapshot()
    with node.replace_program(NFT, f"#!/bin/sh\ncat <<'END'\n{answer}\nEND\n"):
        for check in (True, False):
            result = node.module(PROBE, {"priority": -290}, check=check)
            assert result["failed"] and "table ip6 azureSLBProbe" in result["msg"], result
    assert node.snapshot() == before
    with node.replace_program(NFT, f"#!/bin/sh\ncat <<'END'\n{answer}\nEND\n"):
        for check in (True, False):
            result = node.module(PROBE, {"state": "absent"}, check=check)
            assert result["changed"] and not result["failed"], result
            assert sum("undoing this run cannot restore it" in warning for warning in warnings(result)) == 1
        assert not run(node, state="absent")["changed"]
    assert node.snapshot() == clean
