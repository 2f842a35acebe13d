// What of Anthropic's published types is checked. The names are those that published_schema.py asks for.

import type { Message, MessageTokensCount, RawMessageStreamEvent } from "@anthropic-ai/sdk/resources/messages/messages";
import type { ModelInfo } from "@anthropic-ai/sdk/resources/models";
import type { ErrorResponse } from "@anthropic-ai/sdk/resources/shared";

/** A page of the list of models. */
export interface ModelPage {
  data: ModelInfo[];
  first_id: string | null;
  has_more: boolean;
  last_id: string | null;
}

export interface PublishedAnthropic {
  count: MessageTokensCount;
  error: ErrorResponse;
  event: RawMessageStreamEvent;
  message: Message;
  model: ModelInfo;
  models: ModelPage;
}
