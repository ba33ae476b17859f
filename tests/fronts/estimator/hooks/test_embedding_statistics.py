# SPDX-License-Identifier: Apache-2.0
"""EmbeddingStatisticsHook, `run --statistics`, and what every training summarizes."""

import pathlib
import sys

import numpy as np
import pytest

from tests.event_files import events
from tests.fronts.estimator import counting
from tests.kernel_choice import choose_kernels
from tests.subprocesses import start
from tpu_estimator_embedding import EmbeddingStatisticsHook, multipliers, settings

IDS = [0, 1, 1, 1, 2, 3, 3, 3]  # two in a step


@pytest.fixture(params=["tf", "native"])
def kernels(request, monkeypatch):
    choose_kernels(request.param, monkeypatch)


def train(model_dir, hooks=(), ids=IDS, steps=100, **options):
    spec = counting.new_spec(**options)
    config = counting.run_config(save_summary_steps=1)
    estimator = counting.new_estimator(model_dir, spec=spec, config=config)
    estimator.train(counting.input_of(ids), steps=steps, hooks=list(hooks))
    return estimator


@pytest.mark.usefixtures("kernels")
def test_numbers_of_every_second_step(tmp_path):
    estimator = train(tmp_path, [EmbeddingStatisticsHook(every_n_steps=2)], clipping_limit=1.5,
                      table_multipliers={"counts": 2})
    found = events(tmp_path)

    def of(name):
        return found[f"embedding/counts/{name}"]

    # Two ids in each step: 0 and 1, twice 1, 2 and 3, twice 3. Gradients are -1, the rate is 1.
    assert of("unique_ids") == {2: 1, 4: 1}
    assert of("total_ids") == {2: 2, 4: 2}
    assert of("dropped_ids") == {2: 0, 4: 0}
    assert of("multiplier") == {2: 2, 4: 2}
    assert of("learning_rate") == {2: 1, 4: 1}
    assert of("gradient_norm") == {2: 4, 4: 4}
    assert of("clipped_gradient_norm") == {2: 1.5, 4: 1.5}
    assert of("clipped_share") == {2: 1, 4: 1}
    assert of("update_norm") == {2: 1.5, 4: 1.5}
    assert of("update_ratio") == {2: 1, 4: 1}  # the rows were 1.5
    assert of("coverage") == pytest.approx({2: 2 / 12, 4: 4 / 12})
    assert of("row_norms")[4].max == 3
    assert b"| 3 | 2 |" in of("hot_rows")[4].string_val[0]
    assert counting.counts(estimator)[:4] == [1.5, 3, 1.5, 3]


def test_line_of_the_log(tmp_path, logged):
    train(tmp_path, [EmbeddingStatisticsHook(4)])
    [line] = logged("tables at step")
    assert line == ("tpu_estimator_embedding: tables at step 4: counts: multiplier 1, learning "
                    "rate 1, gradient norm 2, update 2 of rows, 1 of 2 ids distinct, hottest 3, "
                    "33.3% of rows ever trained")


@pytest.mark.usefixtures("kernels")
def test_pipelined_steps_have_the_multiplier_of_their_gradients(tmp_path):
    train(tmp_path, [EmbeddingStatisticsHook(1)], pipeline_execution_with_tensor_core=True,
          table_multipliers={"counts": multipliers.piecewise([1, 2, 3], [1, 4, 16, 64])})
    found = events(tmp_path)
    assert found["embedding/counts/multiplier"] == {1: 1, 2: 4, 3: 16, 4: 64}
    assert found["embedding/counts/gradient_norm"] == pytest.approx(
        {1: 2 ** 0.5, 2: 8, 3: 16 * 2 ** 0.5, 4: 128})


def test_coverage_continues_from_a_checkpoint(tmp_path):
    """Adagrad's accumulators say which rows were trained."""
    from tpu_estimator_embedding import AdagradParameters
    hook = [EmbeddingStatisticsHook(1)]
    spec = counting.new_spec()._replace(optimization_parameters=AdagradParameters(1.0))
    for ids in (IDS[:4], IDS[4:]):
        counting.new_estimator(tmp_path, spec=spec).train(counting.input_of(ids), steps=2,
                                                          hooks=hook)
    assert events(tmp_path)["embedding/counts/coverage"] == pytest.approx(
        {1: 2 / 12, 2: 2 / 12, 3: 4 / 12, 4: 4 / 12})


