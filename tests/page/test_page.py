"""The status page in headless Chromium: what its reader sees after its scripts have run."""

import json

import pytest

SECTIONS = ["now", "pools", "workers", "plots", "flight", "recent", "policy"]
STAGES = ["read", "queue", "lease", "prefill_queue", "prefill", "transfer", "first_token", "decode", "end"]


def test_pools_and_workers_with_their_pages(page, fleet):
    page.wait(lambda: len(page.rows("workers")) == 3, "three workers")
    assert {row["Pool"]: row["Ready"] for row in page.rows("pools")} == {"prefill": "1 of 1", "decode": "2 of 2"}
    told = {worker["id"]: worker for worker in fleet.ask("/admin/workers")["workers"]}
    for row in page.rows("workers"):
        worker = told.pop(row["Worker"])
        assert (row["Role"], row["State"]) == (worker["role"], "ready")
        assert row["Provider"] == f"{worker['provider']} (software)"
        pages = row["Pages in use"]
        assert f"of {worker['pages']['total']}:" in pages
        for state in ("active", "on their way", "held back", "cached"):
            assert state in pages
    assert told == {}
    assert page.text("#state") == "all workers ready"
    assert "SmolLM2-135M-Instruct" in page.text("h1")
    page.keep_picture("wide")


def test_a_request_s_stages_are_a_waterfall_and_a_list(page, fleet):
    name = fleet.answer()
    find = "[...document.querySelectorAll('#recent details')].find((d) => d.innerText.includes(arguments[0]))"
    page.wait(lambda: page.js(f"return !!{find}", name), f"{name} among the latest")
    line, spans, total = page.js(
        f"""const request = {find};
            const spans = [...request.querySelectorAll('.track .span')].map((span) => {{
              const box = span.getBoundingClientRect();
              return {{ stage: span.classList[1], ms: Number(span.dataset.ms), left: box.left, right: box.right }};
            }});
            return [request.querySelector('.line').innerText, spans, request.querySelector('.track').clientWidth]""",
        name,
    )
    assert "length" in line and "prefill-0 → decode-" in line and "12 tokens" in line and "first token" in line
    stages = [span["stage"] for span in spans]
    assert stages == [s for s in STAGES if s in stages]
    assert {"queue", "lease", "prefill", "transfer", "first_token", "decode"} <= set(stages)
    for before, after in zip(spans, spans[1:]):
        assert before["right"] <= after["left"] + 0.5
    assert all(span["right"] > span["left"] for span in spans) and spans[-1]["right"] - spans[0]["left"] <= total + 1
    # To scale, but for those that would be too thin to be seen.
    wide = [span for span in spans if span["right"] - span["left"] > 2]
    scales = [(span["right"] - span["left"]) / span["ms"] for span in wide]
    assert max(scales) < 1.2 * min(scales)
    page.js(f"{find}.querySelector('summary').click()", name)
    opened = page.js(f"return {find}.querySelector('ul').innerText", name)
    for said in ("prefill: ", "transfer: ", "decode: ", "asked prefill-0 → decode-", "reserved", "ended: length"):
        assert said in opened
    # What somebody has opened stays open and stays the same while new ones come.
    page.js(f"document.kept = {find}", name)
    later = fleet.answer(2)
    page.wait(lambda: page.js(f"return !!{find}", later), f"{later} among the latest")
    assert page.js(f"return document.kept === {find} && document.kept.open", name)


def test_a_request_in_flight_is_listed_until_it_ends(page, fleet):
    with fleet.stream(1500) as (name, events):
        next(events)
        row = page.wait(
            lambda: next((row for row in page.rows("flight") if row["Request"] == name), None), f"{name} in flight"
        )
        assert row["Stage"] in ("prefill", "first_token", "decode") and row["Prefill"] == "prefill-0"
        assert row["Decode"].startswith("decode-") and row["Tenant"] == "anonymous"
    page.wait(lambda: name not in page.text("#flight"), f"{name} ended with its client")


def test_plots_are_drawn_from_what_happens(page, fleet):
    titles = ["Time to first token", "Time between tokens (ITL)", "Goodput", "Tokens per second"]
    assert page.js("return [...document.querySelectorAll('#plots figcaption')].map((c) => c.innerText)") == titles
    # The first look is what the second is compared with.
    page.wait(lambda: page.js("return sheet.times.length > 0"), "a second look")
    fleet.answer()
    drawn = """return [...document.querySelectorAll('#plots figure')].every((figure) => {
        const latest = figure.querySelector('circle.first');
        const [x, y] = ['cx', 'cy'].map((name) => latest && Number(latest.getAttribute(name)));
        return latest && x > 56 && x <= 320 && y >= 0 && y <= 128 && !figure.querySelector('.note').innerText.includes('–'); })"""
    page.wait(lambda: page.js(drawn), "a line in each plot, and its figures")
    assert page.js("return document.querySelectorAll('#plots title').length") == 4
    now = page.text("#now")
    assert "TTFT p50" in now and "–" not in now
    page.keep_picture("plots")


def test_the_policy_in_force_is_shown(page, fleet):
    told = fleet.ask("/admin/policy")
    assert json.loads(page.text("#policy")) == told["policy"]
    assert told["hash"] in page.text("#hash")


