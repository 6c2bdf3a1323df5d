"""The page of `patchvote serve`, used as a person would, in a browser: the whole story, on a desktop and on a phone."""

from __future__ import annotations

import csv
import zipfile

import pytest

pytest.importorskip("fastapi")

from helpers.browser import DESKTOP, PHONE, page_of


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

        # Look at the evidence, and move the slider: the photo changes.
        tab.look(tab.answers.first)
        slider, stage = tab.page.get_by_label("Evidence", exact=True), tab.page.locator(".stage")
        slider.fill("100")
        strong = stage.screenshot()
        slider.fill("0")
        assert stage.screenshot() != strong
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
