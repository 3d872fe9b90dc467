# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The agent of the DaemonSet: its input, how it reports a run, and when it runs again. Its pods are in tests/cluster."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, strategies

pytest.importorskip("ansible")
pytest.importorskip("prometheus_client")
yaml = pytest.importorskip("yaml")
sys.path.append(str(Path(__file__).resolve().parents[3] / "deploy/image"))

from kubenode_agent import agent, loop, node, playbook, settings, variables  # noqa: E402
from kubenode_agent.metrics import ProfileMetrics  # noqa: E402
from kubenode_agent.playbook import Outcome  # noqa: E402
from kubenode_agent.settings import Refused, Settings  # noqa: E402

from ansible_collections.kubenode.datapath.plugins.module_utils._core.option import Option  # noqa: E402
from ansible_collections.kubenode.datapath.plugins.plugin_utils import _profiles  # noqa: E402

PROFILE = "aks_dual_stack"
KUSTOMIZE = Path(__file__).resolve().parents[3] / "deploy/kustomize"
OVERLAYS = KUSTOMIZE / "overlays"
DAEMONSET = KUSTOMIZE / "base/daemonset.yaml"
PYTHONPATH = os.pathsep.join([str(Path(agent.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])  # as in the image
GIVEN = {"KUBENODE_PROFILE": PROFILE, "KUBENODE_NODE": "node1"}


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"KUBENODE_PROFILE": "own"}, "KUBENODE_PROFILE must be one of aks_dual_stack, "),
        ({"KUBENODE_NODE": ""}, "KUBENODE_NODE must be "),
        ({"KUBENODE_STATE": "gone"}, "KUBENODE_STATE must be present or absent; 'gone' was given"),
        ({"KUBENODE_INTERVAL": "0"}, "KUBENODE_INTERVAL must be a number from 0.1 to 1440; '0' was given"),
        ({"KUBENODE_INTERVAL": "nan"}, "KUBENODE_INTERVAL must be "),
        ({"KUBENODE_METRICS_PORT": "ten"}, "KUBENODE_METRICS_PORT must be "),
        ({"KUBENODE_CHECKPOINT": "4"}, "KUBENODE_CHECKPOINT must be 0 or a number from 5 to 600; '4' was given"),
        ({"KUBENODE_CHECKPOINT": "601"}, "KUBENODE_CHECKPOINT must be 0 or "),
    ],
)
def test_wrong_settings_are_named(more: dict[str, str], said: str) -> None:
    with pytest.raises(Refused) as refused:
        settings.from_environment({**GIVEN, **more})
    assert str(refused.value).startswith(said)


def test_each_profile_has_the_state_that_undoes_it() -> None:
    states = {name: settings.from_environment({**GIVEN, "KUBENODE_PROFILE": name}).desired_state for name in settings.PROFILES}
    assert {name for name, state in states.items() if state != "absent"} == {"cilium_migration"}
    assert states["cilium_migration"] == "restored"


def test_variables_are_read_as_data() -> None:
    text = "aks_dual_stack_probes: [{source: 'fe80::1', translated: 'fd00::1'}]\naks_dual_stack_priority: -290\n"
    probes = [{"source": "fe80::1", "translated": "fd00::1"}]
    assert variables.parse(text, PROFILE) == {"aks_dual_stack_probes": probes, "aks_dual_stack_priority": -290}
    assert variables.parse("# nothing\n", PROFILE) == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[", "must be YAML"),
        ("- a", "must be a dictionary of variables; list was given"),
        ("ansible_connection: local", "variables that begin with aks_dual_stack_; 'ansible_connection' was given"),
        ("eni_policy_routing_state: absent", "variables that begin with aks_dual_stack_"),
        ("1: 2", "variables that begin with aks_dual_stack_"),
        ("aks_dual_stack_table: \"{{ lookup('pipe', 'id') }}\"", "aks_dual_stack_table must be a value, not a template"),
        ("aks_dual_stack_before: [{a: ['{% if 1 %}']}]", "aks_dual_stack_before must be a value, not a template"),
        ("aks_dual_stack_probes: [{'{{ a }}': 1}]", "not a template"),
        ("aks_dual_stack_table: !unsafe x", "must be YAML"),
        ("aks_dual_stack_table: !!python/object/apply:os.system [id]", "must be YAML"),
        ("aks_dual_stack_table: 2026-11-24", "must have only texts, numbers, lists and dictionaries"),
        (f"aks_dual_stack_table: {'[' * 30}{']' * 30}", "nested at most 20 deep"),
        ("[" * 100_000, "must be YAML"),
        (f"aks_dual_stack_table: {'x' * (1 << 20)}", "at most 1048576 characters"),
        ("aks_dual_stack_table: \"#jinja2:variable_start_string:'[%'\\n[% 1 %]\"", "not a template"),
        ("aks_dual_stack_a: &a [1]\naks_dual_stack_b: [*a, *a]", "must be YAML: an alias is not allowed"),
        ("aks_dual_stack_a: &a {b: 1}\naks_dual_stack_b:\n  <<: [*a, *a]", "must be YAML: an alias is not allowed"),
        (f"aks_dual_stack_priority: 0x{'f' * 9000}", "a number of more than 64 bits was given"),
        ("aks_dual_stack_priority: .nan", "must have only texts, numbers, lists and dictionaries; nan was given"),
        ('aks_dual_stack_table: "\\uD800"', "aks_dual_stack_table must be text; '\\ud800' was given"),
        ("aks_dual_stack_table: \0", "must be YAML"),
        ("<html>503 Service Unavailable</html>", "must be a dictionary of variables; str was given"),
    ],
)
def test_what_is_no_data_is_refused(text: str, said: str) -> None:
    with pytest.raises(Refused) as refused:
        variables.parse(text, PROFILE)
    assert said in str(refused.value)


