"""One cache for all commands: what one of them has seen costs the others nothing, and it stays within its bound."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from helpers.full_disk import full_disk
from helpers.quick_network import QUICK, QuickNetwork
from patchvote import Extractor, ImageClassifier, Store, fill
from patchvote.bags.cache_contents import clear_bags
from patchvote.bags.cache_files import DEFAULT_BOUND, bound_of, files_in, parse_size, root_of, trim, using
from patchvote.bags.cache_stream import FEW
from patchvote.errors import CacheWarning, PatchvoteError
from patchvote.models.check.check import check_photos

COLOURS = {"red": (200, 40, 40), "blue": (40, 40, 200)}
VOTERS = ("auto", "bag-svm", "nbnn")


def write_photos(folder: Path, count: int, seed: int) -> Path:
    rng = np.random.default_rng(seed)
    for label, colour in COLOURS.items():
        (folder / label).mkdir(parents=True, exist_ok=True)
        for index in range(count):
            pixels = rng.normal(colour, 60, (64, 64, 3)).clip(0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / label / f"{seed}-{index}.png")
    return folder


@pytest.fixture
def photos(tmp_path) -> Path:
    return write_photos(tmp_path / "photos", 10, 0)


@pytest.fixture
def others(tmp_path) -> Path:
    return write_photos(tmp_path / "others", 10, 1)


@pytest.fixture
def network() -> QuickNetwork:
    return QuickNetwork()


@pytest.fixture(autouse=True)
def _settled(monkeypatch):
    monkeypatch.setattr("patchvote.bags.storing._SETTLED", 0)  # the times of files that were just written count


def fitted(photos: Path, cache: Path | bool, network: QuickNetwork | None = None, voter="auto") -> ImageClassifier:
    return ImageClassifier(QUICK, cache=cache, backbone=network or QuickNetwork(), voter=voter, budget=0).fit(photos)


def loaded(model: Path, cache: Path | bool, network: QuickNetwork) -> ImageClassifier:
    return ImageClassifier.load(model, cache=cache, backbone=network)


@pytest.fixture
def model(photos, tmp_path) -> Path:
    """A model whose training photos are in the cache `tmp_path / "cache"`."""
    fitted(photos, tmp_path / "cache").save(tmp_path / "m.patchvote")
    return tmp_path / "m.patchvote"


# --- what one command has seen, another need not extract ------------------------------------------------------------


@pytest.mark.parametrize("voter", VOTERS)
def test_photos_that_fit_has_seen_cost_the_other_commands_nothing(photos, tmp_path, network, voter):
    fitted(photos, tmp_path / "cache", voter=voter).save(tmp_path / "m")
    classifier = loaded(tmp_path / "m", tmp_path / "cache", network)
    assert all(answer.label for answer in classifier.answers(photos))
    scores = classifier.evaluate(photos)
    assert (len(scores), classifier.known) == (20, 20)
    classifier.predict_proba(photos)
    assert classifier.suggest(photos) == []  # all of them were learned
    classifier.add(photos)
    assert network.calls == (0 if voter == "nbnn" else len(classifier._mistakes))


def test_a_check_gets_from_the_cache_what_fit_has_seen(photos, model, tmp_path, network):
    check_photos(photos, Extractor(QUICK, backbone=network), cache=tmp_path / "cache")
    assert network.calls == 0


@pytest.mark.parametrize("voter", VOTERS)
def test_photos_that_were_predicted_cost_evaluate_suggest_and_add_nothing(photos, others, tmp_path, network, voter):
    fitted(photos, tmp_path / "cache", voter=voter).save(tmp_path / "m")
    list(loaded(tmp_path / "m", tmp_path / "cache", QuickNetwork()).answers(others))
    classifier = loaded(tmp_path / "m", tmp_path / "cache", network)
    scores = classifier.evaluate(others)
    assert (len(scores), classifier.known) == (20, 0)
    assert len(classifier.suggest(others, 5)) == 5
    assert classifier.add(others).filled.extracted == 0
    assert network.calls == (0 if voter == "nbnn" else len(classifier._mistakes))


def test_photos_that_were_measured_cost_a_later_fit_nothing(others, model, tmp_path, network):
    loaded(model, tmp_path / "cache", QuickNetwork()).evaluate(others)
    assert fitted(others, tmp_path / "cache", network).filled.extracted == 0


def test_a_check_with_test_photos_prepares_the_measurement(photos, others, tmp_path, network):
    check_photos(photos, Extractor(QUICK, backbone=QuickNetwork()), test=others, cache=tmp_path / "cache")
    classifier = fitted(photos, tmp_path / "cache", network)
    classifier.save(tmp_path / "m")
    calls = network.calls
    measured = loaded(tmp_path / "m", tmp_path / "cache", network)
    measured.evaluate(others)
    assert calls == len(classifier._mistakes)
    assert network.calls == calls + len(measured._mistakes)


@pytest.mark.parametrize("voter", VOTERS)
def test_moved_and_renamed_photos_are_known_by_their_content(photos, tmp_path, network, voter):
    first = fitted(photos, tmp_path / "cache", voter=voter)
    first.save(tmp_path / "m")
    moved = photos.rename(tmp_path / "elsewhere")
    for number, path in enumerate(sorted(moved.rglob("*.png"))):
        path.rename(path.with_name(f"photo {number}.png"))
    again = fitted(moved, tmp_path / "cache", network, voter)
    assert again.filled.extracted == 0
    np.testing.assert_array_equal(again.model.scorer.arrays["class"], first.model.scorer.arrays["class"])
    measured = loaded(tmp_path / "m", tmp_path / "cache", network)
    measured.evaluate(moved)
    assert network.calls == (0 if voter == "nbnn" else len(again._mistakes) + len(measured._mistakes))
    network.calls = 0
    check_photos(moved, Extractor(QUICK, backbone=network), cache=tmp_path / "cache")
    assert network.calls == (20 if voter == "bag-svm" else 0)  # means are not enough for a check


def test_a_photo_that_has_changed_is_answered_as_it_is_now(photos, model, tmp_path, network):
    changed = photos / "red" / "0-0.png"
    shutil.copy(photos / "blue" / "0-0.png", changed)
    Image.open(changed).rotate(90).save(changed)
    answers = {answer.name: answer for answer in loaded(model, tmp_path / "cache", network).answers(photos)}
    assert network.calls == 1
    assert answers["red/0-0.png"].label == "blue"


@pytest.mark.parametrize("voter", VOTERS)
def test_answers_from_the_cache_are_those_of_the_network_up_to_rounding(photos, others, tmp_path, voter):
    fitted(photos, tmp_path / "cache", voter=voter).save(tmp_path / "m")
    plain = loaded(tmp_path / "m", False, QuickNetwork())
    first, again = (loaded(tmp_path / "m", tmp_path / "cache", QuickNetwork()) for _ in range(2))
    expected, found = plain.predict_proba(others), first.predict_proba(others)
    np.testing.assert_allclose(found, expected, atol=2e-3)
    np.testing.assert_array_equal(again.predict_proba(others), found)
    both = zip(plain.answers(others), first.answers(others), strict=True)
    assert all((one.name, one.label) == (other.name, other.label) for one, other in both)
    one, other = plain.evaluate(others), again.evaluate(others)
    assert one.names == other.names
    assert [e.name for e in plain._mistakes] == [e.name for e in again._mistakes]


def test_answers_stay_in_order_where_some_photos_are_known_and_some_cannot_be_read(photos, others, model, tmp_path):
    mixed = [
        path for pair in zip(sorted(photos.rglob("*.png")), sorted(others.rglob("*.png")), strict=True) for path in pair
    ]
    bad = tmp_path / "bad.png"
    bad.write_text("no photo")
    mixed.insert(7, bad)
    network = QuickNetwork()
    answers = list(loaded(model, tmp_path / "cache", network).answers(mixed))
    assert [answer.name for answer in answers] == [str(path) for path in mixed]
    assert [answer.error is not None for answer in answers] == [path == bad for path in mixed]
    assert network.calls == 20


def test_few_photos_are_answered_without_a_look_at_the_cache(others, model, tmp_path, network):
    before = sorted((file.path, file.used) for file in files_in(tmp_path / "cache"))
    few = sorted(others.rglob("*.png"))[: FEW - 1]
    for _ in range(2):
        list(loaded(model, tmp_path / "cache", network).answers(few))
    assert network.calls == 2 * len(few)
    assert sorted((file.path, file.used) for file in files_in(tmp_path / "cache")) == before


def test_without_a_cache_nothing_is_kept(others, model, tmp_path, monkeypatch):
    monkeypatch.setenv("PATCHVOTE_CACHE", str(tmp_path / "mine"))
    loaded(model, False, QuickNetwork()).evaluate(others)
    assert not (tmp_path / "mine").exists()


# --- the bound ------------------------------------------------------------------------------------------------------


def shards(cache: Path) -> list[Path]:
    return sorted(file.path for file in files_in(cache))


def size(cache: Path) -> int:
    return sum(file.size for file in files_in(cache))


def aged(files: list[Path], days: float) -> None:
    for path in files:
        os.utime(path, (time.time() - 86400 * days,) * 2)


def test_what_was_used_longest_ago_goes_first(photos, others, tmp_path, monkeypatch, network):
    cache = tmp_path / "cache"
    fitted(photos, cache, voter="nbnn")
    old = shards(cache)
    fitted(others, cache, voter="nbnn")
    new = [path for path in shards(cache) if path not in old]
    aged(old, 3)
    aged(new, 2)
    fitted(photos, cache, network, voter="nbnn")  # uses the old ones
    monkeypatch.setenv("PATCHVOTE_CACHE_SIZE", str(sum(path.stat().st_size for path in old)))
    fitted(photos, cache, network, voter="nbnn")
    assert shards(cache) == old
    assert network.calls == 0


def test_answers_count_as_use(photos, others, model, tmp_path):
    cache = tmp_path / "cache"
    aged(shards(cache), 3)
    before = shards(cache)
    list(loaded(model, cache, QuickNetwork()).answers(photos))
    assert all(time.time() - path.stat().st_mtime < 60 for path in before)


def test_a_collection_larger_than_the_bound_is_learned_and_then_cut_down(photos, tmp_path, monkeypatch):
    monkeypatch.setenv("PATCHVOTE_CACHE_SIZE", "1kB")
    assert fitted(photos, tmp_path / "cache", voter="nbnn").filled.extracted == 20
    assert size(tmp_path / "cache") <= 1000
    assert list((tmp_path / "cache").iterdir()) == []  # folders, too


def test_nothing_goes_while_another_command_uses_the_cache_and_the_last_one_cuts_it_down(model, others, tmp_path):
    cache = tmp_path / "cache"
    with using(cache, 0):
        with using(cache, 0):
            pass
        assert size(cache) > 0
        fitted(others, cache)
    assert size(cache) == 0


def test_the_bound_is_five_gigabytes_for_the_users_cache_and_none_for_a_folder_that_is_named(monkeypatch, tmp_path):
    monkeypatch.delenv("PATCHVOTE_CACHE_SIZE", raising=False)
    assert bound_of() == DEFAULT_BOUND == 5 * 10**9
    assert bound_of(tmp_path) is None
    monkeypatch.setenv("PATCHVOTE_CACHE_SIZE", "2 GB")
    assert bound_of() == bound_of(tmp_path) == 2 * 10**9
    monkeypatch.setenv("PATCHVOTE_CACHE_SIZE", "0")
    assert root_of(None) is None
    for wrong in ("lots", "-1", "1e9", "5 PB", "٣"):
        with pytest.raises(PatchvoteError, match=r"PATCHVOTE_CACHE_SIZE must be a size such as 500MB or 5GB"):
            parse_size(wrong)


def test_a_bound_of_nothing_keeps_nothing(photos, tmp_path, monkeypatch):
    monkeypatch.setenv("PATCHVOTE_CACHE_SIZE", "0")
    fitted(photos, tmp_path / "cache").evaluate(photos)
    assert not (tmp_path / "cache").exists()


def test_only_files_that_patchvote_wrote_into_its_folders_are_removed(model, photos, tmp_path):
    cache = tmp_path / "cache"
    (folder,) = cache.iterdir()
    (shard,) = folder.glob("*.safetensors")
    outside = tmp_path / "outside-0123456789ab"
    shutil.copytree(folder, outside)
    (cache / "link-0123456789ab").symlink_to(outside)
    link = folder / shard.name.replace("0", "1")
    link.symlink_to(outside / shard.name)
    (folder / "notes.txt").write_text("mine")
    (folder / "weights.safetensors").write_text("mine")
    fill(cache / "store", photos, Extractor(QUICK, backbone=QuickNetwork()))  # of `patchvote extract`
    trim(cache, 0)
    assert not shard.exists()
    assert link.is_symlink()
    assert (outside / shard.name).exists()
    assert {path.name for path in folder.iterdir()} >= {"notes.txt", "weights.safetensors"}
    assert len(Store.open(cache / "store")) == 20


# --- several processes ----------------------------------------------------------------------------------------------


def test_several_threads_answer_at_once_with_a_small_bound(photos, others, model, tmp_path, monkeypatch):
    expected = loaded(model, False, QuickNetwork()).predict_proba(others)
    monkeypatch.setenv("PATCHVOTE_CACHE_SIZE", "20kB")
    found, failed = [], []

    def run() -> None:
        try:
            for _ in range(3):
                found.append(loaded(model, tmp_path / "cache", QuickNetwork()).predict_proba(others))
                fitted(photos, tmp_path / "cache")
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not failed
    assert len(found) == 9
    for one in found:
        np.testing.assert_allclose(one, expected, atol=2e-3)
    with using(tmp_path / "cache", 20_000):
        pass
    assert size(tmp_path / "cache") <= 20_000


PREDICTS = """
import sys, time
from helpers.quick_network import QuickNetwork
from patchvote import ImageClassifier
classifier = ImageClassifier.load(sys.argv[1], cache=sys.argv[2], backbone=QuickNetwork(), jobs=1)
for number, answer in enumerate(classifier.answers(sys.argv[3])):
    print(number, flush=True)
    if number == 9:
        time.sleep(600)
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_command_that_was_killed_half_way_leaves_a_usable_cache(others, model, tmp_path, how, network):
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    process = subprocess.Popen(
        [sys.executable, "-c", PREDICTS, model, tmp_path / "cache", others],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=os.environ | {"PYTHONPATH": path},
    )
    assert [process.stdout.readline() for _ in range(10)] == [f"{number}\n" for number in range(10)]
    process.send_signal(how)
    process.wait(60)
    process.stdout.close()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        answers = list(loaded(model, tmp_path / "cache", network).answers(others))
    assert all(answer.error is None for answer in answers)
    assert network.calls == 20 if how == signal.SIGKILL else 0 < network.calls <= 11
    assert clear_bags(tmp_path / "cache") > 0
    assert list((tmp_path / "cache").iterdir()) == []


