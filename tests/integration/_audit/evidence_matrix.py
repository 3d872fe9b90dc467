# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which checks of the audit can tell, of each kind of evidence, with their trouble there and with it not there.

Each kind of evidence is made of a node of the lab, by the commands and under the names of its collector. What a namespace of the
lab has no program for, such as the units of systemd, is printed from the node's snapshot in the words of the program.

``python3 tests/toolchain.py run python -m integration._audit.evidence_matrix`` writes the table of docs/audit.md.
"""

from __future__ import annotations

import functools
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ansible_collections.kubenode.datapath.plugins.module_utils._audit import audit_backend, catalogue
from ansible_collections.kubenode.datapath.plugins.module_utils._pastes import pastes_backend, unit_states
from ansible_collections.kubenode.datapath.plugins.module_utils._snapshot import firewalls
from lab.collection import CHECKOUT
from lab.eni import PRIMARY
from lab.node import NamespaceNode

from .._pastes import test_bundles
from .._trace import random_nodes
from . import test_bundles_agree
from .troubles import TROUBLES, Snapshot, Trouble

Files = dict[str, bytes]
Print = Callable[[Snapshot], str]  # what a program prints, in a snapshot's words

NEIGHBOURS = "".join(f"neighbor add 10.0.0.{n} dev eth0 lladdr 02:00:00:00:01:{n:02x} nud stale\n" for n in range(20, 140))
THRESHOLD = "net.ipv4.neigh.default.gc_thresh3"


def with_few_neighbours(snapshot: Snapshot) -> None:
    """Let the kernel take few neighbours. A namespace has the limit of the host."""
    snapshot["settings"]["node"][THRESHOLD] = 128


def without_martians(snapshot: Snapshot) -> None:
    """Let the kernel have refused no source. It counts those of all network namespaces of the host."""
    snapshot["counters"]["routing"] = {"in_martian_src": 0}


# The troubles that check_rows has as outputs, on nodes of the lab.
OF_ROWS = {
    "tunnel-mtu": Trouble(
        "vxlan.calico",
        [],
        [
            f"ip link add vxlan.calico mtu 1480 type vxlan id 4096 local {PRIMARY.address} dstport 4789",
            "ip link set vxlan.calico up",
        ],
    ),
    "neighbours-near-full": Trouble(
        THRESHOLD,
        [],
        ["ip -batch /etc/neighbours.batch"],
        {"/etc/neighbours.batch": NEIGHBOURS},
        edit=with_few_neighbours,
        reported={"sysctl -a": f"{THRESHOLD} = 128\n"},
    ),
    "pmtu-filtered": Trouble("ipv4 input", [], ["iptables -A INPUT -p icmp -j DROP"]),
}


def with_active_firewall(snapshot: Snapshot) -> None:
    """Let the enabled service be active, as after a boot. In a namespace no systemd starts it."""
    snapshot["firewalls"]["nftables.service"]["is_active"] = True


_FLUSH = TROUBLES["flush-coming"]
FLUSH = _FLUSH._replace(commands=[*_FLUSH.commands, "iptables -A INPUT -s 192.0.2.1 -j DROP"], edit=with_active_firewall)
ALL_TROUBLES = {**TROUBLES, **OF_ROWS, "flush-coming": FLUSH}


class Unit(NamedTuple):
    name: str
    is_active: bool
    is_enabled: bool
    is_masked: bool = False


def units(snapshot: Snapshot) -> Iterator[Unit]:
    """Yield the units that a snapshot has, and kubelet's."""
    yield Unit("kubelet.service", True, True)
    for name, is_active in snapshot["network_daemons"]["daemons"].items():
        for unit in unit_states.DAEMONS.get(name, ())[:1]:
            yield Unit(unit, is_active, is_active)
    for name, state in snapshot["firewalls"].items():
        yield Unit(name, state["is_active"], state["is_enabled"], state["is_masked"])
    for unit in snapshot["units"]:
        yield Unit(unit["name"], unit["active"] == "active", unit["is_enabled"])


def list_units(snapshot: Snapshot, has_all: bool = False) -> str:
    rows = [f"  {'UNIT':40} LOAD   ACTIVE   SUB    DESCRIPTION"]
    for unit in units(snapshot):
        if unit.is_active or has_all:
            load, sub = "masked" if unit.is_masked else "loaded", "running" if unit.is_active else "dead"
            rows.append(f"  {unit.name:40} {load} {'active' if unit.is_active else 'inactive':8} {sub:7} {unit.name}")
    return "\n".join([*rows, "", f"{len(rows) - 1} loaded units listed.", ""])


