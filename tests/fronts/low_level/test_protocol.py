# SPDX-License-Identifier: Apache-2.0
"""The order in which batches are enqueued, received and sent, and what breaks it."""

import pytest
import tensorflow as tf

from tests.fronts.low_level.small_program import SmallProgram, make_engine
from tests.graphs import ancestors
from tests.kernel_choice import choose_kernels
from tpu_estimator_embedding.compat.modules import tpu_embedding

InvalidArgument = tf.errors.InvalidArgumentError


@pytest.fixture(params=[True, False], ids=["control flow v2", "control flow v1"])
def control_flow(request):
    before = tf.compat.v1.control_flow_v2_enabled()
    choose = {True: tf.compat.v1.enable_control_flow_v2,
              False: tf.compat.v1.disable_control_flow_v2}
    choose[request.param]()
    yield
    choose[before]()


def test_a_run_of_everything_is_one_update():
    program = SmallProgram(num_cores=3)
    for step in range(3):
        activations = program.run(program.activations, program.sends, program.enqueue)[0]
        assert [core.tolist() for core in activations] == [[[1.0 - 6 * step]] * 2] * 3
    assert program.row(3) == 1.0 - 18


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_cores_in_runs_of_their_own_see_one_version_of_the_table(order):
    program = SmallProgram(num_cores=3)
    for step in range(2):
        for core in order:
            assert program.row(3) == 1.0 - 6 * step
            activations = program.run(program.activations[core], program.sends[core],
                                      program.enqueue[core])[0]
            assert activations.tolist() == [[1.0 - 6 * step]] * 2
    assert program.row(3) == 1.0 - 12


def test_receiving_waits_for_a_batch():
    program = SmallProgram()
    with pytest.raises(tf.errors.DeadlineExceededError):
        program.session.run(program.activations,
                            options=tf.compat.v1.RunOptions(timeout_in_ms=300))


def test_sending_waits_for_a_batch():
    program = SmallProgram(receives=False)
    with pytest.raises(tf.errors.DeadlineExceededError):
        program.session.run(program.sends, options=tf.compat.v1.RunOptions(timeout_in_ms=300))


def test_gradients_that_do_not_depend_on_activations_wait_for_them():
    program = SmallProgram()
    program.run(program.sends, program.enqueue)
    assert program.row(3) == 1.0 - 2


def test_gradients_belong_to_the_activations_they_depend_on():
    program = SmallProgram(sends=False)
    with program.graph.as_default():
        program.engine.get_activations()  # of a model that only evaluates
        send = program.engine.generate_send_gradients_op(
            {"title": tf.ones_like(program.activations[0]) * program.activations[0]})
    program.run(send, program.enqueue)
    assert program.row(3) == 1.0 - 2


def test_receiving_before_gradients_are_sent():
    program = SmallProgram()
    program.run(program.activations, program.enqueue)
    program.run(program.enqueue)
    for fetch in (program.activations, program.sends):  # the gradients stay due
        with pytest.raises(InvalidArgument, match="Gradients of the previous batch must be sent "
                                                  "before core 0 receives another one"):
            program.run(fetch)
    assert program.row(3) == 1.0


def test_gradients_of_one_core_only():
    program = SmallProgram(num_cores=2)
    program.run(program.activations[0], program.sends[0], program.enqueue)
    assert program.row(3) == 1.0
    with pytest.raises(InvalidArgument, match="must be sent by all 2 cores in every step, got "
                                              "another step of core 0"):
        program.run(program.activations[0], program.enqueue)
    assert program.row(3) == 1.0


def test_gradients_for_inference():
    program = SmallProgram(mode_override="inference")
    with pytest.raises(InvalidArgument, match="must be sent for training batches only, got "
                                              "gradients of core 0 for a batch for inference"):
        program.run(program.activations, program.sends, program.enqueue)
    assert program.row(3) == 1.0


@pytest.mark.parametrize("mode_override", [None, "unspecified", "train", "training"])
def test_modes_that_train(mode_override):
    program = SmallProgram(mode_override=mode_override)
    program.run(program.activations, program.sends, program.enqueue)
    assert program.row(3) == 1.0 - 2


def test_inference_between_steps():
    program = SmallProgram(num_cores=2)
    inference = program.enqueue_ops("inference")
    for step in range(2):
        program.run(program.activations, program.sends, program.enqueue)
        for _ in range(2):
            activations = program.run(program.activations, inference)[0]
            assert activations[0].tolist() == [[1.0 - 4 * (step + 1)]] * 2
    assert program.row(3) == 1.0 - 8


