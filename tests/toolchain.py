# Copyright (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All that `make` does: each part of the test is a list of checks, run one after another; two parts run at a time.

    toolchain.py integration lint sanity unit cluster faults molecule image oldest_core
                                                               run these parts, with a summary at the end
    toolchain.py quick all_sanity sanity_next docs cli cores thorough workflows    so are these, which are no part of the test
    toolchain.py all_molecule upstream kind userland fuzz mutants    and these
    toolchain.py release publish                               so are these, which build a release, and hand it to PLACE
    toolchain.py demo | bench | all_cluster | all_faults    a program or a suite by itself
    toolchain.py check CHECK ...                               some checks of lint, as ruff or mypy
    toolchain.py sanity TEST [FILE ...]                        one test of ansible-test sanity, on these files or all
    toolchain.py run COMMAND ...                               run a command with all tools and the collection in place
    toolchain.py run-oldest COMMAND ...                        the same on the oldest Python, with the tools of unit tests
    toolchain.py clean | clean_cache                           remove what was built in the checkout; the cache

All but `run`, `run-oldest` and the cleaning work in an enclosure, which ends with them; see enclosure.py.

The standard library of Python 3.9 is enough to run this file; installation.py sees to the rest. What is installed goes
to a cache outside the checkout, what is computed to .build/, and every log to .build/logs/.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import enclosure
import installation
import kube_proxy_release
import leftovers
import preflight
import selection
import upstream_programs
from installation import LOGS, say
from leftovers import CACHE, ROOT

BUILD = ROOT / ".build"
COLLECTION = BUILD / "collections/ansible_collections/kubenode/datapath"
LEFT_OUT: list[str] = []  # checks that this machine cannot make; the summary repeats them


class Check(NamedTuple):
    name: str
    command: list[str]
    env: dict[str, str]
    cwd: Path = ROOT


def leave_out(text: str) -> None:
    say(text)
    LEFT_OUT.append(text)


def environment(tools: Path) -> dict[str, str]:
    """The environment of a command: the tools first on PATH, `ansible_collections` and `lab` to import, caches in .build/."""
    return {
        **os.environ,
        "PATH": f"{tools}:{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin",  # nft, where a shell lacks sbin
        "PYTHONPATH": f"{BUILD / 'collections'}:{ROOT / 'tests'}",
        "PYTHONUNBUFFERED": "1",
        "PYTHONHASHSEED": "0",  # a fixed order of sets: a test that fails must fail again
        "ANSIBLE_COLLECTIONS_PATH": str(BUILD / "collections"),
        "HYPOTHESIS_STORAGE_DIRECTORY": str(BUILD / "hypothesis"),
        "MOLECULE_GLOB": "molecule/*/molecule.yml",  # molecule's default is another folder
        "MYPYPATH": ":".join(map(str, (BUILD / "collections", ROOT / "tests", *selection.OF_DEPLOY))),
    }


def prepare(packages: list[str]) -> None:
    LOGS.mkdir(parents=True, exist_ok=True)
    COLLECTION.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        COLLECTION.symlink_to("../../../..")
    installation.install_packages(packages)


def lint() -> Iterator[Check]:
    prepare(installation.PYTHON)
    env = environment(installation.main_venv())
    yield Check("ansible-lint", ["ansible-lint", "--nocolor", "--offline", "--profile", "production"], env)
    yield Check("changelog", ["antsibull-changelog", "lint"], env)
    yield Check(
        "documentation",
        [
            *("python", "-c", ANTSIBULL_DOCS),
            "lint-collection-docs",
            "--plugin-docs",
            "--validate-collection-refs",
            "all",
            str(COLLECTION),
        ],
        {**env, "HOME": str(BUILD)},
    )  # it logs to its user's home
    yield Check("ruff", ["ruff", "check"], env)
    yield Check("ruff format", ["ruff", "format", "--check"], env)
    forms = sorted(map(str, ROOT.glob(".github/ISSUE_TEMPLATE/[!c]*.yml")))
    yield Check("issue forms", ["check-jsonschema", "--builtin-schema", "vendor.github-issue-forms", *forms], env)
    yield Check("licences", ["reuse", "lint", "--lines"], env)
    workflows = sorted(map(str, ROOT.glob(".github/workflows/*.yml")))
    yield Check("workflows", ["check-jsonschema", "--builtin-schema", "vendor.github-workflows", *workflows], env)
    yield Check("zizmor", ["zizmor", "--offline", "--no-progress", *workflows], env)
    tests = ["bench", "cluster", "faults", "generators", "integration", "kind", "lab", "publishing", "unit"]
    deployed = ["ansible_collections.kubenode.datapath.plugins", "kubenode_agent", "kubenode_datapath"]
    packages = [*deployed, *tests, "upstream", "userland"]
    modules = ["packing", *sorted(path.stem for path in (ROOT / "tests").glob("*.py"))]
    checked = [f"--package={name}" for name in packages] + [f"--module={name}" for name in modules]
    yield Check("mypy", ["mypy", *checked], env)


