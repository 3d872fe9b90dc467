# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A report comes as a folder, a dictionary or a text, and shows no other file of the machine."""

from __future__ import annotations

import gzip
import io
import json
import lzma
import os
import re
import tarfile
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Invalid
from ansible_collections.kubenode.datapath.plugins.module_utils._pastes import pastes, pastes_backend
from ansible_collections.kubenode.datapath.plugins.module_utils._snapshot import snapshot

from .test_output_names import OF_TWO_NODES

SNAPSHOT = snapshot.compose({"rules": [{"priority": 7, "family": "ipv4", "table": "7"}]}, [])


@pytest.mark.parametrize(
    ("given", "texts"),
    [
        ({"ip rule": "0: x\n"}, {"ip rule": "0: x\n"}),
        ({"ip rule": ["0: x", "1: y"], "ip route": None}, {"ip rule": "0: x\n1: y", "ip route": ""}),
        ('{"ip rule": "0: x"}', {"ip rule": "0: x"}),
        ("$ ip rule\n0: x\n", {"report": "$ ip rule\n0: x\n"}),
    ],
)
def test_the_forms_of_a_report(given: Any, texts: dict[str, str]) -> None:
    assert pastes_backend.report(given) == (texts, [])


@pytest.mark.parametrize("given", [5, ["a"], "", " ", {"ip rule": 5}, {"ip rule": [1]}, "/nowhere/at all"])
def test_another_form_is_an_error(given: Any) -> None:
    with pytest.raises(Invalid, match="^dump"):
        pastes_backend.report(given)


def test_a_folder_shows_its_own_files_only(tmp_path: Path) -> None:
    folder, secret = tmp_path / "report", tmp_path / "secret.txt"
    folder.mkdir()
    secret.write_text("root:x\n")
    (folder / "ip-rule.txt").write_bytes(b"0: \xff\n")
    (folder / "copy.txt").symlink_to("ip-rule.txt")
    (folder / "notes.md").write_text("left out")
    os.mkfifo(folder / "pipe.txt")
    assert pastes_backend.report(str(folder)).texts == {name: "0: \ufffd\n" for name in ("copy.txt", "ip-rule.txt")}
    (folder / "link.txt").symlink_to(secret)
    with pytest.raises(Invalid, match="not with links to files outside of it"):
        pastes_backend.report(str(folder))


@pytest.mark.parametrize(
    "content",
    [
        gzip.compress(b"", mtime=0) * 1_000_000,
        lzma.compress(b"") * 2_000_000,
        b"\x1f\x8b\x08\x08" + bytes(6) + b"x" * (16 << 20),
    ],
    ids=["streams of gzip", "streams of xz", "a name in gzip"],
)
def test_an_archive_that_takes_too_long_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr(pastes_backend, "SECONDS", 1)
    (tmp_path / "bundle").write_bytes(content)
    with pytest.raises(Invalid, match="^dump must be outputs that are read with at most 1 s of computation; '.*/bundle'"):
        pastes_backend.read(str(tmp_path / "bundle"))


HUGE, BLANKS = "1" * 5000, " " * 50_000  # Python converts at most 4300 digits


@pytest.mark.parametrize(
    ("command", "line"),
    [
        ("iptables-save", f"*filter\n:FORWARD ACCEPT [{HUGE}:0]\n[{HUGE}:0] -A FORWARD -j DROP\nCOMMIT"),
        ("iptables -nvL", f"Chain FORWARD (policy ACCEPT {HUGE} packets, 0 bytes)\n{HUGE} 0 DROP all -- * * 0.0.0.0/0 0.0.0.0/0"),
        ("conntrack -L", f"tcp 6 1 src=10.0.0.1 dst=10.0.0.2 sport=1 dport={HUGE} [UNREPLIED] use=1"),
        ("tcpdump", f"12:00:00.000001 IP 10.0.0.1.1 > 10.0.0.2.{HUGE}: Flags [S], length 0"),
        ("nft list ruleset", f"table ip x {{\n chain y {{\n counter packets {HUGE} bytes 0 drop\n }}\n}}"),
        ("ip addr", f"{HUGE}: eth1: <UP> mtu {HUGE} qdisc noop"),
        ("ip route", f"default{BLANKS}via 10.0.0.1 dev eth0"),
        ("ebtables-save", f"*filter\n-A FORWARD -p{BLANKS}IPv4 -j ACCEPT"),
        ("ebtables -L", f"Bridge chain: FORWARD, entries: 1, policy: ACCEPT\n-p{BLANKS}IPv4 -j ACCEPT"),
        ("sysctl -a", f"net.ipv4.ip_forward{BLANKS}x"),
    ],
)
def test_no_number_and_no_run_of_blanks_stops_the_reading(monkeypatch: pytest.MonkeyPatch, command: str, line: str) -> None:
    monkeypatch.setattr(pastes_backend, "SECONDS", 1)
    assert pastes_backend.read({command: line, "ip rule": "0: from all lookup local"}).snapshot


