# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Boot programs, the Python that runs them, and their rehearsal."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import typing as t
import zipfile
from pathlib import Path

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._boot import interpreters
from ansible_collections.kubenode.datapath.plugins.module_utils._boot.boot_files import RehearsedUnit
from ansible_collections.kubenode.datapath.plugins.module_utils._boot.interpreters import interpreter
from ansible_collections.kubenode.datapath.plugins.module_utils._boot.program_archive import archive
from ansible_collections.kubenode.datapath.plugins.module_utils._core.converge import converge
from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import (
    Failure,
    MissingLibrary,
    Refusal,
)
from ansible_collections.kubenode.datapath.plugins.module_utils._core.plan import Plane
from ansible_collections.kubenode.datapath.plugins.module_utils._files.managed_files import ManagedFiles, text
from ansible_collections.kubenode.datapath.plugins.module_utils._nftables import table_unit
from ansible_collections.kubenode.datapath.plugins.module_utils._platform import process
from ansible_collections.kubenode.datapath.plugins.module_utils._systemd.boot_unit import BootUnit, UnitState
from ansible_collections.kubenode.datapath.plugins.module_utils._systemd.unit_resource import EnabledUnit
from unit.fakes import FakeUnits, RootedFiles


def placed(path: Path, program: str) -> str:
    path.write_bytes(program.encode("utf-8", "surrogateescape"))
    return str(path)


def started(*argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, capture_output=True, text=True, check=False, env={"PATH": process.SEARCH_PATH})


# The program


def test_an_old_python_is_told_which_is_needed(tmp_path: Path) -> None:
    packed = zipfile.ZipFile(io.BytesIO(archive("_probe_snat.ipv6_program").encode("utf-8", "surrogateescape")))
    main = packed.read("__main__.py").decode("ascii")  # the default encoding of Python 2
    for version in ((2, 7, 18), (3, 6, 8), (3, 8, 20)):
        said = f"import sys\nsys.version_info = {version}\nsys.version = '{'.'.join(map(str, version))} (old)'\n{main}"
        completed = started(sys.executable, "-I", "-S", "-c", said)
        assert completed.returncode == 255
        assert (
            completed.stderr.startswith("kubenode.datapath needs Python 3.9 or newer at boot")
            and completed.stderr.count("\n") == 1
        )
        assert f"is Python {'.'.join(map(str, version))}." in completed.stderr
    assert not any(word in main for word in ("annotations", 'f"', "->", "print"))


@pytest.mark.parametrize("question", [("imds", "eth0", "60"), ("address", "eth0", "30")])
def test_a_rehearsal_of_the_question_sends_no_request(tmp_path: Path, question: tuple[str, ...]) -> None:
    program = placed(tmp_path / "boot.pyz", archive("_probe_snat.ipv6_program"))
    completed = started(sys.executable, "-I", "-S", "-B", program, "rehearse", *question)
    assert (completed.returncode, completed.stdout, completed.stderr) == (0, "", "")


@pytest.mark.parametrize("question", [("smoke", "eth0", "60"), ("imds", "eth0", "soon")])
def test_an_unknown_question_fails_the_rehearsal(tmp_path: Path, question: tuple[str, ...]) -> None:
    program = placed(tmp_path / "boot.pyz", archive("_probe_snat.ipv6_program"))
    assert started(sys.executable, "-I", "-S", "-B", program, "rehearse", *question).returncode != 0


def lacking(part: str, program: str) -> str:
    """The program without one of its files, or with one that is broken."""
    given = zipfile.ZipFile(io.BytesIO(program.encode("utf-8", "surrogateescape")))
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as zipped:
        for name in given.namelist():
            if name != part:
                zipped.writestr(name, given.read(name))
    return packed.getvalue().decode("utf-8", "surrogateescape")


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("_probe_snat.ipv6_program", "kubenode/_cloud/metadata.py"),
        (
            "_listener.listener_program",
            "kubenode/_discovery/discovery_program.py",
        ),  # only for rules and routes computed from ENIs
        ("_listener.listener_program", "kubenode/_listener/load_program.py"),
    ],
)
def test_a_part_that_is_imported_late_is_missed_at_once(tmp_path: Path, name: str, part: str) -> None:
    program = placed(tmp_path / "boot.pyz", lacking(part, archive(name)))
    arguments = ("imds", "eth0", "60") if name == "_probe_snat.ipv6_program" else ("75", "/nowhere")
    completed = started(sys.executable, "-I", "-S", "-B", program, "rehearse", *arguments)
    assert completed.returncode not in (0, 77)
    assert "ModuleNotFoundError" in completed.stderr or "ImportError" in completed.stderr


