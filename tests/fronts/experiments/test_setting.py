# SPDX-License-Identifier: Apache-2.0
"""Settings: their grid, their names, and what they make of a spec."""

import pytest

from tests.fronts.estimator.counting import new_spec
from tpu_estimator_embedding import multipliers
from tpu_estimator_embedding.experiments.setting import Setting, grid, setting_of


def of_counts(spec):
    """The multipliers in force: that of the table `counts`, then that of all."""
    own = (spec.table_multipliers or multipliers.TableMultipliers()).resolve(["counts"])
    return own.get("counts"), spec.experimental_gradient_multiplier_fn


def test_every_key_of_tables_is_an_axis():
    labels = [setting.label for setting in grid([1], tables={"a*": [0, 1], "b": ["warmup:9"]})]
    assert labels == ["multiplier=1,table:a*=0,table:b=warmup:9",
                      "multiplier=1,table:a*=1,table:b=warmup:9"]


@pytest.mark.parametrize("arguments, name", [
    ({"multipliers": 5}, "`multipliers`"), ({"learning_rates": 0.1}, "`learning_rates`"),
    ({"clipping_limits": 1}, "`clipping_limits`"), ({"tables": {"a": 3}}, r"`tables\['a'\]`")])
def test_values_of_a_grid_are_lists(arguments, name):
    with pytest.raises(TypeError, match=rf"^{name} must be a list of values, got \d"):
        grid(**arguments)


def test_tables_of_a_grid_are_a_dictionary():
    with pytest.raises(TypeError, match="^`tables` must be a dictionary from tables to mul.*got 5"):
        grid(tables=5)


def test_texts_make_the_same_setting_again():
    setting = Setting(1, 0.5, 2.0, {"re:a=b": "freeze_until:5", "c": 0})
    assert setting_of(setting.texts) == setting


def test_settings_whose_labels_differ_have_directories_of_their_own():
    keys = ["a*", "ax", "a/", "a_"]
    assert len({Setting(tables={key: 1}).path_name for key in keys}) == len(keys)


@pytest.mark.parametrize("setting, expected", [
    (Setting(clipping_limit=1.0), (3, 2)),
    (Setting(multiplier=5), (None, 5)),
    (Setting(tables={"c*": 7}), (7, 2)),
    (Setting(tables={"counts": 7}), (7, 2)),
    (Setting(multiplier=5, tables={"c*": 7}), (7, 5))], ids=str)
def test_setting_overrides_the_program(setting, expected):
    spec = new_spec(table_multipliers={"counts": 3},
                    experimental_gradient_multiplier_fn=multipliers.constant(2))
    found = of_counts(setting.applied_to(spec))
    assert found == tuple(value and multipliers.constant(value) for value in expected)
