# SPDX-License-Identifier: Apache-2.0
"""An export copies tables from file to file, and writes what it would write without that."""

import pathlib

import pytest
import tensorflow as tf
from tensorflow_estimator import estimator as tf_estimator

from tests.fronts.estimator import counting
from tests.fronts.estimator.counting import counts_of, input_of, new_estimator, new_spec
from tpu_estimator_embedding import settings
from tpu_estimator_embedding.checkpoint.bundle import read_bundle

v1 = tf.compat.v1
IDS = [0, 1, 1, 5, 7, 7, 7, 11]
DIV, MOD = "div", "mod"


def model_fn(features, labels, mode, params):
    spec = counting.model_fn(features, labels, mode, params)
    weight = v1.get_variable("weight", [], initializer=v1.ones_initializer())
    spec = spec._replace(predictions={"count": features["id"] * weight})
    if mode != "infer":
        return spec
    return spec._replace(export_outputs={
        "serving_default": tf_estimator.export.PredictOutput(spec.predictions)})


def make_estimator(directory, num_hosts, strategy, **options):
    return new_estimator(directory, model_fn, num_hosts=num_hosts,
                         spec=new_spec(partition_strategy=strategy), **options)


def receiver():
    ids = v1.placeholder(tf.int64, [None])
    return tf_estimator.export.ServingInputReceiver({"id": ids}, {"id": ids})


def exported(estimator, directory):
    return pathlib.Path(estimator.export_saved_model(str(directory), receiver).decode())


def files(export):
    """Returns the bytes of data files, and where the index says that each piece of a tensor is."""
    directory = export / "variables"
    data = {path.name: path.read_bytes() for path in directory.glob("*.data-*")}
    tensors = read_bundle(directory / "variables")
    return data, {name: [(piece.path.name, piece.extents, piece.entry)
                         for piece in tensor.pieces] for name, tensor in tensors.items()}


@pytest.mark.slow
@pytest.mark.parametrize("stored, present", [
    ((1, DIV), (1, DIV)), ((2, MOD), (2, MOD)), ((2, MOD), (1, DIV)), ((2, DIV), (3, DIV)),
    ((2, DIV), (2, MOD))], ids=str)
def test_same_files_as_by_a_restore(tmp_path, monkeypatch, stored, present):
    make_estimator(tmp_path / "model", *stored).train(input_of(IDS), max_steps=4)
    estimator = make_estimator(tmp_path / "model", *present)
    streamed = exported(estimator, tmp_path / "streamed")
    monkeypatch.setenv(settings.TABLES_IN_PLACE.variable, "off")
    assert files(streamed) == files(exported(estimator, tmp_path / "restored"))
    serve = tf.saved_model.load(str(streamed), ["serve"]).signatures["serving_default"]
    assert serve(tf.range(12, dtype=tf.int64))["count"].numpy()[:, 0].tolist() == counts_of(*IDS)


def test_damaged_table_is_not_exported(tmp_path):
    estimator = make_estimator(tmp_path, 1, DIV)
    estimator.train(input_of(IDS), max_steps=4)
    [piece] = read_bundle(pathlib.Path(estimator.latest_checkpoint()))["counts"].pieces
    stored = bytearray(piece.path.read_bytes())
    stored[piece.entry.offset] ^= 1
    piece.path.write_bytes(stored)
    with pytest.raises(ValueError, match="must not be corrupt"):
        exported(estimator, tmp_path / "export")


def test_saver_of_the_model_exports(tmp_path):
    saved = []

    class Saver(v1.train.Saver):
        def save(self, *args, **kwargs):
            saved.append(args)
            return super().save(*args, **kwargs)

    def with_saver(features, labels, mode, params):
        spec = model_fn(features, labels, mode, params)
        return spec if mode != "infer" else spec._replace(
            scaffold_fn=lambda: v1.train.Scaffold(saver=Saver()))

    estimator = new_estimator(tmp_path, with_saver)
    estimator.train(input_of(IDS), max_steps=4)
    export = exported(estimator, tmp_path / "export")
    assert len(saved) == 1
    serve = tf.saved_model.load(str(export), ["serve"]).signatures["serving_default"]
    assert serve(tf.range(12, dtype=tf.int64))["count"].numpy()[:, 0].tolist() == counts_of(*IDS)


@pytest.mark.slow
def test_export_to_a_storage_service(tmp_path):
    estimator = make_estimator(tmp_path, 2, MOD)
    estimator.train(input_of(IDS), max_steps=4)
    # TensorFlow reads this as a path of another file system.
    export = estimator.export_saved_model(f"file://{tmp_path}/export", receiver).decode()
    serve = tf.saved_model.load(export, ["serve"]).signatures["serving_default"]
    assert serve(tf.range(12, dtype=tf.int64))["count"].numpy()[:, 0].tolist() == counts_of(*IDS)
