"""The `llm` command line tool against a pool, as somebody with a terminal uses it. See checks.py."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

from checks import BASE_URL, EXPECTED, KEY, MODEL, PATIENCE_S, QUESTION, check, named, run

FOLDER = pathlib.Path(tempfile.mkdtemp(prefix="model-pool-llm-"))
PROGRAM = pathlib.Path(sys.executable).parent / "llm"


def known(name, model, **more):
    return {"model_id": name, "model_name": model, "api_base": BASE_URL, "api_key_name": "pool", **more}


def prepare():
    """The tool's own folder: what it reads of models, in its YAML file (JSON is YAML), and its key."""
    models = [
        known("pool-guide", MODEL, supports_schema=True, supports_tools=True),
        known("pool-text", MODEL, completion=True),
        known("pool-none", "no-such-model"),
        known("pool-slashed", named("slashed") or MODEL),
    ]
    (FOLDER / "extra-openai-models.yaml").write_text(json.dumps(models))
    (FOLDER / "keys.json").write_text(json.dumps({"pool": KEY}))


def llm(*words, status=0, key=None):
    """What the tool prints; on stderr where it is to fail."""
    env = {"PATH": os.environ["PATH"], "HOME": str(FOLDER), "LLM_USER_PATH": str(FOLDER)}
    given = ["--key", key] if key else []
    done = subprocess.run(
        [PROGRAM, *words, *given], env=env, capture_output=True, text=True, timeout=PATIENCE_S, stdin=subprocess.DEVNULL
    )
    assert done.returncode == status, (words, done.returncode, done.stdout, done.stderr)
    return done.stderr if status else done.stdout


@check("the models of the file are known to it")
def models():
    assert "pool-guide" in llm("models", "list")


@check("a prompt is answered as a stream and in one piece alike")
def prompts():
    streamed = llm("-m", "pool-guide", QUESTION, "-o", "temperature", "0")
    assert EXPECTED in streamed, streamed
    assert llm("-m", "pool-guide", "--no-stream", QUESTION, "-o", "temperature", "0") == streamed


@check("options, a system prompt and a model with a slash are taken")
def options():
    short = llm("-m", "pool-guide", QUESTION, "-o", "max_tokens", "3", "-o", "temperature", "0")
    assert 0 < len(short.split()) <= 4, short
    assert "loaded" not in llm("-m", "pool-guide", QUESTION, "-o", "stop", "loaded", "-o", "temperature", "0")
    assert llm("-m", "pool-guide", "-s", "Be brief.", QUESTION, "-o", "seed", "1").strip()
    assert EXPECTED in llm("-m", "pool-slashed", QUESTION, "-o", "temperature", "0")


@check("a conversation goes on, and its tokens are written down")
def conversation():
    llm("-m", "pool-guide", QUESTION)
    assert llm("-c", QUESTION).strip()
    turns = json.loads(llm("logs", "list", "-n", "2", "--json"))
    assert len({turn["conversation_id"] for turn in turns}) == 1 and len(turns) == 2, turns
    assert all(turn["input_tokens"] > 0 and turn["output_tokens"] > 0 for turn in turns), turns


@check("a text is completed")
def completion():
    assert llm("-m", "pool-text", "Keep-hot is", "-o", "max_tokens", "8").strip()


@check("what is wrong is said in one line, in the pool's own words")
def errors():
    for words, said in [(["-m", "pool-none", QUESTION], "no-such-model"), (["-m", "pool-guide", "x " * 5000], "512")]:
        error = llm(*words, status=1)
        assert error.startswith("Error: ") and said in error and "Traceback" not in error, error
    assert "401" in llm("-m", "pool-guide", QUESTION, status=1, key="mp-no-such-key")


@check("an answer follows a schema", feature="json_schema")
def schema():
    # Closed, so that a tiny model cannot go on until its tokens are used up.
    properties = {"known": {"type": "boolean"}, "count": {"enum": [1, 2, 3]}}
    schema = {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
    said = llm("-m", "pool-guide", "--schema", json.dumps(schema), QUESTION, "-o", "max_tokens", "200")
    assert json.loads(said)["count"] in (1, 2, 3), said


@check("a function of its own is called", feature="tools")
def tools():
    # The tiny model need not choose it; the request with tools must be answered.
    code = "def keep_hot() -> str:\n    'How long a model stays loaded'\n    return '10 minutes'\n"
    assert llm("-m", "pool-guide", "--functions", code, QUESTION, "-o", "max_tokens", "60") is not None


if __name__ == "__main__":
    prepare()
    try:
        run()
    finally:
        subprocess.run(["rm", "-rf", FOLDER], check=False)
