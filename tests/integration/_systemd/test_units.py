# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A successful run has seen its unit active, and has rehearsed the next boot: on nodes with systemd 247, 252 and 257."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from sampling import sampled

from lab import inventory, namespace
from lab.container import SystemdNode
from lab.machine import Machine
from lab.podman import Podman
from lab.programs import COUNTED, Replacement
from lab.waiting import until

ROUTES: tuple[str, str, dict[str, Any]] = (
    "policy_routes",
    "kubenode-policy-routes-75.service",
    {"rules": [{"priority": 1200, "fwmark": "0x80/0x80", "table": "main"}], "routes": []},
)
TABLE: tuple[str, str, dict[str, Any]] = ("nftables_probe_snat", "kubenode-nft-ip6-azureSLBProbe.service", {})
ASKING: tuple[str, str, dict[str, Any]] = (*TABLE[:2], {"boot_condition": "address"})
UNITS = pytest.mark.parametrize(
    ("module", "unit", "options"),
    sampled([ROUTES, TABLE, ASKING], lambda case: case is ROUTES),
    ids=["routes", "table", "table with a condition"],
)
PROGRAM = "/etc/kubenode/probe-snat.nft.pyz"
ADDRESS = "2001:db8::10"
LIBRARY = re.compile("/var/lib/kubenode(/|$)")


RELEASES = ["bookworm", "bullseye", "trixie"]  # systemd 252, 247 and 257


@pytest.fixture(scope="module", params=sampled(RELEASES, lambda release: release == "bookworm"))
def node(request: pytest.FixtureRequest, podman: Podman) -> Iterator[SystemdNode]:
    with namespace.machine(f"front-{request.param}") as front:

        def plug(node: SystemdNode) -> None:
            plug_in(front, node)

        node = SystemdNode(f"units-{request.param}", podman, podman.image(request.param), plug)
        node.start()
        node.wait_until_booted()
        yield node
        node.stop()


def plug_in(front: Machine, node: SystemdNode) -> None:
    front.run(["ip", "link", "delete", "eni0"], check=False)
    front.ip(["link add eni0 type veth peer name eth0 netns " + str(node.pid), "link set eni0 up"])
    node.ip(["link set eth0 addrgenmode none", "link set eth0 up", f"address add {ADDRESS}/64 dev eth0 nodad"])


@pytest.fixture(autouse=True)
def cleared(node: SystemdNode) -> Iterator[None]:
    yield
    for module, unit, _options in (ROUTES, TABLE):
        node.remove(f"/etc/systemd/system/{unit}.d/zz.conf")
        if node.exists(f"/etc/systemd/system/{unit}"):
            node.module(module, {"state": "absent"})
    node.run(["systemctl", "daemon-reload"])


def well(node: SystemdNode, module: str, options: dict[str, Any], **how: Any) -> bool:
    """Whether the module, which succeeds, changed something."""
    result = node.module(module, options, **how)
    assert not result["failed"], result
    return bool(result["changed"])


def observed_state(node: SystemdNode) -> dict[str, Any]:
    """The state of the node, without the library that the controller copies to the node before a run."""
    found = node.snapshot()
    return {**found, "files": {path: text for path, text in found["files"].items() if not LIBRARY.match(path)}}


def state_of(node: SystemdNode, unit: str) -> str:
    return node.run(["systemctl", "is-active", unit], check=False).stdout.strip()


def failed_units(node: SystemdNode) -> str:
    return node.run(["systemctl", "--failed", "--no-legend"]).stdout


def break_program(node: SystemdNode, unit: str) -> None:
    node.write(f"/etc/systemd/system/{unit}.d/zz.conf", "[Service]\nExecStart=\nExecStart=/bin/false\n")
    node.run(["systemctl", "daemon-reload"])


def mend_program(node: SystemdNode, unit: str) -> None:
    node.remove(f"/etc/systemd/system/{unit}.d/zz.conf")
    node.run(["systemctl", "daemon-reload"])


