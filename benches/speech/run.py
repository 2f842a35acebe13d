"""Transcribes the same windows of 30 seconds with the embedded engine, `transformers` and whisper.cpp, in turns, and prints a Markdown table.

    VENV/bin/python benches/speech/run.py --engine target/release/model-pool [--size tiny] [--tokens 80] [--threads 2] [--rounds 9]
        [--engine-weights f32] [--whisper-cpp build/bin/whisper-server [--whisper-cpp-weights f16]]

VENV has candle-engine/vectors/requirements.txt. The model has the shape of a published one and random weights, except that the
positions decide the text: all programs write the same text, which the script checks. The engine and `transformers` compute in F32, and
`transformers` has its weights in F32. whisper.cpp has its weights in F16, as its published models, or in F32. Each program gets samples and returns text; the engine and
whisper.cpp get them over HTTP.

One file because the model, the programs and the comparison share the plan of the text.
"""

import argparse
import contextlib
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

import ggml

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
    parser.add_argument("--engine-weights", choices=["f16", "f32"], default="f32", help="as in the engine's folder; OpenAI publishes F32")
    parser.add_argument("--whisper-cpp", help="whisper.cpp's program whisper-server; without it, whisper.cpp is left out")
    parser.add_argument("--whisper-cpp-weights", choices=["f16", "f32"], default="f16")
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


def text_words():
    """The text tokens: the 256 bytes, and numbered words."""
    from tokenizers import pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    return alphabet + [f"Ġw{nth}" for nth in range(TEXT_TOKENS - len(alphabet))]


def write_tokenizer(folder, special):
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    words = text_words()
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


class Server:
    """A program that transcribes over HTTP."""

    def __init__(self, command, path, folder, env):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.name, self.path, self.log = Path(command[0]).name, path, folder / f"{Path(command[0]).name}.log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen([*command, "--port", str(self.port)], stdout=log, stderr=log, env=env)

    def request(self, method, path, body=None, headers=None):
        # A connection for each request: whisper-server closes one that is idle for some seconds.
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        try:
            connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def wait_until_ready(self):
        deadline = time.monotonic() + READY_SECONDS_MAX
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                sys.exit(f"{self.name} ended: {self.log.read_text(errors='replace').strip()}")
            try:
                if self.request("GET", "/health")[0] == 200:
                    return
            except (OSError, http.client.HTTPException):
                pass
            time.sleep(0.1)
        sys.exit(f"{self.name} was not ready within {READY_SECONDS_MAX} s")

    def transcribe(self, form):
        status, body = self.request("POST", self.path, form, {"Content-Type": "multipart/form-data; boundary=part"})
        if status != 200:
            sys.exit(f"{self.name} answers {status}: {body.decode(errors='replace')}")
        return json.loads(body)

    def processor_seconds(self):
        # The fields after the name, which ends with a bracket. User and system are the 14th and 15th of all.
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self):
        self.process.terminate()
        self.process.wait()


def engine(program, folder, threads):
    command = [program, "engine", "--model-dir", str(folder), "--model-name", "whisper", "--threads", str(threads), "--concurrency", "1"]
    return Server(command, "/v1/audio/transcriptions", folder, os.environ | {"RAYON_NUM_THREADS": str(threads)})


def whisper_cpp(program, model, folder, threads, is_f16):
    from transformers import WhisperFeatureExtractor

    # The text has numbered words alone, and the bytes before them keep their places.
    words = [word.replace("Ġ", " ").encode() for word in text_words()]
    path = folder / "ggml.bin"
    ggml.write(path, model, words, WhisperFeatureExtractor(feature_size=80).mel_filters.T, is_f16)
    # OpenMP as whisper.cpp finds it on a computer of its users.
    env = {name: value for name, value in os.environ.items() if not name.startswith("OMP_")}
    return Server([program, "--model", str(path), "--threads", str(threads)], "/inference", folder, env)


