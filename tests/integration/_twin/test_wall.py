# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The wall around a twin: no right outside, no file of the machine, no setting of the machine, and no process that stays."""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Failure, Refusal, Uncertain
from ansible_collections.kubenode.datapath.plugins.module_utils._platform import memory_group, process
from ansible_collections.kubenode.datapath.plugins.module_utils._twin import blueprint, isolation_backend, wall_backend

NOTHING_BUT = {"etc", "lib", "lib64", "usr", "dev", "proc", ".selected"}


def inside(work: Callable[[], Any]) -> Any:
    """The result of a function that runs behind the wall, as JSON has it."""
    return isolation_backend.run(lambda _isolated: {"result": work()}, 60)["result"]


def run(*argv: str, given: str = "") -> tuple[int, str]:
    result = process.run([process.find(argv[0]) or argv[0], *argv[1:]], given, {"PATH": process.SEARCH_PATH})
    return result.rc, result.stdout + result.stderr


def settings() -> Iterator[Path]:
    return (Path(folder, name) for folder, _folders, names in os.walk("/proc/sys/net") for name in names)


def values() -> dict[str, str]:
    found = {}
    for path in settings():
        try:
            found[str(path)] = path.read_text()
        except OSError:  # such as stable_secret, which is not set
            continue
    return found


def test_root_inside_is_a_user_without_rights_outside() -> None:
    def look() -> dict[str, Any]:
        lines = (line.partition(":\t") for line in Path("/proc/self/status").read_text().splitlines())
        return {name: value for name, _colon, value in lines} | {"map": Path("/proc/self/uid_map").read_text().split()}

    status = inside(look)
    capabilities = f"{sum(1 << one for one in wall_backend.KEPT):016x}"
    assert [status[name] for name in ("CapPrm", "CapEff", "CapBnd", "NoNewPrivs", "Groups")] == [
        capabilities,
        capabilities,
        capabilities,
        "1",
        " ",
    ]
    user = int(status["map"][1])
    assert status["map"] == ["0", str(user), "1"] and user >= wall_backend.FIRST_USER


