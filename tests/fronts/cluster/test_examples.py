# SPDX-License-Identifier: Apache-2.0
"""The examples for Kubernetes and ssh: valid, and every task gets a TF_CONFIG that is."""

import json
import os
import pathlib
import re
import subprocess
import time

import pytest
import yaml
from kubernetes import client

from tpu_estimator_embedding.tf_config import check_tf_config

FOLDER = pathlib.Path(__file__).parents[3] / "examples" / "cluster"
OBJECTS = list(yaml.safe_load_all((FOLDER / "kubernetes.yaml").read_text()))
BY_NAME = {(each["kind"], each["metadata"]["name"]): each for each in OBJECTS}
CLUSTER = json.loads(BY_NAME["ConfigMap", "cluster"]["data"]["CLUSTER"])


def model_of(kind):
    """Returns the schema of Kubernetes for a kind, in which its client refuses unknown names."""
    return getattr(client, f"V1{kind}")


@pytest.mark.parametrize("kind, name", BY_NAME)
def test_objects_are_those_of_kubernetes(kind, name):
    model_of(kind).model_validate(BY_NAME[kind, name])


def test_the_schema_refuses_unknown_and_missing_names():
    job = BY_NAME["Job", "chief"]
    with pytest.raises(ValueError, match="replicas"):
        model_of("Job").model_validate({**job, "spec": {**job["spec"], "replicas": 1}})
    with pytest.raises(ValueError, match="template"):
        model_of("Job").model_validate({**job, "spec": {}})


def tasks():
    """Yields workload, pod name, index and environment of every task, as Kubernetes expands it."""
    for workload in OBJECTS:
        spec = workload["spec"] if "template" in workload.get("spec", {}) else None
        if spec is None:
            continue
        for index in range(spec.get("replicas") or spec["completions"]):
            [container] = spec["template"]["spec"]["containers"]
            environment = {}
            for variable in container["env"]:
                if source := variable.get("valueFrom"):
                    value = (str(index) if "fieldRef" in source else
                             BY_NAME["ConfigMap", source["configMapKeyRef"]["name"]]["data"][
                                 source["configMapKeyRef"]["key"]])
                else:
                    value = re.sub(r"\$\((\w+)\)", lambda match, known=environment:
                                   known[match[1]], variable["value"])
                environment[variable["name"]] = value
            yield workload, f"{workload['metadata']['name']}-{index}", index, environment


def test_every_task_of_kubernetes_has_its_tf_config(monkeypatch):
    found = set()
    for workload, pod, index, environment in tasks():
        monkeypatch.setenv("TF_CONFIG", environment["TF_CONFIG"])
        check_tf_config()
        config = json.loads(environment["TF_CONFIG"])
        job = config["task"]["type"]
        assert config["cluster"] == CLUSTER
        assert (job, config["task"]["index"]) == (workload["metadata"]["name"], index)
        found.add((job, index))
        if job == "evaluator":
            continue
        pods = workload["spec"]["template"]["spec"]
        service = pods.get("subdomain") or workload["spec"]["serviceName"]
        [ports] = BY_NAME["Service", service]["spec"]["ports"]
        assert CLUSTER[job][index] == f"{pod}.{service}:{ports['port']}"
        assert pods["containers"][0]["ports"] == [{"containerPort": ports["port"]}]
    assert found == {(job, index) for job, addresses in CLUSTER.items()
                     for index in range(len(addresses))} | {("evaluator", 0)}


def test_labels_and_volumes_agree():
    selector = BY_NAME["Service", "training"]["spec"]["selector"]
    for workload, *_ in tasks():
        template = workload["spec"]["template"]
        assert selector.items() <= template["metadata"]["labels"].items()
        matched = workload["spec"].get("selector", {}).get("matchLabels", {})
        assert matched.items() <= template["metadata"]["labels"].items()
        [volume] = template["spec"]["volumes"]
        assert ("PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"]) in BY_NAME
        [mount] = template["spec"]["containers"][0]["volumeMounts"]
        assert mount["name"] == volume["name"]


def executable(path, text):
    path.write_text(f"#!/bin/sh\n{text}")
    path.chmod(0o755)


def test_ssh_starts_every_task_restarts_what_fails_and_stops_the_servers(tmp_path):
    commands = tmp_path / "commands"
    commands.mkdir()
    executable(commands / "ssh", 'echo "$2" >> hosts; exec sh -c "exec $(printf %s "$3" | '
               "sed 's/^cd . && /env /')\"\n")
    executable(commands / "tpu-estimator-embedding", """
        echo "$TF_CONFIG" > config.$$ && mv config.$$ done.$$
        echo "$@" >> arguments
        case "$TF_CONFIG" in
            *'"ps", "index"'* | *'"worker", "index"'*) echo $$ >> waiting; exec sleep 60;;
            *'"chief", "index"'*) sleep 2; test -e failed || { touch failed; exit 1; };;
        esac
        """)
    started = time.monotonic()
    done = subprocess.run(
        [FOLDER / "ssh.sh", "train.py", "--model_dir", "/shared/run"], cwd=tmp_path, timeout=100,
        capture_output=True, text=True, check=False, env={
            **os.environ, "PATH": f"{commands}:{os.environ['PATH']}", "CHIEF": "a", "WORKER": "b",
            "PS": "c d"})
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - started < 50
    assert "chief 0 on a failed: restarting it in 5 seconds" in done.stderr
    assert set((tmp_path / "arguments").read_text().splitlines()) == {
        "run train.py --model_dir /shared/run"}
    configs = [json.loads(path.read_text()) for path in tmp_path.glob("done.*")]
    cluster = {"chief": ["a:2222"], "worker": ["b:2222"], "ps": ["c:2222", "d:2222"]}
    assert all(config["cluster"] == cluster for config in configs)
    assert sorted((config["task"]["type"], config["task"]["index"]) for config in configs) == [
        ("chief", 0), ("chief", 0), ("evaluator", 0), ("ps", 0), ("ps", 1), ("worker", 0)]
    waiting = (tmp_path / "waiting").read_text().split()
    assert len(waiting) == 3
    for pid in waiting:
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), 0)
