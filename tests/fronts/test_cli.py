# SPDX-License-Identifier: Apache-2.0
"""The command line, above all that `run` does what plain python does."""

import argparse
import os
import re
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from tests.subprocesses import start
from tpu_estimator_embedding import cli
from tpu_estimator_embedding.runtime import run_command

# `run` without the seconds that TensorFlow takes to load; what it sets up has its own tests.
RUN = [sys.executable, "-c", textwrap.dedent("""
    import sys
    from tpu_estimator_embedding import cli
    from tpu_estimator_embedding.runtime.program_setup import ProgramSetup
    ProgramSetup.__call__ = lambda self: None
    sys.exit(cli.main(["run", *sys.argv[1:]]))
""")]

PROGRAMS = {
    "says what it sees": """
        '''A doc string.'''
        import sys
        import neighbour
        main = sys.modules['__main__']
        print(sys.argv, sys.path, __name__, __file__, __doc__, __package__, __spec__,
              vars(main) is globals(), main.__file__, neighbour.WORD)
        """,
    "returns": "print('done')",
    "exits with a number": "import sys; sys.exit(7)",
    "exits with a sentence": "import sys; sys.exit('that was wrong')",
    "exits with nothing": "raise SystemExit",
    "raises": """
        def fail():
            raise KeyError('lost')

        fail()
        """,
    "raises while it handles": """
        try:
            {}['a']
        except KeyError as error:
            raise RuntimeError('worse') from error
        """,
    "has no such import": "import not_a_module_at_all",
    "has a mistake": "x = (",
    "has its own excepthook": """
        import sys
        sys.excepthook = lambda kind, error, traceback: print(
            kind.__name__, error, traceback.tb_frame.f_code.co_name, traceback.tb_next)
        raise ValueError('mine')
        """,
    "says goodbye": """
        import atexit, threading, time
        atexit.register(print, 'goodbye')
        threading.Thread(target=lambda: (time.sleep(0.2), print('still here'))).start()
        1 / 0
        """,
    "pickles its own class": """
        import pickle

        class Point:
            x = 3

        print(pickle.loads(pickle.dumps(Point())).x, Point.__module__)
        """,
}


@pytest.fixture(name="directory")
def a_directory_of_programs(tmp_path):
    directory = tmp_path / "programs"
    directory.mkdir()
    (directory / "neighbour.py").write_text("WORD = 'found'")
    (directory / "package").mkdir()
    (directory / "package" / "__init__.py").write_text("")
    for path in ("program.py", "package/task.py", "package/__main__.py"):
        (directory / path).write_text("")
    return directory


def write(path, code):
    path.write_text(textwrap.dedent(code).lstrip())


def outcome(command, cwd):
    done = start(command, cwd=cwd)
    stderr = "".join(line for line in done.stderr.splitlines(keepends=True)
                     if "<frozen runpy>" not in line)
    return done.returncode, done.stdout, stderr


@pytest.mark.all_cases
@pytest.mark.parametrize("code", PROGRAMS.values(), ids=PROGRAMS)
def test_file_runs_as_under_python(code, directory, tmp_path):
    write(directory / "program.py", code)
    arguments = ["programs/program.py", "--flag", "-m", "x y"]
    assert outcome([*RUN, *arguments], tmp_path) == outcome(
        [sys.executable, *arguments], tmp_path)


@pytest.mark.parametrize("name", ["package.task", "package"])
@pytest.mark.parametrize("code", [PROGRAMS["says what it sees"], PROGRAMS["raises"]])
def test_module_runs_as_under_python(code, name, directory):
    write(directory / "package" / ("task.py" if "." in name else "__main__.py"), code)
    ours, theirs = (outcome([*command, "-m", name, "--flag"], directory)
                    for command in (RUN, [sys.executable]))
    # The loader prints its own address.
    assert [re.sub(" at 0x[0-9a-f]+", "", str(part)) for part in ours] == [
        re.sub(" at 0x[0-9a-f]+", "", str(part)) for part in theirs]


def test_options_are_of_run_before_the_program_and_its_own_after(directory):
    write(directory / "program.py", "import sys; print(sys.argv)")
    write(directory / "package" / "task.py", "import sys; print(sys.argv[1:])")
    done = start([*RUN, "--quiet", "program.py", "--verbose", "--tf1", "-h"], cwd=directory)
    assert done.stdout == "['program.py', '--verbose', '--tf1', '-h']\n"
    done = start([*RUN, "--verbose", "-m", "package.task", "--quiet"], cwd=directory)
    assert done.stdout == "['--quiet']\n"


