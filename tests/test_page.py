"""Pieces of the page of `patchvote serve`, in a browser: evidence, ways to pick photos, findings, keyboard, token."""

from __future__ import annotations

import base64
import io
import json
import re
import shutil

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("fastapi")

from helpers.page import DESKTOP, PHONE, page_of
from helpers.waiting import wait_for
from helpers.web import add, files, learned, live, reached
from helpers.web import taught as teach
from patchvote import ImageClassifier
from patchvote.models.report.picture import lit

CLASSES = ("brick", "gravel", "stars", "tissue")
HOSTILE = "<img src=x onerror=alert(1)>"
TOKEN = "a token of the tests"


@pytest.fixture(scope="module")
def taught(address, demo_photos):
    """Id of a workspace with a model that remembers parts; one photo has a wrong class, one is there twice."""
    home, copy = reached(address), io.BytesIO()
    photos = {name: contents(demo_photos / "train" / name) for name in CLASSES}
    Image.open(io.BytesIO(photos["brick"][0][1])).convert("RGB").save(copy, "JPEG", quality=95)
    photos["brick"].append(("copy.jpg", copy.getvalue()))
    photos["stars"].append(("wrong.png", contents(demo_photos / "test" / "tissue")[0][1]))
    workspace = teach(home, photos)
    add(home, workspace, [(f"{name}.png", contents(demo_photos / "test" / name)[1][1]) for name in CLASSES])
    assert learned(home, workspace, voter="nbnn", suggest=2)["status"] == "done"
    return workspace


def contents(folder):
    """Names and contents of the photos of a folder."""
    return [(path.name, path.read_bytes()) for path in sorted(folder.iterdir())]


def model_of(address, workspace):
    """File of the model of a workspace."""
    return reached(address).get(f"/v1/models/{workspace}/file").content


def explained(address, workspace, photo):
    """What the server tells of the evidence of a photo."""
    sent = files([(photo.name, photo.read_bytes())])
    return reached(address).post(f"/v1/explain?model={workspace}", files=sent).json()


def state_of(address, workspace):
    """State of a workspace."""
    return reached(address).get(f"/v1/workspaces/{workspace}").json()


@pytest.fixture(scope="module")
def collage(demo_photos):
    return demo_photos / "collage.png"


def test_a_map_on_the_page_equals_the_array_of_explain_pixel_by_pixel(browser, address, taught, collage, tmp_path):
    model = tmp_path / "m.patchvote"
    model.write_bytes(model_of(address, taught))
    evidence = ImageClassifier.load(model).explain(collage)
    with page_of(browser, address, **DESKTOP) as tab:
        tab.open(f"#w={taught}&v=ask")
        tab.ask([collage])
        dialog = tab.look(tab.number_of(collage))
        tab.page.get_by_label("Evidence", exact=True).fill("100")
        photo = Image.open(collage).convert("RGB")
        for label in ("gravel", "stars"):
            dialog.get_by_role("radio", name=label).check()
            tab.page.locator(f"canvas.lit[data-label={label}]").wait_for()
            drawn = np.array(tab.page.evaluate(MIDDLES))  # opacity of the middle of each cell, of 255
            assert np.abs(drawn - 255 * brightness_of(evidence, label)).max() < 3
            shown = Image.open(io.BytesIO(tab.page.locator(".stage").screenshot())).convert("RGB")
            apart = {}  # mean difference to what `patchvote explain` draws for a class
            for name in CLASSES:
                drawn_by_explain = lit(photo.resize(shown.size), brightness_of(evidence, name))
                apart[name] = np.abs(np.asarray(shown, float) - np.asarray(drawn_by_explain, float)).mean()
            assert apart[label] < 5  # of 255: browsers and Pillow enlarge and turn grey with other weights
            assert min(apart[name] for name in CLASSES if name != label) > 2 * apart[label]


MIDDLES = """() => {
  const canvas = document.querySelector("canvas.lit");
  const { width, height } = canvas;
  const copy = new OffscreenCanvas(width, height).getContext("2d", { willReadFrequently: true });
  copy.drawImage(canvas, 0, 0);
  const { data } = copy.getImageData(0, 0, width, height);
  const step = width / 64;
  const middle = (index) => index * step + (step - 1) / 2;
  return Array.from({ length: height / step }, (_, row) =>
    Array.from({ length: 64 }, (_, column) => data[4 * (middle(row) * width + middle(column)) + 3]));
}"""


def brightness_of(evidence, label):
    """Brightness of a map, as docs/serve.md defines it."""
    votes = evidence.contrast(label, 64, 64)
    return np.sqrt(np.clip(votes / votes.max(), 0, 1))


