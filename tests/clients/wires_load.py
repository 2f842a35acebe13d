"""aiperf as its command, with a bounded load and a tokenizer that is made here: rows of the table in docs/guides/clients.md."""

import json
import pathlib
import subprocess
import sys
import tempfile

from tokenizers import Tokenizer, models, pre_tokenizers

from wires import KEY, MODEL, UNKNOWN, URL, Row, run_all

REQUESTS = 6


def tokenizer(folder: pathlib.Path):
    """Counts words: aiperf wants one, even where the service counts, and would fetch it."""
    folder.mkdir()
    words = Tokenizer(models.WordLevel({"?": 0}, unk_token="?"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "?"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


def aiperf_row(wire: str):
    row = Row("aiperf", wire)

    def run(*more: str, model=MODEL):
        """What it measured, if it did, and what it noted of each request."""
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            (folder / "prompts.jsonl").write_text('{"text": "How warm is it?"}\n{"text": "And now?"}\n')
            command = [pathlib.Path(sys.executable).parent / "aiperf", "profile", "--model", model, "--url", URL]
            command += ["--endpoint-type", wire, "--api-key", KEY, "--concurrency", "2", "--request-count", str(REQUESTS)]
            command += ["--input-file", folder / "prompts.jsonl", "--custom-dataset-type", "single_turn"]
            command += ["--tokenizer", tokenizer(folder / "tokenizer"), "--use-server-token-count", "--no-gpu-telemetry"]
            command += ["--ui-type", "none", "--output-artifact-dir", folder / "out", *more]
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            measured = folder / "out/profile_export_aiperf.json"
            each = folder / "out/profile_export.jsonl"
            assert each.exists(), done.stdout
            return json.loads(measured.read_text()) if measured.exists() else None, each.read_text()

    @row("chat")
    def _():
        measured, each = run()
        assert measured["request_count"]["avg"] == REQUESTS and not measured["error_summary"], each

    @row("stream")
    def _():
        measured, each = run("--streaming")
        assert measured["request_count"]["avg"] == REQUESTS and not measured["error_summary"], each
        assert measured["time_to_first_token"]["avg"] > 0 and measured["output_sequence_length"]["avg"] > 0, measured

    @row("error")
    def _():
        measured, each = run(model=UNKNOWN)
        assert measured is None and each.count(f"no model is called {UNKNOWN}") == REQUESTS, each


for wire in ["chat", "responses"]:
    aiperf_row(wire)
run_all()
