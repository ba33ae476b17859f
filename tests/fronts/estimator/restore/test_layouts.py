# SPDX-License-Identifier: Apache-2.0
"""A model trained with one layout of its tables continues with any other."""

import os

import pytest
import tensorflow as tf

from tests.fronts.estimator import counting
from tests.fronts.estimator.counting import counts, counts_of, input_of, new_estimator, new_spec
from tpu_estimator_embedding import cli, settings
from tpu_estimator_embedding.checkpoint import table_layouts
from tpu_estimator_embedding.patches import patch, patch_table

v1 = tf.compat.v1
MOD = new_spec(partition_strategy="mod")
OTHERS = [(MOD, 1), (MOD, 3), (new_spec(), 1), (new_spec(), 5)]
IDS = [0, 1, 1, 5, 7, 7, 7, 11]


def of_two_hosts(model_dir):
    estimator = new_estimator(model_dir, spec=MOD, num_hosts=2)
    estimator.train(input_of(IDS), max_steps=4)
    return estimator


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return of_two_hosts(tmp_path_factory.mktemp("trained"))


def without_record(trained, directory):
    """Writes the same checkpoint as an earlier version of this package, or a TPU, would."""
    reader = tf.train.load_checkpoint(trained.model_dir)
    with tf.Graph().as_default(), v1.Session() as session:
        for name in reader.get_variable_to_shape_map():
            if name != table_layouts.TABLE_LAYOUTS_KEY:
                v1.get_variable(name, initializer=reader.get_tensor(name), use_resource=True)
        session.run(v1.global_variables_initializer())
        v1.train.Saver().save(session, str(directory / "model.ckpt"), global_step=4)
    return directory


def predicted(estimator):
    return [int(prediction["count"][0]) for prediction in estimator.predict(
        input_of(range(counting.VOCABULARY)))]


def test_checkpoint_records_its_table_layouts(trained):
    text = tf.train.load_variable(trained.model_dir, table_layouts.TABLE_LAYOUTS_KEY)
    assert table_layouts.parse_table_layouts(text) == {
        "counts": table_layouts.TableLayout("mod", 2, counting.VOCABULARY)}
    assert trained.get_variable_names() == ["counts", "global_step"]


def test_values_are_by_id(trained):
    assert counts(trained) == counts_of(*IDS)
    assert tf.train.load_variable(trained.model_dir, "counts")[:, 0].tolist() != counts_of(*IDS)


@pytest.mark.parametrize("spec, num_hosts", OTHERS)
def test_evaluates_and_predicts_with_another_layout(trained, spec, num_hosts):
    estimator = new_estimator(trained.model_dir, spec=spec, num_hosts=num_hosts)
    assert estimator.evaluate(input_of([7, 1]))["loss"] == -5
    assert predicted(estimator) == counts_of(*IDS)


@pytest.mark.slow
@pytest.mark.parametrize("spec, num_hosts", OTHERS)
def test_trains_on_with_another_layout(tmp_path, spec, num_hosts):
    of_two_hosts(tmp_path)
    estimator = new_estimator(tmp_path, spec=spec, num_hosts=num_hosts)
    estimator.train(input_of([2, 7]), max_steps=5)
    assert counts(estimator) == counts_of(*IDS, 2, 7)
    assert predicted(of_two_hosts(tmp_path)) == counts_of(*IDS, 2, 7)  # nothing left to train


def test_starts_another_model(trained, tmp_path):
    estimator = new_estimator(tmp_path, spec=MOD, num_hosts=3, warm_start_from=trained.model_dir)
    estimator.train(input_of([2, 7]), max_steps=1)
    assert counts(estimator) == counts_of(*IDS, 2, 7)


@pytest.mark.parametrize("by_list", [True, False])
def test_init_from_checkpoint_in_a_scaffold_fn_knows_layouts(trained, tmp_path, by_list):
    def model_fn(features, labels, mode, params):
        def scaffold_fn():
            parts = [part for part in v1.global_variables() if "counts" in part.name]
            v1.train.init_from_checkpoint(
                trained.model_dir, {"counts": parts if by_list else "counts"})
            return v1.train.Scaffold()

        return counting.model_fn(features, labels, mode, params)._replace(
            scaffold_fn=scaffold_fn)

    estimator = new_estimator(tmp_path, model_fn, spec=MOD, num_hosts=5)
    estimator.train(input_of([0, 7]), max_steps=1)
    assert counts(estimator) == counts_of(*IDS, 0, 7)


def test_saver_of_the_program_knows_layouts(trained, tmp_path):
    def model_fn(features, labels, mode, params):
        return counting.model_fn(features, labels, mode, params)._replace(
            scaffold_fn=lambda: v1.train.Scaffold(saver=v1.train.Saver(
                v1.global_variables())))

    estimator = new_estimator(trained.model_dir, model_fn, spec=MOD, num_hosts=3)
    assert estimator.evaluate(input_of([7, 1]))["loss"] == -5


