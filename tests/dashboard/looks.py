"""Every screen and every dialog: its width, its contrast, its barriers, and the keyboard."""

import datetime
import json
import os
import re
import urllib.error
import urllib.parse

from playwright.sync_api import expect

from tab import SCREENS, SHOTS, USER, WIDTHS, Tab, api, check, paused_batch, tab, unload

OPENED = ["models?model=steady", "devices?device=gpu0", "playground?models=steady,small", "playground?mode=rerank"]
# What is drawn within the page must not be wider than the window, and what is said in a field or a button must fit in it.
TOO_WIDE = """() => {
  const found = [], over = document.documentElement.scrollWidth - innerWidth;
  if (over > 0) found.push(`the page is ${over} pixels too wide`);
  for (const it of document.querySelectorAll('button, .button, .chip, h1, h2, h3, .tile-value, .tile-word, label, .role, .prio')) {
    const style = getComputedStyle(it);
    if (!it.clientWidth || style.overflow === 'hidden' && style.textOverflow === 'ellipsis' || it.classList.contains('quiet')) continue;
    if (it.scrollWidth > it.clientWidth + 2) found.push(`cut off: ${it.outerHTML.slice(0, 120)}`);
  }
  return found;
}"""
# Whatever can be clicked has to be reached by Tab, or by arrows within a row, a menu or a field of numbers.
OUT_OF_REACH = """() => [...document.querySelectorAll('button, a[href], input, select, textarea, summary, [role=button]')]
  .filter(it => !it.disabled && it.checkVisibility({ visibilityProperty: true }) && it.tabIndex < 0 && !it.closest('[role=row], [role=menu], .stepper'))
  .map(it => it.outerHTML.slice(0, 120))"""


def axe_of():
    with open(os.environ["MODEL_POOL_AXE"], encoding="utf-8") as file:
        return file.read()


def barriers(page, axe, where):
    """What axe-core calls serious or critical."""
    page.evaluate(axe)
    answer = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    serious = [one for one in answer["violations"] if one["impact"] in ("serious", "critical")]
    return [f"{where}: {one['id']}: {node['html'][:200]}" for one in serious for node in one["nodes"][:2]]


def settle(page):
    """Fonts, figures that are read, and movements."""
    page.wait_for_timeout(300)


def look(page, axe, name, width, theme):
    settle(page)
    where = f"{name} at {width}, {theme}"
    if SHOTS:
        page.screenshot(path=f"{SHOTS}/{re.sub(r'[^A-Za-z0-9]+', '-', name)}-{width}-{theme}.png")
    found = [f"{where}: {one}" for one in page.evaluate(TOO_WIDE)]
    # The widest is the same page with more room around it.
    return found if width == 2560 else found + barriers(page, axe, where)


@check
def every_screen_fits_every_width_in_both_themes_and_has_no_serious_barrier(browser):
    for model in ("small", "other"):
        api("POST", "load", {"model": model})
    for _ in range(3):
        paused_batch("steady", 500)
    axe, found = axe_of(), []
    for theme in ("light", "dark"):
        for width, height in WIDTHS:
            it = tab(browser, width=width, height=height, theme=theme)
            for screen in [*SCREENS, *OPENED]:
                page = it.go(screen)
                expect(page.get_by_role("heading", level=1)).to_be_visible()
                found += look(page, axe, screen, width, theme)
            for view in ("Cells", "Map", "Bars"):
                page = it.go("pool")
                page.get_by_role("button", name=view, exact=True).click()
                found += look(page, axe, f"pool as {view}", width, theme)
            it.close()
            it = tab(browser, USER, width=width, height=height, theme=theme)
            for screen in ("home", "usage", "batches"):
                found += look(it.go(screen), axe, screen, width, theme)
            it.close()
            it = Tab(browser, width=width, height=height, theme=theme)
            expect(it.page.get_by_role("button", name="Sign in")).to_be_visible()
            found += look(it.page, axe, "sign in", width, theme)
            it.close()
    assert not found, "\n".join(found)


