"""Measures the latency that a node adds to a request: one model on the controller's own device and one on the device of a
`model-pool node`, both stub engines, called alternately over one connection. Prints a Markdown table.

    cargo build --release && cargo build --release -p stub-engine
    python3 benches/hop/run.py [--rounds 10] [--requests 200] [--programs target/release]

Times are measured by the client. Processor time is the sum of the controller and the node, without the engines and the client.
Everything stays on the loopback address and ends with the script."""

import argparse
import http.client
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TOKENS = 16
TICK_SECONDS = 1 / os.sysconf("SC_CLK_TCK")


def processor_seconds(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * TICK_SECONDS


class Pool:
    """A controller and a node in a folder."""

    def __init__(self, programs, folder):
        self.programs, self.folder, self.children = programs, folder, []
        (folder / "models").mkdir()
        for name, gib in (("near", 0.5), ("far", 3)):
            (folder / "models" / f"{name}.yaml").write_text(
                f"engine_config:\n  model_id: {name}\n  type: CommandEngine\n  listen: port\n"
                f"  command: [{programs / 'stub-engine'}, --port, '{{{{ port }}}}', --model, {name}, --tokens, '{TOKENS}']\n"
                f"  ready_path: /health\npool_config: {{memory_gib: {gib}}}\n"
            )
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        (folder / "config.yaml").write_text(
            f"server: {{listen: '{self.address}'}}\nstate: {{dir: {folder}/data}}\ncatalog: {{models_dir: {folder}/models}}\n"
            "inventory: {provider: fixed, headroom: 0%, devices: [{name: gpu0, memory: 1GiB}]}\n"
            "evening: {cleanup: null, reopen: null}\npool: {on_restart: stop, keep_hot: 1h}\n"
        )
        (folder / "node.yaml").write_text("inventory: {provider: fixed, headroom: 0%, devices: [{name: gpu0, memory: 4GiB}]}\n")

    def start(self, name, *words):
        log = open(self.folder / name, "w")
        self.children.append(subprocess.Popen([self.programs / "model-pool", *words], stdout=log, stderr=log, cwd=self.folder))

    def call(self, method, path, body=None):
        key = (self.folder / "data/admin.key").read_text().strip()
        client = http.client.HTTPConnection(self.address, timeout=60)
        client.request(method, path, json.dumps(body) if body is not None else None, {"Authorization": f"Bearer {key}", "Content-Type": "application/json"})
        answer = client.getresponse()
        text = answer.read()
        if answer.status != 200:
            sys.exit(f"{method} {path}: {answer.status} {text.decode()}")
        return json.loads(text)

    def wait(self, what, so):
        for _ in range(600):
            try:
                if so():
                    return
            except (OSError, FileNotFoundError):
                pass
            time.sleep(0.05)
        sys.exit(f"waited in vain for {what}:\n" + "".join(path.read_text() for path in self.folder.glob("log-*")))

    def __enter__(self):
        self.start("log-controller", "serve", "--config", self.folder / "config.yaml")
        self.wait("the controller", lambda: self.call("GET", "/llm/admin/models"))
        # Loads it before the node joins, to place it on the controller's own device.
        self.call("POST", "/llm/admin/load", {"model": "near", "wait": True})
        token = self.folder / "token"
        token.write_text(self.call("POST", "/llm/admin/nodes/tokens", {})["token"])
        token.chmod(0o600)
        words = ("--token-file", token, "--config", self.folder / "node.yaml", "--data", self.folder / "node")
        self.start("log-node", "node", "--name", "node", "--controller", f"http://{self.address}", *words)
        self.wait("the node", lambda: "joined" in (self.folder / "log-node").read_text())
        self.call("POST", "/llm/admin/load", {"model": "far", "wait": True})
        return self

    def __exit__(self, *_):
        for child in reversed(self.children):
            child.send_signal(signal.SIGTERM)
        for child in self.children:
            child.wait(60)

    def processor_seconds(self):
        return sum(processor_seconds(child.pid) for child in self.children)


class Client:
    """One connection."""

    def __init__(self, address):
        self.connection = http.client.HTTPConnection(address, timeout=60)
        self.connection.connect()
        self.connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, model, stream):
        """Returns the seconds until the first bytes of the response's body, and until its end."""
        body = {"model": model, "stream": stream, "messages": [{"role": "user", "content": "Hi"}]}
        began = time.perf_counter()
        self.connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
        answer = self.connection.getresponse()
        answer.read1(1 << 16)
        first = time.perf_counter() - began
        answer.read()
        if answer.status != 200:
            sys.exit(f"{model}: {answer.status}")
        return first, time.perf_counter() - began


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--programs", type=Path, default=ROOT / "target/release")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, Pool(options.programs.resolve(), Path(folder)) as pool:
        client = Client(pool.address)
        rows = []
        for kind, stream in (("plain answer", False), ("stream", True)):
            first, whole, spent = ({"near": [], "far": []} for _ in range(3))
            for nth in range(options.rounds + 1):
                for model in ("near", "far") if nth % 2 else ("far", "near"):
                    before = pool.processor_seconds()
                    times = [client.ask(model, stream) for _ in range(options.requests)]
                    if nth:  # The first round warms up.
                        first[model] += [one for one, _ in times]
                        whole[model] += [one for _, one in times]
                        spent[model].append((pool.processor_seconds() - before) / options.requests)
            for what, values in (("first bytes", first), ("whole", whole)):
                for share in (0.5, 0.9):
                    near, far = (percentile(values[model], share) * 1e6 for model in ("near", "far"))
                    rows.append((f"{kind}, {what}, p{share * 100:.0f}", near, far))
            rows.append((f"{kind}, processor time", *(statistics.mean(spent[model]) * 1e6 for model in ("near", "far"))))
    print(f"{TOKENS} tokens an answer, {options.rounds} rounds of {options.requests} requests each\n")
    print("| | own device | on a node | added |\n|---|---|---|---|")
    for name, near, far in rows:
        print(f"| {name} | {near:.0f} µs | {far:.0f} µs | {far - near:.0f} µs |")


if __name__ == "__main__":
    main()
