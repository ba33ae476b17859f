# SPDX-License-Identifier: Apache-2.0
"""Puts a program together, as the text of a module that a person could have written."""

import textwrap
from typing import NamedTuple

from tests.programs.draft import BATCH, STEPS, Draft, new_draft
from tests.programs.embeddings import EXPERIMENTAL, add_embeddings
from tests.programs.models import add_dense_features, add_model
from tests.programs.training import add_labels, add_outputs, add_train_op, add_training

WAYS = ("reference", "pipelined", "split", "tiled", "loop", "kernels", "records", "hosts",
        "imports", "cluster", "tf2", "layers")

SLOW = ("cluster", "tf2", "layers")  # ways that start processes


class Program(NamedTuple):
    """A program.

    Attributes:
        seed: the number that it follows from.
        source: the text of its module.
        ways: names of the ways to run it that must agree.
    """

    seed: int
    source: str
    ways: tuple[str, ...]


def new_program(seed: int) -> Program:
    """Returns the program of a number."""
    draft = new_draft(seed)
    draft.is_plain = seed % 5 == 0
    add_embeddings(draft)
    add_dense_features(draft)
    add_model(draft)
    add_labels(draft)
    add_training(draft)
    train_op = add_train_op(draft)
    outputs = add_outputs(draft)
    reading = _reading(draft)
    ways = tuple(way for way in WAYS if way not in draft.excluded)
    return Program(seed, "\n\n".join(["\n\n".join(_head(draft, seed, ways)), *(
        "\n" + part for part in (*draft.functions, reading, _model_fn(draft, train_op, outputs),
                                 _estimator(draft), _MAIN))]), ways)


def _head(draft: Draft, seed: int, ways: tuple[str, ...]) -> list[str]:
    reasons = "".join(f"{way} does not apply: {reason}\n"
                      for way, reason in sorted(draft.excluded.items()))
    imports = "import collections\n" if "collections." in "".join(draft.functions) else ""
    imports += "import sys\n\nimport numpy as np\nimport tensorflow.compat.v1 as tf\n"
    if "tpu_embedding." in repr([draft.tables, draft.spec]):
        imports += "from tensorflow.python.tpu import tpu_embedding\n"
    arrays = ",\n".join(f'        "{name}": {value}' for name, value in draft.arrays.items())
    data = (f"def new_data():\n    rng = np.random.default_rng(0)\n    return {{\n{arrays}}}\n")
    helpers = [part for part in draft.functions if part.startswith("def front")]
    draft.functions[:] = [part for part in draft.functions if part not in helpers]
    return [f'"""Program {seed} of the generated tests.\n\nWays: {", ".join(ways)}\n{reasons}"""\n'
            f"{imports}\n"
            f"BATCH, STEPS = {BATCH}, {STEPS}\nSAMPLES = {draft.samples}\n"
            f"EVALUATED = {None if draft.last_batch else 2}  # steps\n"
            f"NUM_SHARDS, ITERATIONS, PIPELINED, RECORDS = 1, 1, False, None\n",
            *("\n" + helper for helper in helpers), "\n" + data + "\n\nDATA = new_data()"]


_READ_RECORDS = '''\
def write_records(path):
    with tf.io.TFRecordWriter(path) as writer:
        for index in range(len(DATA["y"])):
            example = tf.train.Example()
            for name, values in DATA.items():
                value, feature = values[index].ravel(), example.features.feature[name]
                if values.dtype.kind == "S":
                    feature.bytes_list.value.append(values[index])
                elif values.dtype == np.float32:
                    feature.float_list.value.extend(value)
                else:
                    feature.int64_list.value.extend(value)
            writer.write(example.SerializeToString())


def parse(records):
    shapes = {name: values.shape[1:] for name, values in DATA.items()}
    return tf.io.parse_example(records, {name: tf.io.FixedLenFeature(
        shape, {"f": tf.float32, "i": tf.int64, "S": tf.string}[DATA[name].dtype.kind])
        for name, shape in shapes.items()})


'''
_BATCHES = {
    "slices": "dataset = tf.data.Dataset.from_tensor_slices(DATA)\n"
              "dataset = dataset.batch(params[\"batch_size\"]{drop}){after}",
    "repeated": "dataset = tf.data.Dataset.from_tensor_slices(DATA).repeat()\n"
                "dataset = dataset.batch(params[\"batch_size\"], drop_remainder=True){after}",
    "generator": "dataset = tf.data.Dataset.from_generator(\n"
                 "    rows, {{name: tf.as_dtype(values.dtype) for name, values in DATA.items()}},\n"
                 "    {{name: values.shape[1:] for name, values in DATA.items()}})\n"
                 "dataset = dataset.batch(params[\"batch_size\"]{drop}){after}"}


