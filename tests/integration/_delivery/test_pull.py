# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""deploy/pull and deploy/cloud-init run the code of a signed tag, and of no other tag: real git, gpg and ansible-pull."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"
PLAYBOOK = """
- hosts: "{{ kubenode_target }}"
  gather_facts: false
  tasks:
    - ansible.builtin.copy: {content: "VERSION", dest: "{{ ran }}", mode: "0600"}
"""


class Site:
    """A repository, a key that may sign, a key that may not, and a node's files below a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.repository, self.ran = folder, folder / "origin", folder / "ran"
        self.checkout = folder / "var/lib/kubenode-pull/ansible_collections/kubenode/datapath"
        for name in ("release", "foreign", "etc/kubenode/gnupg"):
            (folder / name).mkdir(parents=True, mode=0o700)
        for name in ("release", "foreign"):
            self.gpg(name, "--passphrase", "", "--quick-generate-key", f"{name}@example.com", "ed25519", "sign", "never")
        self.key = folder / "etc/kubenode/release.asc"
        self.key.write_text(self.gpg("release", "--armor", "--export"))
        self.gpg("etc/kubenode/gnupg", "--import", str(self.key))
        (folder / "etc/kubenode/variables.yml").write_text(f"ran: {self.ran}\n")
        self.git("init", "--quiet", "--initial-branch=main", str(self.repository))

    def close(self) -> None:
        for name in ("release", "foreign", "etc/kubenode/gnupg"):
            subprocess.run(["gpgconf", "--homedir", str(self.folder / name), "--kill", "all"], check=False)

    def gpg(self, home: str, *words: str) -> str:
        command = ["gpg", "--batch", "--homedir", str(self.folder / home), *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def git(self, *words: str, key: str = "release") -> None:
        who = {"user.name": key, "user.email": f"{key}@example.com", "user.signingkey": f"{key}@example.com"}
        settings = [word for name, value in who.items() for word in ("-c", f"{name}={value}")]
        folder = [] if words[0] == "init" else ["-C", str(self.repository)]
        command = ["git", *settings, *folder, *words]
        environment = {**os.environ, "GNUPGHOME": str(self.folder / key)}
        subprocess.run(command, check=True, capture_output=True, env=environment)

    def commit(self, version: str) -> None:
        """A commit whose playbook writes ``version``, with the units of this project."""
        shutil.copytree(DEPLOY / "pull", self.repository / "deploy/pull", dirs_exist_ok=True)
        (self.repository / "playbooks").mkdir(exist_ok=True)
        (self.repository / "playbooks/aks_dual_stack.yml").write_text(PLAYBOOK.replace("VERSION", version))
        self.git("add", ".")
        self.git("commit", "--quiet", "--no-gpg-sign", "--message", version)

    def here(self, text: str) -> str:
        """A text of deploy/ with the node's paths below this site's folder."""
        return re.sub(r"(?<![\w.])/(?=etc/kubenode|etc/systemd|var/lib/kubenode-pull)", f"{self.folder}/", text)

    def configure(self, tag: str) -> dict[str, str]:
        text = (DEPLOY / "pull/pull.env").read_text()
        text = re.sub(r"(?m)^REPOSITORY=.*", f"REPOSITORY=file://{self.repository}", text)
        text = re.sub(r"(?m)^TAG=.*", f"TAG={tag}", text)
        (self.folder / "etc/kubenode/pull.env").write_text(text)
        return dict(line.split("=", 1) for line in text.splitlines() if line and line[0] != "#")

    def pull(self, tag: str) -> subprocess.CompletedProcess[str]:
        """Runs the unit's command line in its environment, as systemd reads them."""
        unit = self.here((DEPLOY / "pull/kubenode-pull.service").read_text()).replace("\\\n", "")
        variables = self.configure(tag)
        environment = dict(line.split("=", 1) for line in re.findall(r"(?m)^Environment=(.*)$", unit))
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        environment = {"PATH": path, "LC_ALL": "C.UTF-8", **variables, **environment, "HOME": str(self.folder)}
        (self.folder / "var/lib/kubenode-pull").mkdir(parents=True, exist_ok=True)  # StateDirectory=
        for line in re.findall(r"(?m)^ExecStart(?:Pre)?=(.*)$", unit):
            command = [expanded(word, variables) for word in shlex.split(line)]
            result = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
            if result.returncode:
                break
        return result

    def boot(self, tag: str) -> tuple[int, list[str]]:
        """Runs the commands of user data, with a systemctl that records its arguments."""
        self.configure(tag)
        systemctl, asked = self.folder / "bin/systemctl", self.folder / "asked"
        systemctl.parent.mkdir(exist_ok=True)
        systemctl.write_text(f'#!/bin/sh\necho "$@" >> {asked}\n')
        systemctl.chmod(0o755)
        (self.folder / "etc/systemd/system").mkdir(parents=True, exist_ok=True)
        [command] = yaml.safe_load((DEPLOY / "cloud-init/user-data").read_text())["runcmd"]
        environment = {"PATH": f"{systemctl.parent}:{os.environ['PATH']}", "HOME": str(self.folder)}
        result = subprocess.run([self.here(word) for word in command], capture_output=True, check=False, env=environment)
        return result.returncode, asked.read_text().splitlines() if asked.exists() else []

    def unit(self, name: str) -> str:
        """A unit that user data installed."""
        return (self.folder / "etc/systemd/system" / name).read_text()