# antsibull-docs renders the name of a temporary folder of its own. A name that ends with an underscore, one of 37, is a
# reference in reStructuredText, and an error.
ANTSIBULL_DOCS = """
import sys, tempfile
tempfile._RandomNameSequence.characters = "abcdefghijklmnopqrstuvwxyz"
from antsibull_docs.cli.antsibull_docs import main
sys.exit(main())
"""


def sanity() -> Iterator[Check]:
    """The oldest ansible-core, which imports on the oldest Python, and the newest, on its own. `make sanity` takes all."""
    oldest, *_middle, newest = installation.CORES.items()
    yield from ansible_test(dict((oldest, newest)), is_sample=True)


def all_sanity() -> Iterator[Check]:
    yield from ansible_test(installation.CORES)


# Tests that read the code alone, and answer alike with each core. Each installs its own tools first.
OF_THE_CODE = ("pep8", "pylint", "shellcheck", "yamllint")


def sanity_next() -> Iterator[Check]:
    """Runs the sanity tests of the next ansible-core. Not part of `make test`, because a pre-release may be wrong."""
    yield from ansible_test(installation.NEXT_CORE)


def ansible_test(cores: dict[str, tuple[range, str]], *options: str, is_sample: bool = False) -> Iterator[Check]:
    """is_sample: compile and import on one Python with each core: on the oldest of all, and then on that of the controller.

    And only what is released is read: pylint takes most of the time, and half of it for the tests.
    """
    prepare(installation.PYTHON)
    pythons = installation.interpreters()
    links = private_home() / "python"
    for minor in sorted(pythons):
        if minor >= installation.OLDEST:
            (links / f"python3.{minor}").unlink(missing_ok=True)
            (links / f"python3.{minor}").symlink_to(pythons[minor])
    env = {**os.environ, "HOME": str(links.parent), "PATH": f"{links}:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
    imported_by: set[int] = set()  # the Pythons on which an earlier core has compiled and imported all plugins
    newest = list(cores)[-1]
    for core, (minors, _pip) in cores.items():
        usable = sorted(pythons.keys() & set(minors))
        if not usable:
            leave_out(f"no sanity with ansible-core {core}: no Python 3.{minors[0]} to 3.{minors[-1]} is here")
            continue
        # What a Python cannot compile or import does not depend on the core; these two tests are half of the time.
        further = [minor for minor in usable if minor not in imported_by]
        controller = usable[0] if is_sample else (further or usable)[0]
        only = [f"--python=3.{controller}"] if imported_by and (is_sample or len(further) < 2) else []
        if is_sample and not imported_by:
            only = [f"--python=3.{min(minor for minor in pythons if minor >= installation.OLDEST)}"]
        imported_by.update(usable)
        tools = installation.venv(pythons[controller], [f"ansible-core=={core}"])
        tree = BUILD / "sanity" / core / "ansible_collections/kubenode/datapath"
        copy_sources(tree)
        shutil.rmtree(tree / "deploy/chart/templates")  # of Helm; ansible-test takes them for YAML by their names
        if is_sample:
            only += ["--exclude", "tests/"]  # no part of a release; ruff and mypy read them
        if core != newest and not options:
            only += [word for test in OF_THE_CODE for word in ("--skip-test", test)]
        command = [str(tools / "ansible-test"), "sanity", *only, *options]
        yield Check(f"ansible-core {core} on Python 3.{controller}", command, env, tree)


# ansible-test downloads get-pip.py from a host of its own. The pip inside every Python does the same work from the
# package index that the machine is set up for.
GET_PIP = """
import subprocess, sys
options = [word for word in sys.argv[1:] if word not in ('--no-setuptools', '--no-wheel')]
subprocess.check_call([sys.executable, '-m', 'ensurepip'], stdout=subprocess.DEVNULL)
subprocess.check_call([sys.executable, '-m', 'pip', 'install'] + options)
"""


def private_home() -> Path:
    """A home for ansible-test, which keeps its caches there and hands nothing but HOME and PATH to pip."""
    home = CACHE / "ansible-test-home"
    for folder in ("python", ".config/pip", ".ansible/test/cache"):
        (home / folder).mkdir(parents=True, exist_ok=True)
    for _minors, pip in (installation.CORES | installation.NEXT_CORE).values():
        (home / f".ansible/test/cache/get_pip_{pip.replace('.', '_')}.py").write_text(GET_PIP)
    options = {name[4:].lower().replace("_", "-"): text for name, text in os.environ.items() if name[:4] == "PIP_"}
    lines = [f"{name} = {text}" for name, text in {**options, "quiet": "2"}.items()]
    home.chmod(0o700)  # the address of a package index may hold a password
    (home / ".config/pip/pip.conf").write_text("\n".join(["[global]", *lines, ""]))
    for settings in (Path.home() / ".config/pip", Path.home() / ".pip"):
        if settings.is_dir() and not (home / ".pip").is_symlink():
            (home / ".pip").symlink_to(settings)
    return home


def copy_sources(tree: Path) -> None:
    """Copy the files that git would commit to a separate repository: ansible-test refuses links, and asks git for the files."""
    listed = installation.output(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"])
    unpacked = (path for path in ROOT.rglob("*") if not path.is_relative_to(BUILD))  # an archive without .git
    names = listed.split("\0")[:-1] or [str(path.relative_to(ROOT)) for path in unpacked]
    shutil.rmtree(tree, ignore_errors=True)
    if subprocess.call(["git", "init", "--quiet", "--template=", str(tree)]) != 0:
        raise installation.NotInstalled(f"git cannot make a repository in {tree}; its message above tells why")
    for name in names:
        if (ROOT / name).is_file() or (ROOT / name).is_symlink():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tree / name, follow_symlinks=False)


def unit() -> Iterator[Check]:
    prepare(installation.PYTHON)
    yield from pytest("unit", installation.main_venv())
    try:
        of_the_code = ("house", "selection")  # the same on each Python
        yield from pytest("unit", oldest_venv(), *(f"--ignore=tests/unit/test_{name}.py" for name in of_the_code))
    except installation.NotInstalled as reason:
        leave_out(f"no unit tests on the oldest Python on nodes: {reason}")


def oldest_venv() -> Path:
    python = installation.interpreters().get(installation.OLDEST)
    if python is None:
        raise installation.NotInstalled(f"Python 3.{installation.OLDEST} is not here")
    return installation.venv(python, installation.OLDEST_TOOLS)


def docs() -> Iterator[Check]:
    """The site in .build/docs/html: the guides as they lie in the repository, and a page for each plugin and role."""
    prepare(installation.PYTHON)
    yield from pictures()
    tools = installation.main_venv(installation.SITE)
    yield Check("drawings", ["python", "-m", "generators.drawings"], environment(tools))
    yield Check("catalogue of checks", ["python", "-m", "generators.check_catalogue"], environment(tools))
    yield Check("facts by platform", ["python", "-m", "generators.profile_facts"], environment(tools))
    yield Check("argument specs of the roles", ["python", "-m", "generators.role_arguments"], environment(tools))
    yield Check("schema of the roles", ["python", "-m", "generators.role_schema"], environment(tools))
    yield Check("schema of the chart", ["python", "-m", "generators.chart_schema"], environment(tools))
    source = BUILD / "docs/source"
    shutil.rmtree(source, ignore_errors=True)
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("roles/*/README.md")]
    for page in pages:  # in the same places, so that their links hold
        (source / page.relative_to(ROOT)).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(page, source / page.relative_to(ROOT))
    shutil.copytree(ROOT / "docs/docsite/site", source, dirs_exist_ok=True)
    shutil.copytree(ROOT / "docs/pictures", source / "docs/pictures")
    (source / "collection").mkdir()
    yield from changelog(environment(installation.main_venv()), source / "CHANGELOG.md")
    env = {**environment(tools), "HOME": str(BUILD)}  # antsibull-docs logs to its user's home
    options = ["--use-current", "--squash-hierarchy", "--fail-on-error", "--no-add-antsibull-docs-version"]
    command = ["antsibull-docs", "collection", *options, f"--dest-dir={source}/collection", "kubenode.datapath"]
    yield Check("pages of plugins and roles", command, env)
    html = BUILD / "docs/html"
    yield Check("site", ["sphinx-build", "--fail-on-warning", "--fresh-env", "--quiet", str(source), str(html)], env)
    shutil.copytree(ROOT / "docs/pictures", html / "docs/pictures", dirs_exist_ok=True)  # Sphinx does not look for them in HTML
    say(f"the site is {html}/index.html")


