"""Talks to a pool with the official OpenAI client, as any user would.

    python demo/openai_smoke.py http://127.0.0.1:8080/v1

Needs the package `openai` and a pool that knows the three demo models and may load them. Prints one
line when everything is as it should be; otherwise ends with an AssertionError or the client's error.
Steers nothing: loading and evicting is left to the pool.
"""

import sys

import openai

DEMO_MODELS = ("tiny-guide", "tiny-chat", "tiny-helper")
QUESTION = [{"role": "user", "content": "What is keep-hot?"}]
EXPECTED = "how long a model stays loaded"


def plain(client, model):
    """One answer in one piece; returns its text."""
    answer = client.chat.completions.create(model=model, messages=QUESTION, temperature=0)
    assert answer.object == "chat.completion", answer
    assert answer.model == model, answer
    assert answer.choices[0].finish_reason == "stop", answer
    usage = answer.usage
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens > 0, usage
    return answer.choices[0].message.content


def streamed(client, model):
    """The same as a stream, with its usage at the end; returns text and number of pieces."""
    pieces, finish, usage = [], None, None
    stream = client.chat.completions.create(
        model=model, messages=QUESTION, temperature=0, stream=True, stream_options={"include_usage": True}
    )
    for chunk in stream:
        assert chunk.object == "chat.completion.chunk" and chunk.model == model, chunk
        usage = chunk.usage or usage
        for choice in chunk.choices:
            finish = choice.finish_reason or finish
            if choice.delta.content:
                pieces.append(choice.delta.content)
    assert finish == "stop", finish
    assert usage is not None and usage.completion_tokens > 0, usage
    return "".join(pieces), len(pieces)


def unknown(client):
    """A model that does not exist is the client's own NotFoundError."""
    try:
        client.chat.completions.create(model="no-such-model", messages=QUESTION)
    except openai.NotFoundError as error:
        assert error.status_code == 404 and error.code == "model_not_found", error.body
        assert error.request_id, "an error has a request id"
        return
    raise AssertionError("a model that does not exist was answered")


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: openai_smoke.py BASE_URL, for example http://127.0.0.1:8080/v1")
    # No retries: what fails the first time is to be seen.
    client = openai.OpenAI(base_url=sys.argv[1], api_key="none", max_retries=0, timeout=20)
    listed = [model.id for model in client.models.list()]
    for model in DEMO_MODELS:
        assert model in listed, f"{model} is not listed: {listed}"
        assert client.models.retrieve(model).id == model
        text = plain(client, model)
        assert EXPECTED in text, f"{model} said: {text}"
        again, pieces = streamed(client, model)
        assert again == text, f"{model} streamed: {again}, and said: {text}"
        assert pieces > 1, f"{model} streamed {pieces} piece"
    unknown(client)
    print(
        f"{openai.__version__} talks to {', '.join(DEMO_MODELS)}, plain and streaming; an unknown model is its NotFoundError"
    )


if __name__ == "__main__":
    main()
