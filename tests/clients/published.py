"""Whether answers are what OpenAI and Anthropic published (schema/): everything that must be there, and nothing else."""

import copy
import json
import pathlib

import jsonschema

FOLDER = pathlib.Path(__file__).parent / "schema"
# What vLLM and the embedded engine add to a choice that a stop string or token ended (docs/reference/api.md).
OF_CHOICES = ["stop_reason"]
# What vLLM, llama.cpp and OpenRouter add to a model (docs/reference/api.md).
OF_MODELS = ["kind", "aliases", "root", "max_model_len", "context_length", "meta"]
# What engines with reasoning add to the message of a chat (docs/guides/clients.md).
OF_MESSAGES = ["reasoning_content"]
# The API's own examples of responses have it, and its schema has not.
OF_RESPONSES = ["store"]
# The API sends it with the calls of custom tools, and its clients read it there; its schema has it for stored ones alone.
OF_CUSTOM_CALLS = ["status"]
# The API's description of errors has it, and its types have not.
TOO_LARGE = "request_too_large"


def _read(file, root):
    schema = json.loads((FOLDER / file).read_text())
    definitions = schema["definitions"]
    if root == "PublishedResponses":
        # The package puts this together for its callers; the API does not send it.
        definitions["Response"]["required"].remove("output_text")
    return {name: one | {"definitions": definitions} for name, one in definitions[root]["properties"].items()}


def _known():
    openai = _read("openai.json", "Published")
    responses = _read("responses.json", "PublishedResponses")
    anthropic = {f"anthropic {name}": one for name, one in _read("anthropic.json", "PublishedAnthropic").items()}
    return openai | {"response": responses["response"], "response event": responses["event"]} | anthropic


KNOWN = {name: jsonschema.Draft7Validator(one) for name, one in _known().items()}


def _published(value):
    """The value without what is known to be beside the schema."""
    value = copy.deepcopy(value)
    for model in [value, *(value.get("data") or [])]:
        for name in OF_MODELS if model.get("object") == "model" else []:
            model.pop(name, None)
    for choice in value.get("choices") or []:
        for name in OF_CHOICES:
            choice.pop(name, None)
        for name in OF_MESSAGES:
            for place in ("message", "delta"):
                choice.get(place, {}).pop(name, None)
    for one in [value, value.get("response")]:
        for name in OF_RESPONSES if isinstance(one, dict) else []:
            one.pop(name, None)
        items = one.get("output") if isinstance(one, dict) else None
        for item in [*(items if isinstance(items, list) else []), value.get("item") or {}]:
            for name in OF_CUSTOM_CALLS if item.get("type") == "custom_tool_call" else []:
                item.pop(name, None)
    return value


def fits(value, name):
    """The value, if it is what the schema calls by this name."""
    problems = list(KNOWN[name].iter_errors(_published(value)))
    if problems:
        worst = jsonschema.exceptions.best_match(problems)
        raise AssertionError(f"no {name}: {worst.json_path}: {worst.message[:500]}\n{json.dumps(value)[:2000]}")
    return value
