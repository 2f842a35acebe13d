"""Batches: the list with its progress, the order in which they run, and changes that a dialog confirms."""

import re

from playwright.sync_api import expect

from tab import ADMIN, PATIENCE_MS, USER, VIEWER, api, check, paused_batch, tab


def state_of(batch):
    return next(one for one in api("GET", "batches")["batches"] if one["id"] == batch)


def row(page, batch):
    return page.locator(".table-body .table-row", has=page.locator(f'[title="{batch}"]'))


def menu(page, batch):
    page.get_by_role("button", name=f"Actions for the batch {batch}").click()
    return page.get_by_role("menu")


def choose(page, batch, item):
    menu(page, batch).get_by_role("menuitem", name=item).click()
    return page.get_by_role("dialog")


@check
def an_administrator_sees_all_batches_and_confirms_every_change(browser):
    first, second, third = (paused_batch("steady", 60) for _ in range(3))
    api("PATCH", "batches", {"rank": 7}, f"?id={first}")
    api("PATCH", "batches", {"rank": 5}, f"?id={second}")
    it = tab(browser, ADMIN)
    page = it.go("batches")
    expect(page.get_by_role("heading", name="Batches", level=1)).to_be_visible()
    for words in ("a user", "steady", "of 60", "Paused", "until"):
        expect(row(page, first)).to_contain_text(words)
    assert row(page, first).get_by_role("img").get_attribute("aria-label").endswith("failed of 60")
    order = [one.get_attribute("title") for one in page.locator(".table-body .stack > b").all()]
    assert order[:3] == [first, second, third], order
    # The ends of the list have no neighbour.
    items = menu(page, first)
    expect(items.get_by_role("menuitem", name="Run earlier…")).to_have_attribute("aria-disabled", "true")
    page.keyboard.press("Escape")
    dialog = choose(page, third, "Run earlier…")
    expect(dialog).to_contain_text(f"before {second}")
    assert state_of(third)["rank"] == 0, "a look at the effect changed it"
    dialog.get_by_role("button", name=re.compile("^Set rank [56]$")).click()
    expect(page.locator(".message")).to_contain_text("rank", timeout=PATIENCE_MS)
    assert state_of(third)["rank"] >= 5
    dialog = choose(page, first, "Resume…")
    assert state_of(first)["model_pool"]["paused"], "a look at the effect changed it"
    dialog.get_by_role("button", name="Resume", exact=True).click()
    expect(row(page, first)).to_contain_text("Completed", timeout=PATIENCE_MS)
    expect(row(page, first)).to_contain_text("60 of 60")
    dialog = choose(page, second, "Cancel…")
    dialog.get_by_role("button", name="Cancel the batch").click()
    expect(row(page, second)).to_contain_text("Cancelled", timeout=PATIENCE_MS)
    page.get_by_role("button", name="Open", exact=True).click()
    expect(row(page, second)).to_have_count(0)
    expect(row(page, third)).to_be_visible()
    page.get_by_label("Find a batch").fill("no such batch")
    expect(page.get_by_text("No batch is like this")).to_be_visible()
    api("POST", "batches/cancel", {}, f"?id={third}")
    it.close()


@check
def a_viewer_changes_no_batch_and_a_user_sees_and_cancels_own_batches(browser):
    own = paused_batch("steady", 60)
    it = tab(browser, VIEWER)
    page = it.go("batches")
    for item in menu(page, own).get_by_role("menuitem").all():
        expect(item).to_have_attribute("aria-disabled", "true")
    it.close()
    it = tab(browser, USER)
    page = it.go("batches")
    expect(page.get_by_role("heading", name="Your batches", level=1)).to_be_visible()
    expect(row(page, own)).to_contain_text("Paused")
    items = menu(page, own)
    expect(items.get_by_role("menuitem", name="Pause…")).to_have_count(0)
    expect(items.get_by_role("menuitem", name="Resume…")).to_have_count(0)
    expect(items.get_by_role("menuitem", name="Save results")).to_have_attribute("aria-disabled", "true")
    page.keyboard.press("Escape")
    dialog = choose(page, own, "Cancel…")
    expect(dialog).to_contain_text("cannot be undone")
    dialog.get_by_role("button", name="Cancel the batch").click()
    expect(row(page, own)).to_contain_text("Cancelled", timeout=PATIENCE_MS)
    assert state_of(own)["status"] == "cancelled"
    it.close()
