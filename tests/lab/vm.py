# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node that is a small VM: it has a kernel of its own with all of its release's modules, a disk, and cards.

It is emulated, because /dev/kvm may exist and not work; it boots in about ten seconds and is reached by SSH alone. qemu runs in
the network of the machine next to it, and ends with the lab, however the lab ends.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from lab import entering, host, links, snapshot
from lab.booting import BootingNode
from lab.disk import Disk
from lab.entering import LabError
from lab.machine import Machine
from lab.prober import Prober
from lab.qmp import Qmp
from lab.ssh import PORT, Ssh
from lab.waiting import report, until

_QEMU = "qemu-system-x86_64"
_MEMORY = 512  # MiB
_SLOTS = 4  # for cards that are plugged in while it runs
BOOT_LIMIT = 600.0  # seconds; an idle machine needs ten, but emulation is slow on a busy one
_STUCK_LIMIT = 120.0  # seconds until a reboot counts as stuck: at times emulation stops where the kernel restarts or starts
_END = 2000  # characters of the console in a message
_END_LIMIT = 10.0  # seconds for qemu to end; it takes a tenth
_RESTARTING = "reboot: Restarting system"  # the kernel's last words: its disks are synchronised
_CARD_LIMIT = 10  # seconds for the kernel to find a card; it takes one

# net.ifnames=0: eth0, as in a cloud. No duplicate address detection, with its second of waiting. mitigations=off: speed.
# reboot=: at once, without stopping the other processor first, in which emulation on a busy machine got stuck.
KERNEL_ARGUMENTS = (
    "root=/dev/nvme0n1", "rw", "console=ttyS0", "quiet", "mitigations=off", "net.ifnames=0", "reboot=triple,force",
    "sysctl.net.ipv6.conf.all.accept_dad=0", "sysctl.net.ipv6.conf.default.accept_dad=0",
)  # fmt: skip

_NAME_OF_CARD = 'until grep -ls "$1" /sys/class/net/*/address; do sleep 0.1; done'


class Cable(NamedTuple):
    """The connection between a card of the VM, which has the MAC, and a link of a machine of the lab."""

    mac: str
    machine: Machine
    link: str


