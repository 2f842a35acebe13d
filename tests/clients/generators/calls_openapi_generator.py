"""Calls chat, embeddings and models with the client that openapi-generator made: plain, and a stream as bytes."""

import json
import os
import sys

sys.path.insert(0, sys.argv[1])
import openapi_client as client

configuration = client.Configuration(host=os.environ["MODEL_POOL_URL"] + "/llm", access_token=os.environ["MODEL_POOL_KEY"])
with client.ApiClient(configuration) as api:
    names = [model.id for model in client.ModelsApi(api).list_models().actual_instance.data]
    assert "tiny-guide" in names, names
    message = client.ChatMessage(client.UserMessage(role="user", content=client.ChatContent("What is a priority?")))
    request = client.ChatCompletionRequest(model="tiny-guide", max_tokens=4, messages=[message])
    chat = client.ChatApi(api).create_chat_completion(request)
    assert chat.choices[0].message.content and chat.usage.completion_tokens == 4, chat
    request.stream = True
    events = client.ChatApi(api).create_chat_completion_without_preload_content(request)
    lines = [line[6:] for line in events.data.decode().splitlines() if line.startswith("data: ")]
    assert lines[-1] == "[DONE]" and len(lines) > 3, lines
    assert json.loads(lines[0])["object"] == "chat.completion.chunk", lines
    texts = client.EmbeddingRequest(model="embedder", input=client.EmbeddingInput(["one two", "three"]))
    vectors = client.EmbeddingsApi(api).create_embeddings(texts)
    assert len(vectors.data) == 2, vectors
print("openapi-generator python passed")
