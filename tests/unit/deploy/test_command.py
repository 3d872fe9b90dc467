# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The command without Ansible: its words, its exit status, and the completion of shells.

What it makes of evidence is in tests/integration/_delivery.
"""

from __future__ import annotations

import errno
import io
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).resolve().parents[3] / "deploy/cli"))

from kubenode_datapath import arguments, audit, cluster, completion, output, program, trace  # noqa: E402

from ansible_collections.kubenode.datapath.plugins.module_utils._audit import catalogue  # noqa: E402
from ansible_collections.kubenode.datapath.plugins.module_utils._core import option  # noqa: E402
from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Failure, Invalid  # noqa: E402
from ansible_collections.kubenode.datapath.plugins.module_utils._parts import (  # noqa: E402
    ebtables_cleanup,
    link_addresses,
    nftables_probe_snat,
    policy_routes,
    rp_filter,
)
from ansible_collections.kubenode.datapath.plugins.module_utils._render.findings import MOST_OF_LINE, fleet, read  # noqa: E402
from ansible_collections.kubenode.datapath.plugins.module_utils._trace.answer import Answer, Branch, Way  # noqa: E402
from unit import audits  # noqa: E402

PACKET = "tcp 10.0.0.1 > 10.0.0.2:80"


@pytest.mark.parametrize(
    ("verdict", "reply", "certain", "status"),
    [
        ("delivered", None, True, 0),
        ("forwarded", "delivered", True, 0),
        ("forwarded", "dropped", True, 1),
        ("dropped", None, True, 1),
        ("rejected", None, True, 1),
        ("unknown", None, True, 2),
        ("forwarded", "unknown", True, 2),
        ("forwarded", "delivered", False, 2),
        ("dropped", None, False, 2),
    ],
)
def test_the_exit_status_says_whether_both_packets_arrive(verdict: str, reply: str | None, certain: bool, status: int) -> None:
    answer = Answer(way(verdict, way(reply) if reply else None), certain=certain)
    assert trace.status(answer) == status


def way(verdict: str, reply: Way | None = None) -> Way:
    return Way(verdict, "", None, "", None, reply=reply)


def test_the_exit_status_says_that_chance_decides() -> None:
    dropped, delivered = (Answer(way(verdict), certain=True) for verdict in ("dropped", "delivered"))
    branches = [Branch(0.5, each.way) for each in (dropped, delivered)]
    assert trace.status(dropped._replace(branches=(*branches,))) == 2
    assert trace.status(delivered._replace(branches=(branches[1], branches[1]))) == 0


@pytest.mark.parametrize(
    ("findings", "status"),
    [
        ([], 0),
        ([audits.present("note")], 0),
        ([audits.present("error")], 1),
        ([audits.present("risk"), audits.unclear()], 1),
        ([audits.unclear()], 2),
        ([audits.present("note"), audits.unclear()], 2),
    ],
)
def test_the_exit_status_of_an_audit_says_whether_packets_are_lost(findings: list[dict[str, Any]], status: int) -> None:
    assert audit.status(read(audits.audit(*findings))) == status


def test_the_words_of_the_context_are_those_of_the_module() -> None:
    module = pytest.importorskip("ansible_collections.kubenode.datapath.plugins.module_utils._audit.context")
    for name, words in (("cloud", arguments.CLOUDS), ("probe_mode", arguments.PROBE_MODES), ("cni", arguments.CNIS)):
        assert words == module.OPTIONS[name].choices


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "kubenode-datapath: the following arguments are required: COMMAND. "),
        (["trace", "bundle.tgz"], "kubenode-datapath trace: the following arguments are required: PACKET. "),
        (["trace", "--finding", "path-lost"], "kubenode-datapath trace: the following arguments are required: EVIDENCE. "),
        (["trace", "--json", "--mermaid", "x", PACKET], "kubenode-datapath trace: argument --mermaid: not allowed with"),
        (["trace", "--js", "x", PACKET], "kubenode-datapath: unrecognized arguments: --js; did you mean --json? "),
        (["trace", "--assume", "rp_filter:eth0", "x", PACKET], "kubenode-datapath: --assume must be FACT=VALUE, such as "),
        (["audit"], "kubenode-datapath audit: the following arguments are required: EVIDENCE. "),
        (["audit", "--cloud", "gcp", "x"], "kubenode-datapath audit: argument --cloud: invalid choice: 'gcp'"),
        (
            ["audit", "--pod-range", "10.0.0.1/8", "x"],
            "kubenode-datapath audit: argument --pod-range: must be a network without host bits, such as 10.96.0.0/12;",
        ),
        (["completion", "tcsh"], "kubenode-datapath completion: argument shell: invalid choice: 'tcsh'"),
    ],
)
def test_wrong_words_are_an_error_in_one_line(words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        program.main(words)
    (line,) = capsys.readouterr().err.splitlines()
    assert ended.value.code == arguments.ERROR and line.startswith(sentence) and line.endswith("--help lists what it takes")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["trace", "/nowhere", PACKET], "EVIDENCE must be a folder or archive that can be read"),
        (["trace", "/nowhere", "-"], "PACKET must be a line such as tcp"),
        (["trace", "/nowhere", "--finding", ""], "PACKET must be given, unless a finding is"),
        (["trace", "--finding", "path-lost", "/nowhere"], "EVIDENCE must be a folder or archive that can be read"),
        (["trace", "/nowhere", "--finding", "path-lost", PACKET], "--finding must be left out if a packet is given"),
        (["trace", "/nowhere", "tcp 10.0.0.1 > 10.0.0.2"], "PACKET.destination_port must be a port"),
        (["audit", "/nowhere"], "EVIDENCE must be a folder or archive that can be read"),
        (
            ["audit", "--check", "strict", "/nowhere"],
            "--check[0] must be error, risk, note or the id of a check, such as firewalld-strict-ipv6, rp-strict-asymmetric,",
        ),
        (["audit", "--explain", "rp-strikt"], "--explain must be the id of a check, such as rp-strict-at-boot, "),
        (["trace", "/dev", "--command", "rm -rf /", PACKET], "--command[0] must be a command of one of ip, "),
    ],
)
def test_an_error_names_the_word_of_the_command_line(words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(words) == arguments.ERROR
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"kubenode-datapath: {sentence}")


class Full(io.StringIO):
    """A stream of a device without room."""

    def flush(self) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_an_error_has_its_status_where_streams_are_closed_or_full(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a service's are. A traceback has the status of a packet that is lost."""
    monkeypatch.setattr(sys, "stdin", None)
    full = Full()
    monkeypatch.setattr(sys, "stderr", full)
    assert program.main(["trace", "-", PACKET]) == arguments.ERROR
    assert full.getvalue().startswith("kubenode-datapath: EVIDENCE must be outputs of ip")