def test_backward_pass_only_sends_without_receiving():
    program = SmallProgram(mode_override="backward_pass_only", receives=False, num_cores=2)
    program.run(program.enqueue)
    program.run(program.sends)
    program.run(program.sends, program.enqueue)
    assert program.row(3) == 1.0 - 8


def test_backward_pass_only_beside_a_model():
    program = SmallProgram()
    enqueue, send = program.enqueue_ops("backward_pass_only"), program.send_op()
    for step in range(2):
        program.run(program.activations, program.sends, program.enqueue)
        program.run(send, enqueue)
        assert program.row(3) == 1.0 - 4 * (step + 1)
    program.run(enqueue)
    with pytest.raises(InvalidArgument, match="Gradients of the previous batch must be sent"):
        program.run(program.activations, program.sends, program.enqueue)


def test_backward_pass_only_does_not_overtake():
    program = SmallProgram(mode_override="backward_pass_only")
    program.run(program.enqueue_ops("train"))
    with pytest.raises(InvalidArgument, match="must be enqueued after all "
                                              "earlier batches were received"):
        program.run(program.enqueue)


def test_unknown_mode_override():
    with pytest.raises(ValueError, match="`mode_override` must be one of 'unspecified', "
                                         "'inference', 'train', .*got 'trian'"):
        SmallProgram(mode_override="trian")


@pytest.mark.parametrize("mode_override", ["train", "training", "backward_pass_only"])
def test_training_an_engine_for_inference(mode_override):
    with pytest.raises(ValueError, match="`mode_override` must be 'unspecified' or 'inference' "
                                         f"in an engine for INFERENCE, got '{mode_override}'"):
        SmallProgram(mode_override=mode_override, mode=tpu_embedding.INFERENCE, sends=False)


def test_gradients_to_an_engine_for_inference():
    with pytest.raises(RuntimeError, match="`mode` must be TRAINING to send gradients, got 1"):
        SmallProgram(mode=tpu_embedding.INFERENCE)


@pytest.mark.parametrize("num_cores", [1, 2])
def test_bad_ids_surface_and_change_nothing(num_cores):
    program = SmallProgram(num_cores=num_cores)
    ids = [[3, 3]] * (num_cores - 1) + [[3, 10]]
    with pytest.raises(InvalidArgument, match=r"must be in \[0, 10\)"):
        program.run(program.activations, program.sends, program.enqueue, ids=ids)
    assert program.row(3) == 1.0


def test_step_is_read_before_activations_arrive():
    program = SmallProgram(sends=False)
    with program.graph.as_default():
        counter = tf.compat.v1.get_variable("counter", [], tf.int64, use_resource=True)
        step = counter.read_value()
        assert step.op not in ancestors(program.activations[0].op)
        program.engine.generate_send_gradients_op({"title": program.activations[0]}, step)
        assert step.op in ancestors(program.activations[0].op)


def test_step_that_depends_on_activations_is_left_where_it_is():
    program = SmallProgram(sends=False)
    with program.graph.as_default(), tf.control_dependencies(program.activations):
        step = tf.identity(program.step)
        program.sends = [program.engine.generate_send_gradients_op(
            {"title": tf.ones([2, 1])}, step)]
    program.run(program.activations, program.sends, program.enqueue)
    assert program.row(3) == 1.0 - 2


@pytest.mark.usefixtures("control_flow")
def test_both_generations_of_control_flow():
    program = SmallProgram(num_cores=2, pipeline_execution_with_tensor_core=True)
    for _ in range(3):
        program.run(program.activations, program.sends, program.enqueue)
    assert program.row(3) == 1.0 - 8
    with program.graph.as_default():
        retrieve = program.variables.retrieve_ops()
    program.run(retrieve)
    assert program.row(3) == 1.0 - 12


@pytest.mark.parametrize("tables_last", [False, True])
@pytest.mark.parametrize("optimizer", [
    tpu_embedding.StochasticGradientDescentParameters(1.0),
    tpu_embedding.AdamParameters(1.0, beta1=0.5, beta2=0.5, lazy_adam=False)], ids=["SGD", "Adam"])