def test_a_rehearsal_asks_for_nothing_that_the_program_can_do_without(tmp_path: Path) -> None:
    """Python may have been built without libffi, and so without ctypes; see process._prctl."""
    program = placed(tmp_path / "listener.pyz", archive("_listener.listener_program"))
    given = placed(tmp_path / "set.json", '{"protocol": 75, "rules": []}')
    script = f"""if True:
        import runpy, site, sys
        sys.modules["_ctypes"] = None
        sys.argv = [{program!r}, "rehearse", "75", {given!r}]
        site.main = lambda: sys.exit(0)  # what follows is the node's packages
        runpy.run_path({program!r}, run_name="__main__")
    """
    completed = started(sys.executable, "-I", "-S", "-B", "-c", script)
    assert (completed.returncode, completed.stderr) == (0, "")


def test_a_set_that_cannot_be_read_fails_the_rehearsal(tmp_path: Path) -> None:
    program, given = placed(tmp_path / "x.pyz", archive("_listener.listener_program")), tmp_path / "x.json"
    for content in (None, "{", "[]", '{"protocol": 75, "rules": [{"priority": "x"}]}'):
        if content is not None:
            given.write_text(content)
        completed = started(sys.executable, "-I", "-S", "-B", program, "rehearse", "75", str(given))
        assert completed.returncode != 0 and completed.stderr


# The interpreter


@pytest.mark.parametrize(
    ("path", "defect"),
    [
        ("python3", "is not an absolute path"),
        ("/tmp/venv/bin/python", "lies where a boot may not find it"),
        ("/home/alice/venv/bin/python", "lies where a boot may not find it"),
        ("/run/python", "lies where a boot may not find it"),
        ("/dev/shm/python", "lies where a boot may not find it"),
        ("/opt/nowhere/bin/python3", "No such file or directory"),
        ("/usr/bin", "is not an executable file"),
        ("/etc/passwd", "is not an executable file"),
    ],
)
def test_an_interpreter_that_the_boot_may_not_find_is_none(path: str, defect: str) -> None:
    assert interpreters._defect(path) == defect


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> t.Callable[..., str]:
    """Makes programs in folders that survive a boot; interpreters are looked for in these folders only."""
    monkeypatch.setattr(interpreters, "FLEETING", (f"{tmp_path}/home/",))
    monkeypatch.setattr(process, "SEARCH_PATH", f"{tmp_path}/local:{tmp_path}/bin")
    real = os.stat

    def as_roots(path: t.Any, **options: t.Any) -> os.stat_result:
        found = list(real(path, **options))
        return os.stat_result([*found[:4], 0, *found[5:]])

    monkeypatch.setattr(interpreters.os, "stat", as_roots)

    def make(name: str, script: str = f'exec "{sys.executable}" "$@"', mode: int = 0o755) -> str:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(mode)
        return str(path)

    return make


OLD = "echo 3.6.8 >&2; exit 1"


