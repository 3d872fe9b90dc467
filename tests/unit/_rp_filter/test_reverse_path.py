# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reverse-path filtering: options, the file's text, and the running settings on a fake kernel."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import typing as t
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ansible_collections.kubenode.datapath.plugins.module_utils._core.converge import converge
from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Failure, Invalid, Refusal
from ansible_collections.kubenode.datapath.plugins.module_utils._core.plan import Plane, perform
from ansible_collections.kubenode.datapath.plugins.module_utils._files.managed_files import HEADING
from ansible_collections.kubenode.datapath.plugins.module_utils._platform import sysctl_files
from ansible_collections.kubenode.datapath.plugins.module_utils._rp_filter import reverse_path
from ansible_collections.kubenode.datapath.plugins.module_utils._rp_filter.live_reverse_path import RECORDS, LiveReversePath
from ansible_collections.kubenode.datapath.plugins.module_utils._rp_filter.reverse_path import (
    MODES,
    DesiredFilter,
    desired_in,
    key,
    overriding,
    record_from,
    record_text,
    sysctl_text,
    unreadable,
)
from ansible_collections.kubenode.datapath.plugins.module_utils._rp_filter.reverse_path_guards import (
    boot_order,
    missing_links,
    unreadable_record,
)
from unit.fakes import FakeSysctl, RootedFiles

PATH = "/etc/sysctl.d/90-kubenode-rp-filter.conf"
BEFORE_OURS, AFTER_OURS = "/etc/sysctl.d/10-x.conf", "/etc/sysctl.d/99-x.conf"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="files are given to root")


def desired(*interfaces: str, mode: str = "loose", raise_all: bool = False) -> DesiredFilter:
    return DesiredFilter.from_options({"interfaces": list(interfaces), "mode": mode, "raise_all": raise_all})


# Options

INVALID: list[tuple[str, dict[str, t.Any]]] = [
    ("interfaces", {"interfaces": []}),
    ("interfaces", {"interfaces": None}),
    ("mode", {"mode": None}),
    *((f"interfaces[{index}]", {"interfaces": ["eth0"] * index + [name]}) for index, name in enumerate((
        "", " ", "a b", "a/b", "eth0\n", "a=b", "a:b", "ethö", "a" * 16, "?" * 16, ".", "..", "all", "default", "lo",
        "l[o]", "[a]ll", "defaul[t]", "[", "eth[0", "eth]", "[]", "[a", "{a,b}", "*/x", "eth[9-0]", "eth[!", "eth!",
    ))),
]  # fmt: skip


@pytest.mark.parametrize(("option", "change"), INVALID, ids=str)
def test_bad_input_names_the_option_and_what_was_given(option: str, change: dict[str, t.Any]) -> None:
    with pytest.raises(Invalid, match="must be .* was given") as caught:
        DesiredFilter.from_options({"interfaces": ["eth0"], "mode": "loose", "raise_all": False, **change})
    assert caught.value.option == option


@pytest.mark.parametrize(
    ("lines", "mode"),
    [
        ([], 0),
        (["eth0.rp_filter = 1"], 1),
        (["eth1.rp_filter = 1"], 0),
        (["default.rp_filter = 1"], 1),
        (["default.rp_filter = 1", "eth0.rp_filter = 0"], 0),
        (["all.rp_filter = 1", "eth0.rp_filter = 0"], 1),
        (["all.rp_filter = 1", "eth*.rp_filter = 2"], 2),
    ],
)
def test_the_mode_at_the_next_boot_is_the_higher_of_the_links_and_that_of_all(lines: list[str], mode: int) -> None:
    text = "".join(f"net.ipv4.conf.{line}\n" for line in lines)
    assert reverse_path.at_boot("eth0", {"/etc/sysctl.d/10-site.conf": text}) == mode


def test_the_desired_state_has_no_order_and_no_duplicates() -> None:
    assert desired("b", "a*", "a", "b") == desired("a", "b", "a*")


@pytest.mark.parametrize(
    ("given", "link", "covered"),
    [
        ("eth0", "eth0", True),
        ("eth0", "eth0.100", False),
        ("eth*", "eth0.100", True),
        ("eth0.*", "eth0.100", True),
        ("eth0.1", "eth0x1", False),
        ("*", "eth0", True),
        ("*", "lo", False),
        ("*", "all", False),
        ("[dl]*", "default", False),
        ("[dl]*", "lo0", True),
    ],
)
def test_links_that_a_desired_state_covers(given: str, link: str, covered: bool) -> None:
    assert desired(given).covers(link) is covered


# The file


def test_the_file_has_lines_for_what_is_named_or_there_and_patterns_for_what_may_come() -> None:
    text = sysctl_text(desired("eth0.100", "eni*"), ["lo", "eth0", "eni1"], {})
    assert text == (
        "# Reverse-path filtering loose on: eth0.100 eni*\n"
        "-net/ipv4/conf/eni*/rp_filter = 2\n"
        "net/ipv4/conf/eni1/rp_filter = 2\n"
        "net/ipv4/conf/eth0.100/rp_filter = 2\n"
    )