def test_nothing_of_the_machine_is_inside(tmp_path: Path) -> None:
    opened = os.open(tmp_path, os.O_RDONLY)  # a descriptor of the run
    try:
        folders, is_visible, pids, descriptors = inside(
            lambda: (
                os.listdir("/"),
                [os.path.exists(path) for path in (tmp_path, "/etc/passwd", "/dev/kmsg", "/sys/kernel")],
                [int(name) for name in os.listdir("/proc") if name.isdigit()],
                [os.path.realpath(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd")],
            )
        )
    finally:
        os.close(opened)
    assert {*folders} <= NOTHING_BUT | {path.split("/")[1] for path in (os.__file__, blueprint.__file__)}
    assert is_visible == [False] * 4 and pids == [1] and str(tmp_path) not in descriptors


@pytest.mark.parametrize(
    "narrow",
    [
        "mount --bind /dev/null /dev/null && mount -o remount,bind,nosuid,noexec /dev/null",
        "mount --bind /dev/null /proc/kallsyms",
    ],
)
def test_the_wall_stands_where_the_machine_has_mounts_that_no_user_may_change(narrow: str) -> None:
    """As in a container, whose /dev is noexec, and which covers parts of its /proc."""
    write = "lambda _isolated: {'written': open('/dev/null', 'w').write('x')}"
    look = f"from {isolation_backend.__name__} import run; print(run({write}, 60))"
    shell = ["unshare", "--mount", "sh", "-c", f'{narrow} && exec "$@"', "sh", sys.executable, "-c", look]
    assert subprocess.run(shell, capture_output=True, text=True, check=False).stdout == "{'written': 1}\n"


@pytest.mark.parametrize(
    "line",
    [
        "-A FORWARD -j IDLETIMER --timeout 5 --label kubenode",
        "-A FORWARD -j  IDLETIMER --timeout 5 --label kubenode",
        '-A FORWARD "-j" IDLETIMER --timeout 5 --label kubenode',
        "-A FORWARD --jump IDLETIMER --timeout 5 --label kubenode",
        "-A FORWARD -j LED --led-trigger-id kubenode",
        "-A FORWARD -j AUDIT --type accept",
        "-A FORWARD -m bpf --object-pinned /sys/fs/bpf/kubenode -j ACCEPT",
    ],
)
def test_a_target_that_acts_on_the_machine_is_not_there(line: str) -> None:
    rc, said = inside(lambda: run("iptables-nft-restore", given=f"*filter\n:FORWARD ACCEPT [0:0]\n{line}\nCOMMIT\n"))
    assert rc, said
    timers = Path("/sys/class/xt_idletimer/timers/kubenode")
    assert not timers.exists()


def test_the_matches_and_targets_of_kubernetes_are_there() -> None:
    text = (
        "*nat\n:PREROUTING ACCEPT [0:0]\n:POSTROUTING ACCEPT [0:0]\n:A - [0:0]\n"
        '-A PREROUTING -m comment --comment "portals" -m addrtype --dst-type LOCAL -m set --match-set kubenode dst -j A\n'
        "-A A -p tcp -m statistic --mode random --probability 0.5 -j DNAT --to-destination 10.0.0.1:80\n"
        "-A A -m recent --name kubenode --set -m conntrack --ctstate NEW -j MARK --set-xmark 0x4000/0x4000\n"
        "-A POSTROUTING -m mark --mark 0x4000/0x4000 -j MASQUERADE --random-fully\nCOMMIT\n"
    )

    def load() -> tuple[int, str]:
        assert run("ipset", "create", "kubenode", "hash:ip")[0] == 0
        return run("iptables-nft-restore", given=text)

    assert inside(load) == [0, ""]


def test_no_program_reads_a_file_of_the_operator(tmp_path: Path) -> None:
    secret = tmp_path / "kubeconfig"
    secret.write_text("token: abcdef\n")
    rc, said = inside(lambda: run("nft", "-f", "-", given=f'include "{secret}"\n'))
    assert rc and "token" not in said
    rc, said = inside(lambda: run("ip", "-batch", str(secret)))
    assert rc and "token" not in said
    rc, said = inside(lambda: run("ip", "link", "set", "lo", "xdp", "obj", str(secret)))
    assert rc and "No such file" in said


def test_settings_of_the_machine_keep_their_values() -> None:
    """Every setting that can be written inside is changed there. One that is not of the namespace would change here too."""

    def change() -> list[str]:
        changed = []
        for path in settings():
            try:
                with path.open("r+") as file:  # a setting that is not permitted cannot be opened
                    former = file.read().strip()
                    file.seek(0)
                    file.write(str(int(former) ^ 1))
                changed.append(str(path))
            except (OSError, ValueError):
                continue
        return changed

    before = values()
    changed = inside(change)
    assert values() == before
    names = {path.removeprefix("/proc/sys/") for path in changed}
    assert "net/netfilter/nf_hooks_lwtunnel" not in names and "net/ipv4/ip_forward" in names and len(names) > 100
    assert {name for name in names if not name.startswith(isolation_backend.SETTINGS_FOLDERS)} <= blueprint.PERMITTED_SETTINGS


@pytest.mark.parametrize("path", ["/proc/sys/kernel/panic", "/proc/sys/net/netfilter/nf_hooks_lwtunnel", "/proc/sysrq-trigger"])
def test_settings_of_the_whole_machine_are_read_only(path: str) -> None:
    def refused() -> bool:
        try:
            with open(path, "w"):
                return False
        except OSError:
            return True

    assert not os.path.exists(path) or inside(refused)


def test_a_large_transaction_needs_no_right_outside() -> None:
    """The option that it needs is set from outside, at the request of the program."""

    def buffer() -> int:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12) as netlink:
            netlink.setsockopt(socket.SOL_SOCKET, wall_backend.SO_SNDBUFFORCE, 10 << 20)
            return netlink.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)

    assert inside(buffer) >= wall_backend.LARGEST_BUFFER
    rules = "\n".join(f"-A FORWARD -d 10.{number >> 8}.{number & 255}.1/32 -j DROP" for number in range(5000))
    assert inside(lambda: run("iptables-nft-restore", given=f"*filter\n:FORWARD ACCEPT [0:0]\n{rules}\nCOMMIT\n"))[0] == 0


