# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whatever a trace is given: nothing changes on the machine, no secret and no control character is printed, bounds hold."""

from __future__ import annotations

import contextlib
import io
import json
import random
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils import basic
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from ansible_collections.kubenode.datapath.plugins.modules import datapath_trace
from ansible_collections.kubenode.datapath.plugins.plugin_utils import _pastes
from lab import sealed_run
from lab.sealed_run import SECRET_FILES, Run

from . import hostile_inputs

IS_FUZZ = not settings().derandomize
EXAMPLES = 100 if IS_FUZZ else 10
FAILED = Path(__file__).resolve().parents[3] / ".build/fuzz/options.json"
BUNDLE = FAILED.with_name("bundle")
# An input is large, and takes a second: to make a failing one smaller takes longer than to read it.
of_a_trace = settings(
    max_examples=EXAMPLES,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[*HealthCheck],
    report_multiple_bugs=False,
)


def traced(options: dict[str, Any], prepare: Callable[[], None] = lambda: None) -> Run:
    """A run of the action plugin's side and of the module, with the options as Ansible hands them over."""

    def work() -> None:
        print(json.dumps(_pastes.trace(options, of_module)))

    return sealed_run.run(work, prepare)


def of_module(options: dict[str, Any]) -> dict[str, Any]:
    basic._ANSIBLE_ARGS = json.dumps({"ANSIBLE_MODULE_ARGS": options}).encode()
    basic._ANSIBLE_PROFILE = "legacy"
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.suppress(SystemExit):
        datapath_trace.main()
    result: dict[str, Any] = json.loads(output.getvalue())
    return result


def expect_lawful(options: dict[str, Any], run: Run) -> None:
    FAILED.parent.mkdir(exist_ok=True)
    FAILED.write_text(json.dumps(options))  # too long to be shown
    assert not run.violations, f"{run.violations}; {FAILED} has the options"
    result = json.loads(run.said)
    told = result.get("msg", "")
    assert "error of the collection" not in told and "Traceback" not in run.said, f"{run.said[-3000:]}; {FAILED} has the options"
    assert told or result["verdict"], run.said
    FAILED.unlink()


@given(options=hostile_inputs.options())
@of_a_trace
def test_whatever_a_trace_is_given_the_machine_stays_as_it_is(options: dict[str, Any]) -> None:
    expect_lawful(options, traced(options))


@given(dump=hostile_inputs.dumps(), seed=st.integers(0, 2**32))
@settings(of_a_trace, max_examples=EXAMPLES // 5)
def test_whatever_is_in_the_folder_of_a_report_the_machine_stays_as_it_is(dump: dict[str, str], seed: int) -> None:
    folder = Path("/tmp/report")
    options = {"packet": hostile_inputs.nodes()[0]["packet"], "dump": str(folder)}
    expect_lawful(options, traced(options, lambda: hostile_inputs.fill(folder, dump, random.Random(seed))))


@given(bundle=hostile_inputs.bundles(), node=st.sampled_from((None, None, "node1", "\x1b")))
@settings(of_a_trace, max_examples=EXAMPLES // 2)
def test_whatever_is_in_a_bundle_the_machine_stays_as_it_is(bundle: bytes, node: str | None) -> None:
    FAILED.parent.mkdir(exist_ok=True)
    BUNDLE.write_bytes(bundle)
    options = {"packet": hostile_inputs.nodes()[0]["packet"], "dump": str(BUNDLE), "node": node}
    expect_lawful(options, traced(options))
    BUNDLE.unlink()


def hold_memory() -> None:
    _held = [b"x" * (64 << 20) for _number in range(10)]


VIOLATIONS: dict[str, tuple[Callable[[], object], str]] = {
    "a file": (lambda: Path("/etc/cron.d/x").write_text("x"), "it changed file etc/upper/cron.d/x"),
    "a file's mode": (lambda: Path(SECRET_FILES[0]).chmod(0o666), "it changed file root/upper/.kube/config"),
    "a setting": (
        lambda: Path("/proc/sys/net/ipv4/ip_forward").write_text("1"),
        "it changed setting /proc/sys/net/ipv4/ip_forward",
    ),
    "a mount": (lambda: subprocess.run(["mount", "-t", "tmpfs", "x", "/mnt"], check=True), "it changed mount "),
    "a process": (
        lambda: subprocess.Popen(["sleep", "60"], start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL),
        "it changed process sleep",
    ),
    "a table": (lambda: subprocess.run(["nft", "add table ip x"], check=True), "it changed nft list ruleset"),
    "a rule": (lambda: subprocess.run(["ip", "rule", "add", "priority", "5", "lookup", "5"], check=True), "it changed ip rule"),
    "a control character": (lambda: print("\x1b[31m"), r"it printed '\x1b'"),
    "one in a result": (lambda: print(json.dumps({"msg": "a\x07"})), r"it printed '\x07'"),
    "a secret": (lambda: print(Path(SECRET_FILES[0]).read_text()), "it printed a secret"),
    "the machine's links": (lambda: subprocess.run(["ip", "link"], check=True), "it printed a secret"),
    "too much memory": (hold_memory, "it took "),
    "too much time": (lambda: time.sleep(60), "it took "),
}


@pytest.mark.parametrize("violation", VIOLATIONS)
def test_a_violation_of_each_law_is_noticed(monkeypatch: pytest.MonkeyPatch, violation: str) -> None:
    if violation == "too much memory":
        monkeypatch.setattr(sealed_run, "BYTES", 400 << 20)
    if violation == "too much time":
        monkeypatch.setattr(sealed_run, "SECONDS", 1)
        monkeypatch.setattr(sealed_run, "PATIENCE", 1)
    work, said = VIOLATIONS[violation]
    found = sealed_run.run(work).violations
    assert any(one.startswith(said) for one in found), found


def test_a_run_that_does_nothing_violates_no_law() -> None:
    assert sealed_run.run(lambda: print("hello")) == Run("hello\n", [])
