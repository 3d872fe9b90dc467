# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The pictures of a trace and an audit of a real node: on a terminal, and as a page, light and dark.

Run by ``make docs``. The node is of network namespaces. The pictures are committed, and the same as long as node, text and
style are.
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from typing import Any

from PIL import Image, ImageChops

from ansible_collections.kubenode.datapath.plugins.module_utils._render import audit_page, terminal, trace_page
from generators import terminal_picture
from lab import Eni, EniLab, host
from lab.eni import CLIENT, PRIMARY
from lab.steps import Steps

FOLDER = Path(__file__).resolve().parents[2] / "docs/pictures"
TIME = "2026-11-01 12:00:00 UTC"  # of the snapshot in the pictures, so that two runs of `make docs` draw the same
BROWSER = "chromium-headless-shell"
SCHEMES = {"light": 1, "dark": 0}  # by Chromium's numbers (third_party/blink/public/mojom/css/preferred_color_scheme.mojom)
WIDTH, HEIGHT = 1080, 4000  # of the window; a picture ends where its content does
SIDE = 16  # below the content
MOST_BYTES = 150_000
NODE_PORT, STRICT = 30080, 1
REST = "\x1b[2m(further findings, and the profile that the node needs with its variables)\x1b[0m"


def main() -> None:
    enis = [Eni("eth1", pods=["pod1"], has_address=True)]
    with EniLab("pictures", enis) as lab:
        node = lab.node("node1")
        node.filter_reverse_path(STRICT)
        node.service(NODE_PORT, [lab.pod("pod1").address], "Local", backend="iptables")
        packet = {"source": CLIENT, "destination": PRIMARY.address, "destination_port": NODE_PORT, "interface": "eth0"}
        answer = Steps(node, "datapath_trace", {"packet": packet}).run()
        audit = Steps(node, "datapath_audit", {}).run()
        versions = Steps(node, "datapath_info", {"gather": ["versions"]}).run()["snapshot"]["versions"]
    # Without the kernel, which differs from one run of `make docs` to another.
    shown = {name: versions[name] for name in ("collection", "nft", "iptables")}
    about = {"source": "the running node", "versions": shown}
    for result in (answer, audit):
        result["node"] = {"name": node.name, "time": TIME}
    FOLDER.mkdir(exist_ok=True)
    take("trace-page", trace_page.html(answer, about))
    line = f"tcp {CLIENT} > {PRIMARY.address}:{NODE_PORT} in eth0"
    draw("trace", f"kubenode-datapath trace live '{line}'", terminal.trace(answer, colours=True))
    take("audit-page", audit_page.text({node.name: audit}).replace("<details", "<details open", 1))
    findings = terminal.audit(audit, colours=True)
    summary, first, *_others = findings.split("\n\n")
    draw("audit", "kubenode-datapath audit live", findings)
    draw("audit-first", "kubenode-datapath audit live", f"{summary}\n\n{first}\n\n{REST}")


def draw(name: str, command: str, output: str) -> None:
    """Write the picture of a terminal."""
    path = FOLDER / f"{name}.svg"
    path.write_text(terminal_picture.svg(command, output))
    print(f"{path}: {path.stat().st_size} bytes")


def take(name: str, html: str) -> None:
    """Write the pictures of a page."""
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "page.html", Path(folder) / "page.png"
        source.write_text(html)
        for scheme, number in SCHEMES.items():
            options = [f"--window-size={WIDTH},{HEIGHT}", f"--blink-settings=preferredColorScheme={number}", "--hide-scrollbars"]
            command = [BROWSER, "--no-sandbox", *options, f"--screenshot={target}", source.as_uri()]  # a sandbox refuses root
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            keep(Image.open(target).convert("RGB"), FOLDER / f"{name}-{scheme}.png")


def keep(picture: Any, path: Path) -> None:
    """Write a picture without the empty space below its content, with a palette."""
    background = Image.new("RGB", picture.size, picture.getpixel((0, picture.height - 1)))
    bottom = ImageChops.difference(picture, background).getbbox()[3]
    picture.crop((0, 0, picture.width, min(bottom + SIDE, picture.height))).quantize(256).save(path, optimize=True)
    size = path.stat().st_size
    if size > MOST_BYTES:
        raise SystemExit(f"{path} has {size} bytes; at most {MOST_BYTES} are committed. Shorten the trace, or make it narrower")
    print(f"{path}: {size} bytes")


if __name__ == "__main__":
    host.reported(main)
