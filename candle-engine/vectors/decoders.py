"""Owns the tiny decoders and what `transformers` computes with them. Never chooses their shapes.

Each model gets random weights, large enough that its logits differ clearly, from the first seed with which greedy decoding
never has to choose between two nearly equal logits.
"""

import json
import zlib

import numpy
import torch
from safetensors.numpy import save_file
from safetensors.torch import save_file as save_torch_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSeq2SeqLM

PROMPT_TOKENS = 40
GREEDY_TOKENS = 128
# Of the continuation, logits are kept at every so many tokens.
KEPT_EVERY = 16
# Logits have a spread (standard deviation) of about one.
SMALLEST_MARGIN = 4e-3
FEWEST_DIFFERENT_TOKENS = 24
# What a variation must change at some position to count as shown.
LEAST_DIFFERENCE = 0.03
CONTRASTIVE_TOKENS = 48
# Of scores between minus one and one.
SMALLEST_CONTRAST = 2e-4
SEEDS = 400
EMBEDDINGS = ("shared.weight", "embed_tokens.weight", "embed_in.weight", "wte.weight", "wpe.weight", "word_embeddings.weight", "embeddings.weight")
STORED = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


def weight(name, shape, random, config):
    """Random numbers for a tensor by what its name says it is."""
    adds_one = config["model_type"].startswith("gemma")
    # With a tied head a token would mostly be followed by itself if its embedding were most of the last hidden state.
    small = 0.4 if config["tie_word_embeddings"] else 1.0
    numbers = random.standard_normal(shape)
    if name.endswith("e_score_correction_bias"):
        return 0.1 * numbers
    # Norms follow the parts of Marian's layers. Without a large feed-forward part each token would follow itself for ever.
    parts = {"fc1": 5.0, "fc2": 5.0, "out_proj": 0.3, "q_proj": 1.5, "k_proj": 1.5} if config["model_type"] == "marian" else {}
    if parts:
        small = 1.2
    if name.endswith("bias"):
        return (0.04 if parts else 0.2) * numbers
    if len(shape) == 1:
        last = name.endswith(
            ("model.norm.weight", "ln_f.weight", "norm_f.weight", "embedding_norm.weight", "decoder.final_layer_norm.weight")
        )
        # Marian's last norm is that of the last layer.
        last |= name.endswith(f"decoder.layers.{config.get('decoder_layers', 0) - 1}.final_layer_norm.weight")
        factor = 1.0 / small if last else 1.0
        return factor * (1.0 + 0.2 * numbers) - (1.0 if adds_one else 0.0)
    if name == "shared.weight" and config["tie_word_embeddings"]:
        # T5 divides hidden states by the root of their width before its tied head.
        return small * numbers
    if name.endswith(EMBEDDINGS):
        return small * numbers * shape[-1] ** -0.5
    # GPT-2 keeps matrices of blocks with a row for each input.
    inputs = shape[0] if config["model_type"] == "gpt2" and ".c_" in name else shape[-1]
    factor = parts.get(name.split(".")[-2], 1.0) if parts else 1.0
    return factor * 1.4 * numbers * inputs**-0.5


def weights(shapes, seed, config, stored):
    random = numpy.random.default_rng(seed)
    made = {}
    for name in sorted(shapes):
        numbers = weight(name, shapes[name], random, config)
        made[name] = torch.from_numpy(numbers.astype(numpy.float32)).to(STORED[stored]).contiguous()
    return made


def encodes(config):
    """Whether the prompt goes to an encoder, and the continuation is a text of its own."""
    return config.get("is_encoder_decoder", False)


def kind(config):
    return AutoModelForSeq2SeqLM if encodes(config) else AutoModelForCausalLM


def published_shapes(config_folder, scratch):
    """What the tensors are called and how large they are where the model is published."""
    from safetensors import safe_open

    config = AutoConfig.from_pretrained(config_folder)
    model = kind(json.loads((config_folder / "config.json").read_text())).from_config(config, dtype=torch.float32, attn_implementation="eager")
    model.save_pretrained(scratch)
    shapes = {}
    for file in scratch.glob("*.safetensors"):
        with safe_open(file, "numpy") as opened:
            for name in opened.keys():
                shapes[name] = tuple(opened.get_slice(name).get_shape())
    return shapes


def without_prefix(tensors):
    """As the oldest files of GPT-2 call them, with the masks that they keep beside."""
    made = {name.removeprefix("transformer."): tensor for name, tensor in tensors.items()}
    return {**made, "h.0.attn.bias": torch.ones(1, 1, 8, 8).tril()}


def write_weights(folder, tensors, shards):
    for old in folder.glob("model*"):
        old.unlink()
    if shards == 1:
        save_torch_file(tensors, folder / "model.safetensors", {"format": "pt"})
        return
    names = sorted(tensors)
    of = {}
    for shard in range(shards):
        file = f"model-{shard + 1:05}-of-{shards:05}.safetensors"
        part = names[shard * len(names) // shards : (shard + 1) * len(names) // shards]
        save_torch_file({name: tensors[name] for name in part}, folder / file, {"format": "pt"})
        of.update({name: file for name in part})
    total = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": of}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=1) + "\n")


def loaded(folder):
    model, report = kind(json.loads((folder / "config.json").read_text())).from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
    )
    wrong = {kind: names for kind, names in report.items() if set(names) - {"h.0.attn.bias"}}
    assert not wrong, f"{folder.name}: {wrong}"
    # Otherwise the last token of a continuation is Marian's end token.
    model.generation_config.forced_eos_token_id = None
    return model.eval()


