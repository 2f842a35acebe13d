"""The official `openai` package of PyPI, synchronous and asynchronous, against a pool. See checks.py."""

import asyncio
import json
import threading
import time

import openai
import pydantic

import checks
from checks import BASE_URL, EXPECTED, KEY, MESSAGES, MODEL, PATIENCE_S, check, fails, named

# No retries: what fails the first time is to be seen.
client = openai.OpenAI(base_url=BASE_URL, api_key=KEY, max_retries=0, timeout=PATIENCE_S)


def ask(**fields):
    return client.chat.completions.create(**{"model": MODEL, "messages": MESSAGES, "temperature": 0} | fields)


def text_of(answer):
    return answer.choices[0].message.content


def told(stream):
    """A stream's text by choice, how each choice ended, and its usage."""
    texts, ends, usage = {}, {}, None
    for chunk in stream:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            texts[choice.index] = texts.get(choice.index, "") + (choice.delta.content or "")
            ends[choice.index] = choice.finish_reason or ends.get(choice.index)
    return texts, ends, usage


@check("models are listed, and each is found by its id")
def models():
    listed = client.models.list()
    ids = [model.id for model in listed]
    assert MODEL in ids and listed.object == "list", ids
    for name in ids:
        model = client.models.retrieve(name)
        assert (model.id, model.object) == (name, "model"), model
        assert model.created > 1_600_000_000 and model.owned_by, model


@check("an id with a slash is listed, found, and answers under its name", needs=["slashed"])
def slashed():
    name = named("slashed")
    assert "/" in name and name in [model.id for model in client.models.list()]
    assert client.models.retrieve(name).id == name
    answer = ask(model=name)
    assert answer.model == name and EXPECTED in text_of(answer), answer


@check("a chat answers in one piece, with its usage and a request id")
def plain():
    answer = ask()
    assert answer.object == "chat.completion" and answer.model == MODEL, answer
    assert EXPECTED in text_of(answer) and answer.choices[0].finish_reason == "stop", answer
    assert answer.choices[0].message.role == "assistant" and answer.choices[0].message.tool_calls is None
    usage = answer.usage
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens > 0, usage
    assert answer._request_id, "an answer has a request id"


@check("a stream says the same, and its usage where that is asked for")
def streamed():
    texts, ends, usage = told(ask(stream=True, stream_options={"include_usage": True}))
    assert texts[0] == text_of(ask()) and ends == {0: "stop"}, texts
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens > 0, usage
    chunks = list(ask(stream=True))
    assert len(chunks) > 3 and all(chunk.usage is None for chunk in chunks)
    assert len({chunk.id for chunk in chunks}) == 1, "one answer has one id"
    assert chunks[0].choices[0].delta.role == "assistant"


@check("the package's own stream helper puts an answer together")
def stream_helper():
    with client.chat.completions.stream(model=MODEL, messages=MESSAGES, temperature=0) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_completion()
    assert {"chunk", "content.delta", "content.done"} <= kinds, kinds
    assert EXPECTED in text_of(final), final


@check("the raw answer has the pool's headers")
def raw():
    answer = client.chat.completions.with_raw_response.create(model=MODEL, messages=MESSAGES)
    assert answer.headers["x-request-id"] and answer.headers["content-type"] == "application/json"
    assert answer.parse().choices
    sent = client.chat.completions.with_raw_response.create(
        model=MODEL, messages=MESSAGES, extra_headers={"X-Request-Id": "of-the-client"}
    )
    assert sent.headers["x-request-id"] == "of-the-client"


@check("the asynchronous client answers many at once, plain and streaming")
async def asynchronous():
    async with openai.AsyncOpenAI(base_url=BASE_URL, api_key=KEY, max_retries=0, timeout=PATIENCE_S) as many:

        async def plain():
            answer = await many.chat.completions.create(model=MODEL, messages=MESSAGES, temperature=0)
            return text_of(answer)

        async def streaming():
            stream = await many.chat.completions.create(model=MODEL, messages=MESSAGES, temperature=0, stream=True)
            return "".join([chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices])

        answers = await asyncio.gather(*[call() for call in [plain, streaming] * 8])
    assert len(set(answers)) == 1 and EXPECTED in answers[0], set(answers)


