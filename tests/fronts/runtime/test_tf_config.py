# SPDX-License-Identifier: Apache-2.0
"""Wrong values of TF_CONFIG are refused with the rule, the value and the fix."""

import json

import pytest
import tensorflow as tf

import tpu_estimator_embedding
from tpu_estimator_embedding.tf_config import check_tf_config

CLUSTER = {"chief": ["h:1"], "worker": ["h:2"], "ps": ["h:3", "h:4"]}
CHIEF = {"type": "chief", "index": 0}


def config(cluster=CLUSTER, task=CHIEF):
    return {"cluster": cluster, "task": task}


# Of parts that TensorFlow reads without a cluster, too.
WRONG_TYPES = [
    ({"task": 3}, "Task in TF_CONFIG must be an object with type and index, got 3. Its format is"),
    ({"task": None}, "Task in TF_CONFIG must be an object with type and index, got None"),
    ({"task": {"type": 3}}, "Type of task in TF_CONFIG must be a str, got 3"),
    ({"task": {"type": "worker", "index": "x"}}, "must be an int of at least 0, got 'x'"),
    ({"cluster": []}, "Cluster in TF_CONFIG must be an object of job names and lists of "
                      r"addresses, got \[\]. Its format is"),
    ({"service": 3}, "Service in TF_CONFIG must be an object, got 3"),
    ({"session_master": 3}, "`session_master` in TF_CONFIG must be a str, got 3"),
]


@pytest.mark.parametrize("value, message", [
    ("{", r"`TF_CONFIG` must be a JSON object, got '\{'\. Its format is"),
    ("[]", "`TF_CONFIG` must be a JSON object"),
    ("chief", "`TF_CONFIG` must be a JSON object"),
    ({"cluster": CLUSTER}, 'If "cluster" is set in TF_CONFIG, task type must be set. Type of '
                           "task in TF_CONFIG must be one of 'chief', 'worker', 'ps', "
                           "'evaluator', got None. Its format is"),
    (config(task="chief"), "Task in TF_CONFIG must be an object with type and index"),
    (config(task={"type": "boss", "index": 0}),
     "boss is not a valid task_type in the cluster_spec. .* got 'boss'"),
    (config(task={"type": "worker"}), "task index must be set.* got None"),
    (config(task={"type": "worker", "index": "x"}), "must be an int of at least 0, got 'x'"),
    (config(task={"type": "worker", "index": -1}), "must be an int of at least 0, got -1"),
    (config(task={"type": "ps", "index": 2}),
     "2 is not a valid task_id for task_type ps in the cluster_spec. .* must be less than 2, the "
     "number of ps tasks in the cluster, got 2"),
    (config({"ps": ["h:1"], "worker": ["h:2"]}),
     'If "cluster" is set in TF_CONFIG, it must have one "chief" node. .* got None'),
    (config({**CLUSTER, "chief": []}), "must be a list of one address, got \\[\\]"),
    (config({**CLUSTER, "chief": ["h:1", "h:2"]}),
     'The "cluster" in TF_CONFIG must have only one "chief" node'),
    (config({**CLUSTER, "ps": "h:3"}), "Ps of cluster in TF_CONFIG must be a list of addresses"),
    (config({**CLUSTER, "ps": ["h"]}), "Address of ps in TF_CONFIG must be in the format "
                                       "host:port, got 'h'"),
    (config([1]), "Cluster in TF_CONFIG must be an object"),
    *WRONG_TYPES,
])
def test_what_is_wrong_is_said(monkeypatch, value, message):
    tpu_estimator_embedding.install()
    monkeypatch.setenv("TF_CONFIG", value if isinstance(value, str) else json.dumps(value))
    with pytest.raises(ValueError, match=message):
        tf.compat.v1.estimator.tpu.RunConfig()


@pytest.mark.parametrize("value, message", [
    ("{", r"`TF_CONFIG` must be a JSON object, got '\{'\. Its format is"),
    ("[]", "`TF_CONFIG` must be a JSON object"), *WRONG_TYPES])
def test_estimators_without_tpu_say_it_too(monkeypatch, value, message):
    tpu_estimator_embedding.install()
    monkeypatch.setenv("TF_CONFIG", value if isinstance(value, str) else json.dumps(value))
    for make in (tf.estimator.RunConfig, lambda: tf.estimator.Estimator(lambda features: None)):
        with pytest.raises(ValueError, match=message):
            make()


def test_estimators_without_tpu_keep_clusters_that_tensorflow_accepts(monkeypatch):
    tpu_estimator_embedding.install()
    monkeypatch.setenv("TF_CONFIG", json.dumps(config({"chief": ["h"], "worker": ["h:2"]})))
    assert tf.estimator.RunConfig().is_chief


@pytest.mark.parametrize("value", [
    "", "{}", json.dumps({"task": {"type": "worker", "index": 0}}), json.dumps(config()),
    json.dumps(config(task={"type": "ps", "index": 1})),
    json.dumps(config(task={"type": "evaluator", "index": 3})),
    json.dumps(config({"master": ["h:1"], "ps": {"0": "[::1]:3"}},
                      {"type": "master", "index": "0"})),
])
def test_what_tensorflow_accepts_is_accepted(monkeypatch, value):
    monkeypatch.setenv("TF_CONFIG", value)
    check_tf_config()
