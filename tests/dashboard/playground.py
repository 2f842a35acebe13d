"""Talking with models, voting, and the logs of engines."""

from playwright.sync_api import expect

from tab import PATIENCE_MS, USER, api, check, picture, tab


@check
def a_log_is_text_without_escapes_and_can_be_searched_and_kept(browser):
    api("POST", "load", {"model": "small"})
    it = tab(browser)
    page = it.go("logs?model=small")
    line = page.locator(".log-line", has_text="<img src=x onerror=alert(1)>")
    expect(line).to_be_visible()
    expect(line).to_contain_text("green <img src=x onerror=alert(1)> plain")
    assert page.locator(".log-frame img, .log-frame script").count() == 0
    assert "\u001b" not in page.locator(".log-frame").inner_text()
    page.get_by_label("Find in the log").fill("onerror")
    expect(page.locator("mark").first).to_have_text("onerror")
    with page.expect_download() as download:
        page.get_by_role("button", name="Download").click()
    text = open(download.value.path(), encoding="utf-8").read()
    assert "<img src=x onerror=alert(1)>" in text, text[:500]
    it.close()


@check
def the_playground_streams_two_models_side_by_side(browser):
    it = tab(browser)
    page = it.go("playground?models=small,steady")
    page.get_by_label("Message", exact=True).fill("<script>alert(1)</script> hello")
    page.get_by_label("Message", exact=True).press("Enter")
    for model in ("small", "steady"):
        talk = page.get_by_role("region", name=f"Talk with {model}")
        expect(talk.locator(".turn-facts")).to_contain_text("first token", timeout=PATIENCE_MS)
        expect(talk.locator(".turn-facts")).to_contain_text("tokens/s")
        expect(talk.locator(".turn-prompt")).to_have_text("<script>alert(1)</script> hello")
    it.close()


@check
def the_playground_takes_a_vote_and_the_leaderboard_shows_it(browser):
    it = tab(browser, USER)
    page = it.go("leaderboard")
    expect(page.get_by_text("Nobody has voted yet")).to_be_visible()
    page = it.go("playground?models=small,steady")
    message = page.get_by_label("Message", exact=True)
    message.fill("Which of you is better?")
    message.press("Enter")
    vote = page.get_by_role("region", name="Your vote")
    expect(vote).to_contain_text("Which answer is better?", timeout=PATIENCE_MS)
    picture(page, "vote-before")
    vote.get_by_role("button", name="Right is better").click()
    vote = page.get_by_label("Your vote")
    expect(vote).to_contain_text("You chose steady")
    expect(vote).to_contain_text("1016 (+16.0)")
    expect(vote).to_contain_text("984 (−16.0)")
    picture(page, "vote-after")
    # A second question is a second comparison.
    message.fill("And now?")
    message.press("Enter")
    expect(vote.get_by_role("button", name="Tie")).to_be_visible(timeout=PATIENCE_MS)
    vote.get_by_role("button", name="Tie").click()
    expect(vote).to_contain_text("A tie.")
    vote.get_by_role("link", name="Leaderboard").click()
    rows = page.locator(".table-body .table-row")
    expect(rows).to_have_count(2)
    expect(rows.first).to_contain_text("steady")
    # A tie with a weaker one costs 32 x (0.546 - 0.5) of the 16 points.
    expect(rows.first).to_contain_text("1015")
    expect(rows.first).to_contain_text("1 · 0 · 1")
    expect(rows.nth(1)).to_contain_text("0 · 1 · 1")
    picture(page, "leaderboard")
    it.close()


@check
def the_names_of_models_are_hidden_until_the_vote(browser):
    it = tab(browser, USER)
    page = it.go("playground?models=small,steady")
    page.get_by_label("Hide names until you vote").check()
    message, main = page.get_by_label("Message", exact=True), page.locator("main")
    seen = set()
    for nth in range(12):
        message.fill(f"Question {nth}")
        message.press("Enter")
        vote = page.get_by_label("Your vote")
        expect(vote.get_by_role("button", name="Tie")).to_be_visible(timeout=PATIENCE_MS)
        answers = page.locator(".talk")
        expect(answers.first.locator("header")).to_have_text("Answer A")
        expect(answers.nth(1).locator("header")).to_have_text("Answer B")
        # A model may say its own name in its answer.
        shown = main.evaluate("it => { const copy = it.cloneNode(true); for (const one of copy.querySelectorAll('.turn-text')) one.remove(); return copy.outerHTML; }")
        for name in ("small", "steady", "tokens/s"):
            assert name not in shown, f"{name} is in the page before the vote: {shown}"
        if nth == 0:
            picture(page, "vote-hidden")
        vote.get_by_role("button", name="Left is better").click()
        expect(vote).to_contain_text("You chose")
        left = answers.first.locator("header .name").inner_text()
        assert " ".join(vote.inner_text().split()).startswith(f"You chose {left}"), vote.inner_text()
        expect(page.get_by_role("region", name=f"Talk with {left}").locator(".turn-facts")).to_be_visible()
        seen.add(left)
        if len(seen) == 2:
            break
    assert seen == {"small", "steady"}, f"in {nth + 1} comparisons the left one was always {seen}"
    it.close()


@check
def the_playground_shows_how_near_texts_are_and_which_answers_a_question_best(browser):
    it = tab(browser)
    page = it.go("playground?mode=embeddings&models=small")
    texts = page.get_by_label("Texts, one a line")
    # The stub's vector is the number of letters, and of words.
    texts.fill("one two\n\none two\n<b>bold</b>")
    page.get_by_role("button", name="Embed", exact=True).click()
    answer = page.locator("section", has=page.get_by_role("heading", name="Answer"))
    expect(answer).to_contain_text("3 vectors of 2 numbers")
    cells = [row.locator("td").all_inner_texts() for row in answer.locator("tbody tr").all()]
    assert [row[0] for row in cells] == ["one two", "one two", "<b>bold</b>"], cells
    numbers = [[float(number) for number in row[1:]] for row in cells]
    assert numbers[0][:2] == [1, 1] and numbers[2][2] == 1, numbers
    assert 0.9 < numbers[0][2] == numbers[2][0] < 1, numbers
    assert answer.locator("b").count() == 0
    picture(page, "embeddings")
    page = it.go("playground?mode=rerank&models=small")
    button = page.get_by_role("button", name="Rank", exact=True)
    expect(button).to_be_disabled()
    page.get_by_label("Question").fill("which?")
    texts.fill("short\na much longer text")
    button.click()
    rows = answer.locator("tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.filter(has_text="a much longer text")).to_contain_text("18.0000")
    expect(rows.filter(has_text="short")).to_contain_text("5.0000")
    picture(page, "rerank")
    # What the engine refuses is said.
    page = it.go("playground?mode=embeddings&models=small")
    page.route("**/v1/embeddings", lambda route: route.fulfill(status=400, content_type="application/json", body='{"error": {"message": "no vectors <i>here</i>"}}'))
    texts.fill("one")
    page.get_by_role("button", name="Embed", exact=True).click()
    expect(page.get_by_role("alert")).to_have_text("no vectors <i>here</i>")
    # The browser writes a refusal down itself.
    assert all("status of 400" in one for one in it.complaints), it.complaints
    it.complaints.clear()
    it.close()
