"""outlines, inspect-ai and lm-eval: rows of the table in docs/guides/clients.md. lm-eval runs as its command, with a task of two
questions that lies in a file."""

import asyncio
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import openai
import outlines
from inspect_ai.model import (
    BatchConfig,
    ChatMessageUser,
    ContentReasoning,
    GenerateConfig,
    ResponseSchema,
    get_model,
)
from inspect_ai.tool import tool
from inspect_ai.util import json_schema
from outlines.inputs import Chat
from pydantic import BaseModel

from wires import AFTER_TOOL, FACT, KEY, MODEL, PLAIN, THOUGHT, UNKNOWN, URL, Row, fails, run_all


class Fact(BaseModel):
    city: str
    degrees: int


def outlines_row():
    row = Row("outlines", "chat")
    client = openai.OpenAI(base_url=f"{URL}/v1", api_key=KEY, max_retries=0)

    def model(name=MODEL):
        return outlines.from_openai(client, name)

    @row("chat")
    def _():
        assert model()("How warm is it?") == PLAIN
        assert outlines.from_vllm(client, MODEL)("How warm is it?") == PLAIN

    @row("stream")
    def _():
        assert "".join(model().stream("How warm is it?")) == PLAIN

    @row("second turn")
    def _():
        said = model()("How warm is it?")
        turns = [("user", "How warm is it?"), ("assistant", said), ("user", "And now?")]
        assert model()(Chat([{"role": role, "content": text} for role, text in turns])) == PLAIN

    @row("structured")
    def _():
        assert Fact.model_validate_json(model()("How warm is it?", Fact)) == Fact(**FACT)

    @row("error")
    def _():
        fails(outlines.exceptions.NotFoundError, lambda: model(UNKNOWN)("How warm is it?"))


def inspect_row(client: str, wire: str, provider: str, **more):
    row = Row(client, wire)

    def model(name=MODEL, **settings):
        config = GenerateConfig(max_retries=0, **settings)
        return get_model(f"{provider}/{name}", base_url=f"{URL}/v1", api_key=KEY, config=config, memoize=False, **more)

    def ask(*words, of=None, **arguments):
        return asyncio.run((of or model()).generate(*words, **arguments))

    @row("chat")
    def _():
        assert ask("How warm is it?").completion == PLAIN

    @row("stream")
    def _():
        parts = []

        async def on_stream(event):
            parts.append(event)

        assert ask("How warm is it?", on_stream=on_stream).completion == PLAIN
        texts = [part.text for part in parts if part.type == "text"]
        thoughts = [part.reasoning for part in parts if part.type == "reasoning"]
        assert "".join(texts) == PLAIN and "".join(thoughts) == THOUGHT, parts

    @row("tools")
    def _():
        noted = []

        @tool
        def note_weather():
            async def execute(city: str, degrees: int) -> str:
                """Notes the weather.

                Args:
                    city: Where it is.
                    degrees: How warm it is.
                """
                noted.append((city, degrees))
                return "noted"

            return execute

        _, output = asyncio.run(model().generate_loop("How warm is it?", tools=[note_weather()]))
        assert output.completion == AFTER_TOOL and noted == [("Ulm", 21)], (output, noted)

    @row("second turn")
    def _():
        said = ask("How warm is it?").message
        turns = [ChatMessageUser(content="How warm is it?"), said, ChatMessageUser(content="And now?")]
        assert ask(turns).completion == PLAIN

    @row("structured")
    def _():
        form = ResponseSchema(name="fact", json_schema=json_schema(Fact))
        answer = ask("How warm is it?", of=model(response_schema=form))
        assert Fact.model_validate_json(answer.completion) == Fact(**FACT)

    @row("reasoning")
    def _():
        said = ask("How warm is it?", of=model(reasoning_effort="low", reasoning_summary="auto")).message
        thought = next(part for part in said.content if isinstance(part, ContentReasoning))
        assert THOUGHT in (thought.summary, thought.reasoning), thought

    @row("error")
    def _():
        fails(openai.NotFoundError, lambda: ask("How warm is it?", of=model(UNKNOWN)))


def inspect_batch_row(wire: str, responses_api: bool):
    """Its batch mode: the requests of an evaluation are one file, which is a batch of the pool."""
    row = Row("inspect-ai, batch", wire)

    def ask(name, count):
        batch = BatchConfig(size=count, send_delay=0.2, tick=0.2)
        config = GenerateConfig(max_retries=0, batch=batch)
        settings = {"base_url": f"{URL}/v1", "api_key": KEY, "config": config, "responses_api": responses_api}
        model = get_model(f"openai/{name}", memoize=False, **settings)

        async def all_responses():
            return await asyncio.gather(*[model.generate(f"How warm is it in town {town}?") for town in range(count)])

        return [response.completion for response in asyncio.run(all_responses())]

    @row("chat")
    def _():
        assert ask(MODEL, 5) == [PLAIN] * 5


TASK = """\
task: greeting
dataset_path: json
dataset_kwargs: {{data_files: {{test: {file}}}}}
test_split: test
output_type: generate_until
doc_to_text: "{{{{question}}}}"
doc_to_target: "{{{{answer}}}}"
generation_kwargs: {{until: ["\\n"], max_gen_toks: 16}}
metric_list: [{{metric: exact_match, aggregation: mean, higher_is_better: true}}]
"""


def lm_eval_row(wire: str, kind: str, route: str, *options: str):
    row = Row("lm-eval", wire)

    def run(model: str):
        """Whether it succeeded, what it printed, and its results."""
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            questions = [{"question": text, "answer": PLAIN} for text in ("Greet me.", "Greet me again.")]
            (folder / "questions.jsonl").write_text("".join(json.dumps(one) + "\n" for one in questions))
            (folder / "greeting.yaml").write_text(TASK.format(file=folder / "questions.jsonl"))
            settings = f"model={model},base_url={URL}/v1/{route},num_concurrent=2,max_retries=1"
            command = [pathlib.Path(sys.executable).parent / "lm_eval", "--model", kind, "--model_args"]
            command += [",".join([settings, *options]), "--tasks", "greeting", "--include_path", folder]
            command += ["--output_path", folder / "results"] + (["--apply_chat_template"] if wire == "chat" else [])
            env = os.environ | {"OPENAI_API_KEY": KEY, "HF_HUB_OFFLINE": "1"}
            done = subprocess.run(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            results = [json.loads(file.read_text()) for file in folder.glob("results/**/results*.json")]
            return done.returncode == 0, done.stdout, results

    @row("chat")
    def _():
        is_done, text, results = run(MODEL)
        assert is_done and results[0]["results"]["greeting"]["exact_match,none"] == 1, text

    @row("error")
    def _():
        is_done, text, _ = run(UNKNOWN)
        assert not is_done and f"no model is called {UNKNOWN}" in text, text


outlines_row()
inspect_row("inspect-ai, openai", "responses", "openai", responses_api=True)
inspect_row("inspect-ai, openai-api", "chat", "openai-api/pool")
inspect_batch_row("responses", True)
inspect_batch_row("chat", False)
lm_eval_row("chat", "local-chat-completions", "chat/completions")
lm_eval_row("completions", "local-completions", "completions", "tokenizer_backend=None")
run_all()
