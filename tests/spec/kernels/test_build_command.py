# SPDX-License-Identifier: Apache-2.0
"""`tpu-estimator-embedding build-kernels`."""

from tpu_estimator_embedding import cli
from tpu_estimator_embedding.kernels import library


def test_compiles_once_and_logs_what_runs(sources, tensorflow, capsys):
    library.cache().mkdir(parents=True)
    library.failure(tensorflow).write_text("an earlier failure")
    assert cli.main(["build-kernels"]) == 0
    printed = capsys.readouterr().out
    assert f"Compiling the native kernels for TensorFlow {tensorflow.version}" in printed
    assert str(library.find(tensorflow)) in printed
    assert printed.endswith("They load and run: native (baseline).\n")
    assert not library.failure(tensorflow).exists()
    assert cli.main(["build-kernels"]) == 0
    printed = capsys.readouterr().out
    assert "are up to date" in printed and "Compiling" not in printed


def test_force_compiles_again(sources, tensorflow, capsys):
    cli.main(["build-kernels"])
    first = library.find(tensorflow).stat().st_ino
    assert cli.main(["build-kernels", "--force"]) == 0
    assert library.find(tensorflow).stat().st_ino != first


def test_errors_of_the_compiler_are_shown_whole(sources, capsys):
    (sources / "broken.cc").write_text("int x = no_such_name;\n")
    assert cli.main(["build-kernels"]) == 1
    shown = capsys.readouterr().err
    assert "broken.cc" in shown and "no_such_name" in shown
    assert "Everything works without native kernels" in shown


def test_missing_compiler_names_what_to_install(sources, no_compiler, capsys):
    assert cli.main(["build-kernels"]) == 1
    assert "apt-get install g++" in capsys.readouterr().err
