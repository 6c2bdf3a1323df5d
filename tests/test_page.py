"""The page of `patchvote serve` in a browser: a user's story, evidence, findings, keyboard, names, token."""

from __future__ import annotations

import base64
import csv
import io
import json
import re
import shutil
import zipfile

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("fastapi")

from helpers.browser import DESKTOP, PHONE, Tab, page_of
from helpers.waiting import wait_for
from helpers.web import add, learned, live, reached
from helpers.web import taught as teach
from patchvote import ImageClassifier

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


def lead(photo):
    """By how much the answer leads; photos that are none of the classes come first of all."""
    answer = photo["answer"]
    return -1 if answer["rejected"] else answer["probability"] - answer["runner_up_probability"]


@pytest.mark.parametrize("window", [DESKTOP, PHONE | {"color_scheme": "dark"}], ids=["desktop", "phone in the dark"])
def test_teach_learn_ask_correct_add_download_reload_open_and_ask_again(browser, address, demo_photos, window):
    train, test = demo_photos / "train", demo_photos / "test"
    taught = ("brick", "coins", "grass")

    def is_sound(tab):
        fits = tab.page.evaluate("document.documentElement.scrollWidth") <= window["viewport"]["width"]
        return fits and tab.faults() == []

    with page_of(browser, address, **window) as tab:
        # An empty page says what to do first, and allows nothing that cannot work yet.
        tab.open()
        assert tab.page.locator("[aria-current=step]").inner_text() == "Name two or more classes"
        assert is_sound(tab)

        # Teach three classes.
        for name in taught:
            tab.add_class(name)
            tab.choose(f"Add photos of {name}", sorted((train / name).iterdir()))
            tab.card(name).get_by_text("6 photos").wait_for()
        assert tab.page.locator("[aria-current=step]").inner_text() == "Press Learn"
        tab.learn()
        tab.page.get_by_text("of 18 photos rightly").wait_for()
        assert is_sound(tab)

        # Ask about new photos: answers come in the order of the photos.
        tab.button("Ask it").click()
        new = [photo for name in (*taught, "stars") for photo in sorted((test / name).iterdir())[:2]]
        tab.ask(new)
        labels = tab.labels()
        assert sum(label == photo.parent.name for label, photo in zip(labels[:6], new[:6], strict=True)) >= 5
        assert (len(labels), "stars" in labels) == (8, False)
        assert is_sound(tab)

        # The unsure ones first, or those of one class alone.
        kept = tab.page.request.get(f"{address}/v1/workspaces/{tab.workspace}/photos?answered=true").json()["photos"]
        tab.page.get_by_label("Unsure first").check()
        assert tab.shown() == [photo["id"] for photo in sorted(kept, key=lead)]
        tab.page.get_by_label("Answers to show").select_option("brick")
        assert set(tab.labels()) == {"brick"}
        tab.page.get_by_label("Answers to show").select_option("")
        tab.page.get_by_label("As they came").check()
        assert tab.shown() == [photo["id"] for photo in kept]

        # Look at the evidence.
        tab.look(tab.answers.first)
        assert is_sound(tab)
        tab.close_dialog()

        # Correct two answers with a click: they become training photos of a new class.
        for number in (6, 7):
            card = tab.answers.nth(number)
            card.get_by_role("button", name="Other", exact=True).click()
            card.get_by_label("New class").fill("stars") if number == 6 else None
            card.get_by_role("button", name="Add" if number == 6 else "stars", exact=True).click()
            card.get_by_text("You said so").wait_for()
        assert tab.labels()[6:] == ["stars", "stars"]

        # The table and the folders have the corrections.
        with tab.download(tab.button("Table (CSV)")).open(encoding="utf-8-sig") as file:
            assert [row["corrected"] for row in csv.DictReader(file)] == [""] * 6 + ["stars"] * 2
        with zipfile.ZipFile(tab.download(tab.button("Folders (ZIP)"))) as file:
            assert sum(name.split("/")[-2] == "stars" for name in file.namelist() if not name.endswith("/")) == 2

        # Add more photos to the new class, and learn again: it knows it, and old answers are renewed.
        tab.button("Learn again").click()
        tab.choose("Add photos of stars", sorted((train / "stars").iterdir())[:5])
        tab.card("stars").get_by_text("7 photos, 7 new").wait_for()
        tab.learn()
        tab.button("Ask it").click()
        more = sorted((test / "stars").iterdir())[2:5]
        tab.ask(more)
        assert tab.labels()[-3:].count("stars") >= 2
        tab.page.get_by_text("of an earlier model").first.wait_for(state="detached")

        # A reload loses nothing.
        before, workspace = tab.labels(), tab.workspace
        tab.reload()
        tab.answers.nth(len(before) - 1).wait_for()
        assert (tab.labels(), tab.workspace) == (before, workspace)

        # Download the model; in a new workspace, open it, and ask again.
        tab.show("Teach")
        model = tab.download(tab.page.get_by_role("link", name="Download the model"))
        saved = model.with_name("again.patchvote")
        model.rename(saved)
        tab.button("Start anew").click()
        tab.page.get_by_role("dialog").get_by_role("button", name="Start anew").click()
        tab.page.locator("[aria-current=step]").wait_for()
        tab.wait_until_ready()
        tab.choose("Open a model", saved)
        tab.page.get_by_text("It knows 4 classes").wait_for()
        tab.show("Ask")
        tab.ask(new[:6] + more)
        assert tab.workspace != workspace
        assert sum(label == photo.parent.name for label, photo in zip(tab.labels(), new[:6] + more, strict=True)) >= 7

        # Remove everything: the page is empty, and says nothing of what is gone.
        tab.show("Teach")
        tab.button("Remove everything").click()
        tab.page.get_by_role("dialog").get_by_role("button", name="Remove everything").click()
        tab.button("Remove everything").wait_for(state="hidden")
        tab.page.locator("[aria-current=step]").wait_for()
        tab.wait_until_ready()
        assert tab.answers.count() == 0
        assert tab.page.get_by_text("That did not work").count() == 0


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


