# SPDX-License-Identifier: Apache-2.0
"""What model_fns do with their inputs: changes in place, layers, control flow, odd scopes.

A piece reads `net` `[batch, n]` and defines it again. Some are not the same for a batch and
its parts; those exclude the way that cuts a batch among replicas.
"""

from tests.programs.draft import X_SIZE, Draft
from tests.programs.embeddings import ids_of


def add_dense_features(draft: Draft) -> None:
    """Adds the features that are no ids of tables, and what model_fns do to the dictionary."""
    draft.arrays["x"] = f"rng.uniform(-1, 1, [SAMPLES, {X_SIZE}]).astype(np.float32)"
    if draft.maybe(4):
        draft.parsed["nested"] = '{"x": row["x"], "deep": {"twice": 2.0 * row["x"]}}'
        x = 'features["nested"]["x"]'
        changes = [f"{x} = {x} * 2.0", f"{x} *= 0.5",
                   'features["nested"]["deep"]["twice"] += 1.0',
                   'features["nested"].update(log=tf.log(2.0 + features["nested"]["x"]))']
        x = draft.choose(x, 'features["nested"]["deep"]["twice"]',
                         'features["nested"].pop("x")')
    else:
        draft.parsed["x"] = 'row["x"]'
        x = 'features["x"]'
        changes = [f"{x} = {x} * 2.0", f"{x} *= 0.5",
                   'features["log"] = tf.log(2.0 + features["x"])',
                   'features.update({"x": features["x"] + 1.0})',
                   'features = dict(features, x=features["x"] - 0.5)',
                   'features["x"] = tf.numpy_function(np.tanh, [features["x"]], tf.float32)\n'
                   f'features["x"].set_shape([None, {X_SIZE}])']
        x = draft.choose(x, 'features.pop("x")', 'features.get("x")')
    if draft.maybe(4):
        draft.arrays["unused"] = "rng.integers(0, 9, [SAMPLES, 2])"
        draft.parsed["unused"] = 'row["unused"]'
        changes.append(draft.choose('del features["unused"]', 'unused = features.pop("unused")'))
    for change in draft.some(*changes, most=2):
        draft.before[:0] = change.split("\n")
    if draft.maybe(6):  # one tensor under two names
        draft.parsed["copy"] = 'row["x"]'
        draft.parts.append('tf.square(features["copy"])')
    draft.before.append(f"x = {x}")
    draft.parts.append("x")
    if draft.maybe(4):
        _add_passed_through(draft)
    if draft.maybe(5) and not draft.is_plain:
        _add_strings(draft)


def _add_passed_through(draft: Draft) -> None:
    """A sparse or ragged feature that is not of the embedding engine."""
    kind = draft.choose("sparse", "ragged")
    ids_of(draft, "tags", 7, kind)
    if kind == "ragged":
        draft.parts.append('tf.cast(features["tags"].row_lengths(), tf.float32)[:, tf.newaxis]')
        return
    if draft.maybe(2):
        draft.parts.append('tf.reshape(tf.sparse.reduce_sum(tf.cast(features["tags"], tf.float32),'
                           " 1), [-1, 1])")
        return
    draft.before.append('tag_table = tf.get_variable("tags", [7, 2], '
                        f"initializer={draft.uniform()})")
    draft.parts.append('tf.nn.embedding_lookup_sparse(tag_table, features["tags"], None, '
                       'combiner="sum")')


def _add_strings(draft: Draft) -> None:
    """A feature of strings, which the model looks up."""
    draft.arrays["name"] = 'rng.choice(np.array([b"a", b"b", b"c"]), SAMPLES)'
    draft.parsed["name"] = 'row["name"]'
    form = draft.choose("hash", "table")
    if form == "hash":
        draft.before.append('number = tf.strings.to_hash_bucket_fast(features["name"], 4)')
    else:
        draft.before += ["names = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(",
                         '    ["a", "b"], tf.constant([0, 1], tf.int64)), 3)',
                         'number = names.lookup(features.pop("name"))']
    draft.parts.append("tf.one_hot(number, 4)")


def dense(draft: Draft, units: int, name: str, activation: str = "tf.tanh") -> str:
    """Returns the expression of a layer on `net`."""
    options = f", kernel_initializer={draft.uniform()}"
    if draft.maybe(4):
        regularizer = draft.choose("tf.keras.regularizers.l2(0.01)",
                                   "lambda w: 0.01 * tf.reduce_sum(tf.square(w))")
        options += f", kernel_regularizer={regularizer}"
    return f'tf.layers.dense(net, {units}, {activation}{options}, name="{name}")'


