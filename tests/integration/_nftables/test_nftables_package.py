# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""nftables_package on nodes that run systemd, with Debian's own packages: the module never costs a program its table."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import ansible
import pytest
from sampling import sampled

from lab import apt, collection, entering, images, programs, rpm
from lab.container import SystemdNode
from lab.podman import Podman
from lab.waiting import until

SUITES = ("bullseye", "bookworm", "trixie")
RESTARTING = ("bookworm", "trixie")  # bullseye's maintainer scripts do not restart the service
TREE = "/srv/kubenode-test"
RECORD = "/var/lib/kubenode/nftables-package"
HOLD = "/run/systemd/system/nftables.service.d"
MASK = "/etc/systemd/system/nftables.service"
COUNTED = (*programs.COUNTED, "env", "apt-cache", "dnf", "rpm", "perl")

TABLES = """
table ip kube-proxy { chain services { ip daddr 192.0.2.1 accept; }; }
table inet cni { set pods { type ipv4_addr; elements = { 192.0.2.7 }; }; }
"""
# The state of the node: its configuration, the collection's files, and systemd's runtime units.
LISTING = (
    "find /etc /run/systemd/system /var/lib/kubenode -not -name ld.so.cache -not -name '*.lock'"
    " -not -name resolv.conf -printf '%p %y %m %l\\n' 2>/dev/null | sort; "
    "dpkg-query --show 2>/dev/null | grep ^nftables || true"
)


@pytest.fixture(scope="module")
def podman() -> Iterator[Podman]:
    running = Podman()
    try:
        yield running
    finally:
        running.close()


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that a module needs on a node without Ansible: its own, and ansible-core's module_utils."""
    folder = tmp_path_factory.mktemp("tree") / "tree"
    source = Path(ansible.__file__).parent
    ignore = shutil.ignore_patterns("__pycache__", "*.ps1", "*.psm1", "*.cs")
    shutil.copytree(source / "module_utils", folder / "ansible/module_utils", ignore=ignore)
    shutil.copy(source / "release.py", folder / "ansible")
    (folder / "ansible/__init__.py").touch()
    plugins = "ansible_collections/kubenode/datapath/plugins"
    shutil.copytree(collection.CHECKOUT / "plugins", folder / plugins, ignore=ignore)
    shutil.copy(collection.CHECKOUT / "tests/lab/module_process.py", folder)
    return folder


@contextmanager
def booted(podman: Podman, tree: Path, suite: str, packages: tuple[str, ...]) -> Iterator[SystemdNode]:
    node = SystemdNode(f"{suite}-{time.monotonic_ns()}", podman, podman.image(suite, packages))
    node.start()
    try:
        node.wait_until_booted()
        node.copy_in(tree, TREE)
        yield node
    finally:
        node.stop()


@pytest.fixture
def suite() -> str:
    return "bookworm"


@pytest.fixture
def node(podman: Podman, tree: Path, suite: str) -> Iterator[SystemdNode]:
    """A node without nftables, whose index has the packages of its release."""
    with booted(podman, tree, suite, images.NODE_PACKAGES) as running:
        apt.publish(running, apt.packages(suite))
        running.run(["apt-get", "update"])
        running.run_from_host(["nft", "-f", "-"], TABLES)
        yield running


@pytest.fixture
def rpm_node(podman: Podman, tree: Path) -> Iterator[SystemdNode]:
    with booted(podman, tree, "bookworm", rpm.PACKAGES) as running:
        rpm.prepare(running)
        running.run_from_host(["nft", "-f", "-"], TABLES)
        yield running


def arguments(options: dict[str, Any], check: bool) -> str:
    internal = {
        "_ansible_check_mode": check, "_ansible_diff": True, "_ansible_module_name": "nftables_package",
        "_ansible_remote_tmp": "/tmp", "_ansible_shell_executable": "/bin/sh", "_ansible_version": "2.19.0",
        "_ansible_debug": False, "_ansible_keep_remote_files": False, "_ansible_no_log": False, "_ansible_socket": None,
        "_ansible_selinux_special_fs": [], "_ansible_syslog_facility": "LOG_USER", "_ansible_tmpdir": None,
        "_ansible_tracebacks_for": [], "_ansible_verbosity": 0,
    }  # fmt: skip
    return json.dumps({"ANSIBLE_MODULE_ARGS": {**internal, **options}})


