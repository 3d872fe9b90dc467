# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A support bundle is recognised by its files, and each file by its path: as the output of a command, of a node or a pod."""

from __future__ import annotations

import io
import json
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Invalid
from ansible_collections.kubenode.datapath.plugins.module_utils._pastes import (
    bundles,
    commands,
    output_names,
    pastes,
    pastes_backend,
    talos,
)
from ansible_collections.kubenode.datapath.plugins.module_utils._snapshot import snapshot

RULE = "0:\tfrom all lookup local\n"
SAVED = "*nat\n:PREROUTING ACCEPT [0:0]\nCOMMIT\n"
LISTED = "Chain PREROUTING (policy DROP 0 packets, 0 bytes)\n"
NAMESPACES = """
netns: cni-2345-1234
+ command -v ip
/usr/sbin/ip
+ ip -4 -d -j addr show
[{"ifname":"eth0"}]
+ ip -6 -d -j addr show table all
Error: garbage
+ ip -d -j rule show
[]

netns: a b
+ ip -d -j rule show
[{}]
"""
BOOT_FILES = [
    "etc/sysctl.conf",
    *(f"{folder}/sysctl.d/50-x.conf" for folder in ("etc", "run", "usr/local/lib", "usr/lib", "lib")),
    *(f"{folder}/systemd/networkd.conf" for folder in ("etc", "usr/lib", "lib")),
    "etc/systemd/networkd.conf.d/x.conf",
]
GARBAGE = 'Error: either "dev" is duplicate, or "all" is a garbage.\n'
RETINA = """Summary:

/usr/sbin/ip rule list(Policy routing list)

Execute:

/usr/sbin/ip rule list

0: from all lookup local
"""