def test_symbolic_link_runs_with_the_path_of_its_target(directory, tmp_path):
    write(directory / "program.py", PROGRAMS["says what it sees"])
    (tmp_path / "link.py").symlink_to(directory / "program.py")
    assert outcome([*RUN, "link.py"], tmp_path) == outcome([sys.executable, "link.py"], tmp_path)


def test_interrupt_ends_it_as_under_python(directory):
    write(directory / "program.py", """
        import time
        print('ready', flush=True)
        time.sleep(60)
        """)
    outcomes = []
    for command in (RUN, [sys.executable]):
        process = subprocess.Popen([*command, "program.py"], cwd=directory, text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.1)  # into the sleep
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=30)
        outcomes.append((process.returncode, stderr))
    assert outcomes[0] == outcomes[1]
    assert outcomes[0][0] == -signal.SIGINT


@pytest.mark.parametrize("arguments, sentence", [
    (["missing.py"], r"can't open file '.*/missing\.py': \[Errno 2\] No such file"),
    (["-m", "missing"], "No module named missing"),
    (["-m", "missing.task"], "No module named 'missing'")])
def test_missing_program_is_an_error(arguments, sentence, tmp_path):
    done = start([*RUN, *arguments], cwd=tmp_path)
    assert done.returncode == start([sys.executable, *arguments], cwd=tmp_path).returncode
    assert re.search(f"^tpu-estimator-embedding: {sentence}", done.stderr)


def test_refused_install_is_one_sentence(directory):
    refuse = RUN[2].replace("None", "(_ for _ in ()).throw(RuntimeError('no'))")
    done = start([*RUN[:2], refuse, "program.py"], cwd=directory)
    assert (done.returncode, done.stderr) == (1, "tpu-estimator-embedding: no\n")


def test_package_of_a_module_is_imported_after_install(directory):
    write(directory / "package" / "__init__.py", "print('imported', sys_is_ready)")
    ready = RUN[2].replace("None", "vars(__import__('builtins')).update(sys_is_ready=True)")
    done = start([*RUN[:2], ready, "-m", "package.task"], cwd=directory)
    assert (done.returncode, done.stdout) == (0, "imported True\n")


@pytest.mark.parametrize("arguments", [[], ["-m"], ["--tf1"]])
def test_run_needs_a_program(arguments, capsys):
    assert cli.main(["run", *arguments]) == 2
    assert "`run` needs a program" in capsys.readouterr().err


@pytest.mark.parametrize("arguments, sentence", [
    (["--unknown", "program.py"], "unrecognized arguments: --unknown"),
    (["--quiet", "--verbose", "program.py"], "not allowed with argument")])
def test_run_refuses_wrong_options(arguments, sentence, capsys):
    with pytest.raises(SystemExit) as exit_:
        cli.main(["run", *arguments])
    assert exit_.value.code == 2
    captured = capsys.readouterr().err
    assert sentence in captured
    assert "usage: tpu-estimator-embedding run [OPTION...]" in captured


@pytest.mark.parametrize("line, module, program", [
    ("a.py --tf1 -m b", None, ["a.py", "--tf1", "-m", "b"]),
    ("--tf1 a.py --quiet", None, ["a.py", "--quiet"]),
    ("--quiet -m a.b --tf1 --help", ["a.b", "--tf1", "--help"], [])])
def test_options_after_the_program_are_its_own(line, module, program):
    parser = argparse.ArgumentParser()
    run_command.add_arguments(parser)
    args = parser.parse_args(line.split())
    assert (args.module, args.program) == (module, program)


def test_help_has_examples(capsys):
    with pytest.raises(SystemExit) as exit_:
        cli.main(["--help"])
    assert exit_.value.code == 0
    help_ = capsys.readouterr().out
    assert "tpu-estimator-embedding run train.py --steps 100" in help_
    assert all(f"\n  {verb} " in help_ for verb in cli.VERBS)


def test_wrong_verb_is_an_error(capsys):
    with pytest.raises(SystemExit) as exit_:
        cli.main(["dance"])
    assert exit_.value.code == 2
    assert "invalid choice: 'dance'" in capsys.readouterr().err


def test_no_verb_is_an_error_that_lists_them(capsys):
    assert cli.main([]) == 2
    shown = capsys.readouterr()
    assert not shown.out and all(f"\n  {verb} " in shown.err for verb in cli.VERBS)


@pytest.mark.parametrize("verb", cli.VERBS)
def test_examples_keep_their_lines_and_the_width_of_a_terminal(verb, capsys):
    with pytest.raises(SystemExit):
        cli.main([verb, "--help"])
    help_ = capsys.readouterr().out
    assert max(map(len, help_.splitlines())) <= 115
    assert verb in ("doctor", "build-kernels") or "examples" in help_
    assert verb != "cluster" or "must call tf.estimator.train_and_evaluate" in help_