@check("n gives so many choices, plain and streaming")
def several():
    answer = ask(n=3)
    assert [choice.index for choice in answer.choices] == [0, 1, 2], answer
    texts, ends, _ = told(ask(n=2, stream=True))
    assert sorted(texts) == [0, 1] and set(ends.values()) == {"stop"}, (texts, ends)


@check("stop ends an answer before its text, as one or as a list")
def stops():
    for stop in ["loaded", ["never said", "loaded"]]:
        answer = ask(stop=stop)
        assert answer.choices[0].finish_reason == "stop", answer
        assert "a model stays" in text_of(answer) and "loaded" not in text_of(answer), answer
    texts, _, _ = told(ask(stop="loaded", stream=True))
    assert "loaded" not in texts[0] and "a model stays" in texts[0], texts


@check("limits on tokens hold, by both names")
def limits():
    for name in ["max_tokens", "max_completion_tokens"]:
        answer = ask(**{name: 3})
        assert answer.choices[0].finish_reason == "length", answer
        assert answer.usage.completion_tokens == 3, answer.usage


@check("the same seed gives the same words")
def seeds():
    said = [text_of(ask(temperature=1.5, seed=7, max_tokens=20)) for _ in range(3)]
    assert len(set(said)) == 1, said
    others = {text_of(ask(temperature=1.8, seed=seed, max_tokens=20)) for seed in range(8)}
    assert len(others) > 1, others


@check("sampling, penalties and logit_bias are taken")
def sampling():
    answer = ask(temperature=0.5, top_p=0.9, presence_penalty=0.1, frequency_penalty=0.1, user="somebody")
    assert text_of(answer)
    plain = text_of(ask(max_tokens=1))
    biased = {text_of(ask(max_tokens=1, logit_bias={str(token): 100})) for token in range(300, 304)}
    assert biased - {plain}, "a bias of 100 changes the first token"


@check("content may come as parts of text, roles as system and developer")
def parts():
    content = [{"type": "text", "text": "What is "}, {"type": "text", "text": "keep-hot?"}]
    assert EXPECTED in text_of(ask(messages=[{"role": "user", "content": content}]))
    for role in ["system", "developer"]:
        assert ask(messages=[{"role": role, "content": "Be brief."}, *MESSAGES]).choices


@check("texts are completed, plain, streaming, and several prompts at once")
def completions():
    answer = client.completions.create(model=MODEL, prompt="Keep-hot is", max_tokens=8, temperature=0)
    assert answer.object == "text_completion" and answer.choices[0].text, answer
    assert answer.usage.completion_tokens <= 8, answer.usage
    stream = client.completions.create(model=MODEL, prompt="Keep-hot is", max_tokens=8, temperature=0, stream=True)
    assert "".join(chunk.choices[0].text for chunk in stream if chunk.choices) == answer.choices[0].text
    both = client.completions.create(model=MODEL, prompt=["Keep-hot is", "A priority is"], max_tokens=4, n=2)
    assert [choice.index for choice in both.choices] == [0, 1, 2, 3], both


@check("a model that does not exist is a NotFoundError that names the closest")
def unknown():
    error = fails(openai.NotFoundError, lambda: ask(model="tiny-giude"))
    assert (error.code, error.param, error.type) == ("model_not_found", "model", "invalid_request_error"), error.body
    assert "tiny-guide" in error.message and error.request_id, error
    fails(openai.NotFoundError, lambda: ask(model="tiny-giude", stream=True))
    error = fails(openai.NotFoundError, lambda: client.models.retrieve("no/such-model"))
    assert error.code == "model_not_found", error.body