def add_model(draft: Draft) -> None:
    """Adds the forward pass."""
    width = draft.choose(3, 4)
    draft.model.append(f"net = {dense(draft, width, 'hidden')}")
    pieces = [] if draft.is_plain else draft.some(*PIECES, most=3)
    if _recomputed in pieces and _gradient_penalty in pieces:
        pieces.remove(_gradient_penalty)  # TensorFlow differentiates what it recomputes only once
    for piece in pieces:
        draft.model += piece(draft, width)
    draft.model.append(f"logits = {dense(draft, 1, 'logits', 'None')}[:, 0]")


def _partitioned(draft: Draft, width: int) -> list[str]:
    return ['with tf.variable_scope("wide", partitioner=tf.fixed_size_partitioner(2)):',
            f'    kernel = tf.get_variable("kernel", [{width}, {width}], '
            f"initializer={draft.uniform()})",
            "net = tf.tanh(tf.matmul(net, tf.convert_to_tensor(kernel)))"]


def _reused(draft: Draft, width: int) -> list[str]:
    kernel = f'tf.get_variable("kernel", [{width}, {width}], initializer={draft.uniform()})'
    return ["def tower(inputs):",
            '    with tf.variable_scope("tower", reuse=tf.AUTO_REUSE):',
            f"        return tf.tanh(tf.matmul(inputs, {kernel}))",
            "net = tower(net) + tower(0.5 * net)"]


def _odd_scope(draft: Draft, width: int) -> list[str]:
    scope = draft.choose('tf.name_scope("odd/")', "tf.variable_scope(tf.get_variable_scope())",
                         'tf.variable_scope("outer/inner")', 'tf.name_scope("step")',
                         "tf.control_dependencies([net])")
    variables = [
        f'tf.get_variable("scale", [{width}], initializer={draft.uniform()})',
        f'tf.Variable(np.linspace(0.5, 1.0, {width}).astype(np.float32), name="scale")']
    if not scope.startswith("tf.control_dependencies"):  # on which the constant would depend
        variables.append(
            f'tf.get_variable("scale", initializer=tf.constant(0.75, shape=[{width}]))')
    variable = draft.choose(*variables)
    return [f"with {scope}:", f"    scale = {variable}", "net = net * scale"]


def _cond_on_step(draft: Draft, width: int) -> list[str]:
    return ["step = tf.train.get_or_create_global_step()",
            "net = tf.cond(tf.less(step, 2), lambda: net, lambda: tf.tanh(net))"]


def _cond_on_data(draft: Draft, width: int) -> list[str]:
    draft.exclude("the condition is one of the batch", "split")
    # A net that its mean was subtracted from has a mean of 0, whose sign is that of rounding.
    return ["net = tf.cond(tf.reduce_mean(net) > 0.01, lambda: 0.5 * net, lambda: tf.tanh(net))"]


def _while_loop(draft: Draft, width: int) -> list[str]:
    return ["_, net = tf.while_loop(lambda i, _: i < 3, "
            "lambda i, v: (i + 1, tf.tanh(v + 0.25)), [tf.constant(0), net])"]


def _while_with_variable(draft: Draft, width: int) -> list[str]:
    return [f'turn = tf.get_variable("turn", [{width}, {width}], initializer={draft.uniform()})',
            "_, net = tf.while_loop(lambda i, _: i < 2, "
            "lambda i, v: (i + 1, tf.tanh(tf.matmul(v, turn))), [tf.constant(0), net])"]


def _function(draft: Draft, width: int) -> list[str]:
    return ["@tf.function", "def squash(values):",
            "    return values / (1.0 + tf.reduce_sum(tf.abs(values), 1, keepdims=True))",
            "net = squash(net)"]


def _function_with_loop(draft: Draft, width: int) -> list[str]:
    return ["@tf.function", "def settle(values):", "    for _ in tf.range(2):",
            "        values = tf.tanh(values) + 0.25", "    return values", "net = settle(net)"]


def _function_with_variable(draft: Draft, width: int) -> list[str]:
    return [f'gate = tf.get_variable("gate", [{width}], initializer={draft.uniform()})',
            "@tf.function", "def gated(values):", "    return values * tf.sigmoid(gate)",
            "net = gated(net)"]


def _map(draft: Draft, width: int) -> list[str]:
    return ["net = tf.map_fn(lambda row: row / (1.0 + tf.reduce_sum(tf.abs(row))), net)"]


def _batch_norm(draft: Draft, width: int) -> list[str]:
    draft.exclude("every replica has its own statistics", "split")
    return ['net = tf.layers.batch_normalization(net, momentum=0.75, epsilon=0.1, '
            'training=mode == tf.estimator.ModeKeys.TRAIN, name="norm")']


def _moments(draft: Draft, width: int) -> list[str]:
    draft.exclude("every replica has its own mean", "split")
    return ["net = net - tf.reduce_mean(net, 0)"]


