"""How fast the page is: the first picture, scrolling, and the way of an event to the page."""

import concurrent.futures
import datetime
import statistics
import time

from playwright.sync_api import expect

from tab import PATIENCE_MS, URL, api, check, tab


@check
def a_change_reaches_the_page_at_once(browser):
    it = tab(browser)
    page = it.go("models?find=other")
    expect(page.get_by_label("Priority of other")).to_be_visible()
    page.evaluate("""() => {
      window.seen = {};
      const look = () => { const field = document.querySelector('[aria-label="Priority of other"]'); if (field && !(field.value in window.seen)) window.seen[field.value] = performance.timeOrigin + performance.now(); requestAnimationFrame(look); };
      look();
    }""")
    took = []
    for nth in range(20):
        value = 100 + nth
        api("PATCH", "models", {"priority": value}, "?model=other")
        answered = time.time() * 1000
        seen = None
        while not seen and time.time() * 1000 - answered < PATIENCE_MS:
            page.wait_for_timeout(20)
            seen = page.evaluate(f"window.seen['{value}']")
        assert seen, f"priority {value} is not seen"
        took.append(seen - answered)
    api("PATCH", "models", {"priority": None}, "?model=other")
    print(f"   a change is seen after {statistics.median(took):.0f} ms (median), {max(took):.0f} ms at most")
    assert statistics.median(took) < 500, took
    it.close()


WATCH_EVENTS = """() => {
  window.seen = {};
  let last = 0;
  const look = () => {
    const now = performance.timeOrigin + performance.now();
    let newest = last;
    for (const row of document.querySelectorAll('.table-body .table-row')) {
      const id = Number(row.lastElementChild.textContent);
      if (id <= last) break;
      window.seen[id] = now;
      newest = Math.max(newest, id);
    }
    last = newest;
    requestAnimationFrame(look);
  };
  look();
}"""


def in_turn(began, count, rate, models):
    """So many changes, evenly over time, by four administrators."""

    def one(first):
        for nth in range(first, count, 4):
            time.sleep(max(0, began + nth / rate - time.monotonic()))
            api("PATCH", "models", {"priority": 1000 + nth}, f"?model={models[nth % len(models)]}")

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(one, range(4)))


@check
def a_hundred_events_a_second_reach_the_page_within_a_quarter_of_a_second(browser):
    it = tab(browser, width=1700, height=1000)
    page = it.go("events")
    api("PATCH", "models", {"priority": 3}, "?model=other")
    expect(page.locator(".table-body .table-row").first).to_be_visible()
    # Rows keep their places under the pointer.
    page.mouse.move(0, 0)
    best, tries = None, []
    for _ in range(3):
        page.evaluate(WATCH_EVENTS)
        began = time.monotonic()
        in_turn(began, 900, 100, ["other", "small", "filler"])
        took = time.monotonic() - began
        page.wait_for_timeout(1000)
        seen = {int(id): at for id, at in page.evaluate("window.seen").items()}
        events = api("GET", "events", query="?limit=1000&kind=set")["events"][-900:]
        late = sorted(seen[one["id"]] - datetime.datetime.fromisoformat(one["at"]).timestamp() * 1000 for one in events if one["id"] in seen)
        # A row that came and left between two frames was never to be seen.
        assert len(late) > 850, f"{len(late)} of 900 events were drawn"
        p99 = late[int(len(late) * 0.99)]
        tries.append(f"{len(late) / took:.0f} events a second: median {statistics.median(late):.0f}, p99 {p99:.0f}, longest {late[-1]:.0f} ms")
        print(f"   {tries[-1]}", flush=True)
        best = min(p99, best or p99)
        if best <= 250:
            break
    for model in ("other", "small", "filler"):
        api("PATCH", "models", {"priority": None}, f"?model={model}")
    assert best <= 250, tries
    it.close()


@check
def many_models_and_devices_are_drawn_without_lag(browser):
    # The moment at which the rows are in the page, noted in the page.
    noted = """(() => { const look = () => { if (document.querySelector('.bar, .table-body .table-row')) window.firstRows = performance.now(); else requestAnimationFrame(look); }; look(); })();"""
    it = tab(browser, scripts=[noted])
    page = it.go("models")
    expect(page.locator(".content")).to_contain_text("500 models")
    for screen, rows in (("pool", ".bar"), ("models", ".table-body .table-row")):
        drawn = []
        for _ in range(5):
            page.goto("about:blank")
            page.goto(f"{URL}/dashboard#/{screen}", wait_until="commit")
            page.locator(rows).first.wait_for()
            # From the beginning of the navigation to the first frame that has all of it.
            drawn.append(page.evaluate(f"""async () => {{
              while (!document.querySelector('{rows}')) await new Promise(requestAnimationFrame);
              return window.firstRows ?? performance.now();
            }}"""))
        paint = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
        print(f"   500 models on 64 devices, {screen}: {min(drawn):.0f} to {max(drawn):.0f} ms, first paint after {paint:.0f} ms")
        assert min(drawn) <= 1000, f"{screen}: {drawn}"
    assert page.locator(".table-body .table-row").count() < 80, "rows out of sight are in the page"
    longest = page.evaluate("""async () => {
      let longest = 0, last = performance.now();
      for (let nth = 0; nth < 60; nth += 1) {
        scrollBy(0, 350);
        await new Promise(requestAnimationFrame);
        const now = performance.now();
        longest = Math.max(longest, now - last);
        last = now;
      }
      return longest;
    }""")
    print(f"   the longest frame while scrolling: {longest:.0f} ms")
    assert longest < 400, longest
    expect(page.locator(".table-body .table-row").last).to_be_visible()
    page.get_by_label("Find a model").fill("model-499")
    expect(page.locator(".table-body .table-row")).to_have_count(1)
    it.close()
