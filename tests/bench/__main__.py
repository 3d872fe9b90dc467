# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``make bench``: ratios against a baseline of the same run, because machines differ and are noisy.

    python -m bench [NAME ...]

Each file beside this one whose ``main`` prints figures is a bench.
"""

from __future__ import annotations

import sys

from bench import (
    agent,
    audit,
    boot,
    bundle,
    converged,
    datapath_info,
    ebtables,
    fleet,
    growth,
    policy_routes,
    probes,
    return_path,
    roles,
    rule_return,
    trace,
)
from bench.measure import MISSED
from lab import host

BENCHES = {
    "converged": converged.main,
    "roles": roles.main,
    "boot": boot.main,
    "policy_routes": policy_routes.main,
    "rule_return": rule_return.main,
    "return_path": return_path.main,
    "probes": probes.main,
    "ebtables": ebtables.main,
    "fleet": fleet.main,
    "datapath_info": datapath_info.main,
    "trace": trace.main,
    "bundle": bundle.main,
    "audit": audit.main,
    "agent": agent.main,
    "growth": growth.main,
}


def main(names: list[str]) -> None:
    unknown = set(names) - set(BENCHES)
    if unknown:
        sys.exit(f"no bench is named {', '.join(sorted(unknown))}; there are: {', '.join(BENCHES)}")
    for name in names or BENCHES:
        BENCHES[name]()
    if MISSED:  # no failure: the figures of a busy machine are a reader's to judge
        print(f"over target: {'; '.join(MISSED)}")


if __name__ == "__main__":
    host.reported(lambda: main(sys.argv[1:]))