@pytest.mark.slow
def test_saver_with_keys_of_its_own_for_the_parts_records_all_layouts(tmp_path):
    def model_fn(features, labels, mode, params):
        return counting.model_fn(features, labels, mode, params)._replace(
            scaffold_fn=lambda: v1.train.Scaffold(saver=v1.train.Saver(
                {f"mine/{each.op.name}": each for each in v1.global_variables()})))

    for ids in (IDS[:4], IDS[4:]):
        estimator = new_estimator(tmp_path, model_fn, spec=MOD, num_hosts=3)
        estimator.train(input_of(ids), steps=2)
    assert estimator.evaluate(input_of([7, 1]))["loss"] == -5


@pytest.fixture
def patched_savers():
    """Savers as after `install()`."""
    with patch.applied(patch_table.SAVERS):
        yield


@pytest.mark.usefixtures("patched_savers")
def test_ordinary_variables_refuse_rows_in_another_order(trained):
    with tf.Graph().as_default(), v1.Session() as session:
        v1.get_variable("counts", [counting.VOCABULARY, 1], use_resource=True)
        with pytest.raises(ValueError, match="rows of 'counts' in .* ordinary variable .*'mod'"):
            v1.train.Saver().restore(session, trained.latest_checkpoint())
        with pytest.raises(ValueError, match="checkpoint reshard"):
            v1.train.init_from_checkpoint(trained.model_dir, {"counts": "counts"})


@pytest.mark.usefixtures("patched_savers")
def test_eager_variables_refuse_rows_in_another_order(trained):
    counts = tf.Variable(tf.ones([counting.VOCABULARY, 1]), name="counts")
    step = tf.Variable(0, name="global_step", dtype=tf.int64)
    path = trained.latest_checkpoint()
    with pytest.raises(ValueError, match="rows of 'counts' in .* ordinary variable .*'mod'"):
        tf.train.Checkpoint(table=counts).restore(path)
    with pytest.raises(ValueError, match="rows of 'counts' in .* ordinary variable .*'mod'"):
        v1.train.Saver({"counts": counts}).restore(None, path)
    assert counts.numpy().tolist() == [[1]] * counting.VOCABULARY
    v1.train.Saver([step]).restore(None, path)
    assert step.numpy() > 0


@pytest.mark.slow
def test_asks_for_the_hosts_that_wrote_a_checkpoint_that_does_not_say(trained, tmp_path,
                                                                     monkeypatch):
    without_record(trained, tmp_path)
    question = ("'counts' with partition_strategy='mod' .*`checkpoint_num_hosts`"
                ".*--checkpoint-num-hosts")
    ignorant = new_estimator(tmp_path, spec=MOD, num_hosts=2)
    for read in (lambda: ignorant.evaluate(input_of([7, 1])), lambda: predicted(ignorant),
                 lambda: ignorant.train(input_of([1, 1]), max_steps=5),
                 lambda: counts(ignorant)):
        with pytest.raises(ValueError, match=question):
            read()
    told = new_estimator(tmp_path, spec=MOD, num_hosts=3, checkpoint_num_hosts=2)
    assert counts(told) == predicted(told) == counts_of(*IDS)
    monkeypatch.setenv(settings.CHECKPOINT_NUM_HOSTS.variable, "2")
    assert counts(ignorant) == predicted(ignorant) == counts_of(*IDS)


def test_run_has_an_option_for_it(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv(settings.CHECKPOINT_NUM_HOSTS.variable, "")
    cli.main(["run", "--checkpoint-num-hosts", "2", str(tmp_path / "no_such_program.py")])
    assert os.environ[settings.CHECKPOINT_NUM_HOSTS.variable] == "2"
    monkeypatch.setenv(settings.CHECKPOINT_NUM_HOSTS.variable, "two")
    with pytest.raises(ValueError, match="must be an int of at least 1, got 'two'"):
        settings.CHECKPOINT_NUM_HOSTS.read()


def test_div_needs_no_record(tmp_path):
    source = new_estimator(tmp_path / "source", num_hosts=3)
    source.train(input_of(IDS), max_steps=4)
    (tmp_path / "bare").mkdir()
    bare = without_record(source, tmp_path / "bare")
    assert predicted(new_estimator(bare, num_hosts=2)) == counts_of(*IDS)


def test_number_of_hosts_has_to_be_a_number(tmp_path):
    with pytest.raises(ValueError, match="`checkpoint_num_hosts` must be an int of at least 1"):
        new_estimator(tmp_path, checkpoint_num_hosts=0)


def test_dense_variable_with_the_shape_of_a_table_is_read_as_it_is(tmp_path):
    def model_fn(features, labels, mode, params):
        v1.get_variable("kernel", initializer=tf.reshape(tf.range(12.0), [counting.VOCABULARY, 1]))
        return counting.model_fn(features, labels, mode, params)

    estimator = new_estimator(tmp_path, model_fn, spec=MOD, num_hosts=2)
    estimator.train(input_of(IDS), max_steps=4)
    assert estimator.get_variable_value("kernel")[:, 0].tolist() == list(range(12))
    assert counts(estimator) == counts_of(*IDS)
