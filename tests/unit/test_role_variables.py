# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A wrong variable of a role is an error that begins with the variable's name; a right one is accepted in each form."""

from __future__ import annotations

import importlib
import itertools
import json
import re
import types
import typing as t
from pathlib import Path

import pytest

pytest.importorskip("ansible")

import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

from ansible_collections.kubenode.datapath.plugins.action.role_variables import ActionModule
from ansible_collections.kubenode.datapath.plugins.module_utils._core.option import Option, Options
from ansible_collections.kubenode.datapath.plugins.plugin_utils import _profiles
from generators import role_arguments

OWN_ROLES = Path(_profiles.__file__).resolve().parents[2] / "roles"
ROLES = [*_profiles.PROFILES]
Result = dict[str, t.Any]

ENIS = [
    {"name": "eth0", "primary": True, "ipv4": ["10.0.0.10"]},
    {"name": "eth1", "gateway": {"ipv4": "10.0.1.1"}, "table": 1101, "pods": ["10.0.1.11"]},
]
PROBES = [{"source": "fe80::1", "translated": "2001:db8::1"}]
AWS: Result = {"layout": "aws_vpc_cni"}
CUSTOM: Result = {"layout": "custom", "pod_interfaces": ["veth-*"], "enis": ENIS}
IMAGE: Result = {"layout": "cilium", "mode": "image", "primary_interface": "ens5"}


def trusted(given: t.Any) -> t.Any:
    """Templates as an inventory has them; other text is left as it is."""
    if isinstance(given, dict):
        return {key: trusted(value) for key, value in given.items()}
    if isinstance(given, list):
        return [trusted(value) for value in given]
    return trust_as_template(given) if isinstance(given, str) else given


def act(variables: Result, role: str, transport: str = "ssh") -> Result:
    """The action's result."""
    loader = DataLoader()
    task = types.SimpleNamespace(
        args={"role": role}, async_val=0, check_mode=False, diff=False, action="role_variables", environment=None,
        delegate_to=None, no_log=False,
    )  # fmt: skip
    connection = types.SimpleNamespace(transport=transport, _shell=types.SimpleNamespace(tmpdir=None))
    own_variables = trusted(variables)
    action = ActionModule(task, connection, None, loader, Templar(loader=loader, variables=own_variables), None)
    return action.run(task_vars=own_variables)


def check(role: str, given: Result, **more: t.Any) -> list[str]:
    """The lines of the error, without the role's prefix; the role's defaults are among the variables, as in a run."""
    defaults = yaml.safe_load((OWN_ROLES / f"{role}/defaults/main.yml").read_text())
    variables = {**defaults, **{f"{role}_{name}": value for name, value in given.items()}, "inventory_hostname": "n1"}
    result = act(variables, role=role, **more)
    assert result["changed"] is False and result.get("failed", False) is ("msg" in result)
    return result["msg"].replace(f"{role}_", "").splitlines() if "msg" in result else []


def as_text(value: t.Any) -> str:
    """As key=value of --extra-vars, or Packer, gives it."""
    return value if isinstance(value, str) else json.dumps(value)


