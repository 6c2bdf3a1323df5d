"""Scores are those of the definition, and reports show them: in light and dark, on a phone, whatever names are."""

from __future__ import annotations

import itertools
import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from patchvote import Evidence, Photo, Recipe
from patchvote.models.about import About
from patchvote.models.model import Model
from patchvote.models.report.page import write_report
from patchvote.models.scores import Scores, interval
from patchvote.voters.registry import scorer_class

HOSTILE = (
    "\"'><img src=x onerror=hacked=1>",
    "</title></style></script><script>hacked=1</script>",
    "<script>hacked=1</script>",
    "never photographed",
    "x" * 200,
    "כלב \u202e& Straße 猫",
    "not text \udc80",
)
SIXTY_SEVEN = tuple(f"indoor scene number {number:02d}" for number in range(67))
INTERNET = re.compile(r"(src|href|action|data)\s*=\s*[\"']?\s*(https?:)?//|url\(|@import", re.IGNORECASE)


def make_scores(classes, count, seed=0, skip=()) -> Scores:
    rng = np.random.default_rng(seed)
    numbers = [number for number, label in enumerate(classes) if label not in skip]
    expected = rng.choice(numbers, count)
    votes = rng.normal(size=(count, len(classes)))
    votes[:, numbers] += 2
    votes[np.arange(count), expected] += 2
    probability = np.exp(votes) / np.exp(votes).sum(axis=1, keepdims=True)
    names = tuple(f"{classes[number]}/{index}.jpg" for index, number in enumerate(expected))
    return Scores(tuple(classes), names, expected, probability, 0.2)


# --- scores -----------------------------------------------------------------------------------------------------------


@given(st.integers(0, 500), st.integers(0, 500))
def test_the_interval_holds_the_share_and_shrinks_with_images(right, wrong):
    low, high = interval(right, right + wrong)
    assert 0 <= low <= high <= 1
    if right + wrong:
        assert low - 1e-9 <= right / (right + wrong) <= high + 1e-9
        smaller, larger = interval(4 * right, 4 * (right + wrong))
        assert larger - smaller < high - low


def test_accuracy_confusion_and_classes_are_those_of_the_definition():
    scores = make_scores("abcd", 60)
    pairs = list(zip(scores.expected.tolist(), (int(np.argmax(row)) for row in scores.probability), strict=True))
    assert scores.accuracy == sum(expected == predicted for expected, predicted in pairs) / 60 < 1
    assert scores.confusion.tolist() == [[pairs.count((i, j)) for j in range(4)] for i in range(4)]
    for number, own in enumerate(scores.by_class()):
        asked = [predicted for expected, predicted in pairs if expected == number]
        named = [expected for expected, predicted in pairs if predicted == number]
        assert own.images == len(asked)
        assert own.found == pytest.approx(np.mean([predicted == number for predicted in asked]))
        assert own.right == pytest.approx(np.mean([expected == number for expected in named]))
    one = Scores(("a", "b"), ("x",), np.array([0]), np.array([[0.9, 0.1]]))
    assert math.isnan(one.by_class()[1].found)
    assert one.summary()["classes"]["b"] == {"images": 0, "found": None, "right": None}


def test_reliability_groups_hold_every_image_once_and_the_surest_mistakes_come_first():
    scores = make_scores("abcd", 200)
    groups = scores.reliability()
    assert sum(group.images for group in groups) == 200
    assert sum(group.images * group.accuracy for group in groups) == pytest.approx(200 * scores.accuracy)
    worst = scores.worst(10)
    assert not scores.is_right[worst].any()
    assert (np.diff(scores.confidence[worst]) <= 0).all()
    others = np.setdiff1d(np.flatnonzero(~scores.is_right), worst)
    assert scores.confidence[others].max() <= scores.confidence[worst].min()


def test_answers_below_the_threshold_are_rejected_and_left_out_of_the_accuracy_of_named_images():
    probability = np.array([[0.9, 0.1], [0.6, 0.4], [0.9, 0.1]])
    scores = Scores(("a", "b"), ("1", "2", "3"), np.array([0, 1, 1]), probability, threshold=0.8)
    assert (scores.accuracy, scores.accuracy_of_named, scores.summary()["rejected"]) == (1 / 3, 0.5, 1)
    assert [values.tolist() for values in scores.named_curve()] == [[0, 1 / 3], [1 / 3, 0.5]]
    assert math.isnan(Scores(("a", "b"), ("1",), np.array([0]), probability[:1], threshold=1.0).accuracy_of_named)


