"""Controls that change the pool: each shows its effect first, names it on its button, and rows stay under the hand."""

import re

from playwright.sync_api import expect

from tab import PATIENCE_MS, SCREENS, api, check, paused_batch, picture, tab, unload

# Requests that read or preview, although they are no GET.
PREVIEWS = ("/admin/plan", "/admin/what-if")
# The next button of a kind that was not clicked yet: names of models, keys and times do not make another kind.
NEXT = """seen => {
  const kind = it => (it.getAttribute('aria-label') ?? it.innerText).replace(/\\b(steady|small|other|filler|large|gpu\\d)\\b/g, '*').replace(/[\\d.:]+/g, '0') + it.className;
  const can = it => !it.disabled && it.checkVisibility({ visibilityProperty: true }) && !seen.includes(kind(it));
  const found = [...document.querySelectorAll('main button, .panel button, main input[type=checkbox]')].find(can);
  if (!found) return null;
  document.querySelectorAll('[data-next]').forEach(it => delete it.dataset.next);
  found.dataset.next = 'yes';
  return [kind(found), found.getAttribute('aria-label') ?? found.innerText];
}"""
OPENED = ["models?model=steady", "devices?device=gpu0", "playground?models=steady,small", "events?kind=load"]


def model_of(name):
    return api("GET", "models", query=f"?model={name}")["models"][0]


def orders_of(page):
    """What the page orders from now on."""
    orders = []

    def heard(request):
        is_preview = request.url.endswith(PREVIEWS) or '"preview":true' in (request.post_data or "")
        if request.method != "GET" and "/admin/" in request.url and not is_preview:
            orders.append(f"{request.method} {request.url} {request.post_data}")

    page.on("request", heard)
    return orders


def drawn(page):
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")


def leave(page):
    """Closes what a click has opened, once it is drawn."""
    drawn(page)
    for _ in range(3):
        page.keyboard.press("Escape")
    expect(page.locator("dialog[open], [role=menu]")).to_have_count(0)


@check
def no_single_click_changes_the_pool(browser):
    unload("large", "filler")
    for model in ("small", "other"):
        api("POST", "load", {"model": model})
    paused_batch("steady", 50)
    it = tab(browser)
    page, clicked = it.page, 0
    orders = orders_of(page)
    for screen in [*SCREENS, *OPENED]:
        page.goto("about:blank")
        it.go(screen)
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        expect(page.locator(".loading")).to_have_count(0)
        seen = []
        while True:
            found = page.evaluate(NEXT, seen)
            if not found:
                break
            seen.append(found[0])
            one = page.locator("[data-next]")
            one.click()
            clicked += 1
            drawn(page)
            names = page.locator("[role=menu] [role=menuitem]:not([aria-disabled])").all_inner_texts()
            for name in names:
                if not page.locator("[role=menu]").count():
                    it.go(screen)
                    page.get_by_role("button", name=found[1], exact=True).first.click()
                # A file that is saved is no order.
                if name not in ("Clone as file", "Sign out"):
                    page.get_by_role("menuitem", name=name, exact=True).click()
                    clicked += 1
                    leave(page)
            leave(page)
            assert not orders, f"one click on {found[1]!r} of {screen} ordered {orders}"
            if page.url.split("#/")[-1] != screen:
                it.go(screen)
                drawn(page)
    print(f"{clicked} clicks without an order")
    assert clicked > 100, f"only {clicked} clicks"
    it.close()


@check
def no_key_changes_the_pool(browser):
    it = tab(browser)
    page = it.go("models")
    row = page.locator(".table-body .table-row").first
    orders = orders_of(page)
    for key in [*"abcdefhijklmnopqrstuvwxyz0123456789+-", "Enter", "Space", "Delete", "Backspace", "ArrowLeft", "ArrowRight"]:
        row.focus()
        page.keyboard.press(key)
        leave(page)
        it.go("models")
    # The field of a priority: nothing is ordered by typing, by the arrows, or by leaving it.
    field = page.get_by_label("Priority of other")
    field.fill("7")
    field.press("ArrowUp")
    field.press("Tab")
    expect(field).to_have_value("0")
    for words in ("load other", "unload other", "priority of other", "lease of other"):
        page.keyboard.press("Control+k")
        page.keyboard.type(words)
        expect(page.locator(".palette [aria-selected=true]")).to_contain_text("other")
        page.keyboard.press("Enter")
        leave(page)
    assert not orders, orders
    it.close()