def test_the_interpreter_that_runs_this_is_chosen_if_it_lasts(
    programs: t.Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, systems, local = programs("opt/python3.11"), programs("bin/python3"), programs("local/python3", OLD)
    monkeypatch.setattr(sys, "executable", mine)
    assert interpreters.choose() == mine
    monkeypatch.setattr(sys, "executable", programs("home/python3"))
    assert interpreters.choose() == systems
    monkeypatch.setattr(sys, "executable", programs("opt/writable", mode=0o777))
    assert interpreters.choose() == systems
    monkeypatch.setattr(sys, "executable", "")
    assert interpreters.choose() == systems
    os.unlink(systems)
    versioned = programs("bin/python3.11")
    programs("bin/python3.6", OLD)
    assert interpreters.choose() == versioned
    os.unlink(versioned)
    with pytest.raises(Refusal) as refused:
        interpreters.choose()
    assert f"{local} is not Python 3.9 or newer: 3.6.8" in str(refused.value) and "Nothing was changed" in str(refused.value)


def test_a_python_behind_a_folder_or_link_of_others_is_none(programs: t.Callable[..., str], tmp_path: Path) -> None:
    path = programs("bin/python3")
    (tmp_path / "links").mkdir()
    (tmp_path / "links/python3").symlink_to(path)
    assert interpreters.is_lasting(path) and interpreters.is_lasting(f"{tmp_path}/links/python3")
    (tmp_path / "links").chmod(0o777)
    assert not interpreters.is_lasting(f"{tmp_path}/links/python3") and interpreters.is_lasting(path)
    (tmp_path / "bin").chmod(0o777)
    assert not interpreters.is_lasting(path)
    (tmp_path / "bin").chmod(0o1777)
    assert interpreters.is_lasting(path)


@pytest.mark.parametrize("broken", ["#!/nowhere/python3\n", "no program at all\n", "#!/bin/sh\nexec /bin/sleep 60\n"])
def test_a_python_that_does_not_start_is_passed_over(
    programs: t.Callable[..., str], monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    monkeypatch.setattr(process, "DEADLINE", 0.2)
    monkeypatch.setattr(sys, "executable", "")
    local, systems = Path(programs("local/python3")), programs("bin/python3", "exit 0")
    local.write_text(broken)
    assert interpreters.choose() == systems
    os.unlink(systems)
    with pytest.raises(Refusal, match=f"{local} does not start"):
        interpreters.choose()


def test_the_path_of_the_login_plays_no_part(
    programs: t.Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    systems = programs("bin/python3")
    programs("shims/python3")
    monkeypatch.setenv("PATH", f"{tmp_path}/shims")
    monkeypatch.setattr(sys, "executable", "")
    assert interpreters.choose() == systems


def test_the_distributions_python_is_named_without_its_version(
    programs: t.Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    versioned = programs("bin/python3.11")
    os.symlink("python3.11", tmp_path / "bin/python3")
    monkeypatch.setattr(sys, "executable", versioned)
    assert interpreters.choose() == f"{tmp_path}/bin/python3"
    os.unlink(tmp_path / "bin/python3")
    programs("bin/python3")
    assert interpreters.choose() == versioned


def asking(python: str) -> BootUnit:
    return table_unit.unit("ip6", "t", "/etc/t", table_unit.BootCondition("imds", "eth0", python, "/etc/t.pyz"))


def test_a_unit_keeps_its_interpreter_while_that_lasts_and_nothing_else_changes(
    programs: t.Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = programs("opt/first"), programs("opt/second")
    (tmp_path / "etc/systemd/system").mkdir(parents=True)
    backend, systemd = RootedFiles(tmp_path), FakeUnits(tmp_path)

    def run(python: str, unit: t.Callable[[str], BootUnit] = asking) -> str:
        monkeypatch.setattr(sys, "executable", python)
        chosen = interpreter(backend, systemd, unit)
        converge([EnabledUnit(backend, systemd, unit(chosen), desired=True, starts=True)], {Plane.PERMANENT})
        return chosen

    assert run(first) == first
    with monkeypatch.context() as converged:
        converged.setattr(interpreters, "choose", lambda: pytest.fail("a converged run starts no process"))
        assert run(second) == first
    systemd.systemd.states[asking("").name] = UnitState("failed", "failed", "exit-code", "0")
    assert run(second) == second  # the unit may have failed because of its interpreter
    os.unlink(second)
    assert run(first) == first


# The rehearsal


class Boot:
    """A unit with a program, on a root of its own."""

    def __init__(self, root: Path) -> None:
        (root / "etc/systemd/system").mkdir(parents=True)
        (root / "etc/kubenode").mkdir()
        self.root = root
        self.units = FakeUnits(root)

    def hold(self, program: str, script: str = "a") -> bool:
        backend = RootedFiles(self.root)
        at = str(self.root / "etc/kubenode/t.pyz")
        unit = asking(sys.executable)._replace(rehearsal=("/bin/sh", at, "rehearse"))
        loaded = ManagedFiles(backend, [text("/etc/kubenode/t", script), text("/etc/kubenode/t.pyz", program)])
        enabled = EnabledUnit(backend, self.units, unit, desired=True, starts=True)
        return converge([RehearsedUnit(loaded, enabled, unit)], {Plane.PERMANENT}).changed

    def files(self) -> list[str]:
        return sorted(str(path.relative_to(self.root)) for path in self.root.rglob("*") if not path.is_dir())


COUNTING = 'echo rehearsed "$@" >> "${0%/*}/../../count"\n'


def test_a_boot_is_rehearsed_where_anything_of_it_changes_and_only_there(tmp_path: Path) -> None:
    boot, count = Boot(tmp_path), tmp_path / "count"
    for program, script, times in (
        (COUNTING, "a", 1),
        (COUNTING, "a", 1),
        (COUNTING, "b", 2),
        (f"{COUNTING}#\n", "b", 3),
        (f"{COUNTING}#\n", "b", 3),
    ):
        before = count.read_text() if count.exists() else ""
        assert boot.hold(program, script) is (times > before.count("\n"))
        assert count.read_text() == "rehearsed rehearse\n" * times


def test_a_rehearsal_that_fails_fails_the_run_before_the_unit_is_enabled(tmp_path: Path) -> None:
    boot = Boot(tmp_path)
    with pytest.raises(Failure, match="the next boot would fail.* answered 3: no such thing"):
        boot.hold("echo no such thing >&2; exit 3\n")
    assert boot.files() == [] and boot.units.systemd.asked == []


def test_a_library_that_only_the_boot_lacks_is_asked_for(tmp_path: Path) -> None:
    boot = Boot(tmp_path)
    with pytest.raises(Failure) as failed:
        boot.hold("exit 76\n")
    causes: list[BaseException | None] = [failed.value]
    while causes[-1] is not None:
        causes.append(causes[-1].__cause__)
    assert any(isinstance(cause, MissingLibrary) for cause in causes)