def _synchronized_moments(draft: Draft, width: int) -> list[str]:
    return ['shards = params["context"].num_replicas if mode == tf.estimator.ModeKeys.TRAIN else 1',
            "if mode == tf.estimator.ModeKeys.TRAIN:",
            "    mean = tf.tpu.cross_replica_sum(tf.reduce_mean(net, 0)) / shards",
            "    net = net - tf.stop_gradient(mean)"]


def _dropout(draft: Draft, width: int) -> list[str]:
    draft.exclude("random numbers", "split", "tiled", "reference", "pipelined")
    return ["net = tf.layers.dropout(net, 0.25, training=mode == tf.estimator.ModeKeys.TRAIN, "
            f"seed={draft.seed()})"]


def _noise(draft: Draft, width: int) -> list[str]:
    draft.exclude("random numbers", "split", "tiled", "reference", "pipelined")
    return ["if mode == tf.estimator.ModeKeys.TRAIN:",
            f"    net += tf.random.normal(tf.shape(net), stddev=0.1, seed={draft.seed()})"]


def _slices(draft: Draft, width: int) -> list[str]:
    return [f'rows = tf.get_variable("rows", [5, {width}], initializer={draft.uniform()})',
            "net += tf.gather(rows, tf.argmax(net, 1))"]


def _custom_gradient(draft: Draft, width: int) -> list[str]:
    return ["@tf.custom_gradient", "def halved(values):",
            "    return tf.identity(values), lambda gradient: 0.5 * gradient", "net = halved(net)"]


def _running_mean(draft: Draft, width: int) -> list[str]:
    draft.exclude("the first replica's mean is kept", "split")
    return [f'running = tf.get_variable("running", [{width}], trainable=False, '
            "initializer=tf.zeros_initializer())",
            "if mode == tf.estimator.ModeKeys.TRAIN:",
            "    kept = tf.assign(running, 0.75 * running + 0.25 * tf.reduce_mean(net, 0))",
            "    with tf.control_dependencies([kept]):",
            "        net = net - tf.stop_gradient(running.read_value())",
            "else:", "    net = net - running"]


def _gradient_penalty(draft: Draft, width: int) -> list[str]:
    return ["[slope] = tf.gradients(tf.reduce_sum(tf.square(net)), [x])",
            "net = net + 0.1 * tf.reduce_sum(tf.square(slope), 1, keepdims=True)"]


def _scan(draft: Draft, width: int) -> list[str]:
    return ["columns = tf.transpose(net)",
            "net = tf.transpose(tf.scan(lambda sums, column: tf.tanh(sums + column), columns))"]


def _array(draft: Draft, width: int) -> list[str]:
    return [f"array = tf.TensorArray(tf.float32, {width})", f"for i in range({width}):",
            "    array = array.write(i, tf.tanh(net[:, i]))", "net = tf.transpose(array.stack())"]


def _summary(draft: Draft, width: int) -> list[str]:
    return [draft.choose('tf.summary.scalar("size", tf.reduce_mean(tf.abs(net)))',
                         'tf.summary.histogram("net", net)')]


def _keras(draft: Draft, width: int) -> list[str]:
    return [f'net = tf.keras.layers.Dense({width}, activation="tanh", '
            f"kernel_initializer={draft.uniform()}, name=\"keras\")(net)"]


def _template(draft: Draft, width: int) -> list[str]:
    return ["def gated(values):",
            f'    gate = tf.get_variable("gate", [{width}], initializer={draft.uniform()})',
            "    return values * tf.sigmoid(gate)",
            'template = tf.make_template("template", gated)',
            "net = template(net) + template(tf.square(net))"]


def _recomputed(draft: Draft, width: int) -> list[str]:
    return ["@tf.recompute_grad", "def recomputed(values):",
            "    return tf.tanh(values) * tf.sigmoid(values)", "net = recomputed(net)"]


def _added_loss(draft: Draft, width: int) -> list[str]:
    """A loss that counts only in programs that ask for all losses."""
    return ["tf.losses.add_loss(0.1 * tf.reduce_mean(tf.square(net)))"]


def _changed_params(draft: Draft, width: int) -> list[str]:
    return draft.choose(
        ['params["width"] = net.shape[1]', 'net = net * (0.25 * params["width"])'],
        ['params.setdefault("scale", 0.75)', 'net = net * params.pop("scale")'],
        ['params.pop("batch_size")'])


PIECES = (_partitioned, _reused, _template, _odd_scope, _cond_on_step, _cond_on_data, _while_loop,
          _while_with_variable, _function, _function_with_loop, _function_with_variable,
          _recomputed, _map, _batch_norm, _moments, _synchronized_moments, _dropout, _noise,
          _slices, _custom_gradient, _running_mean, _gradient_penalty, _scan, _array, _summary,
          _keras, _added_loss, _changed_params)