def list_unit_files(snapshot: Snapshot) -> str:
    state = {(False, False): "disabled", (True, False): "enabled"}
    rows = [f"{unit.name:40} {state.get((unit.is_enabled, unit.is_masked), 'masked'):8} enabled" for unit in units(snapshot)]
    return "\n".join(["UNIT FILE STATE PRESET", *rows, "", f"{len(rows)} unit files listed.", ""])


def show_services(snapshot: Snapshot) -> str:
    """Return what systemctl shows of all services, with a property that has two lines."""
    of_own = {unit["name"]: unit for unit in snapshot["units"]}
    blocks = []
    for unit in (unit for unit in units(snapshot) if unit.name.endswith(".service")):
        own = of_own.get(unit.name, {})
        properties = {
            "Id": unit.name,
            "LoadState": "masked" if unit.is_masked else "loaded",
            "ActiveState": "active" if unit.is_active else "inactive",
            "SubState": own.get("sub") or "dead",
            "ExecStart": "{ path=/bin/sh ; argv[]=/bin/sh -c a\nb }",
            "UnitFileState": "enabled" if unit.is_enabled else "disabled",
            "Result": own.get("result") or "success",
        }
        blocks.append("".join(f"{name}={value}\n" for name, value in properties.items()))
    return "\n".join(blocks)


def networkctl(snapshot: Snapshot) -> str:
    files = snapshot["network_daemons"]["networkd_files"]
    links = [link["name"] for link in snapshot["links"]]
    return "\n".join(
        f"* {number}: {name}\n{'Network File':>28}: {files.get(name, 'n/a')}\n"
        f"{'State':>28}: routable ({'configured' if name in files else 'unmanaged'})\n"
        for number, name in enumerate(links, 1)
    )


def netstat(snapshot: Snapshot) -> str:
    rows = [
        f"tcp{'6' * (':' in each['address']):4} 0 0 {each['address']}:{each['port']} 0.0.0.0:* LISTEN 7/program\n"
        for each in [{"address": "127.0.0.1", "port": 10249}, *snapshot["listeners"]]
    ]
    return "".join(["Active Internet connections (servers and established)\n", *rows])


def bpftool_net(snapshot: Snapshot) -> str:
    programs = [f"{each['link']}(2) clsact/{each['direction']} {each['name']} id 7\n" for each in snapshot["bpf"] or ()]
    return "".join(["xdp:\n\ntc:\n", *programs, "\nflow_dissector:\n"])


def rt_cache(snapshot: Snapshot) -> str:
    martians = snapshot["counters"]["routing"].get("in_martian_src", 0)
    return f"entries  in_martian_src\n00000000  {martians:08x}\n"


def proc_counters(snapshot: Snapshot, *kinds: str) -> str:
    """Return counters as /proc/net/snmp has them. kinds: their first words."""
    lines = []
    for kind in kinds:
        of_kind = {name: value for name, value in snapshot["counters"]["packets"].items() if name.startswith(f"{kind}.")}
        names = [name.partition(".")[2] for name in of_kind]
        lines += [" ".join([f"{kind}:", *names]), " ".join([f"{kind}:", *map(str, of_kind.values())])]
    return "\n".join([*lines, ""])


def modules(snapshot: Snapshot) -> str:
    has_half = any(table["backend"] == "legacy" for table in snapshot["iptables"])
    names = ["nf_tables", *(["iptable_filter", "ip_tables"] if has_half else [])]
    return "".join(f"{name} 311296 0 - Live 0x0000000000000000\n" for name in names)


OF_POD = ("ip -d address show", "ip route show table all", "ip -s -s neigh show", "ip -4 rule list", "ip -6 rule list")


def of_pods(node: NamespaceNode) -> Iterator[tuple[str, bytes]]:
    """Yield what sos prints of the namespaces of pods, whose names a runtime gives."""
    for number, pod in enumerate(node.pods, 1):
        name = f"cni-{number}"
        for command in OF_POD:
            path = f"{test_bundles.SOS_NAMESPACES}/{name}/ip_netns_exec_{name}_{command.replace(' ', '_')}"
            yield path, pod.run(command.split()).stdout.encode()


def cat(path: str) -> str:
    return f"cat {path} 2>/dev/null || exit {test_bundles.NO_FILE}"