def greedy(model, prompt, suppressed=None):
    """The continuation, and the smallest distance of a best logit to the second best."""
    answer = model.generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
        max_new_tokens=GREEDY_TOKENS,
        min_new_tokens=GREEDY_TOKENS,
        do_sample=False,
        return_dict_in_generate=True,
        output_logits=True,
        eos_token_id=None,
        pad_token_id=0,
        suppress_tokens=None if suppressed is None else [suppressed],
    )
    logits = torch.stack(answer.logits)[:, 0]
    if suppressed is not None:
        logits[:, suppressed] = -torch.inf
    best = logits.topk(2).values
    tokens = answer.sequences[0, -GREEDY_TOKENS:].tolist()
    return tokens, float((best[:, 0] - best[:, 1]).min())


def logits_of(network, prompt, continuation):
    """A row of logits for each token of the prompt and the continuation. A model with an encoder has none before the prompt's last."""
    if not network.config.is_encoder_decoder:
        return network(torch.tensor([prompt + continuation]), use_cache=False).logits[0]
    written = torch.tensor([[network.config.decoder_start_token_id, *continuation]])
    rows = network(torch.tensor([prompt]), decoder_input_ids=written, use_cache=False).logits[0]
    return torch.cat([torch.zeros(len(prompt) - 1, rows.shape[1]), rows])


def contrastive(model, prompt, penalty_alpha, top_k, new_tokens):
    """Contrastive search by its definition (Su et al. 2022): `transformers` 5 does not have it any more.

    After each token the `top_k` likeliest are looked at. Each is appended, and its last hidden state is compared with all
    before. Answers the continuation and the smallest distance of a best score to the second best.
    """
    tokens, margin = list(prompt), float("inf")

    def states(rows):
        return model(torch.tensor(rows), use_cache=False, output_hidden_states=True)

    for _ in range(new_tokens):
        so_far = states([tokens])
        likeliest = so_far.logits[0, -1].softmax(-1).topk(top_k)
        ways = states([tokens + [int(token)] for token in likeliest.indices]).hidden_states[-1]
        ways = torch.nn.functional.normalize(ways, dim=-1)
        alike = (ways[:, :-1] @ ways[:, -1:].transpose(1, 2)).amax((1, 2))
        scores = (1 - penalty_alpha) * likeliest.values - penalty_alpha * alike
        best = scores.topk(2).values
        margin = min(margin, float(best[0] - best[1]))
        tokens.append(int(likeliest.indices[scores.argmax()]))
    return tokens[len(prompt) :], margin


def word(token):
    """Each token is a word of two letters, behind a space as GPT-2's are."""
    return "\u0120" + chr(ord("a") + token // 16) + chr(ord("a") + token % 16)


def write_tokenizer(folder, vocabulary):
    bytes_as_letters = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    tokenizer = {
        "version": "1.0",
        "added_tokens": [],
        "pre_tokenizer": bytes_as_letters,
        "decoder": bytes_as_letters,
        "model": {"type": "WordLevel", "vocab": {word(token): token for token in range(vocabulary)}, "unk_token": word(0)},
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer, indent=1) + "\n")


def write_unigram_tokenizer(folder, vocabulary):
    """As T5's: each token after the special ones is a word of two letters, and a text ends with the end token."""
    special = ["<pad>", "</s>", "<unk>"]
    facts = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    spaces = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True}
    words = [word(token).replace("\u0120", "\u2581") for token in range(len(special), vocabulary)]
    end = {"SpecialToken": {"id": "</s>", "type_id": 0}}
    one, other = ({"Sequence": {"id": name, "type_id": 0}} for name in "AB")
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": token, "content": text, **facts} for token, text in enumerate(special)],
        "normalizer": None,
        "pre_tokenizer": spaces,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [one, end],
            "pair": [one, end, other, end],
            "special_tokens": {"</s>": {"id": "</s>", "ids": [1], "tokens": ["</s>"]}},
        },
        "decoder": spaces,
        "model": {
            "type": "Unigram",
            "unk_id": 2,
            "vocab": [[text, 0.0] for text in special] + [[text, -4.0] for text in words],
            "byte_fallback": False,
        },
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer, indent=1) + "\n")


def differences_shown(folder, changes, prompt, continuation, logits):
    """The largest difference of logits for each change of the configuration."""
    text = (folder / "config.json").read_text()
    differences = []
    for change in changes:
        (folder / "config.json").write_text(json.dumps({**json.loads(text), **change}))
        changed = logits_of(loaded(folder), prompt, continuation)
        differences.append(float((changed - logits).abs().max()))
    (folder / "config.json").write_text(text)
    return differences