@check("a wrong request is a BadRequestError, and so is one that is too long")
def wrong():
    for fields in [
        {"temperature": 9},
        {"temperature": 9, "stream": True},
        {"n": 0},
        {"max_tokens": -1},
        {"stop": [""]},
        {"extra_body": {"no_such_field": 1}},
        {"stream": "perhaps"},
    ]:
        fails(openai.BadRequestError, lambda: ask(**fields))
    long = [{"role": "user", "content": "word " * 5000}]
    error = fails(openai.BadRequestError, lambda: ask(messages=long))
    assert error.code == "context_length_exceeded" and "512" in error.message, error.body


@check("the error of a wrong request names its field")
def wrong_fields():
    for fields, param in [
        ({"temperature": 9}, "temperature"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "nobody", "content": "x"}]}, "messages[0].role"),
        ({"n": 0}, "n"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"stop": [""]}, "stop"),
        ({"extra_body": {"no_such_field": 1}}, "no_such_field"),
        ({"stream": "perhaps"}, "stream"),
    ]:
        error = fails(openai.BadRequestError, lambda: ask(**fields))
        assert error.param == param and error.type == "invalid_request_error", (fields, error.body)
        assert param.split("[")[0] in error.message, error.message


@check("a key that is not known is an AuthenticationError")
def strangers():
    other = client.with_options(api_key="mp-no-such-key")
    for call in [other.models.list, lambda: other.chat.completions.create(model=MODEL, messages=MESSAGES)]:
        error = fails(openai.AuthenticationError, call)
        assert error.code == "invalid_api_key" and "mp-no-such-key" not in error.message, error.body


@check("a body over the limit is told as 413, and the next request is answered")
def large():
    huge = [{"role": "user", "content": "x" * (11 << 20)}]
    error = fails(openai.APIStatusError, lambda: ask(messages=huge))
    assert error.status_code == 413 and error.code == "body_too_large", error.body
    # The connection is given up on both sides: the next request is not lost on it.
    assert ask(max_tokens=1).choices


@check("embeddings of a model that completes texts are told as 501, and not asked for again")
def embeddings():
    retrying = client.with_options(max_retries=2)
    error = fails(openai.InternalServerError, lambda: retrying.embeddings.create(model=MODEL, input="keep-hot"))
    assert error.status_code == 501 and error.code == "not_implemented", error.body
    assert "embed" in error.message.lower(), error.message
    assert error.response.request.headers["x-stainless-retry-count"] == "0", "it was asked again"


@check("embeddings come as numbers and as base64", needs=["embedder"])
def embedder():
    name = named("embedder")
    floats = client.embeddings.create(model=name, input=["one two", "three"], encoding_format="float")
    assert floats.object == "list" and [one.index for one in floats.data] == [0, 1], floats
    assert all(isinstance(number, (int, float)) for number in floats.data[0].embedding), floats
    assert client.embeddings.create(model=name, input=["one two", "three"]).data, "the package's default, base64"


@check("a queue that is full is a RateLimitError with its Retry-After, and a timeout is the client's own", needs=["stuck"])
def limited():
    name = named("stuck")
    first = threading.Thread(
        target=lambda: fails(openai.APITimeoutError, lambda: ask(model=name, timeout=3)), daemon=True
    )
    first.start()
    checks.wait_for("the first to wait", lambda: checks.requests_of(name)[1] == 1)
    error = fails(openai.RateLimitError, lambda: ask(model=name))
    assert error.code == "queue_full", error.body
    assert int(error.response.headers["retry-after"]) > 0
    first.join()
    checks.nothing_is_left_of(name)


