# SPDX-License-Identifier: Apache-2.0
"""Infeeds and outfeeds of this machine, between graphs, sessions and threads."""

import collections
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.tpu import device_assignment, tpu_feed, training_loop
from tensorflow.python.tpu.ops import tpu_ops

import tpu_estimator_embedding
from tpu_estimator_embedding import settings
from tpu_estimator_embedding.channels import channel, waits
from tpu_estimator_embedding.compat.stubs import tpu_cores, tpu_feeds, tpu_runs
from tpu_estimator_embedding.low_level import core_queue

tpu_estimator_embedding.install()

pytestmark = pytest.mark.skipif(not channel.are_available(), reason="channels need native kernels")
v1 = tf.compat.v1


@pytest.fixture(autouse=True)
def empty_channels():
    run(v1.tpu.initialize_system)
    yield
    run(v1.tpu.shutdown_system)


def run(build, seconds=20, **feeds):
    """Runs what `build` returns in its own graph and session."""
    with tf.Graph().as_default(), v1.Session() as session:
        return session.run(build(), options=v1.RunOptions(timeout_in_ms=int(1000 * seconds)))


def feed(*values, core=0):
    run(lambda: [tpu_ops.infeed_enqueue_tuple(
        [tf.constant(value) for value in values], [np.shape(value) for value in values],
        device_ordinal=core)])


def take(*specs):
    return run(lambda: tpu_ops.infeed_dequeue_tuple(
        [dtype for dtype, _ in specs], [shape for _, shape in specs]))


def test_elements_arrive_once_and_in_order():
    for number in range(5):
        feed(number, [0.5, number])
    assert [take((tf.int32, []), (tf.float32, [2]))[0] for _ in range(5)] == list(range(5))
    with pytest.raises(tf.errors.DeadlineExceededError):
        run(lambda: tpu_ops.infeed_dequeue(tf.int32, []), seconds=0.3)


@pytest.mark.parametrize("raw_ops", [tf.raw_ops, v1.raw_ops], ids=["v2", "v1"])
def test_raw_ops_use_the_same_feeds(raw_ops):
    run(lambda: raw_ops.InfeedEnqueueTuple(inputs=[tf.constant(3), tf.constant([0.5])],
                                           shapes=[[], [1]], device_ordinal=0))
    assert take((tf.int32, []), (tf.float32, [1])) == [3, 0.5]
    feed(4)
    assert run(lambda: raw_ops.InfeedDequeueTuple(dtypes=[tf.int32], shapes=[[]])) == [4]
    run(lambda: raw_ops.OutfeedEnqueueTuple(inputs=[tf.constant(5)]))
    assert run(lambda: raw_ops.OutfeedDequeue(dtype=tf.int32, shape=[], device_ordinal=0)) == 5