@pytest.mark.parametrize("words", [["trace", "/nowhere", PACKET], ["trace", "live", PACKET], ["audit", "live"], ["snapshot"]])
def test_another_system_is_told_where_to_run_it(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert program.main(words) == arguments.ERROR
    assert "this is darwin. Run it on a Linux machine, in a Linux VM, or on the node itself" in capsys.readouterr().err


def test_several_words_are_one_packet_and_a_value_may_be_repeated() -> None:
    parser = arguments.parser(False, "1")
    words = ["trace", "bundle.tgz", *PACKET.split(), "--assume", "table:ip nat=shown", "--assume", "set:a=b=with"]
    options = parser.parse_args(words)
    assert " ".join(options.packet) == PACKET
    assert arguments.assumptions(parser, options.assume) == {"table:ip nat": "shown", "set:a=b": "with"}


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (["--node", "node1", PACKET], "trace"),
        (["trace", "--node", "node1", PACKET], "trace"),
        ([PACKET, "--node=node1", "--image", "busybox"], "trace"),
        (["audit", "--node", "node1", "--check", "error"], "audit"),
        (["audit", "node1", "-n", "kube-system", "-o", "json"], "audit"),
        (["trace", "node1", PACKET, "-o", "yaml"], "trace"),
        (["snapshot", "--node", "node1"], "snapshot"),
    ],
)
def test_the_plugin_of_kubectl_traces_unless_another_command_is_given(words: list[str], command: str) -> None:
    options = arguments.parser(True, "1").parse_args(arguments.completed(words))
    assert (options.command, options.node) == (command, "node1")