def accepted(text: str, profile: str = PROFILE) -> dict[str, Any]:
    return variables.accepted(variables.parse(text, profile), profile)


def as_yaml(given: Mapping[str, Any], profile: str) -> str:
    return str(yaml.safe_dump({f"{profile}_{name}": value for name, value in given.items()}))


# Each of these ran as root on the node, or wrote a file of which another program executes or loads the content.
ROOT: list[tuple[str, dict[str, Any], str]] = [
    (
        "cilium_migration",
        {"mode": "runtime", "state": "restored", "verify_command": ["sh", "-c", "id > /root/X"]},
        "verify_command is not accepted from a ConfigMap, because it is a command; ['sh', '-c', 'id > /root/X'] was given.",
    ),
    ("cilium_migration", {"kubectl": ["sh", "-c", "id"]}, "kubectl is not accepted from a ConfigMap, because it is a command"),
    ("cilium_migration", {"checkpoint": 20, "checkpoint_command": "id"}, "checkpoint_command is not accepted from a ConfigMap"),
    ("cilium_migration", {"bridge_checkpoint_command": "id"}, "bridge_checkpoint_command is not accepted from a ConfigMap"),
    ("cilium_migration", {"drain_options": ["--kubeconfig=/x"]}, "drain_options is not accepted from a ConfigMap"),
    ("cilium_migration", {"node_name": "--kubeconfig=/x"}, "node_name is not accepted from a ConfigMap"),
    ("cilium_migration", {"verify_from": "localhost"}, "because it is a host of an inventory; 'localhost' was given"),
    ("cilium_migration", {"cordon": True}, "because the agent has no kubectl; True was given"),
    ("cilium_migration", {"backup": "/etc/cron.d"}, "because it is a path; '/etc/cron.d' was given"),
    ("eni_policy_routing", {"checkpoint": 20, "checkpoint_command": "id > F"}, "checkpoint_command is not accepted"),
    ("aks_dual_stack", {"path": "/etc/cron.d/x"}, "Accepted are aks_dual_stack_ followed by agentbaker, audit, backend, before"),
    (
        "aks_dual_stack",
        {"path": "/etc/ld.so.preload"},
        "aks_dual_stack_path is not accepted from a ConfigMap, because it is a path",
    ),
]


@pytest.mark.parametrize(("profile", "given", "said"), ROOT)
def test_a_configmap_sets_no_command_and_no_path(profile: str, given: dict[str, Any], said: str) -> None:
    with pytest.raises(Refused) as refused:
        accepted(as_yaml(given, profile), profile)
    assert said in str(refused.value)


def test_a_variable_that_is_not_marked_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    options = _profiles.PROFILES[PROFILE].OPTIONS
    monkeypatch.setitem(cast("dict[str, Option]", options), "table", Option("str"))
    with pytest.raises(
        Refused, match="aks_dual_stack_table is not accepted from a ConfigMap, because it is not marked as permitted"
    ):
        accepted("aks_dual_stack_table: a")