def _reading(draft: Draft) -> str:
    """Returns the input_fn and what it calls."""
    features = ", ".join(f'"{name}": {value}' for name, value in draft.parsed.items())
    result = f"features, {draft.label}" if draft.label else "features"
    lines = textwrap.dedent(f"""\
        def to_features(row):
            features = {{{features}}}
            return {result}


        """)
    form = draft.choose(*_BATCHES, "slices")
    if form != "repeated" and draft.maybe(3):
        _end_with_smaller_batch(draft)
    if form == "generator":
        lines += ("def rows():\n    for index in range(len(DATA[\"y\"])):\n"
                  "        yield {name: values[index] for name, values in DATA.items()}\n\n\n")
    after = draft.choose("", ".prefetch(2)", ".cache()") if form != "repeated" else ""
    drop = "" if draft.last_batch else draft.choose("", ", drop_remainder=True")
    text = _BATCHES[form].format(drop=drop, after=after)
    body = textwrap.indent(text, "    ")
    if form == "slices" and draft.maybe(3):
        body = ("    if RECORDS:\n        dataset = tf.data.TFRecordDataset(RECORDS)"
                '.batch(params["batch_size"]).map(parse)\n'
                "        return dataset.map(to_features)\n") + body
        lines = _READ_RECORDS + lines
    else:
        draft.exclude("the program does not read files", "records")
    draft.is_v2 = draft.maybe(3)
    end = draft.choose("dataset.map(to_features)", "dataset.map(to_features)",
                       "dataset.map(to_features).prefetch(tf.data.experimental.AUTOTUNE)",
                       "dataset.map(to_features)" if draft.is_plain or (
                           draft.is_v2 and not draft.maybe(9)) else
                       "tf.data.make_one_shot_iterator(dataset.map(to_features)).get_next()")
    if draft.last_batch and draft.is_v2:
        draft.exclude("not every replica has a batch in the last step", "split", "tiled")
    return f"{lines}def input_fn(params):\n{body}\n    return {end}\n"


def _end_with_smaller_batch(draft: Draft) -> None:
    """Lets the input end with a smaller batch, in training or after its last step."""
    draft.last_batch = draft.choose(1, 4, 4, 5)
    draft.samples = f"BATCH * {draft.choose('STEPS', '(STEPS - 1)')} + {draft.last_batch}"
    if draft.last_batch != 4:
        draft.exclude("the smaller batch is not divisible among the replicas", "split")


def _model_fn(draft: Draft, train_op: list[str], outputs: tuple[str, str, str]) -> str:
    mode = "tf.estimator.ModeKeys"
    spec = "tf.estimator.tpu.TPUEstimatorSpec"
    predict, evaluate, train = outputs
    body = [*draft.before, f"net = tf.concat([{', '.join(draft.parts)}], 1)", *draft.model,
            f"if mode == {mode}.PREDICT:", f"    return {spec}(mode, {predict})",
            *draft.training, f"if mode == {mode}.EVAL:", f"    return {spec}(mode, {evaluate})",
            *train_op, f"return {spec}(mode, {train})"]
    arguments = "features, labels, mode, params" if draft.label else "features, mode, params"
    return f"def model_fn({arguments}):\n" + textwrap.indent("\n".join(body), "    ") + "\n"


def _estimator(draft: Draft) -> str:
    columns = "".join(f"{name} = {value}\n" for name, value in draft.columns.items())
    arguments = dict(draft.spec)
    if draft.columns:
        arguments["feature_columns"] = f"[{', '.join(draft.columns)}]"
    else:
        arguments["table_to_config_dict"] = _dictionary(draft.tables)
        arguments["feature_to_config_dict"] = _dictionary(draft.features)
    spec = ",\n        ".join(f"{name}={value}" for name, value in arguments.items())
    mode = (",\n            per_host_input_for_training="
            "tf.estimator.tpu.InputPipelineConfig.PER_HOST_V2") if draft.is_v2 else ""
    return columns + ("\n\n" if columns else "") + f"""\
def new_estimator(model_dir):
    spec = {EXPERIMENTAL}EmbeddingConfigSpec(
        {spec},
        pipeline_execution_with_tensor_core=PIPELINED)
    config = tf.estimator.tpu.RunConfig(
        tf_random_seed=1, save_checkpoints_steps=STEPS, save_summary_steps=None,
        log_step_count_steps=None, tpu_config=tf.estimator.tpu.TPUConfig(
            iterations_per_loop=ITERATIONS, num_shards=NUM_SHARDS{mode}))
    return tf.estimator.tpu.TPUEstimator(
        model_fn, model_dir, config, train_batch_size=BATCH, eval_batch_size=BATCH,
        predict_batch_size=BATCH, embedding_config_spec=spec)
"""


def _dictionary(items: dict[str, str]) -> str:
    lines = ",\n            ".join(f'"{name}": {value}' for name, value in items.items())
    return f"{{\n            {lines}}}"


_MAIN = """\
def main(model_dir):
    estimator = new_estimator(model_dir)
    estimator.train(input_fn, max_steps=STEPS)
    print(estimator.evaluate(input_fn, steps=EVALUATED))


if __name__ == "__main__":
    main(sys.argv[1])
"""