def test_version(capsys):
    assert cli.main(["--version"]) == 0
    assert re.fullmatch(r"\d+\.\d+\.\d+(rc\d+)?\n", capsys.readouterr().out)


@pytest.mark.smoke
def test_doctor_finds_nothing_wrong():
    done = start([sys.executable, "-m", "tpu_estimator_embedding", "doctor"])
    assert (done.returncode, done.stderr if done.returncode else "") == (0, "")
    assert done.stdout.splitlines()[0].endswith(": Nothing is wrong.")


@pytest.mark.slow
@pytest.mark.parametrize("options, is_shown", [([], False), (["--verbose"], True)])
def test_doctor_shows_what_tensorflow_writes_if_asked_for(options, is_shown):
    done = start([sys.executable, "-m", "tpu_estimator_embedding", "doctor", *options],
                 TF_CPP_MIN_LOG_LEVEL="0")
    assert done.returncode == 0, done.stderr
    assert bool(re.search(r"\.cc:\d+\]", done.stderr)) == is_shown


def test_doctor_exits_with_1_where_something_is_wrong():
    done = start([sys.executable, "-c", textwrap.dedent("""
        import sys
        from tpu_estimator_embedding import cli
        from tpu_estimator_embedding import versions
        versions.has_module = lambda name: False
        sys.exit(cli.main(["doctor"]))
    """)])
    assert done.returncode == 1
    assert "-> It is not installed: pip install" in done.stdout


PLAIN_ESTIMATOR = """
    import sys
    import tensorflow as tf

    def model_fn(features, labels, mode):
        weight = tf.compat.v1.get_variable("weight", initializer=0.0)
        prediction = weight * features["x"]
        if mode == tf.estimator.ModeKeys.PREDICT:
            return tf.estimator.EstimatorSpec(mode, predictions={"y": prediction})
        loss = tf.reduce_mean((prediction - labels) ** 2)
        train_op = tf.compat.v1.train.GradientDescentOptimizer(0.5).minimize(
            loss, tf.compat.v1.train.get_global_step())
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)

    def input_fn():
        return tf.data.Dataset.from_tensors(({"x": [1.0]}, [2.0])).repeat(3)

    estimator = tf.compat.v1.estimator.Estimator(model_fn, sys.argv[1] + "/plain")
    estimator.train(input_fn)
    print(next(estimator.predict(input_fn))["y"] == 2.0)
    """

TPU_PROGRAM = """
    import sys
    import tensorflow.compat.v1 as tf

    def model_fn(features, labels, mode, params):
        weight = tf.get_variable("weight", initializer=0.0)
        loss = tf.reduce_mean((weight * features["x"] - labels) ** 2)
        optimizer = tf.tpu.CrossShardOptimizer(tf.train.GradientDescentOptimizer(0.5))
        return tf.estimator.tpu.TPUEstimatorSpec(
            mode, loss=loss, train_op=optimizer.minimize(loss, tf.train.get_global_step()))

    def input_fn(params):
        return tf.data.Dataset.from_tensors(({"x": [1.0]}, [2.0])).repeat(3)

    estimator = tf.estimator.tpu.TPUEstimator(
        model_fn, use_tpu=False, train_batch_size=1, eval_batch_size=1,
        config=tf.estimator.tpu.RunConfig(model_dir=sys.argv[1] + "/tpu"))
    estimator.train(input_fn, max_steps=3)
    metrics = estimator.evaluate(input_fn, steps=1)
    print(metrics["loss"] == 0.0 and metrics["global_step"] == 3)
    """


@pytest.mark.smoke
def test_legacy_programs_train(tmp_path):
    """Two in one process: loading TensorFlow takes most of the time."""
    write(tmp_path / "plain.py", PLAIN_ESTIMATOR)
    write(tmp_path / "tpu.py", TPU_PROGRAM)
    write(tmp_path / "both.py", "import plain, tpu")
    done = start([sys.executable, "-m", "tpu_estimator_embedding", "run", "both.py",
                  str(tmp_path)], cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "True\nTrue\n"), done.stderr
    assert os.path.exists(tmp_path / "plain" / "checkpoint")
    assert os.path.exists(tmp_path / "tpu" / "checkpoint")


@pytest.mark.parametrize("verb", ["run", "report", "sweep"])
def test_working_directory_that_was_deleted_is_named(verb, tmp_path, monkeypatch, capsys):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert cli.main([verb, "train.py"]) == 2
    assert capsys.readouterr().err == (
        "tpu-estimator-embedding: the working directory no longer exists. Change to another one: "
        "cd ~\n")