PERIODS = {"Hour": ("hour", 60, 60, "minute"), "Day": ("day", 96, 900, "quarter of an hour"), "Week": ("week", 168, 3600, "hour")}


def figures(route):
    """Charts in which every second step had no request, and the devices of some were not counted."""
    period = urllib.parse.parse_qs(urllib.parse.urlparse(route.request.url).query)["charts"][0]
    _, steps, seconds, _ = next(it for it in PERIODS.values() if it[0] == period)

    def point(nth):
        at = datetime.datetime(2026, 1, 31, 12, tzinfo=datetime.timezone.utc) + datetime.timedelta(seconds=nth * seconds)
        is_used = nth % 2 == 1
        return {"at": at.isoformat().replace("+00:00", ".000Z"), "seconds": seconds, "requests": nth * seconds * is_used, "waited": nth * is_used, "waited_seconds": 3.5 * nth, "prompt_tokens": 90 * nth * seconds * is_used,
            "completion_tokens": 30 * nth * seconds * is_used, "first_token_p50_seconds": 0.25 if is_used else None, "first_token_p95_seconds": 0.5 + nth / 50 if is_used else None, "used_ratio": None if nth % 5 == 0 else nth / steps}

    route.fulfill(json={"charts": [point(nth) for nth in range(steps)]})


@check
def the_charts_of_the_last_hour_day_and_week_fit_and_say_their_figures(browser):
    axe, found = axe_of(), []
    for theme in ("light", "dark"):
        for width, height in WIDTHS:
            it = tab(browser, width=width, height=height, theme=theme)
            it.page.route(re.compile(r"/admin/usage\?.*charts="), figures)
            page = it.go("account")
            over_time = page.get_by_role("region", name="Over time")
            for button, (name, steps, _, step) in PERIODS.items():
                over_time.get_by_role("button", name=button, exact=True).click()
                tokens = over_time.get_by_role("img", name=re.compile(f"^Tokens by {step}, at most"))
                expect(tokens).to_be_visible()
                expect(over_time.get_by_role("img")).to_have_count(5)
                expect(tokens.locator("g")).to_have_count(steps)
                first = over_time.get_by_role("img", name=re.compile("^Time to first token")).locator("title")
                expect(first.nth(1)).to_have_text(re.compile(r"half of the requests: 250\sms\s+95 of 100: 520\sms"))
                expect(first.nth(2)).to_have_text(re.compile("half of the requests: no stream"))
                used = over_time.get_by_role("img", name=re.compile("^Devices used")).locator("title")
                expect(used.nth(5)).to_have_text(re.compile("not known"))
                found += look(page, axe, f"charts of the {name}", width, theme)
            it.close()
    assert not found, "\n".join(found)


def of_model(model, item):
    """A dialog from the menu of a model's panel."""

    def opens(it):
        panel = it.go(f"models?model={model}").get_by_role("complementary", name=f"Model {model}")
        panel.get_by_role("button", name="More actions").click()
        it.page.get_by_role("menuitem", name=item).click()

    return opens


def button(screen, name):
    def opens(it):
        it.go(screen).get_by_role("button", name=name).last.click()

    return opens


def chosen(name):
    def opens(it):
        page = it.go("models")
        for model in ("small", "other", "large"):
            page.get_by_label(f"Choose {model}").check()
        page.get_by_role("region", name="Chosen models").get_by_role("button", name=name).click()

    return opens


def pressed(key):
    def opens(it):
        page = it.go("pool")
        expect(page.get_by_role("heading", name="Pool", level=1)).to_be_visible()
        page.keyboard.press(key)

    return opens


def why(it):
    it.go("events?kind=load").locator(".table-body .table-row").first.click()


