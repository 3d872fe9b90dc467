# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Shell patterns, and which line of which file decides on a setting. The real tools:
tests/integration/_platform/test_sysctl.py."""

from __future__ import annotations

import fnmatch
import itertools
import re
import typing as t

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._core import glob
from ansible_collections.kubenode.datapath.plugins.module_utils._platform import sysctl_files

ETH0 = "net/ipv4/conf/eth0/rp_filter"

WORDS = ["".join(letters) for length in range(5) for letters in itertools.product("al-.", repeat=length)]
PATTERNS = [
    "*",
    "?",
    "a*",
    "*l",
    "a?l",
    "al*l",
    "[al]*",
    "[!a]l*",
    "[^a]l*",
    "[a-l]*",
    "[al-]*",
    "*.*",
    "a",
    "",
    "[",
    "[]",
    "**",
]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_matches_what_the_shell_matches(pattern: str) -> None:
    # fnmatch knows no [^...] and lets a pattern match a leading dot, which glob(7) does not.
    known = pattern.replace("[^", "[!")
    expected = {word for word in WORDS if fnmatch.fnmatchcase(word, known)}
    expected = {word for word in expected if not word.startswith(".") or pattern.startswith(".")}
    assert {word for word in WORDS if glob.matches(pattern, word)} == expected


def test_a_range_ends_with_its_last_character() -> None:
    assert [one for one in "`abcdefX" if glob.matches("[b-d]", one)] == ["b", "c", "d"]
    assert [one for one in "[]a-c" if glob.matches("[]a-]", one)] == ["]", "a", "-"]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_reads_back_from_its_text(pattern: str) -> None:
    parsed = glob.parse(pattern)
    assert glob.parse(glob.text(parsed)) == parsed


@pytest.mark.parametrize("names", [("al",), ("al", "a", "l"), ("", "all"), ("lala", "la")])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_without_names_matches_all_else(pattern: str, names: tuple[str, ...]) -> None:
    parts = glob.without(glob.parse(pattern), names)
    for word in WORDS:
        if not word.startswith("."):  # a part may begin with a character class where the pattern began with a star
            is_left = glob.matches(pattern, word) and word not in names
            assert any(glob._matches(part, word) for part in parts) == is_left
            assert any(glob._matches(glob.parse(glob.text(part)), word) for part in parts) == is_left


CLASSES = {
    **{"[al-]": "[al-]", "[+l-]": "[+l-]", "[!+l-]": "[!+l-]", "[]A]": "[]A]", "[!]A]": "[!]A]", "[]-]": "[]-]"},
    **{"[0!]": "[0!]", "[0^]": "[0^]", "[-!]": "[-!]", "[!!]": "[!!]", "[]!-]": "[]!-]"},
    **{"[*]": "[*]", "[?]": "[?]", "[[]": "[[]", "[a]": "a", "[!a]": "[!a]", "[c-a]": "?"},
}


@pytest.mark.parametrize("pattern", CLASSES)
def test_a_class_is_written_so_that_it_is_read_as_the_same(pattern: str) -> None:
    parsed = glob.parse(pattern)
    assert glob.text(parsed) == CLASSES[pattern]
    assert glob.parse(glob.text(parsed)) == parsed or not all(part and part.characters for part in parsed)


def test_a_dot_at_the_beginning_is_matched_by_a_dot() -> None:
    assert [one for one in (".*", "[.]*", "?*", "[!a]*", "*") if glob.matches(one, ".a")] == [".*", "[.]*"]


@pytest.mark.parametrize("pattern", ["*a" * 200 + "b", "?*" * 15 + "b", "*" * 2000, "[" * 2000])
def test_no_pattern_takes_long(pattern: str) -> None:
    assert glob.matches(pattern, "a" * 15) is (set(pattern) == {"*"})


@pytest.mark.parametrize("one", PATTERNS)
@pytest.mark.parametrize("other", PATTERNS)
def test_patterns_overlap_where_a_name_matches_both(one: str, other: str) -> None:
    first, second = glob.parse(one), glob.parse(other)
    common = any(glob._matches(first, word) and glob._matches(second, word) for word in WORDS)
    assert glob.overlap(first, second) == common or {"[", "[]"} & {one, other}


SPELLINGS = {
    "net.ipv4.conf.eth0.rp_filter": ETH0,
    "net/ipv4/conf/eth0/rp_filter": ETH0,
    "/net/ipv4/conf/eth0/rp_filter": ETH0,
    "net/ipv4/conf//eth0/rp_filter/": ETH0,
    "net/ipv4/conf/eth0.100/rp_filter": "net/ipv4/conf/eth0.100/rp_filter",
    "net.ipv4.conf.eth0/100.rp_filter": "net/ipv4/conf/eth0.100/rp_filter",
    "net.ipv4.conf.eth0.100.rp_filter": "net/ipv4/conf/eth0/100/rp_filter",
    "- net.ipv4.conf.eth0.rp_filter": ETH0,
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_key_has_many_spellings(spelling: str) -> None:
    (one,) = sysctl_files.by_procps({"/etc/sysctl.d/1.conf": f"# comment\n ; comment\nnonsense\n {spelling} = 2 \n"}).assignments
    assert one == ("/etc/sysctl.d/1.conf", 4, SPELLINGS[spelling], "2")


NUMBERS = {
    "1": 1,
    "1 # x": 1,
    "010": 8,
    "0x2": 2,
    "0": 0,
    "-1": -1,
    "": None,
    "on": None,
    "1x": None,
    "08": None,
    "1_0": None,
}


@pytest.mark.parametrize("value", NUMBERS)
def test_a_number_is_what_the_kernel_reads(value: str) -> None:
    assert sysctl_files.Assignment("f", 1, ETH0, value).number == NUMBERS[value]


# files, then what systemd-sysctl and what `sysctl --system` leave in eth0
PRECEDENCE = {
    "none": ({}, None, None),
    "a later name wins, whatever the folder": ({"/usr/lib/sysctl.d/9.conf": "eth0=1", "/etc/sysctl.d/1.conf": "eth0=2"}, 1, 1),
    "a name in /etc masks": ({"/usr/lib/sysctl.d/9.conf": "eth0=1", "/etc/sysctl.d/9.conf": "eth0=2"}, 2, 2),
    "a name in /run masks": ({"/usr/lib/sysctl.d/9.conf": "eth0=1", "/run/sysctl.d/9.conf": "eth0=2"}, 2, 2),
    "a name in /etc masks one in /run": ({"/run/sysctl.d/9.conf": "eth0=1", "/etc/sysctl.d/9.conf": "eth0=2"}, 2, 2),
    "other suffixes are nothing": ({"/etc/sysctl.d/9.conf.bak": "eth0=1"}, None, None),
    "explicit before a later glob": ({"/etc/sysctl.d/1.conf": "eth0=2", "/etc/sysctl.d/9.conf": "*=1"}, 2, 2),
    "the last glob": ({"/etc/sysctl.d/1.conf": "eth*=2", "/etc/sysctl.d/9.conf": "*=1"}, 1, 1),
    "a value said again keeps its place": ({"/etc/sysctl.d/1.conf": "*=2\neth*=1\n*=2"}, 1, 2),
    "a key said again is the last": ({"/etc/sysctl.d/1.conf": "eth0=1\neth0=2\neth0=1"}, 1, 1),
    "/etc/sysctl.conf is procps' last": ({"/etc/sysctl.d/99-z.conf": "eth0=1", "/etc/sysctl.conf": "eth0=2"}, 1, 2),
    "an exclusion keeps globs away": ({"/etc/sysctl.d/1.conf": "-eth0\n*=1"}, None, None),
    "an exclusion unsets for systemd": ({"/etc/sysctl.d/1.conf": "eth0=1\n-eth0"}, None, 1),
    "an excluded glob excludes nothing": ({"/etc/sysctl.d/1.conf": "-e*\n*=1"}, 1, 1),
    "rubbish keeps globs away": ({"/etc/sysctl.d/1.conf": "eth0=x\n*=1"}, None, None),
}  # fmt: skip


@pytest.mark.parametrize("read", [sysctl_files.by_systemd, sysctl_files.by_procps])
def test_a_link_called_like_a_pattern_has_no_line_of_its_own(read: t.Callable[..., sysctl_files.Configuration]) -> None:
    text = "net/ipv4/conf/x*/rp_filter = 2\nnet/ipv4/conf/*/rp_filter = 1\n"
    assert read({"/etc/sysctl.d/1.conf": text}).value("net/ipv4/conf/x*/rp_filter") == 1


@pytest.mark.parametrize("case", PRECEDENCE)
def test_the_line_that_decides_a_setting_is_found(case: str) -> None:
    short, systemd, procps = PRECEDENCE[case]
    texts = {path: re.sub(r"^(-?)([^=\n]+)", r"\1net/ipv4/conf/\2/rp_filter", text, flags=re.M) for path, text in short.items()}
    assert (sysctl_files.by_systemd(texts).value(ETH0), sysctl_files.by_procps(texts).value(ETH0)) == (systemd, procps)
