"""Lists that reach the page late: what it has shown since then stays."""

from __future__ import annotations

import contextlib
import io
import re

import pytest
from PIL import Image

pytest.importorskip("fastapi")

from helpers.page import DESKTOP, page_of
from helpers.waiting import wait_for
from helpers.web import add, learned, reached
from helpers.web import taught as teach


@pytest.fixture(scope="module")
def photos(demo_photos):
    return {name: sorted((demo_photos / "train" / name).iterdir()) for name in ("brick", "stars")}


@pytest.fixture(scope="module")
def taught(address, photos):
    """Id of a workspace with a model, and of a copy of a photo in it."""
    home, copy = reached(address), io.BytesIO()
    workspace = teach(home, {name: [(one.name, one.read_bytes()) for one in own[:3]] for name, own in photos.items()})
    Image.open(photos["brick"][0]).convert("RGB").save(copy, "JPEG", quality=95)
    added = add(home, workspace, [("copy.jpg", copy.getvalue())], class_name="brick")["added"]
    assert learned(home, workspace, voter="nbnn")["status"] == "done"
    return workspace, added[0]["id"]


@contextlib.contextmanager
def held(tab, pattern):
    """Hold the next answer of the server to such a request: yields what lets it reach the page."""
    answers = []
    tab.page.route(re.compile(pattern), lambda route: answers.append((route, route.fetch())), times=1)

    def release():
        route, answer = answers.pop()
        with tab.page.expect_event("requestfinished", lambda request: request == route.request):
            route.fulfill(response=answer)
        tab.page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    yield lambda: wait_for(lambda: tab.page.evaluate("true") and answers), release


def test_an_older_list_of_photos_does_not_replace_a_newer_one(browser, address, photos):
    with page_of(browser, address, **DESKTOP) as tab:
        tab.open()
        tab.add_class("brick")
        with held(tab, r"/photos\?class=c") as (wait_until_held, release):
            tab.choose("Add photos of brick", photos["brick"][:1])
            wait_until_held()
            tab.choose("Add photos of brick", photos["brick"][1:3])
            thumbs = tab.card("brick").locator(".thumbs li")
            thumbs.nth(2).wait_for()
            release()
            assert thumbs.count() == 3


def test_an_older_list_of_photos_does_not_bring_back_findings(browser, address, taught):
    workspace, copy = taught
    with page_of(browser, address, **DESKTOP) as tab, held(tab, r"/photos\?offset=0") as (wait_until_held, release):
        tab.open(f"#w={workspace}&v=teach")
        wait_until_held()
        tab.page.evaluate(f"import('/static/workspace.js').then(({{ removePhotos }}) => removePhotos(['{copy}']))")
        tab.page.get_by_role("heading", name="How good is it?").wait_for()
        release()
        assert tab.page.get_by_text("Nearly the same photo").count() == 0


def test_an_answer_that_comes_while_the_list_is_read_stays(browser, address, taught, photos):
    first, second = photos["stars"][4:6]
    with page_of(browser, address, **DESKTOP) as tab:
        tab.open(f"#w={taught[0]}&v=ask")
        tab.ask([first])
        with held(tab, r"/photos\?answered=true") as (wait_until_held, release):
            tab.reload()
            wait_until_held()
            tab.ask([second])
            release()
            tab.answers.filter(has_text=first.name).wait_for()
            assert tab.answers.filter(has_text=second.name).count() == 1
