"""A browser for tests of pages: Playwright with the Chromium of the system."""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Page

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_PATIENCE = 60_000  # milliseconds that a busy machine may take for one step
_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--use-fake-device-for-media-stream",  # a camera that shows a test picture
    "--use-fake-ui-for-media-stream",
)


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

    def open(self, page: Path | str, *, width: int = 1200, height: int = 800, dark: bool = False) -> Seen:
        """Open a file or an address in a window of this size, and wait until it has loaded."""
        self.page.set_viewport_size({"width": width, "height": height})
        self.page.emulate_media(color_scheme="dark" if dark else "light")
        self.page.goto("about:blank")
        self._messages.clear()
        self._requests.clear()
        self.page.goto(page.resolve().as_uri() if isinstance(page, Path) else page, wait_until="load")
        return self.seen()

    def seen(self) -> Seen:
        """Return what happened since the page was opened."""
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
        """Return the value of a JavaScript expression in the open page."""
        return self.page.evaluate(expression)


@contextlib.contextmanager
def start_browser() -> Iterator[Browser]:
    """Start Chromium, and close it at the end; skip the test where Chromium or Playwright is absent."""
    api = pytest.importorskip("playwright.sync_api")
    program = next(filter(None, map(shutil.which, _NAMES)), None)
    if program is None:
        pytest.skip("there is no Chromium here")
    with api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=program, args=_FLAGS)
        try:
            yield Browser(chromium.new_page())
        finally:
            chromium.close()
