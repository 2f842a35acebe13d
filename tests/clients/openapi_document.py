"""The OpenAPI document of a pool, held to OpenAPI's own schema and to its own examples. See checks.py."""

import json
import urllib.request

import jsonschema
from openapi_spec_validator import validate

from checks import KEY, PATIENCE_S, URL, check, run

METHODS = ["get", "put", "post", "patch", "delete"]


def document():
    request = urllib.request.Request(f"{URL}/llm/openapi.json", headers={"Authorization": f"Bearer {KEY}"})
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        return json.load(answer)


def operations(api):
    for path, item in api["paths"].items():
        for method in METHODS:
            if method in item:
                yield f"{method} {path}", item[method]


def resolved(api, value):
    while "$ref" in value:
        part = api
        for name in value["$ref"].removeprefix("#/").split("/"):
            part = part[name]
        value = part
    return value


def examples(content):
    if "example" in content:
        yield content["example"]
    for example in content.get("examples", {}).values():
        yield example["value"]


def fits(api, schema, value, place):
    complete = {"$schema": "https://json-schema.org/draft/2020-12/schema", "components": api["components"], **schema}
    problem = jsonschema.exceptions.best_match(jsonschema.Draft202012Validator(complete).iter_errors(value))
    assert problem is None, f"{place}: {problem.json_path}: {problem.message[:500]}"


@check("the document is valid by OpenAPI's own schema")
def valid():
    api = document()
    assert api["openapi"].startswith("3.1"), api["openapi"]
    validate(api)


@check("the examples of bodies and parameters fit their schemas, patterns included")
def fitting():
    api = document()
    count = 0
    for place, operation in operations(api):
        for parameter in operation.get("parameters", []):
            if "example" in parameter:
                fits(api, parameter["schema"], parameter["example"], f"{place} {parameter['name']}")
        bodies = [operation.get("requestBody", {})]
        bodies += [resolved(api, answer) for answer in operation["responses"].values()]
        for body in bodies:
            content = body.get("content", {}).get("application/json", {})
            for example in examples(content):
                fits(api, content["schema"], example, place)
                count += 1
    assert count > 100, count


@check("the data of streamed events has a schema of its own")
def streamed():
    api = document()
    for path in ["/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses"]:
        content = api["paths"][path]["post"]["responses"]["200"]["content"]
        data = content["text/event-stream"]["schema"]["properties"]["data"]
        assert "contentSchema" in data or any("contentSchema" in one for one in data["anyOf"]), (path, data)


run()
