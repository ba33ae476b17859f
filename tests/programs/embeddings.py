# SPDX-License-Identifier: Apache-2.0
"""The embedding part of a program: tables, optimizers, features, columns, schedules."""

from tests.programs.draft import Draft

NAMES = ("user", "item", "word")
TPU = "tf.tpu.experimental."
EXPERIMENTAL = "tf.estimator.tpu.experimental."

# What each optimizer needs, and what it may have. Epsilons are large: a quotient of two
# numbers that are rounding errors says nothing.
OPTIMIZERS = {
    "StochasticGradientDescentParameters": ("learning_rate=0.2", []),
    "AdagradParameters": ("learning_rate=0.3", ["initial_accumulator=0.25"]),
    "AdamParameters": ("learning_rate=0.05, epsilon=0.01", [
        "beta1=0.75, beta2=0.9", "lazy_adam=False", "sum_inside_sqrt=False"]),
    "FtrlParameters": ("learning_rate=0.3, initial_accumulator_value=0.25", [
        "l1_regularization_strength=0.05, l2_regularization_strength=0.1",
        "learning_rate_power=-0.75", "multiply_linear_by_learning_rate=True", "beta=0.5"]),
    "MomentumParameters": ("learning_rate=0.1, momentum=0.75", ["use_nesterov=True"]),
    "RMSPropParameters": ("learning_rate=0.05, rho=0.75, momentum=0.5, epsilon=0.01", []),
    "ProximalAdagradParameters": ("learning_rate=0.3, initial_accumulator=0.25", [
        "l1_regularization_strength=0.05, l2_regularization_strength=0.1"]),
    "AdagradMomentumParameters": ("learning_rate=0.1, momentum=0.75, epsilon=0.01", [
        "use_nesterov=True", "exponent=3, beta2=0.9"]),
    "ProximalYogiParameters": (
        "learning_rate=0.05, initial_accumulator_value=0.25, epsilon=0.01", [
            "l1_regularization_strength=0.05, l2_regularization_strength=0.1"]),
}
# TensorFlow's public names; the others are in the private module.
PUBLIC = ("StochasticGradientDescentParameters", "AdagradParameters", "AdamParameters",
          "FtrlParameters")
COLUMN_OPTIMIZERS = (*PUBLIC, "MomentumParameters", "RMSPropParameters")
LIMITS = ["clip_weight_min=-0.5, clip_weight_max=0.75", "weight_decay_factor=0.0625",
          "weight_decay_factor=0.125, multiply_weight_decay_factor_by_learning_rate=True",
          "clip_gradient_min=-0.0625, clip_gradient_max=0.03125"]

SCHEDULES = {
    "warm_up": "return tf.minimum(1.0, (tf.cast(step, tf.float32) + 1.0) / 3.0)",
    "decay": "return 0.5 / (1.0 + tf.cast(step, tf.float32))",
    "freeze": "return tf.where(step < 2, tf.constant(1.0), tf.constant(0.0))",
}

RATES = ("warm_up", "decay")  # FTRL divides by the rate, which is never 0 here


def optimizer(draft: Draft, names: tuple[str, ...] = tuple(OPTIMIZERS)) -> str:
    """Returns the expression of an optimizer of tables."""
    name = draft.choose(*names)
    needed, options = OPTIMIZERS[name]
    arguments = [needed, *draft.some(*options, most=min(1, len(options)))]
    arguments += draft.some(*LIMITS, most=1)
    is_lazy = "lazy_adam=False" not in arguments
    if is_lazy and "clip_gradient" not in arguments[-1] and draft.maybe(6):
        arguments.append("use_gradient_accumulation=False")
        draft.exclude("every replica's gradient is applied apart", "split", "tiled")
    module = TPU if name in PUBLIC else "tpu_embedding."
    return f"{module}{name}({', '.join(arguments)})"


def schedule(draft: Draft, *names: str) -> str:
    """Defines a function of the step and returns its name."""
    name = draft.choose(*names)
    lines = f"def {name}(step):\n    {SCHEDULES[name]}\n"
    if lines not in draft.functions:
        draft.functions.append(lines)
    return name


