"""Measures swaps of two models on one GPU through the pool, for benches/gpu/run: the time of a request for a model that is not loaded,
with engines that are stopped and with engines that sleep."""

import json
import os
import signal
import statistics
import subprocess
import time
import urllib.error
import urllib.request

from embedded import free_port

SWAPS = 8
START_SECONDS = 60
GIB = 1 << 30
CONTEXT = 1024
# The engine's overhead in addition to weights and cache, as the pool estimates it, with a margin.
BESIDE = 2 * GIB


def model_gib(folder):
    return ((folder / "model.safetensors").stat().st_size + BESIDE) / GIB


class Pool:
    """The pool on the first GPU of NVML, with memory for one and a half models."""

    def __init__(self, chosen, weights, folder, sleeps):
        self.address = f"127.0.0.1:{free_port()}"
        model_dir = folder / "models"
        model_dir.mkdir(parents=True)
        need = model_gib(weights)
        sleep = "sleep: weights, " if sleeps else ""
        for name in ("a", "b"):
            (model_dir / f"{name}.yaml").write_text(
                f"engine_config:\n  model_id: {name}\n  type: CandleEngine\n  model_path: {weights}\n  max_total_tokens: {CONTEXT}\n"
                f"  engine_kwargs: {{device: cuda, concurrency: 1}}\n"
                f"pool_config: {{{sleep}memory_gib: {need:.2f}}}\n"
            )
        config = folder / "config.yaml"
        config.write_text(
            f"server: {{listen: '{self.address}'}}\nstate: {{dir: {folder}/data}}\ncatalog: {{models_dir: {model_dir}}}\n"
            f"inventory: {{provider: nvml, headroom: 0%, cuda_program: {chosen.cuda}, "
            f"devices: [{{name: gpu0, index: {chosen.gpu}, memory: {int(need * 1.5 * 1024)}MiB}}]}}\n"
            "evening: {cleanup: null, reopen: null}\npool: {on_restart: stop}\n"
        )
        self.log_file = folder / "log"
        # The user's own key or server must not reach the pool.
        kept = {name: value for name, value in os.environ.items() if not name.startswith("MODEL_POOL_")}
        if "MODEL_POOL_NVML_LIBRARY" in os.environ:
            kept["MODEL_POOL_NVML_LIBRARY"] = os.environ["MODEL_POOL_NVML_LIBRARY"]
        with open(self.log_file, "w") as log:
            self.process = subprocess.Popen([chosen.program, "--config", config], stdout=log, stderr=log, env=kept)

    def __enter__(self):
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end and self.process.poll() is None:
            try:
                urllib.request.urlopen(f"http://{self.address}/llm/ready", timeout=5).read()
                return self
            except OSError:
                time.sleep(0.05)
        self.__exit__()
        raise RuntimeError(f"the pool did not start: {self.log_file.read_text()[-2000:]}")

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def ask(self, model):
        """Returns the seconds until a response of one token."""
        body = json.dumps({"model": model, "prompt": [3, 4, 5], "max_tokens": 1, "ignore_eos": True}).encode()
        request = urllib.request.Request(f"http://{self.address}/v1/completions", body, {"content-type": "application/json"})
        began = time.monotonic()
        try:
            urllib.request.urlopen(request, timeout=300).read()
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"{model} was not loaded: {error.read().decode()[:500]}") from error
        return time.monotonic() - began


def swaps(chosen, weights, folder, has_time):
    rows = []
    for sleeps, name in ((False, "engines that are stopped"), (True, "engines that sleep")):
        own = folder / ("sleeping" if sleeps else "stopped")
        own.mkdir()
        with Pool(chosen, weights, own, sleeps) as pool:
            cold = pool.ask("a")
            pool.ask("b")
            times = []
            for nth in range(SWAPS):
                if not has_time():
                    break
                times.append(pool.ask("ab"[nth % 2]))
            warm = statistics.median(pool.ask("ab"[(len(times) - 1) % 2]) for _ in range(5))
        if not times:
            rows.append((f"swap, {name}", "not measured: the time was over", ""))
            continue
        found = f"{statistics.median(times):.2f} s, at most {max(times):.2f} s; first load {cold:.2f} s; loaded {warm * 1000:.0f} ms"
        rows.append((f"swap, {name}", found, ""))
    return rows
