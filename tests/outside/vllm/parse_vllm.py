"""Sends command lines (a JSON list of lists of words on standard input) through vLLM's own parser of `vllm serve`, and
prints for each its error, or null; then its flags, and the names of its parsers for tool calls and reasoning."""

import json
import sys

lines = json.load(sys.stdin)
out, sys.stdout = sys.stdout, sys.stderr

from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.reasoning import ReasoningParserManager
from vllm.tool_parsers import ToolParserManager
from vllm.utils.argparse_utils import FlexibleArgumentParser


class Refused(Exception):
    pass


class Parser(FlexibleArgumentParser):
    def error(self, message):
        raise Refused(message)


parser = make_arg_parser(Parser(prog="vllm serve"))
errors = []
for words in lines:
    try:
        parser.parse_args(["model", *words])
        errors.append(None)
    except (Refused, SystemExit, ValueError) as error:
        errors.append(str(error))
# From each spelling to whether a value follows it.
flags = {word: action.nargs != 0 for action in parser._actions for word in action.option_strings}
json.dump(
    {
        "errors": errors,
        "flags": flags,
        "tool_parsers": sorted(ToolParserManager.list_registered()),
        "reasoning_parsers": sorted(ReasoningParserManager.list_registered()),
    },
    out,
)