def plan_that_evicts(it):
    """`large` fits only where `filler` or the small ones are."""
    api("POST", "load", {"model": "filler"})
    of_model("large", "Load or plan…")(it)
    expect(it.page.locator("dialog[open]")).to_contain_text(re.compile("evict", re.I))
    expect(it.page.locator("dialog[open] .block[data-gone]").first).to_be_visible()


def of_batch(item):
    """A dialog from the menu of the first batch."""

    def opens(it):
        it.go("batches").get_by_role("button", name=re.compile("^Actions for the batch")).first.click()
        it.page.get_by_role("menuitem", name=item).click()

    return opens


DIALOGS = {
    "plan that fits": of_model("other", "Load or plan…"),
    "plan that evicts": plan_that_evicts,
    "unload": of_model("small", "Unload…"),
    "priority": of_model("large", "Set priority…"),
    "lease": of_model("small", "Lease…"),
    "several to load": chosen(re.compile("^Load")),
    "several to unload": chosen("Unload…"),
    "out of service": button("devices?device=gpu0", "Take out of service…"),
    "what if": button("devices?device=gpu0", "What if…"),
    "cleanup": button("evening", "Run the cleanup…"),
    "resume a batch": of_batch("Resume…"),
    "cancel a batch": of_batch("Cancel…"),
    "reset": button("evening", re.compile("Reset")),
    "new key": button("keys", "New key"),
    "read again": button("config", "Reload…"),
    "palette": pressed("Control+k"),
    "help": pressed("?"),
    "account": button("pool", re.compile("Signed in as")),
    "menu of a model": lambda it: it.go("models?model=small").get_by_role("button", name="More actions").last.click(),
    "why": why,
}


@check
def every_dialog_fits_has_no_serious_barrier_and_gives_the_focus_back(browser):
    unload("large", "filler")
    for model in ("small", "other"):
        api("POST", "load", {"model": model})
    paused_batch("steady", 500)
    axe, found = axe_of(), []
    for theme, (width, height) in (("light", WIDTHS[0]), ("dark", WIDTHS[0]), ("light", WIDTHS[1]), ("dark", WIDTHS[1])):
        it = tab(browser, width=width, height=height, theme=theme)
        for name, opens in DIALOGS.items():
            it.page.goto("about:blank")
            opens(it)
            shown = it.page.locator("dialog[open], [role=menu], .why").first
            expect(shown).to_be_visible()
            found += look(it.page, axe, f"dialog {name}", width, theme)
            box = shown.bounding_box()
            if box["x"] < 0 or box["x"] + box["width"] > width + 1:
                found.append(f"{name} at {width}, {theme}: it is not in the window: {box}")
            if name != "why":
                it.page.keyboard.press("Escape")
                expect(it.page.locator("dialog[open], [role=menu]")).to_have_count(0)
            if name == "plan that evicts":
                unload("filler")
        it.close()
    assert not found, "\n".join(found)


@check
def every_control_is_reached_with_the_keyboard(browser):
    it = tab(browser)
    page, found = it.page, []
    for screen in [*SCREENS, *OPENED]:
        it.go(screen)
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        settle(page)
        found += [f"{screen}: {one}" for one in page.evaluate(OUT_OF_REACH)]
        # From the first to the last: each stop is seen, and none holds the focus.
        page.evaluate("document.activeElement.blur()")
        stops, last = 0, None
        for _ in range(250):
            page.keyboard.press("Tab")
            here, outline, where = page.evaluate("""() => { const it = document.activeElement, style = getComputedStyle(it);
              it.dataset.stop ??= String(Math.random());
              return [it === document.body ? null : it.dataset.stop, style.outlineStyle !== 'none' || style.boxShadow !== 'none' || it.id === 'main', it.outerHTML.slice(0, 120)]; }""")
            if here is None:
                break
            if here == last:
                found.append(f"{screen}: the focus stays on {where}")
                break
            if not outline:
                found.append(f"{screen}: the focus is not to be seen on {where}")
            stops, last = stops + 1, here
        if stops < 15:
            found.append(f"{screen}: only {stops} stops")
    assert not found, "\n".join(found)
    it.close()