@pytest.mark.parametrize(
    ("printed", "reason"),
    [
        (b"env: 'python3': No such file or directory\ncommand terminated with exit code 127\n", "env: 'python3': No such file"),
        (b'Error from server (NotFound): nodes "node9" not found\n', "Error from server (NotFound): nodes"),
        (b"command terminated with exit code 1\n", "it printed nothing"),
    ],
)
def test_an_error_of_kubectl_says_what_the_node_said(printed: bytes, reason: str) -> None:
    assert cluster.reason(printed).startswith(reason)


OF_CONTEXT = ["--cloud", "--cni", "--pod-range", "--probe-mode", "--service-range"]
OF_OUTPUT = ["--color", "--html", "--json", "--mermaid", "--output", "-o"]
OPTIONS = sorted(["--assume", "--command", "--finding", "--help", "--node", "-h", *OF_OUTPUT, *OF_CONTEXT])


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        (["tr"], ["trace"]),
        ([""], ["audit", "commands", "completion", "explain", "snapshot", "trace"]),
        (["--v"], ["--version"]),
        (["trace", "-"], OPTIONS),
        (["trace", "x", "--js"], ["--json"]),
        (["audit", "x", "--c"], ["--check", "--cloud", "--cni", "--color"]),
        (["audit", "--check", "rp-strict-as"], ["rp-strict-asymmetric"]),
        (["audit", "--explain", "er"], []),
        (["audit", "--check", "er"], ["error"]),
        (["trace", "x", "--cni", "c"], ["calico", "cilium"]),
        (["audit", "x", "-o", ""], ["json", "text", "wide", "yaml"]),
        (["trace", "x"], []),
        (["snapshot", "--o"], ["--output"]),
        (["completion", ""], ["bash", "fish", "zsh"]),
    ],
)
def test_bash_completes_what_the_parser_takes(words: list[str], completed: list[str]) -> None:
    script = completion.script("bash", arguments.parser(False, "1"), arguments.COMMAND)
    run = 'eval "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _kubenode_datapath; echo "${COMPREPLY[*]}"'
    result = subprocess.run(["bash", "-c", run, script, arguments.COMMAND, *words], capture_output=True, text=True, check=True)
    assert sorted(result.stdout.split()) == completed and not result.stderr


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        (["a"], ["audit"]),
        (["audit", "node"], ["node7", "node8"]),
        (["audit", "node7", "--explain", "rp-strict-as"], ["rp-strict-asymmetric"]),
        (["audit", "node7", "-o", "j"], ["json"]),
        (["audit", "node7", "--im"], ["--image"]),
        (["nothing", ""], []),
    ],
)
def test_kubectl_completes_the_words_of_its_plugin(
    words: list[str], completed: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["/usr/bin/kubectl_complete-datapath", *words])
    monkeypatch.setattr(cluster, "node_names", lambda _words: ["node7", "node8"])
    assert program.main() == 0
    assert capsys.readouterr().out.splitlines() == [*completed, ":4"]


def test_each_help_has_examples_that_the_parser_takes() -> None:
    of_host = arguments.parser(False, "1")
    for whole in (of_host, arguments.parser(True, "1")):
        of_commands = arguments.commands_of(whole)
        assert [*of_commands][:2] == ["audit", "trace"], "the order of the README"
        for command in (whole, *of_commands.values()):
            examples = [line for line in (command.epilog or "").splitlines() if line.startswith("  ")]
            assert examples
            for example in examples:
                words = re.match(r"(?:'[^']*'|[^'|<>)#])*", example.partition("datapath ")[2])
                parser = of_host if arguments.COMMAND in example else whole
                assert words and arguments.parsed(parser, shlex.split(words[0]))


def test_the_manual_page_has_each_command_and_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main([arguments.MANUAL]) == 0
    page = capsys.readouterr().out
    assert all(f"\n.SS {command}\n" in page for command in arguments.COMMANDS)
    assert all(option.replace("-", r"\-") in page for option in OPTIONS)
    rendered = subprocess.run(["man", "-l", "--warnings", "-"], input=page, capture_output=True, text=True, check=False)
    assert not rendered.stderr, "groff has no warning"


