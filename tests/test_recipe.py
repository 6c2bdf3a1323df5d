from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from patchvote import Dense, Patch, PatchvoteError, Recipe

recipes = st.builds(
    Recipe,
    network=st.text(),
    sampling=st.one_of(
        st.builds(Dense, sides=st.lists(st.integers(1, 999), min_size=1, max_size=16).map(tuple), whole=st.booleans()),
        st.builds(Patch, count=st.integers(4, 999), input=st.none() | st.integers(1, 250), whole=st.booleans()),
    ),
    activation=st.sampled_from(["after", "before"]),
)


@settings(max_examples=30)
@given(recipes)
def test_a_recipe_survives_json_and_equal_recipes_are_one_key(recipe):
    again = Recipe.from_json(recipe.to_json())
    assert again == recipe
    assert len({again, recipe}) == 1


def test_the_default_looks_densely_at_224_and_448_px_with_the_embedded_network():
    assert Recipe() == Recipe("efficientnet-lite0", Dense(sides=(224, 448)), "after")


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"mode": "dense"}', '{"mode": "sparse", "sampling": {}}', "null", "1"]
)
def test_what_is_no_recipe_is_refused(text):
    with pytest.raises(PatchvoteError, match="not a recipe"):
        Recipe.from_json(text)


def test_a_setting_from_the_future_is_named():
    text = Recipe().to_json().replace('"whole"', '"wholes"')
    with pytest.raises(PatchvoteError, match="wholes"):
        Recipe.from_json(text)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("sides", [20_000]),
        ("sides", [224] * 20_000),
        ("sides", [1e30]),
        ("sides", 224),
        ("sides", {"224": 1}),
        ("sides", None),
        ("count", 10**7),
        ("levels", 10**30),
        ("side", 10**30),
        ("input", -1),
        ("smallest", "32"),
    ],
)
def test_a_recipe_of_a_file_that_asks_for_too_much_is_refused_at_once(setting, value):
    mode = "dense" if setting in ("sides", "whole") else "patch"
    text = json.dumps({"mode": mode, "sampling": {setting: value}, "network": "x"})
    with pytest.raises(PatchvoteError) as caught:
        Recipe.from_json(text)
    assert len(str(caught.value)) < 400


def test_a_network_is_named_by_text_of_bounded_length():
    for network in (7, None, ["a"], "x" * 100_000):
        with pytest.raises(PatchvoteError, match="network of a recipe must be a name of at most 65,536"):
            Recipe.from_json(json.dumps({"mode": "dense", "sampling": {}, "network": network}))
