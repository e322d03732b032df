"""A fleet whose operators need a key, and a real Chromium that has the status page open.

Where it is comes from the environment, as `scripts/test-clients` sets it.
"""

import base64
import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import urllib.error
import urllib.request
import uuid

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.ui import WebDriverWait

MODEL = "SmolLM2-135M-Instruct"
# For the page to show what it asks for every other second, on a busy machine.
PATIENCE_S = 30
PHONE = {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}


class Fleet:
    """The gateway, as a client and an operator reach it."""

    def __init__(self, key):
        self.url = os.environ["TANDEM_URL"]
        self.admin = os.environ["TANDEM_ADMIN_URL"]
        self.key = key

    def ask(self, path, method="GET"):
        """What the operators' listener answers."""
        headers = {"authorization": f"Bearer {self.key}"}
        request = urllib.request.Request(f"{self.admin}{path}", method=method, headers=headers)
        with urllib.request.urlopen(request, timeout=10) as reply:
            return json.load(reply)

    def refuses(self, path, key):
        """Whether that key opens nothing."""
        request = urllib.request.Request(f"{self.admin}{path}", headers={"authorization": f"Bearer {key}"})
        try:
            urllib.request.urlopen(request, timeout=10).close()
            return False
        except urllib.error.HTTPError as error:
            return error.code == 401

    @contextlib.contextmanager
    def stream(self, max_tokens):
        """An answer on its way: its id, and its events."""
        name = f"page-{uuid.uuid4().hex[:12]}"
        body = {
            "model": MODEL,
            "messages": [{"role": "user", "content": "Tell a long story about the sea."}],
            "max_tokens": max_tokens,
            "ignore_eos": True,
            "stream": True,
        }
        headers = {"content-type": "application/json", "x-request-id": name}
        request = urllib.request.Request(
            f"{self.url}/v1/chat/completions", data=json.dumps(body).encode(), headers=headers
        )
        with urllib.request.urlopen(request, timeout=60) as reply:
            yield name, (line for line in reply if line.startswith(b"data: "))

    def answer(self, max_tokens=12):
        """A whole streamed answer; returns its id."""
        with self.stream(max_tokens) as (name, events):
            assert list(events)[-1].strip() == b"data: [DONE]"
        return name


@pytest.fixture(scope="session")
def fleet():
    """The running fleet, whose gateway has been given an admin key by a reload of its configuration."""
    made = subprocess.run(
        [os.environ["TANDEM"], "keys", "new", "--admin"], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    config = pathlib.Path(os.environ["TANDEM_STATE"], "config/gateway.toml")
    config.write_text(config.read_text().replace("[admin]\n", f"[admin]\n{made[-1]}\n"))
    fleet = Fleet(key=made[0])
    fleet.ask("/admin/reload", "POST")
    assert fleet.refuses("/admin/workers", "not-the-key")
    return fleet


@pytest.fixture(scope="session")
def chromium():
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    for argument in ("--headless=new", "--window-size=1280,1000", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    if os.geteuid() == 0:
        # Its sandbox refuses root, who is alone in a container.
        options.add_argument("--no-sandbox")
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    yield driver
    driver.quit()


class Page:
    """The status page in a browser, and what a reader of it sees."""

    def __init__(self, driver, fleet):
        self.driver = driver
        self.fleet = fleet
        # What a test does on purpose, and Chromium notes in its console.
        self.expected = []

    def open(self, key):
        """Loads the page as one whose reader has given that key before."""
        # A file of the same origin, and without a script.
        self.driver.get(f"{self.fleet.admin}/page.css")
        script = "sessionStorage.clear(); if (arguments[0]) sessionStorage.setItem('key', arguments[0])"
        self.js(script, key)
        self.driver.get(f"{self.fleet.admin}/")

    def js(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def cdp(self, command, **parameters):
        return self.driver.execute_cdp_cmd(command, parameters)

    def media(self, media="", **features):
        """As a reader with these preferences sees it."""
        names = [{"name": name.replace("_", "-"), "value": value} for name, value in features.items()]
        self.cdp("Emulation.setEmulatedMedia", media=media, features=names)

    def phone(self):
        self.cdp("Emulation.setDeviceMetricsOverride", **PHONE)

    def wait(self, what, told):
        """What `what` returns, once that is something."""
        return WebDriverWait(self.driver, PATIENCE_S).until(lambda _: what(), told)

    def text(self, selector):
        """What stands there for everybody to see."""
        script = "const e = document.querySelector(arguments[0]); return e.checkVisibility() ? e.innerText : ''"
        return self.js(script, selector)

    def rows(self, table):
        """A table's body, cell by cell, by the column's name."""
        return self.js(
            """const table = document.getElementById(arguments[0]);
               const names = [...table.tHead.rows[0].cells].map((head) => head.textContent);
               return [...table.tBodies[0].rows].map((row) =>
                 Object.fromEntries([...row.cells].map((cell, n) => [names[n], cell.innerText])))""",
            table,
        )

    def shown(self):
        """Waits until the page has drawn the fleet."""
        self.wait(lambda: self.js("return !document.getElementById('main').hidden"), "the page did not open")

    def keep_picture(self, name):
        """For people to look at, where they ask for it."""
        folder = os.environ.get("TANDEM_SCREENSHOTS")
        if folder:
            picture = self.cdp("Page.captureScreenshot", format="png", captureBeyondViewport=True)
            pathlib.Path(folder, f"{name}.png").write_bytes(base64.b64decode(picture["data"]))

    def strangers(self):
        """Requests to anywhere but the listener that served the page."""
        urls = []
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                urls.append(message["params"]["request"]["url"])
        own = (f"{self.fleet.admin}/", "data:")
        return [url for url in urls if not url.startswith(own)], urls

    def complaints(self):
        """What the browser noted: errors of scripts, violations of the content security policy."""
        noted = [entry["message"] for entry in self.driver.get_log("browser")]
        return [line for line in noted if not any(known in line for known in self.expected)]


@pytest.fixture
def browser(chromium, fleet):
    """An empty browser; after each test, whatever it was about: nothing was fetched from elsewhere, and
    the browser has nothing to complain about."""
    for log in ("performance", "browser"):
        chromium.get_log(log)
    page = Page(chromium, fleet)
    yield page
    strangers, asked = page.strangers()
    complaints = page.complaints()
    chromium.get("about:blank")
    page.media()
    page.cdp("Emulation.clearDeviceMetricsOverride")
    assert asked and strangers == []
    assert complaints == []


@pytest.fixture
def page(browser, fleet):
    """The page, open."""
    browser.open(fleet.key)
    browser.shown()
    return browser
