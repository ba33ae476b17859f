# SPDX-License-Identifier: Apache-2.0
"""What functions that a model_fn calls do in addition to computing their result.

A forward pass is the same in TF2 only if all that it does is known. These tables have what is: the
functions that compute their result and no more, and the ones whose effect differs in TF2.
Names are relative to `tensorflow` or `tensorflow.compat.v1`.
"""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Namespaces in which every function only computes its result, but for those of OTHER_EFFECTS.
PURE_NAMESPACES = (
    "math", "linalg", "strings", "bitwise", "sparse", "ragged", "signal", "sets", "dtypes",
    "initializers", "keras.initializers", "keras.regularizers", "keras.activations",
    "estimator.export", "feature_column", "logging", "metrics", "quantization", "keras.losses")

# Functions and classes of other namespaces that only compute their result, or make variables by
# their names, as layers do.
PURE = frozenset(f"{namespace}{name}" for namespace, names in {
    "": """abs accumulate_n acos acosh add add_n angle argmax argmin argsort as_dtype as_string
        asin asinh atan atan2 atanh batch_gather batch_to_space bitcast boolean_mask
        broadcast_dynamic_shape broadcast_static_shape broadcast_to case cast ceil
        clip_by_average_norm clip_by_global_norm
        clip_by_norm clip_by_value global_norm complex concat cond conj constant
        constant_initializer convert_to_tensor cos cosh cross cumprod cumsum custom_gradient device
        depth_to_space diag diag_part digamma div div_no_nan divide dynamic_partition
        dynamic_stitch einsum equal erf erfc exp expand_dims expm1 eye fill fixed_size_partitioner
        floor floor_div floordiv floormod foldl foldr gather gather_nd get_static_value
        get_variable get_variable_scope glorot_normal_initializer glorot_uniform_initializer
        greater greater_equal hessians histogram_fixed_width identity identity_n imag
        invert_permutation is_finite is_inf is_nan is_tensor lbeta less less_equal lgamma linspace
        log log1p log_sigmoid logical_and logical_not logical_or logical_xor map_fn matmul maximum
        meshgrid min_max_variable_partitioner minimum mod multiply name_scope negative no_op norm
        not_equal one_hot ones ones_initializer ones_like orthogonal_initializer pad
        parallel_stack polygamma pow quantize random_normal_initializer
        random_uniform_initializer range rank real realdiv reciprocal reduce_all reduce_any
        reduce_join reduce_logsumexp reduce_max reduce_mean reduce_min reduce_prod reduce_sum
        register_tensor_conversion_function repeat required_space_to_batch_paddings reshape
        reverse reverse_sequence reverse_v2 rint roll round rsqrt saturate_cast scalar_mul scan
        scatter_nd searchsorted segment_max segment_mean segment_min segment_prod segment_sum
        sequence_mask shape shape_n sigmoid sign sin sinh size slice sort space_to_batch
        space_to_depth sparse_add sparse_concat sparse_reduce_sum sparse_reorder
        sparse_reset_shape sparse_reshape sparse_retain sparse_slice sparse_split
        sparse_tensor_dense_matmul sparse_tensor_to_dense sparse_to_dense sparse_transpose split
        sqrt square squared_difference squeeze stack stop_gradient strided_slice string_join
        string_split string_strip string_to_hash_bucket string_to_hash_bucket_fast
        string_to_hash_bucket_strong string_to_number substr subtract switch_case tan tanh
        tensor_scatter_add tensor_scatter_sub tensor_scatter_update tensordot tile
        to_bfloat16 to_double to_float to_int32 to_int64 trace transpose truediv
        truncated_normal_initializer truncatediv truncatemod unique unique_with_counts
        unravel_index unsorted_segment_max unsorted_segment_mean unsorted_segment_min
        unsorted_segment_prod unsorted_segment_sqrt_n unsorted_segment_sum unstack
        variable_axis_size_partitioner variable_scope variance_scaling_initializer
        vectorized_map where where_v2 while_loop zeros zeros_initializer zeros_like zeta
        compat.dimension_value compat.dimension_at_index Dimension
        TensorShape TensorSpec SparseTensor RaggedTensor.from_tensor
        RaggedTensor.from_sparse RaggedTensor.from_row_splits RaggedTensor.from_value_rowids
        RaggedTensor.from_row_lengths AUTO_REUSE""",
    "train.": """get_global_step get_or_create_global_step cosine_decay
        cosine_decay_restarts exponential_decay inverse_time_decay linear_cosine_decay
        natural_exp_decay noisy_linear_cosine_decay piecewise_constant
        piecewise_constant_decay polynomial_decay""",
    "nn.": """atrous_conv2d avg_pool avg_pool1d avg_pool2d
        batch_normalization bias_add conv1d conv2d conv3d crelu depthwise_conv2d dropout elu
        embedding_lookup embedding_lookup_sparse gelu in_top_k l2_loss l2_normalize leaky_relu
        local_response_normalization log_poisson_loss log_softmax lrn max_pool max_pool1d
        max_pool2d moments normalize pool relu relu6 relu_layer safe_embedding_lookup_sparse selu
        separable_conv2d sigmoid sigmoid_cross_entropy_with_logits silu softmax
        softmax_cross_entropy_with_logits softmax_cross_entropy_with_logits_v2 softplus softsign
        sparse_softmax_cross_entropy_with_logits swish tanh top_k weighted_cross_entropy_with_logits
        weighted_moments with_space_to_batch xw_plus_b zero_fraction""",
    "losses.": """add_loss get_losses get_regularization_loss get_regularization_losses
        get_total_loss absolute_difference compute_weighted_loss cosine_distance hinge_loss
        huber_loss log_loss mean_pairwise_squared_error mean_squared_error sigmoid_cross_entropy
        softmax_cross_entropy sparse_softmax_cross_entropy Reduction.SUM""",
    "layers.": """average_pooling1d average_pooling2d batch_normalization conv1d conv2d dense
        dropout flatten max_pooling1d max_pooling2d separable_conv1d separable_conv2d Dense
        Dropout Flatten""",
    "keras.": """utils.get_or_create_layer layers.DenseFeatures experimental.SequenceFeatures
        backend.int_shape""",
    "random.": """categorical normal poisson shuffle stateless_categorical stateless_normal
        stateless_uniform truncated_normal uniform""",
    "lookup.": "StaticHashTable KeyValueTensorInitializer TextFileInitializer",
    "nest.": "assert_same_structure flatten map_structure pack_sequence_as",
}.items() for name in names.split())

