# SPDX-License-Identifier: Apache-2.0
"""What model_fns do from their outputs on: losses, train_ops, metrics, host calls."""

from tests.programs.draft import Draft

DUMMIES = "tpu_embedding_dummy_table_variable"
OPTIMIZERS = (
    "tf.train.GradientDescentOptimizer({rate})", "tf.train.MomentumOptimizer({rate}, 0.75)",
    "tf.train.AdagradOptimizer({rate}, initial_accumulator_value=0.25)",
    "tf.train.AdamOptimizer({rate}, epsilon=0.01)",
    "tf.train.RMSPropOptimizer({rate}, epsilon=0.1)",
    "tf.train.FtrlOptimizer({rate}, initial_accumulator_value=0.25)",
    "tf.train.MomentumOptimizer({rate}, 0.75, use_nesterov=True)")


def add_labels(draft: Draft) -> None:
    """Adds labels: a tensor, a dictionary, nested, or none beside the features."""
    draft.arrays["y"] = "rng.uniform(-1, 1, [SAMPLES]).astype(np.float32)"
    form = draft.choose("tensor", "tensor", "dict", "nested", "named", "popped", "column")
    before = {
        "tensor": ["y = labels"],
        "dict": draft.choose(
            ['y = labels["y"]'], ['labels["y"] *= 2.0', 'y = labels["y"]'],
            ['y = labels.pop("y")'],
            ['labels["sign"] = tf.sign(labels["y"])', 'y = labels["sign"]']),
        "nested": draft.choose(['y = labels["all"]["y"]'],
                               ['labels["all"]["y"] = labels["all"]["y"] + 1.0',
                                'y = labels["all"].pop("y")']),
        "named": ["y = labels.y"],
        "popped": draft.choose(['y = features.pop("y")'],
                               ['labels = features.pop("y")', 'y = labels']),
        "column": ["y = tf.squeeze(labels, 1)"]}[form]
    draft.label = {"tensor": 'row["y"]', "dict": '{"y": row["y"]}',
                   "column": 'row["y"][:, tf.newaxis]',
                   "named": 'Labels(y=row["y"], x=row["x"])',
                   "nested": '{"all": {"y": row["y"]}}', "popped": None}[form]
    if form == "named":
        draft.functions.append('Labels = collections.namedtuple("Labels", ["y", "x"])\n')
    if form == "popped":
        draft.parsed["y"] = 'row["y"]'
        draft.before += before
    else:
        draft.training += before


def add_training(draft: Draft) -> None:
    """Adds the loss, the optimizers and the train_op."""
    draft.is_sum = draft.maybe(5) and not draft.is_plain
    if draft.is_sum:
        draft.exclude("the sum of equal losses grows with the replicas", "tiled")
    reduce = "tf.reduce_sum" if draft.is_sum else "tf.reduce_mean"
    losses = [f"{reduce}(tf.square(logits - y))", f"0.5 * {reduce}(tf.abs(logits - y) ** 1.5)",
              f"{reduce}(tf.nn.sigmoid_cross_entropy_with_logits("
              "labels=tf.sigmoid(y), logits=logits))"]
    if not draft.is_sum:
        losses += ["tf.losses.mean_squared_error(y, logits)",
                   "tf.losses.sigmoid_cross_entropy(tf.sigmoid(y)[:, tf.newaxis], "
                   "logits[:, tf.newaxis])",
                   "tf.losses.huber_loss(y, logits, weights=2.0)"]
    draft.training.append(f"loss = {draft.choose(*losses)}")
    has_penalty = any("kernel_regularizer" in line for line in draft.model)
    if has_penalty and draft.maybe(2):
        if draft.is_sum:
            draft.exclude("every replica adds the penalty", "split", "tiled")
        draft.training.append("loss += " + draft.choose(
            "tf.losses.get_regularization_loss()",
            "tf.add_n(tf.get_collection(tf.GraphKeys.REGULARIZATION_LOSSES))"))
    if draft.maybe(5):
        draft.training.append(f"loss += 0.1 * {reduce}(tf.square(x[:, 0] - net[:, 0]))")


