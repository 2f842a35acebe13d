"""The signs of states under churn: each has the look of its state, and the state is the API's."""

from playwright.sync_api import expect

from tab import api, check, tab, unload

# Each sign with the look that it has, and the look that a fresh copy of it has at the same place.
SIGNS = """() => [...document.querySelectorAll('.state')].map(it => {
  const sign = it.querySelector('.state-sign'), copy = sign.cloneNode(true);
  const look = of => { const style = getComputedStyle(of); return [style.borderTopColor, style.backgroundColor, style.backgroundImage, style.animationName, style.clipPath, style.borderRadius].join(); };
  const has = look(sign);
  it.append(copy);
  const should = look(copy);
  copy.remove();
  return { word: it.innerText.trim(), tone: it.dataset.tone, has, should };
})"""
# The words and tones of the states, as the API names them.
WORDS = {"ready": ("good", "Ready"), "cold": ("none", "Cold")}


def wrong(page):
    """The signs that look like another state's, and how many there are."""
    signs = page.evaluate(SIGNS)
    return [f"{one['word']} ({one['tone']}): {one['has']}, not {one['should']}" for one in signs if one["has"] != one["should"]], len(signs)


@check
def every_sign_of_a_state_follows_the_api_while_the_pool_changes(browser):
    unload("large", "filler", "small", "other")
    it, devices = tab(browser), tab(browser)
    page = it.go("models")
    devices.go("devices?device=gpu0")
    found, looks = [], 0
    steps = [("load", "filler"), ("load", "small"), ("load", "other"), ("load", "large"), ("unload", "large"), ("load", "small"), ("unload", "filler"), ("unload", "small"), ("unload", "other")] * 4
    for nth, (order, model) in enumerate(steps):
        if order == "load":
            api("POST", "load", {"model": model, "wait": False})
        else:
            unload(model)
        # On the way to the next state, as often as the page draws.
        for _ in range(6):
            page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
            for one in (page, devices.page):
                bad, count = wrong(one)
                found += [f"step {nth}, {order} {model}: {sign}" for sign in bad]
                looks += count
        if order == "load":
            api("POST", "load", {"model": model})
        for one in api("GET", "models")["models"]:
            if one["state"] in WORDS:
                tone, word = WORDS[one["state"]]
                state = page.locator(".table-body .table-row", has=page.get_by_label(f"Choose {one['model']}")).locator(".state")
                expect(state).to_have_attribute("data-tone", tone)
                expect(state).to_contain_text(word)
        bad, count = wrong(page)
        found += [f"step {nth}, settled: {sign}" for sign in bad]
        looks += count
    print(f"{len(found)} of {looks} signs wrong, Chromium {browser.version}")
    assert looks > 500 and not found, "\n".join(found[:20])
    unload("large", "filler", "small", "other")
    it.close()
    devices.close()