# --- reports ----------------------------------------------------------------------------------------------------------


def make_model(classes, scores, **about) -> Model:
    count = len(classes)
    arrays = {"weights": np.ones((1, count, 3)), "mean": np.zeros(3), "scale": np.ones(3)}
    told = {
        "images": dict.fromkeys(classes, 20),
        "held_out": scores and scores.summary(),
        "method": "<i>votes</i>",
        "seconds": {"extracting": 3.0, "training": 1.0},
    }
    scorer = scorer_class("nbnl")(arrays, {"q": 2.0, "power": 0.5, "confidence": 0.5}, count)
    return Model(scorer, tuple(classes), Recipe(), "f" * 16, 0.02, 0.2, About.from_plain(told | about))


def make_mistakes(scores, photo) -> list[Evidence]:
    """Evidence of three mistakes, all of one photo."""
    votes, boxes = np.ones((2, len(scores.classes))), np.array([[0, 0, 0.5, 1], [0.5, 0, 1, 1]])
    return [
        Evidence(scores.names[i], scores.classes, votes, boxes, scores.probability[i], photo=photo)
        for i in scores.worst(3)
    ]


def report(folder, model, scores, **more) -> str:
    write_report(folder / "r.html", model, scores, **({"title": "t", "kind": "k"} | more))
    return (folder / "r.html").read_text("utf-8")


@pytest.fixture(scope="module")
def reports(tmp_path_factory, real_photos):
    """Reports of two, of hostile, of 67 and of unmeasured classes, and their scores."""
    folder = tmp_path_factory.mktemp("reports")
    photo = Photo("cat", Image.open(real_photos / "chelsea.png").resize((160, 100)))
    classes = {"two": ("cat", "dog"), "hostile": tuple(sorted(HOSTILE)), "many": SIXTY_SEVEN, "unmeasured": ("a", "b")}
    made = {}
    for name, labels in classes.items():
        scores = None if name == "unmeasured" else make_scores(labels, 300, skip=["never photographed"])
        mistakes = make_mistakes(scores, photo) if name in ("two", "hostile") else []
        path = folder / f"{name}.html"
        title = max(HOSTILE) if name == "hostile" else name
        write_report(path, make_model(labels, scores), scores, mistakes, title=title, kind=f"on <b>{name}</b> photos.")
        made[name] = path, scores
    return made


@pytest.mark.parametrize("name", ["two", "hostile", "many", "unmeasured"])
def test_every_report_opens_without_errors_asks_for_nothing_and_fits_a_phone(browser, reports, name):
    path, _ = reports[name]
    seen = browser.open(path, width=360, height=700)
    assert seen.messages == []
    assert ("Not measured" in seen.dom) == (name == "unmeasured")
    assert [address for address in seen.requests if not address.startswith("data:")] == [path.as_uri()]
    assert browser.evaluate("document.documentElement.scrollWidth") == 360
    assert not INTERNET.search(path.read_text("utf-8"))
    if name == "hostile":  # a share of nothing is a dash
        row = browser.evaluate("[...document.querySelectorAll('.sortable tbody tr')].at(-1).innerText")
        assert row.split() == ["never", "photographed", "0", "\N{EN DASH}", "\N{EN DASH}"]
    if name == "many":  # there, only the matrix is too wide, and scrolls in its own box, with colours for numbers
        browser.evaluate("document.querySelectorAll('details').forEach(part => part.open = true)")
        assert browser.evaluate("document.documentElement.scrollWidth") == 360
        assert browser.evaluate("(box => box.scrollWidth > box.clientWidth)(document.querySelector('.scroll'))")
        cells = browser.evaluate("[...document.querySelectorAll('.matrix td[title]')].map(c => c.innerText)")
        assert set(cells) == {""}


