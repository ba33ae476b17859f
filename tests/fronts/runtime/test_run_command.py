# SPDX-License-Identifier: Apache-2.0
"""Options of `run` that are passed to the program through its environment."""

import argparse
import os

import pytest

from tpu_estimator_embedding import settings
from tpu_estimator_embedding.estimator.hooks import training_hooks
from tpu_estimator_embedding.runtime import program_runner, run_command


def parse(*arguments):
    parser = argparse.ArgumentParser()
    run_command.add_arguments(parser)
    return parser.parse_args(arguments)


def test_steps_of_a_run_are_limited_from_outside(monkeypatch):
    seen = []
    monkeypatch.setenv(settings.STEPS_PER_RUN.variable, "")
    monkeypatch.setattr(program_runner, "run_file", lambda name, arguments, setup: seen.append(
        (name, arguments, os.environ[settings.STEPS_PER_RUN.variable],
         settings.STEPS_PER_RUN.read())))
    assert run_command.run(parse("--steps-per-run", "3", "train.py", "--steps-per-run", "5")) == 0
    assert seen == [("train.py", ["--steps-per-run", "5"], "3", 3)]


def test_saving_is_chosen_from_outside(monkeypatch):
    seen = []
    for variable in (settings.ASYNC_CHECKPOINTS.variable, settings.CHECKPOINT_AT_START.variable):
        monkeypatch.setenv(variable, "")
    monkeypatch.setattr(program_runner, "run_file",
                        lambda *_: seen.append(tuple(training_hooks.saving_choice(None, None))))
    for options in ((), ("--no-checkpoint-at-start",), ("--async-checkpoints",)):
        assert run_command.run(parse(*options, "train.py")) == 0
    assert seen == [(False, True), (False, False), (True, False)]


@pytest.mark.parametrize("options, expected", [
    ((), (None, 1)), (("--cores", "8"), (8, 1)), (("--hosts", "4"), (4, 4)),
    (("--cores", "16", "--hosts", "4"), (16, 4))])
def test_cores_and_hosts_are_chosen_from_outside(options, expected, monkeypatch):
    seen = []
    for variable in (settings.CORES.variable, settings.HOSTS.variable):
        monkeypatch.setenv(variable, "")
    monkeypatch.setattr(program_runner, "run_file", lambda *_: seen.append(
        (settings.num_cores(), settings.num_hosts())))
    assert run_command.run(parse(*options, "train.py")) == 0
    assert seen == [expected]


@pytest.mark.parametrize("cores, hosts, sentence", [
    ("6", "4", "`TPU_ESTIMATOR_EMBEDDING_CORES` must be a multiple of "
               "TPU_ESTIMATOR_EMBEDDING_HOSTS, 4, got 6."),
    ("", "many", "`TPU_ESTIMATOR_EMBEDDING_HOSTS` must be a positive number of hosts, got "
                 "'many'.")])
def test_program_is_not_started_with_wrong_hosts(cores, hosts, sentence, monkeypatch, capsys):
    monkeypatch.setenv(settings.CORES.variable, cores)
    monkeypatch.setenv(settings.HOSTS.variable, hosts)
    assert run_command.run(parse("train.py")) == 2
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize("number", ["0", "-1", "many"])
def test_limit_must_be_positive(number, capsys):
    with pytest.raises(SystemExit):
        parse("--steps-per-run", number, "train.py")
    assert "argument --steps-per-run" in capsys.readouterr().err


@pytest.mark.parametrize("option", [
    "--cores", "--hosts", "--steps-per-run", "--checkpoint-num-hosts"])
@pytest.mark.parametrize("value", ["0", "x", "2.5"])
def test_number_below_1_or_no_integer_is_refused(option, value, capsys):
    with pytest.raises(SystemExit) as stopped:
        parse(option, value, "train.py")
    assert stopped.value.code == 2
    assert f"{option}: must be an integer of at least 1, got '{value}'" in capsys.readouterr().err
