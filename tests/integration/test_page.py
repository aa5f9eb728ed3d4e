"""The gateway's page in a headless Chromium."""

import asyncio
import json

import pytest

from spillway.agents.gateway import page as module
from spillway.agents.live.operator.inspection import Search
from tests.chromium import PROGRAM, a_tab
from tests.unit.gateway.test_page import EVIL, EVIL_ID, ONE, a_gateway

pytestmark = pytest.mark.skipif(
    PROGRAM is None, reason="needs Chromium (apt install chromium), or its path in SPILLWAY_CHROMIUM"
)


def in_a_browser(tmp_path, monkeypatch, play, *, tokens):
    monkeypatch.setattr(
        module, "search", lambda _settings, _spec, request_id, *, at, key: Search(request_id, at, 60.0, 0)
    )

    async def run():
        async with asyncio.timeout(240), a_gateway(tmp_path, tokens=tokens) as client, a_tab(tmp_path / "p") as tab:
            await play(tab, str(client.make_url("/")))

    asyncio.run(run())


def test_a_browser_shows_texts_as_texts_and_what_became_of_a_query(tmp_path, monkeypatch):
    async def play(tab, url):
        await tab.open(url)
        await tab.until("document.querySelectorAll('section').length === 2")
        assert EVIL in await tab.until(
            "document.querySelector('section tbody td:last-child') && document.body.innerText"
        )
        assert await tab.evaluate("document.querySelectorAll('script').length") == 1
        assert await tab.evaluate("document.querySelectorAll('img, [style]').length + document.title") == "0Spillway"
        assert await tab.evaluate("document.querySelectorAll('section:first-of-type g.stage').length") == 5
        await tab.evaluate("[...document.querySelectorAll('td button')][0].focus()")
        before = await tab.evaluate("document.getElementById('connection').textContent")
        await tab.until(f"document.getElementById('connection').textContent !== {json.dumps(before)}")
        assert await tab.evaluate("document.activeElement.textContent") == EVIL_ID  # drawn anew, and still there
        await tab.press("Enter", 13)
        await tab.until("document.getElementById('query-text').textContent.startsWith('no record of it')")
        await tab.press("Escape", 27)
        await tab.until("!document.getElementById('query').open")
        assert tab.problems == [] or all("favicon" in each for each in tab.problems)

    in_a_browser(tmp_path, monkeypatch, play, tokens=False)


@pytest.mark.parametrize("width", [400, 1600])
def test_a_browser_asks_for_a_token_and_nothing_is_cut(tmp_path, monkeypatch, width):
    async def play(tab, url):
        await tab.open(url, width, dark=width == 400)
        await tab.until("document.getElementById('access')?.hidden === false && document.activeElement.id === 'token'")
        await tab.call("Input.insertText", text=ONE["Authorization"].split()[1])
        await tab.press("Enter", 13)
        await tab.until("document.querySelectorAll('section').length === 1")
        assert await tab.evaluate("document.documentElement.scrollWidth") <= width
        await tab.picture(tmp_path / "page.png")

    in_a_browser(tmp_path, monkeypatch, play, tokens=True)
