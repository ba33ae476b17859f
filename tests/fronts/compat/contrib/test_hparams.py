# SPDX-License-Identifier: Apache-2.0
"""HParams: values keep the type they were first given, whatever overrides them."""

import copy
import pickle

import pytest

from tpu_estimator_embedding.compat.contrib.hparams import HParams


def params():
    return HParams(rate=0.1, steps=10, name="a", flag=False, layers=[8, 4], nothing=None)


def test_values_are_attributes_and_items():
    given = params()
    assert (given.rate, given.steps, given.name, given.flag) == (0.1, 10, "a", False)
    assert given.layers == given.get("layers") == [8, 4] and given.nothing is None
    assert "rate" in given and "other" not in given
    assert given.get("other") is None and given.get("other", 3) == 3
    assert list(given.values()) == ["rate", "steps", "name", "flag", "layers", "nothing"]
    given.steps = 20
    assert given.values()["steps"] == 20


@pytest.mark.parametrize("text, name, value", [
    ("rate=1e-3", "rate", 0.001), ("steps=7", "steps", 7), ("name=b c", "name", "b c"),
    ("name=gs://bucket/x", "name", "gs://bucket/x"), ("flag=true", "flag", True),
    ("flag=0", "flag", False), ("layers=[1,2,3]", "layers", [1, 2, 3]), ("layers[1]=5", "layers",
                                                                          [8, 5]),
    ("rate=1,layers=[2],steps=3", "layers", [2]), ("rate = 2 , steps = 4", "rate", 2.0),
    ("name=", "name", "")])
def test_text_overrides(text, name, value):
    parsed = params().parse(text)
    assert getattr(parsed, name) == value and type(getattr(parsed, name)) is type(value)


@pytest.mark.parametrize("text, sentence", [
    ("other=1", "Unknown hyperparameter type for other"), ("rate", "Malformed .* value: rate"),
    ("rate=1,=2", "Malformed"), ("steps=0.5", "Could not cast hparam 'steps' of type 'int'"),
    ("flag=maybe", "Could not cast hparam 'flag' of type 'bool' from value 'maybe'"),
    ("layers=3", "Must pass a list for multi-valued parameter: layers"),
    ("rate=[1,2]", "Must not pass a list for single-valued parameter: rate")])
def test_text_that_does_not_fit_is_refused(text, sentence):
    with pytest.raises(ValueError, match=sentence):
        params().parse(text)


@pytest.mark.parametrize("name, value", [
    ("steps", 0.5), ("steps", True), ("flag", 1), ("name", 3), ("rate", "fast")])
def test_value_of_another_type_is_refused(name, value):
    with pytest.raises(ValueError, match=f"Could not cast hparam '{name}'"):
        params().set_hparam(name, value)


def test_values_are_cast_without_loss():
    given = params().override_from_dict({"rate": 2, "steps": 3.0, "layers": [1.0]})
    assert (given.rate, given.steps, given.layers) == (2.0, 3, [1])
    assert type(given.rate) is float and type(given.steps) is int
    with pytest.raises(KeyError):
        given.set_hparam("other", 1)


def test_names_come_and_go():
    given = params()
    given.add_hparam("new", 1)
    given.del_hparam("rate")
    given.del_hparam("no_such_name")
    assert given.new == 1 and "rate" not in given and not hasattr(given, "rate")
    for name in ("new", "values", "parse"):
        with pytest.raises(ValueError, match=f"Hyperparameter name is reserved: {name}"):
            given.add_hparam(name, 1)
    with pytest.raises(ValueError, match="cannot be empty: empty"):
        given.add_hparam("empty", [])
    with pytest.raises(ValueError, match="`hparam_def` must be None"):
        HParams(object())


def test_json_goes_both_ways():
    text = params().to_json(sort_keys=True)
    changed = HParams(rate=0.0, steps=0, name="", flag=True, layers=[0], nothing=None)
    assert changed.parse_json(text).values() == params().values()
    assert HParams(function=len, size=1).to_json() == '{"size": 1}'


def test_copies_are_their_own():
    given = params()
    for other in (copy.deepcopy(given), pickle.loads(pickle.dumps(given))):
        other.layers[0] = 99
        other.add_hparam("new", 1)
        assert given.layers == [8, 4] and "new" not in given
    assert str(HParams(b=1, a=2)) == "[('a', 2), ('b', 1)]"


def test_model_fn_gets_them_with_what_is_added():
    from tpu_estimator_embedding.estimator.estimator_spec import call_model_fn
    seen = call_model_fn(lambda features, params: params, None, None, "train", None,
                         HParams(rate=0.1), {"batch_size": 8, "use_tpu": True})
    assert (seen.rate, seen.batch_size, seen.use_tpu) == (0.1, 8, True)