@pytest.mark.parametrize(
    ("files", "texts"),
    [
        (
            {
                **{"networking/iprule.txt": RULE, "networking/iproute.txt": "x\n", "networking/ip6route.txt": "y\n"},
                **{"networking/iptables-save.txt": SAVED, "networking/iptables-nat.txt": LISTED, "networking/other.txt": "z\n"},
                "networking/ip6tables-nat.txt": f"{LISTED}=======Total Number of Rules=======: 3\n",
                "networking/conntrack.txt": "*** Output of conntrack -S *** \ncpu=0\n*** Output of conntrack -L ***\ntcp 6\n",
                "networking/conntrack6.txt": "*** Output of conntrack -L -f ipv6 ***\ntcp 7\n",
                "networking/ipset.txt": "Name: x\nMembers:\n\nok\n\ncreate x hash:ip\nadd x 10.0.0.1\n",
                "networking/ipvsadm.txt": "-A -t 10.0.0.1:80\nIP Virtual Server version 1\nIP Virtual Server version 2\nTCP\n",
            },
            {
                **{"ip -4 rule show": RULE, "ip route show table all": "x\n", "iptables-save 2>/dev/null": SAVED},
                **{"ip6tables -t nat -nvL": LISTED, "conntrack -L": "tcp 6\ntcp 7\n"},
                **{"ipset save": "create x hash:ip\nadd x 10.0.0.1\n", "ipvsadm -Ln": "IP Virtual Server version 2\nTCP\n"},
            },
        ),
        ({"networking/iprule.txt": RULE, "networking/ipvsadm.txt": "ipvsadm not installed\n"}, {"ip -4 rule show": RULE}),
        (
            {"collect/ip_rule.json": "[]", "collect/ip_4_route.json": "[]", "collect/ip_netns_commands.txt": NAMESPACES},
            {
                **{"ip -4 -d -j rule show": "[]", "ip -4 -d -j route show": "[]"},
                "ip netns exec cni-2345-1234 ip -4 -d -j addr show": '[{"ifname":"eth0"}]\n',
                "ip netns exec cni-2345-1234 ip -d -j rule show": "[]\n\n",
            },
        ),
        (
            {
                **{"collect/ip_rule.json": "[]", "collect/nftables.txt": "table ip a {\n}\n"},
                "proc/net/ip_tables_names": "nat\n",
                **{"collect/ip_netns_cni-1/ip_4_addr.json": "[]", "collect/ip_netns_cni-1/ip_rule.json": "[{}]"},
                **{"collect/ip_4_route.json": "[]", "etc/cni/net.d/10-azure.conflist": "{}", "collect/ip_6_addr.json": GARBAGE},
            },
            {
                **{"ip -4 -d -j rule show": "[]", "ip -4 -d -j route show": "[]", "nft -n list ruleset": "table ip a {\n}\n"},
                **{"cat /proc/net/ip_tables_names": "nat\n", "cat /etc/cni/net.d/10-azure.conflist": "{}"},
                "ip netns exec cni-1 ip -4 -d -j addr show": "[]",
                "ip netns exec cni-1 ip -4 -d -j rule show": "[{}]",
            },
        ),
        (
            {
                "sos_commands/networking/ip_-4_rule_list": RULE,
                "sos_commands/networking/namespaces/cni-1/ip_netns_exec_cni-1_ip_-6_rule_list": RULE,
                "sos_commands/networking/namespaces/a;b/ip_netns_exec_a;b_ip_-6_rule_list": RULE,
                "sos_commands/firewall_tables/iptables_-t_raw_-nvL": LISTED,
            },
            {"ip -4 rule list": RULE, "ip netns exec cni-1 ip -6 rule list": RULE, "iptables -t raw -nvL": LISTED},
        ),
        (
            {"sos_commands/networking/ip_-4_rule_list": RULE, **dict.fromkeys(BOOT_FILES, ""), "etc/sysctl.d/README": "x"},
            {"ip -4 rule list": RULE, **{f"cat /{path}": "" for path in BOOT_FILES}},
        ),
        (
            {
                "cmd/ip--4-r.md": "# ip -4 r\n\n```\ndefault dev eth0\n```\n",
                "cmd/ip--4-route-show-table-2005.md": "#### x\n\n```\n```\n",
                "cmd/ip--6-route-show-table-2005.md": "Error: ipv6: FIB table does not exist.\nDump terminated\n",
                "cmd/ip--4-n.md": "> Error while running 'ip -4 n':  exit status 1\n\n",
            },
            {
                **{"ip -4 r": "default dev eth0\n", "ip -4 route show table 2005": "", "ip -6 route show table 2005": ""},
                "ip -4 n": "> Error while running 'ip -4 n':  exit status 1\n\n",
            },
        ),
        (
            {"networking/ipaddrshow": "", "networking/iptablesmangle": LISTED},
            {"ip addr show": "", "iptables -t mangle -nvL": LISTED},
        ),
        (
            {
                **{"ip-resources.txt": RETINA, "proc-sys-net/ipv4/ip_forward": "1\n"},
                "proc-sys-net/ipv4/conf/eth0.7/rp_filter": "2\n",
            },
            {
                "outputs of ip": "\n/usr/sbin/ip rule list\n\n0: from all lookup local\n",
                "sysctl -a": "net/ipv4/conf/eth0.7/rp_filter = 2\nnet/ipv4/ip_forward = 1\n",
            },
        ),
    ],
    ids=["EKS", "EKS without IPVS", "AKS", "AKS of 2026", "sos", "sos and the next boot", "Cilium", "Rancher", "Retina"],
)  # fmt: skip
def test_the_files_of_a_bundle_are_outputs_of_commands(files: dict[str, str], texts: dict[str, str]) -> None:
    known = {f"node1/{path}": text for path, text in files.items() if bundles.most(f"node1/{path}")}
    assert bundles.nodes(known) == {"node1": texts}


@pytest.mark.parametrize(
    "path", ["x/ip-rule.txt", "x/networking/other", "x/proc-sys-net/ipv4/neigh/eth0/locktime", "networking/iprule.txt.gz"]
)
def test_other_files_are_not_read(path: str) -> None:
    assert not bundles.most(path)