@check("a stream that waits for its model hears comments, which the package does not show", needs=["stuck"])
def waits():
    name = named("stuck")
    began = time.monotonic()
    # The pause is shorter than the whole wait: comments keep the stream alive.
    stream = ask(model=name, stream=True, timeout=openai.Timeout(5, read=1.5))
    threading.Timer(2.5, stream.response.close).start()
    chunks = []
    try:
        chunks.extend(stream)
    except Exception as error:
        # Closed by the timer, not for silence.
        assert "timeout" not in type(error).__name__.lower(), error
    assert not chunks and time.monotonic() - began > 2, chunks
    checks.nothing_is_left_of(name)


@check("a stream that is left in the middle leaves nothing behind", needs=["talker"])
def abort():
    name = named("talker")
    stream = ask(model=name, stream=True)
    for count, _ in enumerate(stream):
        if count == 5:
            break
    checks.wait_for("the request to be seen", lambda: checks.requests_of(name)[0] == 1)
    stream.close()
    checks.nothing_is_left_of(name)
    # A plain request whose client loses patience ends its engine's work likewise.
    fails(openai.APITimeoutError, lambda: ask(model=name, timeout=0.5))
    checks.nothing_is_left_of(name)


@check("asynchronous tasks that are cancelled leave nothing behind", needs=["talker"])
async def cancelled():
    name = named("talker")
    async with openai.AsyncOpenAI(base_url=BASE_URL, api_key=KEY, max_retries=0) as many:
        ask_one = lambda: many.chat.completions.create(model=name, messages=MESSAGES)
        tasks = [asyncio.create_task(ask_one()) for _ in range(4)]
        await asyncio.sleep(0.3)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.to_thread(checks.nothing_is_left_of, name)


# What follows needs an engine that does more than complete texts.


@check("log probabilities come with their alternatives, plain and streaming", feature="logprobs")
def logprobs():
    content = ask(logprobs=True, top_logprobs=3, max_tokens=4).choices[0].logprobs.content
    assert len(content) == 4
    for token in content:
        assert token.logprob <= 0 and len(token.top_logprobs) == 3, token
        assert token.top_logprobs[0].logprob >= token.top_logprobs[-1].logprob, token
        # At temperature 0 the chosen token is the likeliest.
        assert token.token == token.top_logprobs[0].token, token
        assert token.bytes is None or bytes(token.bytes).decode(errors="replace") == token.token, token
    stream = ask(logprobs=True, max_tokens=4, stream=True)
    pieces = [one for chunk in stream for choice in chunk.choices if choice.logprobs for one in choice.logprobs.content]
    assert [one.token for one in pieces] == [one.token for one in content], pieces
    assert ask().choices[0].logprobs is None
    fails(openai.BadRequestError, lambda: ask(top_logprobs=3))
    fails(openai.BadRequestError, lambda: ask(logprobs=True, top_logprobs=21))


@check("log probabilities of completions, with echo", feature="logprobs")
def completion_logprobs():
    fields = {"model": MODEL, "prompt": "Keep-hot is", "max_tokens": 3, "temperature": 0, "logprobs": 2}
    found = client.completions.create(**fields).choices[0].logprobs
    assert len(found.tokens) == len(found.token_logprobs) == len(found.text_offset) == 3, found
    assert all(1 <= len(top) <= 3 for top in found.top_logprobs), found
    echoed = client.completions.create(**fields, echo=True).choices[0]
    assert echoed.text.startswith("Keep-hot is") and echoed.logprobs.token_logprobs[0] is None, echoed


@check("echo repeats the prompt, a suffix is refused, and tokens are a prompt, too", feature="completions")
def completion_fields():
    fields = {"model": MODEL, "prompt": "Keep-hot is", "max_tokens": 3}
    assert client.completions.create(**fields, echo=True).choices[0].text.startswith("Keep-hot is")
    error = fails(openai.BadRequestError, lambda: client.completions.create(**fields, suffix="."))
    assert error.param == "suffix", error.body
    for prompt in [[5, 6, 7], [[5, 6], [7]]]:
        assert client.completions.create(model=MODEL, prompt=prompt, max_tokens=3).choices