# Behaviour of systemd itself is tested on each version, all else on one. `make test` takes the middle version.
ON_ONE = pytest.mark.parametrize("node", RELEASES[:1], indirect=True)


@UNITS
def test_a_unit_is_seen_active_or_the_run_fails(node: SystemdNode, module: str, unit: str, options: dict[str, Any]) -> None:
    break_program(node, unit)
    before = observed_state(node)
    result = node.module(module, options)
    assert result["failed"] and f"{unit} was started and should be active, but is " in result["msg"], result
    assert "status=1/FAILURE" in result["msg"], result["msg"]
    assert observed_state(node) == before and not failed_units(node)

    mend_program(node, unit)
    assert well(node, module, options) and state_of(node, unit) == "active"
    with node.count_processes([*COUNTED, "journalctl", "python3"]) as calls:
        assert not well(node, module, options)
    calls = [call for call in calls if "python3" not in call[0] or {"rehearse", "-S"} & {*call}]
    assert [call for call in calls if not call[0].endswith("/nft")] == []

    break_program(node, unit)
    node.run(["systemctl", "restart", unit], check=False)
    assert well(node, module, options, check=True)
    assert node.module(module, options)["failed"]
    mend_program(node, unit)
    # Changed, unless systemd was faster, which restarts failed units after 10 seconds.
    well(node, module, options)
    assert state_of(node, unit) == "active"


def test_a_unit_that_its_condition_skips_is_as_it_should_be(node: SystemdNode) -> None:
    module, unit, options = ASKING
    node.ip([f"address del {ADDRESS}/64 dev eth0"])
    try:
        assert well(node, module, options, timeout=120)  # the unit waits 30 seconds for an address
        text = node.run(["systemctl", "show", "--property=ActiveState,Result", unit]).stdout
        with node.count_processes() as calls:
            assert not well(node, module, options)
        assert [call for call in calls if not call[0].endswith("/nft")] == []
        assert not well(node, module, options, check=True)
    finally:
        node.ip([f"address add {ADDRESS}/64 dev eth0 nodad"])
    assert {*text.split()} == {"ActiveState=inactive", "Result=exec-condition"}
    assert node.run(["systemctl", "is-system-running"]).stdout.strip() == "running"


def test_what_comes_before_the_boot_program_has_a_say_fails_the_unit_and_skips_nothing(node: SystemdNode) -> None:
    module, unit, options = ASKING
    well(node, module, options)
    path = f"/etc/systemd/system/{unit}"
    text, program = node.read(path), node.read(PROGRAM)
    for harmed, content in (
        (path, re.sub(r"sh \S+ -I", "sh /usr/bin/not-there -I", text)),
        (PROGRAM, "syntax error (\n"),
    ):
        node.write(harmed, content)
        node.run(["systemctl", "daemon-reload"])
        assert node.run(["systemctl", "restart", unit], check=False).returncode != 0
        output = node.run(["systemctl", "show", "--property=Result", unit]).stdout
        assert output == "Result=exit-code\n"
        node.write(path, text)
        node.write(PROGRAM, program)
    assert well(node, module, options)  # the unit is started, and no file is rewritten
    assert not well(node, module, options)


SLOW = """\
[Unit]
Wants=network.target
Before=network.target
[Service]
Type=oneshot
ExecStart=/bin/sh -c 'until test -e /run/go; do sleep 0.1; done'
[Install]
WantedBy=multi-user.target
"""


@ON_ONE
def test_a_run_during_the_boot_does_not_wait_for_what_may_wait_for_it(node: SystemdNode) -> None:
    """Such as a run by cloud-init: its unit's job waits for the network, which is not up yet."""
    module, unit, options = ASKING
    node.write("/etc/systemd/system/slow.service", SLOW)
    node.run(["systemctl", "enable", "--quiet", "slow.service"])
    node.stop()
    node.start()
    try:
        until("the boot waits for a unit", lambda: state_of(node, "slow.service"), node, expected="activating")
        result = node.module(module, options)
        assert not result["failed"] and result["changed"], result
        assert state_of(node, "slow.service") == "activating"
        assert any("its start is queued, but was not seen" in warning for warning in result["warnings"]), result
        assert not well(node, module, options)
        node.write("/run/go", "")
        node.wait_until_booted()
        assert state_of(node, unit) == "active" and not well(node, module, options)
    finally:
        node.run(["systemctl", "disable", "--quiet", "slow.service"])
        node.remove("/etc/systemd/system/slow.service")


