# SPDX-License-Identifier: Apache-2.0
"""Names, order and defaults: TensorFlow 2.15's, frozen and as installed."""

import inspect

import pytest
import tensorflow as tf

from tests.low_level.tensorflows_own import load_tensorflows_own
from tpu_estimator_embedding.compat.modules import tpu_embedding, tpu_embedding_gradient

SIGNATURES = {
    "TPUEmbedding":
        "table_to_config_dict, feature_to_config_dict, batch_size, mode, master=None, "
        "optimization_parameters=None, cluster_def=None, "
        "pipeline_execution_with_tensor_core=False, partition_strategy='div', "
        "profile_data_directory=None, device_config=None, master_job_name=None",
    "create_variables_and_ops":
        "self, embedding_variable_name_by_table=None, slot_variable_names_by_table=None",
    "generate_enqueue_ops": "self, enqueue_datas_list, mode_override=None, ragged=False",
    "generate_send_gradients_op": "self, feature_to_gradient_dict, step=None",
    "get_activations": "self",
}

PROPERTIES = ["batch_size_per_core", "config_proto", "feature_to_config_dict", "hosts",
              "num_cores", "num_cores_per_host", "optimization_parameters",
              "table_to_config_dict", "table_to_features_dict"]

FIELDS = {
    "AdagradMomentumSlotVariables": ("accumulator", "momenta"),
    "AdagradSlotVariables": ("accumulator",),
    "AdamSlotVariables": ("m", "v"),
    "DeviceConfig": ("num_hosts", "num_cores", "job_name"),
    "FrequencyEstimatorSlotVariables": ("last_hit_step",),
    "FtrlSlotVariable": ("accumulator", "linear"),
    "MomentumSlotVariables": ("momenta",),
    "ProximalAdagradSlotVariables": ("accumulator",),
    "ProximalYogiSlotVariables": ("v", "m"),
    "RMSPropSlotVariables": ("ms", "mom"),
    "VariablesAndOps": ("embedding_variables_by_table", "slot_variables_by_table", "load_ops",
                        "retrieve_ops"),
}

FUNCTIONS = {
    "create_dummy_table_variables": "tpu_embedding",
    "get_gradients_through_compute_gradients": "optimizer, loss, activations",
    "get_gradients_through_dummy_table_variables": "tpu_embedding",
    "hook_dummy_table_variables_to_activations":
        "tpu_embedding, activations, dummy_table_variables",
}


def signature(function):
    return ", ".join(str(parameter.replace(annotation=parameter.empty))
                     for parameter in inspect.signature(function).parameters.values())


def signatures(module):
    return {name: signature(getattr(module.TPUEmbedding, name, module.TPUEmbedding))
            for name in SIGNATURES}


def properties(module):
    return [name for name, _ in inspect.getmembers(
        module.TPUEmbedding, lambda member: isinstance(member, property))]


def fields(module):
    return {name: getattr(module, name)._fields for name in FIELDS}


def functions(module):
    return {name: signature(getattr(module, name)) for name in FUNCTIONS}


def test_members_are_the_frozen_ones():
    assert signatures(tpu_embedding) == SIGNATURES
    assert properties(tpu_embedding) == PROPERTIES
    assert fields(tpu_embedding) == FIELDS
    assert functions(tpu_embedding_gradient) == FUNCTIONS


@pytest.mark.skipif(not tf.__version__.startswith("2.15."),
                    reason="TensorFlow 2.15 is the last that has these")
def test_frozen_members_are_those_of_the_installed_tensorflow():
    own = load_tensorflows_own()
    assert signatures(own) == SIGNATURES
    assert properties(own) == PROPERTIES
    assert fields(own) == FIELDS
    assert functions(load_tensorflows_own("tpu_embedding_gradient")) == FUNCTIONS


@pytest.mark.skipif(not tf.__version__.startswith("2.15."),
                    reason="TensorFlow 2.15 is the last that has these")
def test_every_public_name_of_the_installed_modules_is_here():
    for module in (tpu_embedding, tpu_embedding_gradient):
        own = load_tensorflows_own(module.__name__.rpartition(".")[2])
        names = {name for name, value in vars(own).items() if not name.startswith("_")
                 and getattr(value, "__module__", None) == own.__name__}
        assert names <= set(dir(module))
    assert {name for name in dir(load_tensorflows_own().TPUEmbedding)
            if not name.startswith("_")} == {
        name for name in dir(tpu_embedding.TPUEmbedding) if not name.startswith("_")}
