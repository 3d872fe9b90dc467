# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Reads the container runtime's records of the pods' addresses. Starts no process."""

from __future__ import annotations

import os

from .._files import files
from . import attachments as model
from .attachments import Attachment


def attachments(folder: str = model.FOLDER) -> list[Attachment]:
    """Return the attachments of pods, sorted, without records of pods that ended with an earlier boot."""
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    records = (model.attachment(files.text_or_empty(os.path.join(folder, name))) for name in names)
    return sorted(record for record in records if record and (not record.netns or os.path.exists(record.netns)))
