# SPDX-License-Identifier: Apache-2.0
"""A slow start logs what it is doing."""

import logging

import pytest

from tests.fronts.estimator.counting import input_of, new_estimator
from tpu_estimator_embedding.estimator.hooks import session_start
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan


@pytest.fixture(name="lines")
def lines_about_the_start(logged):
    return lambda: logged(" slots (")


def test_slow_start_is_logged_until_it_is_over(tmp_path, monkeypatch, lines):
    monkeypatch.setattr(session_start, "PATIENCE_SECONDS", 0.0)
    new_estimator(tmp_path).train(input_of([0, 1]), max_steps=1)
    begun, ready = lines()
    assert begun == ("tpu_estimator_embedding: initializing or restoring 1 table and its "
                     "slots (0.0 GB) ...")
    assert ready.startswith("tpu_estimator_embedding: 1 table and its slots (0.0 GB) are ready")


def test_fast_start_logs_nothing(tmp_path, lines):
    new_estimator(tmp_path).train(input_of([0, 1]), max_steps=1)
    assert lines() == []


def test_slow_start_without_tables_says_nothing_of_tables(monkeypatch, caplog):
    monkeypatch.setattr(session_start, "PATIENCE_SECONDS", 0.0)
    caplog.set_level(logging.INFO, logger="tensorflow")
    with session_start.log_slow_start(EmbeddingPlan.build([], [])) as hook:
        hook.begin()
        hook.after_create_session(None, None)
    assert not caplog.records
