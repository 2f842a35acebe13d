"""Drives Open WebUI in Chromium against a running pool: first message, titles, tools, a text file, stop, images and audio, over both APIs.

    MODEL_POOL_ROOT         the pool's address without a path: http://127.0.0.1:8080
    MODEL_POOL_ADMIN_KEY    an admin key, to look at the pool
    OPEN_WEBUI_URL          Open WebUI, which is set up as docs/guides/clients.md says
    MODEL_POOL_SCREENSHOTS  a folder for pictures; without it there are none

The pool has `tiny-guide`, and engines of the tests: `writer` says what it is scripted to say, `echo` repeats the request, `slow` talks
for a long time, `embedder` makes vectors, and `voice` speaks and writes down speech.
"""

import base64
import json
import os
import struct
import sys
import traceback
import urllib.request
import zlib

from playwright.sync_api import expect, sync_playwright

ROOT, ADMIN, WEB = os.environ["MODEL_POOL_ROOT"], os.environ["MODEL_POOL_ADMIN_KEY"], os.environ["OPEN_WEBUI_URL"]
SHOTS = os.environ.get("MODEL_POOL_SCREENSHOTS")
PATIENCE_MS = 60_000
CHECKS = []


def check(function):
    CHECKS.append(function)
    return function


def pool(path):
    request = urllib.request.Request(f"{ROOT}/llm/admin/{path}", headers={"Authorization": f"Bearer {ADMIN}"})
    with urllib.request.urlopen(request, timeout=30) as response:
        return json.load(response)


def in_flight(model):
    return sum(replica["in_flight"] for replica in pool(f"models?model={model}")["models"][0]["replicas"])


def served(model):
    return pool(f"models?model={model}")["models"][0]["requests_total"]


def until(page, is_so, what):
    """The view of the pool is renewed a few times a second."""
    for _ in range(200):
        if is_so():
            return
        page.wait_for_timeout(100)
    raise AssertionError(f"waited in vain until {what}")


class Chat:
    """A new conversation with one model in a browser window of its own."""

    def __init__(self, browser, model, **context):
        self.context = browser.new_context(viewport={"width": 1280, "height": 900}, **context)
        self.page = self.context.new_page()
        self.page.set_default_timeout(PATIENCE_MS)
        self.page.goto(f"{WEB}/?models={model}")
        self.box = self.page.locator("#chat-input")
        expect(self.box).to_be_visible()
        # The notes of a release cover the page on the first visit.
        self.page.keyboard.press("Escape")
        expect(self.page.locator("#model-selector-model-button")).to_contain_text(model.split(".")[-1].split(":")[0])

    def send(self, text):
        self.box.click()
        self.page.keyboard.insert_text(text)
        self.page.locator("#send-message-button").click()

    def attach(self, name, mime, data):
        self.page.locator("input[type=file]:not([webkitdirectory])").first.set_input_files({"name": name, "mimeType": mime, "buffer": data})

    def answer(self, nth=-1):
        return self.page.locator(".chat-assistant").nth(nth)

    def done(self, nth=-1):
        """The last answer, when it has come to its end."""
        expect(self.page.get_by_role("button", name="Regenerate")).to_have_count(1)
        return self.answer(nth)

    def picture(self, name):
        if SHOTS:
            self.page.screenshot(path=f"{SHOTS}/open-webui-{name}.png")

    def close(self):
        self.context.close()


@check
def the_models_of_both_apis_are_listed(browser):
    chat = Chat(browser, "writer")
    listed = {model["id"] for model in chat.page.evaluate("fetch('/api/models', {headers: {Authorization: `Bearer ${localStorage.token}`}}).then(it => it.json())")["data"]}
    for model in ("tiny-guide", "writer", "echo", "ollama.tiny-guide:latest", "ollama.writer:latest"):
        assert model in listed, f"{model} of {sorted(listed)}"
    chat.close()


@check
def a_first_message_is_answered_and_gets_a_title(browser):
    chat = Chat(browser, "writer")
    chat.send("Who are you?")
    expect(chat.done()).to_contain_text("I am the scripted writer.")
    # The title comes from the model for such tasks.
    expect(chat.page.get_by_text("A scripted title").first).to_be_visible()
    chat.send("And again?")
    expect(chat.page.locator(".chat-assistant")).to_have_count(2)
    expect(chat.answer()).to_contain_text("I am the scripted writer.")
    chat.picture("openai-chat")
    chat.close()


@check
def a_small_model_whose_template_has_no_tools_answers(browser):
    chat = Chat(browser, "tiny-guide")
    chat.send("What is a model pool?")
    chat.done()
    assert len(chat.answer().inner_text().strip()) > 20, chat.answer().inner_text()
    assert chat.page.get_by_text("does not support").count() == 0, chat.answer().inner_text()
    chat.picture("tiny-guide")
    chat.close()


@check
def the_ollama_api_answers_the_same_chat(browser):
    for model, words in (("ollama.writer:latest", "I am the scripted writer."), ("ollama.tiny-guide:latest", None)):
        chat = Chat(browser, model)
        chat.send("Who are you?")
        chat.done()
        if words:
            expect(chat.answer()).to_contain_text(words)
        assert len(chat.answer().inner_text().strip()) > 20, chat.answer().inner_text()
        chat.picture("ollama-chat" if words else "ollama-tiny-guide")
        chat.close()


