"""Answers and every event of a scripted engine that reasons, calls tools, says JSON, dies or comes late, byte for byte
against OpenAI's and Anthropic's published schemas (schema/). See published.py."""

import json
import urllib.error
import urllib.request

from published import TOO_LARGE, fits
from wires import FACT, KEY, MODEL, PLAIN, THOUGHT, UNKNOWN, URL

# Their engines die in the middle of an answer, and are not started again at once.
BROKEN, FRAGILE = "broken", "fragile"
# Its engine takes seconds to become ready.
LATE = "late"
ASK = [{"role": "user", "content": "How warm is it?"}]
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "degrees": {"type": "integer"}},
    "required": ["city", "degrees"],
    "additionalProperties": False,
}
PING = {"type": "ping"}
passed = 0


def ask(path, body=None, key=KEY):
    """Status and text of an answer."""
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json", "anthropic-version": "2023-06-01"}
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(f"{URL}/v1/{path}", data=data, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def answer(path, body=None):
    status, text = ask(path, body)
    assert status == 200, (path, body, status, text)
    return json.loads(text)


def events(path, body):
    """The events of a stream, each with its name where it has one."""
    status, text = ask(path, body | {"stream": True})
    assert status == 200, (path, body, status, text)
    told = []
    for block in text.split("\n\n"):
        lines = [line.split(": ", 1) for line in block.splitlines() if line and not line.startswith(":")]
        if lines:
            fields = dict(lines)
            told.append((fields.get("event"), fields["data"]))
    return told


def ok(words):
    global passed
    passed += 1
    print(f"ok: {words}", flush=True)


def chats():
    function = {"name": "note_weather", "parameters": SCHEMA}
    form = {"type": "json_schema", "json_schema": {"name": "fact", "schema": SCHEMA, "strict": True}}
    kinds = {
        "plain": {},
        "effort": {"reasoning_effort": "low"},
        "tools": {"tools": [{"type": "function", "function": function}]},
        "form": {"response_format": form},
    }
    for word, fields in kinds.items():
        body = {"model": MODEL, "messages": ASK} | fields
        said = fits(answer("chat/completions", body), "chat")["choices"][0]["message"]
        assert said["reasoning_content"] == THOUGHT and bool(said.get("tool_calls")) == (word == "tools"), said
        told = [data for _, data in events("chat/completions", body)]
        assert told.pop() == "[DONE]"
        for data in told:
            fits(json.loads(data), "chunk")
        ok(f"a chat and its chunks: {word}")


def response_events(body):
    told = []
    for name, data in events("responses", body):
        event = fits(json.loads(data), "response event")
        assert event["type"] == name, (name, event)
        told.append(event)
    assert [event["sequence_number"] for event in told] == list(range(len(told))), told
    return told


def responses():
    function = {"type": "function", "name": "note_weather", "parameters": SCHEMA, "strict": True}
    space = {"type": "namespace", "name": "weather", "description": "The weather.", "tools": [function]}
    sealed = {"include": ["reasoning.encrypted_content"]}
    kinds = {
        "plain": {},
        "stored": {"store": True},
        "sealed": sealed | {"store": False},
        "summary": sealed | {"reasoning": {"effort": "low", "summary": "auto"}},
        "function": {"tools": [function]},
        "namespace": {"tools": [space]},
        "custom tool": {"tools": [{"type": "custom", "name": "apply_patch", "description": "Edits."}]},
        "form": {"text": {"format": {"type": "json_schema", "name": "fact", "schema": SCHEMA, "strict": True}}},
    }
    for word, fields in kinds.items():
        body = {"model": MODEL, "input": "How warm is it?"} | fields
        whole = fits(answer("responses", body), "response")
        assert whole["output"][0]["type"] == "reasoning", whole
        told = response_events(body)
        assert told[-1]["type"] == "response.completed", told
        assert any("reasoning" in event["type"] for event in told), told
        ok(f"a response and its events: {word}")
        if word == "stored":
            fits(answer(f"responses/{whole['id']}"), "response")
            ok("a response that was stored")
        if word == "function":
            call = whole["output"][-1]
            result = {"type": "function_call_output", "call_id": call["call_id"], "output": "noted"}
            more = {"input": [result], "previous_response_id": whole["id"]}
            fits(answer("responses", body | more), "response")
            assert response_events(body | more)[-1]["type"] == "response.completed"
            ok("the response to a tool's result, and its events")
    last = response_events({"model": BROKEN, "input": "How warm is it?"})[-1]
    assert last["type"] == "response.failed" and last["response"]["error"]["message"], last
    ok("the events of a response that breaks off")


def message_events(body):
    told = []
    for name, data in events("messages", {"max_tokens": 4000, "messages": ASK} | body):
        event = json.loads(data)
        if event == PING:
            assert name == "ping"
        else:
            fits(event, "anthropic error" if name == "error" else "anthropic event")
        assert event["type"] == name, (name, event)
        told.append(event)
    return told


def kinds_of(told):
    return [event["type"] for event in told if event != PING]


def messages():
    tools = [{"name": "note_weather", "description": "Notes the weather.", "input_schema": SCHEMA}]
    kinds = {
        "plain": {},
        "thinking": {"thinking": {"type": "enabled", "budget_tokens": 2000}},
        "adaptive thinking": {"thinking": {"type": "adaptive"}},
        "thinking that is not shown": {"thinking": {"type": "adaptive", "display": "omitted"}},
        "tools": {"tools": tools},
        "form": {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
        "stop": {"stop_sequences": ["engine"]},
    }
    for word, fields in kinds.items():
        body = {"model": MODEL, "max_tokens": 4000, "messages": ASK} | fields
        whole = fits(answer("messages", body), "anthropic message")
        blocks = [block["type"] for block in whole["content"]]
        assert blocks == ["thinking", "tool_use" if word == "tools" else "text"], whole
        assert whole["content"][0]["signature"], whole
        if word == "form":
            assert json.loads(whole["content"][1]["text"]) == FACT, whole
        told = message_events(body)
        assert kinds_of(told)[0] == "message_start" and kinds_of(told)[-2:] == ["message_delta", "message_stop"], told
        deltas = [event["delta"]["type"] for event in told if event["type"] == "content_block_delta"]
        assert "signature_delta" in deltas, told
        assert ("thinking_delta" in deltas) == ("not shown" not in word), told
        assert ("input_json_delta" in deltas) == (word == "tools"), told
        ok(f"a message and its events: {word}")
    # What was said is sent back as it came, with all that is published of it.
    turns = [*ASK, {"role": "assistant", "content": whole["content"]}, {"role": "user", "content": "And now?"}]
    again = answer("messages", {"model": MODEL, "max_tokens": 4000, "messages": turns})
    assert again["content"][1]["text"] == PLAIN, again
    ok("a message sent back")
    # Its load and its first words take longer than the pause between two signs of life.
    told = message_events({"model": LATE})
    assert told.count(PING) > 1 and kinds_of(told)[-1] == "message_stop", told
    ok("the events and pings of a model that comes late")
    told = message_events({"model": FRAGILE})
    assert kinds_of(told)[-1] == "error" and told[-1]["error"]["message"], told
    ok("the events of a message that breaks off")


def message_errors():
    body = {"model": MODEL, "max_tokens": 100, "messages": ASK}
    large = body | {"messages": [{"role": "user", "content": "x" * (11 << 20)}]}
    for path, sent, key, expected, kind in [
        ("messages", body | {"model": UNKNOWN}, KEY, 404, "not_found_error"),
        ("messages", body | {"model": UNKNOWN, "stream": True}, KEY, 404, "not_found_error"),
        ("messages", body | {"max_tokens": -1}, KEY, 400, "invalid_request_error"),
        ("messages", body | {"thinking": {"type": "enabled", "budget_tokens": -1}}, KEY, 400, "invalid_request_error"),
        ("messages", b"no json", KEY, 400, "invalid_request_error"),
        ("messages", b"[" * 1000, KEY, 400, "invalid_request_error"),
        ("messages", None, KEY, 405, "invalid_request_error"),
        ("messages", large, KEY, 413, TOO_LARGE),
        ("messages", body, "mp-no-such-key", 401, "authentication_error"),
        ("messages/count_tokens", {"model": UNKNOWN, "messages": ASK}, KEY, 404, "not_found_error"),
        ("messages/batches", {"requests": []}, KEY, 400, "invalid_request_error"),
        ("models/no-such", None, KEY, 404, "not_found_error"),
        ("models?limit=0", None, KEY, 400, "invalid_request_error"),
    ]:
        status, text = ask(path, sent, key)
        assert status == expected, (path, expected, status, text)
        error = json.loads(text)
        assert error["error"]["type"] == kind and error["error"]["message"], error
        if kind == TOO_LARGE:
            error["error"]["type"] = "invalid_request_error"
        fits(error, "anthropic error")
    ok("errors of every status in Anthropic's form")


def models():
    page = fits(answer("models"), "anthropic models")
    assert MODEL in [one["id"] for one in page["data"]], page
    fits(answer(f"models/{MODEL}"), "anthropic model")
    ok("models in Anthropic's form")


for part in [chats, responses, messages, message_errors, models]:
    part()
print(f"{passed} passed, 0 failed")
