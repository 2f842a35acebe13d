"""Seeing the pool and steering it: plans, loads, priorities, keys, and what goes wrong between two clicks."""

import re

from playwright.sync_api import expect

from tab import ADMIN, PATIENCE_MS, Tab, api, check, tab, unload


@check
def a_wrong_key_is_refused_in_words_and_the_right_one_opens_the_pool(browser):
    it = Tab(browser)
    it.page.get_by_label("Key", exact=True).fill("mp-" + "x" * 43)
    it.page.keyboard.press("Enter")
    expect(it.page.get_by_role("alert")).to_contain_text("key", timeout=PATIENCE_MS)
    it.page.get_by_label("Key", exact=True).fill("")
    it.sign_in()
    expect(it.page.get_by_role("heading", name="Pool", level=1)).to_be_visible()
    expect(it.page.locator(".bar")).to_have_count(2)
    cookies = [cookie for cookie in it.context.cookies() if cookie["httpOnly"]]
    assert len(cookies) == 1 and cookies[0]["sameSite"] == "Strict", cookies
    kept = it.page.evaluate("JSON.stringify([Object.entries(localStorage), Object.entries(sessionStorage), document.cookie])")
    assert ADMIN not in kept, "the key is kept in the browser"
    it.close()


@check
def a_block_explains_itself_and_leads_to_its_model(browser):
    it = tab(browser)
    block = it.page.locator(".block[data-kind=replica]", has_text="steady").first
    block.hover()
    expect(it.page.locator(".tip")).to_contain_text("always hot")
    box, bar = block.bounding_box(), it.page.locator(".bar", has=block).first.bounding_box()
    assert 0.05 < box["width"] / bar["width"] < 0.2, "2 GiB of 16 GiB are an eighth of the bar"
    block.click()
    panel = it.page.get_by_role("complementary", name="Model steady")
    expect(panel).to_contain_text("Ready")
    it.page.keyboard.press("Escape")
    expect(panel).to_have_count(0)
    it.close()


@check
def the_keyboard_alone_plans_and_loads_a_model(browser):
    unload("small", "other", "large")
    it = tab(browser)
    page = it.page
    page.keyboard.press("g")
    page.keyboard.press("m")
    expect(page.get_by_role("heading", name="Models", level=1)).to_be_visible()
    page.keyboard.press("/")
    page.keyboard.type("small")
    expect(page.locator(".table-body .table-row")).to_have_count(1)
    page.keyboard.press("Control+k")
    page.keyboard.type("load small")
    expect(page.locator(".palette [aria-selected=true]")).to_contain_text("Load small")
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("fits without evicting anything")
    expect(dialog.locator(".block[data-new]")).to_have_count(1)
    load = dialog.get_by_role("button", name="Load", exact=True)
    for _ in range(20):
        if load.evaluate("it => it === document.activeElement"):
            break
        page.keyboard.press("Tab")
    expect(load).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator(".message")).to_contain_text("small is ready", timeout=PATIENCE_MS)
    expect(page.locator(".table-body .table-row").first).to_contain_text("Ready")
    assert api("GET", "models", query="?model=small")["models"][0]["state"] == "ready"
    it.close()


@check
def a_plan_shows_who_leaves_and_why_tells_it_afterwards(browser):
    unload("large")
    for model in ("small", "other"):
        api("POST", "load", {"model": model})
    api("POST", "devices/cordon", {"device": "gpu1", "reason": "<script>alert(1)</script> a fan", "now": True})
    try:
        it = tab(browser)
        page = it.go("models?model=large")
        panel = page.get_by_role("complementary", name="Model large")
        panel.get_by_role("button", name="Plan and load").click()
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text("evicted")
        assert dialog.locator(".block[data-gone]").count() >= 1, "nobody leaves in the picture"
        expect(dialog.get_by_role("heading", name="Leaves")).to_be_visible()
        dialog.get_by_role("button", name=re.compile("Load and evict")).click()
        expect(page.locator(".message")).to_contain_text("large is ready", timeout=PATIENCE_MS)
        expect(page.locator(".message")).to_contain_text("Evicted")
        page = it.go("events?kind=evict")
        page.locator(".table-body .table-row").first.click()
        why = page.get_by_role("region", name="The decision")
        expect(why).to_contain_text("large")
        expect(why.locator(".candidates li[data-chosen]").first).to_be_visible(timeout=PATIENCE_MS)
        expect(why.locator(".memory-changes")).to_be_visible()
        page = it.go("pool")
        expect(page.locator(".device-trouble")).to_contain_text("<script>alert(1)</script>")
        it.close()
    finally:
        api("POST", "devices/uncordon", {"device": "gpu1"})


@check
def an_outdated_plan_orders_nothing_and_shows_the_new_one(browser):
    unload("small", "other", "large", "filler")
    it = tab(browser)
    page = it.go("models?model=large")
    page.get_by_role("complementary", name="Model large").get_by_role("button", name="Plan and load").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("fits without evicting anything")
    # The empty device is taken, and the other one has no room left for it.
    for model in ("filler", "small"):
        api("POST", "load", {"model": model})
    dialog.get_by_role("button", name="Load", exact=True).click()
    expect(dialog.get_by_role("alert")).to_contain_text("has changed since this plan was made")
    expect(dialog.get_by_role("button", name=re.compile("Load and evict"))).to_be_visible()
    assert api("GET", "models", query="?model=large")["models"][0]["replicas"] == [], "it was ordered"
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    unload("filler")
    it.close()


