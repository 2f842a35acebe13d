"""Transcribes the same windows of 30 seconds with the embedded engine and with `transformers`, in turns, and prints a Markdown table.

    VENV/bin/python benches/speech/run.py --engine target/release/model-pool [--size tiny] [--tokens 80] [--threads 2] [--rounds 9]

VENV has candle-engine/vectors/requirements.txt. The model has the shape of a published one and random weights, except that the
positions decide the text: both programs write the same tokens, which the script checks. Both compute in F32, from samples to text.
"""

import argparse
import http.client
import json
import os
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RATE = 16000
WINDOW = 30 * RATE
# Width, layers of each half, heads and feed-forward width.
SIZES = {"tiny": (384, 4, 6, 1536), "base": (512, 6, 8, 2048), "small": (768, 12, 12, 3072)}
TEXT_TOKENS = 50257
LANGUAGES = 99
VOCABULARY = TEXT_TOKENS + 2 + LANGUAGES + 6 + 1501
CONTEXT = 448
# Weight of a position against the text, and the deviation of random weights.
SURE = 10.0
DEVIATION = 0.02
READY_SECONDS_MAX = 120


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", required=True, help="the program model-pool, built with --release")
    parser.add_argument("--size", choices=SIZES, default="tiny")
    parser.add_argument("--tokens", type=int, default=80, help="tokens of text in the window")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    given = parser.parse_args()
    if not 1 <= given.tokens <= CONTEXT // 2 - 8:
        parser.error(f"--tokens must be from 1 to {CONTEXT // 2 - 8}")
    return given


def special_tokens():
    # The tokens of languages that the engine and `transformers` know. English is the first; the script uses no other.
    from transformers.models.whisper.tokenization_whisper import LANGUAGES as KNOWN

    codes = list(KNOWN)[:LANGUAGES]
    words = ["<|endoftext|>", "<|startoftranscript|>", *(f"<|{code}|>" for code in codes)]
    words += ["<|translate|>", "<|transcribe|>", "<|startoflm|>", "<|startofprev|>", "<|nospeech|>", "<|notimestamps|>"]
    return {word: TEXT_TOKENS + nth for nth, word in enumerate(words)}


def write_tokenizer(folder, special):
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = alphabet + [f"Ġw{nth}" for nth in range(TEXT_TOKENS - len(alphabet))]
    made = Tokenizer(models.BPE({word: nth for nth, word in enumerate(words)}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken(word, special=True, normalized=False) for word in special])
    made.save(str(folder / "tokenizer.json"))


def build(folder, size, tokens):
    """Writes the model. Returns it with the tokens that it writes."""
    import torch
    from transformers import GenerationConfig, WhisperConfig, WhisperFeatureExtractor, WhisperForConditionalGeneration

    special = special_tokens()
    write_tokenizer(folder, special)
    width, layers, heads, feed_forward = SIZES[size]
    end, first_timestamp = special["<|endoftext|>"], special["<|notimestamps|>"] + 1
    config = WhisperConfig(
        vocab_size=VOCABULARY, num_mel_bins=80, d_model=width, encoder_layers=layers, decoder_layers=layers,
        encoder_attention_heads=heads, decoder_attention_heads=heads, encoder_ffn_dim=feed_forward,
        decoder_ffn_dim=feed_forward, max_source_positions=1500, max_target_positions=CONTEXT,
        decoder_start_token_id=special["<|startoftranscript|>"], pad_token_id=end, bos_token_id=end, eos_token_id=end,
        suppress_tokens=None, begin_suppress_tokens=None,
    )
    torch.manual_seed(7)
    model = WhisperForConditionalGeneration(config).eval()
    text = [first_timestamp, *(1000 + 97 * nth for nth in range(tokens)), first_timestamp + 1400]
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name != "model.encoder.embed_positions.weight" and "layer_norm" not in name:
                weight.copy_(torch.randn_like(weight) * DEVIATION)
        words = model.model.decoder.embed_tokens.weight
        words.copy_(torch.nn.functional.normalize(torch.randn_like(words), dim=1))
        # After the tokens for start, language and task, each position leads to its token, and all later ones to the end.
        positions = model.model.decoder.embed_positions.weight
        planned = [text[1], text[1], *text]
        planned += [end] * (CONTEXT - len(planned))
        positions.copy_(words[planned] * SURE)
    model.generation_config = GenerationConfig(
        decoder_start_token_id=config.decoder_start_token_id, eos_token_id=end, pad_token_id=end, bos_token_id=end,
        max_length=CONTEXT, is_multilingual=True, no_timestamps_token_id=first_timestamp - 1, suppress_tokens=[],
        begin_suppress_tokens=[end], max_initial_timestamp_index=50, return_timestamps=True,
        lang_to_id={"<|en|>": special["<|en|>"]}, prev_sot_token_id=special["<|startofprev|>"],
        task_to_id={"transcribe": special["<|transcribe|>"], "translate": special["<|translate|>"]},
    )
    model.save_pretrained(folder)
    WhisperFeatureExtractor(feature_size=80).save_pretrained(folder)
    return model, text