NESTED = '{"a":' * 900 + "1" + "}" * 900


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("aks_dual_stack_tabel: a", "aks_dual_stack_tabel is not a variable of the role aks_dual_stack. Did you mean"),
        # The result of a task, which a role may have under any name; no ConfigMap has one.
        ("aks_dual_stack_own: {changed: false, failed: false}", "aks_dual_stack_own is not a variable of the role"),
        ("aks_dual_stack_ipv6: perhaps", "aks_dual_stack_ipv6 must be one of imds, address, always, never; 'perhaps' was given"),
        ("aks_dual_stack_nftables_lock_timeout: -1", "aks_dual_stack_nftables_lock_timeout must be a number from 0 to "),
        ("aks_dual_stack_before: ['a b']", "aks_dual_stack_before[0] must be the name of a systemd unit"),
        ("aks_dual_stack_probes: [{source: 'fe80::1', include: x}]", "aks_dual_stack_probes[0].include must be left out"),
        ("cilium_migration_verify: [{address: 'a b', port: 1}]", "verify[0].address must be an IP address or the name of a host"),
        ("cilium_migration_addresses: '[\"\\u007b\\u007b 1 }}\"]'", "cilium_migration_addresses[0] must be an address"),
        ("eni_policy_routing_layout: cilium\neni_policy_routing_enis: '[{\"name\": \"eth0\", \"primary\": true, \"ipv4\":"
         " [\"10.0.0.1\"], \"own\": \"\\u007b\\u007b 1 }}\"}]'", "eni_policy_routing_enis[0].own must be left out"),
        (f"cilium_migration_addresses: '{'[' * 900}{']' * 900}'", "cilium_migration_addresses must be a list of words"),
        (f"eni_policy_routing_state: absent\neni_policy_routing_priorities: '{NESTED}'", "nested at most 20 deep"),
        (f"cilium_migration_addresses: [{', '.join(['10.0.0.1'] * 1001)}]", "must have at most 1000 entries; 1001 were given"),
    ],
)  # fmt: skip
def test_a_configmap_sets_only_values_that_the_role_takes(text: str, said: str) -> None:
    with pytest.raises(Refused) as refused:
        accepted(text, next(profile for profile in settings.PROFILES if text.startswith(profile)))
    assert said in str(refused.value)


@pytest.mark.parametrize("path", sorted(OVERLAYS.glob("*/variables.yaml")), ids=lambda path: path.parent.name)
def test_the_variables_of_the_overlays_are_accepted(path: Path) -> None:
    profile = path.parent.name.replace("-", "_")
    assert accepted(path.read_text(), profile) and profile in settings.PROFILES


def test_accepted_values_have_their_types() -> None:
    text = "aks_dual_stack_priority: '-290'\naks_dual_stack_rehearse: 'yes'\naks_dual_stack_before: a.service,b.target\n"
    values = {"priority": -290, "rehearse": True, "before": ["a.service", "b.target"]}
    assert accepted(text) == {f"{PROFILE}_{name}": value for name, value in values.items()}
    assert accepted("") == {}


ROLES = Path(__file__).resolve().parents[3] / "roles"
MARKS = ("{{", "{%", "{#", "#jinja2")
# A part of the name of each variable that is a command, an argument of one, a path, or a host; `verify` only connects to a port.
POWERFUL = ("command", "kubectl", "drain", "cordon", "node_name", "verify_from", "backup", "path")
HOSTILE = (
    "{{ lookup('pipe', 'id') }}", "{% x %}", '"\\u007b\\u007b 1 }}"', "\\u007b%", "#jinja2: variable_start_string: '[['",
    "!!python/name:os.system", "!unsafe x", "/etc/cron.d/x", "../../etc/x", "[sh, -c, id]", "$(id)", "; reboot", "\x1b[31m",
    "\x07", "\u202e", "\x00", "&a", "*a", "<<:", "|", ">", "- ", "? ", "99999999999999999999", "-1", ".nan", ".inf", "~", "yes",
    "[]", "{}", "[[[[", "'", "@all", "-oProxyCommand=id", "--kubeconfig=/x",
    "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", "\t", "0x80/0x80", "eth0", "10.0.0.0/8", "fe80::1",
    "present", "absent", "restored", "runtime", "a.service",
)  # fmt: skip
EVERY = [(role, name) for role in _profiles.PROFILES for name in _profiles.options_of(role)]


@strategies.composite
def configmaps(draw: strategies.DrawFn) -> tuple[str, str]:
    """A role, and a text that has variables of its, with strange words in it."""
    role = draw(strategies.sampled_from(sorted(_profiles.PROFILES)))
    defaults = yaml.safe_load((ROLES / role / "defaults/main.yml").read_text())
    names = [f"{role}_{name}" for one, name in EVERY if one == role]
    chosen = draw(strategies.lists(strategies.sampled_from(names), max_size=4, unique=True))
    given = {name: defaults.get(name, draw(strategies.sampled_from(HOSTILE) | strategies.integers())) for name in chosen}
    for _role, values, _said in draw(strategies.lists(strategies.sampled_from(ROOT), max_size=1)):
        given.update({f"{role}_{name}": value for name, value in values.items()})
    text = yaml.safe_dump(given, default_flow_style=draw(strategies.booleans()))
    for _number in range(draw(strategies.integers(0, 3))):
        place = draw(strategies.integers(0, len(text)))
        length = draw(strategies.sampled_from((0, 0, 1, 5)))
        text = text[:place] + draw(strategies.sampled_from(HOSTILE) | strategies.text(max_size=4)) + text[place + length :]
    return role, text


def texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for one in [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from texts(one)


def forbidden_values(role: str, values: dict[str, Any]) -> list[str]:
    """What a ConfigMap may not hand to a role. It is found by what it is, and not by the marks of the variables."""
    found = [name for name in values if not name.startswith(f"{role}_") or any(word in name for word in POWERFUL)]
    return found + [
        f"{name}: {text}" for name, value in values.items() for text in texts(value)
        if any(mark in text for mark in MARKS) or text.startswith("/") or ".." in text.split("/") or len(text) > 1000
    ]  # fmt: skip


@given(configmaps())
def test_what_passes_of_a_configmap_is_no_command_no_path_and_no_template(configmap: tuple[str, str]) -> None:
    role, text = configmap
    try:
        values = accepted(text, role)
    except Refused as refused:
        assert str(refused)
        return
    assert not forbidden_values(role, values)
    assert json.loads(json.dumps(values)) == values


@pytest.mark.parametrize(("role", "given", "_said"), ROOT)
def test_a_command_a_path_and_a_template_are_found_in_values(role: str, given: dict[str, Any], _said: str) -> None:
    """The law of the test above can fail."""
    assert forbidden_values(role, {f"{role}_{name}": value for name, value in given.items()})
    assert forbidden_values(role, {f"{role}_table": {"a": ["{{ 1 }}"]}}) and not forbidden_values(
        role, {f"{role}_table": "10.0.0.0/8"}
    )


JSON = strategies.recursive(
    strategies.none() | strategies.booleans() | strategies.integers() | strategies.floats() | strategies.text(),
    lambda one: strategies.lists(one) | strategies.dictionaries(strategies.text(), one),
)
PERMITTED = [(role, name) for role in _profiles.PROFILES for name, one in _profiles.options_of(role).items() if not one.refused]


@given(strategies.sampled_from(PERMITTED), JSON, strategies.booleans())
def test_whatever_a_variable_is_set_to_the_agent_accepts_or_refuses_it(
    variable: tuple[str, str], value: Any, is_text: bool
) -> None:
    role, name = variable
    with contextlib.suppress(Refused):
        values = variables.accepted({f"{role}_{name}": json.dumps(value) if is_text else value}, role)
        assert not forbidden_values(role, values)


def test_a_configmap_without_its_key_is_not_the_defaults_and_one_that_is_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="The ConfigMap must have the key variables.yaml"):
        variables.text_in(tmp_path)
    path = tmp_path / variables.FILE
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(Refused, match="cannot be read"):
        variables.text_in(tmp_path)
    path.write_text("x" * (variables.LARGEST + 9))
    assert len(variables.text_in(tmp_path)) == variables.LARGEST + 1
    path.write_text("")
    assert variables.parse(variables.text_in(tmp_path), PROFILE) == {}


EVIL = [
    "{{ lookup('pipe', 'touch EVIL') }}",
    "#jinja2:variable_start_string:'[%', variable_end_string:'%]'\n[% lookup('pipe', 'touch EVIL') %]",
]
PLAY = """
- hosts: localhost
  gather_facts: false
  tasks:
    - ansible.builtin.copy: {content: "{{ one | to_json }}", dest: DEST, mode: "0600"}
    - ansible.builtin.debug: {msg: "x {{ one.list[0] }} {{ one.list[1] }}"}
"""


def test_ansible_evaluates_nothing_of_what_a_run_is_given(tmp_path: Path) -> None:
    """Not even templates that variables.parse() would accept."""
    one = {"list": [text.replace("EVIL", str(tmp_path / "evil")) for text in EVIL], "number": 1, "yes": True, "none": None}
    given = playbook._written(tmp_path / "variables.yaml", playbook._data({"one": one}))
    assert given.stat().st_mode & 0o777 == 0o600
    (tmp_path / "play.yml").write_text(PLAY.replace("DEST", str(tmp_path / "copy")))
    program = Path(sys.executable).with_name("ansible-playbook")
    command = [
        str(program),
        "-i",
        "localhost,",
        "-c",
        "local",
        "-e",
        f"@{given}",
        "-e",
        f"ansible_python_interpreter={sys.executable}",
    ]
    subprocess.run(
        [*command, str(tmp_path / "play.yml")], check=True, capture_output=True, env={**os.environ, "HOME": str(tmp_path)}
    )
    assert yaml.safe_load((tmp_path / "copy").read_text()) == one
    assert not (tmp_path / "evil").exists()


HANGS = """#!/bin/sh
echo begun
setsid sleep 300 &
echo $! > CHILD
wait
"""