def add_train_op(draft: Draft) -> list[str]:
    """Returns the lines that end with `train_op`."""
    draft.swaps = draft.maybe(4) and not draft.is_plain
    lines = ["step = tf.train." + draft.choose("get_global_step()", "get_or_create_global_step()")]
    lines.append(f"optimizer = {_optimizer(draft, lines)}")
    form = draft.choose("minimize", "minimize", _apply, _scaled, _clipped_by_value,
                        _clipped_by_norm, _two_optimizers, _gradients, _counted_apart,
                        _accumulated, _twice)
    if draft.is_plain:
        return [*lines, "train_op = optimizer.minimize(loss, global_step=step)"]
    body = ["train_op = optimizer.minimize(loss, global_step=step)"] if form == "minimize" else (
        form(draft))
    if draft.maybe(4) and form == "minimize":
        body = [f"train_op = optimizer.minimize({draft.choose('10.0 * loss', 'loss * 0.5')}, step)"]
    if any("batch_normalization" in line for line in draft.model) or draft.maybe(4):
        body = ["with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):",
                *(f"    {line}" for line in body)]
    lines += body
    extras = [_counter, _assertion, _counter_in_cond, _printed]
    for extra in draft.some(*extras, *[_average] * (not draft.swaps), most=1):
        lines += extra(draft)
    return lines + _swap(draft) if draft.swaps else lines


def _swap(draft: Draft) -> list[str]:
    """Evaluation restores the moving averages in the place of the variables."""
    draft.training += draft.choose(
        ["average = tf.train.ExponentialMovingAverage(0.75)"],
        ["average = tf.train.ExponentialMovingAverage(", "    0.9, tf.train.get_global_step())"])
    draft.training.append("def averaged():")
    if any("partitioner" in line for line in draft.model):  # TensorFlow names the parts
        draft.training += [
            "    names = {}",
            "    for name, part in average.variables_to_restore().items():",
            '        name = name.replace("/part_0", "").replace("/part_1", "")',
            "        names.setdefault(name, []).append(part)",
            "    return tf.train.Scaffold(saver=tf.train.Saver({",
            "        name: parts if len(parts) > 1 else parts[0]",
            "        for name, parts in names.items()}))"]
    else:
        draft.training.append("    return tf.train.Scaffold(saver=tf.train.Saver("
                              "average.variables_to_restore()))")
    return ["with tf.control_dependencies([train_op]):",
            "    train_op = average.apply(tf.trainable_variables())"]


def _optimizer(draft: Draft, lines: list[str]) -> str:
    # Where training diverges, float32 and float64 do not agree.
    rate = draft.choose("0.01", "0.003") if draft.is_sum else draft.choose("0.1", "0.03")
    if draft.maybe(4):
        lines.append(f"rate = tf.train.exponential_decay({rate}, step, 2, 0.5, staircase=True)")
        rate = "rate"
    inner = draft.choose(*OPTIMIZERS).format(rate=rate)
    if draft.is_sum:
        return f"tf.tpu.CrossShardOptimizer(\n    {inner}, reduction=tf.losses.Reduction.SUM)"
    return f"tf.tpu.CrossShardOptimizer({inner})"


def _apply(draft: Draft) -> list[str]:
    return ["gradients = optimizer.compute_gradients(loss)",
            "train_op = optimizer.apply_gradients(gradients, global_step=step)"]


def _scaled(draft: Draft) -> list[str]:
    return ["gradients = optimizer.compute_gradients(loss)", draft.choose(
        "gradients = [(tf.multiply(0.5, g), v) for g, v in gradients if g is not None]",
        'gradients = [(tf.multiply(0.1, g) if "hidden" in v.name else g, v) for g, v in gradients]',
        'gradients = [(g, v) for g, v in gradients if "hidden/bias" not in v.name]'),
        "train_op = optimizer.apply_gradients(gradients, global_step=step)"]


