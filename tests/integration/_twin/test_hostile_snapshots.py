# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whatever a snapshot contains, its twin changes nothing on the machine, and ends within its bounds."""

from __future__ import annotations

import os
import resource
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import DatapathError
from ansible_collections.kubenode.datapath.plugins.module_utils._platform import process
from ansible_collections.kubenode.datapath.plugins.module_utils._twin import blueprint, build_backend, isolation_backend

SECONDS, BYTES = 60, 2 << 30
SECRET = Path(tempfile.mkdtemp()) / "kubeconfig"
RULES = (
    "-j  IDLETIMER --timeout 5 --label Sx", '"-M" /bin/sh -m x', "--jump LED --led-trigger-id x", "-m bpf --object-pinned /x",
    "-m recent --name x --set", "-j NFQUEUE", "-m set --match-set s dst -j DROP", "-j \x1b[31mRED", "-m comment --comment $(id)",
)  # fmt: skip
NFT = (
    f'include "{SECRET}"', f'include include "a""{SECRET}"', "meta nftrace set 0", "counter drop", "}", "flags owner;", "\x07",
    "elements = { 0.0.0.0/0 }", "type filter hook input priority -500; policy drop;", 'define x = "/dev/zero"', "ip saddr $x",
)  # fmt: skip
SETS = (
    "create s hash:ip hashsize 134217728", "create s hash:ip", "add s 10.0.0.0/9", "add s 10.0.0.1",
    "create t bitmap:port range 0-9", "add t 0-65535", "create s hash:net maxelem 4294967295", "-file /etc/passwd",
)  # fmt: skip
NAMES = ("kernel/panic", "net/netfilter/nf_hooks_lwtunnel", "net/../kernel/panic", "net.ipv4.ip_forward", "net/core/somaxconn")

SNAPSHOTS = st.fixed_dictionaries(
    {
        "iptables": st.lists(st.sampled_from(RULES) | st.text(max_size=40), max_size=4).map(
            lambda rules: [
                {
                    "family": "ip",
                    "backend": "nft",
                    "table": "filter",
                    "save": "\n".join(
                        ["*filter", ":FORWARD ACCEPT [0:0]", *(f"-A FORWARD {rule}" for rule in rules), "COMMIT", ""]
                    ),
                }
            ]
        ),
        "nftables_text": st.lists(st.sampled_from(NFT) | st.text(max_size=40), max_size=6).map(
            lambda lines: "\n".join(["table ip x {", "chain y {", *lines, "}", "}", ""])
        ),
        "ipsets": st.lists(st.sampled_from(SETS), max_size=4).map(lambda lines: [{"save": "\n".join(lines)}]),
        "settings": st.dictionaries(st.sampled_from(NAMES), st.integers(0, 2)).map(lambda found: {"node": found}),
    }
)


def outside() -> dict[str, Any]:
    """What a twin must not change: settings, mounts, timers and folders. The kernel loads the modules of rules itself."""
    found: dict[str, Any] = {}
    for folder, _folders, names in os.walk("/proc/sys"):
        for name in names:
            path = f"{folder}/{name}"
            if folder.startswith(("/proc/sys/net", "/proc/sys/kernel")) and not path.startswith(CHANGING):
                try:
                    found[path] = Path(path).read_text(errors="replace")
                except OSError:
                    continue
    found["mounts"] = Path("/proc/self/mountinfo").read_text().splitlines()
    for path in (str(SECRET.parent), "/etc", "/mnt", "/var/lib/kubenode", "/sys/class/xt_idletimer/timers"):
        found[path] = sorted(os.listdir(path)) if os.path.isdir(path) else []
    return found


# These change by themselves.
CHANGING = tuple(
    f"/proc/sys/kernel/{name}" for name in ("random", "ns_last_pid", "pty", "tainted", "perf_event_max_sample_rate")
) + ("/proc/sys/net/netfilter/nf_conntrack_count",)


def run(argv: Any, stdin: str | None = None) -> process.Completed:
    return process.run(argv, stdin, {"PATH": process.SEARCH_PATH})


def build(snapshot: Mapping[str, Any]) -> str:
    """The notes and the error of a twin."""
    try:
        found = isolation_backend.run(
            lambda isolated: {"notes": build_backend.build(blueprint.draw(snapshot), isolated, run).notes}, SECONDS
        )
    except DatapathError as error:
        return str(error)
    return "\n".join(found["notes"])


@given(snapshot=SNAPSHOTS)
@settings(max_examples=8, deadline=None)
def test_a_hostile_snapshot_changes_nothing_and_ends_within_its_bounds(snapshot: dict[str, Any]) -> None:
    SECRET.write_text("token: abcdef\n")
    before, started = outside(), time.monotonic()
    said = build(snapshot)
    assert outside() == before and time.monotonic() - started < SECONDS
    assert "abcdef" not in said and "This is an error of the collection" not in said, said
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024 < BYTES
