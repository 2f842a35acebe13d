"""Measures the latency that the pool adds to a real vLLM, with vLLM's own load generator (`vllm bench serve`), guidellm, or both: the
same load goes to the engine directly and through the pool, alternately, within one run. Prints a Markdown table for each, with the
slowest first token by the engine's own count next to the generator's figure. Time far above it was spent in the generator, in the
pool, or waiting for a processor.

    bash .ci/vllm guidellm && cargo build --release
    target/vllm/bin/python benches/vllm/run.py [--generator vllm guidellm] [--rounds 3] [--prompts 200]

Everything stays on the loopback address and ends with the script. It uses the demo's small model, whose short engine time makes the
added time visible."""

import argparse
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VENV = ROOT / "target/vllm"
GUIDELLM = ROOT / "target/guidellm/bin/guidellm"
MODEL = ROOT / "demo/models/tiny-guide"
LOAD_SECONDS = 900
# Tokens of each prompt, and of each response.
TOKENS = 64


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def get(url, key=None):
    request = urllib.request.Request(url)
    if key:
        request.add_header("Authorization", f"Bearer {key}")
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


class Pool:
    """The pool in front of one vLLM, in a separate folder."""

    def __init__(self, program, folder):
        self.url = f"http://127.0.0.1:{free_port()}"
        models = folder / "models"
        models.mkdir()
        (models / "real.yaml").write_text(
            f"engine_config:\n  model_id: real\n  type: VLLMEngine\n  model_path: {MODEL}\n  program: {VENV}/bin/vllm\n"
            "  max_total_tokens: 512\n  engine_kwargs: {dtype: float32, enforce_eager: true}\n"
            "  env: {OMP_NUM_THREADS: '1', PYTHONDONTWRITEBYTECODE: ''}\n"
            "deployment_config: {max_ongoing_requests: 64}\npool_config: {memory_gib: 4, load_deadline: 15m, keep_hot: 1h}\n"
        )
        config = folder / "config.yaml"
        config.write_text(
            f"server: {{listen: '{self.url[7:]}'}}\nstate: {{dir: {folder}/data}}\ncatalog: {{models_dir: {models}}}\n"
            "inventory: {provider: host, host_memory: 5GiB, headroom: 0%}\nevening: {cleanup: null, reopen: null}\n"
            "pool: {on_restart: stop}\n"
        )
        self.log = open(folder / "log", "w")
        # A separate session, as a service has: Linux divides processors by session first (sched_autogroup). The engine has its own
        # session in any case, while the pool would share the generator's.
        self.process = subprocess.Popen(
            [program, "--config", config], stderr=self.log, stdout=self.log, start_new_session=True
        )
        self.key_file = folder / "data/admin.key"
        self.folder = folder

    def load(self):
        """Loads the model; returns the engine's own address."""
        end = time.monotonic() + LOAD_SECONDS
        body = json.dumps({"model": "real", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}).encode()
        while True:
            try:
                request = urllib.request.Request(
                    f"{self.url}/v1/chat/completions", body, {"content-type": "application/json"}
                )
                urllib.request.urlopen(request, timeout=LOAD_SECONDS).read()
                break
            except OSError as error:
                if time.monotonic() > end or self.process.poll() is not None:
                    sys.exit(f"the model was not loaded: {error}\n{(self.folder / 'log').read_text()[-4000:]}")
                time.sleep(0.5)
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
            except OSError:
                continue
            if "--port" in words and str(MODEL) in words:
                return f"http://127.0.0.1:{words[words.index('--port') + 1]}"
        sys.exit("the engine's process was not found")

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(120)


