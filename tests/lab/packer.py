# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Images that Packer builds from the templates in packer/, as a user builds them."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lab import collection, host, images, inventory, vm
from lab.disk import Disk, DiskFiles
from lab.entering import LabError

_TEMPLATES = collection.CHECKOUT / "packer"
_GUEST = "ip=10.0.2.15::10.0.2.2:255.255.255.0::eth0:none"  # the port to which qemu's user network forwards SSH
_PYTHON = {"ansible_python_interpreter": "/usr/bin/python3"}


def build_by_booting(base: Disk, folder: Path, variables: Mapping[str, str]) -> Disk:
    """Boot a copy of the disk, in ``folder``, for Ansible; ``variables`` are the roles'."""
    image = folder / "node.raw"
    kernel = [*vm.KERNEL_ARGUMENTS, "systemd.hostname=build", f"systemd.machine_id={1:032x}", _GUEST]
    devices = ["nvme,serial=lab,drive=disk", "virtio-net-pci,netdev=user.0,romfile=", "virtio-rng-pci"]
    qemuargs = [
        *(["-machine", "q35"], ["-cpu", "Nehalem"], ["-kernel", str(base.kernel)], ["-append", " ".join(kernel)]),
        *(["-drive", f"file={image},if=none,id=disk,format=raw"], *(["-device", device] for device in devices)),
        ["-serial", f"file:{folder.with_suffix('.console.log')}"],
    ]
    _build(
        "kubenode.pkr.hcl",
        folder.with_suffix(".pkrvars.json"),
        base_image=str(base.image),
        format="raw",
        ssh_private_key_file=str(base.key),
        accelerator="tcg",
        output_directory=str(folder),
        node_variables={**_PYTHON, **variables},
        qemuargs=qemuargs,
    )
    return base._replace(image=image)


def build_in_chroot(base: Disk, image: Path, variables: Mapping[str, str], collections: Path) -> Disk:
    """Let Ansible change the files of a copy of the disk, without booting it. ``collections`` has the connection plugin."""
    host.run(["cp", "--sparse=always", base.image, image])
    _build(
        "chroot.pkr.hcl",
        image.with_suffix(".pkrvars.json"),
        DiskFiles(image).mounted("rw", ["env", f"ANSIBLE_COLLECTIONS_PATH={collection.path(collections)}"]),
        root="/mnt",
        node_variables={**_PYTHON, **variables},
    )
    return base._replace(image=image)


def validate(template: Path, **variables: str) -> None:
    """Validate the template and its options with Packer; nothing is built."""
    _packer(["validate", *(f"-var={name}={value}" for name, value in variables.items()), str(template)])


def _build(template: str, variables_file: Path, through: Sequence[str] = (), **variables: Any) -> None:
    """``through``: a command that runs the command after it."""
    variables_file.parent.mkdir(parents=True, exist_ok=True)
    variables_file.write_text(json.dumps(variables))
    options = ["-color=false", "-force", f"-var-file={variables_file}"]
    _packer(["build", *options, str(_TEMPLATES / template)], through)


def _packer(arguments: Sequence[str], through: Sequence[str] = ()) -> None:
    """Run Packer in the checkout. Its output is shown at once."""
    home = images.cache() / "packer"
    environment = {
        **os.environ,
        **inventory.environment(),
        "CHECKPOINT_DISABLE": "1",  # no query for a newer version
        "PACKER_CACHE_DIR": str(home),
        "PACKER_CONFIG_DIR": str(home),
    }
    result = subprocess.run(
        [*host.ALONE, *through, "packer", *arguments],
        check=False, stdin=subprocess.DEVNULL, cwd=collection.CHECKOUT, env=environment,
    )  # fmt: skip
    if result.returncode != 0:
        raise LabError(f"packer {' '.join(arguments)} ended with {result.returncode}; its output above tells why")