# --- a cache that cannot be used ------------------------------------------------------------------------------------


def test_answers_go_on_where_the_disk_is_full_and_it_is_told_once(others, model, tmp_path):
    expected = loaded(model, False, QuickNetwork()).predict_proba(others)
    classifier = loaded(model, tmp_path / "cache", QuickNetwork())
    with full_disk(1000), pytest.warns(CacheWarning) as told:
        found = classifier.predict_proba(others)
    np.testing.assert_allclose(found, expected, atol=2e-3)
    (warning,) = told
    assert "cannot be used (File too large): the work is done without it" in str(warning.message)


def test_a_file_in_the_place_of_the_cache_is_told_once_and_done_without(others, photos, model, tmp_path):
    (tmp_path / "file").touch()
    for use in (
        lambda: loaded(model, tmp_path / "file" / "cache", QuickNetwork()).evaluate(others),
        lambda: fitted(photos, tmp_path / "file" / "cache"),
    ):
        with pytest.warns(CacheWarning, match="cannot be written .*: nothing is kept there") as told:
            use()
        assert len(told) == 1


def test_foreign_files_in_a_store_are_told_and_the_work_is_done_without_it(photos, others, model, tmp_path):
    (folder,) = (tmp_path / "cache").iterdir()
    (folder / "thesis.txt").write_text("years of work")
    with pytest.warns(CacheWarning, match="cannot be used .*holds other files .*: the work is done without it"):
        assert fitted(photos, tmp_path / "cache").filled.extracted == 20
    assert (folder / "thesis.txt").exists()


def test_a_damaged_bag_is_told_and_extracted_again(photos, model, tmp_path, network):
    (shard,) = shards(tmp_path / "cache")
    data = bytearray(shard.read_bytes())
    data[8 + int.from_bytes(data[:8], "little") + 21] ^= 1
    shard.write_bytes(data)
    expected = loaded(model, False, QuickNetwork()).predict_proba(photos)
    classifier = loaded(model, tmp_path / "cache", network)
    np.testing.assert_allclose(classifier.predict_proba(photos), expected, atol=2e-3)
    assert 0 < network.calls <= 20
    (said,) = classifier.damaged
    assert "is damaged" in said
    assert "It was set aside as" in said
    again = loaded(model, tmp_path / "cache", QuickNetwork())
    again.predict_proba(photos)
    assert again.damaged == []