def _clipped_by_value(draft: Draft) -> list[str]:
    draft.exclude("every replica clips its own gradients", "split", "tiled")
    return ["gradients = optimizer.compute_gradients(loss)",
            "gradients = [(tf.clip_by_value(g, -0.05, 0.05), v) for g, v in gradients "
            "if g is not None]",
            "train_op = optimizer.apply_gradients(gradients, step)"]


def _clipped_by_norm(draft: Draft) -> list[str]:
    draft.exclude("every replica clips its own gradients", "split", "tiled")
    return ["gradients, variables = zip(*optimizer.compute_gradients(loss))",
            "gradients, _ = tf.clip_by_global_norm(gradients, 0.25)",
            "train_op = optimizer.apply_gradients(zip(gradients, variables), global_step=step)"]


def _two_optimizers(draft: Draft) -> list[str]:
    other = draft.choose("tf.train.GradientDescentOptimizer(0.05)",
                         "tf.train.AdagradOptimizer(0.1)")
    reduction = ", reduction=tf.losses.Reduction.SUM" if draft.is_sum else ""
    return [f"other = tf.tpu.CrossShardOptimizer({other}{reduction})",
            'top = [v for v in tf.trainable_variables() if v.name.startswith("logits")]',
            'rest = [v for v in tf.trainable_variables() if not v.name.startswith("logits")]',
            "train_op = tf.group(optimizer.minimize(loss, var_list=rest, global_step=step),",
            "                    other.minimize(loss, var_list=top))"]


def _gradients(draft: Draft) -> list[str]:
    draft.exclude("tf.gradients does not divide by the replicas", "split", "tiled")
    return ["variables = tf.trainable_variables()", "gradients = tf.gradients(loss, variables)",
            "train_op = optimizer.apply_gradients(zip(gradients, variables), global_step=step)"]


def _counted_apart(draft: Draft) -> list[str]:
    return ["train_op = optimizer.minimize(loss)", "with tf.control_dependencies([train_op]):",
            "    train_op = tf.assign_add(step, 1)"]


def _average(draft: Draft) -> list[str]:
    return ["average = tf.train.ExponentialMovingAverage(0.75)",
            "with tf.control_dependencies([train_op]):",
            "    train_op = average.apply(" + draft.choose("tf.trainable_variables()", "") + ")"]


def _counter(draft: Draft) -> list[str]:
    return ['counter = tf.get_variable("counter", [], tf.int32, initializer='
            "tf.zeros_initializer(), trainable=False)",
            "train_op = tf.group(train_op, tf.assign_add(counter, 2))"]


def _assertion(draft: Draft) -> list[str]:
    return ['finite = tf.debugging.Assert(tf.reduce_all(tf.math.is_finite(logits)), [logits])',
            "with tf.control_dependencies([finite]):", "    train_op = tf.group(train_op)"]


def _accumulated(draft: Draft) -> list[str]:
    """Gradients of two steps are summed before they are applied."""
    draft.exclude("cross-replica sums in a condition are refused", "split", "tiled")
    return ["pairs = [(tf.convert_to_tensor(g), v) for g, v in optimizer.compute_gradients(loss)",
            "         if g is not None]",
            'sums = [tf.get_variable(v.op.name.replace("/", "_") + "_sum", v.shape, '
            "trainable=False,", "                        initializer=tf.zeros_initializer()) "
            "for _, v in pairs]",
            "added = [tf.assign_add(s, g) for s, (g, _) in zip(sums, pairs)]",
            "def apply_sums():",
            "    applied = optimizer.apply_gradients([(s.read_value(), v) for s, (_, v) in "
            "zip(sums, pairs)])",
            "    with tf.control_dependencies([applied]):",
            "        return tf.group(*[tf.assign(s, tf.zeros_like(s)) for s in sums])",
            "with tf.control_dependencies(added):",
            "    applied = tf.cond(tf.equal(step % 2, 1), apply_sums, tf.no_op)",
            "with tf.control_dependencies([applied]):", "    train_op = tf.assign_add(step, 1)"]


