"""What the scripts of this folder share: where the pool is, and checks that are told one a line.

Every script reads these from the environment, so that it also runs by hand against any pool with the
demo models (`cargo run`, then `MODEL_POOL_URL=http://127.0.0.1:8080 python tests/clients/NAME.py`):

    MODEL_POOL_URL            the pool, without /v1; http://127.0.0.1:8080 if not set
    MODEL_POOL_KEY            a key of a user; "none" if not set, which does on the same machine
    MODEL_POOL_ADMIN_KEY      an admin key, for checks that look at what is left behind
    MODEL_POOL_SLASHED        a demo model under an id with a slash
    MODEL_POOL_TALKER         a model whose answers take many seconds
    MODEL_POOL_STUCK          a model that never becomes ready and lets one request wait (queue_limit: 1)
    MODEL_POOL_FEATURES       what the pool is known to do beyond the rest, by name; "all" for everything
    MODEL_POOL_LEFT_OUT       what the engine behind it cannot do: JSON, from the words of a check to the reason
    MODEL_POOL_PATIENCE_S     for how long a request may take; 20 if not set

A check that needs something which is not named is left out, and said so. The first check that fails
ends the script with 1.
"""

import asyncio
import inspect
import json
import os
import sys
import time
import traceback
import urllib.request

URL = os.environ.get("MODEL_POOL_URL", "http://127.0.0.1:8080").rstrip("/")
BASE_URL = f"{URL}/v1"
KEY = os.environ.get("MODEL_POOL_KEY", "none")
ADMIN_KEY = os.environ.get("MODEL_POOL_ADMIN_KEY")
MODEL = "tiny-guide"
QUESTION = "What is keep-hot?"
EXPECTED = "how long a model stays loaded"
MESSAGES = [{"role": "user", "content": QUESTION}]
# No request of a check takes longer, unless the check is about that.
PATIENCE_S = int(os.environ.get("MODEL_POOL_PATIENCE_S", "20"))

_FEATURES = set(os.environ.get("MODEL_POOL_FEATURES", "").replace(",", " ").split())
_LEFT_OUT = json.loads(os.environ.get("MODEL_POOL_LEFT_OUT", "{}"))
_CHECKS = []


def has(feature):
    return feature in _FEATURES or "all" in _FEATURES


def named(name):
    """A model of the pool that only the environment knows."""
    return os.environ.get(f"MODEL_POOL_{name.upper()}")


def check(words, feature=None, needs=()):
    """Registers a check; `words` say what holds when it passes."""

    def register(function):
        _CHECKS.append((words, feature, needs, function))
        return function

    return register


def run():
    """All checks in their order; ends the process."""
    unknown = set(_LEFT_OUT) - {words for words, *_ in _CHECKS}
    assert not unknown, f"MODEL_POOL_LEFT_OUT names what is no check: {unknown}"
    passed = 0
    for words, feature, needs, function in _CHECKS:
        lacking = [f"MODEL_POOL_{name.upper()}" for name in needs if not named(name)]
        if words in _LEFT_OUT:
            print(f"left out: {words} ({_LEFT_OUT[words]})")
        elif feature and not has(feature):
            print(f"left out: {words} (MODEL_POOL_FEATURES does not name {feature})")
        elif lacking:
            print(f"left out: {words} ({', '.join(lacking)} not set)")
        else:
            try:
                result = function()
                if inspect.iscoroutine(result):
                    asyncio.run(asyncio.wait_for(result, 3 * PATIENCE_S))
            except Exception:
                traceback.print_exc()
                print(f"FAILED: {words}")
                sys.exit(1)
            print(f"ok: {words}", flush=True)
            passed += 1
    print(f"{passed} passed, 0 failed")
    sys.exit(0)


def fails(kind, call):
    """The error of this class that the call ends with."""
    try:
        answer = call()
    except kind as error:
        return error
    raise AssertionError(f"expected {kind.__name__}, came: {answer}")


def admin(path):
    """What an administrator sees at a path of the admin API."""
    request = urllib.request.Request(f"{URL}/llm/admin/{path}", headers={"Authorization": f"Bearer {ADMIN_KEY}"})
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        return json.load(answer)


def wait_for(what, so):
    """Asks again until it is so."""
    began = time.monotonic()
    while not so():
        assert time.monotonic() - began < PATIENCE_S, f"waited in vain for {what}"
        time.sleep(0.02)


def requests_of(model):
    """How many requests of a model are in flight, and how many wait."""
    view = admin(f"models?model={model}")
    one = view["models"][0] if "models" in view else view
    return sum(replica["in_flight"] for replica in one["replicas"]), one["waiting"]


def nothing_is_left_of(model):
    wait_for(f"no request of {model} to be left", lambda: requests_of(model) == (0, 0))