def test_the_files_of_a_folder_have_a_bound_together(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"ip-rule-{number}.txt").touch()
        os.truncate(tmp_path / f"ip-rule-{number}.txt", pastes.LARGEST // 2)
    with pytest.raises(Invalid, match=f"^dump must be a folder with files of at most {pastes.LARGEST} bytes together"):
        pastes_backend.report(str(tmp_path))


def test_a_line_that_is_not_understood_is_shown_in_part_and_harmless() -> None:
    found = pastes.read({"report": "\x1b[2J" + "x" * 500, "ip-route": f"default via {'1' * 500} dev eth0\ndefault dev eth0\n"})
    assert len(found.ignored) == 3 and all(len(one) < 300 and one.isprintable() for one in found.ignored)


@pytest.mark.parametrize("name", ["ip-rule.txt", "ip-rule"])
def test_a_file_is_one_output(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("7:\tfrom all lookup 7\n")
    assert 7 in [rule["priority"] for rule in pastes_backend.read(str(tmp_path / name)).snapshot["rules"]]


@pytest.mark.parametrize("form", [lambda path: path, lambda path: Path(path).read_text(), lambda path: SNAPSHOT])
def test_a_snapshot_is_taken_as_it_is(tmp_path: Path, form: Any) -> None:
    path = tmp_path / "node.json"
    path.write_text(json.dumps(SNAPSHOT))
    assert pastes_backend.read(form(str(path))) == (SNAPSHOT, [])


@pytest.mark.parametrize(
    ("content", "node", "error"),
    [
        ({**SNAPSHOT, "format": 99}, "", "dump must be a snapshot of format 1.*format 99"),
        (SNAPSHOT, "node1", "node must be left out"),
    ],
)
def test_a_snapshot_of_another_format_or_with_a_node_is_an_error(content: Any, node: str, error: str) -> None:
    with pytest.raises(Invalid, match=error):
        pastes_backend.read(content, node)


@pytest.mark.parametrize(("node", "gateway"), [("node1", "192.0.2.1"), ("node2", "192.0.2.2")])
def test_the_outputs_of_one_node_are_read_of_a_text_with_the_prompts_of_two(tmp_path: Path, node: str, gateway: str) -> None:
    path = tmp_path / "report.txt"
    path.write_text(OF_TWO_NODES)
    for form in (str(path), OF_TWO_NODES):
        assert [route["via"] for route in pastes_backend.read(form, node).snapshot["routes"]] == [gateway]
        with pytest.raises(Invalid, match="node must be left out"):
            pastes_backend.read(form, "node3")


def test_json_of_an_output_in_a_file_is_no_snapshot(tmp_path: Path) -> None:
    path = tmp_path / "ruleset.json"
    path.write_text(json.dumps({"nftables": [{"metainfo": {}}, {"table": {"family": "ip", "name": "x", "handle": 1}}]}))
    assert pastes_backend.read(str(path)).snapshot["nftables"] == [{"table": {"family": "ip", "name": "x", "handle": 1}}]


def test_a_tar_without_a_suffix_is_an_archive_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / "stdin"
    with tarfile.open(path, "w") as archive:
        entry = tarfile.TarInfo("ip-rule.txt")
        entry.size = 22
        archive.addfile(entry, io.BytesIO(b"7:\tfrom all lookup 7\n "))
    assert 7 in [rule["priority"] for rule in pastes_backend.read(str(path)).snapshot["rules"]]


SIZE = 2 << 30


def test_a_result_is_returned_from_another_process() -> None:
    pid, text = pastes_backend.within_bounds(lambda: (os.getpid(), "\ud800\x1b"), 5, SIZE)
    assert pid != os.getpid() and text == "\ud800\x1b"


def test_an_error_of_the_function_is_raised() -> None:
    def refuse() -> None:
        raise Invalid("option", {1: ["x"]}, "a number")

    with pytest.raises(Invalid, match="^option must be a number; {'1': \\['x'\\]} was given$"):
        pastes_backend.within_bounds(refuse, 5, SIZE)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        pastes_backend.within_bounds(lambda: 1 // 0, 5, SIZE)


def test_a_function_that_takes_too_long_is_ended_also_within_a_regular_expression() -> None:
    with pytest.raises(pastes_backend.Exceeded, match="^1 s of computation$"):
        pastes_backend.within_bounds(lambda: re.match(r"(a+)+b", "a" * 100), 1, SIZE)


def test_a_function_that_takes_too_much_memory_is_ended() -> None:
    with pytest.raises(pastes_backend.Exceeded, match="^2048 MiB of memory$"):
        pastes_backend.within_bounds(lambda: len(bytes(2 * SIZE)), 5, SIZE)