GOOD: list[tuple[str, Result]] = [
    ("aks_dual_stack", {}),
    ("aks_dual_stack", {"state": "absent", "path": "/etc/systemd/system/probe.nft"}),
    ("aks_dual_stack", {"path": "/opt/kubenode-pool1/probe.nft"}),
    ("aks_dual_stack", {"before": ["my-kubelet.service", "k3s.service"]}),
    ("aks_dual_stack", {"before": "my-kubelet.service,your.target"}),
    ("aks_dual_stack", {"probes": PROBES, "priority": -310, "interface": "eth0.100", "nftables_lock_timeout": 0}),
    ("cilium_migration", {}),
    ("cilium_migration", {"backup": "/srv/kubenode/backup"}),
    ("cilium_migration", {"backup": "/run/backup", "state": "restored"}),
    ("cilium_migration", {"addresses": ["10.244.0.0/24", "fd00::1"], "backend": "nft", "neighbors": False}),
    ("cilium_migration", {"addresses": "10.244.0.7,10.244.0.8", "kubectl": "/usr/local/bin/kubectl"}),
    ("cilium_migration", {"kubectl": ["kubectl", "--context", "production"], "drain": True, "drain_options": []}),
    ("cilium_migration", {"verify": [{"address": "192.0.2.1", "port": 443}], "verify_command": ["true"], "grace": 0}),
    ("cilium_migration", {"bridge": True, "bridge_checkpoint": 0, "bridge_name": "azure0", "state": "restored"}),
    ("eni_policy_routing", AWS),
    ("eni_policy_routing", {"state": "absent"}),
    ("eni_policy_routing", {"state": "absent", "remedy": "strict", "connmark": "never", "protocol": 80}),
    ("eni_policy_routing", {**AWS, "remedy": "strict", "checkpoint": 30, "cloud": "aws", "raise_all": True}),
    ("eni_policy_routing", {**AWS, "mark": None, "enis": None, "checkpoint": None, "pod_interfaces": "eni*"}),
    ("eni_policy_routing", CUSTOM),
    ("eni_policy_routing", {**AWS, "manage": ["mark_rule"]}),
    ("eni_policy_routing", {**AWS, "manage": "mark_rule,tables", "remedy": "strict", "connmark": "never"}),
    ("eni_policy_routing", {"manage": ["daemons"], "state": "absent"}),
    ("eni_policy_routing", {"layout": "custom", "manage": ["filters", "mark_rule"]}),
    ("eni_policy_routing", {**IMAGE, "remedy": "symmetric", "manage": ["mark_rule", "connmark"]}),
    ("eni_policy_routing", {**AWS, "service_addresses": ["203.0.113.0/24", "2001:db8:80::80"]}),
    ("eni_policy_routing", {**AWS, "service_addresses": "203.0.113.80"}),
    ("eni_policy_routing", {**AWS, "interface_marks": [{"name": "eth1", "mark": "0x20"}, {"name": "eth2", "mark": 64}]}),
    ("eni_policy_routing", {**CUSTOM, "interface_marks": [{"name": "eth1", "mark": "0x20"}], "remedy": "strict"}),
    ("eni_policy_routing", {**IMAGE, "interface_marks": [{"name": "eth1", "mark": "0x20"}]}),
    ("eni_policy_routing", {**AWS, "interface_marks": [{"name": "eth=1", "mark": "0x20"}], "remedy": "symmetric"}),
    ("eni_policy_routing", {**AWS, "interface_marks": [{"name": "eth=1", "mark": "0x20"}], "manage": "connmark"}),
    ("eni_policy_routing", {**CUSTOM, "mark": "0x100/0xf00", "priorities": {"from_pod": 1350}}),
    ("eni_policy_routing", {"layout": "custom", "connmark": "never"}),
    ("eni_policy_routing", {"layout": "custom", "pod_interfaces": ["cali+"], "connmark": "never"}),
    ("eni_policy_routing", IMAGE),
    ("eni_policy_routing", {**CUSTOM, "mode": "image", "remedy": "symmetric"}),
]


@pytest.mark.parametrize(("role", "given"), GOOD)
@pytest.mark.parametrize("form", [lambda value: value, as_text], ids=["typed", "text"])
def test_right_values_pass_typed_and_as_text(role: str, given: Result, form: t.Callable[[t.Any], t.Any]) -> None:
    assert check(role, {name: value if value is None else form(value) for name, value in given.items()}) == []


JUNK: list[t.Any] = [{"a": {"b": 1}}, [["x"]], -5, "\n", "x" * 300, "[1, 2", 10**20]
# Variables that take one of these: a text, a name, or a number.
LENIENT = {
    "bridge_interface",
    "bridge_name",
    "comment",
    "interface",
    "kubectl",
    "node_name",
    "primary_interface",
    "priority",
    "verify_from",
}


@pytest.mark.parametrize("role", ROLES)
def test_a_value_that_no_variable_takes_is_told_with_its_variable(role: str) -> None:
    right = next((given for name, given in GOOD if name == role), {})
    names = [name for name in _profiles.options_of(role) if name not in LENIENT and not name.endswith("checkpoint_command")]
    for name, value in itertools.product(names, JUNK):
        errors = _profiles.check(role, {**right, name: value}).errors
        assert errors and all(error.startswith(f"{role}_") for error in errors), (name, value, errors)


