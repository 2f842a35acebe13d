"""Events and the audit by group."""

import re

from playwright.sync_api import expect

from tab import check, tab


def event(nth, group):
    return {"id": nth, "at": f"2026-01-31T20:15:0{nth}.000Z", "kind": "refuse", "model": f"model-{nth}", "reason": f"reason {nth}", "cause": "no_room", "group": group,
            "took_ms": None, "replica": None, "order": None, "priority": 0}


EVENTS = [event(1, "physics/lab"), event(2, "physics"), event(3, "chemistry"), event(4, None)]


@check
def events_are_filtered_by_group_with_the_groups_below_it(browser):
    it = tab(browser)
    asked = []

    def events(route):
        asked.append(route.request.url)
        route.fulfill(json={"events": EVENTS})

    it.page.route(re.compile(r"/admin/events\?"), events)
    it.page.reload()
    page = it.go("events")
    rows = page.locator(".table-body .table-row")
    group = page.get_by_label("Group")
    expect(group.locator("option")).to_have_text(["Every group", "chemistry", "physics", "physics/lab"])
    group.select_option("physics")
    expect(rows).to_have_count(2)
    assert any("group=physics" in url for url in asked), asked
    group.select_option("physics/lab")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("reason 1")
    it.close()