class VmNode(BootingNode):
    """A VM in a cloud. ``front`` is the machine next to it, from where it is reached; ``console`` is the log of its serial line.

    ``connect`` is called after each boot, for the links and addresses that a boot by itself does not make.
    """

    def __init__(
        self, name: str, disk: Disk, front: Machine, console: Path, connect: Callable[[VmNode], Any] = lambda node: None
    ) -> None:
        super().__init__(name, 0)
        self._disk = disk
        self._front = front
        self._console = console
        self._connect = connect
        self._slots: dict[str, str] = {}
        self._endings = contextlib.ExitStack()

    # Commands

    def command(
        self, argv: Sequence[str], namespaces: Sequence[str] = (), environment: Mapping[str, str] | None = None
    ) -> list[str]:
        """The ssh that runs ``argv``: a VM has one set of namespaces, and is reached by its network only."""
        return self._ssh.command(argv, {**entering.ENVIRONMENT, **(environment or {})})

    @property
    def connection(self) -> dict[str, Any]:
        return self._ssh.variables

    def _enter_network(self) -> None:
        raise LabError(f"{self.name} is a VM: the lab cannot open a socket behind another kernel")

    # Power

    def start(self, cables: Sequence[Cable], network: Sequence[str]) -> None:
        """Switch on, with these cards; ``network`` are arguments of the kernel that configure the cards.

        Returns at once. Its disk is a copy on write, which lasts as long as the process: over reboots, until ``close()``.
        """
        if not shutil.which(_QEMU):
            raise LabError(f"{_QEMU} is not installed, so no VM can run; apt-get install qemu-system-x86")
        taps = [links.tap(cable.machine, cable.link) for cable in cables]
        own_end, theirs = socket.socketpair()
        qemu = self._qemu([cable.mac for cable in cables], taps, theirs.fileno(), network)
        self._console.parent.mkdir(parents=True, exist_ok=True)
        with open(self._console, "wb") as console:
            process = subprocess.Popen(
                [*entering.ENDS_WITH_US, *entering.command(self._front.pid, entering.NETWORK_ONLY, qemu)],
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=subprocess.STDOUT,
                cwd="/",
                env=entering.ENVIRONMENT,
                pass_fds=[*taps, theirs.fileno()],
                start_new_session=True,  # Ctrl-C is for the lab
            )
        self._pid = process.pid
        self._endings.callback(process.wait, _END_LIMIT)
        self._endings.callback(process.terminate)
        for descriptor in (*taps, theirs.detach()):
            os.close(descriptor)
        try:
            self._qmp = Qmp(own_end)
        except LabError as error:
            raise LabError(f"{self.name}: {error}\n{self._console.read_text(errors='replace')}") from error
        self._endings.callback(self._qmp.close)
        self._ssh = Ssh(self.name, self.address, self._disk, self._front)
        self._endings.callback(self._ssh.close)

    def close(self) -> None:
        """Cut the power; the disk is gone."""
        self._endings.close()

    def reboot(self) -> None:
        """Shut down, boot, and wait until all units are started."""
        before = self.boot_id()
        self.run(["systemctl", "reboot"])
        self.follow_reboot(before)

    def follow_reboot(self, before: str, timeout: float = BOOT_LIMIT) -> None:
        """Wait until the node, whose ``boot_id()`` was ``before``, has rebooted. If it is stuck, press its reset button."""
        self._ssh.hang_up()
        self.forget_services()
        started = moved = time.monotonic()
        written = ""
        while not self._listens() or self.boot_id() in ("", before):
            self._ssh.hang_up()
            now, console = time.monotonic(), self._console.read_text(errors="replace")
            if console != written:
                moved, written = now, console
            if now > moved + _STUCK_LIMIT and _RESTARTING in console:
                moved = now
                self._qmp.execute("system_reset")
            if now > started + timeout:
                raise LabError(
                    f"{self.name} did not reboot within {timeout:g} s. {report()}. The end of {self._console}:\n{console[-_END:]}"
                )
            time.sleep(0.2)
        self.wait_until_booted()

    def wait_until_booted(self, states: Sequence[str] = ("running",), timeout: float = BOOT_LIMIT) -> str:
        until(f"{self.name} answers by SSH; its console is {self._console}", self._listens, limit=timeout, pause=0.2)
        state = super().wait_until_booted(states, timeout)
        self._connect(self)
        return state

    def boot_id(self) -> str:
        """The identity of the boot; empty between two boots."""
        return self.run(["cat", "/proc/sys/kernel/random/boot_id"], check=False).stdout.strip()

    def _listens(self) -> bool:
        return Prober(self._front).tcp(self.address, PORT, timeout=0.5, tries=1)

    # Cards

    def plug(self, cable: Cable) -> str:
        """Plug in a card while the VM runs; returns the card's link, once the kernel has found the card."""
        slot = next((name for name in _slot_names() if name not in self._slots.values()), None)
        if slot is None:
            raise LabError(f"{self.name} has {_SLOTS} slots for cards, and all are taken")
        card = f"card-{slot}"
        tap = links.tap(cable.machine, cable.link)
        self._qmp.execute("getfd", {"fdname": card}, tap)
        os.close(tap)
        self._qmp.execute("netdev_add", {"type": "tap", "id": f"net-{slot}", "fd": card})
        device = {"driver": "virtio-net-pci", "romfile": "", "id": card, "netdev": f"net-{slot}", "mac": cable.mac}
        self._qmp.execute("device_add", {**device, "bus": slot})
        self._slots[cable.mac] = slot
        path = self.run(["timeout", str(_CARD_LIMIT), "sh", "-c", _NAME_OF_CARD, "sh", cable.mac]).stdout
        return path.split("/")[-2]

    def unplug(self, cable: Cable) -> None:
        """Unplug a card that was plugged in while the VM ran; returns when the kernel has released it."""
        slot = self._slots.pop(cable.mac)
        self._qmp.execute("device_del", {"id": f"card-{slot}"})
        self._qmp.wait_for("DEVICE_DELETED", f"card-{slot}")
        self._qmp.execute("netdev_del", {"id": f"net-{slot}"})

    def snapshot(self) -> dict[str, Any]:
        """As of every node; its packages, and its files as they are: all of them are fetched, in a second or two."""
        kept = [path.lstrip("/") for path in snapshot.KEPT]
        pack = ["tar", "-C", "/", "--exclude=var/lib/dpkg/info", "-c", *kept]
        archive = host.output(self.command(pack))
        with tempfile.TemporaryDirectory() as folder:
            host.output(["tar", "-C", folder, "--same-owner", "-xp"], archive)
            root = Path(folder)
            return {**snapshot.network(self), "files": snapshot.tree(root), "packages": snapshot.packages(root)}

    # qemu

    def _qemu(self, macs: Sequence[str], taps: Sequence[int], qmp: int, network: Sequence[str]) -> list[str]:
        # Two processors of tcg now and then wait for each other for ever while a booting kernel patches itself.
        argv = [
            *(_QEMU, "-nodefaults", "-no-user-config", "-display", "none"),
            *("-machine", "q35", "-accel", "tcg", "-cpu", "Nehalem", "-smp", "1", "-m", str(_MEMORY)),
            *("-kernel", str(self._disk.kernel), "-append", " ".join(self._kernel_arguments(network))),
            *("-drive", f"file={self._disk.image},if=none,id=disk,format=raw,snapshot=on"),
            *("-device", "nvme,serial=lab,drive=disk", "-device", "virtio-rng-pci", "-serial", "stdio"),
            *("-chardev", f"socket,id=qmp,fd={qmp}", "-mon", "chardev=qmp,mode=control"),
        ]
        for number, (mac, tap) in enumerate(zip(macs, taps, strict=True)):
            argv += ["-netdev", f"tap,id=net{number},fd={tap}"]
            argv += ["-device", f"virtio-net-pci,netdev=net{number},mac={mac},romfile="]
        for chassis, slot in enumerate(_slot_names(), start=1):
            argv += ["-device", f"pcie-root-port,id={slot},chassis={chassis}"]
        return argv

    def _kernel_arguments(self, network: Sequence[str]) -> list[str]:
        identity = f"{self.place.number + 1:032x}"  # any value but zeros; the same at every boot
        return [*KERNEL_ARGUMENTS, f"systemd.hostname={self.name}", f"systemd.machine_id={identity}", *network]


def _slot_names() -> list[str]:
    return [f"slot{number}" for number in range(_SLOTS)]
