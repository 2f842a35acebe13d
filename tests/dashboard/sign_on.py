"""Signing in at an issuer. MODEL_POOL_ISSUER names its host; `ann` (staff), `bob` (students), `gus` (guests) and `eve` (no group) have
accounts there, all with the word `word`."""

import os
import re

from playwright.sync_api import expect

from tab import ADMIN, PATIENCE_MS, URL, Tab, check, picture

ISSUER = os.environ.get("MODEL_POOL_ISSUER", "")


def at_issuer(page, person, does="Continue"):
    """What a person does at the issuer's own page."""
    expect(page.get_by_role("heading", name="The lab's sign-in")).to_be_visible(timeout=PATIENCE_MS)
    assert page.url.startswith(f"http://{ISSUER}/"), page.url
    page.get_by_label("Name").fill(person)
    page.get_by_label("Word").fill("word")
    page.get_by_role("button", name=does).click()


def begin(page):
    page.get_by_role("link", name=f"Sign in at {ISSUER}").click()


@check
def issuer_and_page_sign_an_administrator_in_where_they_wanted_to_be(browser):
    it = Tab(browser)
    page = it.go("models?find=tiny")
    picture(page, "sign-in-light")
    begin(page)
    at_issuer(page, "ann")
    expect(page.get_by_role("heading", name="Models", level=1)).to_be_visible(timeout=PATIENCE_MS)
    expect(page.get_by_label("Find a model")).to_have_value("tiny")
    assert page.url == f"{URL}/dashboard#/models?find=tiny", "the address has no code and no state"
    expect(page.get_by_role("button", name=re.compile("Signed in as ann, administrator"))).to_be_visible()
    cookies = it.context.cookies(URL)
    assert [(one["httpOnly"], one["sameSite"]) for one in cookies] == [(True, "Strict")], cookies
    kept = page.evaluate("JSON.stringify([Object.entries(localStorage), Object.entries(sessionStorage), document.cookie, performance.getEntries().map(it => it.name)])")
    assert "code=" not in kept and "eyJ" not in kept, kept
    # An administrator steers.
    page.get_by_label("Priority of tiny-chat").fill("1")
    page.get_by_label("Priority of tiny-chat").press("Enter")
    page.get_by_role("dialog").get_by_role("button", name=re.compile("^Set priority 1")).click()
    expect(page.locator(".message").first).to_be_visible()
    # Going back does not use the code again, and leads to no error.
    page.go_back()
    page.go_forward()
    expect(page.get_by_role("heading", name="Models", level=1)).to_be_visible(timeout=PATIENCE_MS)
    page.get_by_role("button", name=re.compile("Signed in as ann")).click()
    page.get_by_role("menuitem", name="Sign out").click()
    expect(page.get_by_role("link", name=f"Sign in at {ISSUER}")).to_be_visible()
    it.close()


@check
def issuer_groups_decide_what_a_person_sees(browser):
    it = Tab(browser)
    begin(it.page)
    at_issuer(it.page, "bob")
    expect(it.page.get_by_role("heading", name="Your models", level=1)).to_be_visible(timeout=PATIENCE_MS)
    page = it.go("usage")
    expect(page.locator(".lines-card")).to_contain_text("bob")
    expect(page.locator(".lines-card")).to_contain_text("You have no key")
    it.close()
    it = Tab(browser)
    begin(it.page)
    at_issuer(it.page, "gus")
    expect(it.page.get_by_role("heading", name="Pool", level=1)).to_be_visible(timeout=PATIENCE_MS)
    expect(it.page.get_by_role("button", name=re.compile("gus, viewer"))).to_be_visible()
    expect(it.go("evening").get_by_role("button", name="Run the cleanup…")).to_be_disabled()
    it.close()


@check
def issuer_refusals_are_said_and_a_key_goes_on(browser):
    it = Tab(browser, theme="dark")
    page = it.page
    begin(page)
    at_issuer(page, "eve")
    expect(page.get_by_role("alert")).to_contain_text("none of your groups may use this pool", timeout=PATIENCE_MS)
    picture(page, "sign-in-no-group-dark")
    begin(page)
    at_issuer(page, "ann", does="Cancel")
    expect(page.get_by_role("alert")).to_contain_text("did not sign you in", timeout=PATIENCE_MS)
    # A link with a word of somebody's choice shows nothing.
    page.goto("about:blank")
    page.goto(f"{URL}/dashboard#/sign-on?failed=%3Cb%3ECall%20me%3C%2Fb%3E")
    expect(page.get_by_role("button", name="Sign in with the key")).to_be_visible()
    assert page.get_by_role("alert").count() == 0 and "Call me" not in page.content()
    # A code that another browser began with does not count.
    page.goto(f"{URL}/session/signed-on?code=x&state={'A' * 43}")
    expect(page.get_by_role("alert")).to_contain_text("was started in another browser")
    it.sign_in(ADMIN)
    expect(page.get_by_role("heading", name="Pool", level=1)).to_be_visible()
    it.close()


@check
def issuer_is_reached_with_the_keyboard_and_a_session_that_ends_goes_on_at_its_place(browser):
    it = Tab(browser)
    page = it.page
    link = page.get_by_role("link", name=f"Sign in at {ISSUER}")
    expect(link).to_be_visible()
    page.keyboard.press("Shift+Tab")
    expect(link).to_be_focused()
    page.keyboard.press("Enter")
    at_issuer(page, "ann")
    expect(page.get_by_role("heading", name="Pool", level=1)).to_be_visible(timeout=PATIENCE_MS)
    it.go("events?kind=set")
    expect(page.get_by_role("heading", name="Events", level=1)).to_be_visible()
    it.context.clear_cookies()
    page.keyboard.press("g")
    page.keyboard.press("k")
    expect(page.get_by_role("heading", name="Your session has ended")).to_be_visible(timeout=PATIENCE_MS)
    # The page may learn of the end between the two keys, and then stays where it is.
    place = "Keys" if "keys" in page.evaluate("location.hash") else "Events"
    begin(page)
    at_issuer(page, "ann")
    expect(page.get_by_role("heading", name=place, level=1)).to_be_visible(timeout=PATIENCE_MS)
    it.close()
