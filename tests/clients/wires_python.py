"""openai, anthropic, LangChain and pydantic-ai over every wire that they have: rows of the table in docs/guides/clients.md."""

import asyncio

import anthropic
import openai
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ThinkingPart
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

from wires import AFTER_TOOL, FACT, KEY, MODEL, PLAIN, THOUGHT, UNKNOWN, URL, Row, fails, run_all


class Fact(BaseModel):
    city: str
    degrees: int


SCHEMA = Fact.model_json_schema()
FUNCTION = {"name": "note_weather", "description": "Notes the weather.", "parameters": SCHEMA}
client = openai.OpenAI(base_url=f"{URL}/v1", api_key=KEY, max_retries=0)


def chat_row():
    row = Row("openai (PyPI)", "chat")
    ask = [{"role": "user", "content": "How warm is it?"}]

    def create(messages=ask, model=MODEL, **more):
        return client.chat.completions.create(model=model, messages=messages, **more)

    @row("chat")
    def _():
        assert create().choices[0].message.content == PLAIN

    @row("stream")
    def _():
        deltas = [chunk.choices[0].delta for chunk in create(stream=True) if chunk.choices]
        assert "".join(delta.content or "" for delta in deltas) == PLAIN
        assert "".join(getattr(delta, "reasoning_content", None) or "" for delta in deltas) == THOUGHT

    @row("tools")
    def _():
        tools = [{"type": "function", "function": FUNCTION}]
        said = create(tools=tools).choices[0].message
        call = said.tool_calls[0]
        assert Fact.model_validate_json(call.function.arguments) == Fact(**FACT)
        result = {"role": "tool", "tool_call_id": call.id, "content": "noted"}
        after = create([*ask, said, result], tools=tools)
        assert after.choices[0].message.content == AFTER_TOOL

    @row("second turn")
    def _():
        said = create().choices[0].message
        again = create([*ask, said.model_dump(), {"role": "user", "content": "And now?"}])
        assert again.choices[0].message.content == PLAIN

    @row("structured")
    def _():
        answer = client.chat.completions.parse(model=MODEL, messages=ask, response_format=Fact)
        assert answer.choices[0].message.parsed == Fact(**FACT)

    @row("reasoning")
    def _():
        assert create(reasoning_effort="low").choices[0].message.reasoning_content == THOUGHT

    @row("error")
    def _():
        assert fails(openai.NotFoundError, lambda: create(model=UNKNOWN)).code == "model_not_found"


def responses_row():
    row = Row("openai (PyPI)", "responses")
    tools = [{"type": "function", "strict": True, **FUNCTION}]

    def create(input="How warm is it?", model=MODEL, **more):
        return client.responses.create(model=model, input=input, **more)

    @row("chat")
    def _():
        assert create().output_text == PLAIN

    @row("stream")
    def _():
        with client.responses.stream(model=MODEL, input="How warm is it?") as stream:
            kinds = {event.type for event in stream}
            assert stream.get_final_response().output_text == PLAIN
        assert {"response.created", "response.output_text.delta", "response.completed"} <= kinds

    @row("tools")
    def _():
        first = create(tools=tools)
        call = next(item for item in first.output if item.type == "function_call")
        assert Fact.model_validate_json(call.arguments) == Fact(**FACT)
        result = {"type": "function_call_output", "call_id": call.call_id, "output": "noted"}
        after = create([result], previous_response_id=first.id, tools=tools)
        assert after.output_text == AFTER_TOOL

    @row("second turn")
    def _():
        first = create(store=True)
        second = create("And now?", previous_response_id=first.id, store=True)
        assert second.output_text == PLAIN and second.previous_response_id == first.id
        assert client.responses.retrieve(second.id).output_text == PLAIN
        items = client.responses.input_items.list(second.id)
        assert items.data[0].content[0].text == "And now?"
        client.responses.delete(second.id)
        # The whole conversation, sent back as it came.
        history = [{"role": "user", "content": "How warm is it?"}, *first.output]
        again = create([*history, {"role": "user", "content": "And now?"}], store=False)
        assert again.output_text == PLAIN

    @row("structured")
    def _():
        answer = client.responses.parse(model=MODEL, input="How warm is it?", text_format=Fact)
        assert answer.output_parsed == Fact(**FACT)

    @row("reasoning")
    def _():
        more = {"reasoning": {"effort": "low", "summary": "auto"}, "include": ["reasoning.encrypted_content"]}
        answer = create(**more, store=False)
        thought = answer.output[0]
        assert thought.summary[0].text == THOUGHT and thought.encrypted_content
        assert create([*answer.output, {"role": "user", "content": "And now?"}], **more).output_text == PLAIN

    @row("error")
    def _():
        fails(openai.NotFoundError, lambda: create(model=UNKNOWN))


