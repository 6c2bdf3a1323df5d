"""Protocols of anybody's: whatever the file says, an error in words, and nothing outside the folder of results."""

from __future__ import annotations

import json

import pytest
from patchvote.protocols import PROTOCOLS, Protocol
from patchvote.protocols.voters import make_voter

from patchvote import PatchvoteError

GOOD = """
title = "Mine"
source = "me"
layout = "folders"
voters = ["bag-svm"]
[[settings]]
name = "random"
draw = "random"
splits = 2
train = 3
"""


def load(folder, text: str) -> Protocol:
    (folder / "mine.toml").write_text(text)
    return Protocol.load(folder / "mine.toml")


def test_a_good_one_and_all_of_our_own_are_read(tmp_path):
    assert load(tmp_path, GOOD).settings[0].splits == 2
    for name in PROTOCOLS:
        assert Protocol.load(name).settings


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ("splits = 2", "splits = 100000000000", "settings.0..splits must be a whole number from 1 to 10,000"),
        ("splits = 2", 'splits = "x"', "settings.0..splits must be"),
        ("splits = 2", "splits = 1.5", "settings.0..splits must be"),
        ("train = 3", 'train = "x"', "settings.0..train must be"),
        ("train = 3", "seed = -5", "settings.0..seed must be"),
        ("train = 3", "pairs = [1]", "settings.0..pairs.0. must be a name"),
        ('["bag-svm"]', "[3]", "voters.0. must be text"),
        ('["bag-svm"]', '["bag-svm"]\nrecipes = [3]', "recipes.0. must be text"),
        ('["bag-svm"]', '["bag-svm"]\nnetworks = [3]', "networks.0. must be text"),
        ('layout = "folders"', "layout = 3", "layout must be text"),
        ('title = "Mine"', "title = 3", "title must be text"),
        ('title = "Mine"', 'title = "Mine"\nname = 3', "name must be a name"),
        ('title = "Mine"', 'title = "Mine"\nname = ".."', "name must be a name"),
        ('title = "Mine"', 'title = "Mine"\nname = "/anywhere"', "name must be a name"),
        ('name = "random"', 'name = "../../elsewhere"', "settings.0..name must be a name"),
        ('["bag-svm"]', '["bag-svm"]\nvoter_settings = {"bag-svm" = 3}', "voter_settings.*must be a table"),
    ],
)
def test_values_of_other_types_and_sizes_are_refused_by_name(before, after, says, tmp_path):
    with pytest.raises(PatchvoteError, match=says):
        load(tmp_path, GOOD.replace(before, after))


@pytest.mark.parametrize("key", ["title", "source", "layout", "voters"])
def test_a_key_that_is_missing_is_named(key, tmp_path):
    lines = [line for line in GOOD.splitlines() if not line.startswith(f"{key} =")]
    with pytest.raises(PatchvoteError, match=f"is not a protocol: {key} is missing"):
        load(tmp_path, "\n".join(lines))


def test_an_unknown_setting_of_a_voter_is_named(tmp_path, command, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").write_text(
        GOOD.replace('["bag-svm"]', '["bag-svm"]\nvoter_settings = {"bag-svm" = {foo = 1}}')
    )
    for label in ("a", "b"):
        (tmp_path / "photos" / label).mkdir(parents=True)
        for index in range(5):
            (tmp_path / "photos" / label / f"{index}.png").write_bytes(b"no photo")
    done = command("protocol", "plan", "mine.toml", "--data", "photos")
    assert done.code == 1
    assert "foo" in done.err


@pytest.mark.parametrize("value", ["-" * 9_000 + "1", "1+" * 4_000 + "1"])
def test_a_setting_that_nests_without_end_is_refused_as_any_other_text(value):
    with pytest.raises(PatchvoteError, match="snbnl"):
        make_voter(f"snbnl(q={value})")


@pytest.mark.parametrize("name", ["absent.toml", "scene16"])
def test_a_protocol_that_is_not_there_is_told(name):
    with pytest.raises(PatchvoteError, match="there is no such file" if name.endswith("toml") else "Did you mean"):
        Protocol.load(name)


@pytest.mark.parametrize("cell", [3, [], {"accuracy": "x"}, {"split": {}}, None])
def test_cells_that_make_no_sense_are_named(cell, tmp_path, command, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").write_text(GOOD)
    (tmp_path / "results" / "mine").mkdir(parents=True)
    (tmp_path / "results" / "mine" / "cells.jsonl").write_text(json.dumps(cell) + "\n")
    made_with = {"format": 2, "records": {}}
    (tmp_path / "results" / "mine" / "made_with.json").write_text(json.dumps(made_with))
    done = command("protocol", "summary", "mine.toml", "--results", "results")
    assert done.code == 1
    assert "cells.jsonl" in done.err
