# SPDX-License-Identifier: Apache-2.0
"""Which variable scope a model_fn used an embedding column in: it names the table.

TF's embedding columns leave the scope in a graph collection when they are used in place
of a table. This module reads that collection, and mends one case: Keras 2's
`DenseFeatures` opens name scopes only, so that the variable scope is empty and every
table would be called `embedding_weights`.
"""

import contextlib
import re
from collections.abc import Iterator

import tensorflow as tf
from tensorflow.python.tpu import feature_column as tpu_fc
from tensorflow.python.tpu import feature_column_v2 as tpu_fc_v2


@contextlib.contextmanager
def recorded_scopes() -> Iterator[dict[str, str]]:
    """Yields a dictionary that fills while a model_fn uses its columns.

    Keys are the columns' `get_embedding_var_name()`, values the full names that their
    tables have when the same columns run without a TPU.
    """
    names: dict[str, str] = {}
    original = tpu_fc._record_variable_scope_and_name

    def record(embedding_var_name, embedding_var_name_in_fc, *args, **kwargs):
        original(embedding_var_name, embedding_var_name_in_fc, *args, **kwargs)
        scope = tf.compat.v1.get_variable_scope().name
        is_shared = kwargs.get("is_shared_embedding", bool(args and args[0]))
        if not is_shared and not _is_scope_of_column(scope, embedding_var_name):
            scope = tf.compat.v1.get_default_graph().get_name_scope() or scope
        names.setdefault(embedding_var_name, "/".join(
            part for part in (scope, embedding_var_name_in_fc) if part))

    modules = (tpu_fc, tpu_fc_v2)
    for module in modules:
        module._record_variable_scope_and_name = record
    try:
        yield names
    finally:
        for module in modules:
            module._record_variable_scope_and_name = original
        tf.compat.v1.get_default_graph().clear_collection(tpu_fc._TPU_FC_TO_SCOPE)


def _is_scope_of_column(scope: str, embedding_var_name: str) -> bool:
    column_scope = re.sub(r"[^A-Za-z0-9_.\\-]", "_", f"{embedding_var_name}_embedding")
    return scope.rpartition("/")[2].startswith(column_scope)
