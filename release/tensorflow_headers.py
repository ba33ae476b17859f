# SPDX-License-Identifier: Apache-2.0
"""What kernels are compiled against: the headers and the library of a TensorFlow.

They are taken out of the wheel of each release, which pip downloads and nothing installs.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import zipfile

from tpu_estimator_embedding.kernels.tensorflow_build import TensorFlowBuild

# The last release of every supported minor version.
RELEASES = ("2.15.1", "2.16.2", "2.17.1", "2.18.1", "2.19.1", "2.20.0", "2.21.0")

# The wheels of one Python, whichever Python runs this: the headers of all wheels are the same.
_WHEEL = ("--implementation=cp", "--python-version=3.11", "--abi=cp311",
          "--platform=manylinux_2_17_x86_64", "--platform=manylinux2014_x86_64",
          "--platform=manylinux_2_27_x86_64", "--platform=manylinux_2_28_x86_64")
_KEPT = ("tensorflow/include/", "tensorflow/libtensorflow_framework.so.2")


class DownloadError(Exception):
    """pip could not download a TensorFlow; the message holds what pip said."""


def cache() -> pathlib.Path:
    """Returns the directory of what was downloaded before.

    >>> cache().name
    'tpu_estimator_embedding_headers'
    """
    chosen = os.environ.get("XDG_CACHE_HOME", "")
    root = pathlib.Path(chosen) if os.path.isabs(chosen) else pathlib.Path.home() / ".cache"
    return root / "tpu_estimator_embedding_headers"


def fetch(version: str, directory: pathlib.Path) -> TensorFlowBuild:
    """Returns a release of TensorFlow that kernels can be compiled against.

    Args:
        version: the release, "2.21.0".
        directory: where `tensorflow-{version}/tensorflow` is, or is put.

    Raises:
        DownloadError: if it is not there and cannot be downloaded.
    """
    target = directory / f"tensorflow-{version}"
    if not target.exists():
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".unfinished-", dir=directory) as unfinished:
            extracted = pathlib.Path(unfinished, "extracted")
            _extract(_download(version, pathlib.Path(unfinished)), extracted)
            extracted.rename(target)
    return TensorFlowBuild(version, str(target / "tensorflow"), is_release=True)


def _download(version: str, directory: pathlib.Path) -> pathlib.Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps",
               "--only-binary=:all:", *_WHEEL, "--dest", str(directory), f"tensorflow=={version}"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise DownloadError(f"TensorFlow {version} could not be downloaded:\n{done.stderr}")
    [wheel] = directory.glob("*.whl")
    return wheel


def _extract(wheel: pathlib.Path, directory: pathlib.Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if name.startswith(_KEPT) and not name.endswith("/"):
                target = directory / name
                target.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(name) as source, target.open("wb") as copy:
                    shutil.copyfileobj(source, copy)