def ids_of(draft: Draft, name: str, rows: int, kind: str) -> None:
    """Adds the ids of a feature to the data and to what the input_fn gives."""
    if kind == "one":
        draft.arrays[name] = f"rng.integers(0, {rows}, [SAMPLES])"
        draft.parsed[name] = f'row["{name}"]'
        return
    if kind == "ragged":
        draft.arrays[name] = f"front(rng.integers(-1, {rows}, [SAMPLES, 3]))"
        draft.parsed[name] = f'tf.RaggedTensor.from_tensor(row["{name}"], padding=-1)'
        _helper(draft, "def front(ids):\n    # Ids first, padding behind.\n"
                "    return np.take_along_axis(ids, np.argsort(ids < 0, 1, kind=\"stable\"), 1)\n")
        return
    draft.arrays[name] = f"rng.integers(-1, {rows}, [SAMPLES, 3])"
    if kind == "dense":  # in which zeros are no ids
        draft.arrays[name] = f"rng.integers(0, {rows}, [SAMPLES, 3])"
        draft.parsed[name] = f'row["{name}"]'
        return
    draft.parsed[name] = f'sparse(row["{name}"], row["{name}"] >= 0)'
    if kind == "weighted":
        draft.arrays[f"{name}_weight"] = "rng.integers(-2, 9, [SAMPLES, 3]).astype(np.float32) / 4"
        draft.parsed[f"{name}_weight"] = f'sparse(row["{name}_weight"], row["{name}"] >= 0)'
    _helper(draft, """\
def sparse(values, exist):
    places = tf.where(exist)
    shape = tf.shape(values, out_type=tf.int64)
    return tf.SparseTensor(places, tf.gather_nd(values, places), shape)
""")


def _helper(draft: Draft, lines: str) -> None:
    if lines not in draft.functions:
        draft.functions.append(lines)


def add_embeddings(draft: Draft) -> None:
    """Adds tables, their features, and the tensors that the model makes of them."""
    if draft.maybe(2):
        _add_columns(draft)
    else:
        _add_dictionaries(draft)
    if draft.maybe(4):
        draft.spec["experimental_gradient_multiplier_fn"] = schedule(draft, *SCHEDULES)
    if draft.maybe(5):
        draft.spec["clipping_limit"] = draft.choose("0.0625", "0.5")
    if draft.maybe(4):
        draft.spec["partition_strategy"] = '"mod"'


def _add_dictionaries(draft: Draft) -> None:
    has_common = draft.maybe(2)
    if has_common:
        draft.spec["optimization_parameters"] = optimizer(draft)
    for name in NAMES[:draft.choose(1, 1, 2, 3)]:
        combiner = draft.choose("mean", "sum", "sqrtn", None)
        rows, dimension = draft.choose(5, 9, 12), draft.choose(1, 2, 3)
        config = [str(rows), str(dimension), draft.uniform(), f"combiner={combiner!r}"]
        if not has_common or draft.maybe(4):
            config.append(f"optimization_parameters={optimizer(draft)}")
        if draft.maybe(5):
            config.append(f"learning_rate_fn={schedule(draft, *RATES)}")
        elif draft.maybe(5):
            config.append("learning_rate=0.05")
        draft.tables[name] = f"tpu_embedding.TableConfig({', '.join(config)})"
        for number in range(draft.choose(1, 1, 2)):
            _add_feature(draft, f"{name}_{number}", name, rows, combiner)


def _add_feature(draft: Draft, feature: str, table: str, rows: int, combiner: str | None) -> None:
    kinds = ["one", "sequence"] if combiner is None else [
        "sparse", "sparse", "weighted", "sequence", "ragged", "dense"]
    kind = draft.choose(*kinds)
    ids_of(draft, feature, rows, kind)
    options = {"sequence": ", max_sequence_length=3",
               "weighted": f', weight_key="{feature}_weight"'}
    draft.features[feature] = f'tpu_embedding.FeatureConfig("{table}"{options.get(kind, "")})'
    if draft.maybe(10):
        return  # a feature that the model does not use
    use(draft, f'features["{feature}"]', f'features["{feature}_seq_length_"]', kind)


def use(draft: Draft, activation: str, length: str, kind: str) -> None:
    """Adds what the model makes of an activation."""
    if kind == "sequence" and draft.maybe(4):
        _use_recurrently(draft, activation, length)
        return
    if kind == "sequence":
        pool = draft.choose(
            "tf.reduce_sum({0}, 1)", "tf.reduce_max({0}, 1)", "tf.layers.flatten({0})",
            "tf.reduce_sum({0} * tf.sequence_mask({1}, 3, tf.float32)[:, :, tf.newaxis], 1)")
        draft.parts.append(pool.format(activation, length))
        return
    form = draft.choose("{0}", "{0}", "{0}", "tf.tanh({0})", "tf.stop_gradient({0})",
                        "{0} * {0}", "tf.nn.l2_normalize({0} + 2.0, 1)")
    draft.parts.append(form.format(activation))
    if draft.maybe(5):  # used in both towers
        draft.parts.append(f"tf.square({activation})")


