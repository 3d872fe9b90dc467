# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import importlib.util
import typing as t

from ansible.errors import AnsibleFilterError


def importable(name: t.Any) -> bool:
    if not isinstance(name, str) or not name.isidentifier():
        raise AnsibleFilterError(f"importable tests {name!r}; it must be the name of a Python package, as pyroute2")
    return importlib.util.find_spec(name) is not None


class TestModule:
    def tests(self) -> dict[str, t.Callable[..., bool]]:
        return {"importable": importable}