def test_a_link_that_another_file_names_is_named_in_ours_too() -> None:
    other_files = {"/etc/sysctl.d/50-x.conf": f"{key('eth7')} = 1\n{key('ens7')} = 1\n"}
    assert f"\n{key('eth7')} = 2\n" in sysctl_text(desired("eth*"), [], other_files)
    assert "ens7" not in sysctl_text(desired("eth*"), [], other_files)


@pytest.mark.parametrize("name", ["x*", "x?", "x[", "x=", "x\\"])
def test_a_link_whose_name_no_line_can_say_is_left_to_the_pattern(name: str) -> None:
    assert sysctl_text(desired("x?"), ["xz", name], {}) == (
        "# Reverse-path filtering loose on: x?\n-net/ipv4/conf/x?/rp_filter = 2\nnet/ipv4/conf/xz/rp_filter = 2\n"
    )


@pytest.mark.parametrize("read", [sysctl_files.by_systemd, sysctl_files.by_procps])
def test_a_pattern_for_everything_leaves_the_reserved_names_alone(
    read: t.Callable[..., sysctl_files.Configuration],
) -> None:
    configuration = read({PATH: sysctl_text(desired("*"), ["eth0"], {})})
    values = {name: configuration.value(key(name)) for name in ("all", "default", "lo", "a", "alle", "lo0", "eth9", "d")}
    assert values == {"all": None, "default": None, "lo": None, "a": 2, "alle": 2, "lo0": 2, "eth9": 2, "d": 2}


def test_a_pattern_that_another_file_says_keeps_its_place_there() -> None:
    other_files = {BEFORE_OURS: f"{key('eth*')} = 2\n{key('*')} = 1\n", AFTER_OURS: f"{key('eni*')} = 0\n"}
    texts = {**other_files, PATH: sysctl_text(desired("eth*"), [], other_files)}
    assert "\n-net/ipv4/con[f]/eth*/rp_filter = 2\n" in texts[PATH]
    assignments = [(one.path, one.key.split("/")[3]) for one in sysctl_files.by_systemd(texts).assignments]
    assert assignments == [(BEFORE_OURS, "eth*"), (BEFORE_OURS, "*"), (PATH, "eth*"), (AFTER_OURS, "eni*")]
    other = "/etc/sysctl.d/91-x.conf"
    assert "/con[ff]/eth*/" in sysctl_text(desired("eth*"), [], texts)
    texts[other] = HEADING + sysctl_text(desired("eth*"), [], texts)
    assert sysctl_text(desired("eth*"), [], {**other_files, other: texts[other]}) == texts[PATH]


RAISING = {
    "all by name": (f"{key('all')}=1\n{key('eth1')}=2\n{key('eth2')}=0\n", {"eth1": 2, "eth2": 1, "default": 1}),
    "all by a pattern": (f"{key('*')}=1\n", {"eth1": 1, "eth2": 1, "default": 1}),
    "patterns above one another": (f"{key('all')}=1\n{key('eth*')}=0\n{key('*')}=2\n", {"eth1": 2, "default": 2}),
}


@pytest.mark.parametrize("case", RAISING)
@pytest.mark.parametrize("read", [sysctl_files.by_systemd, sysctl_files.by_procps])
def test_a_file_that_lowers_all_gives_its_value_to_all_else(case: str, read: t.Callable[..., sysctl_files.Configuration]) -> None:
    text, expected = RAISING[case]
    other_files = {"/etc/sysctl.d/50-x.conf": text}
    one = desired("eth0", mode="off", raise_all=True)
    both = read({**other_files, PATH: sysctl_text(one, [], other_files)})
    assert {name: both.value(key(name)) for name in expected} == expected
    assert (both.value(key("all")), both.value(key("eth0"))) == (0, 0)
    texts = {**other_files, PATH: sysctl_text(one, [], other_files)}
    assert not list(overriding(one, PATH, texts, read))
    assert "all" not in sysctl_text(one._replace(raise_all=False), [], other_files)


OVERRIDING: dict[str, tuple[str, str, list[tuple[str, int]]]] = {
    "an earlier file": ("/etc/sysctl.d/10-x.conf", "eth0=1\neth*=1\n*=1", []),
    "a later name": ("/etc/sysctl.d/99-x.conf", "eth1=1\neth0=1", [("eth0", 2)]),
    "a later name of the same value": ("/etc/sysctl.d/99-x.conf", "eth0=2", []),
    "a later pattern": ("/etc/sysctl.d/99-x.conf", "e*=1", [("eni*", 1)]),
    "a later pattern of another kind of link": ("/etc/sysctl.d/99-x.conf", "veth*=1", []),
    "a later name that ours then names too": ("/etc/sysctl.d/99-x.conf", "eni5=1", [("eni5", 1)]),
    "a later exclusion": ("/etc/sysctl.d/99-x.conf", "-eth0", [("eth0", 1)]),
    "our pattern said before": ("/etc/sysctl.d/10-x.conf", "eni*=2\n*=1", []),
    "all that is lower": ("/etc/sysctl.d/99-x.conf", "all=1", []),
    "all that is higher": ("/etc/sysctl.d/10-x.conf", "all=3", [("all", 1)]),
}