COMMAND = [
    *("python3", f"{TREE}/module_process.py"),
    "ansible_collections.kubenode.datapath.plugins.modules.nftables_package",
]


def attempt(node: SystemdNode, check: bool = False, **options: Any) -> dict[str, Any]:
    result = node.run(COMMAND, arguments(options, check), check=False, timeout=180, environment={"PYTHONPATH": TREE})
    assert result.stdout, result.stderr
    return {"failed": False, **json.loads(result.stdout)}


def run(node: SystemdNode, check: bool = False, **options: Any) -> dict[str, Any]:
    result = attempt(node, check, **options)
    assert not result["failed"], result["msg"]
    return result


def tables(node: SystemdNode) -> str:
    return node.run_from_host(["nft", "--stateless", "list", "ruleset"])


def state(node: SystemdNode) -> str:
    return tables(node) + node.run(["sh", "-c", LISTING]).stdout


def four_steps(node: SystemdNode, **options: Any) -> dict[str, Any]:
    """Checked, run, checked again, run again. Returns the result of the first run."""
    before = state(node)
    predicted = run(node, check=True, **options)
    assert predicted["changed"]
    assert state(node) == before
    result = run(node, **options)
    assert result["changed"]
    assert result["diff"] == predicted["diff"]
    after = state(node)
    for check in (True, False):
        again = run(node, check=check, **options)
        assert not again["changed"]
        assert again["diff"] == []
    assert state(node) == after
    assert tables(node) == before[: len(tables(node))]
    assert not node.exists(HOLD)
    return result


def as_version(deb: Path, version: str, folder: Path) -> Path:
    """The release's own package, with its scripts and unit; its nft reports another version."""
    target = folder / f"nftables_{version}.deb"
    with tempfile.TemporaryDirectory() as unpacked:
        subprocess.run(["dpkg-deb", "--raw-extract", deb, unpacked], check=True)
        control = Path(unpacked, "DEBIAN/control")
        lines = control.read_text().splitlines()
        control.write_text("".join(f"Version: {version}\n" if x.startswith("Version:") else f"{x}\n" for x in lines))
        nft = Path(unpacked, "usr/sbin/nft")
        nft.rename(nft.with_name("nft.real"))
        said = f"nftables v{version.partition('-')[0]} (lab)"
        nft.write_text(f'#!/bin/sh\n[ "$1" = --version ] && exec echo "{said}"\nexec /usr/sbin/nft.real "$@"\n')
        nft.chmod(0o755)
        subprocess.run(["dpkg-deb", "--root-owner-group", "-b", unpacked, target], check=True, stdout=subprocess.DEVNULL)
    return target


def offer(node: SystemdNode, suite: str, version: str, folder: Path, update: bool = True) -> None:
    """Let apt on the node find nftables in this version, and its dependencies."""
    debs = apt.packages(suite)
    package = next(deb for deb in debs if deb.name.startswith("nftables_"))
    apt.publish(node, [*(deb for deb in debs if deb != package), as_version(package, version, folder)])
    if update:
        node.run(["apt-get", "update"])


def refreshes(calls: list[list[str]]) -> int:
    return sum(Path(call[0]).name == "apt-get" and call[-1] == "update" for call in calls)


def start_service(node: SystemdNode) -> None:
    """An operator enables and starts nftables.service; other programs load their tables afterwards."""
    node.run(["systemctl", "enable", "--quiet", "--now", "nftables.service"])
    node.run_from_host(["nft", "-f", "-"], TABLES)


# The twelve steps


