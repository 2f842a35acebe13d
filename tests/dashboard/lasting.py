"""A tab that is kept: for eight hours, over a night of sleep, through jumps of the clock, and beside two hundred others."""

import time

from playwright.sync_api import expect

from tab import PATIENCE_MS, SCREENS, URL, api, check, tab, unload

HOUR_MS = 3_600_000
# Visibility is the browser's to say; a check says it instead.
HIDE = """(() => { let hidden = false;
  Object.defineProperty(document, 'hidden', { get: () => hidden });
  Object.defineProperty(document, 'visibilityState', { get: () => hidden ? 'hidden' : 'visible' });
  window.setHidden = is => { hidden = is; document.dispatchEvent(new Event('visibilitychange')); };
  window.startsHidden = () => { hidden = true; };
})();"""


def heap_of(session):
    """What lives in the tab after everything else was collected: bytes, nodes, listeners."""
    for _ in range(2):
        session.send("HeapProfiler.collectGarbage")
    found = {one["name"]: one["value"] for one in session.send("Performance.getMetrics")["metrics"]}
    return found["JSHeapUsedSize"], found["Nodes"], found["JSEventListeners"]


@check
def kept_for_eight_hours_a_tab_needs_no_more_memory(browser):
    it = tab(browser, clock=time.time())
    page = it.page
    session = it.context.new_cdp_session(page)
    session.send("Performance.enable")
    began, found = time.monotonic(), []
    for hour in range(8):
        for part in range(6):
            # Some of what happens in ten minutes, and then the ten minutes with every tick of theirs.
            for nth in range(20):
                api("PATCH", "models", {"priority": 100 + nth}, "?model=other")
            page.clock.run_for(HOUR_MS / 6)
            if part % 3 == 2:
                api("POST", "load", {"model": "small"})
                api("POST", "unload", {"model": "small", "now": True})
        for screen in [*SCREENS, "models?model=steady", "devices?device=gpu0"]:
            it.go(screen)
            page.clock.run_for(3_000)
            expect(page.get_by_role("heading", level=1)).to_be_visible()
        page.keyboard.press("Control+k")
        page.clock.run_for(1_000)
        expect(page.locator(".palette")).to_be_visible()
        page.keyboard.press("Escape")
        it.go("pool")
        page.clock.run_for(20_000)
        expect(page.locator(".connection")).to_have_attribute("data-status", "live", timeout=PATIENCE_MS)
        page.clock.run_for(20_000)
        found.append(heap_of(session))
        print(f"   after {hour + 1} h: {found[-1][0] / 1e6:.2f} MB, {found[-1][1]} nodes, {found[-1][2]} listeners; {time.monotonic() - began:.0f} s of real time", flush=True)
    api("PATCH", "models", {"priority": None}, "?model=other")
    # The first two hours fill what is kept of events and texts.
    early, late = [max(one[nth] for one in found[1:3]) for nth in range(3)], [min(one[nth] for one in found[6:]) for nth in range(3)]
    assert late[0] <= early[0] * 1.1, f"the heap grows: {found}"
    assert late[1] <= early[1] * 1.2 and late[2] <= early[2] * 1.2, f"nodes or listeners grow: {found}"
    it.close()


@check
def slept_for_a_day_a_tab_is_right_again_when_it_is_looked_at(browser):
    it = tab(browser, clock=time.time(), scripts=[HIDE], width=1700, height=1000)
    page = it.go("events")
    expect(page.locator(".table-body .table-row").first).to_be_visible()
    page.evaluate("setHidden(true)")
    page.clock.run_for(10_000)
    expect(page.locator(".connection")).to_have_attribute("data-status", "paused")
    for nth in range(700):
        api("PATCH", "models", {"priority": nth % 50}, "?model=other")
    api("PATCH", "models", {"priority": 77}, "?model=other")
    page.clock.fast_forward(24 * HOUR_MS)
    page.evaluate("setHidden(false)")
    page.clock.run_for(2_000)
    expect(page.locator(".connection")).to_have_attribute("data-status", "live", timeout=PATIENCE_MS)
    page.clock.run_for(2_000)
    first = page.locator(".table-body .table-row").first
    expect(first).to_contain_text("77", timeout=PATIENCE_MS)
    # What it had and what is new do not meet; it shows no list with a gap in it.
    newest = api("GET", "events", query="?limit=200")["events"]
    ids = page.evaluate("[...document.querySelectorAll('.table-body .table-row')].map(it => Number(it.lastElementChild.textContent))")
    assert len(ids) > 20, ids
    known = [one["id"] for one in reversed(newest)][: len(ids)]
    assert ids == known, f"{ids[:5]} … instead of {known[:5]} …"
    page = it.go("models?find=other")
    page.clock.run_for(1_000)
    expect(page.get_by_label("Priority of other")).to_have_value("77")
    api("PATCH", "models", {"priority": None}, "?model=other")
    it.close()


@check
def jumps_of_the_clock_change_no_countdown(browser):
    api("PATCH", "models", {"keep_hot": "30m"}, "?model=small")
    api("POST", "load", {"model": "small"})
    it = tab(browser, clock=time.time())
    page = it.page
    countdown = page.locator(".block[data-kind=replica]", has_text="small").locator(".block-time")

    def minutes():
        page.clock.run_for(1_100)
        parts = countdown.inner_text().split(":")
        return int(parts[0]) if len(parts) == 2 else 60 * int(parts[0]) + int(parts[1])

    expect(countdown).to_be_visible()
    assert 28 <= minutes() <= 30, minutes()
    for jump_ms in (3 * HOUR_MS, -5 * HOUR_MS, 40 * 24 * HOUR_MS):
        page.evaluate("""by => { const real = Date.now; const start = real() + by, since = performance.now();
          Date.now = () => start + performance.now() - since; }""", jump_ms)
        assert 28 <= minutes() <= 30, f"after a jump of {jump_ms / HOUR_MS} h: {minutes()} min"
        expect(page.locator(".connection")).to_have_attribute("data-status", "live")
    api("PATCH", "models", {"keep_hot": None}, "?model=small")
    unload("small")
    it.close()


@check
def with_two_hundred_tabs_the_one_in_sight_is_live(browser):
    it = tab(browser, scripts=[HIDE])
    began = time.monotonic()
    tabs = [it.page]
    for _ in range(199):
        page = it.context.new_page()
        page.add_init_script("window.startsHidden()")
        page.goto(f"{URL}/dashboard#/pool")
        tabs.append(page)
    print(f"   200 tabs after {time.monotonic() - began:.0f} s", flush=True)
    for page in (tabs[0], tabs[57], tabs[199]):
        for other in tabs:
            if other is not page:
                other.evaluate("setHidden(true)")
        page.evaluate("setHidden(false)")
        expect(page.locator(".connection")).to_have_attribute("data-status", "live", timeout=PATIENCE_MS)
        expect(page.locator(".bar")).to_have_count(2)
        value = 100 + tabs.index(page)
        page.goto(f"{URL}/dashboard#/models?find=other")
        api("PATCH", "models", {"priority": value}, "?model=other")
        expect(page.get_by_label("Priority of other")).to_have_value(str(value))
    api("PATCH", "models", {"priority": None}, "?model=other")
    it.close()
