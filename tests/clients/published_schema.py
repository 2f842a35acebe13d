"""Answers of a pool, byte for byte as they come, against OpenAI's published schema (schema/). See checks.py.

Unlike the other scripts this one uses no client: clients forgive what is missing or too much. What a scripted engine is
needed for is in published_wires.py.
"""

import json
import urllib.error
import urllib.parse
import urllib.request

from checks import BASE_URL, KEY, MESSAGES, MODEL, PATIENCE_S, QUESTION, check, has, named, run
from published import fits

CHAT = {"model": MODEL, "messages": MESSAGES, "temperature": 0}
TEXT = {"model": MODEL, "prompt": "Keep-hot is", "temperature": 0, "max_tokens": 8}


def ask(path, body=None, key=KEY):
    """Status, content type and text of an answer."""
    data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    request = urllib.request.Request(f"{BASE_URL}/{path}", data=data, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return answer.status, answer.headers["content-type"], answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers["content-type"], error.read().decode()


def answer(path, body=None):
    status, kind, text = ask(path, body)
    assert (status, kind) == (200, "application/json"), (status, kind, text)
    return json.loads(text)


def events(path, body):
    """The data of each event of a stream, in order, without the end mark."""
    status, kind, text = ask(path, body | {"stream": True})
    assert status == 200 and kind.split(";")[0] == "text/event-stream", (status, kind, text)
    data = [line.removeprefix("data:").strip() for line in text.splitlines() if line.startswith("data:")]
    return data


def chunks(path, body):
    data = events(path, body)
    assert data[-1] == "[DONE]" and "[DONE]" not in data[:-1], data[-3:]
    return [json.loads(one) for one in data[:-1]]


def text_chunk(chunk):
    """A piece of a completion's stream. OpenAI has one schema for pieces and wholes, which forgets what its
    own text and examples show of pieces: a usage of null, and no reason to end yet."""
    filled = {name: value for name, value in chunk.items() if (name, value) != ("usage", None)}
    filled["choices"] = [one | {"finish_reason": one["finish_reason"] or "stop"} for one in chunk["choices"]]
    return fits(filled, "completion")


# Every kind of request that the demo models take, by a word for it.
CHATS = {
    "plain": {},
    "cut": {"max_tokens": 2},
    "several": {"n": 3},
    "stopped": {"stop": ["loaded"]},
    "empty": {"stop": ["K"], "max_tokens": 1},
    "warm": {"temperature": 1.2, "seed": 3},
}
if has("logprobs"):
    CHATS["logprobs"] = {"logprobs": True, "top_logprobs": 2, "max_tokens": 4}
if has("tools"):
    parameters = {"type": "object", "properties": {"minutes": {"type": "integer"}}, "required": ["minutes"]}
    function = {"name": "keep_hot", "parameters": parameters}
    tool = {"type": "function", "function": function}
    CHATS["tools"] = {"tools": [tool], "tool_choice": {"type": "function", "function": {"name": "keep_hot"}}}
if has("json_schema"):
    CHATS["json_object"] = {"response_format": {"type": "json_object"}, "max_tokens": 50}


@check("lists of models and single ones fit")
def models():
    found = fits(answer("models"), "models")
    for one in found["data"]:
        fits(answer(f"models/{one['id']}"), "model")
        fits(answer(f"models/{urllib.parse.quote(one['id'], safe='')}"), "model")


@check("chats fit, whatever is asked for")
def chats():
    for word, fields in CHATS.items():
        found = fits(answer("chat/completions", CHAT | fields), "chat")
        assert found["usage"]["total_tokens"] > 0, (word, found)


@check("every chunk of a chat's stream fits, with and without usage")
def chat_chunks():
    for fields in CHATS.values():
        for options in [{}, {"stream_options": {"include_usage": True}}, {"stream_options": {"include_usage": False}}]:
            all_chunks = [fits(chunk, "chunk") for chunk in chunks("chat/completions", CHAT | fields | options)]
            wanted = options.get("stream_options", {}).get("include_usage", False)
            with_usage = [chunk for chunk in all_chunks if chunk.get("usage")]
            assert len(with_usage) == int(wanted), with_usage
            # OpenAI: the chunk with the usage is the last one and has no choices.
            assert not wanted or (with_usage == all_chunks[-1:] and not with_usage[0]["choices"]), with_usage
            assert len({chunk["id"] for chunk in all_chunks}) == 1
            ends = [choice["index"] for chunk in all_chunks for choice in chunk["choices"] if choice["finish_reason"]]
            assert sorted(ends) == list(range(fields.get("n", 1))), ends


@check("completions and their streams fit")
def completions():
    for fields in [{}, {"n": 2}, {"prompt": ["One", "Two"]}, {"max_tokens": 1}]:
        fits(answer("completions", TEXT | fields), "completion")
        for chunk in chunks("completions", TEXT | fields):
            text_chunk(chunk)


@check("completions with log probabilities fit", feature="logprobs")
def completion_logprobs():
    fits(answer("completions", TEXT | {"logprobs": 2}), "completion")
    for chunk in chunks("completions", TEXT | {"logprobs": 2}):
        text_chunk(chunk)


@check("errors of every status fit, also those of routes that are not served")
def errors():
    large = CHAT | {"messages": [{"role": "user", "content": "x" * (11 << 20)}]}
    long = CHAT | {"messages": [{"role": "user", "content": "word " * 5000}]}
    for path, body, key, expected in [
        ("chat/completions", CHAT | {"model": "no-such-model"}, KEY, 404),
        ("chat/completions", CHAT | {"temperature": 9}, KEY, 400),
        ("chat/completions", CHAT | {"temperature": 9, "stream": True}, KEY, 400),
        ("chat/completions", CHAT | {"no_such_field": 1}, KEY, 400),
        ("chat/completions", long, KEY, 400),
        ("chat/completions", b"no json", KEY, 400),
        ("chat/completions", b"\xff\xfe", KEY, 400),
        ("chat/completions", b"[" * 1000, KEY, 400),
        ("chat/completions", {}, KEY, 400),
        ("chat/completions", large, KEY, 413),
        ("chat/completions", CHAT, "mp-no-such-key", 401),
        ("chat/completions", None, KEY, 405),
        ("completions", TEXT | {"max_tokens": -1}, KEY, 400),
        ("completions", {"model": MODEL}, KEY, 400),
        ("embeddings", {"model": MODEL, "input": "x"}, KEY, 501),
        ("models/no/such", None, KEY, 404),
        ("models", None, "mp-no-such-key", 401),
        ("fine_tuning/jobs", None, KEY, 501),
        ("fine_tuning/jobs", {"prompt": "x"}, KEY, 501),
    ]:
        status, kind, text = ask(path, body, key)
        assert (status, kind) == (expected, "application/json"), (path, expected, status, kind, text)
        error = fits(json.loads(text), "error")["error"]
        assert error["message"] and error["type"], error


@check("embeddings fit", needs=["embedder"])
def embeddings():
    fits(answer("embeddings", {"model": named("embedder"), "input": ["one", "two"]}), "embeddings")


@check("responses and every event of their streams fit", feature="responses")
def responses():
    for fields in [{}, {"max_output_tokens": 16}, {"instructions": "Be brief."}, {"metadata": {"a": "b"}}]:
        body = {"model": MODEL, "input": QUESTION, "temperature": 0} | fields
        fits(answer("responses", body), "response")
        data = [json.loads(one) for one in events("responses", body) if one != "[DONE]"]
        for event in data:
            fits(event, "response event")
        assert data[-1]["type"] in ("response.completed", "response.incomplete"), data[-1]


if __name__ == "__main__":
    run()