# Whose files name the commands of their outputs, or which another reader makes outputs of ip.
WITH_COMMANDS = (
    *("ip netns exec", "outputs of ip", "outputs of iptables", "cni-1", "run-host: cni-1"),
    *(talos.LINKS, talos.ADDRESSES, talos.ROUTES, talos.RULES),
)
BY_FORM = ("cat /var/run/aws-node/ipam.json", "curl http://localhost:61679/v1/enis")  # whose outputs are known by their form
OF_NO_SUBSET = (
    "conntrack -L",
    *WITH_COMMANDS,
    "ip -d -j netconf show",
)  # the last has settings, as its JSON shows


@pytest.mark.parametrize("row", bundles.ROWS, ids=lambda row: f"{row.bundle} {row.path}")
def test_the_command_of_a_row_is_one_whose_output_is_read(row: bundles.Row) -> None:
    command = row.command.format(
        table="nat", namespace="cni-1", name="cni-1", key="x", family="6", backend="-nft", path="etc/sysctl.conf"
    )
    if "{path}" in row.command:
        (part,) = commands.parts(command, "x") if "cni" in row.path else [None]
        assert output_names.boot_path(command) or (part and part.kind == commands.FILE)
        return
    (part,) = commands.parts(command, "") or [commands.Part("", ())]
    assert bool(part.kind) == (command not in (*OF_NO_SUBSET, *BY_FORM)) and not part.is_cut
    assert (part.is_pod, part.namespace) == ((True, "cni-1") if "{namespace}" in row.command else (False, ""))


RUN = "host-collectors/n1/run-host"
OF_IPV4, OF_IPV6 = (f"# Generated by {program}-save v1\n{SAVED}" for program in ("iptables", "ip6tables"))
AS_SYSCTL = "net.ipv4.ip_forward = 1\nnet.ipv4.conf.all.rp_filter = True\nnet.ipv4.x = [1]\n"
SETTINGS = '{"net.ipv4.ip_forward": "1", "net.ipv4.conf.all.rp_filter": true, "net.ipv4.x": [1]}'
LOADED = '{"nf_tables": {"status": "loaded"}, "ip_set": {"status": "loadable"}, "x": 1}'
FAILED = '{"command": "/usr/sbin/ip -6 rule", "exitCode": "1"}'
OF_NODES = {
    "antctl": (
        {
            **{
                "agent_n1.tar.gz/agentinfo": "version: v2\nnoderef:\n    kind: Node\n    name: n1\n",
                "agent_n1.tar.gz/rule": RULE,
            },
            **{"agent_n1.tar.gz/iptables": OF_IPV6 + OF_IPV4},
            **{"agent_n1.tar.gz/nftables": "", "agent_n1.tar.gz/route": "x", "agent_n1.tar.gz/route-table-all": "y"},
        },
        {
            **{
                "ip rule": RULE,
                "ip route show table all": "y",
                "iptables-save -c": OF_IPV4,
            },
            **{"ip6tables-save -c": OF_IPV6},
        },
    ),
    "must-gather": (
        {
            "quay-io/nodes/n1/ip.txt": "1: lo: <UP>\n",
            "quay-io/nodes/n1/nftables": "",
            "quay-io/nodes/n1/etc/cni/net.d/a.conf": "{}",
        },
        {"ip a": "1: lo: <UP>\n", "cat /etc/cni/net.d/a.conf": "{}"},
    ),
    "troubleshoot.sh": (
        {
            f"{RUN}/rules.txt": RULE,
            f"{RUN}/rules-info.json": '{"command": "/usr/sbin/ip rule", "exitCode": "0", "error": ""}',
            **{f"{RUN}/rules6.txt": RULE, f"{RUN}/rules6-info.json": FAILED, f"{RUN}/rules6-stderr.txt": "x"},
            **{f"{RUN}/ip-route.txt": "y", f"{RUN}/ip-neigh-info.json": "{}"},
            **{"host-collectors/n1/system/sysctl.json": SETTINGS, "host-collectors/n1/system/kernel_modules.json": LOADED},
        },
        {
            **{"ip rule": RULE, "ip -6 rule | uniq": RULE, "ip-route": "y"},
            **{"sysctl -a": AS_SYSCTL, "cat /proc/modules": "nf_tables 0 0\n"},
        },
    ),
}


