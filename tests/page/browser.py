# SPDX-License-Identifier: Apache-2.0
"""Headless Chromium for tests of pages: what a page loads, says on its console and breaks of the accessibility rules."""
import json
import pathlib
from typing import Any

from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

ROOT = pathlib.Path(__file__).resolve().parents[2]
NODE_MODULES = ROOT / "build/page/node_modules"
SCREENSHOTS = ROOT / "build/page/screenshots"
DESKTOP, PHONE = (1280, 800), (390, 844)
_FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-component-update", "--no-first-run",
          "--disable-background-networking", "--disable-dev-shm-usage")


class Browser:
    """One tab. `close` ends it."""

    def __init__(self) -> None:
        options = Options()
        for flag in _FLAGS:
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver = webdriver.Chrome(service=Service("/usr/bin/chromedriver"), options=options)
        self.driver.set_script_timeout(60)
        self.resize(DESKTOP)

    def close(self) -> None:
        self.driver.quit()

    def open(self, url: str) -> None:
        self.driver.get(url)

    def resize(self, size: tuple[int, int]) -> None:
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
            "width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": size[0] < 600})

    def prefer(self, scheme: str) -> None:
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})

    def run(self, script: str, *arguments: Any) -> Any:
        """The value that the script returns."""
        return self.driver.execute_script(script, *arguments)

    def text(self, name: str) -> str:
        """Of the element with this id."""
        return self.run("return document.getElementById(arguments[0]).textContent", name)

    def press(self, key: str) -> None:
        for kind in ("keyDown", "keyUp"):
            self.driver.execute_cdp_cmd("Input.dispatchKeyEvent", {"type": kind, "key": key, "code": key,
                                                                   "windowsVirtualKeyCode": {"Tab": 9}[key]})

    def focused(self) -> str:
        """The id of the element with the focus, or its label."""
        return self.run("const at = document.activeElement; return at.id || at.getAttribute('aria-label') || at.tagName")

    def settle(self) -> None:
        """Until charts have taken the size of their boxes, which follow that of the window."""
        self.driver.execute_async_script("const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 200)))")

    def screenshot(self, name: str, whole: bool = False) -> None:
        """`whole`: as tall as the page."""
        self.settle()
        if whole:
            width, height = self.run("return [innerWidth, document.documentElement.scrollHeight]")
            self.resize((width, height))
            self.settle()
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        self.driver.save_screenshot(str(SCREENSHOTS / f"{name}.png"))

    def console(self) -> list[str]:
        """What is wrong by its console, since the last call."""
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]

    def requests(self) -> list[str]:
        """Addresses that were asked for, since the last call."""
        messages = (json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance"))
        return [message["params"]["request"]["url"] for message in messages if message["method"] == "Network.requestWillBeSent"]

    def violations(self) -> list[str]:
        """Of axe-core's rules, best practices included. The library is run beside the page, not in it."""
        self.run((NODE_MODULES / "axe-core/axe.min.js").read_text(encoding="utf-8"))
        result = self.driver.execute_async_script("const done = arguments[0]; axe.run().then(done)")
        return [f"{found['id']}: {node['html'][:160]}" for found in result["violations"] for node in found["nodes"]]
