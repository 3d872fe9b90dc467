# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The command without Ansible, as its users install it: the wheel in an empty environment, or one file.

An ordinary user runs it on bundles of a node of the lab, and root on the node.
"""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import installation
import pytest
import yaml
from sampling import sampled

from ansible_collections.kubenode.datapath.plugins.module_utils._snapshot import snapshot
from lab import Lab, collection
from lab import Node as LabNode
from lab.waiting import until
from unit._pastes.test_bundles import sysdump as sysdump_of_two

from .._pastes import test_bundles
from .._pastes.test_bundles import BUNDLES, Node, fate
from .._trace import test_cures as scenes

CLI = collection.CHECKOUT / "deploy/cli"
USER = 65534  # has no home and no group
PODS_LINK, PEER = "cali1a2b", {"namespace": "pod", "name": "eth0", "mac": "0a:00:00:00:00:05", "addresses": ["10.0.1.11"]}
# A node port's reply leaves by another ENI than the one by which the request came in.
ENIS = snapshot.compose(
    {
        **dict.fromkeys(snapshot.PACKET_PATH, []),
        "links": [
            *(
                {"name": name, "flags": ["UP", "LOWER_UP"], "addresses": [{"address": address}]}
                for name, address in (("eth0", "10.0.0.10/24"), ("eth1", "10.0.1.10/24"))
            ),
            {"name": PODS_LINK, "kind": "veth", "flags": ["UP", "LOWER_UP"], "peer": PEER},
        ],
        "routes": [
            {"family": "ipv4", "table": "254", "to": "10.0.1.11", "dev": PODS_LINK},
            {"family": "ipv4", "table": "254", "to": "default", "dev": "eth0", "via": "10.0.0.1"},
            {"family": "ipv4", "table": "1001", "to": "default", "dev": "eth1", "via": "10.0.1.1"},
        ],
        "rules": [
            {"priority": 0, "family": "ipv4", "table": "255"},
            {"priority": 512, "family": "ipv4", "to": "10.0.1.11", "table": "254"},
            {"priority": 2048, "family": "ipv4", "from": "10.0.1.11", "table": "1001"},
            {"priority": 32766, "family": "ipv4", "table": "254"},
        ],
        "settings": {
            "node": {"net.ipv4.ip_forward": 1},
            "ipv4": {name: {"rp_filter": 0, "forwarding": 1} for name in ("all", "eth0", "eth1", PODS_LINK)},
        },
        "iptables": [
            {
                "family": "ip",
                "backend": "nft",
                "table": "nat",
                "save": "*nat\n-A PREROUTING -p tcp -m tcp --dport 30080 -j DNAT --to-destination 10.0.1.11:8080\nCOMMIT\n",
            }
        ],
    },
    [],
)
# The same with a filter that drops requests whose reply leaves by another interface.
STRICT = {**ENIS, "settings": {**ENIS["settings"], "ipv4": {**ENIS["settings"]["ipv4"]}}}
STRICT["settings"]["ipv4"].update(dict.fromkeys(("all", "eth0"), {"rp_filter": 1, "forwarding": 1}))
# The folder of an interpreter, and nothing else of its owner's home, is visible to all users: in a mount namespace.
SHOW = 'mkdir "$1" && mount --bind "$0" "$1" && mount -t tmpfs -o mode=755 none "$2" && mkdir -p "$0" && mount --move "$1" "$0"'
LEAVE = f"exec setpriv --reuid={USER} --regid={USER} --clear-groups -- "


class Program(NamedTuple):
    """An installed command. python: the folder of its interpreter."""

    argv: tuple[str, ...]
    python: Path

    def run(self, *words: str | Path, input: bytes = b"", shell: str = '"$@"') -> subprocess.CompletedProcess[bytes]:
        """Run it as an ordinary user, who may read no home of another user. shell: a script that starts it as ``"$@"``."""
        argv = ["sh", "-c", shell, "sh", *self.argv, *map(str, words)]
        hidden = next((path for path in reversed(self.python.parents) if not path.stat().st_mode & 1), None)
        show = ["sh", "-c", SHOW, self.python, tempfile.mkdtemp() + "/python", hidden] if hidden else ["true"]
        script = f"{shlex.join(map(str, show))} && cd / && {LEAVE}{shlex.join(argv)}"
        unshare = ["unshare", "--mount", "--propagation=private", "sh", "-c", script]
        return subprocess.run(unshare, input=input, capture_output=True, check=False)

    def trace(self, *words: str | Path, status: int, **options: Any) -> dict[str, Any]:
        completed = self.run("trace", "--json", *words, **options)
        assert (completed.returncode, completed.stderr) == (status, b""), completed.stderr.decode()
        answer: dict[str, Any] = json.loads(completed.stdout)
        return answer


def packed(folder: Path) -> Path:
    """Build the command."""
    subprocess.run([sys.executable, CLI / "packing.py", folder], check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A folder that each user may read."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        yield Path(name)


@pytest.fixture(scope="module")
def built(folder: Path) -> Path:
    return packed(folder / "built")


@pytest.fixture(scope="module")
def programs(folder: Path, built: Path) -> dict[str, Program]:
    """The wheel in empty environments on the oldest and the newest Python, and the file."""
    (wheel,) = built.glob("*.whl")
    pythons = {minor: Path(installation.interpreters()[minor]) for minor in (9, 13)}
    file = (str(pythons[13]), str(built / "kubenode-datapath.pyz"))
    installed = {"file": Program(file, pythons[13].parents[1])}
    for minor, python in pythons.items():
        place = folder / f"python{minor}"
        subprocess.run([python, "-m", "venv", "--without-pip", place], check=True)
        pip = [sys.executable, "-m", "pip", f"--python={place}/bin/python", "install", "--quiet", "--no-index", "--no-deps"]
        subprocess.run([*pip, "--disable-pip-version-check", wheel], check=True)
        installed[f"3.{minor}"] = Program((str(place / "bin/kubenode-datapath"),), python.parents[1])
    return installed


@pytest.fixture(scope="module")
def program(programs: dict[str, Program]) -> Program:
    """The one with the least to help it."""
    return programs["3.9"]


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    with Lab("command", nodes=[LabNode("node1")]) as lab:
        yield test_bundles.prepared(lab.node("node1"))


@pytest.fixture(scope="module")
def bundles(node: Node, folder: Path) -> dict[str, Path]:
    names = ("EKS", "Rancher")
    files = {name: test_bundles.collect(node.node, BUNDLES[name].files) for name in names}
    return {name: test_bundles.pack(folder, BUNDLES[name].name, files[name]) for name in names}


def line(packet: dict[str, Any]) -> str:
    return "tcp {source} > {destination}:{destination_port} in {interface}".format(**packet)


HEALTHY_PODS = ("--assume", "pod=shown")  # no output of a node shows what its pods have
READINGS = [
    (kind, name, status, installed)
    for kind, name, status in (("Rancher", "Service", 0), ("Rancher", "policy", 1), ("EKS", "Service", 2))
    for installed in ("3.9", "3.13", "file")
]


@pytest.mark.parametrize(
    ("kind", "name", "status", "installed"), sampled(READINGS, lambda reading: reading[3] == "3.9" or reading[1] == "policy")
)
def test_an_ordinary_user_reads_a_bundle(
    programs: dict[str, Program], node: Node, bundles: dict[str, Path], kind: str, name: str, status: int, installed: str
) -> None:
    answer = programs[installed].trace(*HEALTHY_PODS, bundles[kind], line(node.packets[name]), status=status)
    assert fate(answer) == fate(node.answers[name])
    assert answer["culprit"] == node.answers[name]["culprit"]


@pytest.mark.parametrize("installed", ["3.9", "file"])
def test_a_remedy_is_found_without_a_library_of_the_machine(programs: dict[str, Program], folder: Path, installed: str) -> None:
    """It adds a rule, for which pyroute2 encodes the message."""
    path = folder / "enis.json"
    path.write_text(json.dumps(ENIS))
    answer = programs[installed].trace(*HEALTHY_PODS, path, "tcp 198.51.100.2 > 10.0.0.10:30080 in eth0", status=2)
    assert "a cloud that checks the sources of an interface would drop it" in answer["reason"]
    assert [cure["change"] for cure in answer["cures"]] == ["eni_policy_routing: {remedy: loose, manage: [mark_rule, connmark]}"]


@pytest.mark.parametrize("installed", ["3.9", "file"])
def test_a_guilty_change_is_named_to_an_ordinary_user(programs: dict[str, Program], folder: Path, installed: str) -> None:
    """Without a packet, the paths of the sweep are explained; a packet may stand behind an option."""
    program, before, after = programs[installed], folder / "monday.json", folder / "tuesday.json"
    strict = {**ENIS, "rules": [*ENIS["rules"], {"priority": 900, "family": "ipv4", "to": "10.0.1.11", "action": "blackhole"}]}
    before.write_text(json.dumps({**ENIS, "rules": [{"priority": 100, "family": "ipv4", "to": "10.9.9.9"}, *ENIS["rules"]]}))
    after.write_text(json.dumps({**strict, "rules": [rule for rule in strict["rules"] if rule["priority"] != 512]}))
    packet = "tcp 198.51.100.2 > 10.0.0.10:30080 in eth0"
    guilty = ["ip rule 512: from all to 10.0.1.11 lookup main is gone", "ip rule 900: from all to 10.0.1.11 blackhole is new"]
    for words in ((before, after, "--json", packet), (before, after, packet, "--json"), (before, after, "--json")):
        done = program.run("explain", *words)
        answer = json.loads(done.stdout)
        assert done.returncode == 1, done.stderr
        assert [change["text"] for change in answer["guilty"]] == guilty
        assert (answer["changes"], answer["is_undone"]) == (3, True)
    origins = [{"name": "node7", "time": "2026-11-27 10:00:00 UTC"}, {"name": "node8", "time": "2026-11-26 10:00:00 UTC"}]
    for path, origin in zip((before, after), origins):
        path.write_text(json.dumps({**json.loads(path.read_text()), "node": origin}))
    shown = program.run("explain", before, after).stdout.decode()
    assert "BEFORE is of the node node7, and AFTER of node8." in shown and "which is later than 2026-11-26" in shown
    assert " ip rule del from all to 10.0.1.11 blackhole priority 900\n" in shown
    assert (program.run("explain", before, before).returncode, program.run("explain", before).returncode) == (0, 3)


def test_one_snapshot_is_explained_by_the_changes_that_the_agent_has_recorded(program: Program, folder: Path) -> None:
    path, blackhole = folder / "history.json", {"priority": 400, "family": "ipv4", "to": "10.0.1.11", "action": "blackhole"}
    made = {"time": 1.5e9, "kind": "rule", "verb": "added", "text": "ip rule 400", "program": "process 812 (ip)"}
    replaced = {"time": 1.6e9, "kind": "ruleset", "verb": "changed", "text": "the ruleset of nftables", "program": ""}
    changes = [{**made, "before": {"rules": []}, "after": {"rules": [blackhole]}}, replaced]
    path.write_text(json.dumps({**ENIS, "rules": [*ENIS["rules"], blackhole], "changes": changes}))
    done = program.run("explain", path, "--json", "tcp 198.51.100.2 > 10.0.0.10:30080 in eth0")
    answer = json.loads(done.stdout)
    assert [(change["text"], change["program"]) for change in answer["guilty"]] == [
        ("ip rule 400: from all to 10.0.1.11 blackhole is new", "process 812 (ip)")
    ]
    assert (done.returncode, answer["changes"], answer["is_undone"]) == (1, 1, True)
    assert answer["ignored"] == ["the ruleset of nftables was changed, and what was changed is not recorded."]
    path.write_text(json.dumps({**ENIS, "changes": [{"before": 7}]}))
    refused = program.run("explain", path, "tcp 198.51.100.2 > 10.0.0.10:30080 in eth0")
    assert (refused.returncode, b"changes as the agent records them" in refused.stderr) == (3, True)


def test_two_states_in_one_folder_are_compared(program: Program, folder: Path) -> None:
    states = folder / "states"
    states.mkdir()
    outputs = {
        "ip-addr": "2: eth0: <UP,LOWER_UP> mtu 1500\n    inet 192.0.2.11/24 scope global eth0\n",
        "ip-route-before": "default via 192.0.2.1 dev eth0\n192.0.2.0/24 dev eth0 proto kernel scope link src 192.0.2.11\n",
        "ip-route-after": "blackhole default\n192.0.2.0/24 dev eth0 proto kernel scope link src 192.0.2.11\n",
    }
    for name, text in outputs.items():
        (states / f"{name}.txt").write_text(text)
    done = program.run("explain", states, "--json", "tcp the node > 198.51.100.7:443")
    assert [change["text"] for change in json.loads(done.stdout)["guilty"]] == [
        "route blackhole default is in the place of default via 192.0.2.1 dev eth0"
    ]
    refused = program.run("trace", states, "tcp the node > 198.51.100.7:443")
    assert refused.returncode == 3 and b"kubenode-datapath explain" in refused.stderr


def test_evidence_comes_by_standard_input(program: Program, node: Node, bundles: dict[str, Path]) -> None:
    packet = line(node.packets["policy"])
    outputs = node.node.run(["sh", "-xc", "ip addr; ip rule; ip route show table all; iptables-save"])
    for content, status in ((bundles["Rancher"].read_bytes(), 1), ((outputs.stdout + outputs.stderr).encode(), 2)):
        answer = program.trace("-", packet, input=content, status=status)
        assert answer["culprit"] == node.answers["policy"]["culprit"]


def test_a_hostile_archive_is_an_error_in_one_line(program: Program, folder: Path) -> None:
    path = folder / "hostile.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        header = tarfile.TarInfo("../../../tmp/escaped/networking/iprule.txt")
        header.size = 1
        archive.addfile(header, io.BytesIO(b"x"))
    completed = program.run("trace", path, "tcp 10.0.0.1 > 10.0.0.2:80")
    (sentence,) = completed.stderr.decode().splitlines()
    assert (completed.returncode, completed.stdout) == (3, b"") and not Path("/tmp/escaped").exists()
    assert sentence.startswith("kubenode-datapath: EVIDENCE must be an archive whose members are inside of it; ")


@pytest.mark.parametrize("installed", ["3.9", "file"])
def test_root_reads_a_node_and_an_ordinary_user_traces_its_snapshot(
    programs: dict[str, Program], node: Node, folder: Path, installed: str
) -> None:
    program = programs[installed]
    words = {name: line(packet) for name, packet in node.packets.items()}
    live = node.node.run([*program.argv, "trace", "--json", "live", words["policy"]], check=False)
    assert (live.returncode, fate(json.loads(live.stdout))) == (1, fate(node.answers["policy"]))
    path = folder / "node.json"
    path.write_text(node.node.run([*program.argv, "snapshot"]).stdout)
    for name, status in (("Service", 0), ("table", 0), ("policy", 1)):
        assert fate(program.trace(path, words[name], status=status)) == fate(node.answers[name])
    for refused in (["snapshot"], ["trace", "live", words["policy"]]):
        completed = program.run(*refused)
        assert (
            completed.returncode == 3 and b"root is needed to read this node, and this is user 65534. Run it" in completed.stderr
        )


@pytest.mark.parametrize("installed", ["3.9", "file"])
def test_root_audits_a_node_and_an_ordinary_user_its_snapshot(programs: dict[str, Program], folder: Path, installed: str) -> None:
    program, path = programs[installed], folder / "audited.json"
    with scenes.shared_enis(scenes.STRICT) as (lab, node):
        node.service(scenes.NODE_PORT, [lab.pod("pod1").address], "Local", backend="iptables")
        live = node.run([*program.argv, "audit", "--json", "live"], check=False)
        path.write_text(node.run([*program.argv, "snapshot"]).stdout)
    assert program.run("audit", "live").returncode == 3
    elsewhere = program.run("audit", "--json", path)
    assert (live.returncode, elsewhere.returncode, live.stderr, elsewhere.stderr) == (1, 1, "", b"")
    result, repeated = json.loads(live.stdout), json.loads(elsewhere.stdout)
    names = [each.pop("node")["name"] for each in (result, repeated)]  # each has the time of its own snapshot
    assert result == repeated and names[0] == names[1]
    first = result["findings"][0]
    assert (first["id"], first["subject"], first["proof"]) == ("rp-strict-asymmetric", "eth0", "twin")
    text = program.run("audit", path).stdout.decode()
    assert "\nerror rp-strict-asymmetric eth0\n" in text and "\nProfile: eni_policy_routing\n" in text
    for options, status in ((["--check=note"], 0), (["--check=rp-strict-asymmetric", "--no-prove"], 2)):
        assert program.run("audit", *options, path).returncode == status


def test_the_profile_offered_is_the_one_that_was_tried(program: Program, folder: Path) -> None:
    """The remedy managed three parts, and the profile to paste all of them."""
    path = folder / "strict.json"
    path.write_text(json.dumps(STRICT))
    result = json.loads(program.run("audit", path, "--check=error", "-o", "json").stdout)
    offered = [each["remedy"] for each in result["findings"] if each["state"] == "present"]
    remedies = {remedy["operator"]: remedy["profile"] for remedy in offered}
    assert remedies == {"eni_policy_routing: {remedy: loose, manage: [filters, mark_rule, connmark]}": "eni_policy_routing"}
    variables = result["profile"]["variables"]
    assert variables["eni_policy_routing_manage"] == ["filters", "mark_rule", "connmark"]
    assert all(yaml.safe_load(remedy["task"])[0]["vars"] == variables for remedy in offered)


def test_a_folder_of_bundles_is_audited_node_by_node_and_a_broken_one_hides_no_other(program: Program, folder: Path) -> None:
    bundles = folder / "fleet"
    bundles.mkdir()
    for number, node in enumerate((STRICT, STRICT, ENIS)):
        (bundles / f"node{number}.json").write_text(json.dumps({**node, "node": {"name": f"node{number}", "time": ""}}))
    (bundles / "broken.tar.gz").write_bytes(b"no archive")
    done = program.run("audit", bundles, "--check=rp-strict-asymmetric")
    lines = done.stdout.decode().splitlines()
    assert (done.returncode, done.stderr) == (1, b"")
    assert lines[-4:] == [
        "  risk rp-strict-asymmetric eth0: 2 nodes: node0.json, node1.json",
        "",
        "2 findings (2 risks) in 1 group on 2 of 3 audited nodes",
        "On 0 nodes some checks cannot tell; 1 node was not audited.",
    ]
    (broken,) = (line for line in lines if line.startswith("  broken.tar.gz: "))
    assert "EVIDENCE must be in a whole archive that can be read" in broken
    written = json.loads(program.run("audit", bundles, "-o", "json", "--check=rp-strict-asymmetric").stdout)
    assert [*written["nodes"]] == ["broken.tar.gz", "node0.json", "node1.json", "node2.json"]


def test_a_sysdump_of_many_nodes_is_audited_node_by_node_also_in_a_folder(program: Program, folder: Path) -> None:
    place = folder / "sysdumps"
    place.mkdir()
    sysdump = sysdump_of_two(place)
    alone = json.loads(program.run("audit", sysdump, "-o", "json", "--check=rules-of-one-source").stdout)
    assert [*alone["nodes"]] == ["node1", "node2"]
    (place / "node7.json").write_text(json.dumps(ENIS))
    beside = json.loads(program.run("audit", place, "-o", "json", "--check=rules-of-one-source").stdout)
    assert {"node1", "node2", "node7.json"} <= {*beside["nodes"]}
    one = json.loads(program.run("audit", sysdump, "--node", "node2", "-o", "json", "--check=rules-of-one-source").stdout)
    assert one["node"]["name"] == "node2"


def test_an_interrupt_ends_an_audit_of_many_and_begins_no_other(program: Program, folder: Path) -> None:
    bundles = folder / "many"
    bundles.mkdir()
    for number in range(40):
        (bundles / f"node{number}.json").write_text(json.dumps({**STRICT, "node": {"name": f"node{number}", "time": ""}}))
    pipe = subprocess.PIPE
    with subprocess.Popen([*program.argv, "audit", bundles], stdout=pipe, stderr=pipe, start_new_session=True) as running:
        threads = Path(f"/proc/{running.pid}/task")
        until("it audits", lambda: any(path.read_text() for path in threads.glob("*/children")), limit=60)
        os.killpg(running.pid, signal.SIGINT)
        assert running.communicate(timeout=20) == (b"", b"") and running.returncode == 130


def test_a_terminal_sees_what_the_program_does(program: Program, folder: Path) -> None:
    path = folder / "watched.json"
    path.write_text(json.dumps(STRICT))
    shown = program.run("audit", path, shell='script -qec "$* > /dev/null" /dev/null')
    assert re.search(rb"\r\x1b\[Kkubenode-datapath: [^\r]+, \d+ s", shown.stdout)
    assert shown.stdout.endswith(b"\r\x1b[K"), "nothing is left of it"
    assert program.run("audit", path).stderr == b""


def test_the_wheel_has_a_manual_page(programs: dict[str, Program]) -> None:
    (page,) = Path(programs["3.9"].argv[0]).parents[1].glob("share/man/man1/kubenode-datapath.1")
    assert ".SH COMMANDS" in page.read_text()


def test_an_audit_asks_for_what_a_bundle_lacks(program: Program, bundles: dict[str, Path]) -> None:
    completed = program.run("audit", "--check=forwarding-off-at-boot", "-", input=bundles["EKS"].read_bytes())
    assert (completed.returncode, completed.stderr) == (
        2,
        b"",
    ) and "\n    ask for: systemd-analyze cat-config" in completed.stdout.decode()


def test_a_change_and_an_assumption_are_tried(program: Program, node: Node, bundles: dict[str, Path]) -> None:
    packet = line(node.packets["policy"])
    answer = program.trace(*HEALTHY_PODS, "--command", "iptables -F FORWARD", bundles["Rancher"], packet, status=0)
    assert answer["before"]["verdict"] == "dropped"
    facts = (fact["fact"] for fact in program.trace(bundles["EKS"], packet, status=2)["depends_on"])
    assumed = [word for fact in facts for word in ("--assume", f"{fact}=shown")]
    assert len(assumed) == 4 and program.trace(*assumed, bundles["EKS"], packet, status=1)["certain"]


def test_the_page_and_the_diagram_show_the_same_answer(program: Program, node: Node, bundles: dict[str, Path]) -> None:
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o777)
        page = Path(name, "page.html")
        completed = program.run("trace", "--mermaid", "--html", page, bundles["Rancher"], line(node.packets["policy"]))
        assert completed.returncode == 1 and completed.stdout.startswith(b"flowchart")
        assert "dropped" in page.read_text()


def test_a_reader_that_closes_the_pipe_leaves_no_message(program: Program, node: Node, bundles: dict[str, Path]) -> None:
    closed = program.run("trace", bundles["Rancher"], line(node.packets["policy"]), shell='"$@" | true')
    assert (closed.returncode, closed.stderr) == (0, b"")


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM)], ids=["INT", "TERM"])
def test_a_signal_leaves_no_message_and_no_file(program: Program, folder: Path, number: signal.Signals, status: int) -> None:
    words = [*program.argv, "trace", "-", "tcp 10.0.0.1 > 10.0.0.2:80"]
    copies = folder / f"copies-{number}"
    copies.mkdir()
    copies.chmod(0o777)
    pipe, environment = subprocess.PIPE, {**os.environ, "TMPDIR": str(copies)}
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe, env=environment) as running:
        links = Path(f"/proc/{running.pid}/fd")
        until("it copies its input", lambda: any(str(copies) in os.readlink(link) for link in links.iterdir()), limit=60)
        running.send_signal(number)
        assert running.communicate() == (b"", b"") and running.returncode == status and not os.listdir(copies)


def test_a_machine_without_user_namespaces_is_told_where_to_run_it(
    program: Program, node: Node, bundles: dict[str, Path]
) -> None:
    forbidding = 'exec unshare --user --map-root-user sh -c \'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"\' sh "$@"'
    completed = program.run("trace", bundles["Rancher"], line(node.packets["policy"]), shell=forbidding)
    (sentence,) = completed.stderr.decode().splitlines()
    assert completed.returncode == 3 and "(user.max_user_namespaces is 0)" in sentence
    assert sentence.endswith("or trace the node's snapshot or outputs on another machine")


def test_a_second_build_and_that_of_pip_are_the_same_to_the_byte(built: Path, tmp_path: Path) -> None:
    again = packed(tmp_path / "again")
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-index", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--disable-pip-version-check", f"--wheel-dir={tmp_path}", CLI], check=True)
    names = sorted(path.name for path in built.iterdir())
    assert names == sorted(path.name for path in again.iterdir()) and len(names) == 4
    assert all((built / name).read_bytes() == (again / name).read_bytes() for name in names)
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.read_bytes() == (built / wheel.name).read_bytes()