@pytest.mark.parametrize("kind", OF_NODES)
def test_files_of_one_of_several_nodes_have_its_name(kind: str) -> None:
    files, texts = OF_NODES[kind]
    other = {path.replace("n1", "n2"): text.replace("n1", "n2") for path, text in files.items()}
    known = {f"x/{path}": text for path, text in {**files, **other}.items() if bundles.most(f"x/{path}")}
    found = bundles.nodes(known)
    assert [*found] == ["n1", "n2"] and found["n1"] == texts


def test_the_outputs_of_these_bundles_are_whole() -> None:
    of_antctl = {f"agent_n1/{name}": text for name, text in {"agentinfo": "", "iptables": OF_IPV6}.items()}
    (texts,) = bundles.nodes({f"x/{path}": text for path, text in of_antctl.items()}).values()
    facts = {fact["fact"] for fact in pastes.read(texts).snapshot["open"]}
    assert "table:ip nat" in facts and "table:ip6 nat" not in facts  # iptables-save of IPv4 did not run
    of_host = {"system/kernel_modules.json": '{"nf_tables": {"status": "loaded"}}', "run-host/iptables-save.txt": SAVED}
    (texts,) = bundles.nodes({f"x/host-collectors/{path}": text for path, text in of_host.items()}).values()
    pasted = pastes.read(texts)
    assert pasted.ignored == [] and "legacy" not in {
        fact["fact"] for fact in pasted.snapshot["open"] if fact.get("family") == "ipv4"
    }


def test_files_of_no_bundle_are_none() -> None:
    assert bundles.nodes({"x/networking/iptables-save.txt": SAVED, "x/hostname": "y"}) == {}


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("bottlerocket-logs/signpost", "Bottlerocket's logdog"),
        ("must-gather/quay-io/cluster-scoped-resources/core/nodes/n.yaml", "OpenShift must-gather"),
        ("must-gather/cluster-scoped-resources/nmstate.io/nodenetworkstates/n1.yaml", "OpenShift must-gather"),
        ("must-gather/namespaces/sriov/pods/daemon-1/ip_link", "OpenShift must-gather"),
        ("support-bundle/cluster-resources/pods/default.json", "troubleshoot.sh"),
        ("agent_node7/ovsports", "antctl supportbundle"),
        ("10.0.0.7/kubernetesResources/nodes.yaml", "talosctl support"),
    ],
)
def test_a_known_collector_that_is_not_read_is_named(tmp_path: Path, file: str, name: str) -> None:
    path = pack(tmp_path / "bundle.tar.gz", {file: "x\n"})
    left_out = f"bundle.tar.gz/{file}, of {name}, is left out, because"
    with pytest.raises(Invalid, match=left_out):
        pastes_backend.read(str(path))
    with_output = pack(
        tmp_path / "more.tar.gz", {file: "x\n", f"{file.partition('/')[0]}/ip-rule.txt": "0: from all lookup local\n"}
    )
    notes = pastes_backend.read(str(with_output)).ignored
    assert [note.startswith(f"more.tar.gz/{file}, of {name}, is left out, because") for note in notes] == [True]


def of_node(number: int) -> dict[str, str]:
    rule = f"0: from all lookup local\n{number}: from all lookup 9\n"
    return {
        "cmd/ip-a.md": "",
        "cmd/ip-rule.md": f"# ip rule\n\n```\n{rule}```\n",
        "cmd/hostname.md": f"# hostname\n\n```\nnode{number}\n```\n",
    }


