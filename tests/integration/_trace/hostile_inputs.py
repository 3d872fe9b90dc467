# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options of datapath_trace as an enemy writes them: real outputs, bundles, snapshots and commands with strange words in them."""

from __future__ import annotations

import functools
import io
import json
import random
import re
import stat
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from ansible_collections.kubenode.datapath.plugins.module_utils._bpf import instructions
from ansible_collections.kubenode.datapath.plugins.module_utils._probe_snat import probe_programs
from lab.sealed_run import SECRET_FILES
from unit._commands.test_command import PERMITTED, REFUSED

from . import random_nodes

CASES = Path(__file__).parent / "cases"
FILE = SECRET_FILES[0]
WORDS = (
    "include", f'include "{FILE}"', f'include include "a""{FILE}"', "-ba", "-batch", "-forc", f"-f{FILE}", "IDLETIMER",
    "--object", "--object-pinned", "ip net e x sh", "netns", "exec", "-M", "--modprobe=/bin/sh", '"', "'", "\\", "`id`",
    "$(id)", "{{ lookup('pipe', 'id') }}", "\x1b[31m", "\x07", "\x00", "\x9b", "\u202e", "\ud800", "  ", "\t", "\r", "\n",
    "a\x0bb", "99999999999999999999", "-1", "4294967296", "0x", "1e9", "hashsize 134217728", "maxelem 4294967295", "0.0.0.0/0",
    "10.0.0.0/7", "::/0", "fd00::/8", "1.2.3.4-200.0.0.0", "0-65535", "{", "}", ";", ";;", "#", "@x", "$x", "*", "*nat",
    "COMMIT", "table", "chain", "elements = { 0.0.0.0-255.255.255.255 }", "flush ruleset", "meta nftrace set 0",
    "flags owner,persist", "LED", "NFQUEUE", "AUDIT", "-j  NOTRACK", "../../../etc/passwd", "kubenode_trace", "lo", "all",
    "default", "eeeeeeeeeeeeeeee", "eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee", "\U0001f600", "é", "nexthop",
    "encap bpf in obj x", "encap seg6 mode encap segs fd00::1", "link-netns x", "type vxlan id 5", "master lo", "xdp obj x",
    "CT --helper ftp", "recent --name x", "hashlimit --hashlimit-upto 1/s --hashlimit-name x --hashlimit-htable-size 99999999",
    "quota2", "TPROXY", "TEE --gateway 10.0.0.1", "list:set", "hash:ip,port,net", "bitmap:port range 0-65535", "timeout 0",
    "comment", "skbinfo", "dynset", "ct helper", "synproxy", "queue", "dup to 10.0.0.1", "fwd to eth0", "log prefix",
    "LOG --log-prefix x", "SYNPROXY", "NFLOG", "mirred", "%s%n", "None", "true",
)  # fmt: skip
# Lines of the outputs that are read, which are hostile as a whole.
LINES = (
    f'include "{FILE}"', 'include "/dev/zero"', "create s hash:ip hashsize 134217728", "add s 10.0.0.0/9", "create s hash:ip",
    "create b bitmap:ip range 0.0.0.0/0", "-A PREROUTING -j  IDLETIMER --timeout 5 --label Sx", '-A FORWARD "-M" /bin/sh',
    "COMMIT", "*filter", "*raw", ":FORWARD DROP [0:0]", "-A FORWARD -j \x1b[31mRED", "-m comment --comment $(id)",
    "table ip x { chain y { } }", "type filter hook input priority -500; policy drop;", "define x = 1",
    "7: eth9@if9: <BROADCAST,UP> mtu 99999999", "sudo ip rule",
    "    link/ether ff:ff:ff:ff:ff:ff brd 00:00:00:00:00:00 link-netnsid 0", "0: from all lookup 4294967295",
    "-1: from all lookup main", "default via 10.0.0.1 dev eth0 onlink metric 4294967295",
    "default nexthop via 10.0.0.1 dev eth0 weight 0", "$ nft list ruleset", "net.ipv4.conf.all.rp_filter = 99999999999",
    "net.netfilter.nf_hooks_lwtunnel = 1", "kernel.panic = 1", "net.ipv4.tcp_mem = 1 2 3", "net/../kernel/panic = 1",
    "net.ipv6.conf.all.disable_ipv6 = 1", "net.ipv4.ip_forward = -1", "TCP  10.0.0.1:80 rr", "```", "# ip -d addr",
    "10.0.0.9 dev eth0 lladdr zz:zz nud permanent", "Bridge table: nat", "Chain FORWARD (policy ACCEPT)",
    "Name: x\nType: hash:net\nMembers:",
)  # fmt: skip
PACKET = {"destination": "10.240.0.32", "interface": "eth0", "source": "10.240.0.4", "destination_port": 80}
OWN_TAG = instructions.tags(probe_programs.program(probe_programs.INGRESS, 1))[0]  # so that a table stands for the program
# Parts of snapshots that the nodes above do not have.
FURTHER: dict[str, list[dict[str, Any]]] = {
    "bpf": [
        {"link": "eth1", "hook": "tc", "direction": "ingress", "name": "x"},
        {
            **{"link": "eth0", "hook": "tcx", "direction": "ingress", "name": "kubenode_foax_i", "tag": OWN_TAG},
            "probes": [{"source": "fe80::1", "translated": "2001:db8::1"}],
        },
    ],
    "ipvs": [
        {
            "protocol": "tcp",
            "address": "10.0.0.4",
            "port": 80,
            "scheduler": "rr",
            "servers": [{"address": "10.1.0.5", "port": 80}],
        }
    ],
    "neighbors": [{"address": "10.0.0.9", "dev": "eth0", "mac": "02:00:00:00:00:01", "state": "PERMANENT"}],
}
PLACES = st.floats(0, 1, exclude_max=True)


