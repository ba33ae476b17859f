# SPDX-License-Identifier: Apache-2.0
import inspect

import pytest

from tpu_estimator_embedding.config.former_keywords import former_keywords


@former_keywords(length="replaced by `size`")
class Box:
    def __init__(self, size, depth=1):
        self.size, self.depth = size, depth


def test_class_keeps_its_signature_and_works():
    assert list(inspect.signature(Box).parameters) == ["size", "depth"]
    assert (Box(3).size, Box(size=3, depth=2).depth) == (3, 2)


def test_former_keyword_goes_before_missing_arguments():
    with pytest.raises(TypeError, match="`length` must be replaced by `size`, got 3"):
        Box(length=3)


def test_subclass_is_checked_too():
    class Crate(Box):
        pass

    with pytest.raises(TypeError, match="`length` must be replaced by `size`, got 3"):
        Crate(3, length=3)
