# SPDX-License-Identifier: Apache-2.0
"""Programs that feed the tasks of a TPU by its topology, with one id in every row of a table."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.tpu.ops import tpu_ops

import tpu_estimator_embedding
from tests.fronts.low_level.hand_driven_program import FEATURES, HandDriven
from tests.fronts.low_level.test_hand_driven import BATCH, RULES, Reference, new_batches, new_tables
from tpu_estimator_embedding import settings
from tpu_estimator_embedding.channels import channel

tpu_estimator_embedding.install()

pytestmark = pytest.mark.skipif(not channel.are_available(), reason="channels need native kernels")

v1 = tf.compat.v1


class Hosts(HandDriven):
    """Feeds every host on its own device: an infeed and an integer batch for each ordinal."""

    def __init__(self, tables, *arguments, **options):
        with pytest.MonkeyPatch.context() as context:  # a constant does not fit a part of a table
            context.setattr(v1, "constant_initializer", lambda values: v1.zeros_initializer())
            super().__init__(tables, *arguments, **options)
        with tf.Graph().as_default(), v1.Session() as session:
            topology = session.run(v1.tpu.initialize_system(
                embedding_config=self.engine.config_proto, job="worker"))
            self.assignment = tf.tpu.experimental.DeviceAssignment.build(
                topology, num_replicas=self.cores)
        for name, parts in self.variables.embedding_variables_by_table.items():
            ends = np.cumsum([part.shape[0] for part in parts])
            for part, rows in zip(parts, np.split(tables[name], ends[:-1]), strict=True):
                self.session.run(part.initializer, {part.initializer.inputs[1]: rows})


    def feed(self, batches, mode_override):
        with tf.Graph().as_default():
            batch, enqueues = {}, []
            for host in range(len(self.engine.hosts)):
                enqueues += self.feed_host(host, batch, mode_override)
            with v1.Session(config=v1.ConfigProto(isolate_session_state=True)) as session:
                for values in batches:
                    flat = {"x": values["x"], "y": values["y"], **values["ids"]}
                    session.run(enqueues, {tensor: np.split(flat[name], self.cores)[replica]
                                           for (name, replica), tensor in batch.items()})

    def feed_host(self, host, batch, mode_override):
        enqueues = []
        for replica in self.assignment.lookup_replicas(host, 0):
            device = self.assignment.host_device(replica, job="worker")
            ordinal = int(self.assignment.tpu_ordinal(replica))
            with tf.device(device):
                own = {name: v1.placeholder(tf.int32, [self.share]) for name in FEATURES}
                own |= {"x": v1.placeholder(tf.float32, [self.share, 2]),
                        "y": v1.placeholder(tf.float32, [self.share])}
                batch.update({(name, replica): tensor for name, tensor in own.items()})
                words = tf.reshape(tf.stack([own["text"], own["title"]], 1), [-1])
                enqueues += [
                    tpu_ops.infeed_enqueue_tuple(
                        [own["x"], own["y"]], [[self.share, 2], [self.share]],
                        device_ordinal=ordinal),
                    tpu_ops.enqueue_tpu_embedding_integer_batch(
                        [own["shop"], words], ordinal, mode_override)]
        return enqueues

    def collect(self, steps):
        with tf.Graph().as_default(), v1.Session() as session:
            outputs = []
            for core in range(self.cores):
                host, ordinal = divmod(core, self.engine.num_cores_per_host)
                with tf.device(f"/job:worker/task:{host}/device:CPU:0"):
                    outputs += tpu_ops.outfeed_dequeue_tuple([tf.float32], [[self.share]], ordinal)
            for _ in range(steps):
                yield np.concatenate(session.run(outputs))


@pytest.mark.slow
@pytest.mark.parametrize("cores, hosts", [(4, 1), (4, 2), (8, 2), (8, 4)])
def test_replicas_of_every_host_train_as_numpy(cores, hosts, monkeypatch):
    monkeypatch.setenv(settings.CORES.variable, str(cores))
    monkeypatch.setenv(settings.HOSTS.variable, str(hosts))
    program = Hosts(new_tables(), RULES["SGD"][0], cores, BATCH, num_hosts=hosts)
    reference = Reference("SGD", cores)
    for call, expect in ((program.train, reference.train), (program.evaluate, reference.predict)):
        losses, predictions = call(new_batches())
        for step, batch in enumerate(new_batches()):
            expected, of_cores = expect(batch)
            np.testing.assert_allclose(predictions[step], expected, atol=2e-6, rtol=2e-6)
        np.testing.assert_allclose(losses, of_cores, atol=2e-6, rtol=2e-6)
    tables = program.tables()
    for name, values in reference.retrieve().items():
        np.testing.assert_allclose(np.concatenate(tables[name]), values, atol=2e-6, rtol=2e-6)
