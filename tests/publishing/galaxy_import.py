# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Import the collection as Galaxy does, with galaxy-importer. A warning is a failure.

galaxy_import.py ARCHIVE
"""

from __future__ import annotations

import importlib
import logging
import sys
from pathlib import Path

# ansible-test is left to `make sanity`, which runs it with each ansible-core.
SETTINGS = {"run_ansible_doc": True, "run_ansible_lint": True, "run_ansible_test": False, "check_changelog": True}


class Complaints(logging.Handler):
    """Keeps each message of a warning or an error."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


def main(archive: Path) -> None:
    logger, complaints = logging.getLogger("galaxy_importer"), Complaints()
    logger.setLevel(logging.INFO)
    logger.addHandler(complaints)
    config = importlib.import_module("galaxy_importer.config").Config(config_data=SETTINGS)
    with archive.open("rb") as file:
        result = importlib.import_module("galaxy_importer.collection").import_collection(file, logger=logger, cfg=config)
    if complaints.messages:
        sys.exit("\n".join(["galaxy-importer warns:", *complaints.messages]))
    contents = result["contents"]
    print(f"galaxy-importer imports {archive.name} without a warning: {len(contents)} files and roles")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
