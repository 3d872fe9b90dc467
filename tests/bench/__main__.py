# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What ``make bench`` runs: ratios against a baseline of the same run, as machines differ and are noisy.

python -m bench [NAME ...]
"""

from __future__ import annotations

import sys

from bench import policy_routes, probe_snat

BENCHES = {"probe_snat": probe_snat.main, "policy_routes": policy_routes.main}


def main(names: list[str]) -> None:
    if not set(names) <= set(BENCHES):
        sys.exit(f"{__doc__}\nThere are: {', '.join(BENCHES)}")
    for name in names or BENCHES:
        BENCHES[name]()


if __name__ == "__main__":
    main(sys.argv[1:])