@functools.cache
def nodes() -> list[dict[str, Any]]:
    """Real nodes: what they print, their snapshots, and packets."""
    found = []
    for seed, is_ipv6 in ((5, False), (15, True), (41, False)):
        node = random_nodes.Node(seed, is_ipv6)
        real = random_nodes.through_the_node(node)
        dump = {
            **real["pastes"],
            "sysctl -a": "\n".join(re.findall(r"(?m)^net\..*\.(?:all|eth0|ip_forward)\b.*$", real["pastes"]["sysctl -a"])),
        }
        found.append({"packet": node.packet, "dump": dump, "snapshot": real["snapshot"]})
    for folder in sorted(path for path in CASES.iterdir() if path.is_dir()):
        dump = {path.stem: path.read_text() for path in sorted(folder.glob("*.txt"))}
        found.append({"packet": PACKET, "dump": dump})
    return found


class Options(dict[str, Any]):
    """Options whose text is short enough for a message."""

    def __repr__(self) -> str:
        return f"Options of {', '.join(self)}"


Edit = Callable[[list[str]], list[str]]


def _at(lines: list[str], place: float) -> int:
    return int(place * len(lines))


def _with_line(place: float, line: str, times: int) -> Edit:
    return lambda lines: lines[: _at(lines, place)] + [line] * times + lines[_at(lines, place) :]


def _without_line(place: float) -> Edit:
    return lambda lines: lines[: _at(lines, place)] + lines[_at(lines, place) + 1 :]


def _repeated(place: float, times: int) -> Edit:
    def edit(lines: list[str]) -> list[str]:
        line = lines[_at(lines, place)] if lines else ""
        return _with_line(place, line, times)(lines)

    return edit


def _with_word(place: float, inside: float, word: str, replaces: bool) -> Edit:
    def edit(lines: list[str]) -> list[str]:
        number = _at(lines, place)
        words = lines[number].split(" ") if lines else [""]
        at = int(inside * len(words))
        words[at : at + replaces] = [word]
        return [*lines[:number], " ".join(words), *lines[number + 1 :]]

    return edit


