"""The embedded engine alone, for benches/gpu/run: its responses on a GPU compared with the CPU's, its speed, and its sleep."""

import json
import math
import os
import signal
import socket
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import models

START_SECONDS = 120
ROUNDS = 3
PROMPT, ANSWER = 512, 64
# Model families with different computations. All families would take too long.
FAMILIES = "llama,llama3,mistral,mixtral,qwen2,qwen3,qwen3-moe,gemma2,gemma3,phi3,gpt2,deepseek3"


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def call(url, body=None, method=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json"}, method=method)
    with urllib.request.urlopen(request, timeout=300) as answer:
        text = answer.read()
    return json.loads(text) if text else {}


class Engine:
    """Runs `PROGRAM engine` on a port of the loopback address, until the end of the block."""

    def __init__(self, program, folder, device, context=256, concurrency=2):
        self.port = free_port()
        self.log = open(folder / "engine.log", "w+")
        self.process = subprocess.Popen(
            [
                program, "engine", "--model-dir", folder, "--model-name", "m", "--port", str(self.port),
                "--context", str(context), "--concurrency", str(concurrency), "--device", device,
            ],
            stdout=self.log,
            stderr=self.log,
        )  # fmt: skip

    def url(self, path):
        return f"http://127.0.0.1:{self.port}{path}"

    def __enter__(self):
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end and self.process.poll() is None:
            try:
                call(self.url("/health"))
                return self
            except (urllib.error.URLError, ConnectionError):
                time.sleep(0.02)
        self.log.seek(0)
        self.process.kill()
        raise RuntimeError(f"the engine did not start: {self.log.read()[-2000:]}")

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def complete(self, prompt, tokens, **more):
        body = {"model": "m", "prompt": prompt, "max_tokens": tokens, "temperature": 0, **more}
        return call(self.url("/v1/completions"), body)["choices"][0]


def answers(program, folder, device, expected):
    """Returns log probabilities of the prompt's tokens, and the greedy continuation as text."""
    with Engine(program, folder, device) as engine:
        shown = engine.complete(expected["prompt"], 0, echo=True, logprobs=0)
        continued = engine.complete(expected["prompt"], len(expected["greedy"]), ignore_eos=True)
    numbers = [it for it in shown["logprobs"]["token_logprobs"] if it is not None]
    return numbers, continued["text"]


def equal_tokens(text, greedy, end):
    """Returns the number of leading tokens equal to the reference. The token that ends a response may have no text."""
    shown = len(text) // models.WORD
    wanted = greedy if shown == len(greedy) else [token for token in greedy if token != end]
    for nth, token in enumerate(wanted):
        if text[nth * models.WORD : (nth + 1) * models.WORD] != models.word(token):
            return nth
    return len(greedy)


def correctness(chosen, folder, has_time):
    """Returns a row of differences to the CPU, which the tests compare with the reference."""
    differences, equal, whole, tried = [], [], 0, 0
    for name in chosen.families.split(","):
        if not has_time():
            break
        path, expected = models.vector(name, folder)
        here, text = answers(chosen.cuda, path, chosen.device, expected)
        there, _ = answers(chosen.program, path, "cpu", expected)
        differences += [abs(one - other) for one, other in zip(here, there, strict=True)]
        count = equal_tokens(text, expected["greedy"], expected["end"])
        equal.append(count)
        whole += count == len(expected["greedy"])
        tried += 1
        if not all(map(math.isfinite, here)):
            return [("correctness vectors", f"{name}: a log probability is no number", "numbers")]
    if not tried:
        return [("correctness vectors", "not measured: the time was over", "")]
    found = (
        f"{tried} families: log probabilities of prompts differ from the CPU's by {statistics.mean(differences):.4f} on average, "
        f"{max(differences):.3f} at most; {whole} follow the reference for all greedy tokens, the median for {statistics.median(equal):.0f} of 128"
    )
    return [("correctness vectors", found, "BF16 beside F32: rounding alone")]


def speed(chosen, folder):
    """Returns rows of tokens per second, also with transformers if an installation sees the GPU."""
    shape = chosen.shape
    prompt = [3 + nth % 200 for nth in range(PROMPT)]
    rows = []
    with Engine(chosen.cuda, folder, chosen.device, context=1024, concurrency=max(chosen.at_once)) as engine:
        for count in chosen.at_once:
            first, decoded = [], []
            for _ in range(ROUNDS):
                one = together(engine, prompt, 1, count)
                all_tokens = together(engine, prompt, ANSWER + 1, count)
                first.append(count * PROMPT / one)
                decoded.append(count * ANSWER / max(all_tokens - one, 1e-6))
            rows.append((f"{shape}, {count} at once: prompt, answer", f"{statistics.median(first):.0f}, {statistics.median(decoded):.0f} tokens/s", ""))
    return rows + transformers(chosen, folder)


def together(engine, prompt, tokens, count):
    """Returns the seconds until this many requests are answered. Their first tokens differ, to avoid shared prefixes."""
    one = lambda nth: engine.complete([3 + nth, *prompt[1:]], tokens, ignore_eos=True)
    began = time.monotonic()
    with ThreadPoolExecutor(count) as threads:
        list(threads.map(one, range(count)))
    return time.monotonic() - began


def transformers(chosen, folder):
    script = Path(__file__).with_name("with_transformers.py")
    words = [chosen.python or sys.executable, script, folder, str(PROMPT), str(ANSWER), ",".join(map(str, chosen.at_once))]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    done = subprocess.run(words, capture_output=True, text=True, timeout=240, env=environment)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
        return [("transformers", f"not measured: {last[:120]}", "")]
    return [(f"transformers, {row['count']} at once: prompt, answer", f"{row['prompt']:.0f}, {row['answer']:.0f} tokens/s", "") for row in json.loads(done.stdout)]


def sleep(chosen, folder, nvml):
    """Returns rows about falling asleep, waking up, and the memory that stays on the GPU."""
    with Engine(chosen.cuda, folder, chosen.device, context=1024) as engine:
        weights = call(engine.url("/memory"))["weights_bytes"]
        engine.complete([3, 4, 5], 2, ignore_eos=True)
        times = {"/sleep": [], "/wake_up": []}
        asleep = 0
        for _ in range(ROUNDS):
            for path, into in times.items():
                began = time.monotonic()
                call(engine.url(path), {})
                into.append(time.monotonic() - began)
                if path == "/sleep" and nvml:
                    asleep = nvml.processes().get(engine.process.pid) or 0
        engine.complete([3, 4, 5], 2, ignore_eos=True)
    rows = []
    for path, name in (("/sleep", "falls asleep"), ("/wake_up", "wakes up")):
        seconds = statistics.median(times[path])
        rows.append((f"{chosen.shape} {name}", f"{seconds:.3f} s, {weights / max(seconds, 1e-6) / 1e9:.1f} GB/s of weights", ""))
    rows.append(("its memory on the GPU while it sleeps", f"{asleep / (1 << 20):.0f} MiB", "the CUDA context"))
    return rows