@pytest.mark.parametrize("suite", sampled(SUITES, lambda suite: suite == "bookworm"))
def test_create_modify_delete_delete_again(node: SystemdNode, suite: str, tmp_path: Path) -> None:
    before = state(node)
    created = four_steps(node)
    assert created["manager"] == "apt"
    assert created["path"] == "/usr/sbin/nft"
    assert created["service"] == {"enabled": False, "active": False, "masked": False}
    assert node.exists(RECORD)

    offer(node, suite, "2.0.0-1", tmp_path)
    modified = four_steps(node, minimum_version="2.0.0", service="masked")
    assert modified["version"] == "2.0.0"
    assert modified["service"] == {"enabled": False, "active": False, "masked": True}
    assert modified["diff"][0]["after"] == f"# {MASK} -> /dev/null\n\nnftables 2.0.0-1\n"

    deleted = four_steps(node, state="absent")
    assert deleted["path"] is None
    assert state(node) == before
    assert not run(node, state="absent", check=True)["changed"]
    assert not run(node, state="absent")["changed"]


# No tables are flushed


@pytest.mark.parametrize("suite", sampled(RESTARTING, lambda suite: suite == "bookworm"))
def test_an_active_service_does_not_flush_when_the_package_changes(node: SystemdNode, suite: str, tmp_path: Path) -> None:
    run(node)
    start_service(node)
    before = tables(node)
    offer(node, suite, "2.0.0-1", tmp_path)
    result = run(node, minimum_version="2.0.0")
    assert result["service"] == {"enabled": True, "active": True, "masked": False}
    assert "nftables.service is enabled and active" in json.dumps(result["warnings"])
    assert tables(node) == before
    assert node.run(["systemctl", "is-active", "nftables.service"]).stdout == "active\n"
    run(node, state="absent")
    assert tables(node) == before
    run(node)  # its postinst sees a unit that is still active
    assert tables(node) == before
    assert not node.exists(HOLD)


@pytest.mark.thorough
@pytest.mark.parametrize("suite", RESTARTING)
def test_the_same_upgrade_by_hand_flushes(node: SystemdNode, suite: str, tmp_path: Path) -> None:
    """If Debian's scripts did not restart the service, the test above would prove nothing."""
    run(node)
    start_service(node)
    before = tables(node)
    offer(node, suite, "2.0.0-1", tmp_path)
    node.run(["apt-get", "--yes", "install", "nftables"])
    assert tables(node) != before


def test_a_killed_run_still_holds_the_service_and_the_next_one_lets_it_go(node: SystemdNode, tmp_path: Path) -> None:
    run(node)
    start_service(node)
    before = tables(node)
    offer(node, "bookworm", "2.0.0-1", tmp_path)
    environment = {**entering.ENVIRONMENT, "PYTHONPATH": TREE}
    command = entering.command(node.pid, node.namespaces, COMMAND)
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment,
        cwd="/",
    ) as process:
        assert process.stdin is not None
        process.stdin.write(arguments({"minimum_version": "2.0.0"}, check=False))
        process.stdin.close()
        until("the run holds back the package's service", lambda: node.exists(f"{HOLD}/90-kubenode-hold.conf"), node)
        time.sleep(0.3)
        node.run(["pkill", "--signal", "KILL", "--full", "module_process.py"], check=False)
        process.kill()
    node.run(["sh", "-c", "while pgrep -x apt-get || pgrep -x dpkg; do sleep 0.1; done"])
    assert node.exists(HOLD)
    assert tables(node) == before
    node.run(["dpkg", "--configure", "-a"])
    assert tables(node) == before
    run(node, minimum_version="2.0.0")
    assert not node.exists(HOLD)
    assert tables(node) == before
    assert node.run(["systemctl", "is-active", "nftables.service"]).stdout == "active\n"


def test_a_masked_service_is_left_active_and_stopping_it_flushes_nothing(node: SystemdNode) -> None:
    run(node)
    start_service(node)
    before = tables(node)
    result = four_steps(node, service="masked")
    assert result["service"] == {"enabled": False, "active": True, "masked": True}
    node.run(["systemctl", "stop", "nftables.service"])
    assert tables(node) == before
    run(node, state="absent")
    assert not node.exists(MASK)


# The installed nft suffices


