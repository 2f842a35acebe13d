"""Compares the pool's rule with least recent use (`pool.policy: lru`) in real time, on the real program with stub engines: two pools get
the same requests at the same times. Afterwards the simulator replays the history of each and forecasts both. Prints a Markdown table.

    cargo build --release && cargo build --release -p stub-engine
    python3 benches/rig/run.py [--minutes 30] [--programs target/release] [--seed 7]

Six models share two devices, which hold two of them together; a load takes 3 s, a request 4 s on average, and requests come in
sessions. Everything stays on the loopback address and ends with the script."""

import argparse
import json
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MODELS, DEVICES = 6, 2
LOAD_MS, TOKEN_MS = 3000, 100
MEAN_SERVICE_SECONDS, REQUESTS_A_MINUTE, SESSION = 4.0, 26, 4
POLICIES = ["adaptive", "lru"]


class Pool:
    """A pool in a separate folder."""

    def __init__(self, policy, programs, folder):
        self.policy, self.programs, self.folder = policy, programs, folder / policy
        models = self.folder / "models"
        models.mkdir(parents=True)
        stub = programs / "stub-engine"
        for nth in range(MODELS):
            (models / f"m{nth}.yaml").write_text(
                f"engine_config:\n  model_id: m{nth}\n  type: CommandEngine\n  listen: port\n"
                f"  command: [{stub}, --port, '{{{{ port }}}}', --model, m{nth}, --tokens, '10000', --token-ms, '{TOKEN_MS}', --ready-after-ms, '{LOAD_MS}']\n"
                "  ready_path: /health\n"
                "deployment_config: {max_ongoing_requests: 8}\npool_config: {memory_gib: 9}\n"
            )
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        devices = ", ".join(f"{{name: gpu{nth}, memory: 16GiB}}" for nth in range(DEVICES))
        self.config = self.folder / "config.yaml"
        self.config.write_text(
            f"server: {{listen: '{self.address}'}}\nstate: {{dir: {self.folder}/data}}\ncatalog: {{models_dir: {models}}}\n"
            f"inventory: {{provider: fixed, headroom: 0%, devices: [{devices}]}}\nevening: {{cleanup: null, reopen: null}}\n"
            f"pool: {{on_restart: stop, policy: {policy}}}\n"
        )
        self.log = open(self.folder / "log", "w")
        self.process = None

    def __enter__(self):
        self.process = subprocess.Popen([self.programs / "model-pool", "serve", "--config", self.config], stdout=self.log, stderr=self.log, cwd=self.folder)
        for _ in range(600):
            try:
                urllib.request.urlopen(f"http://{self.address}/llm/health", timeout=5)
                return self
            except OSError:
                time.sleep(0.1)
        sys.exit(f"the pool does not answer:\n{(self.folder / 'log').read_text()}")

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)

    def ask(self, model, tokens):
        """Returns the seconds until the complete response; None without a response."""
        body = {"model": model, "max_tokens": tokens, "messages": [{"role": "user", "content": "Hi"}]}
        request = urllib.request.Request(f"http://{self.address}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
        began = time.monotonic()
        try:
            with urllib.request.urlopen(request, timeout=900) as answer:
                answer.read()
        except OSError:
            return None
        return time.monotonic() - began

    def report(self):
        key = (self.folder / "data/admin.key").read_text().strip()
        request = urllib.request.Request(f"http://{self.address}/llm/admin/report?from=1h", headers={"Authorization": f"Bearer {key}"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)["total"]

    def forecast(self):
        """Returns the simulator's forecast from this pool's history, by policy."""
        words = [self.programs / "model-pool", "simulate", "--workload", self.folder / "data/model-pool.db", "--pool", self.config, "--compare", "lru-best", "--json", "-"]
        done = subprocess.run(words, cwd=self.folder, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"the simulator fails: {done.stderr}")
        return json.loads(done.stdout)


def schedule(minutes, seed):
    """Generates sessions with pauses: times in seconds, models and lengths in tokens."""
    chance = random.Random(seed)
    requests, at = [], 0.0
    while at < minutes * 60:
        at += chance.expovariate(REQUESTS_A_MINUTE / SESSION / 60)
        model, when = f"m{min(chance.randrange(MODELS), chance.randrange(MODELS))}", at
        for _ in range(SESSION):
            tokens = max(1, round(chance.expovariate(1 / MEAN_SERVICE_SECONDS) * 1000 / TOKEN_MS))
            requests.append((when, model, tokens))
            when += chance.expovariate(1 / 12)
    return sorted(one for one in requests if one[0] < minutes * 60)


def play(pools, requests):
    """Sends the same requests at the same times to each pool; returns waits by policy."""
    waits, began, threads = {pool.policy: [] for pool in pools}, time.monotonic(), []

    def one(pool, model, tokens):
        took = pool.ask(model, tokens)
        waits[pool.policy].append(None if took is None else max(0.0, took - tokens * TOKEN_MS / 1000))

    for at, model, tokens in requests:
        time.sleep(max(0.0, began + at - time.monotonic()))
        for pool in pools:
            threads.append(threading.Thread(target=one, args=(pool, model, tokens)))
            threads[-1].start()
    for thread in threads:
        thread.join()
    return waits


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--programs", type=Path, default=ROOT / "target/release")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--json", type=Path, help="also write the simulator's answers here")
    options = parser.parse_args()
    requests = schedule(options.minutes, options.seed)
    # The user's own settings are not meant for these pools.
    for name in [name for name in os.environ if name.startswith("MODEL_POOL")]:
        del os.environ[name]
    with tempfile.TemporaryDirectory() as folder:
        programs = options.programs.resolve()
        pools = [Pool(policy, programs, Path(folder)) for policy in POLICIES]
        with pools[0], pools[1]:
            waits = play(pools, requests)
            # Requests are counted once a minute.
            time.sleep(65)
            reports = {pool.policy: pool.report() for pool in pools}
        forecasts = {pool.policy: pool.forecast() for pool in pools}
    if options.json:
        options.json.write_text(json.dumps(forecasts, indent=1))
    print(f"{len(requests)} requests in {options.minutes:g} minutes, seed {options.seed}\n")
    print("| | unserved | mean wait | p99 | loads | seconds of loading |\n|---|--:|--:|--:|--:|--:|")
    for policy in POLICIES:
        served = sorted(wait for wait in waits[policy] if wait is not None)
        unserved, report = waits[policy].count(None), reports[policy]
        p99 = served[min(len(served) - 1, int(len(served) * 0.99))]
        print(f"| `{policy}`, measured | {unserved} | {statistics.mean(served):.2f} s | {p99:.1f} s | {report['loads']} | {report['load_seconds']:.1f} |")
        for forecast in forecasts[policy]["reports"]:
            what = policy if forecast["policy"] == "model-pool" else forecast["policy"]
            unserved = forecast["requests"] - forecast["served"]
            print(f"| `{what}`, forecast from that history | {unserved} | {forecast['wait_mean_ms'] / 1000:.2f} s | {forecast['wait_p99_ms'] / 1000:.1f} s | {forecast['loads']} | {forecast['reload_ms'] / 1000:.1f} |")


main()
