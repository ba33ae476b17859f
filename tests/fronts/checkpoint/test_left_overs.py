# SPDX-License-Identifier: Apache-2.0
"""What killed conversions have left: the next one to the same name removes it, and nothing else."""

import os
import signal
import socket
import subprocess
import sys

import pytest

from tpu_estimator_embedding.checkpoint import files

WRITES = """
import sys, time
from tpu_estimator_embedding.checkpoint import files
import pathlib
with files.{what}({path}, 0) as unfinished:
    {write}
    print("written", flush=True)
    time.sleep(600)
"""
KINDS = {
    "new_directory": ("pathlib.Path(sys.argv[1])", "(unfinished / 'half').write_text('half')"),
    "new_files": ("[pathlib.Path(sys.argv[1])]", "unfinished[0].write_text('half')"),
}


def write_again(what, path):
    with getattr(files, what)(path if what == "new_directory" else [path], 0) as unfinished:
        if what == "new_directory":
            (unfinished / "whole").write_text("whole")
        else:
            unfinished[0].write_text("whole")


@pytest.fixture(name="start", params=sorted(KINDS))
def a_writing_process(request):
    path, write = KINDS[request.param]
    running = []

    def start(output):
        process = subprocess.Popen(
            [sys.executable, "-c", WRITES.format(what=request.param, path=path, write=write),
             str(output)], stdout=subprocess.PIPE, text=True)
        running.append(process)
        assert process.stdout.readline() == "written\n"
        return process

    start.what = request.param
    yield start
    for process in running:
        process.kill()
        process.communicate()


def test_what_a_killed_process_has_left_is_removed_and_named(start, tmp_path, caplog):
    output = tmp_path / "model.ckpt[1]"
    process = start(output)
    process.send_signal(signal.SIGKILL)
    process.wait()
    [half] = tmp_path.iterdir()
    assert half.name.endswith(f"-{process.pid}")
    write_again(start.what, output)
    assert list(tmp_path.iterdir()) == [output]
    assert caplog.messages == [
        f"Removed leftovers of killed conversions from {tmp_path}: {half.name}."]


def test_what_a_living_process_writes_is_kept(start, tmp_path, caplog):
    process = start(tmp_path / "new")
    [half] = tmp_path.iterdir()
    write_again(start.what, tmp_path / "new")
    assert set(tmp_path.iterdir()) == {half, tmp_path / "new"}
    assert process.poll() is None and not caplog.messages


def test_only_what_this_machine_was_to_write_under_this_name_is_removed(tmp_path, caplog):
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    name = files._unfinished(tmp_path / "new", dead.pid).name
    assert f"-{socket.gethostname()}-" in name
    own = files._unfinished(tmp_path / "new", os.getpid()).name
    kept = [name.replace(f"-{socket.gethostname()}-", "-another-machine-"),
            name.replace(".new.", ".new2."), own, f"{name}.txt", name.removeprefix("."),
            f".new.incomplete-{dead.pid}"]  # of an earlier version, perhaps on another machine
    for one in [name, *kept]:
        (tmp_path / one).touch()
    files._remove_left_overs([tmp_path / "new"])
    assert {path.name for path in tmp_path.iterdir()} == set(kept)
    assert len(caplog.messages) == 1


def test_a_link_is_removed_and_not_what_it_leads_to(tmp_path):
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "file").touch()
    link = files._unfinished(tmp_path / "new", dead.pid)
    link.symlink_to(tmp_path / "data")
    files._remove_left_overs([tmp_path / "new"])
    assert not os.path.lexists(link) and (tmp_path / "data" / "file").exists()
