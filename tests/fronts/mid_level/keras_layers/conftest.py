# SPDX-License-Identifier: Apache-2.0
"""The Kerases that layers are made for."""

import importlib

import pytest

from tests.fronts.mid_level.keras_layers.step_programs import KERASES


@pytest.fixture(params=KERASES)
def keras(request):
    return importlib.import_module(request.param)
