# SPDX-License-Identifier: Apache-2.0
"""Methods of a class that are replaced while a block runs."""

import pytest

from tpu_estimator_embedding.runtime.interception import intercepted


class Base:
    def inherited(self, value):
        return value

    def train(self, value, factor=1):
        return value * factor


class Estimator(Base):
    def train(self, value, factor=1):
        return super().train(value, factor) + 1


def doubled(original, *args, **kwargs):
    return 2 * original(*args, **kwargs)


def test_calls_of_subclasses_reach_the_replacement_through_super():
    with intercepted(Base, {"train": doubled, "inherited": doubled}):
        assert Base().train(3, factor=2) == 12
        assert Estimator().train(3) == 7
        assert Estimator().inherited(3) == 6
    assert (Base().train(3), Estimator().train(3), Estimator().inherited(3)) == (3, 4, 3)


@pytest.mark.parametrize("error", [ValueError, SystemExit, KeyboardInterrupt])
def test_the_class_has_its_own_methods_again_after_an_error(error):
    before = dict(vars(Estimator))
    with pytest.raises(error), intercepted(Estimator, {"inherited": doubled, "train": doubled}):
        assert "inherited" in vars(Estimator)
        raise error
    assert dict(vars(Estimator)) == before


def test_of_two_interceptions_the_inner_one_is_called_first():
    with intercepted(Base, {"train": doubled}), intercepted(
            Base, {"train": lambda original, *args: original(*args) + 1}):
        assert Base().train(3) == 7
