"""The official `mcp` package of PyPI against a pool: tools by role, and a planned change that is applied once."""

import asyncio
import os

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

URL = os.environ["MODEL_POOL_URL"] + "/llm/mcp"
MODEL = os.environ["MODEL_POOL_MODEL"]


def client(key):
    http = httpx2.AsyncClient(headers={"Authorization": f"Bearer {key}"}, timeout=60)
    return Client(streamable_http_client(URL, http_client=http))


async def administrator():
    async with client(os.environ["MODEL_POOL_ADMIN_KEY"]) as pool:
        tools = {tool.name: tool for tool in (await pool.list_tools()).tools}
        assert {"models", "why", "plan_load", "plan_cleanup", "apply"} <= tools.keys(), tools.keys()
        assert tools["plan_load"].input_schema["required"] == ["model"], tools["plan_load"]
        assert tools["models"].annotations.read_only_hint is True, tools["models"]

        models = await pool.call_tool("models", {"model": MODEL})
        assert not models.is_error, models
        assert models.structured_content["models"][0]["model"] == MODEL, models

        planned = await pool.call_tool("plan_load", {"model": MODEL, "wait": True})
        assert planned.structured_content["plan"]["feasible"] is True, planned
        token = planned.structured_content["token"]
        applied = await pool.call_tool("apply", {"token": token})
        assert not applied.is_error, applied
        assert applied.structured_content["status"] == "ready", applied
        again = await pool.call_tool("apply", {"token": token})
        assert again.is_error, again
        assert again.structured_content["error"]["code"] == "unknown_token", again

        wrong = await pool.call_tool("plan_set", {"model": MODEL, "priority": -1})
        assert wrong.is_error and "priority" in wrong.content[0].text, wrong


async def user():
    async with client(os.environ["MODEL_POOL_KEY"]) as pool:
        names = [tool.name for tool in (await pool.list_tools()).tools]
        assert names == ["me", "my_usage"], names
        mine = await pool.call_tool("me", {})
        assert not mine.is_error, mine
        refused = await pool.call_tool("plan_load", {"model": MODEL})
        assert refused.is_error, refused


asyncio.run(administrator())
asyncio.run(user())
print("2 passed, 0 failed")