@pytest.mark.parametrize("threads", [1, 4])
def test_many_threads_neither_lose_nor_double_an_element(threads):
    each = 40
    found = collections.Counter()

    def put(first):
        with tf.Graph().as_default(), v1.Session() as session:
            value = v1.placeholder(tf.int32, [])
            enqueue = tpu_ops.infeed_enqueue(value)
            for number in range(first, first + each):
                session.run(enqueue, {value: number})

    def get():
        with tf.Graph().as_default(), v1.Session() as session:
            dequeue = tpu_ops.infeed_dequeue(tf.int32, [])
            found.update(session.run(dequeue).item() for _ in range(each))

    workers = [threading.Thread(target=put, args=[each * index]) for index in range(threads)]
    workers += [threading.Thread(target=get) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert found == collections.Counter(range(each * threads))


def test_infeed_holds_a_few_elements():
    for number in range(tpu_feeds.DEPTH):
        feed(number)
    with pytest.raises(tf.errors.DeadlineExceededError):
        run(lambda: [tpu_ops.infeed_enqueue(tf.constant(1))], seconds=0.3)
    assert [take((tf.int32, []))[0] for _ in range(tpu_feeds.DEPTH)] == list(
        range(tpu_feeds.DEPTH))  # the one that was cancelled is not among them


def test_single_tensors_prelinearized_ones_and_the_outfeed():
    run(lambda: [tpu_ops.infeed_enqueue(tf.constant([1.0, 2.0]), [2])])
    run(lambda: [tpu_ops.infeed_enqueue_prelinearized_buffer(
        tpu_ops.prelinearize(tf.constant([3.0, 4.0]), [2]))])
    run(lambda: [tpu_ops.infeed_enqueue_prelinearized_buffer(
        tpu_ops.prelinearize_tuple([tf.constant([5.0, 6.0])], [[2]]))])
    assert [run(lambda: tpu_ops.infeed_dequeue(tf.float32, [2])).tolist()
            for _ in range(3)] == [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
    run(lambda: [tpu_ops.outfeed_enqueue(tf.constant(7.0))])
    assert run(lambda: tpu_ops.outfeed_dequeue(tf.float32, [])) == 7.0


@pytest.mark.parametrize("order", ["AUTO", "MESH"])
def test_replicas_receive_by_their_device_assignment(order):
    """Replica r receives what is enqueued for its ordinal and returns it on its outfeed."""
    topology = tpu_cores.topology(8)
    assignment = device_assignment.device_assignment(
        topology, num_replicas=8, device_order_mode=getattr(
            device_assignment.DeviceOrderMode, order))

    def program():
        queue = tpu_feed.InfeedQueue(tuple_types=[tf.int32], tuple_shapes=[[8]])
        enqueue = queue.generate_enqueue_ops(
            [[tf.constant([replica])] for replica in range(8)],
            tpu_ordinal_function=lambda replica: assignment.tpu_ordinal(replica=replica),
            placement_function=lambda replica: assignment.host_device(replica=replica))
        with tf.control_dependencies(enqueue):
            start = tf.constant([[10 * replica] for replica in range(8)])
        return v1.tpu.shard(lambda start, fed: start + fed, [start], num_shards=8,
                            infeed_queue=queue, device_assignment=assignment)

    [values] = run(program)
    assert values.ravel().tolist() == [11 * replica for replica in range(8)]


@pytest.mark.parametrize("cores", [1, 2, 4])
def test_loops_receive_a_batch_in_each_iteration(cores):
    queue = tpu_feed.InfeedQueue(tuple_types=[tf.int32], tuple_shapes=[[cores]])
    for number in range(3):
        for core in range(cores):
            feed([10 * number + core], core=core)

    def loop():
        def body(total, fed):
            return total + fed, tpu_ops.outfeed_enqueue_tuple([fed])
        return training_loop.repeat(3, body, [tf.zeros([1], tf.int32)], queue)

    [totals] = run(lambda: v1.tpu.shard(loop, num_shards=cores))
    assert totals.tolist() == [30 + 3 * core for core in range(cores)]
    for number in range(3):
        assert run(lambda: [tpu_ops.outfeed_dequeue(tf.int32, [1], core) for core in
                            range(cores)]) == [[10 * number + core] for core in range(cores)]


@pytest.mark.parametrize("v2_loops", [False, True])
def test_gradient_of_a_loop_whose_result_is_an_output_of_each_replica(v2_loops):
    """The loop is copied for the outfeed, and once more with what its gradient keeps."""
    xs = np.random.default_rng(0).normal(size=[4, 3]).astype(np.float32)

    def step(x):
        weights = v1.get_variable("weights", initializer=np.full(3, 0.75, np.float32))
        _, net = tf.while_loop(lambda i, net: i < 2, lambda i, net: (i + 1, net * weights), [0, x])
        outfeed = tpu_ops.outfeed_enqueue(net)
        loss = tf.reduce_mean(tf.reduce_sum(net, 1))
        train = v1.tpu.CrossShardOptimizer(v1.train.GradientDescentOptimizer(1.0)).minimize(loss)
        with tf.control_dependencies([train, outfeed]):
            return tf.identity(loss)

    is_v2 = v1.control_flow_v2_enabled()
    (v1.enable_control_flow_v2 if v2_loops else v1.disable_control_flow_v2)()
    try:
        with tf.Graph().as_default(), v1.Session() as session:
            losses = v1.tpu.shard(step, [tf.constant(xs)], num_shards=2)
            session.run(v1.global_variables_initializer())
            session.run(losses)
            weights = session.run(v1.trainable_variables()[0])
    finally:
        (v1.enable_control_flow_v2 if is_v2 else v1.disable_control_flow_v2)()
    np.testing.assert_allclose(weights, 0.75 - 2 * 0.75 * xs.mean(0), rtol=1e-5)
    found = run(lambda: [tpu_ops.outfeed_dequeue(tf.float32, [2, 3], core) for core in (0, 1)])
    np.testing.assert_allclose(np.concatenate(found), 0.75 ** 2 * xs, rtol=1e-6)


def test_element_of_other_tensors_is_refused():
    feed([1.0, 2.0])
    with pytest.raises(tf.errors.InvalidArgumentError,
                       match=r"'?infeed of core 0'? got \(float \[2\]\), and .* dequeues "
                       r"\(int32 \[3\], float \[\]\)"):
        take((tf.int32, [3]), (tf.float32, []))


def test_dtypes_ordinals_and_shapes_are_checked_when_the_graph_is_built(monkeypatch):
    monkeypatch.setenv(settings.CORES.variable, "2")
    with tf.Graph().as_default():
        with pytest.raises(TypeError, match="is not a supported TPU infeed type"):
            tpu_ops.infeed_dequeue(tf.string, [])
        with pytest.raises(ValueError, match=r"device_ordinal.* must be in \[0, 2\)"):
            tpu_ops.infeed_enqueue(tf.constant(1), device_ordinal=2)
        with pytest.raises(ValueError, match="[Ss]hape"):
            tpu_ops.infeed_enqueue(tf.constant([1, 2]), [3], device_ordinal=0)


@pytest.mark.parametrize("event", ["initialize", "shutdown"])
def test_new_start_of_the_system_empties_feeds(event):
    feed(1)
    run(getattr(v1.tpu, f"{event}_system"))
    feed(2)
    assert take((tf.int32, [])) == [2]


def test_end_of_the_system_ends_what_waits():
    errors = []

    def wait():
        try:
            take((tf.int32, []))
        except tf.errors.CancelledError as error:
            errors.append(str(error))

    thread = threading.Thread(target=wait)
    thread.start()
    while thread.is_alive():
        run(v1.tpu.shutdown_system)
        thread.join(0.2)
    assert "The TPU system was shut down." in errors[0]


# Who waits for a thread that is no longer there.


def partitioned_queue(host, assignment, dims):
    return tpu_feed._PartitionedInfeedQueue(
        number_of_tuple_elements=2, device_assignment=assignment, host_id=host,
        input_partition_dims=dims)


@pytest.mark.parametrize("hosts", [1, 2])
@pytest.mark.parametrize("dims", [[[2, 1], None], [[1, 2], [2]], [[1, 1], [1]]])
def test_replicas_of_several_cores_receive_their_whole_input(hosts, dims, monkeypatch):
    monkeypatch.setenv(settings.CORES.variable, "8")
    monkeypatch.setenv(settings.HOSTS.variable, str(hosts))
    assignment = device_assignment.DeviceAssignment.build(
        tpu_cores.topology(8, hosts), computation_shape=[1, 1, 1, 2], num_replicas=4)
    rng = np.random.default_rng(3)
    inputs = [(rng.normal(size=[4, 6]).astype(np.float32), rng.normal(size=[6]).astype(np.float32))
              for _ in range(4)]

    def enqueue(host):
        replicas = assignment.lookup_replicas(task_id=host, logical_core=0)
        return partitioned_queue(host, assignment, dims).generate_enqueue_ops(
            [[tf.constant(value) for value in inputs[replica]] for replica in replicas])

    def compute():
        queue = partitioned_queue(0, assignment, dims)
        queue.set_tuple_types([tf.float32, tf.float32])
        queue.set_tuple_shapes([[16, 6], [24]])
        queue.set_number_of_shards(4)

        def product():
            matrix, vector = queue.generate_dequeue_op()
            return tf.linalg.matvec(matrix, vector)

        return v1.tpu.replicate(product, [[]] * 4, device_assignment=assignment)

    for host in range(hosts):
        run(lambda host=host: enqueue(host))
    for [found], (matrix, vector) in zip(run(compute), inputs, strict=True):
        np.testing.assert_allclose(found, matrix @ vector, rtol=1e-5)


@pytest.mark.parametrize("dims, sentence", [
    ([[4, 1], None], "The product of each input partition dim should equal to"),
    ([[2], None], "Input partition dims must have the same number of dimensions"),
    ([[2, 1]], r"`input_partition_dims` must be a list of 2, one for each input, got \[\[2, 1\]\]"),
])
def test_partitions_that_do_not_fit_are_refused(dims, sentence, monkeypatch):
    monkeypatch.setenv(settings.CORES.variable, "2")
    assignment = device_assignment.DeviceAssignment.build(
        tpu_cores.topology(2), computation_shape=[1, 1, 1, 2], num_replicas=1)
    with tf.Graph().as_default(), pytest.raises(ValueError, match=sentence):
        partitioned_queue(0, assignment, dims).generate_enqueue_ops(
            [[tf.zeros([4, 6]), tf.zeros([6])]])


def failing_feeder():
    with tf.Graph().as_default(), v1.Session() as session:
        value = tf.constant(1)
        with tf.control_dependencies([tf.debugging.Assert(value > 1, ["the records are bad"])]):
            session.run(tpu_ops.infeed_enqueue(value))


@pytest.mark.slow
def test_error_of_the_feeding_thread_ends_the_run_that_waits(monkeypatch):
    monkeypatch.setattr(threading, "excepthook", lambda arguments: None)
    monkeypatch.setattr(tpu_runs, "_AFTER_AN_ERROR", 2.5)
    feeder = threading.Thread(target=failing_feeder, name="feeder")
    feeder.start()
    with pytest.raises(tf.errors.AbortedError, match=(
            "'infeed of core 0' has no batch to dequeue. The last run at the other end, in "
            ".*failed: InvalidArgumentError")):
        take((tf.int32, []))
    feeder.join()


@pytest.mark.slow
def test_thread_that_fed_too_little_is_named(monkeypatch):
    monkeypatch.setattr(tpu_runs, "PATIENCE", 2.5)
    feeder = threading.Thread(target=lambda: feed(1), name="short feeder")
    feeder.start()
    assert take((tf.int32, [])) == [1]
    feeder.join()
    with pytest.raises(tf.errors.AbortedError, match="Enqueue and dequeue the same number"):
        take((tf.int32, []))


@pytest.mark.slow
def test_failed_run_ends_a_wait_even_where_its_thread_goes_on(monkeypatch):
    monkeypatch.setattr(tpu_runs, "PATIENCE", 2.5)
    errors = []

    def collect():
        try:
            run(lambda: tpu_ops.outfeed_dequeue(tf.float32, []), seconds=60)
        except tf.errors.AbortedError as error:
            errors.append(str(error))

    def failing():
        value = tf.constant(1.0)
        with tf.control_dependencies([tf.debugging.Assert(value > 1, ["the loss is bad"])]):
            return [tpu_ops.outfeed_enqueue(tf.identity(value))]

    with pytest.raises(tf.errors.InvalidArgumentError):
        run(failing)
    thread = threading.Thread(target=collect)
    thread.start()
    thread.join(60)
    assert "failed: InvalidArgumentError" in errors[0]


def failing_dequeue(dtype):
    """Returns ops that take a batch of core 0 and fail, and so leave that of core 1."""
    value = tpu_ops.infeed_dequeue(dtype, [])
    with tf.control_dependencies([tf.debugging.Assert(value > 1, ["the batch is bad"])]):
        return tpu_ops.infeed_dequeue(dtype, [])


def test_failed_run_leaves_no_part_of_a_batch():
    for number in range(3):
        feed(number)
    with pytest.raises(tf.errors.InvalidArgumentError, match="the batch is bad"):
        run(lambda: failing_dequeue(tf.int32))
    feed(10)
    assert take((tf.int32, [])) == [10]


def test_failed_run_leaves_a_delayed_update():
    feed(1)
    pending = channel.Channel(f"engine {core_queue.DELAYED_UPDATE}", 1)
    run(lambda: pending.put([tf.constant(5)]))

    def update():
        with tf.control_dependencies([failing_dequeue(tf.int32)]):
            return pending.take([tf.TensorSpec([], tf.int32)])

    with pytest.raises(tf.errors.InvalidArgumentError, match="the batch is bad"):
        run(update)
    assert run(lambda: pending.take([tf.TensorSpec([], tf.int32)])) == [5]


def test_time_limit_of_a_run_leaves_batches():
    feed(1)
    with pytest.raises(tf.errors.DeadlineExceededError):
        run(lambda: tpu_ops.outfeed_dequeue(tf.int32, []), seconds=0.3)
    assert take((tf.int32, [])) == [1]


def test_failed_run_ends_the_wait_for_room():
    errors = []

    def feed_all():
        try:
            with tf.Graph().as_default(), v1.Session() as session:
                session.run([tpu_ops.infeed_enqueue(tf.constant(0))
                             for _ in range(2 * tpu_feeds.DEPTH)])
        except tf.errors.AbortedError as error:
            errors.append(str(error))

    feeder = threading.Thread(target=feed_all)
    feeder.start()
    while not [wait for wait in waits.waiting() if wait.end.side == "put"]:
        time.sleep(0.01)
    with pytest.raises(tf.errors.InvalidArgumentError, match="the batch is bad"):
        run(lambda: failing_dequeue(tf.int32))
    feeder.join(60)
    assert "'infeed of core 0' was emptied, because the run that dequeues it" in errors[0]


PROGRAM = """
    import threading, time
    import tensorflow.compat.v1 as tf
    import tpu_estimator_embedding
    tpu_estimator_embedding.install()
    from tensorflow.python.tpu.ops import tpu_ops
    tf.disable_eager_execution()
    value = tpu_ops.infeed_dequeue(tf.int32, [])
    print("ready", flush=True)
"""


def start(lines):
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(PROGRAM) + textwrap.dedent(lines)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"})


@pytest.mark.long
def test_ctrl_c_ends_a_program_that_waits():
    program = start("""
        threading.Thread(target=time.sleep, args=[600], daemon=True).start()
        tf.Session().run(value)
    """)
    assert program.stdout.readline() == "ready\n"
    while program.poll() is None:  # a signal before the run begins is Python's own matter
        program.send_signal(signal.SIGINT)
        try:
            program.wait(3)
        except subprocess.TimeoutExpired:
            continue
    assert "KeyboardInterrupt" in program.stderr.read()


@pytest.mark.long
def test_program_that_nothing_feeds_ends_with_an_error():
    program = start("tf.Session().run(value)")
    _, errors = program.communicate(timeout=120)
    assert program.returncode == 1
    assert ("No thread has enqueued a batch yet, and none is left to do so. Start the thread that "
            "does before the run that waits.") in errors