SOS_TOP = "node1"
SYSTEMD = f"{SOS_TOP}/sos_commands/systemd"
PRINTED: dict[str, dict[str, Print]] = {
    "EKS": {"system/services.txt": list_units, "system/netstat.txt": netstat},
    "sos": {
        f"{SYSTEMD}/systemctl_list-units_--all": functools.partial(list_units, has_all=True),
        f"{SYSTEMD}/systemctl_list-unit-files": list_unit_files,
        f"{SYSTEMD}/systemctl_show_service_--all": show_services,
        f"{SOS_TOP}/sos_commands/networking/networkctl_status_-a": networkctl,
        f"{SOS_TOP}/sos_commands/ebpf/bpftool_net_list": bpftool_net,
        f"{SOS_TOP}/proc/modules": modules,
        f"{SOS_TOP}/etc/systemd/networkd.conf": lambda _snapshot: "[Network]\n#ManageForeignRoutes=yes\n",
        f"{SOS_TOP}/proc/net/stat/rt_cache": rt_cache,
        f"{SOS_TOP}/proc/net/snmp": lambda snapshot: proc_counters(snapshot, "Ip"),
        f"{SOS_TOP}/proc/net/netstat": lambda snapshot: proc_counters(snapshot, "TcpExt"),
        f"{SOS_TOP}/proc/net/snmp6": lambda _snapshot: "Ip6InReceives 1\n",
    },
    "Cilium": {"cmd/bpftool-net-show.md": bpftool_net},
}
FURTHER = {
    "sos": {
        **{f"{SOS_TOP}{path}": cat(path) for path in ("/proc/net/tcp", "/proc/net/tcp6")},
        **{f"{SOS_TOP}{path}": cat(path) for path in (*firewalls.NFTABLES_FILES, firewalls.FIREWALLD_FILE)},
        **{
            f"{SOS_TOP}/etc/sysctl.d/{name}": cat(f"/etc/sysctl.d/{name}")
            for name in ("60-hard.conf", "90-kubenode-rp-filter.conf")
        },
    },
}
OF_FOLDER = ("ip -d addr", "ip rule", "ip route show table all", "iptables-save", "sysctl -a")
OF_PASTE = ("ip addr", "ip rule", "ip route", "sysctl -a | grep rp_filter")
COLLECTORS = {"EKS": "eks-log-collector", "sos": "sosreport", "AKS": "AKS zip", "Cilium": "cilium-bugtool", "Rancher": "Rancher"}
LIVE, FOLDER, PASTE = "live, snapshot", "five commands", "one paste"
KINDS = (LIVE, *COLLECTORS.values(), FOLDER, PASTE)


def evidence(
    node: NamespaceNode, snapshot: Snapshot, reported: Mapping[str, str], folder: Path
) -> Iterator[tuple[str, Snapshot]]:
    """Yield the snapshot of each kind of evidence. reported: lines that outputs have besides what the node prints, by command."""
    yield LIVE, snapshot
    for kind, name in COLLECTORS.items():
        bundle = test_bundles.BUNDLES[kind]
        files = {**bundle.files, **FURTHER.get(kind, {})}
        contents = {
            path: text + _besides(kind, files[path], reported) for path, text in test_bundles.collect(node, files).items()
        }
        if kind == "sos":
            contents.update(of_pods(node))
        contents.update((path, printed(snapshot).encode()) for path, printed in PRINTED.get(kind, {}).items())
        yield name, pastes_backend.read(str(test_bundles.pack(folder, bundle.name, contents))).snapshot
    outputs = {command: node.run(["sh", "-c", command], check=False).stdout for command in (*OF_FOLDER, *OF_PASTE)}
    outputs.update((command, outputs[command] + lines) for command, lines in reported.items() if command in OF_FOLDER)
    of_folder = folder / "node1"
    of_folder.mkdir()
    for command in OF_FOLDER:
        (of_folder / f"{command.replace(' ', '_')}.txt").write_text(outputs[command])
    yield FOLDER, pastes_backend.read(str(of_folder)).snapshot
    paste = folder / "paste.txt"
    paste.write_text("".join(f"root@node1:~# {command}\n{outputs[command]}" for command in OF_PASTE))
    yield PASTE, pastes_backend.read(str(paste)).snapshot


def _besides(kind: str, command: str, reported: Mapping[str, str]) -> bytes:
    """Return the lines that a file of a collector has besides. That of EKS keeps no warnings of iptables-save."""
    name = next((name for name in reported if re.match(rf"{name}|{name.replace('-a', '--all')}", command)), "")
    return reported[name].encode() if name and not (kind == "EKS" and name == "iptables-save") else b""


TELLS, UNLESS, OPEN, WRONG = "yes", "unless", "asks", "WRONG"


class Cell(NamedTuple):
    """What a check says of a kind of evidence. ask: the commands for which it asks."""

    tells: str
    ask: str = ""


