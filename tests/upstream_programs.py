# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The programs that variables of ``make upstream`` name by their paths."""

from __future__ import annotations

import os
from pathlib import Path

from installation import NotInstalled

CNIS = {"AWS_CNI_HOST": "program around the code of amazon-vpc-cni-k8s", "AZURE_VNET": "azure-vnet"}
"""The variable of each program of a CNI, and what it names."""


def path(variable: str, program: str) -> Path | None:
    """Return the path that the variable has, or None if it has none. Raise NotInstalled if there is no program."""
    value = os.environ.get(variable)
    if not value:
        return None
    absolute = Path(value).absolute()
    if not os.access(absolute, os.X_OK) or not absolute.is_file():
        raise NotInstalled(f"{variable} is {value}, which is no program. Set it to the path of an executable {program}")
    return absolute


def cnis() -> dict[str, Path]:
    """Map each variable that names a program of a CNI to the program's path."""
    value = {variable: path(variable, program) for variable, program in CNIS.items()}
    return {variable: program for variable, program in value.items() if program}