def changelog(env: dict[str, str], page: Path) -> Iterator[Check]:
    """Write the changelog as it would be if the version were released now, in a copy of the collection."""
    tree = BUILD / "docs/ansible_collections/kubenode/datapath"
    copy_sources(tree)
    if any((tree / "changelogs/fragments").glob("*.yml")):
        command = ["antsibull-changelog", "release", "--version", f"{installation.version()}-unreleased"]
    else:
        command = ["antsibull-changelog", "generate"]
    yield Check("changelog", command, env, tree)
    shutil.copy2(tree / "CHANGELOG.md", page)


def pictures() -> Iterator[Check]:
    """The pictures of the guides, in docs/pictures. They are of a real node, and committed."""
    try:
        preflight.check_nodes("docs")
    except preflight.NotReady as reason:
        leave_out(f"the pictures of the guides stay as they are: {reason}")
        return
    installation.install_packages(installation.PICTURES)
    yield Check("pictures", ["python", "-m", "generators.pictures"], environment(installation.main_venv(installation.SITE)))
    yield Check(
        "picture of the dashboard", ["python", "-m", "generators.dashboard_picture"], environment(installation.main_venv())
    )


def cli() -> Iterator[Check]:
    """The command without Ansible in .build/cli: a wheel, and one file that Python runs."""
    prepare(installation.PYTHON)
    tools = installation.main_venv()
    yield Check("cli", [str(tools / "python"), "deploy/cli/packing.py", str(BUILD / "cli")], environment(tools))
    say(f"the command is {BUILD}/cli/kubenode-datapath.pyz")


