"""Sends command lines (a JSON list of lists of words on standard input) through SGLang's own parser of its server's
arguments, and prints for each its error, or null; then its flags and the names of its parsers. Starts nothing."""

import argparse
import json
import sys

lines = json.load(sys.stdin)
out, sys.stdout = sys.stdout, sys.stderr

from sglang.srt.server_args import ServerArgs


class Refused(Exception):
    pass


class Parser(argparse.ArgumentParser):
    def error(self, message):
        raise Refused(message)


parser = Parser(prog="sglang.launch_server")
ServerArgs.add_cli_args(parser)
errors = []
for words in lines:
    try:
        parser.parse_args(["--model-path", "model", *words])
        errors.append(None)
    except (Refused, SystemExit, ValueError) as error:
        errors.append(str(error))
# From each spelling to whether a value follows it.
flags = {word: action.nargs != 0 for action in parser._actions for word in action.option_strings}


def choices(flag):
    for action in parser._actions:
        if flag in action.option_strings:
            return sorted(str(word) for word in action.choices or [])
    return []


json.dump(
    {
        "errors": errors,
        "flags": flags,
        "tool_parsers": choices("--tool-call-parser"),
        "reasoning_parsers": choices("--reasoning-parser"),
    },
    out,
)