def messages_row():
    row = Row("anthropic (PyPI)", "messages")
    client = anthropic.Anthropic(base_url=URL, api_key=KEY, max_retries=0)
    ask = [{"role": "user", "content": "How warm is it?"}]
    tools = [{"name": "note_weather", "description": "Notes the weather.", "input_schema": SCHEMA}]

    def create(messages=ask, model=MODEL, **more):
        return client.messages.create(model=model, max_tokens=4000, messages=messages, **more)

    def text(message):
        return "".join(block.text for block in message.content if block.type == "text")

    @row("chat")
    def _():
        assert text(create()) == PLAIN

    @row("stream")
    def _():
        with client.messages.stream(model=MODEL, max_tokens=4000, messages=ask) as stream:
            assert "".join(stream.text_stream) == PLAIN

    @row("tools")
    def _():
        said = create(tools=tools)
        call = next(block for block in said.content if block.type == "tool_use")
        assert call.input == FACT
        result = {"type": "tool_result", "tool_use_id": call.id, "content": "noted"}
        turns = [*ask, {"role": "assistant", "content": said.content}, {"role": "user", "content": [result]}]
        assert text(create(turns, tools=tools)) == AFTER_TOOL

    @row("second turn")
    def _():
        turns = [*ask, {"role": "assistant", "content": create().content}, {"role": "user", "content": "And now?"}]
        assert text(create(turns)) == PLAIN

    @row("structured")
    def _():
        form = {"type": "json_schema", "schema": {**SCHEMA, "additionalProperties": False}}
        answer = create(output_config={"format": form})
        assert Fact.model_validate_json(text(answer)) == Fact(**FACT)

    @row("reasoning")
    def _():
        thinking = {"type": "enabled", "budget_tokens": 2000}
        said = create(thinking=thinking)
        assert said.content[0].thinking == THOUGHT and said.content[0].signature
        turns = [*ask, {"role": "assistant", "content": said.content}, {"role": "user", "content": "And now?"}]
        assert text(create(turns, thinking=thinking)) == PLAIN

    @row("error")
    def _():
        fails(anthropic.NotFoundError, lambda: create(model=UNKNOWN))


@tool
def note_weather(city: str, degrees: int) -> str:
    """Notes the weather."""
    return "noted"


def langchain_row(wire: str):
    row = Row("LangChain", wire)
    is_responses = wire == "responses"

    def model(name=MODEL, **more):
        url = f"{URL}/v1"
        return ChatOpenAI(model=name, base_url=url, api_key=KEY, max_retries=0, use_responses_api=is_responses, **more)

    ask = HumanMessage("How warm is it?")

    @row("chat")
    def _():
        assert model().invoke([ask]).text == PLAIN

    @row("stream")
    def _():
        assert "".join(chunk.text for chunk in model().stream([ask])) == PLAIN

    @row("tools")
    def _():
        bound = model().bind_tools([note_weather])
        said = bound.invoke([ask])
        assert said.tool_calls[0]["args"] == FACT
        assert bound.invoke([ask, said, note_weather.invoke(said.tool_calls[0])]).text == AFTER_TOOL

    @row("second turn")
    def _():
        said = model().invoke([ask])
        assert model().invoke([ask, said, HumanMessage("And now?")]).text == PLAIN
        if is_responses:
            follows = model(use_previous_response_id=True)
            assert follows.invoke([ask, follows.invoke([ask]), HumanMessage("And now?")]).text == PLAIN

    @row("structured")
    def _():
        assert model().with_structured_output(Fact).invoke([ask]) == Fact(**FACT)

    if is_responses:
        # Over chat it drops what it does not know of OpenAI.
        @row("reasoning")
        def _():
            said = model(reasoning={"effort": "low", "summary": "auto"}).invoke([ask])
            thought = next(block for block in said.content_blocks if block["type"] == "reasoning")
            assert thought["reasoning"] == THOUGHT

    @row("error")
    def _():
        fails(openai.NotFoundError, lambda: model(UNKNOWN).invoke([ask]))


def pydantic_ai_row(wire: str):
    row = Row("pydantic-ai", wire)

    def model(name=MODEL):
        if wire == "messages":
            return AnthropicModel(name, provider=AnthropicProvider(base_url=URL, api_key=KEY))
        kind = OpenAIResponsesModel if wire == "responses" else OpenAIChatModel
        return kind(name, provider=OpenAIProvider(base_url=f"{URL}/v1", api_key=KEY))

    @row("chat")
    def _():
        assert Agent(model()).run_sync("How warm is it?").output == PLAIN

    @row("stream")
    def _():
        async def streamed():
            async with Agent(model()).run_stream("How warm is it?") as result:
                return [text async for text in result.stream_text()][-1]

        assert asyncio.run(streamed()) == PLAIN

    @row("tools")
    def _():
        noted = []
        agent = Agent(model())

        @agent.tool_plain
        def note_weather(city: str, degrees: int) -> str:
            noted.append((city, degrees))
            return "noted"

        assert agent.run_sync("How warm is it?").output == AFTER_TOOL
        assert noted == [("Ulm", 21)]

    @row("second turn")
    def _():
        agent = Agent(model())
        first = agent.run_sync("How warm is it?")
        assert agent.run_sync("And now?", message_history=first.all_messages()).output == PLAIN

    @row("structured")
    def _():
        assert Agent(model(), output_type=Fact).run_sync("How warm is it?").output == Fact(**FACT)

    @row("reasoning")
    def _():
        settings = {
            "chat": {"openai_reasoning_effort": "low"},
            "responses": {"openai_reasoning_effort": "low", "openai_reasoning_summary": "detailed"},
            "messages": {"anthropic_thinking": {"type": "enabled", "budget_tokens": 2000}},
        }[wire]
        result = Agent(model(), model_settings=settings).run_sync("How warm is it?")
        parts = [part for message in result.all_messages() for part in message.parts]
        assert any(isinstance(part, ThinkingPart) and THOUGHT in part.content for part in parts), parts

    @row("error")
    def _():
        fails(ModelHTTPError, lambda: Agent(model(UNKNOWN)).run_sync("How warm is it?"))


chat_row()
responses_row()
messages_row()
for wire in ["chat", "responses"]:
    langchain_row(wire)
for wire in ["chat", "responses", "messages"]:
    pydantic_ai_row(wire)
run_all()
