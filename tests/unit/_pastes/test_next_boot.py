# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of a bundle say what the next boot sets, in the order of the programs that read them, and nothing about today."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any

from ansible_collections.kubenode.datapath.plugins.module_utils._pastes import pastes, pastes_backend

RULE = "0:\tfrom all lookup local\n"
TOP = "sosreport-node1"
ALL, FORWARD = "net.ipv4.conf.all.rp_filter", "net.ipv4.ip_forward"
FOLDERS = ("/run", "/usr/local/lib", "/usr/lib", "/lib")


def snapshot(**files: str) -> dict[str, Any]:
    """Return the snapshot of outputs and files, by path."""
    return pastes.read({"ip rule": RULE, **{f"cat {path}": text for path, text in files.items()}}).snapshot


def sos(folder: Path, files: dict[str, str], links: dict[str, str]) -> str:
    """Pack a bundle with files and links by their paths on the node."""
    path = folder / f"{TOP}.tar.xz"
    with tarfile.open(path, "w:xz") as archive:
        for name, target in links.items():
            header = tarfile.TarInfo(f"{TOP}/{name}")
            header.type, header.linkname = tarfile.SYMTYPE, target
            archive.addfile(header)
        for name, text in {"sos_commands/networking/ip_-4_rule_list": RULE, **files}.items():
            header = tarfile.TarInfo(f"{TOP}/{name}")
            header.size = len(text)
            archive.addfile(header, io.BytesIO(text.encode()))
    return str(path)


def test_the_first_folder_and_the_last_name_win() -> None:
    files = {
        "/etc/sysctl.d/50-a.conf": f"{ALL}=1\n",
        "/usr/lib/sysctl.d/50-a.conf": f"{ALL}=2\n{FORWARD}=0\n",
        "/run/sysctl.d/60-b.conf": f"{FORWARD}=1\n",
        "/etc/sysctl.conf": f"{FORWARD}=0\n",  # which systemd-sysctl does not read
        "/etc/systemd/networkd.conf": "[Network]\nManageForeignRoutes=no\nManageForeignRoutingPolicyRules=no\n",
        "/etc/systemd/networkd.conf.d/a.conf": "[Network]\nManageForeignRoutes=yes\n",
    }
    assert snapshot(**files)["boot"] == {
        "settings": {
            ALL: {"value": 1, "file": "/etc/sysctl.d/50-a.conf"},
            FORWARD: {"value": 1, "file": "/run/sysctl.d/60-b.conf"},
        },
        "networkd": {
            "ManageForeignRoutingPolicyRules": {"value": False, "file": "/etc/systemd/networkd.conf"},
            "ManageForeignRoutes": {"value": True, "file": "/etc/systemd/networkd.conf.d/a.conf"},
        },
    }


def test_a_file_tells_nothing_about_the_current_settings() -> None:
    """A remark in it may be a command, and its name may have the word of a state."""
    text = f"# sysctl -w {FORWARD}=1\n{FORWARD} = 1\n"
    read = snapshot(**{"/etc/sysctl.d/99-old.conf": text, "/etc/sysctl.d/99-new.conf": text})
    assert read["settings"] is None
    assert read["boot"]["settings"] == {FORWARD: {"value": 1, "file": "/etc/sysctl.d/99-new.conf"}}


def test_what_no_file_shows_is_null_and_named() -> None:
    assert (snapshot()["boot"], snapshot()["unread"]) == (None, [])
    read = snapshot(**{"/etc/sysctl.d/a.conf": ""})
    assert read["boot"] == {"settings": {}, "networkd": None}
    drop_ins = [f"{folder}/systemd/networkd.conf.d" for folder in ("/etc", *FOLDERS)]
    (unread,) = read["unread"]
    assert (unread["subset"], unread["object"].split(", ")) == ("boot", [f"{folder}/sysctl.d" for folder in FOLDERS] + drop_ins)


def test_links_of_a_bundle_mask_and_name_files_as_on_the_node(tmp_path: Path) -> None:
    files = {
        "etc/sysctl.conf": f"{FORWARD}=1\n",
        **{f"usr/lib/sysctl.d/{name}.conf": f"{ALL}=2\n" for name in ("50-masked", "60-elsewhere")},
        "usr/lib/sysctl.d/10-a.conf": f"{ALL}=1\n",
    }
    links = {
        "lib": "usr/lib",
        "etc/sysctl.d/99-sysctl.conf": "../sysctl.conf",
        "etc/sysctl.d/50-masked.conf": "../../dev/null",
        "etc/sysctl.d/60-elsewhere.conf": "../../opt/vendor.conf",
        **{f"etc/systemd/system/multi-user.target.wants/{number}.service": "../x.service" for number in range(300)},
    }
    pasted = pastes_backend.read(sos(tmp_path, files, links))
    assert pasted.snapshot["boot"]["settings"] == {
        ALL: {"value": 1, "file": "/usr/lib/sysctl.d/10-a.conf"},
        FORWARD: {"value": 1, "file": "/etc/sysctl.d/99-sysctl.conf"},
    }
    link = f"{TOP}.tar.xz/{TOP}/etc/sysctl.d/60-elsewhere.conf is a link to ../../opt/vendor.conf, which is not read."
    assert [note for note in pasted.ignored if "link" in note] == [f"{link} It is left out."]
    assert {"/etc/sysctl.d/60-elsewhere.conf"} == {
        entry["object"] for entry in pasted.snapshot["unread"] if "whole" in entry["reason"]
    }