def samples():
    """Noise of a fixed seed, as 16-bit integers."""
    state, made = 1, []
    for _ in range(WINDOW):
        state = (state * 1103515245 + 12345) % (1 << 31)
        made.append((state >> 16) % 8191 - 4095)
    return made


class Engine:
    def __init__(self, program, folder, threads):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        command = [program, "engine", "--model-dir", str(folder), "--model-name", "whisper", "--port", str(self.port)]
        command += ["--threads", str(threads), "--concurrency", "1"]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, env=os.environ | {"RAYON_NUM_THREADS": str(threads)})
        self.connection = None

    def request(self, method, path, body=None, headers=None):
        if self.connection is None:
            self.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        try:
            self.connection.request(method, path, body, headers or {})
            response = self.connection.getresponse()
            return response.status, response.read()
        except OSError:
            self.connection = None
            raise

    def wait_until_ready(self):
        deadline = time.monotonic() + READY_SECONDS_MAX
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                sys.exit(f"the engine ended: {self.process.stderr.read().decode().strip()}")
            try:
                if self.request("GET", "/health")[0] == 200:
                    return
            except OSError:
                pass
            time.sleep(0.1)
        sys.exit(f"the engine was not ready within {READY_SECONDS_MAX} s")

    def transcribe(self, form):
        status, body = self.request("POST", "/v1/audio/transcriptions", form, {"Content-Type": "multipart/form-data; boundary=part"})
        if status != 200:
            sys.exit(f"the engine answers {status}: {body.decode(errors='replace')}")
        return [token for segment in json.loads(body)["segments"] for token in segment["tokens"]]

    def stop(self):
        self.process.terminate()
        self.process.wait()


def form_of(made):
    data = struct.pack(f"<{len(made)}h", *made)
    head = b"RIFF" + struct.pack("<I", 36 + len(data)) + b"WAVEfmt " + struct.pack("<IHHIIHH", 16, 1, 1, RATE, RATE * 2, 2, 16)
    recording = head + b"data" + struct.pack("<I", len(data)) + data
    form = b""
    for name, value in (("model", "whisper"), ("language", "en"), ("response_format", "verbose_json")):
        form += f'--part\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
    form += b'--part\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n' + recording
    return form + b"\r\n--part--\r\n"


class Reference:
    def __init__(self, model, made):
        import numpy
        from transformers import WhisperFeatureExtractor

        self.model, self.extractor = model, WhisperFeatureExtractor(feature_size=80)
        self.samples = numpy.array(made, dtype=numpy.float32) / 32768

    def transcribe(self):
        import torch

        with torch.inference_mode():
            features = self.extractor(self.samples, sampling_rate=RATE, return_tensors="pt").input_features
            made = self.model.generate(features, language="en", task="transcribe", return_timestamps=True, do_sample=False, num_beams=1)
        return made[0].tolist()


def timed(work):
    began = time.perf_counter()
    result = work()
    return time.perf_counter() - began, result


def written(tokens, text):
    """The part of `tokens` that is the text: programs differ in the special tokens around it."""
    return [token for token in tokens if token in set(text)]


def measure(engine, reference, form, text, rounds):
    """Seconds of both programs in each round, after one that warms up."""
    works = {"engine": lambda: engine.transcribe(form), "transformers": reference.transcribe}
    for name, work in works.items():
        found = written(work(), text)
        if found != text:
            sys.exit(f"{name} wrote {len(found)} of {len(text)} tokens in order; the comparison would not be fair")
    seconds = {name: [] for name in works}
    for nth in range(rounds):
        # The program that begins alternates.
        for name in sorted(works, reverse=nth % 2 == 1):
            took, tokens = timed(works[name])
            if written(tokens, text) != text:
                sys.exit(f"{name} wrote other tokens in round {nth + 1}")
            seconds[name].append(took)
    return seconds


def main():
    given = arguments()
    os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": str(given.threads), "OMP_WAIT_POLICY": "passive"}
    import torch
    import transformers

    torch.set_num_threads(given.threads)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as folder:
        model, text = build(Path(folder), given.size, given.tokens)
        made = samples()
        engine = Engine(given.engine, folder, given.threads)
        try:
            engine.wait_until_ready()
            seconds = measure(engine, Reference(model, made), form_of(made), text, given.rounds)
        finally:
            engine.stop()
    ratios = sorted(theirs / ours for ours, theirs in zip(seconds["engine"], seconds["transformers"]))
    print(f"Whisper {given.size}, {given.tokens} tokens, {given.threads} threads, {given.rounds} rounds; "
          f"torch {torch.__version__}, transformers {transformers.__version__}\n")
    print("| | seconds per window: median (least to most) | times real time |\n|---|---|---|")
    for name, values in seconds.items():
        median = statistics.median(values)
        print(f"| {name} | {median:.3f} ({min(values):.3f} to {max(values):.3f}) | {30 / median:.1f} |")
    print(f"\nengine : transformers in the same round: {statistics.median(ratios):.2f} x ({ratios[0]:.2f} to {ratios[-1]:.2f})")


main()