# Those of TensorFlow itself that are compared with something most often.
MAKES_A_TENSOR = _words("""abs add argmax argmin boolean_mask cast concat constant equal exp
    expand_dims gather greater less log matmul maximum minimum multiply one_hot ones_like
    reduce_max reduce_mean reduce_min reduce_sum reshape round sigmoid sign split sqrt square
    squeeze stack subtract tile to_float to_int32 to_int64 transpose where zeros_like""")

# The older names of functions that draw random numbers.
RANDOM = {"random_normal": "random.normal", "random_uniform": "random.uniform",
          "truncated_normal": "random.truncated_normal", "random_shuffle": "random.shuffle",
          "multinomial": "random.categorical", "random_poisson": "random.poisson"}


def is_random(name: str) -> bool:
    """Whether a function or a layer draws random numbers when it is called."""
    last = name.rpartition(".")[2].lower()
    return RANDOM.get(name, name).startswith("random.") or last.endswith(("dropout", "noise"))


# What adds the losses of regularizers to a loss.
READS_REGULARIZATION = ("losses.get_regularization_loss", "losses.get_regularization_losses",
                        "losses.get_total_loss")
ACTIVITY_REGULARIZER = "activity_regularizer"
# Layer -> the number of arguments before that one.
BEFORE_ACTIVITY_REGULARIZER = {
    "layers.dense": 8, "layers.Dense": 7,
    **dict.fromkeys(("layers.conv1d", "layers.conv2d"), 13),
    **dict.fromkeys(("layers.separable_conv1d", "layers.separable_conv2d"), 16)}

# What a function that the Estimator calls in the graph of a step reads of it, and elsewhere not.
STATE_OF_GRAPH = (
    "train.get_global_step", "train.get_or_create_global_step", "get_collection",
    "get_collection_ref", "trainable_variables", "global_variables", "get_variable",
    "losses.get_losses", *READS_REGULARIZATION)

_ASSIGNS = ("assigns a variable: in the Estimator only where the train_op depends on it, in TF2 at "
            "every step of training; write it in Trainer.train_step")
_COLLECTION = "uses the graph, which TF2 creates again for every mode"
_SUMMARY = "writes nothing in TF2: write it with tf.compat.v2.summary around Trainer.train"
_ASSERTS = ("fails in the Estimator only where the train_op depends on it, in TF2 at every step "
            "of training: decide which is meant")
_VARIABLES = "returns nothing in TF2, where Forward.trainable_variables has the variables"
_ORDERS = ("orders the ops of the Estimator: the forward pass in TF2 runs every op with an effect, "
           "in the order of the text")