@pytest.mark.parametrize("kernels", ["tf", "native"])
@pytest.mark.usefixtures("control_flow")
def test_steps_in_a_loop(optimizer, tables_last, kernels, monkeypatch):
    choose_kernels(kernels, monkeypatch)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        engine = make_engine(optimization_parameters=optimizer)
        if not tables_last:
            variables = engine.create_variables_and_ops()
        enqueue = engine.generate_enqueue_ops([{"title": tpu_embedding.EnqueueData(
            tf.constant([3, 3]), tf.constant([0, 1]))}])
        global_step = tf.compat.v1.placeholder_with_default(0, [])  # made outside of the loop

        def step(count, _):
            activations = engine.get_activations()["title"]
            send = engine.generate_send_gradients_op({"title": tf.ones_like(activations)},
                                                     global_step)
            with tf.control_dependencies([send]):
                return count + 1, tf.identity(activations)

        loop = tf.while_loop(lambda count, _: count < 3, step, [0, tf.zeros([2, 1])])
        if tables_last:
            variables = engine.create_variables_and_ops()
        session.run(tf.compat.v1.global_variables_initializer())
        for _ in range(3):
            session.run(enqueue)
        last = session.run(loop)[1]
        (table,) = session.run(variables.embedding_variables_by_table["words"])
    if isinstance(optimizer, tpu_embedding.StochasticGradientDescentParameters):
        assert last.tolist() == [[1.0 - 4]] * 2
        assert table[3, 0] == 1.0 - 6
    else:
        assert table[3, 0] < last[0, 0] < 1.0


@pytest.mark.parametrize("in_loop", [False, True])
def test_variables_never_created(in_loop):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        engine = make_engine()
        enqueue = engine.generate_enqueue_ops([{"title": tpu_embedding.EnqueueData(
            tf.constant([3, 3]), tf.constant([0, 1]))}])
        with pytest.raises(InvalidArgument, match="create_variables_and_ops_was_not_called"):
            session.run([tf.while_loop(
                lambda count, _: count < 1,
                lambda count, _: (count + 1, engine.get_activations()["title"]),
                [0, tf.zeros([2, 1])]) if in_loop else engine.get_activations(), enqueue])


def test_a_graph_has_separate_queues():
    engine = make_engine()
    for _ in range(2):
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            variables = engine.create_variables_and_ops()
            enqueue = engine.generate_enqueue_ops([{"title": tpu_embedding.EnqueueData(
                tf.constant([3, 3]), tf.constant([0, 1]))}])
            activations = engine.get_activations()
            session.run(tf.compat.v1.global_variables_initializer())
            session.run(variables.load_ops())
            assert session.run([activations, enqueue])[0]["title"].tolist() == [[1.0]] * 2


@pytest.mark.parametrize("call", [
    lambda engine: engine.create_variables_and_ops(),
    lambda engine: engine.get_activations(),
    lambda engine: engine.generate_enqueue_ops([{"title": tpu_embedding.EnqueueData(
        tf.constant([3, 3]), tf.constant([0, 1]))}]),
    lambda engine: engine.generate_send_gradients_op({"title": tf.ones([2, 1])})],
    ids=["create_variables_and_ops", "get_activations", "generate_enqueue_ops",
         "generate_send_gradients_op"])
def test_eager_execution(call, request):
    name = request.node.callspec.id
    with pytest.raises(RuntimeError, match=f"`{name}` must be called in graph mode"):
        call(make_engine())


def test_configs_may_be_changed_once_the_engine_is_made():
    tables = {"words": tpu_embedding.TableConfig(10, 1, tf.compat.v1.ones_initializer(), "sum")}
    features = {"title": tpu_embedding.FeatureConfig("words")}
    engine = tpu_embedding.TPUEmbedding(tables, features, 2, tpu_embedding.INFERENCE, master="")
    tables.clear()
    features["more"] = features.pop("title")._replace(table_id="missing")
    engine.table_to_config_dict.clear()
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        ids = tpu_embedding.EnqueueData.from_sparse_tensor(tf.sparse.from_dense([[3, 4], [3, 0]]))
        given = {"title": ids}
        enqueue = engine.generate_enqueue_ops([given])
        given.clear()
        activations = engine.get_activations()
        engine.create_variables_and_ops()
        session.run(tf.compat.v1.global_variables_initializer())
        values, _ = session.run([activations, enqueue])
    assert values["title"].tolist() == [[2.0], [1.0]]
    assert list(engine.table_to_config_dict) == ["words"]