def test_a_template_is_checked_by_its_value() -> None:
    given = {"layout": "{{ own_layout }}", "enis": "{{ own_enis }}", "pod_interfaces": ["{{ 'veth' ~ '-*' }}"]}
    names = {f"eni_policy_routing_{name}": value for name, value in given.items()}
    variables = {**names, "own_layout": "custom", "own_enis": "{{ own_json }}", "own_json": json.dumps(ENIS)}
    assert "msg" not in act(variables, role="eni_policy_routing")
    failed = act({**variables, "own_layout": "calico"}, role="eni_policy_routing")
    choices = "aws_vpc_cni, cilium, terway, custom"
    assert failed["msg"] == f"eni_policy_routing_layout must be one of {choices}; 'calico' was given"


FOLDERS = (
    "in or below a folder that is named kubenode or kubenode-NAME and lies in one of /etc, /opt, /srv, /var/lib, or directly in a"
    " new folder there with a name of letters, digits, _ and - that no program uses, as /etc/acme"
)
LISTED = ", or JSON text of such a list"
WORDS, DICTIONARIES = f"a list of words{LISTED}", f"a list of dictionaries{LISTED}"
TRUE_FALSE = "true or false"

# A variable, a wrong value, and the expectation in the error. Other variables are those of GOOD's first case for the role.
WRONG: dict[str, list[tuple[str, t.Any, str]]] = {
    "aks_dual_stack": [
        ("state", "Present", "one of present, absent"),
        ("ipv6", True, "one of imds, address, always, never"),
        ("mode", ["image"], "one of auto, runtime, image"),
        ("table", "table", "a word that no nft from version 0.9.8 to 1.1 reserves; add a capital letter"),
        ("table", {"name": "t"}, "text"),
        ("interface", "lo", "the name of one network interface that leads to other machines, as eth0"),
        ("priority", "raw", "an integer"),
        ("priority", 2**31, "an integer from -2147483648 to 2147483647"),
        ("probes", "fe80::1", DICTIONARIES),
        ("probes", '[{"source": "fe80::1",}]', DICTIONARIES),
        ("probes", [], "a list of at least one probe with source and translated"),
        ("probes", ["fe80::1"], DICTIONARIES),
        ("path", "probe.nft", "an absolute path of a file, of letters"),
        ("path", "/run/probe.nft", FOLDERS),
        ("before", {"my": "service"}, "a list of words"),
        ("nftables_minimum_version", "new", 'a version of digits and dots, as "0.9.8"'),
        ("nftables_service", "stopped", "one of masked, ignore"),
        ("nftables_lock_timeout", -1, "a number from 0 to"),
        ("nftables_lock_timeout", "5m", "an integer"),
    ],
    "cilium_migration": [
        ("state", "present", "one of absent, restored"),
        ("addresses", {"pod": "10.0.0.1"}, WORDS),
        ("addresses", "[10.0.0.1]", WORDS),
        ("neighbors", "y", TRUE_FALSE),
        ("bridge", "azure0", TRUE_FALSE),
        ("drain", {}, TRUE_FALSE),
        ("backup", "backup", "an absolute path of a file, of letters"),
        ("backup", "/etc/cni/net.d/b", FOLDERS),
        ("bridge_name", "azure 0", "a link's name of 1 to 15 letters, digits and _.=+@~-"),
        ("bridge_interface", "eth0/1", "a link's name of 1 to 15 letters, digits and _.=+@~-"),
        ("bridge_checkpoint", 3, "0 for none, or from 5 to 3600 seconds"),
        ("bridge_checkpoint", "soon", "an integer"),
        ("drain_options", "--force", WORDS),
        ("verify_command", "kubectl exec", WORDS),
        ("kubectl", [], "a command, or a list of at least one word"),
        ("kubectl", {"context": "x"}, WORDS),
        ("grace", -1, "a number from 0 to 86400"),
        ("verify", "192.0.2.1:443", DICTIONARIES),
    ],
    "eni_policy_routing": [
        ("remedy", "losse", "one of loose, strict, symmetric"),
        ("layout", "aws-vpc-cni", "one of aws_vpc_cni, cilium, terway, custom"),
        ("enis", "eth0", DICTIONARIES),
        ("enis", {"name": "eth0"}, DICTIONARIES),
        ("enis", [], "a list of at least one ENI, in the form of imds_info's interfaces"),
        ("manage", [], "a list of at least one of daemons, filters, own_addresses, mark_rule, tables, connmark"),
        ("manage", {"mark_rule": True}, WORDS),
        ("cloud", "gcp", "one of auto, azure, aws, alibaba"),
        ("cloud", "azure", "one of auto, aws: the layout aws_vpc_cni needs device numbers"),
        ("primary_interface", "all", "the name of one network interface that leads to other machines, as eth0"),
        ("primary_interface", ["eth0"], "text"),
        ("mark", "0x180/0x80", "MARK or MARK/MASK, numbers up to 0xffffffff"),
        ("priorities", {"mark": 1}, "left out: the layout aws_vpc_cni has its own"),
        ("priorities", "mark=1", "a dictionary, or JSON text of one"),
        ("priorities", ["mark"], "a dictionary, or JSON text of one"),
        ("connmark", "no", "one of auto, always, never"),
        ("raise_all", "maybe", TRUE_FALSE),
        ("protocol", 300, "a number from 1 to 255"),
        ("protocol", 4, "one that no other program uses; 4 belongs to static"),
        ("protocol", "bgp", "an integer"),
        ("checkpoint", 4000, "0 for none, or from 5 to 3600 seconds"),
        ("checkpoint", [30], "an integer"),
        ("checkpoint_command", ["true"], "text"),
    ],
}  # fmt: skip


