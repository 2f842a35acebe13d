"""The official `ollama` package of PyPI against a pool with `compat.ollama`. See checks.py."""

import asyncio
import base64
import json
import os

import ollama

import checks
from checks import EXPECTED, KEY, MESSAGES, MODEL, PATIENCE_S, QUESTION, URL, check, fails, named

# Of the caller's own environment nothing may go along.
for name in ("OLLAMA_HOST", "OLLAMA_API_KEY"):
    os.environ.pop(name, None)
HEADERS = {"Authorization": f"Bearer {KEY}"}
client = ollama.Client(host=URL, headers=HEADERS, timeout=PATIENCE_S)
COLD = {"temperature": 0}


def chat(**fields):
    return client.chat(**{"model": MODEL, "messages": MESSAGES, "options": COLD} | fields)


@check("a chat is answered, with what it took")
def plain():
    answer = chat()
    assert EXPECTED in answer.message.content and answer["message"]["role"] == "assistant", answer
    assert (answer.done, answer.done_reason, answer.model) == (True, "stop", MODEL), answer
    assert answer.prompt_eval_count > 0 and answer.eval_count > 0, answer
    parts = answer.load_duration + answer.prompt_eval_duration + answer.eval_duration
    assert 0 < parts <= answer.total_duration < PATIENCE_S * 1e9, answer


@check("a stream says the same, piece by piece, and ends with what it took")
def streamed():
    pieces = list(chat(stream=True))
    assert len(pieces) > 3 and [piece.done for piece in pieces] == [False] * (len(pieces) - 1) + [True]
    assert "".join(piece.message.content for piece in pieces) == chat().message.content
    assert pieces[-1].eval_count > 0 and pieces[-1].total_duration > 0, pieces[-1]


@check("a prompt is answered, plain and streaming, also by a name with its tag")
def prompts():
    answer = client.generate(model=f"{MODEL}:latest", prompt=QUESTION, options=COLD)
    assert EXPECTED in answer.response and answer.context is None, answer
    pieces = client.generate(model=MODEL, prompt=QUESTION, options=COLD, stream=True)
    assert "".join(piece.response for piece in pieces) == answer.response
    briefly = client.generate(model=MODEL, prompt=QUESTION, system="Be brief.", options=COLD | {"num_predict": 4})
    assert briefly.done_reason == "length" and briefly.eval_count == 4, briefly


@check("a raw prompt is completed")
def raw():
    answer = client.generate(model=MODEL, prompt="Keep-hot is", raw=True, options=COLD | {"num_predict": 8})
    assert answer.response and answer.eval_count <= 8, answer


@check("options are honoured: stop, seed, limits; those of a load do no harm")
def options():
    stopped = chat(options=COLD | {"stop": ["loaded"]})
    assert "a model stays" in stopped.message.content and "loaded" not in stopped.message.content, stopped
    warm = {"temperature": 1.5, "seed": 7, "num_predict": 20, "top_k": 50, "top_p": 0.9, "repeat_penalty": 1.1}
    assert len({chat(options=warm).message.content for _ in range(3)}) == 1
    assert EXPECTED in chat(options=ollama.Options(temperature=0, num_ctx=4096, num_gpu=1)).message.content


@check("an answer follows a JSON schema, and `json` is an object", feature="json_schema")
def formats():
    schema = {
        "type": "object",
        "properties": {"known": {"type": "boolean"}, "count": {"type": "integer"}},
        "required": ["known", "count"],
        "additionalProperties": False,
    }


    answer = chat(format=schema, options=COLD | {"num_predict": 200})
    fact = json.loads(answer.message.content)
    assert isinstance(fact["known"], bool) and isinstance(fact["count"], int), fact
    assert chat(format="json", options=COLD | {"num_predict": 20}).message.content.startswith("{")


@check("the asynchronous client answers many at once, plain and streaming")
async def asynchronous():
    many = ollama.AsyncClient(host=URL, headers=HEADERS, timeout=PATIENCE_S)

    async def plain():
        answer = await many.chat(model=MODEL, messages=MESSAGES, options=COLD)
        return answer.message.content

    async def streaming():
        stream = await many.chat(model=MODEL, messages=MESSAGES, options=COLD, stream=True)
        return "".join([piece.message.content async for piece in stream])

    answers = await asyncio.gather(*[call() for call in [plain, streaming] * 6])
    assert len(set(answers)) == 1 and EXPECTED in answers[0], set(answers)


@check("models are listed and shown with what their files say")
def models():
    listed = {model.model: model for model in client.list().models}
    model = listed[f"{MODEL}:latest"]
    assert model.size > 100_000 and len(model.digest) == 64 and model.modified_at.year > 2000, model
    shown = client.show(MODEL)
    assert shown.details == model.details and shown.details.format == "safetensors", shown
    assert shown.capabilities == ["completion"] and shown.modelinfo["general.architecture"], shown
    for name in listed:
        assert client.show(name).details