# The order of the boot

# By the name alone: the unit tests of _kubelet have the others.
REFUSED_BY_NAME = ("sysinit.target", "dbus.socket", TABLE[1])
# Of the routes, and of the table.
REFUSED_BY_SYSTEMD = (
    ("systemd-journald.service", "sockets.target", "systemd-sysctl.service", "early.service"),
    ("systemd-tmpfiles-setup.service", "systemd-udevd.service", "early.service"),
)
AFTER_THE_NETWORK = "systemd-networkd.service"  # a table comes before it, routes come after it
ACCEPTED = ("kubelet.service", "containerd.service", "multi-user.target", "nowhere.service", "late.service")
# A program of the operator that others wait for, which only its links and drop-ins show.
EARLY = "[Unit]\nDefaultDependencies=no\nBefore=systemd-tmpfiles-setup.service\n[Service]\nExecStart=/bin/sleep inf\n"
LATE = "[Service]\nExecStart=/bin/sleep inf\n[Install]\nWantedBy=multi-user.target\n"


@pytest.fixture
def operators_units(node: SystemdNode) -> Iterator[None]:
    units = {"early.service": EARLY, "late.service": LATE}
    for name, text in units.items():
        node.write(f"/etc/systemd/system/{name}", text)
    node.run(["systemctl", "enable", "--quiet", "late.service"])
    yield
    node.run(["systemctl", "disable", "--quiet", "late.service"])
    for name in units:
        node.remove(f"/etc/systemd/system/{name}")


def test_a_unit_that_would_break_the_boot_is_refused_and_what_is_accepted_boots(node: SystemdNode, operators_units: None) -> None:
    before = observed_state(node)
    for (module, unit, options), names in zip((ROUTES, TABLE), REFUSED_BY_SYSTEMD):
        for name in REFUSED_BY_NAME:
            told = node.module(module, {**options, "before": [name]}, check=True)["msg"]
            assert told.startswith(f"{module}: before[0] must be ")
        for number, name in enumerate(names):
            result = node.module(module, {**options, "before": ["kubelet.service", name]}, check=number > 0)
            # systemd chooses any of several cycles.
            assert result["failed"] and f"{unit} cannot be enabled, because the " in result["msg"], result
            assert f" after {name}" in result["msg"] and result["msg"].endswith(f"start kubelet, not {name}"), result
    assert node.module(ROUTES[0], {**ROUTES[2], "before": [AFTER_THE_NETWORK]}, check=True)["failed"]
    assert well(node, TABLE[0], {**TABLE[2], "before": [AFTER_THE_NETWORK]}, check=True)
    assert observed_state(node) == before
    for module, _unit, options in (ROUTES, TABLE):
        assert well(node, module, {**options, "before": [*ACCEPTED]})
        assert not well(node, module, {**options, "before": [*ACCEPTED]})
    node.reboot()
    assert "ordering cycle" not in node.run(["journalctl", "--boot", "--no-pager"]).stdout
    assert {state_of(node, unit) for _module, unit, _options in (ROUTES, TABLE)} == {"active"}


@ON_ONE
def test_a_cycle_of_a_drop_in_is_refused_without_the_option_too(node: SystemdNode) -> None:
    module, unit, options = ROUTES
    drop_in = f"/etc/systemd/system/{unit}.d/zz.conf"
    node.write(drop_in, "[Unit]\nBefore=sockets.target\n")
    result = node.module(module, options)
    assert result["failed"] and "sockets.target" in result["msg"] and "See their drop-ins" in result["msg"], result
    node.write(drop_in, "[Unit]\nBefore=multi-user.target\n")
    assert well(node, module, options)


