# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import struct

from ansible_collections.kubenode.datapath.plugins.module_utils._snapshot import counters


def test_numbers_of_all_processors_are_added() -> None:
    text = "entries  drop early_drop insert_failed\n0000000a 00000001 00000000 00000010\n0000000a 00000002 00000000 0000000f\n"
    assert counters.sums(text, counters.TRACKED) == {"insert_failed": 31, "drop": 3, "early_drop": 0}
    assert counters.sums("", counters.TRACKED) == {}


def test_a_kernel_that_does_not_count_frames_for_others_has_none() -> None:
    fields = struct.pack("=25Q", *range(25))
    assert counters.otherhost_dropped(fields) == 24
    assert counters.otherhost_dropped(fields[:192]) == counters.otherhost_dropped(b"") == 0