def test_without_the_hook_there_are_multiplier_rate_and_norm(tmp_path):
    train(tmp_path, experimental_gradient_multiplier_fn=multipliers.linear_warmup(4))
    found = {tag: points for tag, points in events(tmp_path).items()
             if tag.startswith("embedding/")}
    assert set(found) == {"embedding/counts/multiplier", "embedding/counts/learning_rate",
                          "embedding/global_gradient_norm"}
    assert list(found["embedding/counts/multiplier"].values()) == [0, 0.25, 0.5, 0.75]
    assert set(found["embedding/global_gradient_norm"].values()) == {np.float32(2 ** 0.5)}


def test_training_is_bit_for_bit_that_without_the_hook(tmp_path):
    values = [train(tmp_path / name, hooks, table_multipliers={"counts": 0.3}).get_variable_value(
        "counts").tobytes() for name, hooks in (("a", ()), ("b", [EmbeddingStatisticsHook(2)]))]
    assert values[0] == values[1]


def test_two_hooks_have_their_own_steps(tmp_path):
    train(tmp_path / "model", [EmbeddingStatisticsHook(2, str(tmp_path / "two")),
                               EmbeddingStatisticsHook(3, str(tmp_path / "three"))])
    steps = [list(events(tmp_path / name)["embedding/counts/unique_ids"])
             for name in ("two", "three")]
    assert steps == [[2, 4], [3]]


def test_hook_of_a_model_fn(tmp_path):
    def model_fn(features, labels, mode, params):
        spec = counting.model_fn(features, labels, mode, params)
        return spec._replace(training_hooks=(EmbeddingStatisticsHook(4),))

    counting.new_estimator(tmp_path, model_fn).train(counting.input_of(IDS), steps=4)
    assert list(events(tmp_path)["embedding/counts/unique_ids"]) == [4]


def test_hook_where_nothing_is_measured_raises(tmp_path):
    estimator = counting.new_estimator(tmp_path, use_tpu=True)
    with pytest.raises(RuntimeError, match="must be given to TPUEstimator.train"):
        estimator.evaluate(counting.input_of(IDS), hooks=[EmbeddingStatisticsHook()])


@pytest.mark.parametrize("every", [0, -1, 2.5])
def test_number_of_steps_is_checked(every):
    with pytest.raises(ValueError, match="`every_n_steps` must be an int of at least 1"):
        EmbeddingStatisticsHook(every)


def test_directory_that_is_no_path_is_refused():
    with pytest.raises(TypeError, match="`output_dir` must be a path, got 3"):
        EmbeddingStatisticsHook(output_dir=3)


def test_the_environment_adds_a_hook_unless_there_is_one(tmp_path, monkeypatch):
    monkeypatch.setenv(settings.STATISTICS.variable, "every=2")
    train(tmp_path / "a")
    train(tmp_path / "b", [EmbeddingStatisticsHook(3)])
    assert [list(events(tmp_path / name)["embedding/counts/unique_ids"]) for name in "ab"] == [
        [2, 4], [3]]


@pytest.mark.parametrize("text", ["100", "every=0", "every=", "each=5"])
def test_bad_text_is_an_error(text, capsys):
    from tpu_estimator_embedding import cli
    with pytest.raises(SystemExit):
        cli.main(["run", "--statistics", text, "program.py"])
    assert "must be every=N, a number of steps of at least 1" in capsys.readouterr().err


@pytest.mark.long
def test_run_takes_statistics_of_an_unmodified_program(tmp_path):
    program = pathlib.Path(__file__).parents[2] / "experiments" / "click_program.py"
    done = start([sys.executable, "-m", "tpu_estimator_embedding", "run", "--statistics",
                  "every=10", str(program), "--steps", "20", "--evaluations", "1"], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = events(tmp_path / "model")
    for table in ("item", "user"):
        [tag] = [tag for tag in found if table in tag and tag.endswith("/coverage")]
        assert list(found[tag]) == [10, 20]
        assert 0 < found[tag][10] <= found[tag][20] <= 1