def cells(node: NamespaceNode, trouble: Trouble | None, checks: Sequence[str]) -> dict[tuple[str, str], Cell]:
    """Return what checks say, by check and kind of evidence. trouble: that is there; None for a healthy node."""
    snapshot = (trouble or Trouble("", [], edit=without_martians)).snapshot(node)
    reported, context = (trouble.reported, trouble.context) if trouble else ({}, {})
    subject = trouble.subject if trouble else None
    found: dict[tuple[str, str], Cell] = {}
    with tempfile.TemporaryDirectory() as folder:
        for kind, read in evidence(node, snapshot, reported, Path(folder)):
            audit = audit_backend.Audit(read, catalogue.chosen(checks), context, wants_remedies=False)
            result = audit_backend.result(audit, random_nodes.run)
            found.update(((check, kind), _cell(result, check, subject)) for check in checks)
    return found


def _cell(result: Mapping[str, Any], check: str, subject: str | None) -> Cell:
    """Return what a check says. subject: of its trouble; None if it has none, so that a note may be there and no more."""
    of_check = [each for each in result["findings"] if each["id"] == check]
    present = [each for each in of_check if each["state"] == "present" and subject in (None, each["subject"])]
    open_ones = [each for each in of_check if each["state"] == "cannot_tell"]
    guesses = [each for each in result["passed_unless"] if each["id"] == check]
    asks = "; ".join(dict.fromkeys(each["ask"] for each in (*of_check, *guesses) if each["ask"]))
    if subject is None:
        if any(each["severity"] != "note" for each in present):
            return Cell(WRONG, f"{present}")
        tells = OPEN if open_ones else UNLESS if any(each["unless"] for each in (*of_check, *guesses)) else TELLS
        return Cell(tells, "" if tells == TELLS else asks)
    if present:
        return Cell(UNLESS, asks) if present[0]["unless"] else Cell(TELLS)
    return Cell(OPEN, asks) if asks else Cell(WRONG)


def with_trouble(check: str) -> dict[tuple[str, str], Cell]:
    trouble = ALL_TROUBLES[check]
    with trouble.node() as node:
        return cells(node, trouble, [check])


def without_trouble() -> dict[tuple[str, str], Cell]:
    with test_bundles_agree.CASES["healthy, marks"].node() as node:
        return cells(node, None, [check.id for check in catalogue.CHECKS])


BEGIN, END = "<!-- evidence: begin -->\n", "<!-- evidence: end -->\n"
PAGE = CHECKOUT / "docs/audit.md"
Pair = tuple[Cell, Cell]


def row(check: str, pairs: Mapping[str, Pair]) -> str:
    """Return the row of a check. pairs: by kind of evidence, with the trouble there and not there."""
    return f"| `{check}` | {' | '.join(' / '.join(cell.tells for cell in pairs[kind]) for kind in KINDS)} |\n"


def questions(rows: Mapping[str, Mapping[str, Pair]]) -> Iterator[str]:
    """Yield what the bundles of two collectors leave to ask for, with the checks that it decides."""
    for kind in (COLLECTORS["EKS"], COLLECTORS["sos"]):
        checks: dict[str, list[str]] = {}
        for check, pairs in rows.items():
            for ask in sorted({cell.ask for cell in pairs[kind] if cell.tells == OPEN}):
                checks.setdefault(ask.partition("; ")[0], []).append(f"`{check}`")
        for command, names in checks.items():
            yield f"| {kind} | `{command}` | {', '.join(dict.fromkeys(names))} |\n"


def table() -> str:
    """Return the section of the page. Each trouble takes a node."""
    healthy = without_trouble()
    rows = {}
    for check in (check.id for check in catalogue.CHECKS):
        there = with_trouble(check)
        rows[check] = {kind: (there[check, kind], healthy[check, kind]) for kind in KINDS}
        print(row(check, rows[check]), end="", flush=True)
        for kind, pair in rows[check].items():
            print(*(f"    {kind}: {cell}\n" for cell in pair if cell.tells in (OPEN, WRONG)), sep="", end="", flush=True)
    counts = {kind: sum(all(cell.tells in (TELLS, UNLESS) for cell in pairs[kind]) for pairs in rows.values()) for kind in KINDS}
    head = f"| check | {' | '.join(KINDS)} |\n|---{'|---' * len(KINDS)}|\n"
    sums = f"| both, of {len(rows)} | {' | '.join(str(counts[kind]) for kind in KINDS)} |\n"
    asks = "\n| evidence | ask first for | checks |\n|---|---|---|\n"
    return "".join([head, *(row(check, pairs) for check, pairs in rows.items()), sums, asks, *questions(rows)])


def committed() -> str:
    return PAGE.read_text().partition(BEGIN)[2].partition(END)[0]


def main() -> None:
    text, new = PAGE.read_text(), table()
    before, _begin, rest = text.partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n{new}\n{END}{rest.partition(END)[2]}")


if __name__ == "__main__":
    main()