def _twice(draft: Draft) -> list[str]:
    """Two losses, each minimized over all variables: refused, because a TPU has one gradient.

    With columns for a TensorCore only, it runs; the order decides what the variables become.
    """
    reduce = "tf.reduce_sum" if draft.is_sum else "tf.reduce_mean"
    return ["first = optimizer.minimize(loss, global_step=step)",
            "with tf.control_dependencies([first]):",
            f"    train_op = optimizer.minimize(0.1 * {reduce}(tf.square(net)))"]


def _counter_in_cond(draft: Draft) -> list[str]:
    draft.exclude("the first replica decides", "split")
    return ['counter = tf.get_variable("counter", [], tf.int32, initializer='
            "tf.zeros_initializer(), trainable=False)",
            "odd = tf.cond(tf.reduce_mean(y) > 0.0, lambda: tf.assign_add(counter, 1), "
            "lambda: tf.identity(counter))", "train_op = tf.group(train_op, odd)"]


def _printed(draft: Draft) -> list[str]:
    return [
            "noted = tf.numpy_function(lambda v: np.float32(v.sum()), [logits], tf.float32)",
            "train_op = tf.group(train_op, noted)"]


def add_outputs(draft: Draft) -> tuple[str, str, str]:
    """Returns the arguments of the three specs: predict, eval, train."""
    predictions = draft.choose('{"logits": logits}', '{"logits": logits, "all": {"net": net}}',
                               '{"logits": logits, "p": tf.sigmoid(logits)[:, tf.newaxis]}')
    if "all" in predictions:
        predictions = '{"logits": logits, "net": net}'
    metrics, tensors = draft.choose(
        ('{"mean": tf.metrics.mean(logits)}', "[y, logits]"),
        ('{"error": tf.metrics.mean_squared_error(labels, logits)}', "[y, logits]"),
        ('{"auc": tf.metrics.auc(labels > 0, tf.sigmoid(logits)),\n'
         '            "size": tf.metrics.mean(tf.abs(logits))}',
         '{"labels": y, "logits": logits}'))
    draft.functions.append(f"def metric_fn(labels, logits):\n    return {metrics}\n")
    train = "loss=loss, train_op=train_op"
    if draft.is_plain:
        return (f"predictions={predictions}",
                f"loss=loss, eval_metrics=(metric_fn, {tensors})", train)
    if draft.maybe(5):
        draft.functions.append(
            "SEEN = []\n\n\ndef host_fn(step, losses):\n"
            "    def note(step, losses):\n"
            "        SEEN.append((int(step[0]), float(losses.mean())))\n"
            "        return np.int64(0)\n"
            "    return [tf.py_func(note, [step, losses], tf.int64)]\n")
        train += (",\n        host_call=(host_fn, [tf.reshape(step, [1]), "
                  "tf.reshape(loss, [1])])")
    if draft.maybe(4):
        train += ",\n        training_hooks=[" + draft.choose(
            'tf.train.LoggingTensorHook({"loss": loss}, every_n_iter=2)',
            "tf.train.NanTensorHook(loss)", "tf.train.StepCounterHook(2)",
            "tf.train.StopAtStepHook(last_step=STEPS)") + "]"
    if draft.maybe(6):
        draft.functions.append("def scaffold_fn():\n    return tf.train.Scaffold()\n")
        train += ", scaffold_fn=scaffold_fn"
    evaluate = f"loss=loss, eval_metrics=(metric_fn, {tensors})"
    if draft.swaps:
        evaluate += ",\n        scaffold_fn=averaged"
    return f"predictions={predictions}", evaluate, train
