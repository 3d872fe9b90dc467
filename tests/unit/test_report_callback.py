# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How often the callback report writes its file."""

from __future__ import annotations

import types
from pathlib import Path

import pytest

pytest.importorskip("ansible")

from ansible_collections.kubenode.datapath.plugins.callback import report  # noqa: E402
from ansible_collections.kubenode.datapath.plugins.plugin_utils._rollout import Rollout  # noqa: E402


@pytest.mark.parametrize(("seconds", "writes"), [(0.001, (900, 1000)), (1.5, (2, 8))], ids=["a small file", "a large file"])
def test_the_file_is_written_each_second_and_a_large_one_in_a_hundredth_of_the_time(
    monkeypatch: pytest.MonkeyPatch, seconds: float, writes: tuple[int, int]
) -> None:
    """The file of 4,000 nodes has 70 MB. A clock that only the writes and the results of tasks move."""
    clock = types.SimpleNamespace(now=0.0, count=0)

    def replace(_path: Path, _text: str) -> None:
        clock.now, clock.count = clock.now + seconds, clock.count + 1

    monkeypatch.setattr(report, "time", types.SimpleNamespace(monotonic=lambda: clock.now))
    monkeypatch.setattr(report, "_replace", replace)
    callback = object.__new__(report.CallbackModule)
    callback._rollout, callback._path, callback._due = Rollout("play", False, "then"), Path("/dev/null"), 0.0
    while clock.now < 1000:
        callback._write_if_due()
        clock.now += 0.1
    assert writes[0] <= clock.count <= writes[1]
