# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``dial.py PID ADDRESS PORT``: ssh's ProxyCommand with ProxyUseFdpass.

Connects from the network of process PID and hands the connection to ssh, which reads it from what is stdout here
(ssh_config(5)): no process is left between the two.
"""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

# ssh starts this file by its path; the package lab is in tests/.
sys.path.append(str(Path(__file__).resolve().parents[1]))

from lab.machine import Machine


def main() -> None:
    pid, address, port = sys.argv[1:]
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with Machine("ssh", int(pid)).socket(family, socket.SOCK_STREAM) as connection:
        connection.connect((address, int(port)))
        with socket.socket(fileno=os.dup(sys.stdout.fileno())) as ssh:
            socket.send_fds(ssh, [b"\0"], [connection.fileno()])


if __name__ == "__main__":
    main()
