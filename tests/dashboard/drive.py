"""Drives the dashboard in a real Chromium as a person would, against a pool that is running.

    MODEL_POOL_URL          the pool, with the base path: http://127.0.0.1:8080/llm
    MODEL_POOL_ADMIN_KEY    an admin key
    MODEL_POOL_USER_KEY     a user's key
    MODEL_POOL_VIEWER_KEY   a viewer's key
    MODEL_POOL_AXE          axe.min.js
    MODEL_POOL_SCREENSHOTS  a folder for pictures of every screen; without it there are none
    MODEL_POOL_DASHBOARD_FILES  a folder with files of the dashboard to use instead of those in the program

The pool of most checks has `steady` (priority 2), `small`, `other`, `filler` and `large` on two devices, where the last two nearly
need one for themselves; `small` prints markup and terminal escapes. `python drive.py WHICH…` runs the checks of these files, or
those whose names begin so.
"""

import os
import sys
import traceback

from playwright.sync_api import sync_playwright

import batches
import effects
import groups
import lasting
import leases
import looks
import people
import playground
import sign_on
import signs
import speed
import steering
from tab import CHECKS

# In this order, whatever is chosen.
FILES = [steering, batches, effects, signs, people, groups, playground, looks, leases, speed, lasting, sign_on]


def is_chosen(one, wanted):
    return not wanted or any(one.__module__ == name or one.__name__.startswith(name) for name in wanted)


def main():
    order = {file.__name__: nth for nth, file in enumerate(FILES)}
    checks = sorted(CHECKS, key=lambda one: order[one.__module__])
    chosen = [one for one in checks if is_chosen(one, sys.argv[1:])]
    with sync_playwright() as playwright:
        path = os.environ.get("MODEL_POOL_CHROMIUM", "/usr/bin/chromium")
        flags = ["--no-sandbox", "--disable-dev-shm-usage"]
        browser = playwright.chromium.launch(executable_path=path, args=flags)
        for one in chosen:
            try:
                one(browser)
            except Exception:
                traceback.print_exc()
                print(f"FAILED: {one.__name__}")
                sys.exit(1)
            print(f"ok: {one.__name__}", flush=True)
        browser.close()
    print(f"{len(chosen)} passed, 0 failed")


main()