@check
def the_keyboard_alone_does_what_the_pointer_does(browser):
    it = tab(browser)
    page = it.go("models")
    first = page.locator(".table-body .table-row").first
    expect(first).to_be_visible()
    # Into the table, a row chosen, the bulk action, and out again.
    first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Space")
    expect(page.get_by_role("region", name="Chosen models")).to_contain_text("1")
    page.keyboard.press("Enter")
    panel = page.get_by_role("complementary")
    expect(panel).to_be_visible()
    page.keyboard.press("Escape")
    expect(panel).to_have_count(0)
    # A priority by the arrows of its field.
    priority = page.get_by_label("Priority of other")
    priority.focus()
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowDown")
    expect(priority).to_have_value("1")
    page.keyboard.press("Escape")
    expect(priority).to_have_value("0")
    # A menu by arrows gives the focus back to its button.
    more = page.get_by_role("button", name=re.compile("Signed in as"))
    more.focus()
    page.keyboard.press("Enter")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.locator("html")).to_have_attribute("data-theme", re.compile("light|dark"))
    expect(more).to_be_focused()
    # The time line moves and zooms.
    page = it.go("timeline")
    line = page.locator(".time-line")
    line.focus()
    before = page.locator(".head p").inner_text()
    page.keyboard.press("+")
    expect(page.locator(".head p")).not_to_have_text(before)
    it.close()


@check
def a_name_of_five_thousand_characters_breaks_no_screen(browser):
    # The pool itself takes 200 characters and says so; another pool's, or a newer one's, may send more.
    long = "lab/<script>alert(1)</script>" + "n" * 4971
    refused = None
    try:
        api("PUT", "models", {"engine_config": {"model_id": long, "type": "CommandEngine", "command": ["true", "{{ port }}"], "ready_path": "/health"}, "pool_config": {"memory_gib": 1}})
    except urllib.error.HTTPError as error:
        refused = error.code, error.read().decode()
    assert refused and refused[0] == 400 and "200" in refused[1], refused
    models, devices = api("GET", "models")["models"], api("GET", "devices")["devices"]
    models[0] = {**models[0], "model": long, "warnings": [long], "last_failure": long, "failures": 3}
    for device in devices:
        for owner in device["owners"]:
            owner["model"] = long
        device["cordon"] = {"reason": long, "failed": False, "since_at": "2026-01-31T20:15:00Z", "until_at": None}
    waiting = [{"ticket": "t1", "model": long, "key": long[:100], "position": 1, "waited_ms": 1000, "expected_ms": 4000, "stage": "loading", "priority": 0}]
    view = {"at": "2026-01-31T20:15:00.123Z", "models": models, "devices": devices, "queue": {"waiting": waiting, "orders": []}, "evening": None, "store": {"writable": True, "trouble": None, "history_lost": 0}}
    body = f"event: view\ndata: {json.dumps(view)}\n\n"
    axe, found = axe_of(), []
    for width, height in WIDTHS[:2]:
        it = tab(browser, width=width, height=height)
        it.page.route(re.compile(r"/admin/live"), lambda route: route.fulfill(status=200, content_type="text/event-stream", body=body))
        it.page.reload()
        for screen in ["pool", "models", "queue", "devices", f"models?model={urllib.parse.quote(long)}", "devices?device=gpu0", "logs", "playground", "evening"]:
            page = it.go(screen)
            expect(page.get_by_role("heading", level=1)).to_be_visible()
            found += look(page, axe, f"long {screen[:20]}", width, "light")
            page.keyboard.press("Control+k")
            expect(page.locator(".palette")).to_be_visible()
            page.keyboard.press("Escape")
        shown = it.go("models").locator(".name", has_text="lab/").first
        assert len(shown.inner_text()) < 100 and shown.get_attribute("title") == long, "cut, and complete in the title"
        it.close()
    assert not found, "\n".join(found)