def _use_recurrently(draft: Draft, activation: str, length: str) -> None:
    name = f"rnn_{len(draft.before)}_{len(draft.parts)}"
    cell = draft.choose("BasicRNNCell", "GRUCell")
    draft.before += [
        f'with tf.variable_scope("{name}", initializer={draft.uniform()}):',
        f"    _, {name} = tf.nn.dynamic_rnn(tf.nn.rnn_cell.{cell}(2), {activation},",
        f"        sequence_length=tf.cast({length}, tf.int32), dtype=tf.float32)"]
    draft.parts.append(name)


def _add_columns(draft: Draft) -> None:
    draft.spec["optimization_parameters"] = optimizer(draft, COLUMN_OPTIMIZERS)
    plain = []
    for name in NAMES[:draft.choose(1, 2, 2, 3)]:
        kind = draft.choose("sparse", "weighted", "sequence", "shared")
        rows, dimension = draft.choose(5, 9, 12), draft.choose(1, 2, 3)
        options = f"dimension={dimension}, initializer={draft.uniform()}"
        device = _device(draft, kind)
        combiners = ["mean", "sum"] if "tpu_tensor_core" in device else ["mean", "sum", "sqrtn"]
        options += f', combiner="{draft.choose(*combiners)}"{device}'
        if kind != "shared" and "tpu_tensor_core" not in device and draft.maybe(5):
            options += f", learning_rate_fn={schedule(draft, *RATES)}"
        if kind == "shared":
            _add_shared(draft, name, rows, options)
            continue
        ids_of(draft, name, rows, kind)
        make = "sequence_categorical" if kind == "sequence" else "categorical"
        column = f'tf.feature_column.{make}_column_with_identity("{name}", {rows})'
        if kind == "weighted":
            column = (f"tf.feature_column.weighted_categorical_column(\n    {column}, "
                      f'"{name}_weight")')
        if kind == "sequence":
            options += ", max_sequence_length=3"
        draft.columns[name] = f"{TPU}embedding_column(\n    {column}, {options})"
        if kind == "sequence":
            draft.before.append(f"{name}_rows, {name}_length = tf.keras.experimental."
                                f'SequenceFeatures([{name}], name="{name}_layer")(features)')
            use(draft, f"{name}_rows", f"{name}_length", kind)
        else:
            plain.append(name)
    if plain and draft.maybe(2):
        _add_input_layer(draft, f"[{', '.join(plain)}]", "embeddings")
    else:
        for name in plain:
            _add_input_layer(draft, f"[{name}]", f"{name}_layer")


def _device(draft: Draft, kind: str) -> str:
    """Returns the arguments of a column that say where it is looked up, after others.

    A TensorCore trains a variable with the model's own optimizer, from a few ids of every sample.
    """
    devices = ["", "", "", "tpu_embedding_core"]
    if kind in ("sparse", "shared"):  # the others are refused
        devices += ["tpu_tensor_core"] * 3
        devices += ["cpu"] * draft.maybe(10)  # refused, because it is for serving
    device = draft.choose(*devices)
    if not device:
        return ""
    options = f',\n    embedding_lookup_device="{device}"'
    if device == "tpu_tensor_core" or draft.maybe(2):
        batch, ids = draft.choose("None", "BATCH"), draft.choose(1, 2, 2, 3, 4)
        options += f", tensor_core_shape=[{batch}, {ids}]"
    return options


def _add_input_layer(draft: Draft, columns: str, scope: str) -> None:
    """All ways to make a tensor of columns, in scopes that people use."""
    form = draft.choose("input_layer", "input_layer", "DenseFeatures")
    name = scope.replace("layer", "input")
    if form == "input_layer":
        lines = [f"{name} = tf.feature_column.input_layer(features, {columns})"]
    else:
        lines = [f'{name} = tf.keras.layers.DenseFeatures({columns}, name="{scope}")(features)']
    outside = draft.choose(None, None, f'tf.variable_scope("{scope}_scope")',
                           f'tf.variable_scope("{scope}_scope", reuse=tf.AUTO_REUSE)')
    if outside and form == "input_layer":
        lines = [f"with {outside}:", *(f"    {line}" for line in lines)]
    draft.before += lines
    use(draft, name, "", "sparse")


def _add_shared(draft: Draft, name: str, rows: int, options: str) -> None:
    names = [f"{name}_a", f"{name}_b"]
    for key in names:
        ids_of(draft, key, rows, "sparse")
    columns = ", ".join(f'tf.feature_column.categorical_column_with_identity("{key}", {rows})'
                        for key in names)
    draft.columns[", ".join(names)] = (
        f"{TPU}shared_embedding_columns(\n    [{columns}],\n    {options})")
    for key in names:
        draft.before.append(f'{key}_input = tf.keras.layers.DenseFeatures([{key}], '
                            f'name="{key}_layer")(features)')
        use(draft, f"{key}_input", "", "sparse")
