# SPDX-License-Identifier: Apache-2.0
"""What has to hold before a release is published, as functions that check it."""

import ast
import datetime
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Sequence
from typing import NamedTuple

from packaging.version import InvalidVersion, Version

import tpu_estimator_embedding
from release import changelog, environment, links, site, tensorflow_headers, wheel
from tpu_estimator_embedding import versions as supported

ROOT = pathlib.Path(__file__).parent.parent
PACKAGE = "tpu_estimator_embedding"
_INSTALLED = (".py", ".js", ".cc", ".h")  # the endings of what a wheel takes from the package
OLDEST, NEWEST = tensorflow_headers.RELEASES[0], tensorflow_headers.RELEASES[-1]
# TensorFlow and Python. TensorFlow 2.15 has no wheels for later ones.
PAIRS = ((OLDEST, "3.11"), (NEWEST, "3.11"), (NEWEST, "3.12"), (NEWEST, "3.13"))


class Failure(Exception):
    """What does not hold, and how to mend it."""


class Release(NamedTuple):
    """What is checked.

    Attributes:
        distributions: the directory with the wheel and the source distribution.
        scratch: a directory for files that the checks make.
    """

    distributions: pathlib.Path
    scratch: pathlib.Path

    def wheel(self) -> pathlib.Path:
        """Returns the wheel of this version.

        Raises:
            Failure: if it is not there.
        """
        return self._distribution(f"py3-none-{wheel.PLATFORM}.whl", "-", "python -m release wheel")

    def sdist(self) -> pathlib.Path:
        """Returns the source distribution of this version.

        Raises:
            Failure: if it is not there.
        """
        return self._distribution("tar.gz", ".", "python -m build --sdist")

    def _distribution(self, ending: str, separator: str, command: str) -> pathlib.Path:
        name = f"{PACKAGE}-{tpu_estimator_embedding.__version__}{separator}{ending}"
        if not (self.distributions / name).exists():
            raise Failure(f"{self.distributions} has no {name}. Run `{command}`.")
        return self.distributions / name


def versions(release: Release) -> None:
    """The package, the changelog and the list of public names have one version."""
    version = tpu_estimator_embedding.__version__
    try:
        normal = str(Version(version))
    except InvalidVersion:
        normal = ""
    if normal != version:
        raise Failure(f"`__version__` must be as packaging writes it, got {version!r}. Mend it in "
                      f"{PACKAGE}/__init__.py.")
    stated = changelog.newest().version
    if stated != version:
        raise Failure(f"The newest section of CHANGELOG.rst is of {stated}, not of {version}.")
    surface = (ROOT / "tests" / "public_surface.txt").read_text(encoding="utf-8")
    if not surface.startswith(f"version {version}\n"):
        raise Failure(f"tests/public_surface.txt is not of {version}. Run `python -m "
                      "tests.public_surface`.")


def dated_changelog(release: Release) -> None:
    """The newest section has a date, and nothing has changed since."""
    date = changelog.newest().date
    try:
        is_past = datetime.date.fromisoformat(date) <= datetime.date.today()
    except ValueError:
        is_past = False
    if not is_past:
        raise Failure(f"The date of the newest section of CHANGELOG.rst must be a day that has "
                      f"come, as 2026-01-31, got {date!r}.")
    if changelog.unreleased():
        raise Failure("CHANGELOG.rst has unreleased changes. Put the number and the date of the "
                      "release into the title of their section.")


def distributions(release: Release) -> None:
    """The wheel has this checkout's files, and kernels for every TensorFlow."""
    with zipfile.ZipFile(release.wheel()) as archive:
        held = {name: archive.read(name) for name in archive.namelist()}
    for path in sorted(path for path in (ROOT / PACKAGE).rglob("*") if path.suffix in _INSTALLED):
        if held.get(str(path.relative_to(ROOT))) != path.read_bytes():
            raise Failure(f"{release.wheel().name} was built from another {path.name}. Run "
                          "`python -m release wheel`.")
    for version in tensorflow_headers.RELEASES:
        minor = ".".join(map(str, supported.minor(version)))
        if not any(f"/embedding_ops-tf{minor}-" in name for name in held):
            raise Failure(f"{release.wheel().name} has no kernels for TensorFlow {minor}. Run "
                          "`python -m release wheel` without `--tensorflow`.")
    try:
        wheel.check(release.wheel())
    except wheel.WheelError as error:
        raise Failure(str(error)) from error
    release.sdist()


