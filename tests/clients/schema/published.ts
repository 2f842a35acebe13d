// What of OpenAI's published types is checked. The names are those that published_schema.py asks for.

import type { ChatCompletion, ChatCompletionChunk } from "openai/resources/chat/completions";
import type { Completion } from "openai/resources/completions";
import type { CreateEmbeddingResponse } from "openai/resources/embeddings";
import type { Model } from "openai/resources/models";
import type { Response, ResponseStreamEvent } from "openai/resources/responses/responses";
import type { ErrorObject } from "openai/resources/shared";

export interface ModelList {
  object: "list";
  data: Model[];
}

export interface ErrorAnswer {
  error: ErrorObject;
}

export interface Published {
  chat: ChatCompletion;
  chunk: ChatCompletionChunk;
  completion: Completion;
  embeddings: CreateEmbeddingResponse;
  error: ErrorAnswer;
  model: Model;
  models: ModelList;
}

export interface PublishedResponses {
  response: Response;
  event: ResponseStreamEvent;
}