@pytest.mark.parametrize("case", OVERRIDING)
def test_lines_that_win_over_ours_are_found(case: str) -> None:
    path, short, expected = OVERRIDING[case]
    lines = [line.partition("=") for line in short.split("\n")]
    text = "\n".join(f"-{key(name[1:])}" if name.startswith("-") else f"{key(name)}={value}" for name, _equals, value in lines)
    one = desired("eth0", "eni*")
    files = {path: text, PATH: sysctl_text(one, [], {path: text})}
    found = overriding(one, PATH, files, sysctl_files.by_systemd)
    assert [(override.name, override.line.line) for override in found] == expected


@pytest.mark.parametrize("read", [sysctl_files.by_systemd, sysctl_files.by_procps])
@pytest.mark.parametrize("other", ["/etc/sysctl.d/80-x.conf", "/etc/sysctl.d/99-z.conf"])
def test_a_set_that_lowers_all_leaves_another_sets_links_to_come_as_that_set_desires(
    other: str, read: t.Callable[..., sysctl_files.Configuration]
) -> None:
    files = {BEFORE_OURS: f"{key('all')} = 2\n{key('*')} = 0\n"}
    first, second = desired("eni*", "veth7", mode="strict"), desired("eth0", mode="off", raise_all=True)
    for _run in range(3):
        files[other] = HEADING + sysctl_text(first, [], {**files, other: ""})
        files[PATH] = HEADING + sysctl_text(second, [], {**files, PATH: ""})
    configuration = read(files)
    values = {name: configuration.value(key(name)) for name in ("all", "default", "eth0", "eni5", "veth7", "veth1")}
    assert values == {"all": 0, "default": 2, "eth0": 0, "eni5": 1, "veth7": 1, "veth1": 2}
    assert not list(overriding(second, PATH, files, read))
    assert HEADING + sysctl_text(first, [], {**files, other: ""}) == files[other]


@pytest.mark.parametrize("interfaces", ["a/b", "[9-0]", "all", "x" * 16])
def test_a_foreign_heading_tells_no_desired_state(interfaces: str) -> None:
    text = f"# Reverse-path filtering loose on: {interfaces}\n"
    assert desired_in(text) is None
    assert key("all") in sysctl_text(desired("eth0", mode="off", raise_all=True), [], {BEFORE_OURS: f"{text}{key('all')} = 1"})


LOWER = {
    "conf/default": (f"{key('all')} = 1", f"{key('default')} = 0", [("default", 0, 1)]),
    "a name": (f"{key('all')} = 2", f"{key('eni1')} = 1", [("eni1", 1, 2)]),
    "a pattern": (f"{key('all')} = 1", f"{key('eni*')} = 0\n{key('v*')} = 2", [("eni*", 0, 1)]),
    "a pattern of desired links": (f"{key('all')} = 1", f"{key('eth*')} = 0\n{key('eth5*')} = 0", []),
    "a pattern that no link can match": (f"{key('all')} = 1", f"{key('?' * 16)} = 0\n{key('*a' * 600)} = 0", []),
}


@pytest.mark.parametrize("case", LOWER)
def test_later_lines_that_give_other_links_less_than_conf_all_gave_them_are_found(case: str) -> None:
    early, late, expected = LOWER[case]
    one, other_files = desired("eth0", "eth*", mode="off", raise_all=True), {BEFORE_OURS: early, AFTER_OURS: late}
    files = {**other_files, PATH: sysctl_text(one, ["eth0"], other_files)}
    found = [(over.name, over.line.number, over.expected) for over in overriding(one, PATH, files, sysctl_files.by_systemd)]
    assert found == expected
    warnings = boot_order(one, PATH, files)
    assert all(f"; at least {number} is expected. Remove" in text for text, (_name, _line, number) in zip(warnings, expected))


@pytest.mark.parametrize(
    ("path", "other", "is_masked"),
    [
        ("/usr/lib/sysctl.d/90-x.conf", "/etc/sysctl.d/90-x.conf", True),
        ("/usr/local/lib/sysctl.d/90-x.conf", "/run/sysctl.d/90-x.conf", True),
        ("/etc/sysctl.d/90-x.conf", "/usr/lib/sysctl.d/90-x.conf", False),
        ("/usr/lib/sysctl.d/90-x.conf", "/etc/sysctl.d/91-x.conf", False),
        ("/usr/lib/sysctl.d/90-x.conf", "/etc/90-x.conf", False),
    ],
)
def test_a_file_of_the_same_name_that_is_read_instead_is_warned_of(path: str, other: str, is_masked: bool) -> None:
    files = {other: "", path: sysctl_text(desired("eth0"), ["eth0"], {})}
    found = [*boot_order(desired("eth0"), path, files)]
    assert len(found) == is_masked
    assert not is_masked or found[0].startswith(f"{path} is not read at boot: {other} has the same name")


