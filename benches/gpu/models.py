"""Models for benches/gpu/run that need no download: the models of the correctness vectors, and random models of any size. Their
tokenizer has a word of four letters for each token, which makes responses readable as tokens."""

import json
import random
import shutil
import struct
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VECTORS = ROOT / "candle-engine/tests/vectors"
LETTERS = "abcdefghijklmnopqrstuvwxyz"
WORD = 4
# Numbers repeat in blocks of this size, because their values do not affect the speed.
BLOCK = 1 << 19

SHAPES = {
    # hidden, intermediate, layers, heads, key heads, vocabulary; about 1.1 billion parameters
    "1.1b": (2048, 5632, 22, 32, 4, 32000),
    "tiny": (64, 128, 2, 4, 2, 256),
}


def word(token):
    text = ""
    for _ in range(WORD):
        token, letter = divmod(token, len(LETTERS))
        text = LETTERS[letter] + text
    return text


def write_tokenizer(folder, vocabulary):
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": level,
        "post_processor": None,
        "decoder": level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": {word(token): token for token in range(vocabulary)},
            "merges": [],
        },
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))


def vector(name, into):
    """Writes a model of the vectors with a tokenizer; returns its folder and the reference's results."""
    folder = into / name
    shutil.copytree(VECTORS / name, folder)
    config = json.loads((folder / "config.json").read_text())
    expected = json.loads((folder / "expected.json").read_text())
    expected["end"] = config.get("eos_token_id")
    write_tokenizer(folder, config["vocab_size"])
    return folder, expected


def random_model(shape, into):
    """Writes a Llama of this shape with random BF16 weights."""
    hidden, inner, layers, heads, key_heads, vocabulary = SHAPES[shape]
    folder = into / f"random-{shape}"
    folder.mkdir()
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "torch_dtype": "bfloat16",
        "vocab_size": vocabulary,
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": key_heads,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-05,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    (folder / "config.json").write_text(json.dumps(config))
    write_tokenizer(folder, vocabulary)
    narrow = hidden // heads * key_heads
    tensors = {"model.embed_tokens.weight": [vocabulary, hidden]}
    for layer in range(layers):
        at = f"model.layers.{layer}"
        tensors |= {
            f"{at}.input_layernorm.weight": [hidden],
            f"{at}.self_attn.q_proj.weight": [hidden, hidden],
            f"{at}.self_attn.k_proj.weight": [narrow, hidden],
            f"{at}.self_attn.v_proj.weight": [narrow, hidden],
            f"{at}.self_attn.o_proj.weight": [hidden, hidden],
            f"{at}.post_attention_layernorm.weight": [hidden],
            f"{at}.mlp.gate_proj.weight": [inner, hidden],
            f"{at}.mlp.up_proj.weight": [inner, hidden],
            f"{at}.mlp.down_proj.weight": [hidden, inner],
        }
    tensors |= {"model.norm.weight": [hidden], "lm_head.weight": [vocabulary, hidden]}
    write_safetensors(folder / "model.safetensors", tensors)
    return folder


def write_safetensors(path, tensors):
    header, at = {}, 0
    for name, shape in tensors.items():
        size = 2
        for side in shape:
            size *= side
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    chance = random.Random(7)
    # A BF16 number is the upper half of an F32.
    block = b"".join(struct.pack("<f", chance.gauss(0, 0.02))[2:] for _ in range(BLOCK))
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        left = at
        while left > 0:
            left -= file.write(block[: min(left, len(block))])