def test_a_part_tells_its_votes_under_the_pointer_and_on_the_keyboard_and_matching_parts_stand_beside(
    browser, address, taught, collage
):
    told = explained(address, taught, collage)
    with page_of(browser, address, **DESKTOP) as tab:
        tab.open(f"#w={taught}&v=ask")
        tab.ask([collage])
        dialog = tab.look(tab.number_of(collage))
        box = tab.page.locator(".stage").bounding_box()
        tab.page.mouse.move(box["x"] + 0.25 * box["width"], box["y"] + 0.25 * box["height"])
        under = tab.page.locator(".part-votes li").all_inner_texts()
        assert tab.page.locator(".frame").is_visible()
        shown = {
            name: float(vote.replace("\N{MINUS SIGN}", "-")) for name, vote in (text.split("\n") for text in under)
        }
        assert any(
            [round(vote, 2) for vote in part["votes"]]
            == pytest.approx([shown[name] for name in told["classes"]], abs=0.011)
            for part in told["parts"]
            if part["box"][0] <= 0.25 <= part["box"][2] and part["box"][1] <= 0.25 <= part["box"][3]
        )
        tab.page.mouse.move(0, 0)
        assert not tab.page.locator(".frame").is_visible()

        # The strongest part first, then one after the other, with the arrow keys.
        walker = tab.page.get_by_label("Parts", exact=True)
        walker.focus()
        first = walker.get_attribute("aria-valuetext")
        assert re.match(rf"Part 1 of {len(told['parts'])}, [a-z ]+: ", first)
        assert tab.page.locator(".frame").is_visible()
        walker.press("ArrowRight")
        assert walker.get_attribute("aria-valuetext").startswith("Part 2 of")

        # This model remembers parts of training photos.
        pairs = dialog.locator(".matches li")
        assert pairs.count() == min(6, len(told["matches"]))
        pairs.first.get_by_role("button").focus()
        assert tab.page.locator(".frame").is_visible()
        painted = "element => element.getContext('2d').getImageData(96, 96, 1, 1).data[3]"
        wait_for(lambda: [one.evaluate(painted) for one in pairs.first.locator("canvas").all()] == [255, 255])
        assert tab.faults() == []


def test_findings_of_learning_are_shown_and_acted_on_with_a_click(browser, address, taught):
    with page_of(browser, address, **DESKTOP) as tab:
        tab.open(f"#w={taught}&v=teach")
        report = tab.page.locator(".report")
        report.get_by_role("heading", name="How good is it?").wait_for()
        assert "different photos per class" in report.inner_text()
        assert tab.faults() == []

        # The photo with the wrong class gets the right one, and the finding is settled.
        suspect = report.locator(".tile").filter(has_text="looks like tissue")
        suspect.get_by_role("button", name="It is tissue").click()
        suspect.wait_for(state="detached")
        tab.card("tissue").get_by_text("7 photos").wait_for()
        assert tab.button("Learn", exact=True).is_enabled()

        # A class that was given in the dialog can be taken back there.
        tab.card("tissue").get_by_role("button", name="wrong.png").click()
        dialog = tab.page.get_by_role("dialog")
        dialog.get_by_role("button", name="gravel", exact=True).click()
        dialog.get_by_role("heading", name="You said: gravel").wait_for()
        dialog.get_by_role("button", name="Undo").last.click()
        dialog.get_by_role("heading", name="You said: tissue").wait_for()
        tab.close_dialog()

        # The copy goes.
        before = state_of(address, taught)["photos"]
        report.get_by_role("button", name="Keep the first, remove 1 other").first.click()
        tab.card("brick").get_by_text("6 photos").wait_for()
        assert state_of(address, taught)["photos"] == before - 1

        # A photo worth a label gets one.
        suggested = report.locator(".tile").filter(has=tab.page.get_by_label("New class"))
        count = suggested.count()
        assert count in (1, 2)
        suggested.first.locator(".chip").first.click()
        tab.page.get_by_text("it is a training photo now").last.wait_for()  # an earlier notice may still be shown
        suggested.nth(count - 1).wait_for(state="detached")
        tab.button("Undo").last.click()
        suggested.nth(count - 1).wait_for()


def test_files_that_are_not_taken_are_named_with_their_own_reasons(browser, address, demo_photos, tmp_path):
    (tmp_path / "empty.jpg").write_bytes(b"")
    (tmp_path / "text.jpg").write_text("no photo")
    photos = sorted((demo_photos / "train" / "brick").iterdir())
    with page_of(browser, address, **DESKTOP) as tab:
        tab.open()
        tab.teach("brick", photos[:2])
        tab.choose("Add photos of brick", [tmp_path / "empty.jpg", tmp_path / "text.jpg"])
        notice = tab.page.get_by_text("empty.jpg: the file is empty. text.jpg: is not an image that can be read")
        notice.first.wait_for()
        tab.add_class("grass")
        tab.choose("Add photos of grass", photos[:1])
        tab.page.get_by_text("1 photo was there already, in brick.").first.wait_for()