def test_a_path_by_another_name_of_its_folder_masks_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as /lib/sysctl.d if /lib is a link to /usr/lib."""
    (tmp_path / "usr").mkdir()
    (tmp_path / "lib").symlink_to("usr")
    folders = (str(tmp_path / "usr"), str(tmp_path / "lib"))
    monkeypatch.setattr(sysctl_files, "FOLDERS", folders)
    text = sysctl_text(desired("eth0"), ["eth0"], {})
    files = {f"{folder}/90-x.conf": text for folder in folders}
    assert not [*boot_order(desired("eth0"), f"{folders[1]}/90-x.conf", files)]


LINKS_THERE = {
    "a name that is none": ("eht0", True, "There is no link eht0, so there is nothing to set in the running kernel;"),
    "the same without the immediate plane": ("eht0", False, "There is no link eht0; PATH sets it when it appears."),
    "the nearest": ("eht0", False, "PATH sets it when it appears. If eth0 is meant, correct interfaces."),
    "nothing near": ("wlan7", False, "There is no link wlan7; PATH sets it when it appears."),
    "the loopback is never meant": ("l0", False, "There is no link l0; PATH sets it when it appears."),
    "a pattern that matches none": ("eni*", True, "No link matches eni*, so there is nothing to set in the running"),
    "the same, for links to come": ("eni*", False, ""),
    "a link": ("eth0", True, ""),
}


@pytest.mark.parametrize("case", LINKS_THERE)
def test_names_that_are_no_link_are_warned_of(case: str) -> None:
    word, is_immediate, expected = LINKS_THERE[case]
    found = " ".join(missing_links(desired(word), ["lo", "eth0", "docker0"], "PATH", is_immediate))
    assert expected in found and bool(expected) == bool(found)
    assert ("is meant" in found) is (word == "eht0")


# The running kernel


class Machine:
    """A kernel, and the files on which its record is kept."""

    def __init__(self, root: Path, *links: str, default: int = 0, all_: int = 0) -> None:
        (root / "run").mkdir()
        self.kernel = FakeSysctl(links, default, all_)
        self.files_read: dict[str, str] = {}
        self._root = root

    def resource(self, one: DesiredFilter | None, path: str = PATH) -> LiveReversePath:
        files = RootedFiles(self._root)
        return LiveReversePath(self.kernel, files, one, path, configuration=self.files_read)  # type: ignore[arg-type]

    def boot(self, files: dict[str, str]) -> None:
        """The record is removed, the kernel restarts, and the boot reads ``files``."""
        shutil.rmtree(self._root / "run")
        (self._root / "run").mkdir()
        self.kernel.boot(files)
        self.files_read = files

    def hold(self, one: DesiredFilter | None, path: str = PATH) -> list[str]:
        """The names that were written."""
        self.kernel.written = []
        changed = converge([self.resource(one, path)], {Plane.IMMEDIATE}).changed
        assert changed or not self.kernel.written
        return self.kernel.written

    @property
    def files(self) -> set[str]:
        return {str(path.relative_to(self._root)) for path in self._root.rglob("*")} - {"run"}


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path, "eth0", "eth1")


@needs_root
def test_a_link_is_set_once_and_gets_back_its_value(machine: Machine) -> None:
    machine.kernel.write("eth0", 1)
    assert machine.hold(desired("eth0")) == ["eth0"] and machine.hold(desired("eth0")) == []
    assert machine.kernel.effective() == {"lo": 0, "eth0": 2, "eth1": 0}
    assert machine.hold(desired("eth0", mode="strict")) == ["eth0"]
    assert machine.hold(desired("eth0", mode="off")) == ["eth0"]
    assert machine.hold(None) == ["eth0"] and machine.hold(None) == []
    assert machine.kernel.values["eth0"] == 1 and machine.files == set()


GOOD = {"name": "eth0", "ifindex": 2, "holder": PATH, "before": 1, "value": 2, "next": None, "named": True}
ODD: list[object] = [None, True, 1.5, "1", "", "\ud800", [], {}, 2**31, -(10**30), float("nan")]


def unfit() -> list[str]:
    """Invalid lines of the record: an entry with one value replaced by one that no kernel or link can have."""
    fits: dict[str, list[object]] = {
        "value": [None],
        "next": [None],
        "named": [True],
        "name": ["1", "", "\ud800"],
        "holder": ["1", "", "\ud800"],
    }
    changed = [{**GOOD, key: odd} for key in GOOD for odd in ODD if not any(odd is one for one in fits.get(key, []))]
    lines = [json.dumps(entry) for entry in changed]
    missing = [json.dumps({key: GOOD[key] for key in GOOD if key != left_out}) for left_out in ("name", "before")]
    return [*lines, *missing, json.dumps({**GOOD, "more": 1}), "", "x", "null", "5", "[]", "[" * 100_000, "{" * 100_000]


@needs_root
@pytest.mark.parametrize("line", unfit(), ids=lambda line: line[:120])
def test_an_odd_record_is_told_of_and_stops_no_run(machine: Machine, tmp_path: Path, line: str) -> None:
    machine.kernel.write("eth0", 1)
    machine.hold(desired("eth0"))
    record = tmp_path / RECORDS["rp_filter"][1:]
    record.write_text(f"{line}\n{record.read_text()}{line}\n")
    (warning,) = unreadable_record(RootedFiles(tmp_path), RECORDS["rp_filter"])
    assert f"{RECORDS['rp_filter']}, lines 1, 4: expected an entry" in warning
    assert machine.hold(desired("eth0")) == [] and machine.hold(None) == ["eth0"]
    assert machine.kernel.values["eth0"] == 1 and machine.files == set()
    assert not [*unreadable_record(RootedFiles(tmp_path), RECORDS["rp_filter"])]


@needs_root
@pytest.mark.parametrize("text", ["", "\0", json.dumps({**GOOD, "before": "1"})])
def test_a_record_without_an_entry_goes_with_absent(machine: Machine, tmp_path: Path, text: str) -> None:
    record = tmp_path / RECORDS["rp_filter"][1:]
    record.parent.mkdir()
    record.write_text(text)
    assert machine.hold(None) == [] and not record.exists()


def test_the_record_of_a_run_reads_back_as_it_was_written() -> None:
    record = record_from(json.dumps(GOOD))
    assert record and record_from(record_text(record) or "") == record and not unreadable(record_text(record) or "")


@needs_root
def test_a_value_that_merely_reads_right_is_pinned(machine: Machine) -> None:
    machine.kernel.write("default", 2)
    assert machine.hold(desired("eth0")) == ["eth0"] and machine.hold(desired("eth0")) == []
    machine.kernel.write("default", 0)
    assert machine.kernel.effective() == {"lo": 0, "eth0": 2, "eth1": 0}


@needs_root
def test_a_link_that_was_made_anew_is_pinned_again_and_a_renamed_one_is_not(machine: Machine) -> None:
    machine.kernel.write("default", 2)
    machine.hold(desired("eth*", "ens1"))
    machine.kernel.rename("eth1", "ens1")
    assert machine.hold(desired("eth*", "ens1")) == []
    machine.kernel.remove("eth0")
    assert machine.hold(desired("eth*", "ens1")) == []
    machine.kernel.add("eth0")
    assert machine.hold(desired("eth*", "ens1")) == ["eth0"]


@needs_root
def test_a_foreign_change_stays(machine: Machine) -> None:
    machine.hold(desired("eth*"))
    machine.kernel.write("eth0", 1)
    assert machine.hold(None) == ["eth1"]
    assert machine.kernel.values["eth0"] == 1 and machine.files == set()


@needs_root
def test_a_foreign_change_is_corrected_by_the_desired_state_and_restored_by_absent(machine: Machine) -> None:
    machine.hold(desired("eth0"))
    machine.kernel.write("eth0", 1)
    assert machine.hold(desired("eth0")) == ["eth0"]
    machine.hold(None)
    assert machine.kernel.values["eth0"] == 1


@needs_root
def test_a_link_that_is_no_longer_named_gets_its_value_back(machine: Machine) -> None:
    machine.hold(desired("eth0", "eth1"))
    assert machine.hold(desired("eth1")) == ["eth0"]
    assert machine.kernel.effective() == {"lo": 0, "eth0": 0, "eth1": 2}


@needs_root
def test_two_sets_do_not_fight(machine: Machine) -> None:
    other = "/etc/sysctl.d/91-x.conf"
    machine.hold(desired("eth0"))
    assert machine.hold(desired("eth1", mode="strict"), other) == ["eth1"]
    assert machine.hold(desired("eth0")) == [] and machine.hold(desired("eth*", mode="loose")._replace(patterns=("eth0*",))) == []
    assert machine.hold(desired("eth0"), other) == ["eth0", "eth1"]
    with pytest.raises(Refusal, match=f"should be 1, but the set whose path is {PATH} keeps it at 2"):
        machine.hold(desired("eth0", mode="strict"), other)
    assert machine.hold(None, other) == [] and machine.kernel.values["eth0"] == 2
    machine.hold(None)
    assert machine.kernel.effective() == {"lo": 0, "eth0": 0, "eth1": 0} and machine.files == set()


@needs_root
@pytest.mark.parametrize(("all_", "mode"), [(1, "off"), (2, "off"), (2, "strict")])
def test_a_desired_state_that_all_makes_impossible_is_refused_or_all_is_lowered(tmp_path: Path, all_: int, mode: str) -> None:
    machine = Machine(tmp_path, "eth0", "eth1", all_=all_)
    with pytest.raises(Refusal, match=f"conf.all.rp_filter is {all_} .* mode {mode} .* raise_all"):
        machine.hold(desired("eth0", mode=mode))
    before, values = machine.kernel.effective(), dict(machine.kernel.values)
    raising = desired("eth0", mode=mode, raise_all=True)
    assert machine.hold(raising) == ["eth0", "eth1", "lo", "default", "all"] and machine.hold(raising) == []
    assert machine.kernel.effective() == {**before, "eth0": MODES[mode]}
    machine.kernel.add("eth2")
    assert machine.kernel.effective()["eth2"] == all_ and machine.hold(raising) == []
    with pytest.raises(Refusal, match="raise_all"):
        machine.hold(desired("eth0", mode=mode))
    assert machine.hold(None)[0] == "all"
    assert {**machine.kernel.values, "eth2": 0} == {**values, "eth2": 0} and machine.files == set()


@needs_root
def test_no_other_link_is_filtered_less_on_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(tmp_path, "eth0", "eth1", all_=2)
    seen: list[int] = []
    write = machine.kernel.write

    def write_and_look(name: str, value: int) -> None:
        write(name, value)
        seen.append(machine.kernel.effective()["eth1"])

    monkeypatch.setattr(machine.kernel, "write", write_and_look)
    for mode in ("strict", "off", "strict", "loose"):
        machine.hold(desired("eth0", mode=mode, raise_all=True))
    machine.hold(None)
    assert len(seen) > 10 and set(seen) == {2}


@needs_root
def test_a_desired_state_that_does_not_need_a_lower_all_any_more_raises_it_again(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "eth0", "eth1", all_=1)
    values = dict(machine.kernel.values)
    machine.hold(desired("eth0", mode="off", raise_all=True))
    machine.hold(desired("eth0", mode="strict", raise_all=True))
    assert machine.kernel.values == {**values, "eth0": 1}


@needs_root
@pytest.mark.parametrize("first", [PATH, "/etc/sysctl.d/91-x.conf"])
def test_a_link_that_keeps_its_value_below_a_lowered_all_may_be_named_by_another_set(tmp_path: Path, first: str) -> None:
    machine, other = Machine(tmp_path, "eth0", "eth1", all_=1), "/etc/sysctl.d/91-x.conf"
    raising = desired("eth0", mode="off", raise_all=True)
    machine.hold(raising)
    assert machine.hold(desired("eth1"), other) == ["eth1"] and machine.hold(desired("eth1"), other) == []
    assert machine.hold(raising) == [] and machine.kernel.effective() == {"lo": 1, "eth0": 0, "eth1": 2}
    machine.hold(None, first)
    machine.hold(None, {PATH: other, other: PATH}[first])
    assert machine.kernel.effective() == {"lo": 1, "eth0": 1, "eth1": 1} and machine.files == set()


@needs_root
def test_a_set_that_lowers_a_link_after_all_was_lowered_is_right(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "eth0", "eth1", all_=1)
    raising = desired("eth0", mode="off", raise_all=True)
    machine.hold(raising)
    machine.kernel.write("eth1", 0)
    assert machine.hold(raising) == [] and machine.kernel.values["eth1"] == 0


@needs_root
@pytest.mark.parametrize("name", ["eth0", "eth1", "lo", "default", "all"])
def test_a_write_that_fails_is_named_and_the_others_are_undone(tmp_path: Path, name: str) -> None:
    machine = Machine(tmp_path, "eth0", "eth1", all_=1)
    values = dict(machine.kernel.values)
    machine.kernel.fails = {name}
    with pytest.raises(Failure, match=f"conf/{name}/rp_filter: Read-only file system"):
        machine.hold(desired("eth0", mode="off", raise_all=True))
    assert machine.kernel.values == values and machine.files == set()


@needs_root
def test_a_record_that_cannot_be_read_is_no_record(machine: Machine, tmp_path: Path) -> None:
    machine.hold(desired("eth0"))
    (tmp_path / RECORDS["rp_filter"].lstrip("/")).write_text('{"name": 1}\n[]\nrubbish\n')
    assert machine.hold(desired("eth0")) == ["eth0"] and machine.hold(desired("eth0")) == []


@needs_root
def test_the_report_is_of_what_was_observed_and_reads_nothing_more(tmp_path: Path) -> None:
    machine, one = Machine(tmp_path, "eth0", "eth1", all_=1), desired("eth0", mode="off", raise_all=True)
    resource = machine.resource(one)
    before, after = {"value": 0, "all": 1, "effective": 1}, {"value": 0, "all": 0, "effective": 0}
    observed = resource.observe()
    machine.hold(one)
    reading = machine.resource(one).observe()
    machine.kernel.read = lambda key: pytest.fail("read again")  # type: ignore[method-assign]
    assert resource.plan(observed).report == {"eth0": {"before": before, "after": after}}
    assert resource.plan(reading).report == {"eth0": {"before": after, "after": after}}


@needs_root
def test_a_pinning_write_shows_in_the_diff(machine: Machine) -> None:
    machine.kernel.write("default", 2)
    (entry,) = converge([machine.resource(desired("eth0"))], {Plane.IMMEDIATE}, check=True).diff()
    assert entry["before"] == "net.ipv4.conf.eth0.rp_filter = 2  # effective 2, not pinned\n"
    assert entry["after"] == "net.ipv4.conf.eth0.rp_filter = 2  # effective 2\n"
    assert machine.kernel.written == [] and machine.files == set()


# Any current and any desired states
LINKS = ("eth0", "eth1", "eni1")
MODE = st.sampled_from([*MODES])
DESIRED = st.builds(
    lambda words, mode, raise_all: desired(*words, mode=mode, raise_all=raise_all),
    st.lists(st.sampled_from([*LINKS, "eth*", "*1", "e*", "*"]), min_size=1, max_size=2),
    MODE,
    st.booleans(),
)
NUMBER = st.integers(0, 2)
START = st.tuples(NUMBER, NUMBER, st.dictionaries(st.sampled_from(["lo", *LINKS]), NUMBER))


def started(root: Path, start: tuple[int, int, dict[str, int]]) -> Machine:
    default, all_, written = start
    machine = Machine(root, *LINKS, default=default, all_=all_)
    for name, value in written.items():
        machine.kernel.write(name, value)
    return machine


def current(machine: Machine, one: DesiredFilter) -> bool:
    """Makes the desired state current: its links get the value, the others keep theirs. False if the state is impossible."""
    try:
        machine.hold(one)
    except Refusal:
        return False
    return True


@needs_root
@settings(max_examples=50, deadline=None)
@given(start=START, desired_states=st.lists(DESIRED, min_size=1, max_size=4))
def test_with_any_desired_state_only_what_is_named_changes_and_absent_restores(
    start: tuple[int, int, dict[str, int]], desired_states: list[DesiredFilter]
) -> None:
    with tempfile.TemporaryDirectory() as root:
        machine = started(Path(root), start)
        values, effective = dict(machine.kernel.values), machine.kernel.effective()
        for one in desired_states:
            was = dict(machine.kernel.values)
            if current(machine, one):
                assert machine.hold(one) == []
                assert machine.kernel.effective() == {
                    link: one.mode if one.covers(link) else before for link, before in effective.items()
                }
            else:
                assert machine.kernel.values == was and not one.raise_all
        machine.hold(None)
        assert machine.kernel.values == values and machine.files == set()


@pytest.mark.thorough
@needs_root
@settings(max_examples=50, deadline=None)
@given(start=START, first=DESIRED, second=st.one_of(DESIRED, st.none()), done=st.integers(0, 14))
def test_a_killed_run_is_mended_by_the_next(
    start: tuple[int, int, dict[str, int]], first: DesiredFilter, second: DesiredFilter | None, done: int
) -> None:
    with tempfile.TemporaryDirectory() as root, tempfile.TemporaryDirectory() as other_root:
        machine, unharmed = started(Path(root), start), started(Path(other_root), start)
        values = dict(machine.kernel.values)
        if current(machine, first) and current(unharmed, first) and (second is None or current(unharmed, second)):
            resource = machine.resource(second)
            for step in resource.plan(resource.observe()).steps[:done]:
                perform(resource, step.do)
            machine.hold(second)
            unharmed.hold(second)
            assert machine.kernel.values == unharmed.kernel.values
        machine.hold(None)
        assert machine.kernel.values == values and machine.files == set()


# Boots

OTHERS = st.lists(
    st.builds(
        "{}{}{}".format,
        st.sampled_from(["", "-"]),
        st.sampled_from([key(name) for name in ("all", "default", "lo", *LINKS, "*", "eth*", "e*", "*1", "[!l]*")]),
        st.one_of(NUMBER.map(" = {}".format), st.sampled_from(["", " = 02", " = x"])),
    ),
    max_size=4,
).map("\n".join)
UNSAYABLE = "e*"  # a link whose name is a pattern in every line


def written(one: DesiredFilter, other_files: dict[str, str], links: t.Collection[str] = (*LINKS, UNSAYABLE)) -> dict[str, str]:
    """All files, with the collection's file for the desired state."""
    return {**other_files, PATH: HEADING + sysctl_text(one, links, other_files)}


