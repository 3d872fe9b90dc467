# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Programs that are started: what they get, and what they leave."""

from __future__ import annotations

import time

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._system import process
from ansible_collections.kubenode.datapath.plugins.module_utils._system.process import Completed


def shell(script: str, stdin: str | None = None) -> Completed:
    return process.run(["sh", "-c", script], stdin)


def test_what_is_printed_and_how_it_ended() -> None:
    assert shell("echo out; echo error >&2; exit 3") == Completed(3, "out\n", "error\n")


@pytest.mark.parametrize(
    "text", ["", "one\r\ntwo", "h\u00f6\udcff", "x" * 2_000_000], ids=["none", "ends", "bytes", "long"]
)
def test_stdin_arrives_as_it_is_and_what_is_printed_too(text: str) -> None:
    assert process.run(["cat"], text) == Completed(0, text, "")


def test_without_stdin_there_is_nothing_to_read() -> None:
    assert shell("cat") == Completed(0, "", "")


def test_a_file_that_is_opened_anew_is_read_from_its_beginning() -> None:
    assert process.run(["cat", "/dev/stdin"], "text") == Completed(0, "text", "")


def test_a_program_that_was_killed_has_a_negative_status() -> None:
    assert shell("kill -KILL $$").rc == -9


def test_a_daemon_that_is_left_behind_is_not_waited_for() -> None:
    started = time.monotonic()
    assert shell("sleep 5 & echo done") == Completed(0, "done\n", "")
    assert time.monotonic() - started < 4


def test_a_program_gets_the_c_locale_and_what_else_it_is_given() -> None:
    environment = {"PATH": "/usr/bin:/bin", "LC_ALL": "de_DE.UTF-8", "MINE": "1"}
    done = process.run(["sh", "-c", "echo $LC_ALL $PATH $MINE"], None, environment)
    assert done.stdout == "C /usr/bin:/bin 1\n"
    assert shell("echo $LC_ALL $PATH").stdout == f"C {process.SEARCH_PATH}\n"


def test_a_program_that_is_not_there_is_an_error() -> None:
    with pytest.raises(FileNotFoundError):
        process.run(["/no/such/program"])
