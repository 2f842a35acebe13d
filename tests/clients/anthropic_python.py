"""The official `anthropic` package against a pool's `/v1/messages`, with the embedded engine. See checks.py."""

import asyncio
import os
import time

import anthropic

import checks
from checks import EXPECTED, KEY, MESSAGES, MODEL, PATIENCE_S, URL, check, fails, named

# The package adds /v1 by itself. A token of the caller's own environment must not go along.
os.environ.pop("ANTHROPIC_AUTH_TOKEN", None)
client = anthropic.Anthropic(base_url=URL, api_key=KEY, max_retries=0, timeout=PATIENCE_S)


def ask(**fields):
    # Newer packages have no arguments for sampling; the API has.
    body = {"temperature": 0} | {name: fields.pop(name) for name in ("temperature", "top_p", "top_k") if name in fields}
    return client.messages.create(
        **{"model": MODEL, "messages": MESSAGES, "max_tokens": 100, "extra_body": body} | fields
    )


def text_of(message):
    return "".join(block.text for block in message.content if block.type == "text")


@check("a message is answered, with its usage and a request id", feature="messages")
def plain():
    answer = ask()
    assert (answer.type, answer.role, answer.model) == ("message", "assistant", MODEL), answer
    assert EXPECTED in text_of(answer) and answer.stop_reason == "end_turn", answer
    assert answer.usage.input_tokens > 0 and answer.usage.output_tokens > 0, answer.usage


@check("a stream has Anthropic's events in their order, and says the same", feature="messages")
def streamed():
    kinds, text = [], ""
    for event in ask(stream=True):
        kinds.append(event.type)
        if event.type == "content_block_delta":
            text += event.delta.text
    assert kinds[0] == "message_start" and kinds[-2:] == ["message_delta", "message_stop"], kinds
    assert "content_block_start" in kinds and "content_block_stop" in kinds, kinds
    assert text == text_of(ask()), text


@check("the package's own stream helper puts a message together", feature="messages")
def stream_helper():
    with client.messages.stream(model=MODEL, messages=MESSAGES, max_tokens=100, extra_body={"temperature": 0}) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert EXPECTED in text and text_of(final) == text and final.usage.output_tokens > 0, final


@check("the asynchronous client answers several at once", feature="messages")
async def asynchronous():
    async with anthropic.AsyncAnthropic(base_url=URL, api_key=KEY, max_retries=0, timeout=PATIENCE_S) as many:
        fields = {"model": MODEL, "messages": MESSAGES, "max_tokens": 100, "extra_body": {"temperature": 0}}
        answers = await asyncio.gather(*[many.messages.create(**fields) for _ in range(6)])
    assert {text_of(answer) for answer in answers} == {text_of(ask())}


@check("a system prompt, content blocks, stop sequences and limits are taken", feature="messages")
def fields():
    blocks = [{"type": "text", "text": "What is "}, {"type": "text", "text": "keep-hot?"}]
    assert text_of(ask(system="Be brief.", messages=[{"role": "user", "content": blocks}]))
    assert text_of(ask(system=[{"type": "text", "text": "Be brief."}]))
    stopped = ask(stop_sequences=["loaded"])
    # The embedded engine does not say which stop it met; engines that do give `stop_sequence`.
    assert stopped.stop_reason in ("end_turn", "stop_sequence"), stopped
    assert "loaded" not in text_of(stopped), stopped
    assert ask(max_tokens=3).stop_reason == "max_tokens"
    assert ask(top_p=0.9, top_k=5, metadata={"user_id": "somebody"}).content


@check("errors are the package's own classes, in Anthropic's shape", feature="messages")
def errors():
    error = fails(anthropic.NotFoundError, lambda: ask(model="no-such-model"))
    assert error.body["type"] == "error" and error.body["error"]["type"] == "not_found_error", error.body
    error = fails(anthropic.BadRequestError, lambda: ask(temperature=9))
    assert error.body["error"]["type"] == "invalid_request_error", error.body
    fails(anthropic.BadRequestError, lambda: ask(temperature=9, stream=True))
    stranger = client.with_options(api_key="mp-no-such-key")
    error = fails(
        anthropic.AuthenticationError,
        lambda: stranger.messages.create(model=MODEL, messages=MESSAGES, max_tokens=3),
    )
    assert error.body["error"]["type"] == "authentication_error", error.body
    assert "mp-no-such-key" not in str(error), error


@check("a conversation without messages is a BadRequestError", feature="messages")
def empty():
    fails(anthropic.BadRequestError, lambda: ask(messages=[]))
    fails(anthropic.BadRequestError, lambda: ask(messages=[], stream=True))


@check("a stream that is left in the middle leaves nothing behind", feature="messages", needs=["talker"])
def abort():
    name = named("talker")
    stream = ask(model=name, stream=True, max_tokens=2000)
    for event in stream:
        if event.type == "content_block_delta":
            break
    stream.close()
    checks.nothing_is_left_of(name)
    fails(anthropic.APITimeoutError, lambda: client.with_options(timeout=0.5).messages.create(
        model=name, messages=MESSAGES, max_tokens=2000))
    checks.nothing_is_left_of(name)


@check("tokens of a message are counted without an answer", feature="messages_count")
def count_tokens():
    assert client.messages.count_tokens(model=MODEL, messages=MESSAGES).input_tokens > 0


TOOL = {
    "name": "keep_hot",
    "description": "How long a model stays loaded",
    "input_schema": {"type": "object", "properties": {"minutes": {"type": "integer"}}, "required": ["minutes"]},
}


@check("a tool is used with an input of its schema, and its result goes back", feature="messages_tools")
def tools():
    answer = ask(tools=[TOOL], tool_choice={"type": "tool", "name": "keep_hot"}, max_tokens=200)
    assert answer.stop_reason == "tool_use", answer
    [use] = [block for block in answer.content if block.type == "tool_use"]
    assert use.name == "keep_hot" and isinstance(use.input["minutes"], int), use
    result = {"type": "tool_result", "tool_use_id": use.id, "content": "10"}
    turns = [
        *MESSAGES,
        {"role": "assistant", "content": [use.model_dump(include={"type", "id", "name", "input"})]},
        {"role": "user", "content": [result]},
    ]
    assert ask(messages=turns, tools=[TOOL]).content is not None


@check("a batch of messages runs, and its results can be read", feature="messages_batches")
def batches():
    def request(custom_id, model):
        params = {"model": model, "max_tokens": 20, "messages": MESSAGES}
        return {"custom_id": custom_id, "params": params}

    batch = client.messages.batches.create(requests=[request("good", MODEL), request("unknown", "no-such-model")])
    deadline = time.monotonic() + checks.PATIENCE_S
    while batch.processing_status != "ended" and time.monotonic() < deadline:
        time.sleep(0.2)
        batch = client.messages.batches.retrieve(batch.id)
    counts = batch.request_counts
    assert (counts.succeeded, counts.errored, counts.processing) == (1, 1, 0), batch
    results = {line.custom_id: line.result for line in client.messages.batches.results(batch.id)}
    assert results["good"].type == "succeeded" and results["good"].message.content, results
    assert results["unknown"].error.error.type == "not_found_error", results
    assert batch.id in [known.id for known in client.messages.batches.list(limit=10)]
    assert client.messages.batches.delete(batch.id).type == "message_batch_deleted"
    fails(anthropic.NotFoundError, lambda: client.messages.batches.retrieve(batch.id))


if __name__ == "__main__":
    checks.run()