def test_photos_are_dropped_pasted_chosen_as_a_folder_and_taken_with_the_camera(
    browser, address, demo_photos, tmp_path
):
    for name in ("brick", "grass"):
        (tmp_path / "sorted" / name).mkdir(parents=True)
        for photo in sorted((demo_photos / "train" / name).iterdir())[:3]:
            shutil.copy(photo, tmp_path / "sorted" / name)
    (tmp_path / "sorted" / "grass" / "notes.txt").write_text("no photo")
    coins = sorted((demo_photos / "test" / "coins").iterdir())
    photos = [base64.b64encode(path.read_bytes()).decode() for path in coins]
    with page_of(browser, address, **DESKTOP, permissions=["camera"]) as tab:
        tab.open()
        tab.choose("Choose the folder", tmp_path / "sorted")
        tab.card("brick").get_by_text("3 photos").wait_for()
        tab.card("grass").get_by_text("3 photos").wait_for()
        tab.page.get_by_text("notes.txt: is not a photo").wait_for()

        tab.page.locator(".class-card.fresh").evaluate(DROP, ["drop", "dataTransfer", photos[:2]])
        tab.card("Class 3").get_by_text("2 photos").wait_for()
        tab.page.get_by_label("Name of the class Class 3").fill("coins")
        tab.page.keyboard.press("Enter")
        tab.card("coins").get_by_role("button", name="Add photos of coins").focus()
        tab.page.evaluate(f"([...words]) => ({DROP})(document, words)", ["paste", "clipboardData", photos[2:3]])
        tab.card("coins").get_by_text("3 photos").wait_for()
        tab.page.locator(".lead").first.evaluate(DROP, ["drop", "dataTransfer", photos[3:4]])
        tab.card("No class yet").get_by_text("1 photo").wait_for()
        tab.page.evaluate(
            f"([...words]) => ({DROP})(document.querySelector('#teach'), words)", ["drop", "dataTransfer", photos[3:4]]
        )
        tab.page.get_by_text("1 photo was there already").wait_for()

        tab.button("Use the camera for coins").click()
        tab.button("Take a photo").click()
        tab.page.get_by_role("dialog").get_by_text("1 photo taken").wait_for()
        assert tab.faults() == []
        tab.button("Done").click()
        tab.card("coins").get_by_text("4 photos").wait_for()


DROP = """(target, [type, name, photos]) => {
  const transfer = new DataTransfer();
  photos.forEach((photo, index) => {
    const bytes = Uint8Array.from(atob(photo), (letter) => letter.charCodeAt(0));
    transfer.items.add(new File([bytes], `${type} ${index}.png`, { type: "image/png" }));
  });
  const event = new Event(type, { bubbles: true, cancelable: true });
  Object.defineProperty(event, name, { value: transfer });
  target.dispatchEvent(event);
}"""


def test_learning_is_followed_after_a_reload_and_cancelled(browser, address, demo_photos):
    workspace = teach(reached(address), {name: contents(demo_photos / "test" / name) for name in CLASSES})
    with page_of(browser, address, **DESKTOP) as tab:
        tab.open(f"#w={workspace}")
        tab.button("Learn", exact=True).click()
        tab.button("Cancel").wait_for()
        tab.reload()
        tab.page.get_by_text(re.compile(r"^Looking at the photos: \d+ of 80$")).wait_for(timeout=60_000)
        tab.button("Cancel").click()
        tab.page.get_by_text("Cancelled.").wait_for()
        tab.button("Learn", exact=True).wait_for()
    state = state_of(address, workspace)
    assert (state["model"], state["job"], state["photos"]) == (None, None, 80)