def test_nft_that_is_there_costs_one_process_and_is_not_ours(node: SystemdNode) -> None:
    node.run(["apt-get", "--yes", "install", "nftables"])
    before = state(node)
    ways: list[dict[str, Any]] = [{}, {"state": "absent"}]
    for options in ways:
        with programs.counted(node, COUNTED) as calls:
            result = run(node, **options)
        assert not result["changed"]
        assert [[Path(call[0]).name, *call[1:]] for call in calls] == [["nft", "--version"]]
    assert state(node) == before


def test_what_others_need_by_now_stays(node: SystemdNode) -> None:
    run(node)
    node.run(["sh", "-c", "sed -i '/^Package: procps$/,/^$/s/^Depends:/Depends: nftables,/' /var/lib/dpkg/status"])
    before = state(node)
    result = run(node, state="absent")
    assert not result["changed"]
    assert "procps depends on nftables" in json.dumps(result["warnings"])
    assert state(node) == before


def test_a_changed_configuration_outlives_the_package(node: SystemdNode) -> None:
    run(node)
    node.write("/etc/nftables.conf", "# the operator's\n")
    run(node, state="absent")
    assert node.read("/etc/nftables.conf") == "# the operator's\n"


# The index


def test_an_index_that_lacks_the_package_is_refreshed_once_by_a_run_only(node: SystemdNode) -> None:
    node.run(["sh", "-c", "rm -rf /var/lib/apt/lists/*"])
    predicted = run(node, check=True)
    assert predicted["changed"]
    assert predicted["version"] is None
    assert "A run refreshes the index first" in json.dumps(predicted["warnings"])
    assert not node.run(["sh", "-c", "ls /var/lib/apt/lists"]).stdout
    with programs.counted(node, COUNTED) as calls:
        result = run(node)
    assert result["diff"] == predicted["diff"]
    assert result["version"] == "1.0.6"
    assert refreshes(calls) == 1


def test_an_index_whose_file_is_gone_is_refreshed(node: SystemdNode, tmp_path: Path) -> None:
    offer(node, "bookworm", "2.0.0-1", tmp_path, update=False)
    with programs.counted(node, COUNTED) as calls:
        assert run(node)["version"] == "2.0.0"
    assert refreshes(calls) == 1


def test_a_package_that_fails_to_configure_is_rolled_back(node: SystemdNode) -> None:
    before = state(node)
    node.write("/usr/bin/deb-systemd-helper", "#!/bin/sh\nexit 0\n", 0o755)
    node.write("/etc/dpkg/dpkg.cfg.d/lab", "post-invoke=false\n")
    result = attempt(node)
    node.remove("/etc/dpkg/dpkg.cfg.d/lab")
    assert result["failed"]
    assert "install nftables, failed" in result["msg"]
    assert not node.exists(RECORD)
    assert state(node) == before


# Locks


@pytest.mark.parametrize("path", ["/var/lib/dpkg/lock-frontend", "/var/lib/apt/lists/lock", "/var/cache/apt/archives/lock"])
def test_a_held_lock_is_waited_for_and_then_named(node: SystemdNode, path: str) -> None:
    hold = f"import fcntl, time; f = open('{path}', 'w'); fcntl.lockf(f, fcntl.LOCK_EX); print('held', flush=True)"
    before = state(node)
    command = entering.command(node.pid, node.namespaces, ["python3", "-c", f"{hold}; time.sleep(6)"])
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd="/", env=entering.ENVIRONMENT) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        result = attempt(node, lock_timeout=1)
        assert result["failed"]
        assert f"{path} is held by process" in result["msg"]
        assert "(python3)" in result["msg"]
        assert state(node) == before
        assert run(node, lock_timeout=30)["version"] == "1.0.6"


# Images