@check
def a_model_that_vanishes_while_its_dialog_is_open_is_told(browser):
    name = "lab/" + "n" * 150
    small = {"engine_config": {"model_id": name, "type": "CommandEngine", "command": ["true", "{{ port }}"], "ready_path": "/health"}, "pool_config": {"memory_gib": 1}}
    api("PUT", "models", small)
    it = tab(browser)
    page = it.go(f"models?model={name}")
    page.get_by_role("complementary").get_by_role("button", name="Plan and load").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator(".plan-verdict")).to_be_visible()
    shown = dialog.locator(".name").first
    assert len(shown.inner_text()) < 100 and name in shown.get_attribute("title"), "a long name is cut, and whole in the title"
    api("DELETE", "models", query=f"?model={name}")
    expect(dialog.get_by_role("alert")).to_contain_text("not in the catalogue any more")
    expect(dialog.get_by_role("button", name="Load", exact=True)).to_be_disabled()
    page.keyboard.press("Escape")
    expect(page.get_by_role("complementary").get_by_role("alert")).to_contain_text("not in the catalogue")
    it.close()


@check
def two_administrators_change_a_priority_and_both_see_the_later_one(browser):
    api("PATCH", "models", {"priority": None}, "?model=other")
    one, other = tab(browser), tab(browser)
    field = lambda it: it.page.get_by_role("textbox", name="Priority of other")
    for it in (one, other):
        it.go("models?find=other")
        expect(field(it)).to_be_visible()
    for it, priority in ((one, "1"), (other, "0")):
        field(it).fill(priority)
        field(it).press("Enter")
        it.page.get_by_role("dialog").get_by_role("button", name=re.compile(f"^Set priority {priority}")).click()
        for seen in (one, other):
            expect(field(seen)).to_have_value(priority)
    api("PATCH", "models", {"priority": None}, "?model=other")
    one.close()
    other.close()


@check
def several_models_are_unloaded_with_one_confirmation(browser):
    for model in ("small", "other"):
        api("POST", "load", {"model": model})
    it = tab(browser)
    page = it.go("models")
    for model in ("small", "other"):
        page.get_by_label(f"Choose {model}").check()
    page.get_by_role("region", name="Chosen models").get_by_role("button", name="Unload…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("small")
    expect(dialog).to_contain_text("other")
    expect(dialog).to_contain_text("become free")
    dialog.get_by_role("button", name="Unload 2 replicas").click()
    expect(page.locator(".message", has_text="small is unloaded")).to_be_visible()
    expect(page.locator(".message", has_text="other is unloaded")).to_be_visible()
    it.close()


@check
def what_a_cordon_would_move_is_shown_before_it_is_ordered(browser):
    it = tab(browser)
    where = api("GET", "models", query="?model=steady")["models"][0]["replicas"][0]["devices"][0]["device"]
    page = it.go(f"devices?device={where}")
    page.get_by_role("button", name="What if…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("would leave")
    expect(dialog.get_by_role("heading", name="Loads")).to_be_visible()
    dialog.get_by_role("button", name="Close").last.click()
    assert api("GET", "models", query="?model=steady")["models"][0]["replicas"][0]["devices"][0]["device"] == where
    it.close()


@check
def a_key_is_made_shown_once_and_revoked(browser):
    it = tab(browser)
    page = it.go("keys")
    page.get_by_role("button", name="New key").click()
    page.get_by_label("Name", exact=True).fill("<script>alert(1)</script> course")
    page.get_by_role("button", name="Create key").click()
    made = page.locator("#new-key")
    expect(made).to_have_text(re.compile(r"^mp-.{43}$"))
    page.get_by_role("button", name="Done").click()
    row = page.locator(".table-body .table-row", has_text="<script>alert(1)</script> course")
    expect(row).to_be_visible()
    row.get_by_role("button", name=re.compile("Actions for the key")).click()
    page.get_by_role("menuitem", name="Revoke…").click()
    page.get_by_role("dialog").get_by_role("button", name="Revoke").click()
    expect(row).to_have_count(0)
    page = it.go("audit")
    expect(page.locator(".table-body .table-row").first).to_contain_text("DELETE")
    it.close()


@check
def every_value_of_the_configuration_says_where_it_comes_from(browser):
    it = tab(browser)
    page = it.go("config")
    row = lambda key: page.locator(".config-rows > div").filter(has=page.get_by_role("button", name=key, exact=True))
    expect(row("provider")).to_contain_text(re.compile(r"fixed\s*line \d+"))
    expect(row("keep_hot")).to_contain_text("default")
    page.get_by_label("Hide defaults").check()
    expect(row("keep_hot")).to_have_count(0)
    expect(row("provider")).to_be_visible()
    it.close()