def test_a_run_that_hangs_is_killed_with_all_that_it_has_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker of Ansible has a session of its own."""
    program, child = tmp_path / "ansible-playbook", tmp_path / "child"
    program.write_text(HANGS.replace("CHILD", str(child)))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(playbook, "LIMIT", 1.0)
    outcome = playbook.run(PROFILE, {})
    assert outcome.sentence == "ansible-playbook ended with -9: the run did not end within 1 s and was killed"
    deadline = time.monotonic() + 5
    while Path("/proc", child.read_text().strip()).exists():  # until process 1 has waited for it
        stat = Path("/proc", child.read_text().strip(), "stat")
        if stat.read_text().rpartition(")")[2].split()[0] == "Z":
            break
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_what_a_run_prints_need_not_be_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "ansible-playbook"
    program.write_text("#!/bin/sh\nprintf 'no \\377'\nexit 3\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert playbook.run(PROFILE, {}).sentence == "ansible-playbook ended with 3: no \ufffd"


def report(state: str, trouble: str = "", action: str = "", **result: Any) -> dict[str, Any]:
    changes = [{"task": "Apply", "action": "kubenode.datapath.profile", "result": result}] if result else []
    return {"nodes": {playbook.NODE: {"state": state, "trouble": trouble, "action": action, "changes": changes}}}


@pytest.mark.parametrize(
    ("found", "status", "outcome"),
    [
        (report("ok"), 0, Outcome("ok")),
        (
            report("changed", rp_filter={"changed": True}, policy_routes={"changed": False}),
            0,
            Outcome("changed", modules=("rp_filter",)),
        ),
        (
            report("changed", rp_filter={"changed": True}, audit=["After: rp-strict-asymmetric eth0 is gone."]),
            0,
            Outcome("changed", modules=("rp_filter",), audit=("After: rp-strict-asymmetric eth0 is gone.",)),
        ),
        (
            report("failed", "Apply: profile: nft says no", "kubenode.datapath.profile"),
            2,
            Outcome("failed", "Apply: profile: nft says no", ("profile",)),
        ),
        (report("running"), -9, Outcome("failed", "ansible-playbook ended with -9: no such playbook")),
        (report("no task ran"), 0, Outcome("failed", "ansible-playbook ended with 0: no such playbook")),
        (None, 1, Outcome("failed", "ansible-playbook ended with 1: no such playbook")),
        (report("ok"), 250, Outcome("failed", "ansible-playbook ended with 250: no such playbook")),
        ({"nodes": {}}, 0, Outcome("failed", "ansible-playbook ended with 0: no such playbook")),
    ],
)
def test_a_run_is_what_its_report_and_its_status_say(found: Any, status: int, outcome: Outcome) -> None:
    assert playbook.outcome_of(found, status, "no such\n playbook\n") == outcome


class Recorder:
    """Stands for the node's object and for the metrics."""

    def __init__(self, takes: bool = True) -> None:
        self.takes = takes
        self.told: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        def tell(*arguments: Any) -> bool:
            self.told.append((name, *arguments))
            return self.takes

        return tell


class Stage:
    """An agent whose runs have given results, and that ends after the last run."""

    def __init__(self, folder: Path, *outcomes: Outcome, takes: bool = True, silence: Sequence[str] = (), **options: Any) -> None:
        """silence: why the API does not answer before each run; it answers before all others."""
        self.api, self.metrics = Recorder(takes), Recorder()
        self.runs: list[tuple[str, dict[str, Any]]] = []
        self._outcomes, self._silence = list(outcomes), list(silence)
        self._ended = threading.Event()
        told = Settings(**{"profile": PROFILE, "node": "node1", "folder": folder, "state": folder, **options})
        parts = (cast(Any, self.api), cast(Any, self.metrics), self._run, self._reach)
        self.agent = agent.Agent(told, *parts, "1.0", self._ended)

    def _reach(self) -> str:
        return self._silence.pop(0) if self._silence else ""

    def _run(self, profile: str, given: Mapping[str, Any]) -> Outcome:
        self.runs.append((profile, dict(given)))
        outcome = self._outcomes.pop(0)
        if not self._outcomes:
            self._ended.set()
        return outcome


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(loop, "TICK", 0.01)
    (tmp_path / variables.FILE).write_text("aks_dual_stack_ipv6: address\n")
    return tmp_path


def test_a_converged_node_is_ready_labelled_and_free_of_its_taint(folder: Path) -> None:
    stage = Stage(folder, Outcome("changed", modules=("nftables_probe_snat",)))
    stage.agent.work()
    assert stage.runs == [(PROFILE, {"aks_dual_stack_ipv6": "address"})]
    assert (folder / loop.READY).exists() and not (folder / loop.TROUBLE).exists()
    assert [one for one in stage.api.told if one != ("flush",)] == [
        ("event", "Normal", "Applied", "aks_dual_stack 1.0: changed nftables_probe_snat"),
        ("label", PROFILE, "1.0"),
        ("remove_taint", "kubenode.datapath/not-ready"),
    ]


