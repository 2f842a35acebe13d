"""Makes a tiny Whisper model with random weights, and what `transformers` computes with it, or checks (`--check`) that those
kept are what it makes. See docs/guides/speech.md.

    python3 -m venv VENV && VENV/bin/pip install -r requirements.txt
    VENV/bin/python speech.py [--check]

The recordings are computed with integers alone, so that the engine's tests make the same samples without a file. The mel
spectrogram comes from `WhisperFeatureExtractor`, hidden states and logits from `WhisperForConditionalGeneration`, and the tokens
of a window from its `generate` with timestamps. `transcripts` are of recordings of several windows: a loop over windows with the
rules of OpenAI's `transcribe.py`, in which every token is chosen by `generate`.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
import zlib
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import numpy
import torch
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    GenerationConfig,
    WhisperConfig,
    WhisperFeatureExtractor,
    WhisperForConditionalGeneration,
)
from transformers.modeling_outputs import BaseModelOutput

KEPT = Path(__file__).resolve().parent.parent / "tests" / "vectors" / "speech" / "whisper"
RATE = 16000
WINDOW = 30 * RATE
LANGUAGES = ["en", "de", "fr", "es", "ru", "ja", "zh", "yue"]
CONTEXT = 64
WIDTH = 16
SURE = 4.0
# Least difference between the logits of a choice and the next best. Those of the engine differ by less than 1e-4.
MARGIN_MIN = 2e-3

CORPUS = [
    "The pool keeps many models on a few devices and loads the one that is asked for next.",
    "A request waits until its model is ready; the shortest queue is not always the fastest.",
    "Der Speicher ist knapp, die Anfragen sind es nicht. Größe und Maß zählen überall.",
    "Où est la bibliothèque ? Elle est près de la mairie, à côté du café.",
    "東京は日本の首都です。",
]


def samples(count, seed):
    """Two triangle waves and noise, louder and softer in turn, as 16-bit integers."""
    state, made = seed, numpy.empty(count, dtype=numpy.int16)
    for n in range(count):
        state = (state * 1103515245 + 12345) % (1 << 31)
        def wave(period, height):
            return abs((n % period) * 2 - period) * height // period - height // 2
        loud = 1 + (n // 4000 + seed) % 5
        pitch = 40 + (n // 8000) * 7 % 50
        made[n] = (wave(pitch, 3000) + wave(3 * pitch + 11, 2000)) * loud // 5 + (state >> 16) % 257 - 128
    return made


def tokenizer():
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=[], initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    made.train_from_iterator(CORPUS, trainer)
    made.decoder = decoders.ByteLevel()
    words = ["<|endoftext|>", "<|startoftranscript|>", *(f"<|{code}|>" for code in LANGUAGES)]
    words += ["<|translate|>", "<|transcribe|>", "<|startoflm|>", "<|startofprev|>", "<|nospeech|>", "<|notimestamps|>"]
    made.add_special_tokens([AddedToken(word, special=True, normalized=False) for word in words])
    return made


def build(folder, seed):
    made = tokenizer()
    made.save(str(folder / "tokenizer.json"))
    token = made.token_to_id
    first_timestamp = token("<|notimestamps|>") + 1
    vocabulary = first_timestamp + 1501
    end = token("<|endoftext|>")
    config = WhisperConfig(
        vocab_size=vocabulary, num_mel_bins=80, d_model=WIDTH, encoder_layers=2, decoder_layers=2,
        encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=32, decoder_ffn_dim=48,
        max_source_positions=1500, max_target_positions=CONTEXT, decoder_start_token_id=token("<|startoftranscript|>"),
        pad_token_id=end, bos_token_id=end, eos_token_id=end, suppress_tokens=None, begin_suppress_tokens=None,
    )
    torch.manual_seed(seed)
    model = WhisperForConditionalGeneration(config).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name == "model.encoder.embed_positions.weight":
                continue
            if "layer_norm" in name:
                weight.copy_(torch.randn_like(weight) * 0.3 + (1.0 if name.endswith("weight") else 0.0))
            elif "conv" in name or name.endswith("bias"):
                weight.copy_(torch.randn_like(weight) * 0.2)
            elif "embed_tokens" in name:
                weight.copy_(torch.randn_like(weight) * 0.8)
            else:
                weight.copy_(torch.randn_like(weight) * 0.5)
        # Sure of each token, so that no window is tried again at a higher temperature.
        model.model.decoder.layer_norm.weight *= SURE
        # Few timestamps, so that windows have several segments.
        weight = model.model.decoder.embed_tokens.weight
        weight[first_timestamp:] *= 0.85
        for weight in model.parameters():
            weight.copy_(weight.to(torch.float16).to(torch.float32))
    generation = GenerationConfig(
        decoder_start_token_id=config.decoder_start_token_id, eos_token_id=end, pad_token_id=end, bos_token_id=end,
        max_length=CONTEXT, is_multilingual=True, no_timestamps_token_id=first_timestamp - 1,
        suppress_tokens=[1, 2, 7, 200, token("<|startoftranscript|>"), token("<|translate|>"), token("<|transcribe|>"),
                         token("<|startoflm|>"), token("<|startofprev|>"), token("<|nospeech|>")],
        begin_suppress_tokens=[token("Ġ"), end], max_initial_timestamp_index=50,
        lang_to_id={f"<|{code}|>": token(f"<|{code}|>") for code in LANGUAGES},
        task_to_id={"transcribe": token("<|transcribe|>"), "translate": token("<|translate|>")},
        prev_sot_token_id=token("<|startofprev|>"), return_timestamps=False,
    )
    model.generation_config = generation
    model.save_pretrained(folder)
    weights = load_file(folder / "model.safetensors")
    weights = {name: weight.to(torch.float16) for name, weight in weights.items()}
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    WhisperFeatureExtractor(feature_size=80).save_pretrained(folder)
    shown = {"tokenizer_class": "WhisperTokenizer", "model_max_length": 1024}
    (folder / "tokenizer_config.json").write_text(json.dumps(shown) + "\n")
    return model, made, first_timestamp


class Reference:
    def __init__(self, model, tokenizer, first_timestamp):
        self.model, self.tokenizer, self.first = model, tokenizer, first_timestamp
        self.extractor = WhisperFeatureExtractor(feature_size=80)
        self.token = tokenizer.token_to_id
        # The smallest of all choices: of languages, of tokens, and between timestamps and other tokens.
        self.margin = 1e9

    def chose(self, margin):
        self.margin = min(self.margin, margin)

    def features(self, part):
        made = self.extractor(part, sampling_rate=RATE, return_tensors="pt")
        return made.input_features

    def encoded(self, features):
        with torch.no_grad():
            return self.model.model.encoder(features).last_hidden_state

    def logits(self, hidden, tokens):
        with torch.no_grad():
            out = self.model(encoder_outputs=BaseModelOutput(hidden), decoder_input_ids=torch.tensor([tokens]))
        return out.logits[0]

    def language(self, hidden):
        logits = self.logits(hidden, [self.token("<|startoftranscript|>")])[0]
        likeliest = sorted(LANGUAGES, key=lambda code: -logits[self.token(f"<|{code}|>")].item())
        first, second = (logits[self.token(f"<|{code}|>")].item() for code in likeliest[:2])
        self.chose(first - second)
        return likeliest[0]

    def prefix(self, language, task, prompt):
        start = [self.token(f"<|{word}|>") for word in ("startoftranscript", language, task)]
        kept = prompt[-(CONTEXT // 2 - 1):]
        return ([self.token("<|startofprev|>"), *kept] if kept else []) + start

    def tokens(self, hidden, prefix):
        """Greedy tokens with timestamps, without the end token; the mean of their logarithmic probabilities, with the end."""
        from transformers.generation.logits_process import (
            LogitsProcessorList, SuppressTokensAtBeginLogitsProcessor, SuppressTokensLogitsProcessor, WhisperTimeStampLogitsProcessor,
        )

        generation = GenerationConfig(**self.model.generation_config.to_dict())
        begin = len(prefix)
        suppressed = [
            SuppressTokensAtBeginLogitsProcessor(generation.begin_suppress_tokens, begin_index=begin),
            SuppressTokensLogitsProcessor(generation.suppress_tokens),
        ]
        rules = LogitsProcessorList([*suppressed, WhisperTimeStampLogitsProcessor(generation, begin_index=begin)])
        # The same without the last rule: timestamps that are together likelier than any other token.
        undecided = LogitsProcessorList([
            *suppressed, WhisperTimeStampLogitsProcessor(generation, begin_index=begin, _detect_timestamp_from_logprob=False),
        ])
        end, tokens, sum = generation.eos_token_id, list(prefix), 0.0
        most = min(CONTEXT // 2, CONTEXT - len(prefix))
        while len(tokens) - begin < most:
            input, logits = torch.tensor([tokens]), self.logits(hidden, tokens)[-1:]
            self.chose(self.timestamp_margin(undecided(input, logits.clone())[0].float()))
            scores = rules(input, logits.clone())
            chances = torch.log_softmax(scores.float(), dim=-1)[0]
            best = torch.topk(chances, 2)
            self.chose((best.values[0] - best.values[1]).item())
            sum += best.values[0].item()
            if best.indices[0].item() == end:
                break
            tokens.append(best.indices[0].item())
        made = tokens[begin:]
        return made, sum / (len(made) + 1)

    def timestamp_margin(self, scores):
        """How far the choice between timestamps and other tokens is from the opposite choice."""
        difference = torch.logsumexp(scores[self.first:], dim=-1) - scores[:self.first].max()
        return difference.abs().item() if difference.isfinite() else 1e9

    def generated(self, features, language, task):
        """The tokens of all windows of a short recording by `generate` itself."""
        with torch.no_grad():
            made = self.model.generate(
                features, language=language, task=task, return_timestamps=True, max_new_tokens=CONTEXT // 2,
                num_beams=1, do_sample=False,
            )
        end = self.model.generation_config.eos_token_id
        tokens = made[0].tolist()
        if self.token("<|startoftranscript|>") in tokens[:1]:
            tokens = tokens[3:]
        return [token for token in tokens if token != end]

    def text(self, tokens):
        return self.tokenizer.decode([token for token in tokens if token < self.token("<|endoftext|>")])

    def transcript(self, wave, language, task, prompt):
        """OpenAI's loop over windows, without thresholds: temperature 0.0 alone."""
        frames, seek = len(wave) // 160, 0
        before = self.tokenizer.encode(" " + prompt.strip()).ids if prompt else []
        segments = []
        while seek < frames:
            size = min(3000, frames - seek)
            part = wave[seek * 160:seek * 160 + WINDOW]
            hidden = self.encoded(self.features(part))
            if language is None:
                language = self.language(hidden)
            tokens, mean = self.tokens(hidden, self.prefix(language, task, before))
            written = self.text(tokens).strip().encode()
            ratio = len(written) / len(zlib.compress(written))
            if mean < -0.9 or ratio > 2.3:
                self.chose(0.0)
            marks = [token >= self.first for token in tokens]
            at = lambda token: (token - self.first) * 0.02
            pairs = [n + 1 for n in range(len(tokens) - 1) if marks[n] and marks[n + 1]]
            alone = marks[-2:] == [False, True]
            found, step = [], size
            if pairs:
                cuts = pairs + ([len(tokens)] if alone else [])
                last = 0
                for cut in cuts:
                    piece = tokens[last:cut]
                    found.append((at(piece[0]), at(piece[-1]), piece))
                    last = cut
                if not alone:
                    step = (tokens[last - 1] - self.first) * 2
            else:
                times = [token for token in tokens if token >= self.first]
                length = at(times[-1]) if times and times[-1] != self.first else size * 0.01
                found.append((0.0, length, tokens))
            for start, stop, piece in found:
                text = self.text(piece)
                if start == stop or not text.strip():
                    continue
                segments.append({
                    "seek": seek, "start": round(seek * 0.01 + start, 2), "end": round(seek * 0.01 + stop, 2), "text": text,
                    "tokens": piece, "avg_logprob": mean, "compression_ratio": ratio,
                })
                before = before + piece
            seek += max(step, 20)
        return {"language": language, "segments": segments}