def vllm_bench(url, concurrency, prompts, folder):
    name = f"{time.monotonic_ns()}.json"
    words = [
        VENV / "bin/vllm", "bench", "serve", "--backend", "openai-chat", "--endpoint", "/v1/chat/completions",
        "--base-url", url, "--model", "real", "--tokenizer", MODEL, "--dataset-name", "random",
        "--random-input-len", str(TOKENS), "--random-output-len", str(TOKENS), "--ignore-eos", "--num-prompts", str(prompts),
        "--max-concurrency", str(concurrency), "--seed", "7", "--disable-tqdm", "--save-result",
        "--result-dir", folder, "--result-filename", name, "--percentile-metrics", "ttft,tpot,itl,e2el",
    ]  # fmt: skip
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    path = folder / name
    if done.returncode or not path.exists():
        sys.exit(f"vllm bench serve ended with {done.returncode}:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    result = json.loads(path.read_text())
    if result["completed"] != prompts:
        sys.exit(f"{prompts - result['completed']} of {prompts} requests failed through {url}")
    keys = ("mean_ttft_ms", "median_ttft_ms", "p99_ttft_ms", "mean_tpot_ms", "median_tpot_ms", "request_throughput")
    return {key: result[key] for key in keys}


def guidellm(url, concurrency, prompts, folder):
    """The same load with guidellm 0.8, which sends `ignore_eos` if the length of responses is given."""
    path = folder / f"{time.monotonic_ns()}.json"
    words = [
        GUIDELLM, "run", "--profile", f"kind=concurrent,streams={concurrency}",
        # Validation would request /health, which the pool serves at another path.
        "--backend", f"kind=openai_http,target={url},model=real,validate_backend=false",
        "--constraint", f"kind=max_requests,count={prompts}", "--tokenizer", f"kind=hf_auto,model={MODEL}",
        "--data", f"kind=synthetic_text,prompt_tokens={TOKENS},output_tokens={TOKENS}", "--seed", "kind=static,value=7",
        # Generates all prompts before sending the first. By default another process generates 4,096 of them at the same time, which
        # occupies a processor of the engine for four seconds or more.
        "--data-loader", f"kind=pytorch,samples={prompts}",
        "--metrics", "kind=generative,sample_size=0", "--output", f"kind=json,path={path}", "--disable-console",
    ]  # fmt: skip
    # A single sending process, as in vLLM's generator: more would take the engine's processors.
    env = {**os.environ, "GUIDELLM__MAX_WORKER_PROCESSES": "1"}
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, cwd=folder, env=env)
    if done.returncode or not path.exists():
        sys.exit(f"guidellm ended with {done.returncode}:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    metrics = json.loads(path.read_text())["benchmarks"][0]["metrics"]
    totals = metrics["request_totals"]
    # Occasionally it sends one request fewer than configured.
    failed = totals["errored"] + totals["incomplete"]
    if failed or totals["successful"] < prompts - 1:
        sys.exit(f"{failed} requests failed through {url}, {totals['successful']} of {prompts} were answered: {totals}")
    if metrics["output_token_count"]["successful"]["mean"] != TOKENS:
        sys.exit(f"answers through {url} do not have {TOKENS} tokens: {metrics['output_token_count']['successful']}")
    ttft = metrics["time_to_first_token_ms"]["successful"]
    # Without the first token, as vLLM counts it.
    tpot = metrics["inter_token_latency_ms"]["successful"]
    return {
        "mean_ttft_ms": ttft["mean"],
        "median_ttft_ms": ttft["median"],
        "p99_ttft_ms": ttft["percentiles"]["p99"],
        "mean_tpot_ms": tpot["mean"],
        "median_tpot_ms": tpot["median"],
        "request_throughput": metrics["requests_per_second"]["successful"]["mean"],
    }


def first_tokens(engine):
    """Returns the number of requests by upper bound of the first token's latency in milliseconds, as counted by the engine."""
    with urllib.request.urlopen(f"{engine}/metrics", timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    buckets = [line for line in lines if line.startswith("vllm:time_to_first_token_seconds_bucket{")]
    return {float(line.split('le="')[1].split('"')[0]) * 1000: float(line.rsplit(" ", 1)[1]) for line in buckets}


def slowest_within(before, after):
    """Returns the bound of the slowest request between two counts."""
    more = {bound: count - before.get(bound, 0) for bound, count in after.items()}
    return min(bound for bound, count in more.items() if count == max(more.values()))


GENERATORS = {"vllm": ("vllm bench serve", vllm_bench), "guidellm": ("guidellm", guidellm)}


def table(name, chosen, engine, pool, folder):
    title, generator = GENERATORS[name]
    # Warms up without measuring: the first requests pay for initialisation on first use.
    most = max(chosen.concurrency)
    for url in (engine, pool):
        generator(url, most, most, folder)
    rows = []
    for concurrency in chosen.concurrency:
        alone, through = [], []
        for round_ in range(chosen.rounds):
            # In turn, and every second time the other way round.
            order = [(engine, alone), (pool, through)]
            for url, into in order if round_ % 2 == 0 else reversed(order):
                before = first_tokens(engine)
                result = generator(url, concurrency, chosen.prompts, folder)
                into.append({**result, "engine_ms": slowest_within(before, first_tokens(engine))})
        rows.append((concurrency, alone, through))
    print(
        f"\n{title}, {chosen.prompts} requests of {TOKENS} and {TOKENS} tokens a run, medians of {chosen.rounds} runs, ms, engine alone : "
        "through the pool (added: the median of the differences between two runs that follow each other)\n"
    )
    print("| at once | first token, median | first token, p99 | the engine's slowest, within | a token, median | requests a second |")
    print("|---|---|---|---|---|---|")
    for concurrency, alone, through in rows:
        cells = []
        for key in ("median_ttft_ms", "p99_ttft_ms", "engine_ms", "median_tpot_ms", "request_throughput"):
            pair = [statistics.median(one[key] for one in results) for results in (alone, through)]
            added = statistics.median(after[key] - before[key] for before, after in zip(alone, through))
            cells.append(f"{pair[0]:.2f} : {pair[1]:.2f} ({added:+.2f})")
        print(f"| {concurrency} | {' | '.join(cells)} |", flush=True)


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--program", default=ROOT / "target/release/model-pool")
    options.add_argument("--generator", nargs="+", choices=GENERATORS, default=["vllm"])
    options.add_argument("--concurrency", nargs="+", type=int, default=[1, 4, 16])
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--prompts", type=int, default=200)
    chosen = options.parse_args()
    if "guidellm" in chosen.generator and not GUIDELLM.exists():
        sys.exit(f"there is no {GUIDELLM}: run bash .ci/vllm guidellm")
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", VLLM_NO_USAGE_STATS="1", DO_NOT_TRACK="1", OMP_NUM_THREADS="1")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pool = Pool(chosen.program, folder)
        try:
            engine = pool.load()
            for generator in chosen.generator:
                table(generator, chosen, engine, pool.url, folder)
        finally:
            pool.end()


main()