def expanded(word: str, variables: dict[str, str]) -> str:
    """A word of a command line of a unit, as systemd gives it to the program."""
    named = re.sub(r"(?<!\$)\$\{(\w+)\}", lambda found: variables[found[1]], word)
    return named.replace("$$", "$").replace("%%", "%")


@pytest.fixture
def site() -> Iterator[Site]:
    # gpg-agent has a socket in gpg's folder, whose path has at most 107 bytes (unix(7)): the folder of a test is longer.
    with tempfile.TemporaryDirectory(prefix="pull-") as folder:
        made = Site(Path(folder))
        made.commit("1")
        yield made
        made.close()


def test_a_signed_tag_runs_and_is_followed_when_it_moves(site: Site) -> None:
    site.git("tag", "--sign", "--message=1", "stable")
    completed = site.pull("stable")
    assert (completed.returncode, site.ran.read_text()) == (0, "1"), completed.stdout + completed.stderr
    site.commit("2")
    site.git("tag", "--sign", "--force", "--message=2", "stable")
    (site.checkout / "playbooks/aks_dual_stack.yml").write_text("changed on the node")
    completed = site.pull("stable")
    assert (completed.returncode, site.ran.read_text()) == (0, "2"), completed.stdout + completed.stderr


TAGS = {
    "foreign": (["tag", "--sign", "--message=2"], "foreign"),
    "unsigned": (["tag", "--annotate", "--no-sign", "--message=2"], "release"),
    "lightweight": (["tag", "--no-sign"], "release"),
}


@pytest.mark.parametrize("kind", TAGS)
def test_nothing_runs_from_a_tag_without_a_known_signature(site: Site, kind: str) -> None:
    words, key = TAGS[kind]
    site.git(*words, "v2", key=key)
    for _attempt in range(2):  # the first run leaves a checkout
        completed = site.pull("v2")
        assert completed.returncode != 0
        assert (
            "Failed to verify GPG signature" if kind != "lightweight" else "without a signature"
        ) in completed.stdout + completed.stderr
        assert not site.ran.exists()


def test_an_older_tag_under_the_name_of_another_does_not_run(site: Site) -> None:
    """Its signature is valid."""
    site.git("tag", "--sign", "--message=1", "v1")
    site.git("update-ref", "refs/tags/v2", "refs/tags/v1")
    completed = site.pull("v2")
    assert completed.returncode != 0 and "The repository has the tag v1 under the name v2" in completed.stderr
    code, asked = site.boot("v2")
    assert (code != 0, asked, site.ran.exists()) == (True, [], False)


def test_user_data_installs_the_units_from_a_signed_tag_only(site: Site) -> None:
    site.git("tag", "--annotate", "--no-sign", "--message=1", "unsigned")
    code, asked = site.boot("unsigned")
    assert (code != 0, asked, list((site.folder / "etc/systemd/system").iterdir())) == (True, [], [])


def test_a_branch_with_the_name_of_the_signed_tag_does_not_run(site: Site) -> None:
    """git clone prefers the branch, and git verify-tag the tag, which this server sends with every answer."""
    site.git("tag", "--sign", "--message=1", "v1")
    adds_tag = site.folder / "adds-tag"
    adds_tag.write_text('#!/bin/sh\n(git rev-parse refs/tags/v1; cat) | "$@"\n')
    adds_tag.chmod(0o755)
    (site.folder / ".gitconfig").write_text(f"[uploadpack]\npackObjectsHook = {adds_tag}\n")
    site.git("switch", "--quiet", "--create", "v1")
    foreign = site.repository / "deploy/pull/kubenode-pull.service"
    foreign.write_text("[Service]\nExecStart=sh -c 'run the branch'\n")
    (site.repository / "playbooks/aks_dual_stack.yml").write_text(PLAYBOOK.replace("VERSION", "branch"))
    site.git("commit", "--quiet", "--all", "--no-gpg-sign", "--message=branch")
    code, _asked = site.boot("v1")
    assert (code, site.unit("kubenode-pull.service")) == (0, (DEPLOY / "pull/kubenode-pull.service").read_text())
    completed = site.pull("v1")
    assert (completed.returncode, site.ran.read_text()) == (0, "1"), completed.stdout + completed.stderr


def test_user_data_runs_the_service_and_then_enables_its_timer(site: Site) -> None:
    site.git("tag", "--sign", "--message=1", "v1")
    started = ["start kubenode-pull.service", "enable --now kubenode-pull.timer"]
    assert site.boot("v1") == (0, ["daemon-reload", *started])
    for name in ("kubenode-pull.service", "kubenode-pull.timer"):
        assert site.unit(name) == (DEPLOY / "pull" / name).read_text()
    completed = site.pull("v1")  # in the repository that user data made
    assert (completed.returncode, site.ran.read_text()) == (0, "1"), completed.stdout + completed.stderr
