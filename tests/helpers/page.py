"""What a user does on the page of `patchvote serve`, and what a test looks at there."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .browser import Browser

if TYPE_CHECKING:
    from playwright.sync_api import Page

DESKTOP = {"viewport": {"width": 1280, "height": 860}}
PHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}
_LEARNING = 120_000  # milliseconds; seconds are usual, a busy machine needs more


class Tab:
    """The page of a server in a window of its own."""

    def __init__(self, page: Page, address: str) -> None:
        self.page, self.address = page, address

    def open(self, hash_: str = "") -> Tab:
        """Open the page, and wait until it is ready."""
        self.page.goto(f"{self.address}/{hash_}")
        return self.wait_until_ready()

    def reload(self) -> None:
        """Load the page again."""
        self.page.reload()
        self.wait_until_ready()

    def wait_until_ready(self) -> Tab:
        self.page.locator("body.ready").wait_for()
        return self

    @property
    def workspace(self) -> str:
        """Id of the workspace, which is in the address."""
        hash_: str = self.page.evaluate("location.hash")
        return hash_.split("w=")[1][:32]

    def button(self, name: str, **more: Any) -> Any:
        return self.page.get_by_role("button", name=name, **more)

    def show(self, view: str) -> None:
        """Go to Teach or Ask."""
        self.page.get_by_role("link", name=view, exact=True).click()

    def choose(self, button: str, files: Sequence[Path] | Path) -> None:
        """Press a button that opens the dialog for files, and choose some."""
        with self.page.expect_file_chooser() as chooser:
            self.button(button).click()
        chooser.value.set_files(files)

    def add_class(self, name: str) -> None:
        self.page.get_by_label("Name of a new class").fill(name)
        self.button("Add class").click()

    def teach(self, name: str, photos: Sequence[Path]) -> None:
        """Make a class, and add photos to it."""
        self.add_class(name)
        self.choose(f"Add photos of {name}", photos)
        self.card(name).get_by_text(f"{len(photos)} photos").wait_for()

    def card(self, name: str) -> Any:
        """Card of a class."""
        return self.page.locator(".class-card").filter(has=self.page.get_by_role("heading", name=name, exact=True))

    def learn(self) -> None:
        """Press Learn, and wait until it has learned."""
        self.button("Learn", exact=True).click()
        self.button("Ask it").wait_for(timeout=_LEARNING)

    def ask(self, photos: Sequence[Path]) -> None:
        """Ask about photos, and wait for all answers.

        Cards are found by the names of their photos: a photo that was asked about before gets no second card, and the
        cards of earlier answers may still be on their way.
        """
        self.choose("Choose photos", photos)
        for name, many in Counter(photo.name for photo in photos).items():
            self.answers.filter(has=self.page.get_by_text(name, exact=True)).nth(many - 1).wait_for()
        self.page.locator(".answer.waiting").first.wait_for(state="detached")

    @property
    def answers(self) -> Any:
        """Cards of the answers."""
        return self.page.locator(".answer")

    def labels(self) -> list[str]:
        """What the cards say, in their order."""
        return self.page.locator(".answer .label").all_inner_texts()

    def shown(self) -> list[str]:
        """Ids of the photos of the cards, in their order."""
        ids: list[str] = self.answers.evaluate_all("cards => cards.map((card) => card.dataset.key)")
        return ids

    def number_of(self, photo: Path) -> int:
        """Place of the answer to a photo among the cards."""
        return next(number for number, card in enumerate(self.answers.all()) if photo.name in card.inner_text())

    def look(self, number: int) -> Any:
        """Open an answer, and wait for its evidence; returns the dialog."""
        self.answers.nth(number).locator(".picture").click()
        self.page.locator("canvas.lit").wait_for()
        return self.page.get_by_role("dialog")

    def close_dialog(self) -> None:
        self.page.keyboard.press("Escape")
        self.page.get_by_role("dialog").wait_for(state="detached")

    def download(self, element: Any) -> Path:
        """Click on something that downloads a file; return where it is."""
        with self.page.expect_download() as download:
            element.click()
        return Path(download.value.path())

    def faults(self) -> list[str]:
        """Serious faults of accessibility that axe-core finds in the page as it is."""
        from axe_playwright_python.sync_playwright import Axe

        found = Axe().run(self.page).response["violations"]
        return [
            f"{fault['id']}: {node['html'][:160]}"
            for fault in found
            if fault["impact"] in ("serious", "critical")
            for node in fault["nodes"]
        ]


@contextlib.contextmanager
def page_of(browser: Browser, address: str, **settings: Any) -> Iterator[Tab]:
    """Open the page of a server in a window of its own; at the end, check that it was quiet and asked nobody else."""
    with browser.window(**({"reduced_motion": "reduce"} | settings)) as window:
        yield Tab(window.page, address)
        seen = window.seen()
        assert not seen.messages
        assert {"/".join(request.split("/")[:3]) for request in seen.requests if "://" in request} <= {address}