def pack(path: Path, files: dict[str, str]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, text in files.items():
            header = tarfile.TarInfo(name)
            header.size = len(text.encode())
            archive.addfile(header, io.BytesIO(text.encode()))
    return path


def sysdump(folder: Path) -> str:
    """A bundle of two nodes, each in an archive, as people pack what they got."""
    with zipfile.ZipFile(folder / "sysdump.zip", "w") as archive:
        for number in (1, 2):
            inner = pack(
                folder / f"agent{number}.tar.gz", {f"cilium-bugtool/{path}": text for path, text in of_node(number).items()}
            )
            archive.write(inner, f"cilium-sysdump/cilium-bugtool-{number}.tar.gz")
    return str(folder / "sysdump.zip")


def priorities(dump: Any, node: str = "") -> list[int]:
    return [rule["priority"] for rule in pastes.read(pastes_backend.report(dump, node).texts).snapshot["rules"]]


def test_the_nodes_of_a_bundle_of_many_are_read_one_by_one(tmp_path: Path) -> None:
    nodes = pastes_backend.nodes(str(sysdump(tmp_path)))
    assert [*nodes] == ["node1", "node2"]
    rules = [[rule["priority"] for rule in pastes_backend.read(node).snapshot["rules"]] for node in nodes.values()]
    assert rules == [[0, 1], [0, 2]]


def test_a_folder_of_bundles_is_many_nodes_and_one_of_outputs_is_one(tmp_path: Path) -> None:
    def node(name: str) -> str:
        return json.dumps(snapshot.compose({}, [], snapshot.Origin(name, "2026-11-27 10:00:00 UTC")))

    files = {"a.json": node("node1"), "b.json": node("node2"), "broken.tar.gz": "broken", "notes.md": "x"}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert [*pastes_backend.nodes(str(tmp_path))] == ["a.json", "b.json", "broken.tar.gz"]
    (tmp_path / "broken.tar.gz").unlink()
    (tmp_path / "b.json").write_text(node("node1"))
    assert pastes_backend.nodes(str(tmp_path)) == {}, "two states of one node"
    (tmp_path / "b.json").write_text(node("node2"))
    (tmp_path / "ip-route.txt").write_text("default via 192.0.2.1 dev eth0\n")
    assert pastes_backend.nodes(str(tmp_path)) == {}, "an output that stands beside a snapshot"
    assert pastes_backend.nodes("/nowhere") == {}


@pytest.mark.parametrize(("host", "count"), [("node2", 2), ("node1", 0)])
def test_a_folder_of_texts_that_the_script_printed_is_many_nodes_by_their_prompts(host: str, count: int, tmp_path: Path) -> None:
    for name, each in (("a", "node1"), ("b", host)):
        (tmp_path / f"{name}.txt").write_text(
            f"root@{each}:~# ip route\ndefault via 192.0.2.1 dev eth0\nroot@{each}:~# ip rule\n"
        )
    assert len(pastes_backend.nodes(str(tmp_path))) == count


def test_a_bundle_of_many_nodes_asks_for_one_of_them(tmp_path: Path) -> None:
    path = sysdump(tmp_path)
    assert (priorities(path, "node1"), priorities(path, "node2")) == ([0, 1], [0, 2])
    for node in ("", "node3"):
        with pytest.raises(Invalid, match="^node must be one of the nodes of the bundle: node1, node2; "):
            pastes_backend.report(path, node)


def test_nodes_without_a_name_have_that_of_their_folders(tmp_path: Path) -> None:
    files = {f"nodes/host{number}/networking/iprule.txt": RULE for number in (1, 2)}
    assert [*bundles.nodes(files)] == ["host1", "host2"]
    assert [*bundles.nodes({f"x/{top}/log/cmd/ip-a.md": "" for top in ("a", "b")})] == ["x/a/log", "x/b/log"]
    (tmp_path / "host7/networking").mkdir(parents=True)
    (tmp_path / "host7/networking/iprule.txt").write_text(RULE)
    assert priorities(str(tmp_path / "host7"), "host7") == priorities(str(tmp_path / "host7")) == [0]
    assert priorities(str(tmp_path / "host7/networking")) == [0]


def test_an_output_that_is_cut_is_named(tmp_path: Path) -> None:
    connections = "*** Output of conntrack -L ***\n" + "tcp 6 1 [UNREPLIED]\n" * (bundles.EVIDENCE // 20 + 1)
    path = pack(tmp_path / "a.tgz", {"networking/iprule.txt": RULE, "networking/conntrack.txt": connections})
    report = pastes_backend.report(str(path))
    assert report.notes == [f"a.tgz/networking/conntrack.txt has more than {4 << 20} bytes. What is behind them is left out."]
    assert report.texts["conntrack -L"].endswith("[UNREPLIED]\n...\n")


def test_an_archive_that_a_person_made_is_read_as_a_folder(tmp_path: Path) -> None:
    path = str(pack(tmp_path / "a.tgz", {"report/ip-rule.txt": RULE, "report/notes.md": "x", "report/a/b/c/deep.txt": "x"}))
    assert pastes_backend.report(path).texts == {"ip-rule.txt": RULE}
    path = str(pack(tmp_path / "b.tgz", {"before/ip-rule.txt": RULE, "after/ip-rule.txt": f"{RULE}5: from all lookup 9\n"}))
    assert priorities(path, "after") == [0, 5]
    with pytest.raises(Invalid, match="^node must be one of the nodes of the bundle: after, before"):
        pastes_backend.report(path)


def test_an_archive_without_outputs_is_an_error_that_names_archives_that_are_nested_twice(tmp_path: Path) -> None:
    known = "dump must be a support bundle that is known, or an archive with outputs of commands"
    inner = pack(tmp_path / "a.tgz", {"notes.md": ""})
    for outer in (inner, pack(tmp_path / "b.tgz", {"x.tar.gz": ""})):
        with pytest.raises(Invalid, match=known if outer == inner else "whole archive"):
            pastes_backend.report(str(outer))
    with zipfile.ZipFile(tmp_path / "twice.zip", "w") as archive, tarfile.open(tmp_path / "middle.tgz", "w:gz") as middle:
        middle.add(inner, "inner.tgz")
        middle.close()
        archive.write(tmp_path / "middle.tgz", "middle.tgz")
    with pytest.raises(Invalid, match=f"{known}. Unpack twice.zip/middle.tgz/inner.tgz, which"):
        pastes_backend.report(str(tmp_path / "twice.zip"))


@pytest.mark.parametrize("dump", [{"ip rule": RULE}, f"$ ip rule\n{RULE}"])
def test_a_report_of_one_node_takes_no_name(dump: Any) -> None:
    with pytest.raises(Invalid, match="^node must be left out for evidence of one node"):
        pastes_backend.report(dump, "node1")


def test_a_folder_of_one_node_takes_no_name(tmp_path: Path) -> None:
    (tmp_path / "ip-rule.txt").write_text(RULE)
    with pytest.raises(Invalid, match="^node must be left out"):
        pastes_backend.report(str(tmp_path), "node1")


ASKED = {"nft-list-ruleset.txt": "table ip own {\n}\n"}


@pytest.mark.parametrize("place", ["list", "top", "within", "beside"])
def test_outputs_that_were_asked_for_stand_behind_the_bundle_that_lacks_them(tmp_path: Path, place: str) -> None:
    files = {"networking/iprule.txt": RULE, "networking/iproute.txt": "default via 10.0.0.1 dev eth0\n"}
    (tmp_path / "evidence/networking").mkdir(parents=True)
    for name, text in ASKED.items():
        folder = {"list": "", "within": "evidence/networking/"}.get(place, "evidence/")
        (tmp_path / f"{folder}{name}").write_text(text)
    if place in ("top", "within"):
        for path, text in files.items():
            (tmp_path / "evidence" / path).write_text(text)
        dump: Any = str(tmp_path / "evidence")
    else:
        bundle = pack(tmp_path / ("evidence/a.tgz" if place == "beside" else "a.tgz"), files)
        dump = [str(bundle), *(str(tmp_path / name) for name in ASKED)] if place == "list" else str(bundle.parent)
    report = pastes_backend.report(dump)
    texts = {"ip -4 rule show": RULE, "ip route show table all": files["networking/iproute.txt"], **ASKED}
    assert report.texts == {**texts, "hostname": report.texts["hostname"]}
    assert report.notes == []
    assert "nft" not in {fact["fact"] for fact in pastes.read(report.texts).snapshot["open"]}


@pytest.mark.parametrize(
    ("name", "more", "origin"),
    [
        ("eks_i-0123_2026-11-26_1200-UTC_0.7.8.tgz", {}, ("eks_i-0123_2026-11-26_1200-UTC_0.7.8", "2026-11-26_1200-UTC")),
        ("a.tgz", {"kernel/uname.txt": "Linux ip-10-0-0-5.ec2.internal 6.1.0 #1 SMP x86_64\n"}, ("ip-10-0-0-5.ec2.internal", "")),
        ("a.tgz", {"networking/iptables-save.txt": f"# Completed on Sun Nov 29 2026\n{SAVED}"}, ("a", "Sun Nov 29 2026")),
    ],
)
def test_a_bundle_tells_the_name_of_its_node_and_the_time(tmp_path: Path, name: str, more: Any, origin: tuple[str, str]) -> None:
    files = {"networking/iprule.txt": RULE, "networking/iproute.txt": "default via 10.0.0.1 dev eth0\n", **more}
    snapshot = pastes_backend.read(str(pack(tmp_path / name, files))).snapshot
    assert snapshot["node"] == dict(zip(("name", "time"), origin))


def test_of_two_outputs_a_later_one_counts_unless_it_alone_is_cut() -> None:
    other = RULE + "7: from all lookup 7\n"
    assert priorities([{"ip rule": RULE}, {"ip -4 rule": other}]) == [0, 7]
    assert priorities([{"ip rule": other}, {"ip rule | grep 0:": RULE}]) == [0, 7]
    assert 0 in priorities([{"ip rule": "no rules of this kernel are understood"}, {"ip -4 rule | grep 0:": RULE}])


def test_archives_in_a_folder_are_nodes(tmp_path: Path) -> None:
    for name, priority in (("a.tgz", 1), ("b.tgz", 2)):
        pack(tmp_path / name, {"networking/iprule.txt": f"{RULE}{priority}: from all lookup 9\n"})
    pack(tmp_path / "controller.tgz", {"logs/controller/x.log": ""})
    with pytest.raises(Invalid, match="^node must be one of the nodes of the bundle: a, b; "):
        pastes_backend.report(str(tmp_path))
    assert priorities(str(tmp_path), "b") == [0, 2]
    assert pastes_backend.report(str(tmp_path), "b").notes == ["controller.tgz has no output that is read there. It is left out."]
    assert priorities([str(tmp_path / "a.tgz"), str(tmp_path / "b.tgz")]) == [0, 2]  # of one node, in the order of time


WHOLE = snapshot.compose({"rules": [{"priority": 7, "family": "ipv4", "table": "7"}]}, [])


@pytest.mark.parametrize("place", ["list", "top", "beside", "alone"])
def test_a_snapshot_among_outputs_counts_and_the_answer_says_so(tmp_path: Path, place: str) -> None:
    (tmp_path / "node.json").write_text(json.dumps(WHOLE))
    if place == "alone":
        (tmp_path / "ip-rule.txt").write_text(RULE)
    elif place == "top":
        (tmp_path / "networking").mkdir()
        (tmp_path / "networking/iprule.txt").write_text(RULE)
    else:
        pack(tmp_path / "a.tgz", {"networking/iprule.txt": RULE})
    dump = [str(tmp_path / "node.json"), str(tmp_path / "a.tgz")] if place == "list" else str(tmp_path)
    name = "ip-rule.txt" if place == "alone" else "ip -4 rule show"
    note = f"node.json is a snapshot, which is whole. Beside it, these are left out: {name}."
    assert pastes_backend.read(dump) == (WHOLE, [note])


@pytest.mark.parametrize(
    ("first", "second", "newest"),
    [
        ("", "", 1),
        ("2026-11-29 10:00:00 UTC", "2026-11-29 09:00:00 UTC", 0),
        ("2026-11-29 10:00:00 UTC", "2026-11-29 11:00:00 UTC", 1),
        ("2026-11-29 10:00:00 UTC", "", 1),
        ("yesterday", "2026-11-29 09:00:00 UTC", 1),
        ("9" * 400, "2026-11-29 09:00:00 UTC", 1),
    ],
)
def test_of_two_snapshots_the_newest_one_counts(first: str, second: str, newest: int) -> None:
    taken = [snapshot.compose({"rules": []}, [], snapshot.Origin("n7", time)) for time in (first, second)]
    found = pastes_backend.read([{f"{number}.json": json.dumps(each)} for number, each in enumerate(taken)])
    assert found.snapshot == taken[newest]
    assert found.ignored == [f"{newest}.json is a snapshot, which is whole. Beside it, these are left out: {1 - newest}.json."]


def test_snapshots_with_one_name_are_not_mixed() -> None:
    other = snapshot.compose({"rules": []}, [], snapshot.Origin("n7", "2026-11-29 09:00:00 UTC"))
    newer = {**WHOLE, snapshot.NODE: {"name": "n7", "time": "2026-11-29 10:00:00 UTC"}}
    found = pastes_backend.read([{"node.json": json.dumps(newer)}, {"node.json": json.dumps(other)}])
    assert found.snapshot == newer
    assert found.ignored == ["There are several texts with the name node.json. The earlier one, a snapshot, is taken."]
    assert pastes_backend.read([newer, {"ip rule": RULE}]).snapshot == newer


def test_a_text_of_several_with_one_name_is_not_dropped() -> None:
    texts = ["$ ip rule\n" + RULE, "$ ip route\ndefault via 10.0.0.1 dev eth0\n"]
    found = pastes_backend.read(texts).snapshot
    assert ([rule["priority"] for rule in found["rules"]], len(found["routes"])) == ([0], 1)


@pytest.mark.parametrize(
    ("first", "second", "count"),
    [(RULE, RULE + "7: from all lookup 7\n", "last"), (RULE + "7: from all lookup 7\n", "...\n" + RULE, "whole")],
)
def test_of_two_outputs_with_one_name_the_answer_says_which_counts(first: str, second: str, count: str) -> None:
    found = pastes_backend.read([{"ip rule": first}, {"ip rule": second}])
    assert [rule["priority"] for rule in found.snapshot["rules"]] == [0, 7]
    assert found.ignored == [f"There are several outputs of ip rule. The {count} one is taken."]


def test_what_is_not_read_of_a_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    for name, text in {
        "ip-rule.txt": RULE,
        "notes.txt": "It broke.\n",
        "rules.v4": SAVED,
        "more/iptables-save.txt": SAVED,
    }.items():
        (tmp_path / name).write_text(text)
    left_out = pastes_backend.read(str(tmp_path)).ignored
    assert [sentence for sentence in left_out if "prose" not in sentence] == [
        "rules.v4 has no name of a text, such as rules.v4.txt. It is left out.",
        f"{tmp_path.name}/more/iptables-save.txt is in a folder of its own. It is left out.",
        "notes.txt has no output that is read. It is left out.",
    ]


def test_folders_of_a_folder_are_nodes_as_those_of_an_archive(tmp_path: Path) -> None:
    for name, text in {"before": RULE, "after": f"{RULE}5: from all lookup 9\n"}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "ip-rule.txt").write_text(text)
    assert priorities(str(tmp_path), "after") == [0, 5]
    with pytest.raises(Invalid, match="^node must be one of the nodes of the bundle: after, before"):
        pastes_backend.report(str(tmp_path))


def test_a_text_beside_a_bundle_that_is_not_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "networking").mkdir()
    (tmp_path / "networking/iprule.txt").write_text(RULE)
    (tmp_path / "notes.txt").write_text("It worked yesterday.\n")
    pack(tmp_path / "a.tgz", {"networking/iprule.txt": RULE})
    notes = pastes_backend.report(str(tmp_path)).notes
    assert notes == [f"{name} has no output that is read there. It is left out." for name in ("notes.txt", "a.tgz")]