def _cut(place: float, inside: float) -> Edit:
    """Ends the output in the middle of a line, as a terminal that was too small does."""

    def edit(lines: list[str]) -> list[str]:
        number = _at(lines, place)
        return [*lines[:number], lines[number][: int(inside * len(lines[number]))]] if lines else lines

    return edit


words = st.one_of(st.sampled_from(WORDS), st.sampled_from(WORDS), st.text(max_size=8), st.integers(-1, 2**33).map(str))
times = st.sampled_from((1, 1, 2, 100, 3000, 30000))
edits = st.one_of(
    st.builds(_with_word, PLACES, PLACES, words, st.booleans()),
    st.builds(_with_word, PLACES, PLACES, words, st.booleans()),
    st.builds(_with_line, PLACES, st.sampled_from(LINES), st.just(1)),
    st.builds(_with_line, PLACES, st.sampled_from(LINES), times),
    st.builds(_without_line, PLACES),
    st.builds(_repeated, PLACES, times),
    st.builds(_cut, PLACES, PLACES),
)


def edited(text: str, changes: list[Edit]) -> str:
    lines = text.split("\n")
    for change in changes:
        lines = change(lines)
    return "\n".join(lines)


@st.composite
def dumps(draw: st.DrawFn) -> dict[str, str]:
    dump = dict(draw(st.sampled_from(nodes()))["dump"])
    for _number in range(draw(st.integers(1, 3))):
        name = draw(st.sampled_from(sorted(dump)))
        dump[name] = edited(dump[name], draw(st.lists(edits, min_size=1, max_size=4)))
    if draw(st.booleans()):  # an output under the name of another
        dump[draw(st.sampled_from(sorted(dump)))] = dump[draw(st.sampled_from(sorted(dump)))]
    return Options(dump)


# Names of outputs in a bundle of EKS; others stand beside them as in a folder that a person made.
IN_BUNDLE = {
    "ip rule": "networking/iprule.txt",
    "ip -6 rule": "networking/ip6rule.txt",
    "ip route show table all": "networking/iproute.txt",
    "iptables-save": "networking/iptables-save.txt",
    "sysctl -a": "sysctls/sysctl_all.txt",
}
TOPS = (
    "",
    "./",
    "node1/",
    "node1/node2/",
    "a/../",
    "../",
    "/",
    "/etc/",
    "\x1b[31m/",
    "\u202e/",
    "\udcff/",
    "n/" * 80,
    "n" * 5000 + "/",
)


def _special(kind: bytes, target: str = "") -> Callable[[str], list[tarfile.TarInfo]]:
    def members(name: str) -> list[tarfile.TarInfo]:
        member = tarfile.TarInfo(name)
        member.type, member.linkname = kind, target
        return [member]

    return members


def _with_attributes(attributes: dict[str, str]) -> Callable[[str], list[tarfile.TarInfo]]:
    def members(name: str) -> list[tarfile.TarInfo]:
        member = tarfile.TarInfo(name)
        member.pax_headers = attributes
        return [member]

    return members