CHECKPOINTS = {
    "aks_dual_stack": {},
    "eni_policy_routing": {"eni_policy_routing_checkpoint": 60},
    "cilium_migration": {"cilium_migration_checkpoint": 60, "cilium_migration_bridge_checkpoint": 60},
    "symmetric_routing": {"symmetric_routing_checkpoint": 60},
}


@pytest.mark.parametrize("profile", _profiles.PROFILES)
def test_each_change_of_a_profile_that_can_cut_the_node_off_has_a_checkpoint_by_default(folder: Path, profile: str) -> None:
    text = (OVERLAYS / profile.replace("_", "-") / variables.FILE).read_text()
    (folder / variables.FILE).write_text(text)
    stage = Stage(folder, Outcome("ok"), profile=profile)
    stage.agent.work()
    assert stage.runs == [(profile, accepted(text, profile) | CHECKPOINTS[profile])]
    for bridge in ({}, {"bridge": True, "bridge_name": "azure0", "bridge_interface": "eth0"}):
        given = {name.removeprefix(f"{profile}_"): value for name, value in CHECKPOINTS[profile].items()}
        values = {name: option.default for name, option in _profiles.options_of(profile).items()} | given | bridge
        assert _profiles.PROFILES[profile].checkpoint_of(values) == (60 if given else 0, "")


SECONDS = "symmetric_routing_checkpoint"


def chosen(seconds: object, default: int = 60, is_undone: bool = False) -> Any:
    values = variables.accepted({SECONDS: seconds}, "symmetric_routing")
    return variables.with_checkpoints(values, "symmetric_routing", default, is_undone)[SECONDS]


def test_a_configmap_chooses_the_seconds_of_a_checkpoint_and_only_the_daemonset_switches_it_off() -> None:
    assert (chosen("30"), chosen(600), chosen(None)) == (30, 600, 60)
    for seconds in (0, 601, 3600):
        with pytest.raises(Refused, match=f"{SECONDS} must be from 5 to 600 seconds in a ConfigMap; {seconds} was given"):
            chosen(seconds)
        assert chosen(seconds, is_undone=True) == 60, "nothing refuses the way back"
    assert (chosen(0, default=0), chosen(20, default=0)) == (0, 20)


SYMMETRIC: dict[str, Any] = {"profile": "symmetric_routing", "interval": 0.0001}
CHANGED = Outcome("changed", modules=("policy_routes",))


def test_variables_that_converged_the_node_heal_it_while_the_api_is_down_and_that_is_a_warning(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / variables.FILE).write_text("")
    stage = Stage(folder, CHANGED, Outcome("ok"), CHANGED, CHANGED, silence=["", "timed out", "timed out"], **SYMMETRIC)
    stage.agent.work()
    assert [values[SECONDS] for _profile, values in stage.runs] == [60, 0, 0, 60]
    (warned,) = (one for one in stage.api.told if one[:3] == ("event", "Warning", "Warned"))
    assert "changed without a checkpoint, because the API did not answer before" in warned[3] and "timed out" in warned[3]
    assert ("warned", 1) in stage.metrics.told and any("timed out" in message for message in caplog.messages)


def test_new_variables_are_never_applied_without_a_checkpoint(folder: Path) -> None:
    (folder / variables.FILE).write_text("")
    stage = Stage(folder, Outcome("failed", "rolled back."), Outcome("ok"), silence=["timed out"] * 2, **SYMMETRIC)
    stage.agent.work()
    assert [values[SECONDS] for _profile, values in stage.runs] == [60, 60]
    (failed,) = (one[3] for one in stage.api.told if one[:3] == ("event", "Warning", "Failed"))
    assert failed.endswith("rolled back. Before the run, the API did not answer either: timed out")


