# SPDX-License-Identifier: Apache-2.0
"""What a session reports as not initialized."""


import tensorflow as tf

from tpu_estimator_embedding.estimator.hooks.session_start import add_ready_ops


def test_reports_of_readiness_name_what_is_not_initialized():
    v1 = tf.compat.v1
    with tf.Graph().as_default() as graph, v1.Session() as session:
        for name, is_resource, collection in (
                ("a", True, v1.GraphKeys.GLOBAL_VARIABLES), ("b", False, "variables"),
                ("c", True, v1.GraphKeys.LOCAL_VARIABLES)):
            v1.get_variable(name, [2], use_resource=is_resource, collections=[collection])
        add_ready_ops()
        add_ready_ops()
        [ready] = graph.get_collection(v1.GraphKeys.READY_OP)
        [ready_for_local] = graph.get_collection(v1.GraphKeys.READY_FOR_LOCAL_INIT_OP)
        assert session.run(ready).tolist() == [b"a", b"b", b"c"]
        assert session.run(ready_for_local).tolist() == [b"a", b"b"]
        session.run(v1.global_variables_initializer())
        assert session.run(ready).tolist() == [b"c"]
        assert session.run(ready_for_local).tolist() == []