# Three files at a time, on two processors: each lab is its own, and a part of the time is spent waiting for nodes.
SPREAD = ["--numprocesses=3", "--dist=loadfile"]


def release() -> Iterator[Check]:
    """Every artefact of the version in .build/release, built twice and compared, and the collection as Galaxy imports it."""
    prepare(installation.PYTHON)
    tools, sources = installation.main_venv(), BUILD / "release/sources"
    copy_sources(sources)
    folders = [BUILD / "release" / name for name in ("artefacts", "again")]
    yield Check("artefacts", ["python", "-m", "publishing.release", str(sources), *map(str, folders)], environment(tools))
    archives = map(str, folders[0].glob("*.tar.gz"))
    env = {**environment(installation.main_venv(installation.IMPORTER)), "HOME": str(BUILD)}  # it keeps caches at home
    yield Check("galaxy-importer", ["python", "-m", "publishing.galaxy_import", *archives], env)


def publish() -> Iterator[Check]:
    """Hand what `make release` or `make docs` built to PLACE, in the environment."""
    prepare(installation.PYTHON)
    place = os.environ.get("PLACE", "")
    yield Check(f"publish {place}", ["python", "-m", "publishing.publication", place], environment(installation.main_venv()))


def integration() -> Iterator[Check]:
    prepare(installation.PYTHON + installation.HOSTS + installation.TESTS)
    yield from pytest("integration", installation.main_venv(), *SPREAD, "--verbose", "--durations=20")