def test_evidence_equals_that_of_explain_and_parts_are_reached_by_pointer_and_keyboard(
    browser, address, taught, demo_photos, tmp_path
):
    model, collage = tmp_path / "m.patchvote", demo_photos / "collage.png"
    model.write_bytes(reached(address).get(f"/v1/models/{taught}/file").content)
    evidence = ImageClassifier.load(model).explain(collage)
    with page_of(browser, address, **DESKTOP) as tab:
        tab.open(f"#w={taught}&v=ask")
        tab.ask([collage])
        dialog = tab.look(tab.answers.filter(has_text=collage.name))
        for label in ("gravel", "stars"):
            dialog.get_by_role("radio", name=label).check()
            tab.page.locator(f"canvas.lit[data-label={label}]").wait_for()
            votes = evidence.contrast(label, 64, 64)
            brightness = np.sqrt(np.clip(votes / votes.max(), 0, 1))  # as docs/serve.md defines it
            drawn = np.array(tab.page.evaluate(MIDDLES))  # opacity of the middle of each cell, of 255
            assert np.abs(drawn - 255 * brightness).max() < 3

        # The slider fades the map, and the part under the pointer tells its votes.
        tab.page.get_by_label("Evidence", exact=True).fill("0")
        assert tab.page.locator("canvas.lit").evaluate("element => getComputedStyle(element).opacity") == "0"
        box = tab.page.locator(".stage").bounding_box()
        tab.page.mouse.move(box["x"] + 0.25 * box["width"], box["y"] + 0.25 * box["height"])
        told = [line.split("\n") for line in tab.page.locator(".part-votes li").all_inner_texts()]
        votes = {name: float(vote.replace("\N{MINUS SIGN}", "-")) for name, vote in told}
        expected = np.array([votes[name] for name in evidence.classes])
        left, top, right, bottom = evidence.boxes.T
        under = (left <= 0.25) & (right >= 0.25) & (top <= 0.25) & (bottom >= 0.25)
        assert np.abs(evidence.votes[under] - expected).max(axis=1).min() < 0.011
        tab.page.mouse.move(0, 0)
        assert not tab.page.locator(".frame").is_visible()

        # The arrow keys go from the strongest part to the others.
        walker = tab.page.get_by_label("Parts", exact=True)
        walker.focus()
        assert re.match(rf"Part 1 of {len(evidence.votes)}, [a-z ]+: ", walker.get_attribute("aria-valuetext"))
        assert tab.page.locator(".frame").is_visible()
        walker.press("ArrowRight")
        assert walker.get_attribute("aria-valuetext").startswith("Part 2 of")

        # This model remembers parts of training photos.
        pairs = dialog.locator(".matches li")
        assert pairs.count() == min(6, len(evidence.matches))
        painted = "element => element.getContext('2d').getImageData(96, 96, 1, 1).data[3]"
        wait_for(lambda: [one.evaluate(painted) for one in pairs.first.locator("canvas").all()] == [255, 255])
        assert tab.faults() == []


def test_findings_of_learning_are_shown_and_acted_on_with_a_click(browser, address, taught):
    with page_of(browser, address, **DESKTOP) as tab:
        tab.open(f"#w={taught}&v=teach")
        report = tab.page.locator(".report")
        report.get_by_role("heading", name="How good is it?").wait_for()
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

        # The copy goes, and a photo worth a label gets one.
        report.get_by_role("button", name="Keep the first, remove 1 other").first.click()
        tab.card("brick").get_by_text("6 photos").wait_for()
        suggested = report.locator(".tile").filter(has=tab.page.get_by_label("New class"))
        count = suggested.count()
        suggested.first.locator(".chip").first.click()
        suggested.nth(count - 1).wait_for(state="detached")
        tab.button("Undo").last.click()
        suggested.nth(count - 1).wait_for()


