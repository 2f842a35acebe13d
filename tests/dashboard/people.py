"""People with different rights, sessions that end, and connections that break."""

import re

from playwright.sync_api import expect

from tab import PATIENCE_MS, URL, USER, VIEWER, WIDTHS, check, tab


@check
def a_viewer_sees_everything_and_changes_nothing(browser):
    it = tab(browser, VIEWER)
    expect(it.page.get_by_role("button", name=re.compile("viewer"))).to_be_visible()
    page = it.go("models?model=steady")
    panel = page.get_by_role("complementary", name="Model steady")
    expect(panel.get_by_role("button", name="Unload", exact=True)).to_be_disabled()
    assert page.get_by_label("Priority of steady").count() == 0, "a viewer edits a priority"
    panel.get_by_role("button", name="Plan a load").click()
    expect(page.get_by_role("dialog")).to_contain_text("change nothing")
    page.keyboard.press("Escape")
    for screen, words in (("devices?device=gpu0", "Take out of service…"), ("evening", "Run the cleanup…"), ("config", "Reload…")):
        expect(it.go(screen).get_by_role("button", name=words)).to_be_disabled()
    it.close()


@check
def a_user_has_a_page_of_their_own(browser):
    it = tab(browser, USER)
    page = it.page
    expect(page.get_by_role("heading", name="Your models", level=1)).to_be_visible()
    expect(page.locator(".table-body")).to_contain_text("steady")
    assert page.get_by_role("link", name="Keys").count() == 0
    expect(page.get_by_role("group", name="Today")).to_contain_text("requests today")
    page = it.go("keys")
    expect(page.get_by_role("heading", name="Your models", level=1)).to_be_visible()
    page = it.go("playground?models=steady")
    page.get_by_label("Message", exact=True).fill("hello")
    page.get_by_label("Message", exact=True).press("Enter")
    expect(page.locator(".turn-facts")).to_contain_text("first token", timeout=PATIENCE_MS)
    page = it.go("usage")
    expect(page.locator(".usage-table")).to_contain_text("steady", timeout=PATIENCE_MS)
    expect(page.get_by_role("img", name=re.compile("tokens by day"))).to_be_visible()
    expect(page.locator(".lines-card")).to_contain_text("a user")
    assert USER not in page.content(), "the page shows the key"
    for width, height in WIDTHS[:2]:
        page.set_viewport_size({"width": width, "height": height})
        for screen in ("home", "usage", "batches"):
            it.go(screen)
            page.wait_for_timeout(300)
            wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
            assert wide <= 0, f"{screen} is {wide} px too wide at {width}"
    it.close()


@check
def a_session_that_ends_is_told_and_signing_in_goes_on_at_the_same_place(browser):
    it = tab(browser)
    page = it.go("devices")
    expect(page.get_by_role("heading", name="Devices", level=1)).to_be_visible()
    origin = URL.split("/llm")[0]
    answer = it.context.request.delete(f"{URL}/session", headers={"x-model-pool-csrf": "1", "origin": origin})
    assert answer.status == 204, answer.text()
    page.keyboard.press("g")
    page.keyboard.press("k")
    expect(page.get_by_role("heading", name="Your session has ended")).to_be_visible(timeout=PATIENCE_MS)
    it.sign_in()
    expect(page.get_by_role("heading", name="Keys", level=1)).to_be_visible()
    it.close()


@check
def a_lost_connection_is_told_and_comes_back_by_itself(browser):
    it = tab(browser)
    expect(it.page.locator(".connection")).to_have_attribute("data-status", "live")
    it.context.set_offline(True)
    expect(it.page.locator(".lost")).to_contain_text("is lost", timeout=PATIENCE_MS)
    expect(it.page.locator(".connection")).to_have_attribute("data-status", "lost")
    it.context.set_offline(False)
    expect(it.page.locator(".connection")).to_have_attribute("data-status", "live", timeout=PATIENCE_MS)
    expect(it.page.locator(".lost")).to_have_count(0)
    it.close()