@check("best_of picks one of several completions", feature="completions")
def best_of():
    fields = {"model": MODEL, "prompt": "Keep-hot is", "max_tokens": 3}
    assert len(client.completions.create(**fields, best_of=3, temperature=1).choices) == 1
    fails(openai.BadRequestError, lambda: client.completions.create(**fields, best_of=1, n=2))


class Fact(pydantic.BaseModel):
    """A small answer: words of a bounded length, so that even a tiny model can say it."""

    model_config = {"extra": "forbid"}
    known: bool
    count: int


@check("an answer follows a JSON schema and is parsed into a model of pydantic", feature="json_schema")
def json_schema():
    parsed = client.chat.completions.parse(
        model=MODEL, messages=MESSAGES, response_format=Fact, temperature=0, max_tokens=200
    )
    assert isinstance(parsed.choices[0].message.parsed, Fact), parsed
    with client.chat.completions.stream(
        model=MODEL, messages=MESSAGES, response_format=Fact, temperature=0, max_tokens=200
    ) as stream:
        for _ in stream:
            pass
        assert isinstance(stream.get_final_completion().choices[0].message.parsed, Fact)
    # Cut off, it is the package's own error.
    fails(
        openai.LengthFinishReasonError,
        lambda: client.chat.completions.parse(model=MODEL, messages=MESSAGES, response_format=Fact, max_tokens=2),
    )


@check("enumerations, lists and nested objects of a JSON schema hold at any temperature", feature="json_schema")
def json_schema_kinds():
    schema = {
        "type": "object",
        "properties": {
            "colour": {"type": "string", "enum": ["red", "green"]},
            "sizes": {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2},
            "inner": {
                "type": "object",
                "properties": {"yes": {"type": ["boolean", "null"]}},
                "required": ["yes"],
                "additionalProperties": False,
            },
        },
        "required": ["colour", "sizes", "inner"],
        "additionalProperties": False,
    }
    wanted = {"type": "json_schema", "json_schema": {"name": "thing", "schema": schema, "strict": True}}
    for seed in range(4):
        answer = ask(response_format=wanted, temperature=1, seed=seed, max_tokens=300)
        if answer.choices[0].finish_reason == "length":
            continue
        said = json.loads(text_of(answer))
        assert said["colour"] in ["red", "green"] and len(said["sizes"]) == 2, said
        assert said["inner"]["yes"] in [True, False, None] and len(said) == 3, said


@check("a JSON schema that is none is a BadRequestError that names its field", feature="json_schema")
def json_schema_wrong():
    bad = {"type": "json_schema", "json_schema": {"name": "bad", "schema": {"type": "no-such-type"}}}
    error = fails(openai.BadRequestError, lambda: ask(response_format=bad))
    assert error.param and error.param.startswith("response_format"), error.body


@check("json_object gives an object", feature="json_schema")
def json_object():
    answer = ask(response_format={"type": "json_object"}, temperature=0, max_tokens=200)
    if answer.choices[0].finish_reason == "stop":
        assert isinstance(json.loads(text_of(answer)), dict), answer


TOOL = {
    "type": "function",
    "function": {
        "name": "keep_hot",
        "description": "How long a model stays loaded",
        "parameters": {
            "type": "object",
            "properties": {"minutes": {"type": "integer"}},
            "required": ["minutes"],
            "additionalProperties": False,
        },
    },
}


def the_call(answer):
    choice = answer.choices[0]
    assert choice.finish_reason in ("tool_calls", "stop"), answer
    [call] = choice.message.tool_calls
    assert call.id and call.type == "function" and call.function.name == "keep_hot", call
    assert isinstance(json.loads(call.function.arguments)["minutes"], int), call
    return call