def test_photos_are_dropped_pasted_chosen_as_a_folder_and_taken_with_the_camera(
    browser, address, demo_photos, tmp_path
):
    for name in ("brick", "grass"):
        (tmp_path / "sorted" / name).mkdir(parents=True)
        for photo in sorted((demo_photos / "train" / name).iterdir())[:3]:
            shutil.copy(photo, tmp_path / "sorted" / name)
    (tmp_path / "sorted" / "grass" / "notes.txt").write_text("no photo")
    (tmp_path / "empty.jpg").write_bytes(b"")
    coins = sorted((demo_photos / "test" / "coins").iterdir())
    photos = [base64.b64encode(path.read_bytes()).decode() for path in coins]
    with page_of(browser, address, **DESKTOP, permissions=["camera"]) as tab:
        tab.open()
        tab.choose("Choose the folder", tmp_path / "sorted")
        tab.card("brick").get_by_text("3 photos").wait_for()
        tab.card("grass").get_by_text("3 photos").wait_for()
        tab.page.get_by_text("notes.txt: is not a photo").wait_for()

        # Files that are not taken are named with their reasons.
        tab.choose("Add photos of brick", [tmp_path / "empty.jpg"])
        tab.page.get_by_text("empty.jpg: the file is empty.").first.wait_for()
        tab.choose("Add photos of brick", tmp_path / "sorted" / "grass" / "00.png")
        tab.page.get_by_text("1 photo was there already, in grass.").first.wait_for()

        tab.page.locator(".class-card.fresh").evaluate(DROP, ["drop", "dataTransfer", photos[:2]])
        tab.card("Class 3").get_by_text("2 photos").wait_for()
        tab.page.get_by_label("Name of the class Class 3").fill("coins")
        tab.page.keyboard.press("Enter")
        tab.card("coins").get_by_role("button", name="Add photos of coins").focus()
        tab.page.evaluate(f"([...words]) => ({DROP})(document, words)", ["paste", "clipboardData", photos[2:3]])
        tab.card("coins").get_by_text("3 photos").wait_for()
        tab.page.locator(".lead").first.evaluate(DROP, ["drop", "dataTransfer", photos[3:4]])
        tab.card("No class yet").get_by_text("1 photo").wait_for()

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
    state = reached(address).get(f"/v1/workspaces/{workspace}").json()
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
        assert order[:4] == ["Skip to the content", "Teach", "Ask", "Name of a new class"]
        tab.page.get_by_label("Name of a new class").focus()
        tab.page.keyboard.type("leaf")
        press("Enter")
        tab.card("leaf").wait_for()
        tab.page.locator("#announcements").get_by_text("The class leaf was made.").wait_for(state="attached")

        # Skipping to the content does not lose the workspace, which is in the address.
        workspace = tab.workspace
        tab.page.locator(".skip").focus()
        press("Enter")
        assert (tab.page.evaluate("document.activeElement.id"), tab.workspace) == ("main", workspace)

        # A dialog keeps the focus, Escape closes it, and the focus is where it was.
        tab.open(f"#w={taught}&v=teach")
        opener = tab.card("brick").get_by_role("button", name="Look at").first
        opener.focus()
        press("Enter")
        tab.page.get_by_role("dialog").get_by_role("radio").first.wait_for()
        for _ in range(12):
            press("Tab")
            assert tab.page.evaluate("!document.activeElement.closest('body > :not(dialog)')")
        tab.close_dialog()
        assert opener.evaluate("element => element === document.activeElement")


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


def test_a_server_with_a_token_asks_for_it_and_with_models_answers_at_once(browser, flowers, tmp_path):
    with (
        live(tmp_path, flowers / "m.patchvote", flowers / "n.patchvote", PATCHVOTE_TOKEN=TOKEN) as server,
        browser.window(**DESKTOP) as window,
    ):
        tab = Tab(window.page, server.address)
        tab.page.goto(server.address)
        for token, words in (("a wrong token of the tests", "token is wrong"), (TOKEN, "tell apart iris and rose")):
            tab.page.get_by_label("Token", exact=True).fill(token)
            tab.button("Enter").click()
            tab.page.get_by_text(words).wait_for()
        tab.page.get_by_label("Model to ask").select_option("n")
        tab.choose("Choose photos", flowers / "photos" / "rose" / "0.jpg")
        tab.page.locator(".answer .label").get_by_text("rose").wait_for()
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
