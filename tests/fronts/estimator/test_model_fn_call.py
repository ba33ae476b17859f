# SPDX-License-Identifier: Apache-2.0
"""A model_fn gets the arguments it takes, of the kinds that the user gave."""

import functools

import pytest
import tensorflow as tf

from tests.fronts.estimator.counting import (
    TPUEstimatorSpec,
    count,
    counts,
    counts_of,
    input_of,
    new_estimator,
)


class AttributeParams(dict):
    """A dictionary whose entries are attributes, too, as many programs have one."""

    def __getattr__(self, name):
        if name not in self:
            raise AttributeError(name)
        return self[name]


class HParams:
    """The part of `tf.contrib.training.HParams` that TPUEstimator uses."""

    def __init__(self, **values):
        self.__dict__.update(values)

    def __contains__(self, key):
        return key in self.__dict__

    def __getitem__(self, key):
        return self.__dict__[key]

    def add_hparam(self, key, value):
        self.__dict__[key] = value

    set_hparam = add_hparam


@pytest.mark.parametrize("params", [
    {"rate": 3.0}, AttributeParams(rate=3.0), HParams(rate=3.0)])
def test_params_stay_of_their_kind(tmp_path, params):
    seen = []

    def model_fn(features, labels, mode, params):
        seen.append((type(params), params["rate"], params["batch_size"], params["use_tpu"],
                     getattr(params, "rate", None)))
        loss = -tf.reduce_sum(features["id"])
        return TPUEstimatorSpec(mode, loss=loss, train_op=count(loss))

    new_estimator(tmp_path, model_fn, params=params).train(input_of([0, 1]), max_steps=1)
    attribute = None if type(params) is dict else 3.0
    assert seen == [(type(params), 3.0, 2, True, attribute)]
    assert "use_tpu" not in params


def spec_of(features, mode):
    loss = -tf.reduce_sum(features["id"])
    return TPUEstimatorSpec(mode, loss=loss, train_op=count(loss))


class Model:
    def __call__(self, features, labels, mode, params):
        return spec_of(features, mode)

    def method(self, features, mode, params):
        return spec_of(features, mode)


def with_extra(extra, features, labels, mode, params):
    assert extra == "extra"
    return spec_of(features, mode)


def with_config(features, labels, mode, params, config):
    assert config.save_summary_steps is None
    assert config.model_dir is not None
    return spec_of(features, mode)


@pytest.mark.parametrize("model_fn", [
    Model(), Model().method, functools.partial(with_extra, "extra"), with_config])
def test_model_fn_may_be_any_callable_and_take_what_it_likes(tmp_path, model_fn):
    estimator = new_estimator(tmp_path, model_fn)
    estimator.train(input_of([0, 1]), max_steps=1)
    assert counts(estimator) == counts_of(0, 1)


@pytest.mark.parametrize("returned", [None, 5, {"loss": 1}])
def test_model_fn_that_returns_no_spec_is_told_so_in_training(tmp_path, returned):
    """Before gradients are looked for, which it does not compute either."""
    estimator = new_estimator(tmp_path, lambda features, labels, mode, params: returned)
    with pytest.raises(ValueError, match=r"model_fn should return an EstimatorSpec\. .* mode "
                       f"'train', got {type(returned).__name__}"):
        estimator.train(input_of([0, 1]), max_steps=1)