@check("a tool that is named is called with arguments of its schema, plain and streaming", feature="tools")
def tools():
    named_choice = {"type": "function", "function": {"name": "keep_hot"}}
    for choice in [named_choice, "required"]:
        call = the_call(ask(tools=[TOOL], tool_choice=choice, max_tokens=200))
    with client.chat.completions.stream(
        model=MODEL, messages=MESSAGES, tools=[TOOL], tool_choice=named_choice, temperature=0, max_tokens=200
    ) as stream:
        for _ in stream:
            pass
        the_call(stream.get_final_completion())
    # Its result goes back as a message.
    answered = [
        *MESSAGES,
        {"role": "assistant", "content": None, "tool_calls": [call.model_dump()]},
        {"role": "tool", "tool_call_id": call.id, "content": "10"},
    ]
    assert ask(messages=answered, tools=[TOOL], max_tokens=20).choices
    assert ask(tools=[TOOL], tool_choice="none").choices[0].message.tool_calls is None
    error = fails(openai.BadRequestError, lambda: ask(tool_choice="required"))
    assert error.param in ("tool_choice", "tools"), error.body


@check("responses are created, plain and as events", feature="responses")
def responses():
    answer = client.responses.create(model=MODEL, input=checks.QUESTION, temperature=0)
    assert answer.status == "completed" and EXPECTED in answer.output_text, answer
    assert answer.usage.total_tokens == answer.usage.input_tokens + answer.usage.output_tokens > 0, answer.usage
    events = list(client.responses.create(model=MODEL, input=MESSAGES, temperature=0, stream=True))
    kinds = [event.type for event in events]
    assert kinds[0] == "response.created" and kinds[-1] == "response.completed", kinds
    deltas = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert deltas == events[-1].response.output_text == answer.output_text, deltas
    assert [event.sequence_number for event in events] == list(range(len(events)))
    with client.responses.stream(model=MODEL, input=checks.QUESTION, temperature=0) as stream:
        for _ in stream:
            pass
        assert stream.get_final_response().output_text == answer.output_text
    error = fails(openai.BadRequestError, lambda: client.responses.create(model=MODEL, input=[], max_output_tokens=-1))
    assert error.param, error.body
    fails(openai.NotFoundError, lambda: client.responses.create(model="no-such-model", input="x"))


def batch_line(custom_id, model):
    body = {"model": model, "messages": MESSAGES, "temperature": 0}
    return json.dumps({"custom_id": custom_id, "method": "POST", "url": "/v1/chat/completions", "body": body})


@check("a batch of requests runs, and each request has one result", feature="batches")
def batches():
    lines = "\n".join([batch_line("good", MODEL), batch_line("unknown", "no-such-model")])
    file = client.files.create(file=("lines.jsonl", lines.encode()), purpose="batch")
    assert file.purpose == "batch" and client.files.retrieve(file.id).bytes == file.bytes, file
    batch = client.batches.create(
        input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h", metadata={"a": "b"}
    )
    assert batch.metadata == {"a": "b"}, batch
    deadline = time.monotonic() + checks.PATIENCE_S
    while batch.status != "completed" and time.monotonic() < deadline:
        time.sleep(0.2)
        batch = client.batches.retrieve(batch.id)
    counts = batch.request_counts
    assert (counts.total, counts.completed, counts.failed) == (2, 1, 1), batch
    [line] = client.files.content(batch.output_file_id).text.splitlines()
    line = json.loads(line)
    answer = line["response"]["body"]["choices"][0]["message"]["content"]
    assert line["custom_id"] == "good" and answer == ask().choices[0].message.content, line
    [line] = client.files.content(batch.error_file_id).text.splitlines()
    assert json.loads(line)["response"]["status_code"] == 404, line
    assert batch.id in [known.id for known in client.batches.list(limit=10)]
    assert file.id in [known.id for known in client.files.list(purpose="batch")]
    assert client.files.delete(file.id).deleted
    error = fails(openai.BadRequestError, lambda: client.files.create(file=("x", b"{"), purpose="batch"))
    assert "line 1" in str(error), error
    fails(openai.ConflictError, lambda: client.batches.cancel(batch.id))


if __name__ == "__main__":
    checks.run()