def oldest_core() -> Iterator[Check]:
    """The roles on the oldest ansible-core. Apart from the integration tests, which are the longest part without it."""
    prepare(installation.PYTHON + installation.HOSTS + installation.TESTS)
    oldest, *_newer = installation.CORES
    yield from roles_on(oldest)


def thorough() -> Iterator[Check]:
    """The tests that `make test` leaves out: further variants of what it tests. `make faults` ends with them."""
    prepare(installation.PYTHON + installation.HOSTS + installation.TESTS)
    yield from pytest(
        "integration", installation.main_venv(), *SPREAD, "--verbose", "--durations=20", mark="thorough", name="thorough tests"
    )


def cores() -> Iterator[Check]:
    """The roles on those ansible-cores which `make test` leaves out: between the oldest and the newest, and the next one."""
    prepare(installation.PYTHON + installation.HOSTS + installation.TESTS)
    _oldest, *middle, _newest = installation.CORES
    for core in (*middle, *installation.NEXT_CORE):
        yield from roles_on(core)


def roles_on(core: str) -> Iterator[Check]:
    tools = installation.core_venv(core)
    if tools:
        yield from pytest("integration", tools, *SPREAD, "--verbose", mark="each_core", name=f"roles on ansible-core {core}")
    else:
        leave_out(f"no role was run with ansible-core {core}: no Python for it is here")


def cluster() -> Iterator[Check]:
    """A sample; `make cluster` runs all. On one worker: a cluster is built once, and takes the machine for itself."""
    prepare(installation.PYTHON + installation.HOSTS + installation.TESTS)
    yield from pytest("cluster", installation.main_venv(), "--verbose", "--durations=20", mark="sample")


def upstream() -> Iterator[Check]:
    """The collection beside programs of other projects. Not part of `make test`, because a machine may have none.

    kube-proxy is downloaded if it is asked for by its version, or if no other program is named.
    """
    programs = upstream_programs.cnis()
    if not programs or os.environ.get("KUBE_PROXY") or os.environ.get("KUBE_PROXY_VERSION"):
        programs["KUBE_PROXY"] = kube_proxy_release.program()
    prepare(installation.PYTHON + installation.HOSTS + installation.TESTS)
    names = [_shown(variable, program) for variable, program in programs.items()]
    for check in pytest("upstream", installation.main_venv(), *SPREAD, "--verbose", "-rPs", name=", ".join(["upstream", *names])):
        yield check._replace(env={**check.env, **{variable: str(program) for variable, program in programs.items()}})


def _shown(variable: str, program: Path) -> str:
    return installation.output([str(program), "--version"]).strip() if variable == "KUBE_PROXY" else program.name


def workflows() -> Iterator[Check]:
    """The workflows by actionlint too. Not part of `make test`, because its package downloads the program from another host."""
    yield from (check for check in lint() if check.name in ("workflows", "zizmor"))
    program = os.environ.get("ACTIONLINT") or shutil.which("actionlint") or installation.actionlint()
    paths = sorted(map(str, ROOT.glob(".github/workflows/*.yml")))
    yield Check("actionlint", [str(program), *paths], environment(installation.main_venv()))


def kind() -> Iterator[Check]:
    """The DaemonSet on a cluster of kind. Not part of `make test`, because the images of its nodes come from a registry."""
    proxy = os.environ.get("PROXY") or "iptables"
    programs = ("docker", "kind", "kubectl", *(("helm",) if proxy == "none" else ()))
    missing = [f"no {program}" for program in programs if not shutil.which(program)]
    if missing:
        raise installation.NotHere(", ".join(missing))
    installation.run_here("no docker", ["docker", "info"])
    prepare(installation.PYTHON)
    yield from pytest("kind", installation.main_venv(), "--verbose", name=f"kind, {proxy}")


def userland() -> Iterator[Check]:
    """SYSTEM, in the environment: a release of Debian, or a system whose image a registry has. Not part of `make test`."""
    prepare(installation.PYTHON + installation.HOSTS + installation.TESTS)
    tools, system = installation.main_venv(), os.environ.get("SYSTEM") or "sid"
    installation.run_here(f"no image of {system}", [str(tools / "python"), "-m", "lab.registry", system], environment(tools))
    yield from pytest("userland", tools, "--verbose", name=f"userland, {system}")


