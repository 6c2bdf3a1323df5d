"""Playwright with the Chromium of the system: any page in it, and what a user does on the page of `patchvote serve`."""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Page

DESKTOP = {"viewport": {"width": 1280, "height": 860}}
PHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}
_PATIENCE = 90_000  # milliseconds that a busy machine may take for one step
_FLAGS = "--no-sandbox --disable-gpu --disable-quic --disable-background-networking --disable-component-update"
_FLAGS += " --disable-sync --use-fake-device-for-media-stream --use-fake-ui-for-media-stream"  # a camera for tests


@dataclasses.dataclass(frozen=True)
class Seen:
    """What happened since a page was opened: console messages and errors, requested addresses, and its document."""

    messages: list[str]
    requests: list[str]
    dom: str


class Browser:
    """One tab of a Chromium with an empty profile, made by `start_browser`."""

    def __init__(self, page: Page) -> None:
        self.page = page
        page.set_default_timeout(_PATIENCE)
        self._messages: list[str] = []
        self._requests: list[str] = []
        page.on("console", lambda message: self._messages.append(message.text))
        page.on("pageerror", lambda error: self._messages.append(str(error)))
        page.on("request", lambda request: self._requests.append(request.url))

    def open(self, page: Path, *, width: int = 1200, height: int = 800, dark: bool = False) -> Seen:
        """Open a file in a window of this size, and wait until it has loaded."""
        self.page.set_viewport_size({"width": width, "height": height})
        self.page.emulate_media(color_scheme="dark" if dark else "light")
        self.page.goto("about:blank")
        self._messages.clear()
        self._requests.clear()
        self.page.goto(page.resolve().as_uri(), wait_until="load")
        return self.seen()

    def seen(self) -> Seen:
        return Seen(list(self._messages), list(self._requests), self.page.content())

    @contextlib.contextmanager
    def window(self, **settings: Any) -> Iterator[Browser]:
        """Open a window of its own, with an empty profile; `settings` are those of Playwright's `new_context`."""
        context = self.page.context.browser.new_context(**settings)
        try:
            yield Browser(context.new_page())
        finally:
            context.close()

    def evaluate(self, expression: str) -> Any:
        return self.page.evaluate(expression)


@contextlib.contextmanager
def start_browser() -> Iterator[Browser]:
    """Start Chromium, and close it at the end; skip the test where Chromium or Playwright is absent."""
    api = pytest.importorskip("playwright.sync_api")
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        pytest.skip("there is no Chromium here")
    with api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=program, args=_FLAGS.split())
        try:
            yield Browser(chromium.new_page())
        finally:
            chromium.close()


class Tab:
    """The page of a server in a window of its own."""

    def __init__(self, page: Page, address: str) -> None:
        self.page, self.address = page, address
        self.answers = page.locator(".answer")  # their cards

    def open(self, hash_: str = "") -> None:
        self.page.goto(f"{self.address}/{hash_}")
        self.wait_until_ready()

    def reload(self) -> None:
        self.page.reload()
        self.wait_until_ready()

    def wait_until_ready(self) -> None:
        self.page.locator("body.ready").wait_for()

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

    def card(self, name: str) -> Any:
        """Card of a class."""
        return self.page.locator(".class-card").filter(has=self.page.get_by_role("heading", name=name, exact=True))

    def learn(self) -> None:
        """Press Learn, and wait until it has learned: seconds, on a busy machine more."""
        self.button("Learn", exact=True).click()
        self.button("Ask it").wait_for(timeout=120_000)

    def ask(self, photos: Sequence[Path]) -> None:
        """Ask about photos, and wait for all answers.

        Cards are found by the names of their photos: a photo that was asked about before gets no second card, and the
        cards of earlier answers may still be on their way.
        """
        self.choose("Choose photos", photos)
        for name, many in Counter(photo.name for photo in photos).items():
            self.answers.filter(has=self.page.get_by_text(name, exact=True)).nth(many - 1).wait_for()
        self.page.locator(".answer.waiting").first.wait_for(state="detached")

    def labels(self) -> list[str]:
        """What the cards say, in their order."""
        return self.page.locator(".answer .label").all_inner_texts()

    def shown(self) -> list[str]:
        """Ids of the photos of the cards, in their order."""
        ids: list[str] = self.answers.evaluate_all("cards => cards.map((card) => card.dataset.key)")
        return ids

    def look(self, card: Any) -> Any:
        """Open an answer, and wait for its evidence; returns the dialog."""
        card.locator(".picture").click()
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

        found = [one for one in Axe().run(self.page).response["violations"] if one["impact"] in ("serious", "critical")]
        return [f"{one['id']}: {node['html'][:160]}" for one in found for node in one["nodes"]]


@contextlib.contextmanager
def page_of(browser: Browser, address: str, **settings: Any) -> Iterator[Tab]:
    """Open the page of a server in a window of its own; at the end, check that it was quiet and asked nobody else."""
    with browser.window(**({"reduced_motion": "reduce"} | settings)) as window:
        yield Tab(window.page, address)
        seen = window.seen()
        assert not seen.messages
        assert {"/".join(request.split("/")[:3]) for request in seen.requests if "://" in request} <= {address}
