# SPDX-License-Identifier: Apache-2.0
"""Which table gets which multiplier."""

import pytest

from tpu_estimator_embedding import multipliers as m

TABLES = ["items", "user", "user_city", "user_home"]


@pytest.mark.parametrize("mapping, expected", [
    ({}, {}),
    ({"user": 0.1}, {"user": 0.1}),
    ({"user*": 0.1}, {"user": 0.1, "user_city": 0.1, "user_home": 0.1}),
    ({"user*": 0.1, "user_city": 2}, {"user": 0.1, "user_city": 2, "user_home": 0.1}),
    ({"user_?ity": 3, "*": 1}, {"items": 1, "user": 1, "user_city": 3, "user_home": 1}),
    ({"re:user_(city|home)": 0}, {"user_city": 0, "user_home": 0}),
    ({"re:user": 0}, {"user": 0}),
])
def test_names_globs_and_regular_expressions(mapping, expected):
    resolved = m.TableMultipliers.of(mapping).resolve(TABLES)
    assert resolved == {name: m.constant(value) for name, value in expected.items()}


def test_values_are_schedules_numbers_or_text():
    resolved = m.TableMultipliers.of(
        {"items": m.freeze_until(5), "user": 0.5, "user_city": "warmup:9"}).resolve(TABLES)
    assert resolved == {"items": m.freeze_until(5), "user": m.constant(0.5),
                        "user_city": m.linear_warmup(9)}


def test_a_name_with_the_signs_of_a_glob_is_a_name_first():
    resolved = m.TableMultipliers.of({"a[0]": 1, "a*": 2}).resolve(["a[0]", "a0"])
    assert resolved == {"a[0]": m.constant(1), "a0": m.constant(1)}


@pytest.mark.parametrize("key, nearest", [
    ("usr", "Nearest: user, user_home, user_city."), ("itemz*", "Nearest: items."),
    ("re:item", "Nearest: items."), ("xyz", "Nearest: items, user, user_city, user_home.")])
def test_key_that_matches_nothing_names_the_nearest(key, nearest):
    with pytest.raises(ValueError, match="`table_multipliers` must be keyed by names of "
                                         "tables, or patterns that match one") as raised:
        m.TableMultipliers.of({key: 1}).resolve(TABLES)
    assert str(raised.value).endswith(nearest)


@pytest.mark.parametrize("mapping, kind, sentence", [
    ({"re:(": 1}, ValueError, "keyed by regular expressions after 're:'"),
    ({"user": "wramup:1"}, ValueError, "Nearest to 'wramup': warmup"),
    ([("user", 1)], TypeError, "`table_multipliers` must be a mapping from tables to multipliers"),
    ({3: 1.0}, TypeError, "keyed by names, globs or regular expressions, got 3"),
    ({"user": None}, TypeError, "`multiplier` must be a number or a schedule, got None")])
def test_bad_mapping_is_an_error(mapping, kind, sentence):
    with pytest.raises(kind, match=sentence):
        m.TableMultipliers.of(mapping)


@pytest.mark.parametrize("key", ["user", "user*", "us?r", "re:us.*", "tbl_user", "tbl_*"])
def test_table_of_a_column_answers_to_the_name_of_the_column(key):
    found = m.TableMultipliers.of({key: 0.1}).resolve(["tbl_user", "items"])
    assert found == {"tbl_user": m.constant(0.1)}


def test_own_name_of_a_table_of_a_column_overrides_a_pattern():
    mapping = {"us*": 0.5, "user": 0.1}
    assert m.TableMultipliers.of(mapping).resolve(["tbl_user"])["tbl_user"] == m.constant(0.1)


def test_none_and_itself_are_taken_too():
    own = m.TableMultipliers.of({"user": 1})
    assert m.TableMultipliers.of(own) is own
    assert m.TableMultipliers.of(None).resolve(TABLES) == {}


def test_texts_make_the_same_again():
    own = m.TableMultipliers.of({"user*": m.freeze_until(5) * 0.5, "re:item.": 2})
    assert own.texts == {"user*": "freeze_until:5*0.5", "re:item.": "2"}
    assert m.TableMultipliers.of(own.texts) == own


def test_others_count_where_no_key_matches():
    others = m.TableMultipliers.of({"items": 3, "user_city": 4})
    own = m.TableMultipliers(m.TableMultipliers.of({"user*": 0.1}).items, others)
    assert own.resolve(TABLES) == {"items": m.constant(3), **{
        name: m.constant(0.1) for name in TABLES[1:]}}