def make(folder, seed):
    model, tokens, first = build(folder, seed)
    reference = Reference(model, tokens, first)
    wave = samples(5 * RATE, 1).astype(numpy.float32) / 32768
    features = reference.features(wave)
    hidden = reference.encoded(features)
    fixed = reference.prefix("de", "transcribe", [40, 41, 42]) + [first + 5, 60, 61, 62, first + 90]
    logits = reference.logits(hidden, fixed)
    made = {
        "mel": features[0].flatten()[::97].contiguous(),
        "hidden": hidden[0].flatten()[::13].contiguous(),
        "logits": logits.flatten()[::17].contiguous(),
    }
    wide = WhisperFeatureExtractor(feature_size=128)(wave, sampling_rate=RATE, return_tensors="pt").input_features
    made["mel128"] = wide[0].flatten()[::131].contiguous()
    save_file(made, folder / "expected.safetensors")
    cases = []
    for seconds, seed_of_wave, language, task in [(5, 1, "en", "transcribe"), (5, 1, "de", "translate"), (29, 7, "ja", "transcribe")]:
        wave = samples(seconds * RATE, seed_of_wave).astype(numpy.float32) / 32768
        features = reference.features(wave)
        hidden = reference.encoded(features)
        found, mean = reference.tokens(hidden, reference.prefix(language, task, []))
        # `generate` goes on with the next window where the last complete segment ends.
        marks = [token >= first for token in found]
        cut = max([n + 1 for n in range(len(found) - 1) if marks[n] and marks[n + 1]], default=len(found))
        theirs = reference.generated(features, language, task)
        assert cut > 0 and theirs[:cut] == found[:cut], (found, theirs)
        cases.append({
            "seconds": seconds, "seed": seed_of_wave, "language": language, "task": task, "tokens": found, "avg_logprob": mean,
            "detected": reference.language(hidden),
        })
    transcripts = []
    for seconds, seed_of_wave, language, task, prompt in [
        (5, 1, None, "transcribe", ""), (5, 1, "de", "translate", ""), (71, 3, "en", "transcribe", "The pool keeps models."),
    ]:
        wave = samples(seconds * RATE, seed_of_wave).astype(numpy.float32) / 32768
        found = reference.transcript(wave, language, task, prompt)
        transcripts.append({
            "seconds": seconds, "seed": seed_of_wave, "language": language, "task": task, "prompt": prompt, **found,
        })
    text = json.dumps({
        "seed": seed, "smallest_margin": reference.margin, "tokens": fixed, "windows": cases, "transcripts": transcripts,
    }, ensure_ascii=False, indent=1)
    (folder / "expected.json").write_text(text + "\n")
    return reference.margin, cases, transcripts