def test_all_of_it_works_without_a_pointer(browser, address, taught):
    with page_of(browser, address, **DESKTOP) as tab:
        tab.open()
        press = tab.page.keyboard.press
        focused = "document.activeElement.textContent || document.activeElement.getAttribute('aria-label')"
        order = []
        for _ in range(7):
            press("Tab")
            order.append(tab.page.evaluate(focused).strip())
        assert order[:3] == ["Skip to the content", "Teach", "Ask"]
        assert order[3:] == ["Name of a new class", "Add class", "Choose the folder", "Open a model"]

        tab.page.get_by_label("Name of a new class").focus()
        tab.page.keyboard.type("leaf")
        press("Enter")
        tab.card("leaf").wait_for()
        told = tab.page.locator("#announcements").get_by_text("The class leaf was made. Add photos to it.", exact=True)
        told.wait_for(state="attached")

        # Skipping to the content does not lose the workspace, which is in the address.
        workspace = tab.workspace
        tab.page.locator(".skip").focus()
        press("Enter")
        assert tab.page.evaluate("document.activeElement.id") == "main"
        assert tab.workspace == workspace

        # A dialog keeps the focus, Escape closes it, and the focus is where it was.
        tab.open(f"#w={taught}&v=teach")
        opener = tab.card("brick").get_by_role("button", name="Look at").first
        opener.focus()
        press("Enter")
        tab.page.get_by_role("dialog").get_by_role("radio").first.wait_for()
        for _ in range(12):
            press("Tab")
            assert tab.page.evaluate(
                "document.activeElement === document.body || !!document.activeElement.closest('dialog')"
            )
        tab.close_dialog()
        assert opener.evaluate("element => element === document.activeElement")


@pytest.mark.parametrize(("window", "scheme"), [(DESKTOP, "light"), (PHONE, "dark")], ids=["desktop", "phone"])
def test_no_serious_fault_of_accessibility_in_light_and_dark(browser, address, taught, demo_photos, window, scheme):
    with page_of(browser, address, **window, color_scheme=scheme) as tab:
        tab.open(f"#w={taught}&v=teach")
        tab.page.get_by_role("heading", name="How good is it?").wait_for()
        assert tab.faults() == []
        tab.show("Ask")
        tab.ask([sorted((demo_photos / "test" / "grass").iterdir())[0]])
        assert tab.faults() == []
        tab.look(0)
        assert tab.faults() == []
        assert tab.page.evaluate("document.documentElement.scrollWidth") <= window["viewport"]["width"]


def test_names_are_text_whatever_they_hold(browser, address, demo_photos):
    with page_of(browser, address, **PHONE) as tab:
        tab.open()
        tab.add_class(HOSTILE)
        tab.card(HOSTILE).wait_for()
        assert tab.page.locator("main img").count() == 0
        add(reached(address), tab.workspace, [(f"{HOSTILE}.png", (demo_photos / "collage.png").read_bytes())])
        tab.reload()
        tab.card("No class yet").get_by_role("button", name=HOSTILE).click()
        assert tab.page.get_by_role("dialog").get_by_role("heading", name=HOSTILE).is_visible()
        assert tab.page.evaluate("document.documentElement.scrollWidth") == 390


def test_a_server_with_a_token_asks_for_it_and_with_a_model_answers_at_once(
    browser, address, taught, collage, tmp_path
):
    model = tmp_path / "surfaces.patchvote"
    model.write_bytes(model_of(address, taught))
    shutil.copy(model, tmp_path / "others.patchvote")
    with (
        live(tmp_path / "data", model, tmp_path / "others.patchvote", PATCHVOTE_TOKEN=TOKEN) as server,
        browser.window(**DESKTOP) as window,
    ):
        page = window.page
        page.goto(server.address)
        page.get_by_label("Token", exact=True).fill("a wrong token of the tests")
        page.get_by_role("button", name="Enter").click()
        page.get_by_text("The token is wrong.").wait_for()
        page.get_by_label("Token", exact=True).fill(TOKEN)
        page.get_by_role("button", name="Enter").click()
        page.get_by_text("It can tell apart brick, gravel, stars and tissue.").wait_for()
        page.get_by_label("Model to ask").select_option("others")
        with page.expect_file_chooser() as chooser:
            page.get_by_role("button", name="Choose photos").click()
        chooser.value.set_files(collage)
        page.locator(".answer .label").wait_for()
        assert not page.get_by_label("Model to ask").is_visible()
        assert json.dumps(window.seen().requests).count(TOKEN) == 0


def test_an_older_list_of_photos_does_not_replace_a_newer_one(browser, address, demo_photos):
    photos, held = sorted((demo_photos / "train" / "brick").iterdir()), []
    with page_of(browser, address, **DESKTOP) as tab:
        tab.open()
        tab.add_class("brick")
        tab.page.route(re.compile(r"/photos\?class=c"), lambda route: held.append((route, route.fetch())), times=1)
        tab.choose("Add photos of brick", photos[:1])
        wait_for(lambda: tab.page.evaluate("true") and held)
        tab.choose("Add photos of brick", photos[1:3])
        thumbs = tab.card("brick").locator(".thumbs li")
        thumbs.nth(2).wait_for()
        route, answer = held.pop()
        with tab.page.expect_event("requestfinished", lambda request: request == route.request):
            route.fulfill(response=answer)
        tab.page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        assert thumbs.count() == 3