def test_a_file_that_a_module_writes_is_in_a_writable_folder_or_nowhere() -> None:
    def write() -> list[str]:
        refused = []
        for path in ("/etc/kubenode", "/usr/lib/kubenode", "/run/kubenode", "/kubenode"):
            try:
                Path(path).write_text("x")
            except OSError:
                refused.append(path)
        return refused

    within = isolation_backend.root(["/run"], {"/etc/machine-id": b"1"})
    found = isolation_backend.run(lambda _isolated: {"refused": write(), "id": Path("/etc/machine-id").read_text()}, 60, within)
    assert found == {"refused": ["/etc/kubenode", "/usr/lib/kubenode", "/kubenode"], "id": "1"}
    assert not os.path.exists("/run/kubenode/x")


def test_the_failure_of_a_twin_without_an_answer_names_the_step() -> None:
    def wait(isolated: isolation_backend.Isolated) -> dict[str, Any]:
        isolated.tell("send the packet")
        time.sleep(60)
        return {}

    with pytest.raises(Failure, match=r"within 5 s and was removed. Its last step was: send the packet\."):
        isolation_backend.run(wait, 5)


def test_the_failure_of_a_twin_that_was_killed_does_not_blame_the_time() -> None:
    with pytest.raises(Failure, match=r"the twin was killed, as the kernel does without memory\. Its last step was: "):
        isolation_backend.run(lambda _isolated: os.abort(), 60)


def test_a_program_inside_is_killed_at_its_deadline() -> None:
    def listen() -> float:
        started = time.monotonic()
        with pytest.raises(Uncertain, match=r"did not end within 0\.1 s and was killed"):
            process.run([str(process.find("ip")), "monitor"], seconds=0.1)
        return time.monotonic() - started

    assert 0.1 <= inside(listen) < process.GRACE  # by SIGTERM: the program has not inherited a mask that blocks it


def test_the_outside_does_not_poll_what_the_inside_has_left() -> None:
    inner, outer = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with inner:
        gate = wall_backend.Gate(0, inner)
        outer.close()
        assert gate.descriptors == [inner.fileno()]
        gate.serve(inner.fileno())
        assert not gate.descriptors


def test_a_kernel_without_user_namespaces_is_refused_with_the_next_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wall_backend, "CLONE_NEWUSER", 1)  # no flag of unshare(2)
    with pytest.raises(Refusal, match=r"user namespace for a twin: Invalid argument\. .* outputs on another machine"):
        isolation_backend.run(lambda _isolated: {}, 60)


def test_a_setting_that_forbids_user_namespaces_is_named() -> None:
    program = """
from ansible_collections.kubenode.datapath.plugins.module_utils._twin import isolation_backend
isolation_backend.run(lambda _isolated: {}, 60)
"""
    forbidding = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$0" -c "$1"'  # of the inner namespace alone
    words = ["unshare", "--user", "--map-root-user", "sh", "-c", forbidding, sys.executable, program]
    result = subprocess.run(words, capture_output=True, text=True, check=False)
    assert "(user.max_user_namespaces is 0)" in result.stderr and "Change user.max_user_namespaces, or run" in result.stderr