@ON_ONE
@pytest.mark.parametrize("module", [ROUTES, TABLE], ids=["routes", "table"])
def test_where_systemd_cannot_be_asked_no_unit_may_be_named(node: SystemdNode, module: tuple[str, str, dict[str, Any]]) -> None:
    name, _unit, options = module
    with Replacement(node, {"/usr/bin/systemd-analyze": "#!/bin/sh\nexit 0\n"}):
        result = node.module(name, {**options, "before": ["late.service"]})
        assert result["failed"] and "systemd could not be asked" in result["msg"], result
        assert well(node, name, options)


# The interpreter


@pytest.fixture
def own_python(node: SystemdNode, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A Python at a path that only the inventory has runs the modules; the node's own is too old."""
    real = node.run(["readlink", "-f", "/usr/bin/python3"]).stdout.strip()
    path = f"/opt/py/bin/{real.rpartition('/')[2]}"
    node.run(["mkdir", "-p", "/opt/py/bin", "/opt/hidden"])
    node.run(["mv", real, path])
    stub = "#!/bin/sh\necho 'this is Python 3.6' >&2\nexit 1\n"
    node.write(real, stub, 0o755)
    variables = inventory.variables
    monkeypatch.setattr(inventory, "variables", lambda one: {**variables(one), "ansible_python_interpreter": path})
    yield path
    node.run(["cp", "-a", path, real])
    monkeypatch.undo()


@ON_ONE
@pytest.mark.parametrize(("module", "unit", "options"), [ROUTES, ASKING], ids=["routes", "table with a condition"])
def test_the_next_boot_has_the_python_that_ran_the_module(
    node: SystemdNode, own_python: str, module: str, unit: str, options: dict[str, Any]
) -> None:
    assert well(node, module, options)
    assert f"{own_python} -I -S -B" in node.read(f"/etc/systemd/system/{unit}")
    node.reboot()
    assert state_of(node, unit) == "active"
    assert not well(node, module, options)


@ON_ONE
def test_a_python_that_does_not_last_is_not_named_and_without_another_the_run_is_refused(
    node: SystemdNode, own_python: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, unit, options = ASKING
    variables = inventory.variables
    node.run(["mkdir", "-p", "/home/me"])
    node.run(["cp", own_python, "/home/me/python3"])
    monkeypatch.setattr(inventory, "variables", lambda one: {**variables(one), "ansible_python_interpreter": "/home/me/python3"})
    before = observed_state(node)
    for check in (True, False):
        result = node.module(module, options, check=check)
        assert result["failed"] and "/home/me/python3 lies where a boot may not find it" in result["msg"], result
        assert "/usr/bin/python3 is not Python 3.9 or newer: this is Python 3.6" in result["msg"]
        assert observed_state(node) == before
    assert well(node, module, {**options, "boot_condition": "none"})  # needs no Python
    node.write("/usr/local/bin/python3", f'#!/bin/sh\nexec {own_python} "$@"\n', 0o755)
    assert well(node, module, options)
    assert "/usr/local/bin/python3 -I -S -B" in node.read(f"/etc/systemd/system/{unit}")
    node.remove("/usr/local/bin/python3")


LAME = """\
#!/bin/bash
case "$*" in *rehearse*) echo "ModuleNotFoundError: No module named 'json'" >&2; exit 1;; esac
exec -a "$0" @REAL@ "$@"
"""


@ON_ONE
@pytest.mark.parametrize(("module", "unit", "options"), [ROUTES, ASKING], ids=["routes", "table with a condition"])
def test_a_boot_that_would_fail_fails_the_run_and_nothing_is_enabled(
    node: SystemdNode, module: str, unit: str, options: dict[str, Any]
) -> None:
    """The unit's Python lacks a part that the boot program needs, and the module does not need."""
    before = observed_state(node)
    with Replacement(node, {"/usr/bin/python3": LAME}):
        result = node.module(module, options)
    assert result["failed"] and "the next boot would fail" in result["msg"] and "'json'" in result["msg"], result
    assert f"rehearse the start of {unit}" in result["msg"]
    assert observed_state(node) == before