@pytest.mark.parametrize(
    ("when", "variables", "expected"),
    [
        ("auto", {}, False),
        ("auto", {"FORCE_COLOR": "1"}, True),
        ("auto", {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        ("always", {"NO_COLOR": "1"}, True),
        ("never", {"FORCE_COLOR": "1"}, False),
    ],
)
def test_colours_are_as_asked_for(when: str, variables: dict[str, str], expected: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert output.has_colours(when) == expected


def test_data_as_yaml_is_what_json_has() -> None:
    yaml = pytest.importorskip("yaml")
    result = audits.audit(audits.present(), audits.unclear(), profile=audits.PROFILE)
    value = {**result, "odd": [[], {}, [["a: b", None], [{"x": {"y": [1]}}]], "- no", "\n"], "empty": {}}
    assert yaml.safe_load(output.data(value, arguments.YAML)) == value == json.loads(output.data(value, arguments.JSON))


def test_a_check_is_explained_by_the_catalogue(capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["audit", "--list"]) == 0
    listed = capsys.readouterr().out
    assert all(check.id in listed for check in catalogue.CHECKS) and max(map(len, listed.splitlines())) <= audit.COLUMNS
    assert program.main(["audit", "--explain", "rp-strict-asymmetric"]) == 0
    words = " ".join(capsys.readouterr().out.split())
    assert program.main(["audit", "--list", "-o", "json"]) == 0
    assert [check["id"] for check in json.loads(capsys.readouterr().out)] == [check.id for check in audit._by_severity()]
    check = next(check for check in catalogue.CHECKS if check.id == "rp-strict-asymmetric")
    assert all(text in words for text in (check.trouble, check.evidence, check.remedy, check.source, *check.symptoms))


def test_a_machine_without_nft_is_told_of_the_snapshot(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(audit.build_backend, "NFT", ("no-such-nft", "nftables"))
    assert program.main(["audit", "live"]) == arguments.ERROR
    (line,) = capsys.readouterr().err.splitlines()
    assert "no-such-nft (package nftables)" in line and "kubenode-datapath snapshot > node.json" in line
    assert "_on_controller" not in line


def test_each_shell_has_each_option_and_command() -> None:
    parser = arguments.parser(False, "1")
    for shell, sign in (("bash", "--"), ("zsh", "--"), ("fish", "-l ")):
        script = completion.script(shell, parser, arguments.COMMAND)
        assert all(f"{sign}{option[2:]}" in script for option in OPTIONS if option.startswith("--"))
        assert all(f"{command}" in script for command in arguments.COMMANDS)


SPECS: list[tuple[Any, dict[str, Any]]] = [
    (rp_filter, {"interfaces": ["eth0"], "mode": "loose"}),
    (rp_filter, {"interfaces": ["eth0"], "raise_all": "yes", "checkpoint": "30"}),
    (ebtables_cleanup, {"addresses": ["10.0.0.1", 5], "links": True}),
    (link_addresses, {"addresses": [{"dev": "eth0", "address": "10.0.0.1/32"}]}),
    (nftables_probe_snat, {}),
    (policy_routes, {"enis": {"layout": "terway", "interface_marks": [{"name": "eth1", "mark": 16}]}, "permanent": "no"}),
    (policy_routes, {"rules": [{"priority": "7", "table": 7}], "routes": []}),
]
WRONG: list[tuple[Any, dict[str, Any]]] = [
    (rp_filter, {"mode": "lose"}),
    (rp_filter, {"modus": "loose"}),
    (link_addresses, {"addresses": [{"dev": "eth0"}]}),
    (policy_routes, {"enis": {"layout": "terway", "manage": ["filters"]}}),
    (policy_routes, {"rules": [{"priority": "low"}]}),
]


@pytest.mark.parametrize(("part", "options"), SPECS)
def test_options_in_a_twin_are_read_as_ansible_reads_them(part: Any, options: dict[str, Any]) -> None:
    arg_spec = pytest.importorskip("ansible.module_utils.common.arg_spec")
    result = arg_spec.ArgumentSpecValidator(option.spec(part.OPTIONS)).validate(options)
    assert not result.error_messages and option.of_module(part.OPTIONS, options) == result.validated_parameters


@pytest.mark.parametrize(("part", "options"), WRONG)
def test_options_that_ansible_refuses_are_refused(part: Any, options: dict[str, Any]) -> None:
    arg_spec = pytest.importorskip("ansible.module_utils.common.arg_spec")
    assert arg_spec.ArgumentSpecValidator(option.spec(part.OPTIONS)).validate(options).error_messages
    with pytest.raises(Invalid):
        option.of_module(part.OPTIONS, options)


@pytest.mark.parametrize(
    ("nodes", "status"),
    [
        ({"a": audits.audit(), "b": audits.audit(audits.present())}, 1),
        ({"a": audits.audit(), "b": audits.audit(audits.unclear())}, 2),
        ({"a": audits.audit(), "b": {"msg": "no archive"}}, 2),
        ({"a": audits.audit(), "b": audits.audit()}, 0),
        ({"a": {"msg": "no archive"}}, 3),
    ],
)
def test_the_exit_status_of_many_nodes_is_the_worst_of_them(nodes: dict[str, Any], status: int) -> None:
    assert audit._status_together(fleet(nodes), None) == status


@pytest.mark.parametrize(
    ("findings", "severity", "status"),
    [
        ([], "error", 0),
        ([audits.present("risk")], "error", 0),
        ([audits.present("risk")], "risk", 1),
        ([audits.present(), audits.unclear()], "error", 1),
        ([audits.unclear()], "error", 2),
        ([audits.unclear(severity="risk")], "error", 0),
    ],
)
def test_a_monitor_gets_the_status_of_one_severity(findings: list[dict[str, Any]], severity: str, status: int) -> None:
    assert audit.status(read(audits.audit(*findings)), severity) == status


def test_node_problem_detector_starts_the_command_as_it_is() -> None:
    """The custom plugin of node-problem-detector: docs/custom_plugin_monitor.md there."""
    folder = Path(__file__).resolve().parents[3] / "deploy/node-problem-detector"
    monitor = json.loads((folder / "kubenode-datapath.json").read_text())
    assert monitor["plugin"] == "custom" and monitor["pluginConfig"]["max_output_length"] == MOST_OF_LINE
    parser = arguments.parser(False, "0.1.0")
    severities = {rule["type"]: parser.parse_args(rule["args"]).line for rule in monitor["rules"]}
    assert severities == {"permanent": "error", "temporary": "risk"}
    conditions = {condition["type"] for condition in monitor["conditions"]}
    assert [rule["condition"] for rule in monitor["rules"] if rule["type"] == "permanent"] == [*conditions]


NO_PYTHON = "*exec*) cat > /dev/null; echo \"env: 'python3': No such file or directory\" >&2; exit 127"
KUBECTL = """#!/bin/sh
case "$*" in
*"get pods"*) echo '{"items": [{"metadata": {"namespace": "kubenode-datapath", "name": "agent-x"}}]}';;
*"cat /run/kubenode-agent/changes") test -e changes || exit 1; cat changes;;
*exec*) cat > program; echo '{"format": 1, "unread": []}';;
esac
"""


@pytest.mark.parametrize(("file", "changes"), [('[{"kind": "route"}]', {"changes": [{"kind": "route"}]}), ("[{", {}), (None, {})])
def test_a_snapshot_by_the_agent_has_what_it_saw_change(
    file: str | None, changes: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kubectl").write_text(KUBECTL)
    (tmp_path / "kubectl").chmod(0o755)
    if file is not None:
        (tmp_path / "changes").write_text(file)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cluster.archive, "running", lambda: b"program")
    assert cluster.Kubectl([]).snapshot("node7") == {"format": 1, "unread": [], **changes}


NO_NODE = """#!/bin/sh
case "$*" in
*"get pods"*) echo '{"items": []}';;
*"get nodes"*) echo node/aks-pool-1; echo node/aks-pool-2; echo node/other;;
*) echo 'Error from server (NotFound): nodes "aks-pol-1" not found' >&2; exit 1;;
esac
"""


def test_a_node_that_a_cluster_does_not_have_is_answered_with_the_nearest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kubectl").write_text(NO_NODE)
    (tmp_path / "kubectl").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with pytest.raises(Failure, match="^the cluster has no node aks-pol-1, but such as aks-pool-1, aks-pool-2, other$"):
        cluster.Kubectl([]).snapshot("aks-pol-1")


def test_a_node_without_python_is_named_with_the_way_around_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kubectl").write_text(KUBECTL.replace('*exec*) cat > program; echo \'{"format": 1, "unread": []}\'', NO_PYTHON))
    (tmp_path / "kubectl").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(cluster.archive, "running", lambda: b"program")
    with pytest.raises(
        Failure, match=r"^node7 cannot run python3 \(env: .python3.*\)\. .*kubenode-datapath commands \| kubectl debug"
    ):
        cluster.Kubectl([]).snapshot("node7")
