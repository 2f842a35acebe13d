"""Rows of the table in docs/guides/clients.md: what a client can do over one of the wires, found by trying it.

The engine behind the model is scripted: it reasons, calls a tool once, says JSON where a form is wanted. Each cell is a
function; one that raises ends the script with 1. A row is one line of JSON, which tests/outside/table.rs reads."""

import json
import os
import sys
import traceback

URL = os.environ["MODEL_POOL_URL"].rstrip("/")
KEY = os.environ["MODEL_POOL_KEY"]
MODEL = "writer"
COLUMNS = ["chat", "stream", "tools", "second turn", "structured", "reasoning", "error"]

# What the scripted engine says.
PLAIN = "Hello from the engine."
THOUGHT = "I look."
FACT = {"city": "Ulm", "degrees": 21}
AFTER_TOOL = "It is 21 degrees in Ulm."
UNKNOWN = "wirter"


class Row:
    """One client over one wire."""

    all: list = []

    def __init__(self, client: str, wire: str):
        self.client, self.wire, self.cells = client, wire, {}
        Row.all.append(self)

    def __call__(self, column: str):
        assert column in COLUMNS, column

        def take(function):
            self.cells[column] = function
            return function

        return take

    def run(self) -> int:
        told = {"client": self.client, "wire": self.wire}
        for column in COLUMNS:
            if column not in self.cells:
                continue
            try:
                self.cells[column]()
            except BaseException:
                traceback.print_exc()
                print(f"FAILED: {self.client} over {self.wire}: {column}", flush=True)
                sys.exit(1)
            told[column] = "yes"
            print(f"ok: {self.client} over {self.wire}: {column}", flush=True)
        print("row: " + json.dumps(told), flush=True)
        return len(self.cells)


def fails(kind, call):
    """The exception of this class that the call ends with, which repeats what the pool said."""
    try:
        answer = call()
    except kind as error:
        assert "no model is called" in str(error) and MODEL in str(error), str(error)
        return error
    raise AssertionError(f"expected {kind}, came: {answer!r}")


def run_all():
    passed = sum(row.run() for row in Row.all)
    print(f"{passed} passed, 0 failed")