def faults() -> Iterator[Check]:
    """A sample; `make faults` strikes all."""
    prepare(installation.PYTHON + installation.HOSTS + installation.TESTS)
    yield from pytest("faults", installation.main_venv(), "--numprocesses=2", "--verbose", "--durations=10")


def molecule() -> Iterator[Check]:
    """A sample: tests/integration/roles boots the nodes of the other two roles as well. `make molecule` plays all scenarios."""
    yield from scenarios("aks_dual_stack", "cilium_migration", "default")


def all_molecule() -> Iterator[Check]:
    yield from scenarios(*sorted(path.parent.name for path in ROOT.glob("molecule/*/molecule.yml")))


def scenarios(*names: str) -> Iterator[Check]:
    prepare(installation.PYTHON + installation.HOSTS)
    tools = installation.main_venv()
    for scenario in names:
        yield Check(scenario, ["molecule", "test", "-s", scenario], {**environment(tools), "NO_COLOR": "1"})


def image() -> Iterator[Check]:
    prepare(installation.PYTHON + installation.HOSTS + installation.IMAGES)
    tools = installation.main_venv()
    yield Check("image", [str(tools / "python"), "tests/image.py"], environment(tools))


def quick() -> Iterator[Check]:
    """What a change touches; tests first, and what reads the code alone behind them.

    In the environment: SINCE, the commit that it began with; BUDGET, the seconds after which no test on a kernel begins.
    """
    prepare(installation.PYTHON + installation.HOSTS + installation.TESTS)
    tools, began = installation.main_venv(), time.monotonic()
    try:
        changed = selection.changed(os.environ.get("SINCE", ""))
        budget = selection.budget(os.environ.get("BUDGET", ""))
    except selection.Unusable as reason:
        raise installation.NotInstalled(str(reason)) from reason
    static = {check.name: check for check in lint() if check.name in ("ruff", "ruff format", "mypy")}
    yield static["ruff"]
    at_once = ["-m", "pytest", "-q", "-m", "not thorough", "--numprocesses=2", "--dist=loadfile"]
    yield Check(
        "unit tests of what changed", [str(tools / "python"), *at_once, *selection.unit_tests(changed)], environment(tools)
    )
    near, further = selection.integration_tests(changed)
    has_begun = not (near or further)
    for name, tests in (("of what changed", near), ("that run what changed", further)):
        seconds_left = budget - (time.monotonic() - began)
        if tests and seconds_left < selection.LEAST_SECONDS:
            leave_out(f"not run, as BUDGET={budget:.0f} is over: {len(tests)} files of integration tests {name}")
        elif tests:
            has_begun = True
            share = selection.share(tests, seconds_left)
            command = [str(tools / "python"), *at_once, f"--share={share:.0f}", f"--budget={seconds_left:.0f}", *tests]
            yield Check(f"integration tests {name}, {share:.0f} s of each file", command, environment(tools))
    yield from (static[name] for name in ("ruff format", "mypy"))
    sources = selection.sources(changed)
    plugins = [path for path in sources if path.startswith("plugins/")]
    newest = dict(list(installation.CORES.items())[-1:])
    for test, paths in (("pep8", sources), ("pylint", sources), ("validate-modules", plugins)):
        for check in ansible_test(newest, "--test", test, *paths) if paths else ():
            yield check._replace(name=f"{test}, {check.name}")
    if not has_begun:
        raise installation.NotHere(f"no integration test of what changed began within BUDGET={budget:.0f}")


def fuzz() -> Iterator[Check]:
    prepare(installation.PYTHON + installation.HOSTS)
    tools = installation.main_venv(installation.PROBING)
    yield Check("fuzz", [str(tools / "python"), "tests/fuzz.py"], environment(tools))


def mutants() -> Iterator[Check]:
    prepare(installation.PYTHON)
    tools = installation.main_venv(installation.PROBING)
    yield Check("mutants", [str(tools / "python"), "tests/mutants.py"], environment(tools))