def test_a_phone_needs_no_sideways_scrolling(browser, fleet):
    browser.phone()
    browser.open(fleet.key)
    browser.shown()
    with fleet.stream(1500) as (name, events):
        next(events)
        browser.wait(lambda: name in browser.text("#flight"), f"{name} in flight")
        browser.keep_picture("phone")
        width, beyond = browser.js(
            """const width = document.documentElement.clientWidth;
               const beyond = [...document.querySelectorAll('body *')].filter((e) => {
                 const box = e.getBoundingClientRect();
                 return box.width > 0 && (box.right > width + 1 || box.left < -1)
                   && !e.closest('thead') && !(e instanceof SVGElement);
               }).map((e) => `${e.tagName} ${e.innerText.slice(0, 60)}`);
               return [document.documentElement.scrollWidth, beyond]"""
        )
    assert width == 390 and beyond == []
    # Each cell says what it is, for those who see it and for those who have it read to them.
    said = browser.js(
        """const cell = document.querySelector('#workers tbody tr').cells[4];
           return [getComputedStyle(cell, '::before').content, cell.getAttribute('role')]"""
    )
    assert said == ['"Queued tokens"', "cell"]


LOOKS = {
    "light": {"prefers_color_scheme": "light"},
    "dark": {"prefers_color_scheme": "dark"},
    "forced": {"forced_colors": "active"},
    "print": {"media": "print"},
}


@pytest.mark.parametrize("look", LOOKS)
def test_nothing_is_lost_without_colours_in_the_dark_or_on_paper(page, fleet, look):
    name = fleet.answer()
    page.wait(lambda: name in page.text("#recent"), f"{name} among the latest")
    page.media(**LOOKS[look])
    for section in SECTIONS:
        assert page.js("return document.getElementById(arguments[0]).getBoundingClientRect().height", section) > 10
        assert page.text(f"#{section}").strip()
    assert name in page.text("#recent")
    # The bars keep their patterns: each stage's is its own.
    patterns = page.js(
        """return [...document.querySelectorAll('#legend .key')].map((key) => {
             const style = getComputedStyle(key);
             return [style.backgroundImage, style.backgroundColor, style.outlineStyle].join(' '); })"""
    )
    assert len(set(patterns)) == len(patterns) == len(STAGES)
    kept = page.js("return getComputedStyle(document.querySelector('.track .span')).printColorAdjust")
    assert kept == "exact"
    if look == "print":
        assert "waiting for prefill: " in page.text("#recent ul")
    else:
        assert contrast(page, "#recent .note") >= 4.5 and contrast(page, "dd") >= 7
    page.keep_picture(look)


def contrast(page, selector):
    """Of a text with the page behind it, as WCAG 2 counts it."""
    painted = page.js(
        """const drawing = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
           const seen = (colour) => {
             drawing.clearRect(0, 0, 1, 1);
             drawing.fillStyle = colour;
             drawing.fillRect(0, 0, 1, 1);
             return [...drawing.getImageData(0, 0, 1, 1).data];
           };
           const probe = document.body.appendChild(document.createElement('i'));
           probe.style.color = 'Canvas';
           const canvas = getComputedStyle(probe).color;
           probe.remove();
           return [getComputedStyle(document.querySelector(arguments[0])).color, canvas].map(seen)""",
        selector,
    )

    def luminance(colour):
        linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in (v / 255 for v in colour[:3])]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    darker, lighter = sorted(map(luminance, painted))
    return (lighter + 0.05) / (darker + 0.05)


def test_without_the_right_key_the_page_says_so_and_shows_nothing(browser, fleet):
    # Chromium notes each answer of 401.
    browser.expected = ["401 (Unauthorized)"]
    browser.open(None)
    form = "document.getElementById('login')"
    browser.wait(lambda: browser.js(f"return !{form}.hidden"), "the form for the key")
    assert browser.text("#state") == "locked" and browser.text("#refused") == ""
    enter = f"document.getElementById('key').value = arguments[0]; {form}.requestSubmit()"
    browser.js(enter, "not-the-key")
    browser.wait(lambda: browser.text("#refused") == "Incorrect admin key provided.", "why it was refused")
    assert "decode-0" not in browser.js("return document.documentElement.innerText")
    browser.keep_picture("refused")
    browser.js(enter, fleet.key)
    browser.shown()
    assert browser.text("#login") == "" and "decode-0" in browser.text("#workers")
    assert fleet.key not in browser.js("return document.documentElement.outerHTML")


def test_a_gateway_that_does_not_answer_is_said_to(page):
    page.expected = ["ERR_INTERNET_DISCONNECTED"]
    away = dict(offline=True, latency=0, downloadThroughput=-1, uploadThroughput=-1)
    page.cdp("Network.enable")
    page.cdp("Network.emulateNetworkConditions", **away)
    page.wait(lambda: "no answer from the gateway since" in page.text("#state"), "that nothing answers")
    assert "decode-0" in page.text("#workers")
    page.cdp("Network.emulateNetworkConditions", **{**away, "offline": False})
    page.wait(lambda: page.text("#state") == "all workers ready", "that it answers again")