def prompt_of(name, vocabulary):
    random = numpy.random.default_rng(zlib.crc32(name.encode()))
    tokens = min(PROMPT_TOKENS, vocabulary * 3 // 8)
    return [int(token) for token in random.integers(3, vocabulary, tokens)]


@torch.no_grad()
def make(name, model, shown, folder, scratch):
    """Writes one model and what is expected of it; answers what was chosen."""
    config, stored, facts = model
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    shapes = published_shapes(folder, scratch)
    if encodes(config) and not config["tie_word_embeddings"]:
        # As in published files; `transformers` 5 leaves it out of what it creates.
        shapes["lm_head.weight"] = (config["vocab_size"], config["d_model"])
    prompt = prompt_of(name, config["vocab_size"])
    for seed in range(SEEDS):
        made = weights(shapes, seed, config, stored)
        write_weights(folder, without_prefix(made) if facts.get("bare") else made, facts.get("shards", 1))
        network = loaded(folder)
        continuation, margin = greedy(network, prompt, facts.get("suppressed"))
        fewest = min(FEWEST_DIFFERENT_TOKENS, config["vocab_size"] // 4)
        if margin < SMALLEST_MARGIN or len(set(continuation)) < fewest:
            continue
        if not facts.get("contrastive"):
            break
        # With the defaults of the GPT-J pipeline.
        searched, contrast = contrastive(network, prompt, 0.6, 4, CONTRASTIVE_TOKENS)
        if contrast >= SMALLEST_CONTRAST and searched != continuation[:CONTRASTIVE_TOKENS]:
            break
    else:
        raise SystemExit(f"{name}: no seed below {SEEDS} gives a clear continuation")
    whole = logits_of(network, prompt, continuation)
    if "suppressed" in facts:
        whole[:, facts["suppressed"]] = 0.0
    if encodes(config):
        of_prompt = whole[len(prompt) - 1 : 2 * len(prompt) - 1]
    else:
        states = network(torch.tensor([prompt]), use_cache=False, output_hidden_states=True)
        of_prompt = states.logits[0]
    chosen = whole.clone()
    if "suppressed" in facts:
        chosen[:, facts["suppressed"]] = -torch.inf
    again = chosen[len(prompt) - 1 : -1].argmax(-1).tolist()
    assert again == continuation, f"{name}: with and without a cache the reference differs"
    for change, difference in zip(shown, differences_shown(folder, shown, prompt, continuation, whole)):
        assert difference > LEAST_DIFFERENCE, f"{name}: {change} changes logits by {difference} alone"
    positions = list(range(len(prompt) + KEPT_EVERY - 1, len(prompt) + GREEDY_TOKENS, KEPT_EVERY))
    kept = {"logits": of_prompt.numpy(), "later_logits": whole[positions].numpy()}
    if facts.get("hidden"):
        kept["hidden"] = states.hidden_states[-1][0].numpy()
    save_file({key: numpy.ascontiguousarray(value) for key, value in kept.items()}, folder / "expected.safetensors")
    spread = float(of_prompt.std())
    expected = {
        "seed": seed,
        "smallest_margin": round(margin, 5),
        "logits_spread": round(spread, 4),
        "different_tokens": len(set(continuation)),
        "prompt": prompt,
        "greedy": continuation,
        "later_positions": positions,
    }
    if facts.get("contrastive"):
        text = "".join(word(token) for token in searched).replace("\u0120", " ")
        expected |= {"contrastive": searched, "contrastive_text": text, "penalty_alpha": 0.6, "top_k": 4}
    if facts.get("tokenizer") == "unigram":
        write_unigram_tokenizer(folder, config["vocab_size"])
    elif facts.get("contrastive") or facts.get("tokenizer"):
        write_tokenizer(folder, config["vocab_size"])
    lines = [f" {json.dumps(key)}: {json.dumps(value)}" for key, value in expected.items()]
    (folder / "expected.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")
    return expected


def same(kept, made):
    """What differs between a kept folder and one made now; numbers may differ in the last digits from one CPU to another."""
    from safetensors.numpy import load_file

    wrong = []
    for file in sorted({path.name for path in [*kept.iterdir(), *made.iterdir()]}):
        one, other = kept / file, made / file
        if not (one.exists() and other.exists()):
            wrong.append(f"{kept.name}/{file}: {'is not made' if one.exists() else 'is not kept'}")
        elif file in ("expected.safetensors", "seen.safetensors"):
            old, new = load_file(one), load_file(other)
            close = old.keys() == new.keys() and all(
                old[key].shape == new[key].shape and numpy.abs(old[key] - new[key]).max() < 1e-4 for key in old
            )
            if not close:
                wrong.append(f"{kept.name}/{file}: the numbers differ")
        elif file == "expected.json":
            old, new = json.loads(one.read_text()), json.loads(other.read_text())
            wrong += [
                f"{kept.name}/{file}: {key} differs"
                for key in sorted(old.keys() | new.keys())
                if key not in ("smallest_margin", "logits_spread") and old.get(key) != new.get(key)
            ]
        elif one.read_bytes() != other.read_bytes():
            wrong.append(f"{kept.name}/{file}: the bytes differ")
    return wrong