def test_names_from_the_data_are_text_and_nothing_else(browser, reports, tmp_path):
    path, scores = reports["hostile"]
    seen = browser.open(path)
    assert browser.evaluate("typeof hacked") == "undefined"
    assert browser.evaluate("document.querySelectorAll('bdi *, [onerror], img[src=x]').length") == 0
    assert browser.evaluate("document.scripts.length") == 1
    shown = browser.evaluate("[...document.querySelectorAll('.sortable th bdi')].map(name => name.textContent)")
    assert sorted(shown) == sorted(label.encode("utf-8", "replace").decode() for label in scores.classes)
    assert "on &lt;b&gt;hostile&lt;/b&gt; photos" in seen.dom
    assert "&lt;i&gt;votes&lt;/i&gt;" in seen.dom
    slip = "<script>hacked=1</script><img src='http://localhost:9/x.png' onerror='hacked=1'>"
    (tmp_path / "slipped.html").write_text(reports["two"][0].read_text().replace("</h1>", f"</h1>{slip}"))
    seen = browser.open(tmp_path / "slipped.html")  # what slipped in would be refused
    assert browser.evaluate("typeof hacked") == "undefined"
    refused = [message for message in seen.messages if "Content Security Policy" in message]
    assert any("http://localhost:9/x.png" in message for message in refused)
    assert any("script" in message for message in refused)


def test_the_numbers_are_those_of_the_scores(browser, reports):
    path, scores = reports["two"]
    browser.open(path)
    cells = (
        "[...document.querySelectorAll('.matrix tbody tr')].map(row => [...row.cells].slice(1).map(c => +c.innerText))"
    )
    assert browser.evaluate(cells) == scores.confusion.tolist()
    assert browser.evaluate("document.querySelector('.big').innerText") == f"{100 * scores.accuracy:.1f}\xa0%"
    low, high = scores.interval
    assert f"between {100 * low:.1f} and {100 * high:.1f}\xa0%" in browser.evaluate("document.body.innerText")
    assert browser.evaluate("document.querySelectorAll('.beside circle').length") == len(scores.reliability())


@pytest.mark.parametrize(("count", "folds"), [(25, 0), (26, 2), (151, 1)])
def test_tables_and_matrices_of_more_than_25_classes_fold_and_very_large_ones_are_not_drawn(tmp_path, count, folds):
    classes = tuple(f"class {number:03d}" for number in range(count))
    scores = make_scores(classes, 10 * count)
    page = report(tmp_path, make_model(classes, scores), scores)
    assert page.count("<details>") == page.count("</details>") == folds
    assert ("too many classes" in page) == ('class="matrix"' not in page) == (count > 150)


def test_a_heading_sorts_and_sorts_back(browser, reports):
    path, scores = reports["many"]
    browser.open(path)
    first = "document.querySelector('details .sortable tbody tr').cells[{}].textContent"
    press = "document.querySelectorAll('details .sortable button')[{}].click()"
    found = [own.found for own in scores.by_class()]
    assert browser.evaluate(first.format(2)) == f"{100 * min(found):.0f}\xa0%"
    for expected in (max, min):  # the rows are sorted upwards at first
        browser.evaluate(press.format(2))
        assert browser.evaluate(first.format(2)) == f"{100 * expected(found):.0f}\xa0%"
    browser.evaluate(press.format(0))
    assert browser.evaluate(first.format(0)) == SIXTY_SEVEN[0]


def test_the_page_is_dark_where_people_like_it_dark_and_a_reader_without_eyes_finds_the_way(browser, reports):
    brightness = []
    for dark in (True, False):
        browser.open(reports["two"][0], dark=dark)
        colours = browser.evaluate("(style => [style.backgroundColor, style.color])(getComputedStyle(document.body))")
        brightness.append([sum(map(int, re.findall(r"\d+", colour))) for colour in colours])
    (dark_paper, dark_ink), (paper, ink) = brightness
    assert paper > 600 > 200 > ink
    assert dark_ink > 600 > 200 > dark_paper
    levels = browser.evaluate("[...document.querySelectorAll('h1,h2,h3')].map(head => +head.tagName[1])")
    assert (levels[0], levels.count(1)) == (1, 1)
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    assert browser.evaluate("document.documentElement.lang") == "en"
    assert browser.evaluate("document.querySelectorAll('img').length") == 9
    assert browser.evaluate("document.querySelectorAll('img:not([alt]), img[alt=\"\"], th:not([scope])').length") == 0


@pytest.mark.parametrize(("count", "says"), [(32, "cannot be told from chance"), (3200, "it is overconfident")])
def test_a_model_is_called_overconfident_only_where_that_is_not_chance(tmp_path, count, says):
    expected = (np.arange(count) >= 0.71875 * count).astype(int)
    scores = Scores(("a", "b"), tuple(map(str, range(count))), expected, np.tile([0.815, 0.185], (count, 1)))
    assert says in report(tmp_path, make_model(scores.classes, scores), scores)
