# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Seconds and memory of reading a support bundle of 300 MB, as its collector packs it."""

from __future__ import annotations

import base64
import io
import json
import random
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.measure import judge
from lab import collection

SIZE = 300_000_000  # bytes unpacked
MOST_SECONDS, MOST_MEMORY = 10, 300  # MiB
RULES, CONNECTIONS, LINKS, LOG = 100_000, 500_000, 800, 75_000
READ = """
import json, resource, sys, time
from ansible_collections.kubenode.datapath.plugins.module_utils._pastes import pastes, pastes_backend
begin = time.perf_counter()
found = pastes.read(pastes_backend.report(sys.argv[1]).texts)
assert len(found.snapshot["iptables"][0]["save"].splitlines()) > int(sys.argv[2])
print(json.dumps([time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024]))
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for mode in ("gz", "xz"):
            path = pack(Path(folder, f"eks.tar.{mode}"), mode)
            command = [sys.executable, "-c", READ, str(path), str(RULES)]
            result = subprocess.run(command, check=True, stdout=subprocess.PIPE, env={"PYTHONPATH": str(collection.link())})
            seconds, memory = json.loads(result.stdout)
            title = f"bundle of {SIZE // 10**6} MB, {path.stat().st_size // 10**6} MB as tar.{mode}"
            print(f"{title}: {seconds:.1f} s (target: {MOST_SECONDS}), {memory:.0f} MiB (target: {MOST_MEMORY})")
            judge(title, seconds <= MOST_SECONDS and memory <= MOST_MEMORY)


def pack(path: Path, mode: str) -> Path:
    total = 0
    with tarfile.open(path, f"w:{mode}", **{"gz": {"compresslevel": 3}, "xz": {"preset": 1}}[mode]) as archive:  # type: ignore[call-overload]
        for name, text in files():
            header = tarfile.TarInfo(f"./{name}")
            header.size = len(text)
            archive.addfile(header, io.BytesIO(text.encode()))
            total += len(text)
            if total >= SIZE:
                break
    return path


def files() -> Iterator[tuple[str, str]]:
    """Yield the files of a bundle of EKS: outputs of a large cluster's node, and logs without end."""
    chance = random.Random(0)
    yield "networking/iprule.txt", "0:\tfrom all lookup local\n32766:\tfrom all lookup main\n"
    yield "networking/iproute.txt", "default via 10.0.0.1 dev eth0 proto dhcp src 10.0.0.10\n"
    rules = (
        f'-A KUBE-SEP-{number} -s 10.{number >> 16}.{number >> 8 & 255}.{number & 255}/32 -m comment --comment "web-{number}"'
        f" -p tcp -m tcp -j DNAT --to-destination 10.1.1.1:8080\n"
        for number in range(RULES)
    )
    chains = (f":KUBE-SEP-{number} - [0:0]\n" for number in range(RULES))
    yield "networking/iptables-save.txt", f"*nat\n:PREROUTING ACCEPT [0:0]\n{''.join(chains)}{''.join(rules)}COMMIT\n"
    connections = (
        f"tcp      6 {chance.randrange(86400)} ESTABLISHED src=10.0.0.{number & 255} dst=10.1.1.1 sport={chance.randrange(65536)}"
        f" dport=443 src=10.1.1.1 dst=10.0.0.1 sport=443 dport={chance.randrange(65536)} [ASSURED] mark=0 use=1\n"
        for number in range(CONNECTIONS)
    )
    yield "networking/conntrack.txt", f"*** Output of conntrack -L ***\n{''.join(connections)}"
    keys = ("rp_filter", "forwarding", *(f"key{number}" for number in range(30)))
    yield "sysctls/sysctl_all.txt", "".join(f"net.ipv4.conf.eni{link:08x}.{key} = 1\n" for link in range(LINKS) for key in keys)
    lines = "".join(f"Nov 26 12:00:{number % 60:02d} node kubelet[1]: syncing pod {number}\n" for number in range(2000))
    number = 0
    while True:
        yield f"var_log/pods/pod{number}.log", lines + base64.b64encode(chance.randbytes(LOG // 4)).decode()
        number += 1