@check("what is loaded is listed with its end")
def running():
    chat()
    models = {model.model: model for model in client.ps().models}
    model = models[f"{MODEL}:latest"]
    assert model.size > 0 and model.expires_at.tzinfo is not None, model


@check("without a prompt a model is loaded; a user does not unload it", needs=["talker"])
def loads():
    name = named("talker")
    loaded = client.generate(model=name, keep_alive="10m")
    assert (loaded.done, loaded.done_reason, loaded.response) == (True, "load", ""), loaded
    assert name in [model.model.removesuffix(":latest") for model in client.ps().models]
    error = fails(ollama.ResponseError, lambda: client.generate(model=name, keep_alive=0))
    assert error.status_code == 403 and "administrators" in error.error, error


@check("an administrator unloads", needs=["talker", "admin_key"])
def unloads():
    name = named("talker")
    client.generate(model=name)
    steering = ollama.Client(host=URL, headers={"Authorization": f"Bearer {checks.ADMIN_KEY}"}, timeout=PATIENCE_S)
    unloaded = steering.generate(model=name, keep_alive=0)
    assert unloaded.done_reason == "unload", unloaded
    assert name not in [model.model.removesuffix(":latest") for model in client.ps().models]


@check("embeddings are vectors of the length 1, one for each text", needs=["embedder"])
def embeddings():
    name = named("embedder")
    answer = client.embed(model=name, input=["one two", "three"])
    assert len(answer.embeddings) == 2 and answer.total_duration > 0, answer
    for vector in answer.embeddings:
        assert abs(sum(number * number for number in vector) - 1) < 1e-3, vector
    older = client.embeddings(model=name, prompt="one two")
    assert len(older.embedding) == len(answer.embeddings[0]), older


@check("a tool is called with an object, and its result goes on", needs=["talker"])
def tools():
    def weather(city: str) -> str:
        """The weather.

        Args:
            city: Where
        """
        return f"rain in {city}"

    name = named("talker")
    asked = [{"role": "user", "content": "How is the weather?"}]
    answer = client.chat(model=name, messages=asked, tools=[weather])
    call = answer.message.tool_calls[0]
    assert (call.function.name, call.function.arguments) == ("weather", {"city": "Ulm"}), call
    result = {"role": "tool", "content": weather(**call.function.arguments), "tool_name": call.function.name}
    options = {"num_predict": 5}
    answer = client.chat(model=name, messages=[*asked, answer.message, result], tools=[weather], options=options)
    assert answer.message.content and answer.done_reason == "length", answer


@check("a picture goes on to the engine, which says that it takes none")
def pictures():
    png = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(16)).decode()
    asked = [{"role": "user", "content": "What is this?", "images": [png]}]
    error = fails(ollama.ResponseError, lambda: chat(messages=asked))
    assert error.status_code == 400 and "content" in error.error, error


@check("a model that does not exist is told in words that programs look for, plain and streaming")
def unknown():
    for call in [
        lambda: chat(model="tiny-giude"),
        lambda: list(chat(model="tiny-giude", stream=True)),
        lambda: client.generate(model="tiny-giude", prompt="x"),
        lambda: client.embed(model="tiny-giude", input="x"),
        lambda: client.show("tiny-giude"),
    ]:
        error = fails(ollama.ResponseError, call)
        assert error.status_code == 404 and error.error.startswith("model 'tiny-giude' not found"), error
        assert MODEL in error.error, error


@check("wrong requests and keys are told with their status")
def wrong():
    error = fails(ollama.ResponseError, lambda: chat(options={"temperature": "hot"}))
    assert error.status_code == 400 and "options.temperature" in error.error, error
    error = fails(ollama.ResponseError, lambda: chat(keep_alive="abc"))
    assert error.status_code == 400 and "keep_alive" in error.error, error
    stranger = ollama.Client(host=URL, headers={"Authorization": "Bearer mp-no-such-key"})
    error = fails(ollama.ResponseError, stranger.list)
    assert error.status_code == 401 and "mp-no-such-key" not in error.error, error


@check("a registered model is pulled at once, and other changes say what to do")
def pulls():
    assert client.pull(MODEL).status == "success"
    assert [line.status for line in client.pull(MODEL, stream=True)][-1] == "success"
    error = fails(ollama.ResponseError, lambda: client.pull("llama3.2"))
    assert error.status_code == 404 and "admin-client register" in error.error, error
    for call in [
        lambda: client.create(model="mine", from_=MODEL),
        lambda: client.copy(MODEL, "mine"),
        lambda: client.push(MODEL),
        lambda: client.delete(MODEL),
    ]:
        error = fails(ollama.ResponseError, call)
        assert error.status_code == 501, error
    assert client.show(MODEL).details


@check("a stream that is left in the middle leaves nothing behind", needs=["talker", "admin_key"])
def abort():
    name = named("talker")
    stream = chat(model=name, stream=True)
    for count, _ in enumerate(stream):
        if count == 5:
            break
    checks.wait_for("the request to be seen", lambda: checks.requests_of(name)[0] == 1)
    stream.close()
    checks.nothing_is_left_of(name)


checks.run()