def descendants(pid: int) -> set[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children")
    children_of_process = {int(one) for one in children.read_text().split()} if children.exists() else set()
    return children_of_process.union(*map(descendants, children_of_process))


def test_a_killed_run_leaves_no_process_behind() -> None:
    program = """
import time
from ansible_collections.kubenode.datapath.plugins.module_utils._twin import isolation_backend
isolation_backend.run(lambda _isolated: time.sleep(60), 60)
"""
    with subprocess.Popen([sys.executable, "-c", program]) as one:
        end = time.monotonic() + 20
        while len(children_of_process := descendants(one.pid)) < 2 and time.monotonic() < end:
            time.sleep(0.05)
        time.sleep(0.5)
        one.kill()
        while any(map(os.path.exists, paths := [f"/proc/{pid}" for pid in children_of_process])) and time.monotonic() < end + 10:
            time.sleep(0.01)
        assert len(children_of_process) == 2 and not any(map(os.path.exists, paths))


SMALL = 512 << 20  # bytes; the kernel takes ten seconds for all that a twin may have


def fill() -> None:
    parts = []
    while True:
        parts.append(bytearray(b"x" * (64 << 20)))


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A bound of memory that is soon reached."""
    assert isolation_backend.MEMORY == wall_backend.LIMITS[resource.RLIMIT_AS] == 2 << 30
    monkeypatch.setattr(isolation_backend, "MEMORY", SMALL)
    return monkeypatch


def test_a_twin_that_needs_more_memory_than_its_bound_is_removed_and_the_error_names_the_bound(small: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        Failure, match=r"more than 512 MiB of memory, which is its bound, .* last step was: enter its namespaces\."
    ):
        inside(fill)


def test_what_the_kernel_allocates_for_a_twin_counts(small: pytest.MonkeyPatch) -> None:
    """Programs are small in which the kernel fills large tables of hashes for a twin."""

    def create() -> None:
        for number in range(4):
            run("ipset", "create", f"s{number}", "hash:ip", "hashsize", "33554432", "maxelem", "33554432")

    with pytest.raises(Failure, match="more than 512 MiB of memory, which is its bound"):
        inside(create)


def test_the_memory_of_a_process_is_bounded_where_no_control_group_can_be_made(small: pytest.MonkeyPatch) -> None:
    small.setattr(memory_group, "confine", lambda _pid, _most: None)
    small.setitem(wall_backend.LIMITS, resource.RLIMIT_AS, SMALL)
    with pytest.raises(Failure, match="more than 512 MiB of memory, which is its bound"):
        inside(fill)

    def run_out() -> dict[str, Any]:
        result = run(sys.executable, "-c", "parts = []\nwhile True: parts.append(bytearray(b'x' * (16 << 20)))")
        raise Failure(f"it failed: {result[1].splitlines()[-1]}")

    python = os.path.realpath(sys.executable)
    within = isolation_backend.root()
    within = within._replace(programs={**within.programs, sys.executable: python}, bound=(*within.bound, sys.base_prefix))
    with pytest.raises(
        Failure, match=r"it failed: MemoryError. One of its programs took \d+ MiB of memory; the bound is 512 MiB"
    ):
        isolation_backend.run(lambda _isolated: run_out(), 60, within)


def test_a_control_group_ends_with_its_twin_and_the_next_run_removes_those_of_killed_runs() -> None:
    with subprocess.Popen(["sleep", "60"]) as program:
        group = memory_group.confine(program.pid, SMALL)
        program.kill()
    assert group
    group.remove()
    parent = Path(group.folder).parent
    former = {*parent.iterdir()}
    (parent / f"{memory_group.PREFIX}{(1 << 22) + 1}").mkdir()  # no process has such a pid
    with pytest.raises(Failure):
        inside(os.abort)
    later = {path for path in parent.iterdir() if path.name.startswith(memory_group.PREFIX)} - former
    # A twin of another test may have begun meanwhile, and ended.
    pids = {path: path.name.removeprefix(memory_group.PREFIX) for path in later}
    assert all(Path("/proc", pid).exists() or not path.exists() for path, pid in pids.items())