_JOINS = "joins ops, which TF2 runs in the order of the text"
_PRINTS = "prints: in TF2 write tf.print"
_MAKES = "makes a new variable at every call of the forward pass: use tf.get_variable"
_LOCAL = "makes a variable that TF2 does not reset between evaluations"
# Effects that are the same where a function still makes a graph that a session runs.
AS_IN_A_GRAPH = (_ASSIGNS, _ASSERTS, _ORDERS, _JOINS, _PRINTS, _MAKES, _LOCAL)
# Function -> what it does otherwise in TF2. A name ending in "." is a namespace.
OTHER_EFFECTS = {
    **dict.fromkeys((
        "assign", "assign_add", "assign_sub", "scatter_add", "scatter_div", "scatter_max",
        "scatter_min", "scatter_mul", "scatter_sub", "scatter_update", "scatter_nd_add",
        "scatter_nd_sub", "scatter_nd_update", "count_up_to", "state_ops."), _ASSIGNS),
    **dict.fromkeys((
        "add_to_collection", "add_to_collections", "get_collection", "get_collection_ref",
        "get_default_graph", "Graph"), _COLLECTION),
    **dict.fromkeys(("summary.", "contrib.summary."), _SUMMARY),
    **dict.fromkeys(("Assert", "debugging.", "assert_equal", "assert_greater",
                     "assert_greater_equal", "assert_less", "assert_less_equal",
                     "assert_non_negative", "assert_non_positive", "assert_positive",
                     "assert_negative", "assert_none_equal", "assert_rank",
                     "assert_rank_at_least", "assert_type", "verify_tensor_all_finite",
                     "check_numerics", "add_check_numerics_ops"), _ASSERTS),
    **dict.fromkeys(("trainable_variables", "global_variables", "all_variables",
                     "local_variables", "model_variables", "moving_average_variables"),
                    _VARIABLES),
    "control_dependencies": _ORDERS,
    "train.ExponentialMovingAverage": "averages variables with ops of the graph: write it in "
                                      "Trainer.train_step",
    "train.MovingAverageOptimizer": "averages variables with ops of the graph",
    "Variable": _MAKES,
    "get_local_variable": _LOCAL,
    "gradients": "cannot be used in the forward pass of TF2: use tf.GradientTape",
    "py_func": "calls Python code, which the tool does not follow",
    "py_function": "calls Python code, which the tool does not follow",
    "numpy_function": "calls Python code, which the tool does not follow",
    "Print": _PRINTS,
    "print": "prints in the Estimator only where the train_op depends on it",
    "group": _JOINS,
    "tuple": _JOINS,
    "set_random_seed": "sets the seed of the Estimator's graph: call tf.random.set_seed before "
                       "Trainer is made",
    "contrib.": "has no counterpart in TF2",
    "keras.layers.BatchNormalization": "moves its averages in TF2, in the Estimator only where the "
                                       "train_op depends on its updates",
}

# Modules of others whose functions have no effect on a model.
PURE_MODULES = ("math", "operator", "itertools", "functools", "collections", "copy", "numpy",
                "logging", "absl.logging", "six", "string", "re", "json", "typing", "os.path",
                "time", "datetime", "warnings", "numbers")
NOT_PURE = ("numpy.random", "numpy.load", "numpy.save", "functools.wraps")

BUILTINS = _words("""abs all any bool bytes callable dict divmod enumerate filter float format
    frozenset getattr hasattr int isinstance issubclass len list map max min next pow print range
    repr reversed round set slice sorted str sum tuple type zip
    ValueError TypeError KeyError RuntimeError NotImplementedError AssertionError""")

# Methods that change what they are called on.
CHANGING_METHODS = _words("""append clear extend insert pop popitem remove reverse setdefault sort
    update add discard""")

# Methods of tensors, shapes, containers and strings, and of loggers.
METHODS = _words("""as_list assert_has_rank assert_is_compatible_with concatenate
    dense_shape get_shape has_static_shape is_compatible_with is_fully_defined merge_with ndims
    num_elements read_value set_shape to_sparse to_tensor value values with_rank
    with_rank_at_least row_lengths nrows bounding_shape with_values
    append clear copy count extend fromkeys get index insert items keys pop popitem remove reverse
    setdefault sort update
    capitalize encode decode endswith find format join lower lstrip replace rsplit rstrip split
    splitlines startswith strip title upper zfill
    lookup astype item mean max min sum reshape tolist
    get_feature_key_name info debug warning warn error""")