ODD_MEMBERS: tuple[Callable[[str], list[tarfile.TarInfo]], ...] = (
    _special(tarfile.SYMTYPE, FILE),
    _special(tarfile.SYMTYPE, "/dev/zero"),
    _special(tarfile.LNKTYPE, FILE),
    _special(tarfile.CHRTYPE),
    _special(tarfile.FIFOTYPE),
    _special(tarfile.DIRTYPE),
    _special(tarfile.GNUTYPE_SPARSE),
    _with_attributes({"size": "-1024"}),
    _with_attributes({"size": "99999999999999999999"}),
    _with_attributes({"path": f"../../..{FILE}"}),
    _with_attributes({"linkpath": FILE, "comment": "x" * 50000}),
    _with_attributes({"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "9999999999"}),
    lambda name: [tarfile.TarInfo(f"{number}/{name}") for number in range(30000)],
)


def _tarred(kind: str) -> Callable[[list[tuple[tarfile.TarInfo, bytes]]], bytes]:
    def pack(members: list[tuple[tarfile.TarInfo, bytes]]) -> bytes:
        file = io.BytesIO()
        with tarfile.open(fileobj=file, mode=f"w:{kind}", format=tarfile.PAX_FORMAT) as archive:  # type: ignore[call-overload]
            for member, content in members:
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
        return file.getvalue()

    return pack


def _zipped(method: int) -> Callable[[list[tuple[tarfile.TarInfo, bytes]]], bytes]:
    def pack(members: list[tuple[tarfile.TarInfo, bytes]]) -> bytes:
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w", method) as archive:
            for member, content in members:
                if member.name in archive.NameToInfo:
                    continue  # zipfile warns
                header = zipfile.ZipInfo(member.name.encode(errors="replace").decode())
                kind = {tarfile.SYMTYPE: stat.S_IFLNK, tarfile.CHRTYPE: stat.S_IFCHR}.get(member.type, stat.S_IFREG)
                header.external_attr = (kind | 0o644) << 16
                archive.writestr(header, member.linkname.encode() or content, method)
        return file.getvalue()

    return pack


PACKS = (
    *map(_tarred, ("gz", "gz", "xz", "")),
    *map(_zipped, (zipfile.ZIP_DEFLATED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)),
)


@st.composite
def bundles(draw: st.DrawFn) -> bytes:
    """An archive with outputs. Some members are no files, or outside of it; some archives are in others, or are damaged."""
    dump, top = draw(dumps()), draw(st.sampled_from((*TOPS, *["node1/"] * len(TOPS))))
    names = {name: top + IN_BUNDLE.get(name, f"{name.replace(' ', '-')}.txt") for name in dump}
    members = [(tarfile.TarInfo(names[name]), text.encode(errors="replace")) for name, text in dump.items()]
    for make in draw(st.lists(st.sampled_from(ODD_MEMBERS), max_size=1)):
        members[draw(st.integers(0, 1)) :] += [(member, b"") for member in make(draw(st.sampled_from(sorted(names.values()))))]
    if draw(st.integers(0, 9)) == 9:
        members.insert(0, (tarfile.TarInfo(f"{top}zeros"), bytes(100 << 20)))
    content = draw(st.sampled_from(PACKS))(members)
    for _number in range(draw(st.sampled_from((0, 0, 0, 1, 2)))):
        copies = draw(st.sampled_from((1, 1, 3)))
        inner = [
            (tarfile.TarInfo(f"node{number}.{draw(st.sampled_from(('tar.gz', 'zip')))}"), content) for number in range(copies)
        ]
        content = draw(st.sampled_from(PACKS))(inner)
    if draw(st.integers(0, 3)) == 3:
        at = int(draw(PLACES) * len(content))
        content = content[:at] + draw(st.binary(max_size=8)) + content[at + draw(st.integers(0, 8)) :]
    return content


def as_text(dump: dict[str, str]) -> str:
    return "\n".join(f"$ {name}\n{text}" for name, text in dump.items())


def _leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all values in a tree, dictionaries and lists included."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path] * bool(path) + [one for key, part in pairs for one in _leaves(part, (*path, key))]


odd = st.one_of(
    words,
    st.sampled_from(
        (None, True, -1, 0, 2**31, 2**64, 1.5, float("nan"), [], {}, [None], {"a": {"b": []}}, "", [[[]]], ["x"] * 5000)
    ),
    st.recursive(words, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3), max_leaves=6),
)


@st.composite
def snapshots(draw: st.DrawFn) -> dict[str, Any]:
    snapshot: dict[str, Any] = json.loads(
        json.dumps(draw(st.sampled_from([one for one in nodes() if "snapshot" in one]))["snapshot"])
    )
    for subset, entries in FURTHER.items():
        snapshot[subset] = snapshot.get(subset) or json.loads(json.dumps(entries))
    for _number in range(draw(st.integers(1, 4))):
        # The subset first, because settings have the most leaves.
        subset = draw(st.sampled_from(sorted(key for key, value in snapshot.items() if value)))
        paths = [(subset, *path) for path in _leaves(snapshot[subset]) or ((),)]
        *path, key = paths[int(draw(PLACES) * len(paths))]
        place: Any = snapshot
        for step in path:
            place = place[step]
        kind = draw(st.sampled_from(("text", "text", "odd", "odd", "drop", "repeat", "rename")))
        if kind == "text" and isinstance(place[key], str):
            place[key] = edited(place[key], draw(st.lists(edits, min_size=1, max_size=3)))
        elif kind == "drop" and path:
            del place[key]
        elif kind == "repeat" and isinstance(place[key], list):
            place[key] = place[key] * draw(st.sampled_from((2, 50, 1000)))
        elif kind == "rename" and isinstance(place, dict) and path:
            place[draw(words)] = place.pop(key)
        else:
            place[key] = draw(odd)
    return snapshot


@st.composite
def commands(draw: st.DrawFn) -> str:
    line = draw(st.sampled_from([*PERMITTED, *PERMITTED, *REFUSED]))
    parts = line.split(" ")
    for _number in range(draw(st.integers(0, 2))):
        at = int(draw(PLACES) * (len(parts) + 1))
        parts[at : at + draw(st.integers(0, 1))] = [draw(words)]
    return " ".join(parts)


CHANGES: tuple[dict[str, dict[str, Any]], ...] = (
    {"rp_filter": {"interfaces": ["eth0"], "mode": "loose", "path": "/etc/sysctl.d/x.conf"}},
    {"policy_routes": {"rules": [{"priority": 5, "from": "10.0.0.1", "table": 100}], "routes": [], "protocol": 75}},
    {"policy_routes": {"routes": [{"table": 100, "to": "default", "via": "10.0.0.1", "dev": "eth0"}], "path": "/etc/cron.d/x"}},
    {"nftables_probe_snat": {"table": "azureSLBProbe", "interface": "eth0", "priority": -300, "path": "/etc/kubenode/x.nft"}},
    {
        "nftables_connmark": {
            "table": "t",
            "primary_interface": "eth0",
            "pod_interfaces": ["pod*"],
            "mark": "0x80",
            "strict": True,
        }
    },
    {"ebtables_cleanup": {"addresses": ["10.2.0.9"], "backup": "/root/.kube", "backend": "nft"}},
    {"ebtables_cleanup": {"state": "restored", "backup": "/var/lib/kubenode/backup"}},
    {"link_addresses": {"addresses": [{"dev": "eth0", "address": "10.0.0.9"}]}},
    {"azure_vnet_bridge": {"bridge": "br0", "interface": "port1"}},
)


@st.composite
def module_calls(draw: st.DrawFn) -> dict[str, Any]:
    call: dict[str, Any] = json.loads(json.dumps(draw(st.sampled_from(CHANGES))))
    for _number in range(draw(st.integers(0, 2))):
        ((_name, options),) = call.items()
        options[draw(st.sampled_from([*options, "checkpoint", "permanent", "state"]))] = draw(odd)
    return call


PACKET_LINES = (
    "tcp 10.240.0.4:40000 > 10.240.0.32:80 in eth0 mark 0x1",
    "12:00:00.000001 eth0  In  IP 10.240.0.4.40000 > 10.240.0.32.80: Flags [S], seq 1, win 64240, length 0",
    "IP (tos 0x0, ttl 64, id 1, proto UDP (17), length 60) 10.240.0.4.40000 > 10.240.0.32.53: UDP, length 32",
    "tcp 6 431999 ESTABLISHED src=10.240.0.4 dst=10.240.0.32 sport=1 dport=80 src=10.240.0.32 dst=10.240.0.4 sport=80 dport=1",
    "[1.0] drop IN=eth0 OUT= SRC=10.240.0.4 DST=10.240.0.32 LEN=60 TTL=64 PROTO=TCP SPT=1 DPT=80 WINDOW=1 RES=0x00 SYN",
)


@st.composite
def packet_lines(draw: st.DrawFn) -> str:
    return edited(draw(st.sampled_from(PACKET_LINES)), draw(st.lists(edits, min_size=1, max_size=3)))


FACTS = (
    "net.ipv4.conf.all.rp_filter", "net.ipv4.ip_forward", "kernel.panic", "net.netfilter.nf_hooks_lwtunnel", "rp_filter:eth0",
    "chain:ip filter FORWARD", "policy:ip filter FORWARD", "table:ip nat", "cut:ip filter", "jump:ip filter FORWARD x", "set:S",
    "routes", "routes:100", "addresses", "rules", "ipvs", "recent:x", "pod-side:10.0.0.1", "hairpin:port1", "neighbors", "nft",
    "legacy", "bridge-ports:br0", "line:1",
)  # fmt: skip
VALUES = (0, 1, 2, "returns", "accepts", "drops", "ACCEPT", "DROP", "with", "without", "pod", "own", "elsewhere", "eth0", "shown")


@st.composite
def packets(draw: st.DrawFn) -> dict[str, Any]:
    packet = dict(draw(st.sampled_from(nodes()))["packet"])
    if draw(st.integers(0, 9)) == 9:  # rarely: a packet that is refused hides the rest
        key = draw(st.sampled_from(("source", "destination", "protocol", "interface", "mark", "source_port", "destination_port")))
        packet[key] = draw(words)
    return packet


@st.composite
def options(draw: st.DrawFn) -> dict[str, Any]:
    """The options of a task. Most have one hostile part, so that the others do not hide it."""
    kind = draw(st.sampled_from(("dump", "dump", "snapshot", "snapshot", "commands", "changes", "packet", "assume", "all")))
    found: dict[str, Any] = {"packet": draw(packets())}
    if kind in ("dump", "all"):
        found["dump"] = draw(dumps() | dumps().map(as_text))
    elif kind == "snapshot":
        found["snapshot"] = draw(snapshots())
    else:
        found["snapshot"] = nodes()[0]["snapshot"]
        found["packet"] = nodes()[0]["packet"]
    if kind in ("commands", "all"):
        found["commands"] = draw(st.lists(commands(), min_size=1, max_size=3))
    if kind in ("changes", "all"):
        found["changes"] = draw(st.lists(module_calls(), min_size=1, max_size=2))
    if kind in ("packet", "all"):
        found["packet"] = draw(packet_lines())
    if kind in ("assume", "all"):
        facts = st.sampled_from(FACTS) | words
        found["assume"] = draw(st.dictionaries(facts, st.sampled_from(VALUES) | odd, max_size=2))
    return Options(found)


def fill(folder: Path, dump: dict[str, str], chance: random.Random) -> None:
    """A report's folder, in which some entries are no files."""
    import os

    folder.mkdir(parents=True)
    for name, text in dump.items():
        (folder / f"{name.replace(' ', '-').replace('/', '-')}.txt").write_text(text, errors="replace")
    kinds: tuple[Callable[[Path], object], ...] = (
        lambda path: path.symlink_to(FILE),
        lambda path: path.symlink_to("/dev/zero"),
        lambda path: path.symlink_to(path.name),
        os.mkfifo,
        lambda path: path.mkdir(),
        lambda path: os.truncate(os.open(path, os.O_CREAT | os.O_WRONLY), 1 << 40),
        lambda path: path.write_bytes(bytes(range(256)) * 100),
        lambda path: os.mknod(path, 0o020666, os.makedev(1, 5)),
    )
    for number, make in enumerate(chance.sample(kinds, 2)):
        make(folder / f"{chance.choice(['ip-rule', 'nft-list-ruleset', chr(27), 'iptables-save'])}{number}.txt")