@check
def a_priority_names_what_it_loads_and_evicts_and_can_be_undone(browser):
    unload("small", "other")
    for model in ("filler", "large"):
        api("POST", "load", {"model": model})
    it = tab(browser)
    page = it.go("models?find=small")
    dialog = page.get_by_role("dialog")
    page.get_by_role("button", name="Higher").click()
    expect(dialog.get_by_role("button", name="Set priority 1", exact=True)).to_be_enabled()
    dialog.get_by_label("Priority", exact=True).fill("2")
    confirm = dialog.get_by_role("button", name="Set priority 2, load small and evict filler", exact=True)
    expect(confirm).to_be_enabled()
    expect(dialog.get_by_role("heading", name="Leaves")).to_be_visible()
    picture(page, "priority-that-evicts")
    page.keyboard.press("Escape")
    assert (model_of("small")["priority"], model_of("filler")["state"]) == (0, "ready"), "a look at the effect changed it"
    # Between the preview and the click the pool changes: the new effect has to be confirmed.
    page.get_by_role("button", name="Higher").click()
    dialog.get_by_label("Priority", exact=True).fill("2")
    expect(confirm).to_be_enabled()
    unload("filler")
    confirm.click()
    expect(dialog.get_by_role("alert")).to_contain_text("has changed since this preview")
    assert model_of("small")["priority"] == 0, "it was ordered"
    dialog.get_by_role("button", name="Set priority 2 and load small", exact=True).click()
    message = page.locator(".message", has_text="small: priority 2")
    message.get_by_role("button", name="Undo…").click()
    expect(dialog.get_by_label("As in the catalogue")).to_be_checked()
    dialog.get_by_role("button", name="Restore the catalogue’s priority").click()
    expect(page.locator(".message", has_text="small: the catalogue’s priority")).to_be_visible()
    small = model_of("small")
    assert (small["priority"], small["override"]) == (0, None), small
    unload("small", "large")
    it.close()


@check
def a_lease_names_what_it_loads_and_is_shown_with_the_model(browser):
    unload("small", "other", "large")
    api("POST", "load", {"model": "filler"})
    it = tab(browser)
    page = it.go("models?find=large")
    page.get_by_role("button", name="Actions for large").click()
    page.get_by_role("menuitem", name="Lease…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Duration").fill("1h")
    dialog.get_by_label("Priority", exact=True).fill("2")
    dialog.get_by_role("button", name="Lease for 1h and load large", exact=True).click()
    expect(page.locator(".table-body .lease")).to_contain_text("lease", timeout=PATIENCE_MS)
    api("PATCH", "models", {"priority": None, "keep_hot": None, "lease": None}, "?model=large")
    unload("large", "filler")
    it.close()


def boxes(page):
    rows = page.locator(".table-body .table-row").all()
    return {row.locator(".name").first.inner_text(): row.bounding_box()["y"] for row in rows}


@check
def rows_stay_under_the_pointer_and_the_focus(browser):
    unload("large", "filler")
    for model in ("small", "other"):
        api("POST", "load", {"model": model})
    it = tab(browser)
    page = it.go("models")
    row = lambda name: page.locator(".table-body .table-row", has=page.get_by_label(f"Choose {name}"))
    expect(row("small")).to_contain_text("Ready")
    for by in ("pointer", "focus"):
        before = boxes(page)
        assert list(before) == ["other", "small", "steady", "filler", "large"], before
        if by == "pointer":
            row("small").hover()
        else:
            page.keyboard.press("Tab")
            row("small").focus()
        unload("other")
        # The figures go on while the rows stay.
        expect(row("other")).to_contain_text("Cold")
        assert boxes(page) == before, by
        expect(page.locator(".table-held span")).to_be_visible()
        # Another order that the reader asks for counts.
        if by == "pointer":
            page.get_by_role("button", name="Model", exact=True).click()
            assert list(boxes(page)) == ["filler", "large", "other", "small", "steady"], boxes(page)
            page.get_by_role("button", name="State", exact=True).click()
        else:
            page.keyboard.press("Control+k")
            page.keyboard.press("Escape")
            page.get_by_label("Find a model").focus()
        expect(page.locator(".table-held")).to_have_count(0)
        assert list(boxes(page)) == ["small", "steady", "filler", "large", "other"], boxes(page)
        api("POST", "load", {"model": "other"})
        expect(row("other")).to_contain_text("Ready")
    # A row that leaves the list under the pointer leaves its place empty.
    page = it.go("models?state=ready")
    row("small").hover()
    before = boxes(page)
    unload("other")
    expect(row("other")).to_contain_text("Cold")
    assert boxes(page) == before
    page.mouse.move(2, 2)
    expect(row("other")).to_have_count(0)
    it.close()


@check
def the_name_of_a_screen_stays_readable_and_the_last_letters_of_a_model_too(browser):
    name = "lab/DeepSeek-R1-Distill-Llama-70B-Instruct-Q4_K_M"
    api("PUT", "models", {"engine_config": {"model_id": name, "type": "CommandEngine", "command": ["true", "{{ port }}"], "ready_path": "/health"}, "pool_config": {"memory_gib": 1}})
    it = tab(browser, width=390, height=800)
    try:
        page = it.go("models?find=deepseek")
        shown = page.locator(".table-body .name").first
        expect(shown).to_be_visible()
        head, tail = shown.locator(".name-start"), shown.locator(".name-start + span")
        assert tail.inner_text() == name[-9:] and shown.get_attribute("title") == name
        assert head.evaluate("it => it.scrollWidth > it.clientWidth"), "the name should be too long for 390 pixels"
        box, around = tail.bounding_box(), shown.bounding_box()
        assert box["x"] + box["width"] <= around["x"] + around["width"] + 1, "the last letters are cut"
        assert not re.search("…", shown.inner_text()), "it is cut twice"
    finally:
        api("DELETE", "models", query=f"?model={name}")
    it.close()
