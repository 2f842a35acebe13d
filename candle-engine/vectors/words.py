"""Makes the times of words that OpenAI's `whisper` finds with the tiny model of `speech.py`, or checks (`--check`) that those kept
are what it makes. See docs/guides/speech.md.

    python3 -m venv VENV && VENV/bin/pip install -r requirements.txt openai-whisper
    VENV/bin/python words.py [--check]

The segments are those of `speech.py`. `whisper.timing.add_word_timestamps` aligns the tokens of each window, with a network that
`whisper` builds from the kept weights.
"""

import argparse
import json
import sys
from pathlib import Path

import numpy
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from whisper import timing
from whisper.model import Linear, ModelDimensions, Whisper
from whisper.tokenizer import Tokenizer as Words

import speech

KEPT = speech.KEPT.parent / "words.json"

RENAMED = [
    ("model.", ""), ("layers.", "blocks."), ("self_attn_layer_norm", "attn_ln"), ("encoder_attn_layer_norm", "cross_attn_ln"),
    ("final_layer_norm", "mlp_ln"), ("self_attn.", "attn."), ("encoder_attn.", "cross_attn."), ("q_proj", "query"), ("k_proj", "key"),
    ("v_proj", "value"), ("out_proj", "out"), ("fc1", "mlp.0"), ("fc2", "mlp.2"), ("encoder.layer_norm", "encoder.ln_post"),
    ("decoder.layer_norm", "decoder.ln"), ("embed_tokens", "token_embedding"), ("embed_positions.weight", "positional_embedding"),
]


def network():
    config = json.loads((speech.KEPT / "config.json").read_text())
    sizes = ModelDimensions(
        n_mels=80, n_audio_ctx=1500, n_audio_state=config["d_model"], n_audio_head=config["encoder_attention_heads"],
        n_audio_layer=config["encoder_layers"], n_vocab=config["vocab_size"], n_text_ctx=config["max_target_positions"],
        n_text_state=config["d_model"], n_text_head=config["decoder_attention_heads"], n_text_layer=config["decoder_layers"],
    )
    weights = {}
    for name, weight in load_file(speech.KEPT / "model.safetensors").items():
        for old, new in RENAMED:
            name = name.replace(old, new)
        weights[name] = weight.to(torch.float32)
    weights.pop("proj_out.weight", None)
    made = Whisper(sizes).eval()
    # `whisper` widens by four, the tiny model by less.
    for side in (made.encoder, made.decoder):
        for index, block in enumerate(side.blocks):
            name = f"{'encoder' if side is made.encoder else 'decoder'}.blocks.{index}.mlp.0.weight"
            wide, narrow = weights[name].shape
            block.mlp[0], block.mlp[2] = Linear(narrow, wide), Linear(wide, narrow)
    made.load_state_dict(weights)
    return made


class Text:
    """The tokens of the tiny model, with the rules of `whisper` for words."""

    split_to_word_tokens = Words.split_to_word_tokens
    split_tokens_on_unicode = Words.split_tokens_on_unicode
    split_tokens_on_spaces = Words.split_tokens_on_spaces

    def __init__(self, tokenizer, language, task):
        self.tokenizer, self.language = tokenizer, language
        token = tokenizer.token_to_id
        self.eot, self.no_timestamps = token("<|endoftext|>"), token("<|notimestamps|>")
        self.sot_sequence = tuple(token(f"<|{word}|>") for word in ("startoftranscript", language, task))

    def decode_with_timestamps(self, tokens):
        return self.tokenizer.decode(tokens, skip_special_tokens=False)


TEXTS = [
    ("en", [" The pool keeps many models. (A few", " devices) \"loads\" one!"]),
    ("de", [" Der Speicher ist knapp; Größe", " und Maß. Die Anfragen"]),
    ("ja", ["東京は日本の", "首都です。"]),
]


def cases(tokenizer):
    """Recordings with their segments: those of `speech.py`, and sentences."""
    kept = json.loads((speech.KEPT / "expected.json").read_text())
    for case in kept["transcripts"]:
        parts = [{key: part[key] for key in ("seek", "start", "end", "tokens")} for part in case["segments"]]
        yield {**{key: case[key] for key in ("seconds", "seed", "language", "task")}, "segments": parts}
    for case in kept["windows"]:
        part = {"seek": 0, "start": 0.0, "end": float(case["seconds"]), "tokens": case["tokens"]}
        yield {**{key: case[key] for key in ("seconds", "seed", "language", "task")}, "segments": [part]}
    for seed, (language, texts) in enumerate(TEXTS):
        parts = [
            {"seek": 0, "start": 9.0 * index, "end": 9.0 * index + 7, "tokens": tokenizer.encode(text).ids}
            for index, text in enumerate(texts)
        ]
        yield {"seconds": 17, "seed": seed + 20, "language": language, "task": "transcribe", "segments": parts}


def words(model, tokenizer, case):
    wave = speech.samples(case["seconds"] * speech.RATE, case["seed"]).astype(numpy.float32) / 32768
    extractor = speech.WhisperFeatureExtractor(feature_size=80)
    text = Text(tokenizer, case["language"], case["task"])
    found, last, total = [], 0.0, len(wave) // 160
    for seek in sorted({part["seek"] for part in case["segments"]}):
        segments = [dict(part) for part in case["segments"] if part["seek"] == seek]
        part = wave[seek * 160:seek * 160 + speech.WINDOW]
        mel = extractor(part, sampling_rate=speech.RATE, return_tensors="pt").input_features[0]
        timing.add_word_timestamps(
            segments=segments, model=model, tokenizer=text, mel=mel, num_frames=min(3000, total - seek), last_speech_timestamp=last,
            prepend_punctuations="\"'“¿([{-", append_punctuations="\"'.。,，!！?？:：”)]}、",
        )
        for segment in segments:
            last = segment["end"] if segment["words"] else last
            found.append([[word["word"], round(float(word["start"]), 4), round(float(word["end"]), 4)] for word in segment["words"]])
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare with what is kept, write nothing")
    check = parser.parse_args().check
    torch.set_num_threads(1)
    model, tokenizer = network(), Tokenizer.from_file(str(speech.KEPT / "tokenizer.json"))
    made = []
    for heads in (None, [[0, 1], [1, 0]]):
        if heads:
            mask = torch.zeros(model.dims.n_text_layer, model.dims.n_text_head, dtype=torch.bool)
            for layer, head in heads:
                mask[layer, head] = True
            model.register_buffer("alignment_heads", mask.to_sparse(), persistent=False)
        for case in cases(tokenizer):
            made.append({**case, "alignment_heads": heads, "words": words(model, tokenizer, case)})
    print(f"{len(made)} cases, {sum(len(part) for case in made for part in case['words'])} words")
    text = "[\n" + ",\n".join(json.dumps(case, ensure_ascii=False) for case in made) + "\n]\n"
    if not check:
        KEPT.write_text(text)
    elif json.loads(text) != json.loads(KEPT.read_text()):
        print("what is kept is not what is made", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