@pytest.mark.parametrize(("role", "name", "value", "allowed"), [(role, *case) for role, cases in WRONG.items() for case in cases])
def test_a_wrong_value_is_told_with_its_variable_and_what_is_allowed(role: str, name: str, value: t.Any, allowed: str) -> None:
    base = AWS if role == "eni_policy_routing" else {}
    (line,) = check(role, {**base, name: value})
    assert line.startswith(f"{name} must be {allowed}") and line.endswith(f"; {value!r} was given")


# Values, and the beginnings of the lines of the error.
PLACES: list[tuple[str, Result, list[str]]] = [
    ("aks_dual_stack", {"probes": [{"source": "fe80::1"}]}, ["probes[0].translated must be given; None was given"]),
    ("aks_dual_stack", {"probes": [{**PROBES[0], "to": 1}]}, ["probes[0].to must be left out; known here are source"]),
    ("aks_dual_stack", {"probes": [{"source": "::1", "translated": "2001:db8::1"}]}, ["probes[0].source must be an IPv6"]),
    ("aks_dual_stack", {"before": ["a.service", "kubelet"]}, ["before[1] must be the name of a systemd unit that ends with"]),
    ("eni_policy_routing", {**AWS, "before": ["network.target"]}, ["before[0] must be a unit that starts later in the boot"]),
    ("cilium_migration", {"addresses": ["10.0.0.1", "10.0.0.1/8"]}, ["addresses[1] must be an address, or a prefix without"]),
    ("cilium_migration", {"verify": [{"address": "192.0.2.1"}]}, ["verify[0].port must be given; None was given"]),
    ("cilium_migration", {"verify": [{"address": "a", "port": "web"}]}, ["verify[0].port must be an integer; 'web' was"]),
    ("cilium_migration", {"restart_timeout": 0}, ["restart_timeout must be a number from 1 to 86400;"]),
    ("cilium_migration", {"verify": [{"address": "a", "port": 70000}]}, ["verify[0].port must be a number from 1 to 65535;"]),
    ("eni_policy_routing", {**CUSTOM, "enis": [{"name": "eth0"}]}, ["enis[].primary must be true for exactly one ENI"]),
    ("eni_policy_routing", {**CUSTOM, "enis": ENIS[:1] + [{**ENIS[1], "gateway": {}}]}, ["enis[1].gateway.ipv4 must be given"]),
    ("eni_policy_routing", {**CUSTOM, "enis": [*ENIS, ENIS[1]]}, ["enis[2].name must be another link than that of enis[1]"]),
    ("eni_policy_routing", {**CUSTOM, "enis": ENIS[:1] + [{**ENIS[1], "table": 254}]}, ["enis[1].table must be a table other"]),
    ("eni_policy_routing", {**CUSTOM, "enis": ENIS[:1] + [{**ENIS[1], "pods": ["10.0.1.300"]}]}, ["enis[1].pods[0] must be"]),
    ("eni_policy_routing", {**AWS, "manage": ["tables", "marks"]}, ["manage[1] must be one of daemons, filters, own_addresses,"]),
    ("eni_policy_routing", {"manage": ["rules"], "state": "absent"}, ["manage[0] must be one of daemons, filters, own_addre"]),
    ("eni_policy_routing", {**CUSTOM, "pod_interfaces": ["eth*"]}, ["pod_interfaces[0] must be a pattern that primary_inte"]),
    ("eni_policy_routing", {**CUSTOM, "pod_interfaces": ["veth-*", "a b"]}, ["pod_interfaces[1] must be a link's name"]),
    ("eni_policy_routing", {**AWS, "service_addresses": ["203.0.113.1/24"]}, ["service_addresses[0] must be a prefix without"]),
    ("eni_policy_routing", {**CUSTOM, "interface_marks": [{"name": "eth1"}]}, ["interface_marks[0].mark must be given; None"]),
    (
        "eni_policy_routing",
        {**AWS, "interface_marks": [{"name": "eth1", "mark": "0x180"}]},
        ["interface_marks[0].mark must be a mark that the rule of the primary ENI, 0x80/0x80, does not match; '0x180' was given"],
    ),
    (
        "eni_policy_routing",
        {**CUSTOM, "interface_marks": [{"name": "eth0", "mark": "0x20"}]},
        ["interface_marks must be of secondary ENIs; the option mark is that of the primary ENI; 'eth0' was given"],
    ),
    (
        "eni_policy_routing",
        {**AWS, "interface_marks": [{"name": "eth1", "mark": "0x20"}, {"name": "eth=2", "mark": "0x40"}]},
        ["interface_marks[1].name must be a link's name without =, as no line of sysctl.d(5) can set rp_filter of it; 'eth=2'"],
    ),
    ("eni_policy_routing", {**AWS, "primary_interface": "eth=0"}, ["primary_interface must be a link's name without =, as no"]),
    (
        "eni_policy_routing",
        {**CUSTOM, "enis": [{**ENIS[0], "name": "eth=0"}, ENIS[1]]},
        ["enis[0].name must be a link's name without =, as no"],
    ),
    ("eni_policy_routing", {**CUSTOM, "mark": "0x180/0x80"}, ["mark must be MARK or MARK/MASK, numbers up to 0xffffffff"]),
    ("eni_policy_routing", {**CUSTOM, "priorities": {"to_pod": 2000}}, ["priorities must be in the order to_pod, mark, from"]),
    ("eni_policy_routing", {**CUSTOM, "priorities": {"to": 1}}, ["priorities.to must be left out; known here are to_pod"]),
    (
        "eni_policy_routing",
        {**CUSTOM, "enis": [*ENIS, {**ENIS[1], "name": "eth2", "gateway": {"ipv4": "10.0.2.1"}}]},
        ["enis must give valid rules, routes and addresses: ro"],
    ),
    ("eni_policy_routing", {}, ["layout must be one of aws_vpc_cni, cilium, terway and custom; nothing was given. Nothing"]),
    ("eni_policy_routing", {**AWS, "remedy": "strict", "connmark": "never"}, ["remedy is strict and connmark is never: every"]),
    ("eni_policy_routing", {**AWS, "remedy": "strict", "manage": ["filters"]}, ["remedy is strict and manage lacks connmark"]),
    (
        "eni_policy_routing",
        {**AWS, "interface_marks": [{"name": "eth1", "mark": "0x20"}], "connmark": "never"},
        ["interface_marks needs the table that marks connections, and connmark is never"],
    ),
    (
        "eni_policy_routing",
        {**AWS, "service_addresses": ["203.0.113.0/24"], "connmark": "never"},
        ["service_addresses needs the table that marks connections, and connmark is never"],
    ),
    ("eni_policy_routing", {"layout": "custom"}, ["pod_interfaces must be given for the layout custom if connections are"]),
    ("eni_policy_routing", {**AWS, "mode": "image"}, ["primary_interface must be given for an image, and was not: reverse"]),
    ("eni_policy_routing", {**IMAGE, "remedy": "symmetric"}, ["remedy must be loose or strict for an image whose nodes"]),
    (
        "eni_policy_routing",
        {**AWS, "remedi": "loose", "protocol": 0, "remedy": "x", "x9": [1]},
        [
            "remedi is not a variable of the role eni_policy_routing. Did you mean remedy?",
            "x9 is not a variable of the role eni_policy_routing. Remove it; the variables are audit, before, checkp",
            "remedy must be one of loose, strict, symmetric; 'x' was given",
            "protocol must be a number from 1 to 255; 0 was given",
        ],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("role", "given", "lines"), PLACES)
def test_the_place_of_the_error_and_rules_on_several_variables(role: str, given: Result, lines: list[str]) -> None:
    told = check(role, given)
    assert [line[: len(start)] for line, start in zip(told, lines)] == lines and len(told) == len(lines), told


@pytest.mark.parametrize(("mode", "transport", "packer"), [("auto", "chroot", False), ("auto", "ssh", True)])
def test_what_the_controller_knows_of_an_image_counts(mode: str, transport: str, packer: bool) -> None:
    variables = {"eni_policy_routing_layout": "cilium", "eni_policy_routing_mode": mode}
    known = act({**variables, **({"packer_build_name": "x"} if packer else {})}, role="eni_policy_routing", transport=transport)
    assert known["msg"].startswith("eni_policy_routing_primary_interface must be given for an image")
    assert "msg" not in act(variables, role="eni_policy_routing")


def test_a_template_that_fails_is_told_with_its_variable_and_hides_no_other_error() -> None:
    given = {**AWS, "mark": "{{ nowhere.mark }}", "enis": [{"name": "{{ nowhere }}"}], "protocol": "x"}
    enis, mark, protocol = sorted(check("eni_policy_routing", given))
    assert mark == "mark must have a value that can be computed; '{{ nowhere.mark }}' was given: 'nowhere' is undefined"
    assert enis.startswith("enis must have a value that can be computed; [{'name': '{{ nowhere }}'}] was given: ")
    assert protocol == "protocol must be an integer; 'x' was given"


def test_an_omitted_value_is_as_undefined() -> None:
    assert "msg" not in act(
        {"eni_policy_routing_layout": "cilium", "eni_policy_routing_enis": "{{ omit }}"}, role="eni_policy_routing"
    )


def test_variables_that_are_none_of_the_roles_are_ignored() -> None:
    result = {"changed": False, "failed": False, "rc": 0}
    skipped = {"changed": False, "skipped": True, "skip_reason": "Conditional result was False"}
    variables = {
        "aks_dual_stack_result": result,
        "aks_dual_stack_skipped": skipped,
        "aks_dual_stack_one": {"name": "x"},
        "ansible_loop_var": "aks_dual_stack_one",
        "aks_dual_stack_monitor_path": "/x",
        "ansible_play_role_names": [
            "kubenode.datapath.aks_dual_stack",
            "aks_dual_stack",
            "example.net.aks_dual_stack_monitor",
        ],
        "__aks_dual_stack_node": 1,
        "aks_dual_stackable": 1,
        "aks_dual_stack": 1,
        "eni_policy_routing_remedi": "loose",
    }
    assert "msg" not in act(variables, role="aks_dual_stack")
    del variables["ansible_play_role_names"], variables["ansible_loop_var"]
    told = act(variables, role="aks_dual_stack")["msg"].splitlines()
    assert [line.split()[0] for line in told] == ["aks_dual_stack_monitor_path", "aks_dual_stack_one"]


def specs_of(role: str) -> dict[str, t.Any]:
    spec = yaml.safe_load((OWN_ROLES / f"{role}/meta/argument_specs.yml").read_text())
    return t.cast("dict[str, t.Any]", spec["argument_specs"]["variables"]["options"])


@pytest.mark.parametrize("role", ROLES)
def test_the_nearest_name_is_suggested(role: str) -> None:
    options = specs_of(role)
    for name in options:
        for misspelt in {name[:-1], f"{name}s"} - {*options}:
            told = act({misspelt: 1}, role)["msg"].splitlines()[0]
            assert told == f"{misspelt} is not a variable of the role {role}. Did you mean {name}?"


@pytest.mark.parametrize("role", ROLES)
def test_the_argument_spec_and_the_defaults_are_those_of_the_profile(role: str) -> None:
    for path, text in role_arguments.files(role).items():
        assert path.read_text() == text, (
            "run `make docs`, or `python3 tests/toolchain.py run python -m generators.role_arguments`"
        )
    defaults = yaml.safe_load((OWN_ROLES / f"{role}/defaults/main.yml").read_text())
    options = {f"{role}_{name}": option for name, option in _profiles.options_of(role).items()}
    assert {*specs_of(role)} == {*options} and defaults.keys() <= {*options}
    assert defaults.keys() >= {name for name, option in options.items() if option.default is not None}


@pytest.mark.parametrize("role", ROLES)
def test_the_table_of_the_roles_readme_has_each_variable_with_its_default(role: str) -> None:
    text = (OWN_ROLES / f"{role}/README.md").read_text()
    rows = re.findall(rf"^\| (`{role}_.*?) \|(.*?)\| ", text, re.MULTILINE)
    documented: dict[str, str] = {}
    for names, default in rows:
        first, *others = re.findall(r"`(\w+)`", names)
        stem = first[len(role) + 1 :].rpartition("_")[0]
        documented[first[len(role) + 1 :]] = default
        for other in others:  # as in `role_bridge_name`, `_interface`, or `role_table`, `_priority`
            documented |= {name: default for name in (f"{stem}{other}", other[1:]) if name in _profiles.options_of(role)}
    assert {*documented} == {*_profiles.options_of(role)}
    for name, default in documented.items():
        if (found := re.fullmatch(r" `([^`]*)` ", default)) is not None:
            assert yaml.safe_load(found[1]) == _profiles.options_of(role)[name].default, name


@pytest.mark.parametrize("role", ROLES)
def test_each_variable_is_permitted_to_a_configmap_or_refused_with_a_reason_that_is_documented(role: str) -> None:
    """A new variable is refused by the agent until it is marked."""
    options = _profiles.options_of(role)
    table = (OWN_ROLES.parent / "deploy/README.md").read_text()
    assert Option("str").refused == "it is not marked as permitted"
    for name, spec in specs_of(role).items():
        why = options[name[len(role) + 1 :]].refused
        description = [spec["description"]] if isinstance(spec["description"], str) else spec["description"]
        said = [f"Not accepted from a ConfigMap, because {why}."] if why else []
        assert [one for one in description if "ConfigMap" in one] == said, name
        assert (f"| `{name}` | {why} |" in table) is bool(why), name


@pytest.mark.parametrize("role", ROLES)
def test_no_path_and_no_command_is_permitted_to_a_configmap(role: str) -> None:
    types_of = {name: option.type for name, option in _profiles.options_of(role).items() if not option.refused}
    assert "path" not in types_of.values()
    assert not [name for name in types_of if re.search("command|kubectl|options|path|file|folder|backup|host", name)]


def options_of_module(module: str) -> Options:
    part = importlib.import_module(f"ansible_collections.kubenode.datapath.plugins.module_utils._parts.{module}")
    return t.cast("Options", part.OPTIONS)


@pytest.mark.parametrize("role", ROLES)
def test_each_option_of_a_module_that_gets_a_value_exists_and_has_the_same_type(role: str) -> None:
    for name, option in _profiles.options_of(role).items():
        for module, target in (place.split(".") for place in option.targets):
            declared = options_of_module(module)[target.partition("[")[0]]
            assert target.endswith("]") or declared.type == option.type, name
            assert not option.choices or option.choices == declared.choices, name


def test_the_role_must_be_one_of_the_collection() -> None:
    result = act({}, "eni")
    assert result["failed"] and "value of role must be one of: aks_dual_stack, " in result["msg"]


def test_the_values_are_returned_with_their_types() -> None:
    result = act({"cilium_migration_kubectl": '["kubectl", "-v"]', "cilium_migration_drain": "yes"}, "cilium_migration")
    assert (result["options"]["kubectl"], result["options"]["drain"], result["options"]["grace"]) == (["kubectl", "-v"], True, 15)