def pytest(folder: str, tools: Path, *options: str, mark: str = "not thorough", name: str = "") -> Iterator[Check]:
    if any((ROOT / "tests" / folder).rglob("test_*.py")):
        name = name or f"{folder} tests on {tools.parent.name.rpartition('-')[0]}"
        command = [str(tools / "python"), "-m", "pytest", "-m", mark, *options, f"tests/{folder}"]
        yield Check(name, command, environment(tools))
    else:
        leave_out(f"there are no {folder} tests")


def passes(check: Check, log: Path, prefix: str = "") -> bool:
    """Run one check and show its output, each line after the prefix. The output also stays in the log.

    The log is followed rather than a pipe: a daemon that a test leaves behind would keep a pipe open for ever.
    """
    say(f"=== {check.name}: {' '.join(check.command)}")
    started = time.monotonic()
    with log.open("ab") as sink, log.open("r", errors="replace") as written, installation.under_way(check.name):
        written.seek(0, os.SEEK_END)
        child = subprocess.Popen(
            check.command, cwd=check.cwd, env=check.env, stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT
        )
        status, begun = None, ""
        while status is None:
            time.sleep(0.25)
            ended, wait_status, usage = os.wait4(child.pid, os.WNOHANG)
            if ended:
                status = child.returncode = os.waitstatus_to_exitcode(wait_status)
            *lines, begun = (begun + written.read()).split("\n")
            if status is not None and begun:
                lines.append(begun)
            sys.stdout.write("".join(f"{prefix}{line}\n" for line in lines))
            sys.stdout.flush()
    spent = f"{time.monotonic() - started:.1f} s, {usage.ru_utime + usage.ru_stime:.0f} s of processors"
    say(f"=== {check.name}: {'passed' if status == 0 else 'FAILED'} in {spent}")
    return status == 0


class Outcome(NamedTuple):
    passed: bool | None  # None: not run
    line: str
    failed_tests: list[str]  # as pytest and Ansible name failures: often only the last lines of a long run are kept


def run_part(name: str, prefix: str) -> Outcome:
    log = LOGS / f"{name}.log"
    log.unlink(missing_ok=True)
    started = time.monotonic()
    failed: list[str] = []
    try:
        failed.extend(check.name for check in PARTS[name]() if not passes(check, log, prefix))
    except installation.NotHere as reason:
        if not failed:
            return Outcome(None, f"{name:12}{time.monotonic() - started:5.0f} s  not run: {reason}", [])
    except installation.NotInstalled as reason:  # other parts may not need it
        say(str(reason))
        failed, log = ["setup"], LOGS / "setup.log"
    verdict = f"FAILED: {'; '.join(failed)}. Log: {log}" if failed else "passed"
    written = log.read_text(errors="replace").splitlines() if failed and log.is_file() else []
    tests = [line[:400] for line in written if line.startswith(("FAILED ", "ERROR ", "fatal: "))]
    return Outcome(not failed, f"{name:12}{time.monotonic() - started:5.0f} s  {verdict}", tests)


def run_parts(names: list[str]) -> int:
    """Two parts at a time, taken in the order given: tests on nodes spend half of their time waiting. The longest comes first."""
    with concurrent.futures.ThreadPoolExecutor(2) as pool:  # the work is done in other processes
        started = [pool.submit(run_part, name, f"{name}: " if len(names) > 1 else "") for name in names]
        outcomes = [part.result() for part in started]
    passed, failed, not_run = (sum(outcome.passed is state for outcome in outcomes) for state in (True, False, None))
    lines = [line for outcome in outcomes for line in (outcome.line, *outcome.failed_tests)]
    counts = f"{passed} passed, {failed} failed" + f", {not_run} skipped" * bool(not_run)
    print("", *LEFT_OUT, *lines, counts, sep="\n", flush=True)
    return 0 if passed == len(names) else 1


PARTS = {
    part.__name__: part
    for part in (
        lint,
        sanity,
        all_sanity,
        sanity_next,
        unit,
        docs,
        cli,
        release,
        publish,
        integration,
        oldest_core,
        cores,
        thorough,
        cluster,
        upstream,
        workflows,
        kind,
        userland,
        faults,
        molecule,
        all_molecule,
        image,
        quick,
        fuzz,
        mutants,
    )  # fmt: skip
}


