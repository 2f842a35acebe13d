"""`langchain-openai` against a pool: chat, streams, batches, chains, errors. See checks.py."""

import os

# Nothing is told to anybody outside.
os.environ["LANGCHAIN_TRACING_V2"] = "false"

import openai
import pydantic
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAI, OpenAIEmbeddings

import checks
from checks import BASE_URL, EXPECTED, KEY, MODEL, PATIENCE_S, QUESTION, check, fails, named

COMMON = {"base_url": BASE_URL, "api_key": KEY, "max_retries": 0, "timeout": PATIENCE_S}


def chat(**fields):
    return ChatOpenAI(**COMMON | {"model": MODEL, "temperature": 0} | fields)


@check("a chat model answers, and tells what it used")
def invoke():
    answer = chat().invoke(QUESTION)
    assert isinstance(answer, AIMessage) and EXPECTED in answer.content, answer
    assert answer.usage_metadata["total_tokens"] > 0, answer.usage_metadata
    assert answer.response_metadata["model_name"] == MODEL and answer.response_metadata["finish_reason"] == "stop"


@check("a conversation with a system message and earlier turns is taken")
def conversation():
    turns = [SystemMessage("Be brief."), HumanMessage("Hello"), AIMessage("Hello."), HumanMessage(QUESTION)]
    assert chat().invoke(turns).content


@check("a stream comes in pieces, with its usage at the end")
def stream():
    chunks = list(chat(stream_usage=True).stream(QUESTION))
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole += chunk
    assert len(chunks) > 3 and EXPECTED in whole.content, whole
    assert whole.usage_metadata["output_tokens"] > 0, whole.usage_metadata


@check("asynchronous calls, streams and batches answer the same")
async def asynchronous():
    answer = (await chat().ainvoke(QUESTION)).content
    assert "".join([chunk.content async for chunk in chat().astream(QUESTION)]) == answer
    assert {one.content for one in await chat().abatch([QUESTION] * 6)} == {answer}


@check("a chain of prompt, model and parser runs")
def chain():
    prompt = ChatPromptTemplate.from_messages([("user", "What is {thing}?")])
    assert EXPECTED in (prompt | chat() | StrOutputParser()).invoke({"thing": "keep-hot"})
    assert "".join((prompt | chat() | StrOutputParser()).stream({"thing": "keep-hot"})).strip()


@check("stops, limits, seeds and several answers are passed on")
def settings():
    assert "loaded" not in chat(stop=["loaded"]).invoke(QUESTION).content
    answer = chat(max_tokens=3).invoke(QUESTION)
    assert answer.response_metadata["finish_reason"] == "length", answer
    said = {chat(temperature=1.5, seed=7, max_tokens=20).invoke(QUESTION).content for _ in range(2)}
    assert len(said) == 1, said
    assert len(chat(n=2).generate([[HumanMessage(QUESTION)]]).generations[0]) == 2


@check("texts are completed")
def completion():
    model = OpenAI(**COMMON | {"model": MODEL, "temperature": 0, "max_tokens": 8})
    assert model.invoke("Keep-hot is") == "".join(model.stream("Keep-hot is"))


@check("errors are those of the openai package")
def errors():
    error = fails(openai.NotFoundError, lambda: chat(model="no-such-model").invoke(QUESTION))
    assert error.code == "model_not_found", error.body
    fails(openai.NotFoundError, lambda: list(chat(model="no-such-model").stream(QUESTION)))
    fails(openai.BadRequestError, lambda: chat(temperature=9).invoke(QUESTION))
    fails(openai.AuthenticationError, lambda: chat(api_key="mp-no-such-key").invoke(QUESTION))


@check("embeddings of a model that completes texts are told as 501")
def embeddings():
    embedder = OpenAIEmbeddings(**COMMON | {"model": MODEL, "check_embedding_ctx_length": False})
    error = fails(openai.InternalServerError, lambda: embedder.embed_query("keep-hot"))
    assert error.status_code == 501, error


@check("embeddings come for a query and for documents", needs=["embedder"])
def embedder():
    found = OpenAIEmbeddings(**COMMON | {"model": named("embedder"), "check_embedding_ctx_length": False})
    assert len(found.embed_documents(["one two", "three"])) == 2 and found.embed_query("one")


@check("a stream that is left in the middle leaves nothing behind", needs=["talker"])
def abort():
    stream = chat(model=named("talker")).stream(QUESTION)
    next(stream)
    stream.close()
    checks.nothing_is_left_of(named("talker"))


# What follows needs an engine that does more than complete texts.


class Fact(pydantic.BaseModel):
    """A small answer."""

    known: bool
    count: int


@check("a structured answer follows its schema", feature="json_schema")
def structured():
    fact = chat(max_tokens=200).with_structured_output(Fact, method="json_schema").invoke(QUESTION)
    assert isinstance(fact, Fact), fact


@tool
def keep_hot(minutes: int) -> int:
    """How long a model stays loaded."""
    return minutes


@check("a tool is called with parsed arguments, plain and streaming", feature="tools")
def tools():
    model = chat(max_tokens=200).bind_tools([keep_hot], tool_choice="keep_hot")
    [call] = model.invoke(QUESTION).tool_calls
    assert call["name"] == "keep_hot" and isinstance(call["args"]["minutes"], int), call
    whole = None
    for chunk in model.stream(QUESTION):
        whole = chunk if whole is None else whole + chunk
    assert whole.tool_calls[0]["args"] == call["args"], whole
    assert isinstance(keep_hot.invoke(call["args"]), int)


@check("log probabilities come in the answer's metadata", feature="logprobs")
def logprobs():
    answer = chat(logprobs=True, top_logprobs=2, max_tokens=3).invoke(QUESTION)
    assert len(answer.response_metadata["logprobs"]["content"]) == 3, answer.response_metadata


@check("the Responses API answers likewise", feature="responses")
def responses():
    answer = chat(use_responses_api=True).invoke(QUESTION)
    assert EXPECTED in answer.text, answer
    chunks = list(chat(use_responses_api=True).stream(QUESTION))
    assert EXPECTED in "".join(chunk.text for chunk in chunks), chunks


if __name__ == "__main__":
    checks.run()
