# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The model of sysctl.d against the tools that read sysctl.d, on random files."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.kubenode.datapath.plugins.module_utils._platform import sysctl_files
from lab import Lab, Node
from lab.node import NamespaceNode

SYSTEMD_SYSCTL = "/usr/lib/systemd/systemd-sysctl"
NAMES = ("all", "default", "lo", "eth0", "eth0.100", "eni1")
UNTOUCHED = 7  # no meaningful value, but the kernel accepts it

CLEAR = """
rm -rf /etc/sysctl.d /etc/sysctl.conf /run/sysctl.d
mount -t tmpfs tmpfs /usr/lib/sysctl.d
mount -t tmpfs tmpfs /usr/local/lib
"""

_WORD = st.sampled_from([*NAMES, "nolink", "*", "e*", "eth*", "eth0*", "et[!x]0", "[!al]*", "*.100", "?o", "[el]*"])
_VALUE = st.sampled_from(["= 0", "=1", " = 2", "=2 ; x", "= 02", "=x", "", " "])
_OTHER = st.sampled_from(["", "# net/ipv4/conf/all/rp_filter=1", "; x", "rubbish"])
_SPELLINGS = ["{}net/ipv4/conf/{}/rp_filter", "{}net.ipv4.conf.{}.rp_filter", "{}net/ipv4/con[f]/{}/rp_filter"]
# procps reads the line as another key.
_OF_SYSTEMD = [" {} /net/ipv4/conf/{}//rp_filter"]
_FOLDER = st.sampled_from(sysctl_files.FOLDERS[:4])
_NAME = st.sampled_from(["10-a.conf", "9-a.conf", "90-b.conf", "Z.conf", "a.conf.bak"])
_PATH = st.one_of(st.builds("{}/{}".format, _FOLDER, _NAME), st.just(sysctl_files.LAST_OF_PROCPS))


def files_in(spellings: list[str]) -> st.SearchStrategy[dict[str, str]]:
    dash = st.sampled_from(["", "-"])
    line = st.builds(
        lambda spelling, dash, word, value: spelling.format(dash, word) + value,
        st.sampled_from(spellings),
        dash,
        _WORD,
        _VALUE,
    )
    text = st.lists(st.one_of(line, _OTHER), max_size=5).map("\n".join)
    return st.dictionaries(_PATH, text, max_size=5)


@pytest.fixture(scope="module")
def node() -> Iterator[NamespaceNode]:
    with Lab("sysctl", nodes=[Node("node1")]) as running:
        node = running.node("node1")
        node.ip(["link add eth0.100 type veth peer name eni1"])
        node.run(["sh", "-e", "-c", CLEAR])
        yield node


def left_by(node: NamespaceNode, command: str, files: dict[str, str]) -> dict[str, int]:
    """The settings after the tool has read ``files``; before, each is UNTOUCHED."""
    script = [f"rm -f {folder}/*; mkdir -p {folder}" for folder in sysctl_files.FOLDERS[:4]]
    script += [f"rm -f {sysctl_files.LAST_OF_PROCPS}", "cd /proc/sys/net/ipv4/conf"]
    script += [f"cat > {path} <<'END'\n{text}\nEND" for path, text in files.items()]
    script += [f"echo {UNTOUCHED} > {name}/rp_filter" for name in NAMES]
    script += [f"{command} > /dev/null 2>&1", f"cat {' '.join(f'{name}/rp_filter' for name in NAMES)}"]
    values = node.run(["sh", "-s"], "\n".join(script)).stdout.split()
    return dict(zip(NAMES, map(int, values), strict=True))


@settings(max_examples=150, deadline=None)
@given(files=files_in(_SPELLINGS + _OF_SYSTEMD))
def test_the_model_says_what_systemd_sysctl_does(node: NamespaceNode, files: dict[str, str]) -> None:
    assert left_by(node, SYSTEMD_SYSCTL, files) == foreseen(sysctl_files.by_systemd(files))


@settings(max_examples=150, deadline=None)
@given(files=files_in(_SPELLINGS))
def test_the_model_says_what_procps_does(node: NamespaceNode, files: dict[str, str]) -> None:
    assert left_by(node, "sysctl --system", files) == foreseen(sysctl_files.by_procps(files))


def foreseen(configuration: sysctl_files.Configuration) -> dict[str, int]:
    values = {name: configuration.value(f"net/ipv4/conf/{name}/rp_filter") for name in NAMES}
    return {name: UNTOUCHED if value is None else value for name, value in values.items()}
