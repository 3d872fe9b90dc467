# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The lock: one holder, nothing left behind, nothing taken from a holder that is alive."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
import typing as t
from pathlib import Path

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Failure
from ansible_collections.kubenode.datapath.plugins.module_utils._platform import lock
from ansible_collections.kubenode.datapath.plugins.module_utils._platform.lock import exclusive


def test_the_lock_leaves_nothing(tmp_path: Path) -> None:
    with exclusive(str(tmp_path / "lock")):
        assert (tmp_path / "lock").stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == []


def test_a_second_run_is_told_to_wait(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    with exclusive(path), pytest.raises(Failure, match="another run on this node holds"), exclusive(path, patience=0.1):
        pytest.fail("two held it")


def test_many_runs_hold_it_one_after_another(tmp_path: Path) -> None:
    inside, most = [], []

    def run() -> None:
        with exclusive(str(tmp_path / "lock")):
            inside.append(1)
            most.append(len(inside))
            time.sleep(0.005)
            inside.pop()

    threads = [threading.Thread(target=run) for _number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1] * 12
    assert list(tmp_path.iterdir()) == []


def test_what_must_not_wait_takes_the_lock_only_if_it_is_free(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    for _time in range(2):
        with lock.if_free(str(path)) as is_held:
            assert is_held and path.exists()
            with lock.if_free(str(path)) as is_held:
                assert not is_held
            with pytest.raises(Failure, match="another run on this node holds"), exclusive(str(path), patience=0):
                pass
        assert not path.exists()


def test_a_lock_file_that_a_killed_run_left_is_taken_over(tmp_path: Path) -> None:
    (tmp_path / "lock").touch()
    with exclusive(str(tmp_path / "lock"), patience=0.1):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_lock_file_that_has_a_second_name_stays(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with exclusive(str(path)):
        os.link(path, tmp_path / "held")
    assert path.exists()
    with exclusive(str(path), patience=0.1):
        (tmp_path / "held").unlink()
    assert list(tmp_path.iterdir()) == []


def test_a_lock_file_that_is_gone_or_foreign_is_no_error_and_is_left(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with exclusive(str(path)):
        path.unlink()
    path.write_text("mine")
    with pytest.raises(Failure, match="is not an empty regular file, so it is foreign"), exclusive(str(path)):
        pytest.fail("held")
    assert path.read_text() == "mine"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_end_is_an_exception_while_the_lock_is_held(tmp_path: Path, number: signal.Signals) -> None:
    before = signal.signal(number, signal.SIG_DFL)  # under nohup(1) it would be ignored
    try:
        with pytest.raises(SystemExit), exclusive(str(tmp_path / "lock")):
            os.kill(os.getpid(), number)
            time.sleep(1)
        assert list(tmp_path.iterdir()) == []
        assert signal.getsignal(number) is signal.SIG_DFL
    finally:
        signal.signal(number, before)


def test_the_lock_is_shared_with_what_its_holder_starts_and_gone_with_the_last_of_them(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    with exclusive(path) as descriptor:
        inherited = os.dup(descriptor)  # as a program started meanwhile inherits the lock
        os.link(path, tmp_path / "kept")  # a run that is killed does not remove it
    os.rename(tmp_path / "kept", path)
    try:
        with pytest.raises(Failure, match="another run on this node holds"), exclusive(path, patience=0.1):
            pytest.fail("two held it")
    finally:
        os.close(inherited)
    with exclusive(path, patience=0.1):
        pass


def test_to_wait_for_the_lock_follows_no_open_file_of_another_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a file may be on a network file system whose server is down: stat(2) would hang."""
    followed, stat = list[str](), os.stat

    def following(path: t.Any, **options: t.Any) -> os.stat_result:
        if "/fd/" in str(path):
            followed.append(os.path.basename(os.readlink(path)))
        return stat(path, **options)

    monkeypatch.setattr(lock.os, "stat", following)
    path = str(tmp_path / "lock")
    with (tmp_path / "elsewhere").open("x") as other, exclusive(path) as descriptor:
        program = ["sleep", "60"]
        with subprocess.Popen(program, stdin=other, pass_fds=[descriptor]) as keeper:
            try:
                with pytest.raises(Failure, match=f"process {keeper.pid} "), exclusive(path, patience=0.1):
                    pytest.fail("two held it")
            finally:
                keeper.kill()
    assert set(followed) == {"lock"}


def test_every_run_looks_where_the_lock_and_the_checkpoint_are() -> None:
    pytest.importorskip("ansible")
    from ansible_collections.kubenode.datapath.plugins.module_utils import _module
    from ansible_collections.kubenode.datapath.plugins.module_utils._checkpoint import checkpoint_backend

    assert _module.LEFT_IN_RUN == (lock.PATH, checkpoint_backend.FOLDER)