def metadata(release: Release) -> None:
    """An index accepts the metadata and can show the description."""
    done = subprocess.run(
        [sys.executable, "-m", "twine", "check", "--strict", str(release.wheel()),
         str(release.sdist())], capture_output=True, text=True)
    if done.returncode:
        raise Failure("`twine check` refuses the distributions (needs `pip install "
                      f"'.[release]'`):\n{done.stdout}{done.stderr}")


def documentation(release: Release) -> None:
    """The pages build without a warning and without a broken link."""
    directory = release.scratch / "site"
    try:
        site.build(directory)
    except site.SiteError as error:
        raise Failure(f"{error}Mend the pages in docs/ (needs `pip install "
                      "'.[release]'`).") from error
    broken = links.broken(directory)
    if broken:
        raise Failure("These links are broken:\n" + "\n".join(broken))


def installation(release: Release) -> None:
    """The wheel installs, trains and has its kernels, on the oldest and newest versions."""
    for tensorflow, python in PAIRS:
        installed = _install(release, tensorflow, python)
        found = installed.run("python", "-P", "-c", "import importlib.metadata as metadata; "
                              "print(metadata.version('tensorflow'))").strip()
        if found != tensorflow:
            raise Failure(f"Installing the wheel changed TensorFlow {tensorflow} to {found}. Look "
                          "at the requirements in setup.py.")
        report = installed.run(f"{PACKAGE.replace('_', '-')}", "doctor")
        if ", installed with the package" not in report:
            raise Failure(f"The kernels of the wheel do not run:\n{report}")
        installed.run(f"{PACKAGE.replace('_', '-')}", "demo", "--examples", "20000")


def examples(release: Release) -> None:
    """Every example runs by the commands in its header, beside no other file of the checkout."""
    installed = _install(release, NEWEST, "3.11")
    copy = installed.scratch / "examples"
    shutil.copytree(ROOT / "examples", copy, dirs_exist_ok=True)
    for program in sorted(copy.glob("*.py")):
        for command in commands(program.read_text(encoding="utf-8")):
            _say(shlex.join(command))
            installed.run(*[word.replace("/tmp/", f"{installed.scratch}/") for word in command])


CHECKS: dict[str, Callable[[Release], None]] = {
    "versions": versions, "changelog": dated_changelog, "distributions": distributions,
    "metadata": metadata, "docs": documentation, "install": installation, "examples": examples}


def run(release: Release, names: Sequence[str]) -> list[str]:
    """Runs checks and prints what they find.

    Returns:
        The names of those that failed.
    """
    failed = []
    for name in names:
        start = time.monotonic()
        print(f"{name}: {CHECKS[name].__doc__}", flush=True)
        try:
            CHECKS[name](release)
        except (Failure, environment.SetupError) as failure:
            failed.append(name)
            print(f"{name}: FAILED. {failure}", flush=True)
        else:
            print(f"{name}: passed, {time.monotonic() - start:.0f} s", flush=True)
    return failed


def commands(program: str) -> list[list[str]]:
    r"""Returns the commands in the header of a program.

    >>> commands('"Trains.\\n\\n    python make.py a \\\\\\n        b\\n    run c\\n\\nMore.\\n"')
    [['python', 'make.py', 'a', 'b'], ['run', 'c']]
    """
    header = (ast.get_docstring(ast.parse(program)) or "").replace("\\\n", "")
    return [shlex.split(line) for line in re.findall(r"^    (\S.*)$", header, re.MULTILINE)]


def _install(release: Release, tensorflow: str, python: str) -> environment.Environment:
    _say(f"TensorFlow {tensorflow}, Python {python}")
    return environment.make(release.scratch / f"tensorflow-{tensorflow}-python-{python}",
                            release.wheel(), tensorflow, python)


def _say(line: str) -> None:
    print(f"  {line}", flush=True)
