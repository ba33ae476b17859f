# SPDX-License-Identifier: Apache-2.0
"""Reads TF_CONFIG, which describes a cluster and the task of a process in it, and checks it."""

import json
from collections.abc import Collection, Mapping
from typing import Any

from tpu_estimator_embedding import checks, settings

VARIABLE = settings.TF_CONFIG.variable

_CHIEFS = ("chief", "master")
_OUTSIDE = "evaluator"  # evaluators are not listed in the cluster
_TYPES = (*_CHIEFS, "worker", "ps", _OUTSIDE)
_FORMAT = ('Its format is {"cluster": {"chief": ["host:port"], "worker": [...], "ps": [...]}, '
           '"task": {"type": "chief", "index": 0}}.')

_OBJECTS = {"cluster": "an object of job names and lists of addresses",
            "task": "an object with type and index", "service": "an object"}
_TEXTS = ("model_dir", "session_master", "eval_session_master")


def text() -> str:
    """Returns TF_CONFIG, unchecked; empty if it is not set."""
    return settings.TF_CONFIG.read() or ""


def names_cluster() -> bool:
    """Whether TF_CONFIG speaks of a cluster.

    It asks for the word: sessions of programs without Estimators ask, too, where no part of
    TF_CONFIG is read and so none is checked.
    """
    return "cluster" in text()


def check_tf_config() -> None:
    """Checks TF_CONFIG; does nothing if it is not set.

    Raises:
        ValueError: if its form is wrong, the cluster has no chief or not exactly one, an address
            has no port, or the task is missing or not part of the cluster.
    """
    config = check_form()
    if config.get("cluster"):
        _check_cluster(config["cluster"])
        _check_task(config.get("task", {}), config["cluster"])


def check_form() -> dict[str, Any]:
    """Checks the types of the parts of TF_CONFIG, and returns it; {} if it is not set.

    Raises:
        ValueError: if it is no JSON object, or a part that TensorFlow reads has another type.
    """
    given = text()
    if not given:
        return {}
    config = _parse(given)
    for name, rule in _OBJECTS.items():
        checks.check(isinstance(config.get(name, {}), dict), f"{name} in {VARIABLE}", rule,
                     config.get(name), _FORMAT)
    kind, index = (config.get("task", {}).get(name) for name in ("type", "index"))
    for what, value in (("type of task", kind), *((name, config.get(name)) for name in _TEXTS)):
        checks.check(value is None or isinstance(value, str), f"{what} in {VARIABLE}", "a str",
                     value, _FORMAT)
    checks.check(index is None or str(index).isdecimal(),  # TensorFlow accepts text too
                 f"index of task in {VARIABLE}", "an int of at least 0", index, _FORMAT)
    return config


def _parse(given: str) -> dict[str, Any]:
    try:
        config = json.loads(given)
    except json.JSONDecodeError:
        config = None
    checks.check(isinstance(config, dict), VARIABLE, "a JSON object", given, _FORMAT)
    return config


def _check_cluster(cluster: Mapping[str, Any]) -> None:
    chiefs = [job for job in _CHIEFS if job in cluster] or ["chief"]
    for job in chiefs:
        count = len(cluster.get(job, ()))
        known = "must have only one" if count > 1 else "it must have one"
        start = 'The "cluster" in TF_CONFIG' if count > 1 else 'If "cluster" is set in TF_CONFIG,'
        checks.check(isinstance(cluster.get(job), (list, dict)) and count == 1,
                     f"{job} of cluster in {VARIABLE}", "a list of one address", cluster.get(job),
                     _FORMAT, sentence=f'{start} {known} "{job}" node.')
    for job, tasks in cluster.items():
        checks.check(isinstance(tasks, (list, dict)), f"{job} of cluster in {VARIABLE}",
                     "a list of addresses", tasks, _FORMAT)
        for address in tasks.values() if isinstance(tasks, dict) else tasks:
            checks.check(_is_address(address), f"address of {job} in {VARIABLE}",
                         "in the format host:port", address)


def _is_address(address: object) -> bool:
    return isinstance(address, str) and address.rpartition(":")[2].isdecimal() and ":" in address


def _check_task(task: Mapping[str, Any], cluster: Mapping[str, Collection[object]]) -> None:
    kind, index = task.get("type"), task.get("index")
    types = [name for name in _TYPES if name in cluster or name == _OUTSIDE]
    checks.check(kind in types, f"type of task in {VARIABLE}",
                 "one of " + ", ".join(map(repr, types)), kind, _FORMAT, sentence=(
                     f"{kind} is not a valid task_type in the cluster_spec." if kind else
                     'If "cluster" is set in TF_CONFIG, task type must be set.'))
    checks.check(index is not None, f"index of task in {VARIABLE}", "an int of at least 0", index,
                 _FORMAT, sentence='If "cluster" is set in TF_CONFIG, task index must be set.')
    size = len(cluster.get(str(kind), ()))
    checks.check(kind == _OUTSIDE or int(str(index)) < size, f"index of task in {VARIABLE}",
                 f"less than {size}, the number of {kind} tasks in the cluster", index, sentence=(
                     f"{index} is not a valid task_id for task_type {kind} in the cluster_spec."))