def test_warnings_reach_log_event_and_metric_printable_and_bounded(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    warnings = ("\x1b]0;\x07 first", "x" * 5000, *map(str, range(50)))
    stage = Stage(folder, Outcome("ok", warnings=warnings))
    stage.agent.work()
    messages = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert messages[0] == "\\x1b]0;\\x07 first" and len(messages[1]) == 1000
    assert len(messages) == 21 and messages[-1] == "32 further warnings are not shown"
    (event,) = (one for one in stage.api.told if one[:3] == ("event", "Warning", "Warned"))
    assert event[3] == f"{PROFILE} 1.0: {' '.join(messages)}" and event[3].isprintable()
    assert ("warned", 52) in stage.metrics.told


PRINTED = """[WARNING]: eth1 has no gateway.
Origin: /x.yml
[WARNING]: eth1 has no gateway.
Origin: /x.yml

[ERROR]: Task failed: no
[WARNING]: second

other words
"""


def test_warnings_are_read_from_what_ansible_prints() -> None:
    assert playbook.warnings_in(PRINTED) == ("eth1 has no gateway. Origin: /x.yml", "second")
    assert playbook.warnings_in("no [WARNING]: here\n") == ()


def test_what_ansible_warns_of_is_a_warning_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "ansible-playbook"
    program.write_text("#!/bin/sh\necho '[WARNING]: wet' >&2\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert playbook.run(PROFILE, {}).warnings == ("wet",)


def lives(folder: Path) -> bool:
    """Return the verdict of the DaemonSet's liveness probe on the agent of a folder."""
    (container,) = yaml.safe_load(DAEMONSET.read_text())["spec"]["template"]["spec"]["containers"]
    command = [word.replace("/run/kubenode-agent", str(folder)) for word in container["livenessProbe"]["exec"]["command"]]
    return subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode == 0


def grow_old(folder: Path) -> None:
    """Let the agent have shown a sign of life longer ago than any run takes."""
    past = time.time() - playbook.LIMIT - 600
    os.utime(folder / loop.ALIVE, (past, past))


def test_an_agent_is_alive_while_it_runs_and_while_it_waits_and_not_if_it_hangs(folder: Path) -> None:
    verdicts = [lives(folder)]

    class Worker(loop.Loop):
        def _turn(self) -> None:
            verdicts.append(lives(folder))
            grow_old(folder)
            verdicts.append(lives(folder))

        def _is_due(self) -> bool:
            verdicts.append(lives(folder))
            ended.set()
            return True

    ended = threading.Event()
    Worker(Settings(PROFILE, "node1", state=folder), cast(Any, Recorder()), cast(Any, Recorder()), "1.0", ended).work()
    assert verdicts == [False, True, False, True]


def test_what_audits_say_of_a_change_is_in_the_log(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    Stage(folder, Outcome("changed", modules=("a",), audit=("After: x \x1b[2J is gone.",))).agent.work()
    assert "After: x \\x1b[2J is gone." in caplog.messages


def test_a_failure_is_told_and_the_node_keeps_its_taint(folder: Path) -> None:
    stage = Stage(folder, Outcome("failed", "profile: nft says no", ("profile",)))
    stage.agent.work()
    assert (folder / loop.TROUBLE).read_text() == "aks_dual_stack: profile: nft says no\n" and not (folder / loop.READY).exists()
    assert [one for one in stage.api.told if one != ("flush",)] == [
        ("event", "Warning", "Failed", "aks_dual_stack 1.0: profile: nft says no")
    ]


def test_what_a_program_printed_cannot_change_the_terminal_of_who_reads_an_event(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stage = Stage(folder, Outcome("failed", "nft: Error \x1b]0;\x07 \u202egone"))
    stage.agent.work()
    [event] = [one[-1] for one in stage.api.told if one[0] == "event"]
    for text in (event, caplog.messages[-1], (folder / loop.TROUBLE).read_text().rstrip("\n")):
        assert text.isprintable() and text.endswith("nft: Error \\x1b]0;\\x07 \\u202egone")


def test_refused_variables_run_nothing_until_they_change(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / variables.FILE).write_text("own: 1\n")
    stage = Stage(folder, Outcome("ok"))
    looks: list[int] = []
    real = variables.text_in

    def text_in(where: Path) -> str:
        looks.append(1)
        if len(looks) == 4:
            assert "aks_dual_stack: variables.yaml of the ConfigMap must have only" in (folder / loop.TROUBLE).read_text()
            (folder / variables.FILE).write_text("aks_dual_stack_ipv6: never\n")
        return real(where)

    monkeypatch.setattr(variables, "text_in", text_in)
    stage.agent.work()
    assert stage.runs == [(PROFILE, {"aks_dual_stack_ipv6": "never"})] and ("refused",) in stage.metrics.told


def test_what_another_program_undid_is_told_as_a_correction(folder: Path) -> None:
    stage = Stage(folder, Outcome("changed", modules=("a",)), Outcome("changed", modules=("a",)), interval=0.0001)
    stage.agent.work()
    assert [one[2] for one in stage.api.told if one[0] == "event"] == ["Applied", "Corrected"]
    assert [one[2] for one in stage.metrics.told if one[0] == "converged"] == [True, False]


def test_an_api_that_does_not_answer_is_told_again_and_stops_nothing(folder: Path) -> None:
    stage = Stage(folder, Outcome("ok"), Outcome("ok"), takes=False, interval=0.005)
    stage.agent.work()
    assert len(stage.runs) == 2 and sum(one[0] == "label" for one in stage.api.told) > 2


def test_the_profile_is_undone_by_its_own_state_and_the_label_goes(folder: Path) -> None:
    stage = Stage(folder, Outcome("ok"), undoes=True)
    stage.agent.work()
    assert stage.runs[0][1]["aks_dual_stack_state"] == "absent" and ("label", PROFILE, None) in stage.api.told


def test_a_profile_that_is_undone_needs_no_variable_that_present_needs(folder: Path) -> None:
    (folder / variables.FILE).write_text("aks_dual_stack_table: accept\n")  # as an earlier version accepted it
    stage = Stage(folder, Outcome("ok"), undoes=True)
    stage.agent.work()
    assert stage.runs == [(PROFILE, {"aks_dual_stack_table": "accept", "aks_dual_stack_state": "absent"})]


def test_a_variable_that_undoes_the_profile_takes_the_label_too(folder: Path) -> None:
    (folder / variables.FILE).write_text("aks_dual_stack_state: absent\n")
    stage = Stage(folder, Outcome("ok"))
    stage.agent.work()
    assert ("label", PROFILE, None) in stage.api.told


@pytest.fixture(scope="module")
def port() -> int:
    """The port of metrics, of which a process has one set."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        found: int = free.getsockname()[1]
    ProfileMetrics().serve("", found)
    return found


def test_metrics_are_served_to_both_families(port: int) -> None:
    for host in ["127.0.0.1", *(["[::1]"] if socket.has_dualstack_ipv6() else [])]:
        with urllib.request.urlopen(f"http://{host}:{port}/metrics") as answer:
            assert b"kubenode_runs_total" in answer.read()


def test_clients_that_say_nothing_or_too_much_keep_no_other_from_the_metrics(port: int) -> None:
    with contextlib.ExitStack() as stack:
        for _number in range(50):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            client.sendall(b"GET /metrics HTTP/1.1\r\nX: ")
        client.sendall(b"x" * (1 << 20))
        for path in ("/metrics", "/../../etc/passwd", "/metrics?name[]=%1b"):
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
                assert b"root:" not in answer.read()


WHOLE = """
import json, os, pathlib, signal, sys
from kubenode_agent import __main__ as main, playbook

class Node:
    def __init__(self, name, path): self.name = name
    def event(self, *event): print(*event)
    def label(self, *label): return True
    def remove_taint(self, key): return True

def run(profile, given):
    os.kill(os.getpid(), signal.SIGTERM)
    return playbook.Outcome("ok")

main.Node, playbook.run, main.MANIFEST = Node, run, pathlib.Path(sys.argv[1])
sys.exit(main.main())
"""


def test_sigterm_lets_the_run_end_and_a_port_that_is_taken_stops_nothing(folder: Path) -> None:
    manifest = folder / "MANIFEST.json"
    manifest.write_text('{"collection_info": {"version": "1.0"}}')
    told = {"KUBENODE_PROFILE": PROFILE, "KUBENODE_NODE": "node1", "KUBENODE_VARIABLES": str(folder), "KUBENODE_RUN": str(folder)}
    with socket.create_server(("127.0.0.1", 0)) as taken:
        told |= {"KUBENODE_METRICS_PORT": str(taken.getsockname()[1]), "KUBENODE_METRICS_ADDRESS": "127.0.0.1"}
        environment = {**os.environ, **told, "PYTHONPATH": PYTHONPATH}
        command = [sys.executable, "-c", WHOLE, str(manifest)]
        result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert (result.returncode, (folder / loop.READY).exists()) == (0, True), result.stderr
    assert "Warning NoMetrics aks_dual_stack: no metrics are served: port " in result.stdout


def test_wrong_settings_end_the_agent_with_their_sentence() -> None:
    environment = {**os.environ, "KUBENODE_PROFILE": "own", "PYTHONPATH": PYTHONPATH}
    result = subprocess.run(
        [sys.executable, "-m", "kubenode_agent"], env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode == 2 and "KUBENODE_PROFILE must be one of" in result.stderr


def test_without_an_api_nothing_is_raised(caplog: pytest.LogCaptureFixture) -> None:
    this_node = node.Node("node1")
    assert not this_node.label(PROFILE, "1.0") and not this_node.remove_taint("a")
    this_node.event("Normal", "Applied", "a")
    assert "The API did not take the label of node node1" in caplog.text


def test_events_wait_for_the_api_and_are_sent_once(monkeypatch: pytest.MonkeyPatch) -> None:
    this_node, takes = node.Node("node1"), [False]
    sent: list[Any] = []

    def tried(what: str, call: Any) -> bool:
        if takes[0]:
            call()
        return takes[0]

    monkeypatch.setattr(this_node, "_tried", tried)
    monkeypatch.setattr(this_node, "_event", lambda *event: sent.append(event))
    for number in range(12):
        this_node.event("Warning", "Failed", str(number))
    takes[0] = True
    this_node.flush()
    this_node.event("Warning", "Failed", "11")
    assert [event[2] for event in sent] == [str(number) for number in range(2, 12)]
