"""Talking with models, voting, and the logs of engines."""

import ast
import json
import os
import re
import shlex
import subprocess

from playwright.sync_api import expect

from tab import ADMIN, PATIENCE_MS, USER, api, check, picture, tab, unload


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
    expect(page.get_by_text("No votes yet")).to_be_visible()
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
    texts = page.get_by_label("Texts, one per line")
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


def answered(page, model, turns=1):
    talk = page.get_by_role("region", name=f"Talk with {model}")
    expect(talk.locator(".turn-facts")).to_have_count(turns, timeout=PATIENCE_MS)
    return talk


def say(page, text):
    message = page.get_by_label("Message", exact=True)
    message.fill(text)
    message.press("Enter")


@check
def a_conversation_outlives_other_screens_and_a_reload_and_ends_with_the_session(browser):
    it = tab(browser)
    # The model that is ready is there to begin with.
    page = it.go("playground")
    expect(page.locator(".talk")).to_have_count(1, timeout=PATIENCE_MS)
    page = it.go("playground?models=small,steady")
    say(page, "first question")
    answered(page, "small")
    texts = page.locator(".turn-text").all_inner_texts()
    page.get_by_label("Message", exact=True).fill("a draft")
    # By the menu, whose link names no model.
    page.get_by_role("link", name="Queue").click()
    expect(page.get_by_role("heading", name="Queue", level=1)).to_be_visible()
    page.get_by_role("link", name="Playground").click()
    expect(page.get_by_label("Message", exact=True)).to_have_value("a draft")
    assert page.locator(".turn-text").all_inner_texts() == texts
    # An answer goes on while another screen is shown.
    say(page, "second question")
    page.get_by_role("link", name="Queue").click()
    page.get_by_role("link", name="Playground").click()
    for model in ("small", "steady"):
        answered(page, model, 2)
    page.get_by_label("Message", exact=True).fill("kept")
    page.reload()
    expect(page.get_by_label("Message", exact=True)).to_have_value("kept")
    expect(page.locator(".turn-prompt")).to_have_count(4)
    page.get_by_role("button", name=re.compile("Signed in as")).click()
    page.get_by_role("menuitem", name="Sign out").click()
    expect(page.get_by_role("button", name="Sign in")).to_be_visible()
    it.sign_in(USER)
    page = it.go("playground?models=small,steady")
    expect(page.locator(".talk")).to_have_count(2)
    expect(page.locator(".turn-prompt")).to_have_count(0)
    expect(page.get_by_label("Message", exact=True)).to_have_value("")
    it.close()


@check
def copied_programs_send_exactly_the_request_that_was_sent(browser):
    it = tab(browser)
    it.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = it.go("playground?models=small")
    sent = []
    page.on("request", lambda request: sent.append(request.post_data_json) if request.url.endswith("/v1/chat/completions") else None)
    expect(page.get_by_label("Message", exact=True)).to_be_visible()
    assert page.get_by_role("button", name="Copy as curl").count() == 0, "there is nothing to copy before a request"
    page.get_by_text("Parameters", exact=True).click()
    page.get_by_label("Temperature").fill("0.5")
    page.get_by_label("System message").fill("Say it's \"true\", or null.")
    for nth, text in enumerate(("one 'quoted' $HOME `question`\nin two lines", "and \\ another: True?")):
        page.get_by_label("Message", exact=True).fill(text)
        page.get_by_label("Message", exact=True).press("Enter")
        answered(page, "small", nth + 1)
    # What is typed later is no part of it.
    page.get_by_label("Message", exact=True).fill("not sent")
    page.get_by_label("Temperature").fill("1")
    assert len(sent) == 2 and len(sent[1]["messages"]) == 4, sent
    page.get_by_role("button", name="Copy as curl").click()
    expect(page.locator(".message", has_text="MODEL_POOL_KEY")).to_be_visible()
    curl = page.evaluate("navigator.clipboard.readText()")
    words = shlex.split(curl)
    assert json.loads(words[words.index("-d") + 1]) == sent[1], curl
    page.get_by_role("button", name="Copy as Python").click()
    expect(page.locator(".message", has_text="Python")).to_be_visible()
    python = page.evaluate("navigator.clipboard.readText()")
    calls = [node for node in ast.walk(ast.parse(python)) if isinstance(node, ast.Call) and node.keywords and node.keywords[0].arg == "model"]
    assert {one.arg: ast.literal_eval(one.value) for one in calls[0].keywords} == sent[1], python
    # And a shell runs it.
    if any(os.access(f"{folder}/curl", os.X_OK) for folder in os.environ["PATH"].split(":")):
        run = subprocess.run(["sh", "-c", curl], env={**os.environ, "MODEL_POOL_KEY": ADMIN}, capture_output=True, text=True, timeout=60)
        assert "data: [DONE]" in run.stdout, run
    it.close()


@check
def the_playground_says_why_there_is_no_vote_and_what_sending_loads(browser):
    unload("other")
    it = tab(browser)
    page = it.go("playground?models=small,steady")
    why = page.locator(".vote-why")
    expect(why).to_contain_text("Ask them the same question")
    page = it.go("playground?models=small")
    say(page, "for one alone")
    answered(page, "small")
    page = it.go("playground?models=small,steady")
    say(page, "for both")
    answered(page, "steady")
    expect(why).to_contain_text("not asked the same questions")
    page.get_by_role("button", name="Start over").click()
    say(page, "for both")
    expect(page.get_by_role("region", name="Your vote")).to_be_visible(timeout=PATIENCE_MS)
    page = it.go("playground?models=other")
    page.get_by_label("Message", exact=True).fill("hello")
    expect(page.get_by_role("button", name="Send and load other")).to_be_visible()
    # Without a model that is ready there is a place to choose one.
    page.get_by_role("button", name="Close").click()
    expect(page.get_by_text("Choose a model to talk to")).to_be_visible()
    page.get_by_label("Choose a model").click()
    page.get_by_role("option", name=re.compile("steady")).click()
    expect(page.locator(".talk")).to_have_count(1)
    it.close()