@given(one=DESIRED)
def test_the_files_heading_tells_the_desired_state(one: DesiredFilter) -> None:
    assert desired_in(HEADING + sysctl_text(one, [], {})) == one._replace(raise_all=False)


@needs_root
@settings(max_examples=50, deadline=None)
@given(one=DESIRED, early=OTHERS, late=OTHERS, last=OTHERS)
@example(  # the line that gives other links the old value of conf/all is itself overridden
    one=desired("eth0", mode="off", raise_all=True),
    early="net/ipv4/conf/all/rp_filter = 2\nnet/ipv4/conf/*/rp_filter = 1",
    late="net/ipv4/conf/eth*/rp_filter = 0\nnet/ipv4/conf/*/rp_filter = 1",
    last="",
)
@example(  # another file has the pattern before and after the collection's file
    one=desired("eth0", mode="off", raise_all=True),
    early="net/ipv4/conf/eth*/rp_filter = 2",
    late="net/ipv4/conf/*/rp_filter = 1\nnet/ipv4/conf/eth*/rp_filter = 2",
    last="",
)
@example(  # a desired pattern that covers the loopback too
    one=desired("*", mode="off", raise_all=True),
    early="net/ipv4/conf/all/rp_filter = 1\nnet/ipv4/conf/*/rp_filter = 0",
    late="net/ipv4/conf/*/rp_filter = 0",
    last="",
)
def test_after_a_boot_nothing_is_written_and_absent_leaves_what_a_node_without_us_has(
    one: DesiredFilter, early: str, late: str, last: str
) -> None:
    other_files = {BEFORE_OURS: early, AFTER_OURS: late, sysctl_files.LAST_OF_PROCPS: last}
    files = written(one, other_files)
    with tempfile.TemporaryDirectory() as root:
        machine = Machine(Path(root), *LINKS, UNSAYABLE)
        machine.boot(other_files)
        values, effective = dict(machine.kernel.values), machine.kernel.effective()
        machine.boot(files)
        wins = not list(overriding(one, PATH, files, sysctl_files.by_systemd))
        if wins and (one.raise_all or machine.kernel.values["all"] <= one.mode):
            assert machine.kernel.effective() == {
                link: max(one.mode, machine.kernel.values["all"]) if one.covers(link) else before
                for link, before in effective.items()
            }
            assert machine.hold(one) == [] and machine.files == set()
        assert not current(machine, one) or machine.hold(one) == []
        machine.hold(None)
        assert machine.kernel.effective() == effective
        assert {**values, **machine.kernel.values} == machine.kernel.values
        assert machine.files == set() and machine.hold(None) == []


