"""instructor, in the modes that it has for OpenAI, and LlamaIndex: rows of the table in docs/guides/clients.md. They need an
older `openai` package than the other scripts."""

import instructor
import openai
from llama_index.core.llms import ChatMessage
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike
from pydantic import BaseModel

from wires import AFTER_TOOL, FACT, KEY, MODEL, PLAIN, UNKNOWN, URL, Row, fails, run_all


class Fact(BaseModel):
    city: str
    degrees: int


ASK = [{"role": "user", "content": "How warm is it?"}]


def instructor_row(mode):
    row = Row(f"instructor, {mode.name}", "responses" if mode.name.startswith("RESPONSES") else "chat")
    raw = openai.OpenAI(base_url=f"{URL}/v1", api_key=KEY, max_retries=0)
    client = instructor.from_openai(raw, mode=mode)

    def create(model=MODEL):
        more = {"max_retries": 0}
        return client.chat.completions.create(model=model, messages=ASK, response_model=Fact, **more)

    @row("structured")
    def _():
        assert create().model_dump() == FACT, create()

    @row("error")
    def _():
        fails(Exception, lambda: create(UNKNOWN))


def llama_index_row():
    row = Row("LlamaIndex", "chat")

    def model(name=MODEL):
        more = {"is_chat_model": True, "is_function_calling_model": True, "max_retries": 0}
        return OpenAILike(model=name, api_base=f"{URL}/v1", api_key=KEY, **more)

    ask = [ChatMessage(role="user", content="How warm is it?")]

    @row("chat")
    def _():
        assert model().chat(ask).message.content == PLAIN

    @row("stream")
    def _():
        assert "".join(part.delta or "" for part in model().stream_chat(ask)) == PLAIN

    @row("tools")
    def _():
        noted = []

        def note_weather(city: str, degrees: int) -> str:
            """Notes the weather."""
            noted.append((city, degrees))
            return "noted"

        tool = FunctionTool.from_defaults(fn=note_weather)
        llm = model()
        said = llm.chat_with_tools([tool], chat_history=ask)
        call = llm.get_tool_calls_from_response(said)[0]
        result = tool(**call.tool_kwargs)
        assert noted == [("Ulm", 21)]
        after = ChatMessage(role="tool", content=str(result), additional_kwargs={"tool_call_id": call.tool_id})
        answer = llm.chat_with_tools([tool], chat_history=[*ask, said.message, after])
        assert answer.message.content == AFTER_TOOL

    @row("second turn")
    def _():
        said = model().chat(ask).message
        assert model().chat([*ask, said, ChatMessage(role="user", content="And now?")]).message.content == PLAIN

    @row("structured")
    def _():
        assert model().as_structured_llm(Fact).chat(ask).raw == Fact(**FACT)

    @row("error")
    def _():
        fails(openai.NotFoundError, lambda: model(UNKNOWN).chat(ask))


for name in ["TOOLS", "TOOLS_STRICT", "JSON", "JSON_SCHEMA", "RESPONSES_TOOLS"]:

    instructor_row(instructor.Mode[name])
llama_index_row()
run_all()