class Root:
    """A root folder in which no program runs, with the files that a test needs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def at(self, path: str) -> Path:
        return Path(f"{self.folder}{path}")

    def remove(self, path: str) -> None:
        shutil.rmtree(self.at(path), ignore_errors=True)

    def copy_in(self, source: Path, path: str) -> None:
        shutil.copytree(source, self.at(path))

    def write(self, path: str, text: str) -> None:
        self.at(path).write_text(text)


def test_a_root_that_is_built_without_systemd(tree: Path, tmp_path: Path) -> None:
    root = Root(tmp_path / "root")
    subprocess.run(["cp", "--archive", images.root("bookworm", images.NODE_PACKAGES), root.folder], check=True)
    root.copy_in(tree, TREE)
    apt.publish(cast(SystemdNode, root), apt.packages("bookworm"))

    def build(check: bool = False, **options: Any) -> dict[str, Any]:
        script = 'mount -t proc proc "$0/proc" && exec chroot "$0" "$@"'
        outcome = subprocess.run(
            ["unshare", "--mount", "sh", "-c", script, os.fspath(root.folder), *COMMAND],
            input=arguments(options, check), capture_output=True, text=True, check=False,
            env={**entering.ENVIRONMENT, "PYTHONPATH": TREE},
        )  # fmt: skip
        result: dict[str, Any] = json.loads(outcome.stdout)
        assert not result.get("failed"), result
        return result

    assert build(check=True, service="masked")["changed"]
    assert build(service="masked")["service"] == {"enabled": False, "active": False, "masked": True}
    assert not build(service="masked")["changed"]
    assert os.readlink(root.at(MASK)) == "/dev/null"
    assert build(state="absent")["changed"]
    assert not os.path.lexists(root.at(MASK))
    assert not root.at("/usr/sbin/nft").exists()


# dnf

# As rpm's own macros do it (systemd's macros.systemd.in), in Lua, as this node's rpm database provides no shell.
SCRIPTLETS = """
%preun -p <lua>
if tonumber(arg[2]) == 0 then os.execute("systemctl --no-reload disable --now nftables.service") end
%postun -p <lua>
os.execute("systemctl daemon-reload")
if tonumber(arg[2]) >= 1 then os.execute("systemctl try-restart nftables.service") end
%files
"""


def test_dnf_installs_upgrades_and_removes_nftables(rpm_node: SystemdNode, monkeypatch: pytest.MonkeyPatch) -> None:
    node = rpm_node
    spec = rpm._SPEC.replace("%files\n", SCRIPTLETS.lstrip(), 1)
    spec = spec.replace("ExecStart=/bin/true\\n", "ExecStart=/bin/true\\nExecStop=/usr/bin/touch /run/flushed\\n")
    monkeypatch.setattr(rpm, "_SPEC", spec)
    before = state(node)
    rpm.publish(node, ["1.0.9"])
    created = four_steps(node)
    assert (created["manager"], created["version"]) == ("dnf", "1.0.9")
    node.run(["systemctl", "enable", "--quiet", "--now", "nftables.service"])

    rpm.publish(node, ["1.0.9", "1.1.3"])
    assert four_steps(node, minimum_version="1.1")["version"] == "1.1.3"
    assert node.run(["systemctl", "is-active", "nftables.service"]).stdout == "active\n"
    assert attempt(node, minimum_version="3")["failed"]

    four_steps(node, state="absent")
    assert not node.exists("/run/flushed")
    assert state(node) == before

    rpm.publish(node, ["1.0.9"])
    node.run(["dnf", "--assumeyes", "--refresh", "install", "nftables"])
    node.run(["systemctl", "daemon-reload"])
    node.run(["systemctl", "restart", "nftables.service"])
    node.run(["systemctl", "stop", "nftables.service"])
    assert node.exists("/run/flushed")  # the test can detect a flush


def test_dnf_at_work_is_waited_for_and_then_named(rpm_node: SystemdNode) -> None:
    rpm.publish(rpm_node, ["1.0.9"])
    rpm_node.run(["dnf", "makecache"])
    rpm_node.run(["sh", "-c", "mkdir -p /var/lib/dnf && sleep 60 > /dev/null 2>&1 & echo $! > /var/lib/dnf/rpmdb_lock.pid"])
    result = attempt(rpm_node, lock_timeout=1)
    assert result["failed"]
    assert "already locked by" in result["msg"]