@check
def a_text_file_is_found_by_vectors_of_the_pool(browser):
    before = served("embedder")
    chat = Chat(browser, "echo")
    chat.attach("harvest.txt", "text/plain", b"The word of the day in the orchard is greengage.\n" * 3)
    expect(chat.page.get_by_text("harvest.txt").first).to_be_visible()
    expect(chat.page.locator("#send-message-button")).to_be_enabled()
    chat.send("What is the word of the day?")
    # The engine repeats the request, and the request has the text of the file.
    expect(chat.done()).to_contain_text("greengage")
    until(chat.page, lambda: served("embedder") > before, "the pool has made vectors")
    chat.picture("file")
    chat.close()


@check
def stopping_ends_the_request_in_the_pool(browser):
    chat = Chat(browser, "slow")
    chat.send("Tell me a long story.")
    # The engine calls the first of Open WebUI's own tools, and goes on with its result.
    expect(chat.answer()).to_contain_text("View Result from")
    expect(chat.answer()).to_contain_text("Hello from slow")
    until(chat.page, lambda: in_flight("slow") == 1, "the request runs")
    chat.page.get_by_role("button", name="Stop").click()
    until(chat.page, lambda: in_flight("slow") == 0, "the pool ends the request")
    text = chat.answer().inner_text()
    assert text.strip(), "what was written is gone"
    chat.picture("stopped")
    chat.close()


def png():
    """Four red pixels."""
    part = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    rows = (b"\0" + b"\xff\0\0" * 2) * 2
    return b"\x89PNG\r\n\x1a\n" + part(b"IHDR", struct.pack(">IIBBBBB", 2, 2, 8, 2, 0, 0, 0)) + part(b"IDAT", zlib.compress(rows)) + part(b"IEND", b"")


@check
def an_image_reaches_an_engine_that_takes_it_and_others_say_why_not(browser):
    chat = Chat(browser, "echo")
    chat.attach("dot.png", "image/png", png())
    expect(chat.page.get_by_role("button", name="Show image preview").or_(chat.page.locator("form img")).first).to_be_visible()
    chat.send("What is this?")
    expect(chat.done()).to_contain_text(base64.b64encode(png()).decode()[:40])
    chat.close()
    chat = Chat(browser, "tiny-guide")
    chat.attach("dot.png", "image/png", png())
    expect(chat.page.get_by_role("button", name="Show image preview").or_(chat.page.locator("form img")).first).to_be_visible()
    chat.send("What is this?")
    expect(chat.page.locator(".chat-assistant, [role=alert], [data-sonner-toast]").filter(has_text="image").first).to_be_visible()
    chat.picture("image-refused")
    chat.close()


def wav():
    """A fifth of a second of silence."""
    sound = bytes(6400)
    return b"RIFF" + struct.pack("<I", 36 + len(sound)) + b"WAVEfmt " + struct.pack("<IHHIIHH", 16, 1, 1, 16000, 32000, 2, 16) + b"data" + struct.pack("<I", len(sound)) + sound


@check
def speech_goes_to_the_pool_and_comes_from_it(browser):
    before = served("voice")
    chat = Chat(browser, "writer")
    chat.send("Who are you?")
    chat.done()
    with chat.page.expect_response(lambda response: "/audio/speech" in response.url) as spoken:
        chat.page.get_by_role("button", name="Read Aloud").last.click()
    assert spoken.value.status == 200, spoken.value.text()
    # Without a microphone: the page's own route for what a microphone has recorded.
    heard = chat.page.evaluate("""async wav => {
      const form = new FormData();
      form.append('file', new File([Uint8Array.from(wav)], 'note.wav', { type: 'audio/wav' }));
      const response = await fetch('/api/v1/audio/transcriptions', { method: 'POST', body: form, headers: { Authorization: `Bearer ${localStorage.token}` } });
      return [response.status, await response.text()];
    }""", list(wav()))
    assert heard[0] == 200 and "heard" in heard[1], heard
    until(chat.page, lambda: served("voice") >= before + 2, "the pool has spoken and heard")
    chat.close()


def main():
    wanted = sys.argv[1:]
    chosen = [one for one in CHECKS if not wanted or any(one.__name__.startswith(name) for name in wanted)]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=os.environ.get("MODEL_POOL_CHROMIUM", "/usr/bin/chromium"), args=["--no-sandbox", "--disable-dev-shm-usage"])
        for one in chosen:
            try:
                one(browser)
            except Exception:
                traceback.print_exc()
                for context in browser.contexts:
                    for nth, page in enumerate(context.pages):
                        print(page.inner_text("body")[-1500:])
                        if SHOTS:
                            page.screenshot(path=f"{SHOTS}/failed-{one.__name__}-{nth}.png")
                print(f"FAILED: {one.__name__}")
                sys.exit(1)
            print(f"ok: {one.__name__}", flush=True)
        browser.close()
    print(f"{len(chosen)} passed, 0 failed")


main()
