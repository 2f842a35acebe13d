"""The page of nodes in a pool whose cluster has granted one lease, lets a set wait, and refuses a size."""

import re

from playwright.sync_api import expect

from looks import axe_of, look
from tab import WIDTHS, check, tab


@check
def leases_sizes_and_a_set_fit_every_width_in_both_themes(browser):
    axe, found = axe_of(), []
    for theme in ("light", "dark"):
        for width, height in WIDTHS:
            it = tab(browser, width=width, height=height, theme=theme)
            page = it.go("nodes")
            requests = page.get_by_role("region", name="Open requests")
            expect(requests).to_contain_text("a100x1")
            expect(requests).to_contain_text("all or none")
            # Each request of the set has a lease and a reason of its own.
            expect(requests.get_by_text(re.compile("all nodes of this shape are in use"))).to_have_count(2)
            expect(page.get_by_text("vm-1", exact=True)).to_be_visible()
            expect(page.get_by_text("Not now")).to_be_visible()
            expect(page.get_by_text(re.compile("No node of size full: .*reached its limit of GPUs"))).to_be_visible()
            expect(page.get_by_text(re.compile("GPU hours")).first).to_be_visible()
            found += look(page, axe, "nodes with leases", width, theme)
            it.close()
    assert not found, "\n".join(found)
