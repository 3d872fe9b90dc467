# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""What the running kernel says of itself in /proc and /sys: modules, settings, addresses. Read only, no process started."""

from __future__ import annotations

import functools
import ipaddress
import os
import time
from pathlib import Path


def is_ready(module: str) -> bool:
    """False where ``module`` is a loadable module that is not loaded, so that using it would load it; and without /proc.

    A module built into the kernel stands neither in /proc/modules nor in modules.dep. In a chroot the kernel's modules are in
    its builder's root.
    """
    if module in (line.split(" ", 1)[0] for line in _lines("/proc/modules")):
        return True
    root = "" if is_own_root() else "/proc/1/root"
    if root and not os.path.isdir("/proc/self"):
        return False
    dependencies = _lines(f"{root}/lib/modules/{os.uname().release}/modules.dep")
    return not any(f"/{module}.ko" in line.split(":", 1)[0] for line in dependencies)


def is_used(module: str) -> bool:
    """Whether something takes hold of ``module``. Of one that is built in, or can not be unloaded, nothing tells: True."""
    for line in _lines("/proc/modules"):
        name, _size, count, *_rest = line.split()  # proc_modules(5)
        if name == module:
            return count != "0"
    return any(line.endswith(f"/{module}.ko") for line in _lines(f"/lib/modules/{os.uname().release}/modules.builtin"))


def setting(key: str) -> int | None:
    """A number under /proc/sys, as ``net/ipv6/conf/eth0/forwarding``; None where the key is not there."""
    lines = _lines(f"/proc/sys/{key}")
    return int(lines[0]) if lines else None


@functools.cache
def booted_at() -> float:
    """When process 1 was started, in seconds since the epoch; a container's is younger than the kernel, as its links are."""
    ticks = int(Path("/proc/1/stat").read_text(encoding="ascii").rpartition(")")[2].split()[19])  # proc_pid_stat(5): 22
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + ticks / os.sysconf("SC_CLK_TCK")


def set_up_at(ifindex: int) -> float | None:
    """When udev began to set up a link, in seconds since the epoch; None where it did not."""
    # systemd, src/libsystemd/sd-device/device-private.c: microseconds of CLOCK_MONOTONIC
    found = [int(line[2:]) for line in _lines(f"/run/udev/data/n{ifindex}") if line.startswith("I:")]
    return time.time() - time.clock_gettime(time.CLOCK_MONOTONIC) + found[0] / 1e6 if found else None


def global_ipv6_addresses(link: str) -> list[str]:
    """A link's IPv6 addresses of global scope, unique local ones included, without those that are still tentative."""
    addresses = []
    for line in _lines("/proc/net/if_inet6"):
        # address in 32 hexadecimal digits, the link's index, prefix length, scope, flags, link
        digits, _index, _length, scope, flags, name = line.split()
        if name == link and scope == "00" and not int(flags, 16) & IFA_F_TENTATIVE:
            addresses.append(str(ipaddress.IPv6Address(int(digits, 16))))
    return addresses


IFA_F_TENTATIVE = 0x40  # include/uapi/linux/if_addr.h: duplicate address detection is not through


def boot_identity() -> str:
    """Tells this boot from others.

    In a container that is started again the kernel is the same; its network may get the number of the one before, its
    process 1 starts at another time (proc_pid_stat(5), the 22nd word: in clock ticks since the kernel was booted).
    """
    network = os.readlink("/proc/self/ns/net")
    started = [stat.split(" ")[21] for stat in _lines("/proc/1/stat")]
    return "\n".join([*_lines("/proc/sys/kernel/random/boot_id"), network, *started])


def is_own_root() -> bool:
    """False in a chroot or a container's root that is not process 1's: there, "the kernel" is somebody else's.

    The file system that is mounted on / tells, rather than /proc/1/root, which needs the right to trace process 1. In a
    plain chroot nothing is mounted on /, and in a root without /proc nothing can be told.
    """
    here, init = _root_mount("self"), _root_mount("1")
    return here is not None and here == init


def _root_mount(process: str) -> tuple[str, str] | None:
    """The device, and the folder on it, that a process sees as /; of several mounted there the last is on top."""
    # proc_pid_mountinfo(5): mount's number, its parent's, major:minor, folder on the device, mount point, ...
    mounts = [line.split(" ")[2:5] for line in _lines(f"/proc/{process}/mountinfo")]
    roots = [(device, folder) for device, folder, point in mounts if point == "/"]
    return roots[-1] if roots else None


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text(errors="replace").splitlines()
    except OSError:
        return []
