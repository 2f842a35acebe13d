"""Calls chat, embeddings and models with the client that openapi-python-client made."""

import os
import sys

sys.path.insert(0, sys.argv[1])
from model_pool_client import AuthenticatedClient
from model_pool_client.api.chat import create_chat_completion
from model_pool_client.api.embeddings import create_embeddings
from model_pool_client.api.models import list_models
from model_pool_client.models import ChatCompletionRequest, EmbeddingRequest, UserMessage, UserMessageRole

client = AuthenticatedClient(base_url=os.environ["MODEL_POOL_URL"] + "/llm", token=os.environ["MODEL_POOL_KEY"])
names = [model.id for model in list_models.sync(client=client).data]
assert "tiny-guide" in names, names
message = UserMessage(role=UserMessageRole.USER, content="What is a priority?")
request = ChatCompletionRequest(model="tiny-guide", max_tokens=4, messages=[message])
chat = create_chat_completion.sync(client=client, body=request)
assert chat.choices[0].message.content and chat.usage.completion_tokens == 4, chat
vectors = create_embeddings.sync(client=client, body=EmbeddingRequest(model="embedder", input_=["one two", "three"]))
assert len(vectors.data) == 2, vectors
print("openapi-python-client passed")
