# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Facts about the running kernel from /proc and /sys: modules, settings, boot, root. Only reads, and starts no process."""

from __future__ import annotations

import functools
import os
import time


def is_ready(module: str) -> bool:
    """Return False if ``module`` is a loadable module that is not loaded, so that using it would load it.

    Also False without /proc.

    A built-in module is neither in /proc/modules nor in modules.dep. In a chroot, the kernel's modules are in the root of
    process 1.
    """
    if is_loaded(module):
        return True
    root = "" if is_own_root() else "/proc/1/root"
    if root and not os.path.isdir("/proc/self"):
        return False
    dependencies = lines(f"{root}/lib/modules/{os.uname().release}/modules.dep")
    return not any(f"/{module}.ko" in line.split(":", 1)[0] for line in dependencies)


def is_loaded(module: str) -> bool:
    """Return whether ``module`` is a loadable module that is loaded. False if it is built in."""
    return module in (line.split(" ", 1)[0] for line in lines("/proc/modules"))


def is_used(module: str) -> bool:
    """Return whether ``module`` is in use.

    True also if the kernel does not tell: the module is built in or cannot be unloaded.
    """
    for line in lines("/proc/modules"):
        name, _size, count, *_rest = line.split()  # proc_modules(5)
        if name == module:
            return count != "0"
    return any(line.endswith(f"/{module}.ko") for line in lines(f"/lib/modules/{os.uname().release}/modules.builtin"))


def release() -> tuple[int, ...]:
    """Return the version of Linux as two numbers, such as (6, 8)."""
    return tuple(int(number) for number in os.uname().release.partition("-")[0].split(".")[:2] if number.isdigit())


def setting(key: str) -> int | None:
    """Return a number under /proc/sys, as ``net/ipv6/conf/eth0/forwarding``; None if there is no such key."""
    value = lines(f"/proc/sys/{key}")
    return int(value[0]) if value else None


@functools.cache
def _first_process_start() -> float:
    """Return when process 1 started, in seconds of CLOCK_BOOTTIME, which cannot be set."""
    ticks = int(_text("/proc/1/stat").rpartition(")")[2].split()[19])  # proc_pid_stat(5): 22
    return ticks / os.sysconf("SC_CLK_TCK")


def uptime() -> float:
    """Return seconds since process 1 started. In a container it is younger than the kernel, as are the links."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) - _first_process_start()


def booted_at() -> float:
    """Return when process 1 started, in seconds since the epoch, and by the clock of today; see by_either_clock()."""
    return time.time() - uptime()


def by_either_clock(today: float, unit: str) -> float:
    """Return when systemd started a unit at the latest, for a comparison with times of files.

    today: the time by the clock of today. The clock may have been set since then, and files have the times of the clock as it
    was, as has the link that systemd makes when it starts a unit (src/core/unit.c, unit_export_invocation_id). The earlier of
    both is returned, so that a file that is younger by either clock counts as younger.
    """
    try:
        return min(today, os.lstat(f"/run/systemd/units/invocation:{unit}").st_mtime)
    except OSError:
        return today


def set_up_at(ifindex: int) -> float | None:
    """Return when udev began to set up a link, in seconds since the epoch; None if it did not."""
    # systemd, src/libsystemd/sd-device/device-private.c: microseconds of CLOCK_MONOTONIC
    times = [int(line[2:]) for line in lines(f"/run/udev/data/n{ifindex}") if line.startswith("I:")]
    return time.time() - time.clock_gettime(time.CLOCK_MONOTONIC) + times[0] / 1e6 if times else None


def boot_identity() -> str:
    """Return a text that identifies this boot of the node.

    A container that is started again has the same kernel, and its network namespace may get the same number as before. But its
    process 1 starts at another time (proc_pid_stat(5), the 22nd word: in clock ticks since the kernel was booted).
    """
    network = os.readlink("/proc/self/ns/net")
    started = [stat.split(" ")[21] for stat in lines("/proc/1/stat")]
    return "\n".join([*lines("/proc/sys/kernel/random/boot_id"), network, *started])


def is_own_root() -> bool:
    """Return False in a chroot or a container whose root is not that of process 1: the running kernel is another system's there.

    The file systems mounted on / are compared. /proc/1/root is not used, because it needs the right to trace process 1. In a
    plain chroot nothing is mounted on /, and a root without /proc cannot be compared: False for both.
    """
    here, init = _root_mount("self"), _root_mount("1")
    return here is not None and here == init


def is_managed_by_systemd() -> bool:
    """Return whether systemd manages this root (sd_booted(3)). False in a chroot, even if it has the /run of its builder."""
    return os.path.isdir("/run/systemd/system") and is_own_root()


def _root_mount(process: str) -> tuple[str, str] | None:
    """Return the device, and the folder on it, that a process sees as /. If several are mounted there, the last one is on top."""
    # proc_pid_mountinfo(5): mount's number, its parent's, major:minor, folder on the device, mount point, ...
    mounts = [line.split(" ")[2:5] for line in lines(f"/proc/{process}/mountinfo")]
    roots = [(device, folder) for device, folder, point in mounts if point == "/"]
    return roots[-1] if roots else None


def lines(path: str) -> list[str]:
    """Return the lines of a file of /proc or /sys; none if it cannot be read."""
    try:
        return _text(path).splitlines()
    except OSError:
        return []


def _text(path: str) -> str:
    with open(path, errors="replace") as file:
        return file.read()