@needs_root
def test_a_link_that_udev_has_not_set_up_is_written(machine: Machine) -> None:
    one = desired("eth*")
    machine.boot(written(one, {}))
    machine.kernel.add("eth2")
    assert machine.hold(one) == ["eth2"] and machine.hold(one) == []
    machine.hold(None)
    assert machine.kernel.effective() == {"lo": 0, "eth0": 0, "eth1": 0, "eth2": 0} and machine.files == set()


@needs_root
def test_a_foreign_change_after_the_boot_is_corrected(machine: Machine) -> None:
    machine.boot(written(desired("eth*"), {}))
    machine.kernel.write("eth0", 1)
    assert machine.hold(desired("eth*")) == ["eth0"]
    machine.hold(None)
    assert machine.kernel.effective() == {"lo": 0, "eth0": 1, "eth1": 0}


@needs_root
def test_another_sets_links_are_its_own_after_a_boot_too(machine: Machine) -> None:
    machine.boot(written(desired("eth0"), {}))
    other = "/etc/sysctl.d/91-x.conf"
    with pytest.raises(Refusal, match=f"the set whose path is {PATH} keeps it at 2"):
        machine.hold(desired("eth0", mode="strict"), other)


@needs_root
@pytest.mark.parametrize("is_booted", [False, True])
@pytest.mark.parametrize("first", [PATH, "/etc/sysctl.d/91-x.conf"])
def test_the_last_set_that_lets_go_of_a_link_puts_its_value_back(machine: Machine, first: str, is_booted: bool) -> None:
    paths, one = (PATH, "/etc/sysctl.d/91-x.conf"), desired("eth0")
    if is_booted:
        machine.boot({path: HEADING + sysctl_text(one, [], {}) for path in paths})
    else:
        machine.kernel.write("eth0", 1)
        assert [machine.hold(one, path) for path in paths] == [["eth0"], ["eth0"]]
    assert [machine.hold(one, path) for path in paths] == [[], []]
    last = paths[paths.index(first) - 1]
    assert machine.hold(None, first) == [] and machine.hold(one, last) == [] and machine.kernel.values["eth0"] == 2
    assert machine.hold(None, last) == ["eth0"] and machine.kernel.values["eth0"] == (0 if is_booted else 1)
    assert machine.files == set()


@needs_root
def test_a_file_that_was_written_since_the_boot_tells_nothing(machine: Machine) -> None:
    machine.boot(written(desired("eth0"), {}))
    machine.kernel.applied = set()
    assert machine.hold(desired("eth0")) == ["eth0"] and machine.hold(desired("eth0")) == []
    machine.hold(None)
    assert machine.kernel.values["eth0"] == 2
