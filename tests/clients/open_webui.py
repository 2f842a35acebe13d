"""Drives Open WebUI in Chromium against a running pool: first message, titles, tools, a text file, stop, images, the microphone and
speech, over both APIs.

    MODEL_POOL_ROOT         the pool's address without a path: http://127.0.0.1:8080
    MODEL_POOL_ADMIN_KEY    an admin key, to look at the pool and to compare its answers
    MODEL_POOL_TRANSCRIPT   the text that `whisper` writes down
    OPEN_WEBUI_URL          Open WebUI, which is set up as docs/guides/clients.md says
    MODEL_POOL_SCREENSHOTS  a folder for pictures; without it there are none

The embedded engine has `tiny-guide`, `vision`, a tiny model that sees, and `whisper`, a tiny model that writes the same text for every
recording. The engines of the tests: `writer` says what it is scripted to say, `echo` repeats the request, `slow` talks for a long time,
`embedder` makes vectors, and `voice` speaks.
"""

import base64
import json
import math
import os
import struct
import sys
import tempfile
import traceback
import urllib.request
import zlib

from playwright.sync_api import expect, sync_playwright

ROOT, ADMIN, WEB = os.environ["MODEL_POOL_ROOT"], os.environ["MODEL_POOL_ADMIN_KEY"], os.environ["OPEN_WEBUI_URL"]
SHOTS = os.environ.get("MODEL_POOL_SCREENSHOTS")
TRANSCRIPT = os.environ["MODEL_POOL_TRANSCRIPT"]
PATIENCE_MS = 60_000
RATE = 16_000
CHECKS = []


def check(function):
    CHECKS.append(function)
    return function


def pool(path):
    request = urllib.request.Request(f"{ROOT}/llm/admin/{path}", headers={"Authorization": f"Bearer {ADMIN}"})
    with urllib.request.urlopen(request, timeout=30) as response:
        return json.load(response)


def ask(path, body, content_type="application/json"):
    """The pool's own response to a request, without Open WebUI."""
    headers = {"Authorization": f"Bearer {ADMIN}", "Content-Type": content_type}
    with urllib.request.urlopen(urllib.request.Request(f"{ROOT}/v1/{path}", body, headers), timeout=60) as response:
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

    def __init__(self, browser, model, init="", **context):
        self.context = browser.new_context(viewport={"width": 1280, "height": 900}, **context)
        self.context.add_init_script(init)
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


def png(width=2, height=2, color=lambda x, y: (255, 0, 0)):
    part = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    rows = b"".join(b"\0" + b"".join(bytes(color(x, y)) for x in range(width)) for y in range(height))
    return b"\x89PNG\r\n\x1a\n" + part(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)) + part(b"IDAT", zlib.compress(rows)) + part(b"IEND", b"")


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


def seen(text, picture=None):
    """The pool's own answer, at temperature 0."""
    parts = [{"type": "text", "text": text}]
    if picture:
        parts.append({"type": "image_url", "image_url": {"url": "data:image/png;base64," + base64.b64encode(picture).decode()}})
    body = {"model": "vision", "messages": [{"role": "user", "content": parts}]}
    answer = ask("chat/completions", json.dumps(body).encode())["choices"][0]["message"]["content"].strip()
    assert len(answer) > 20, answer
    return answer


@check
def a_model_that_sees_answers_to_an_attached_image(browser):
    picture = png(48, 32, lambda x, y: (5 * x, 7 * y, 128))
    answer = seen("What is this?", picture)
    assert answer not in (seen("What is this?"), seen("What is this?", png(48, 32))), "the image changes nothing"
    chat = Chat(browser, "vision")
    chat.attach("colors.png", "image/png", picture)
    expect(chat.page.get_by_role("button", name="Show image preview").or_(chat.page.locator("form img")).first).to_be_visible()
    chat.send("What is this?")
    expect(chat.done()).to_contain_text(answer)
    chat.picture("image-seen")
    chat.close()


def wav():
    """Two seconds of a rising tone."""
    samples = (int(8000 * math.sin(at * (200 + at / RATE * 100) * math.tau / RATE)) for at in range(2 * RATE))
    sound = b"".join(struct.pack("<h", sample) for sample in samples)
    return b"RIFF" + struct.pack("<I", 36 + len(sound)) + b"WAVEfmt " + struct.pack("<IHHIIHH", 16, 1, 1, RATE, 2 * RATE, 2, 16) + b"data" + struct.pack("<I", len(sound)) + sound


@check
def speech_comes_from_the_pool(browser):
    before = served("voice")
    chat = Chat(browser, "writer")
    chat.send("Who are you?")
    chat.done()
    with chat.page.expect_response(lambda response: "/audio/speech" in response.url) as spoken:
        chat.page.get_by_role("button", name="Read Aloud").last.click()
    assert spoken.value.status == 200, spoken.value.text()
    until(chat.page, lambda: served("voice") > before, "the pool has spoken")
    chat.close()


# Keeps what the page sends as a file.
KEEP_UPLOADS = """
  const send = window.fetch;
  window.uploads = [];
  window.fetch = (address, options) => {
    const file = options?.body instanceof FormData && options.body.get('file');
    if (file) window.uploads.push(file);
    return send(address, options);
  };
"""
UPLOADED = """async () => {
  const file = window.uploads.at(-1);
  return [file.type, Array.from(new Uint8Array(await file.arrayBuffer()))];
}"""


def seconds(recording):
    """The length of a recording, as the pool reads it."""
    fields = {"model": "whisper", "response_format": "verbose_json"}
    form = "".join(f'--part\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n' for name, value in fields.items())
    form += '--part\r\nContent-Disposition: form-data; name="file"; filename="recording"\r\n\r\n'
    return ask("audio/transcriptions", form.encode() + recording + b"\r\n--part--\r\n", "multipart/form-data; boundary=part")["duration"]


@check
def the_words_spoken_into_the_microphone_arrive_in_the_message_box(browser):
    before = served("whisper")
    chat = Chat(browser, "echo", permissions=["microphone"], init=KEEP_UPLOADS)
    chat.page.locator("#voice-input-button").click()
    expect(chat.page.get_by_text("0:02", exact=True)).to_be_visible()
    chat.picture("recording")
    with chat.page.expect_response(lambda response: "/audio/transcriptions" in response.url) as heard:
        chat.page.locator("#confirm-recording-button").click()
    assert heard.value.status == 200, heard.value.text()
    expect(chat.box).to_have_text(TRANSCRIPT)
    chat.picture("microphone")
    assert served("whisper") == before + 1, "the pool has not heard it once"
    kind, recording = chat.page.evaluate(UPLOADED)
    assert kind.startswith("audio/webm"), kind
    assert 1 < seconds(bytes(recording)) < PATIENCE_MS / 1000
    chat.page.locator("#send-message-button").click()
    expect(chat.done()).to_contain_text(TRANSCRIPT)
    chat.close()


def main():
    expect.set_options(timeout=PATIENCE_MS)
    wanted = sys.argv[1:]
    chosen = [one for one in CHECKS if not wanted or any(one.__name__.startswith(name) for name in wanted)]
    with sync_playwright() as playwright, tempfile.NamedTemporaryFile(suffix=".wav") as sound:
        sound.write(wav())
        sound.flush()
        # The microphone hears the file again and again.
        microphone = ["--use-fake-ui-for-media-stream", "--use-fake-device-for-media-stream", f"--use-file-for-fake-audio-capture={sound.name}"]
        program = os.environ.get("MODEL_POOL_CHROMIUM", "/usr/bin/chromium")
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-dev-shm-usage", *microphone])
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