def form_of(made, response_format):
    data = struct.pack(f"<{len(made)}h", *made)
    head = b"RIFF" + struct.pack("<I", 36 + len(data)) + b"WAVEfmt " + struct.pack("<IHHIIHH", 16, 1, 1, RATE, RATE * 2, 2, 16)
    recording = head + b"data" + struct.pack("<I", len(data)) + data
    form = b""
    for name, value in (("model", "whisper"), ("language", "en"), ("response_format", response_format)):
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


def tokens_of(transcript):
    return [token for segment in transcript["segments"] for token in segment["tokens"]]


def timed(work, processor_seconds):
    before, began = processor_seconds(), time.perf_counter()
    result = work()
    return (time.perf_counter() - began, processor_seconds() - before), result


def written(tokens, text):
    """The part of `tokens` that is the text: programs differ in the special tokens around it."""
    return [token for token in tokens if token in set(text)]


def measure(works, text, rounds):
    """Seconds of the programs and of their processors in each round, after one that warms up."""
    for name, (work, _) in works.items():
        found = written(work(), text)
        if found != text:
            sys.exit(f"{name} wrote {len(found)} of {len(text)} tokens in order; the comparison would not be fair")
    seconds = {name: [] for name in works}
    names = list(works)
    for nth in range(rounds):
        # Another program begins in each round.
        for name in names[nth % len(names):] + names[: nth % len(names)]:
            took, tokens = timed(*works[name])
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
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as running:
        folder = Path(folder)
        model, text = build(folder, given.size, given.tokens)
        if given.engine_weights == "f16":
            model.half().save_pretrained(folder)
            model.float()
        made = samples()
        reference = Reference(model, made)

        def started(server):
            running.callback(server.stop)
            server.wait_until_ready()
            return server

        ours = started(engine(given.engine, folder, given.threads))
        form = form_of(made, "verbose_json")
        works = {
            "engine": (lambda: tokens_of(ours.transcribe(form)), ours.processor_seconds),
            "transformers": (reference.transcribe, time.process_time),
        }
        if given.whisper_cpp:
            is_f16 = given.whisper_cpp_weights == "f16"
            theirs = started(whisper_cpp(given.whisper_cpp, model, folder, given.threads, is_f16))
            plain = form_of(made, "json")
            # Its text has no times, which the others' tokens have at both ends.
            numbered = {word.replace("Ġ", ""): token for token, word in enumerate(text_words())}

            def written_by_whisper_cpp():
                return [text[0], *(numbered[word] for word in theirs.transcribe(plain)["text"].split()), text[-1]]

            works[f"whisper.cpp, {given.whisper_cpp_weights.upper()}"] = (written_by_whisper_cpp, theirs.processor_seconds)
        seconds = measure(works, text, given.rounds)
    print(f"Whisper {given.size}, {given.tokens} tokens, {given.threads} threads, {given.rounds} rounds, the engine's weights in {given.engine_weights.upper()}; "
          f"torch {torch.__version__}, transformers {transformers.__version__}\n")
    print("| | seconds per window: median (least to most) | times real time | processor seconds |\n|---|---|---|---|")
    for name, rounds in seconds.items():
        walls, processors = zip(*rounds)
        median = statistics.median(walls)
        print(f"| {name} | {median:.3f} ({min(walls):.3f} to {max(walls):.3f}) | {30 / median:.1f} | {statistics.median(processors):.2f} |")
    for name in seconds:
        if name != "engine":
            pairs = list(zip(seconds["engine"], seconds[name]))
            walls, processors = (sorted(theirs[kind] / ours[kind] for ours, theirs in pairs) for kind in (0, 1))
            print(f"\nengine : {name} in the same round: {statistics.median(walls):.2f} x ({walls[0]:.2f} to {walls[-1]:.2f}); "
                  f"processor time {statistics.median(processors):.2f} x ({processors[0]:.2f} to {processors[-1]:.2f})")


main()