class Program(NamedTuple):
    """packages: of Debian. tools: requirements of its virtual environment, besides ansible-core.

    ahead: arguments of Python, for what the program needs besides; begun while its environment is made. The program waits for it,
        and makes it if that failed.
    """

    command: list[str]
    packages: list[str] = installation.PYTHON + installation.HOSTS + installation.TESTS + installation.BENCH
    tools: list[str] = installation.TOOLS
    ahead: Sequence[str] = ()


PROGRAMS = {
    "demo": Program(["python", "tests/demo.py"], installation.DEMO, installation.CONTROL, ["tests/demo.py", "--system"]),
    "bench": Program(["python", "-m", "bench"]),
    "all_cluster": Program(["pytest", "-v", "tests/cluster"]),
    "all_faults": Program(["python", "-m", "faults"]),
}


def run_program(command: list[str], tools: Path) -> int:
    """Run a command in place of this process."""
    os.chdir(ROOT)
    os.execvpe(command[0], command, environment(tools))


def clean() -> int:
    """Remove what was built in the checkout."""
    for folder in (ROOT / ".build", ROOT / ".ansible"):
        _removed(folder)
    return 0


def clean_cache() -> int:
    """Remove everything that outlives a checkout, unless a run uses it."""
    with preflight.in_use(CACHE, exclusive=True) as is_free:
        if not is_free:
            raise installation.NotInstalled(f"{CACHE} is in use by another run. End that run first")
        _removed(CACHE)
    return 0


def _removed(folder: Path) -> None:
    if folder.exists():
        freed = leftovers.size(folder)
        extra = leftovers.remove_tree(folder)
        say(f"removed {folder}{extra}: {freed / 2**20:.0f} MiB")


def main(arguments: list[str]) -> int:
    name, *rest = arguments or [""]
    if arguments in (["clean"], ["clean_cache"]):
        return {"clean": clean, "clean_cache": clean_cache}[name]()
    if name in ("run", "run-oldest") and rest:
        prepare(installation.PYTHON + installation.HOSTS + installation.TESTS + installation.BENCH)
        run_program(rest, installation.main_venv() if name == "run" else oldest_venv())
    if name in PROGRAMS and not rest:
        program = PROGRAMS[name]
        prepare(program.packages)
        if program.ahead:
            command, env = [sys.executable, *program.ahead], environment(Path(sys.executable).parent)
            subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        run_program(program.command, installation.main_venv(program.tools))
    if name == "check" and rest:
        checks = {check.name: check for check in lint()}
        if not set(rest) <= set(checks):
            sys.exit(f"toolchain: the checks are {', '.join(checks)}")
        return 1 if [check for check in rest if not passes(checks[check], LOGS / "check.log")] else 0
    if name == "sanity" and rest and rest[0] not in PARTS:
        tests = ansible_test(installation.CORES, "--test", *rest)
        return 1 if [test for test in tests if not passes(test, LOGS / "sanity.log")] else 0
    if not arguments or not set(arguments) <= set(PARTS):
        sys.exit(__doc__)
    return run_parts(arguments)


def begin(arguments: list[str]) -> int:
    """Remove what earlier runs left, see that the machine can do the work, and do it in an enclosure."""
    if arguments in (["clean"], ["clean_cache"]):
        return main(arguments)
    with preflight.in_use(CACHE):
        for sentence in leftovers.remove():
            say(sentence)
        if arguments[:1] in (["run"], ["run-oldest"]):
            return main(arguments)
        preflight.check(arguments)
        return enclosure.run([sys.executable, os.path.abspath(__file__), *arguments])


def end(number: int, _frame: FrameType | None) -> None:
    """The end of the work that a signal asks for; the enclosure ends what this process has started."""
    doing = "; ".join(installation.UNDER_WAY)
    os.write(2, f"toolchain: {signal.Signals(number).name} came{' during: ' * bool(doing)}{doing}\n".encode())
    os._exit(128 + number)


if __name__ == "__main__":
    try:
        if not enclosure.is_inside():
            sys.exit(begin(sys.argv[1:]))
        for number in enclosure.REQUESTS:
            signal.signal(number, end)
        sys.exit(main(sys.argv[1:]))
    except (installation.NotInstalled, preflight.NotReady, OSError) as reason:
        sys.exit(f"toolchain: {reason}")