def same(kept, made):
    """What differs between two folders: floats within 1e-4, everything else exactly."""
    wrong = []
    names = {file.name for file in [*kept.iterdir(), *made.iterdir()]}
    for name in sorted(names):
        if not (kept / name).exists() or not (made / name).exists():
            wrong.append(f"{name}: is in one of them alone")
        elif name.endswith(".safetensors"):
            ours, theirs = load_file(kept / name), load_file(made / name)
            close = ours.keys() == theirs.keys() and all(torch.allclose(ours[key], theirs[key], atol=1e-4) for key in ours)
            wrong += [] if close else [f"{name}: numbers differ"]
        elif name == "expected.json":
            ours, theirs = (json.loads((folder / name).read_text()) for folder in (kept, made))
            parts = lambda all: [part for case in all["transcripts"] for part in case["segments"]]
            tokens = lambda all: [case["tokens"] for case in [*all["windows"], *parts(all)]]
            wrong += [] if tokens(ours) == tokens(theirs) else [f"{name}: the tokens differ"]
        elif (kept / name).read_bytes() != (made / name).read_bytes():
            wrong.append(f"{name}: the bytes differ")
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare with what is kept, write nothing")
    parser.add_argument("--seed", type=int, default=8, help="of the weights; the margin shows whether they are good")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    with tempfile.TemporaryDirectory() as scratch:
        made = Path(scratch)
        margin, cases, transcripts = make(made, asked.seed)
        counts = [len(case["tokens"]) for case in cases]
        segments = [len(case["segments"]) for case in transcripts]
        size = sum(file.stat().st_size for file in made.iterdir())
        if margin < MARGIN_MIN:
            print(f"the smallest margin is {margin:.2g}: rounding may change a choice, try another --seed", file=sys.stderr)
            sys.exit(1)
        print(f"margin {margin:.4f}  tokens {counts}  segments {segments}  {size // 1024} KiB")
        if not asked.check:
            shutil.rmtree(KEPT, ignore_errors=True)
            shutil.copytree(made, KEPT)
            return
        wrong = same(KEPT, made)
    for line in wrong:
        print(line, file=sys.stderr)
    print("what is kept is not what is made" if wrong else "what is kept is what is made")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
