"""Owns the tiny models that see, and what `transformers` computes with them and with images. Decoders' text is as in decoders.py."""

import json

import numpy
import torch
from decoders import SEEDS, SMALLEST_MARGIN, prompt_of, weight, word
from PIL import Image
from safetensors.numpy import save_file
from safetensors.torch import save_file as save_torch_file

GREEDY_TOKENS = 128
KEPT_EVERY = 16
SEEN_GREEDY_TOKENS = 24
IMAGE, START, END, VIDEO = 60, 61, 62, 63
# Placeholder, start, end and video, in the order of their tokens.
QWEN = ["<|image_pad|>", "<|vision_start|>", "<|vision_end|>", "<|video_pad|>"]
PADDLE = ["<|IMAGE_PLACEHOLDER|>", "<|IMAGE_START|>", "<|IMAGE_END|>", "<|video_pad|>"]
QWEN_TEMPLATE = """{%- for message in messages -%}
{%- if message.content is string -%}{{- ' ' + message.content -}}
{%- else -%}{%- for part in message.content -%}
{%- if part.type == 'image' or 'image' in part or 'image_url' in part -%}{{- '<|vision_start|><|image_pad|><|vision_end|>' -}}
{%- elif 'text' in part -%}{{- ' ' + part.text -}}{%- endif -%}
{%- endfor -%}{%- endif -%}
{%- endfor -%}
"""
# Iterates over parts, and writes no content that is a string.
PADDLE_TEMPLATE = """{%- for message in messages -%}
{%- for part in message["content"] -%}
{%- if part["type"] == "image" -%}{{- "<|IMAGE_START|><|IMAGE_PLACEHOLDER|><|IMAGE_END|>" -}}
{%- elif part["type"] == "text" -%}{{- " " + part["text"] -}}{%- endif -%}
{%- endfor -%}
{%- endfor -%}
"""
PROCESSOR = {
    "size": {"shortest_edge": 256, "longest_edge": 1024},
    "patch_size": 4,
    "merge_size": 2,
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5],
}


def qwen3_vl():
    return {
        "architectures": ["Qwen3VLForConditionalGeneration"],
        "model_type": "qwen3_vl",
        "image_token_id": IMAGE,
        "video_token_id": VIDEO,
        "vision_start_token_id": START,
        "vision_end_token_id": END,
        "tie_word_embeddings": True,
        "text_config": {
            "model_type": "qwen3_vl_text",
            "vocab_size": 64,
            "hidden_size": 16,
            "intermediate_size": 24,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 12,
            "hidden_act": "silu",
            "attention_bias": False,
            "max_position_embeddings": 512,
            "rms_norm_eps": 1e-6,
            "rope_theta": 5000.0,
            "rope_scaling": {"rope_type": "default", "mrope_interleaved": True, "mrope_section": [2, 2, 2]},
            "tie_word_embeddings": True,
            "bos_token_id": 0,
            "eos_token_id": 0,
        },
        "vision_config": {
            "model_type": "qwen3_vl",
            "depth": 3,
            "hidden_size": 16,
            "hidden_act": "gelu_pytorch_tanh",
            "intermediate_size": 24,
            "num_heads": 2,
            "in_channels": 3,
            "patch_size": 4,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
            "out_hidden_size": 16,
            "num_position_embeddings": 16,
            "deepstack_visual_indexes": [0, 2],
        },
    }


def paddleocr_vl():
    """The text's fields are at the root, as published."""
    return {
        "architectures": ["PaddleOCRVLForConditionalGeneration"],
        "model_type": "paddleocr_vl",
        "image_token_id": IMAGE,
        "video_token_id": VIDEO,
        "vision_start_token_id": START,
        "vision_end_token_id": END,
        "vocab_size": 64,
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 12,
        "hidden_act": "silu",
        "use_bias": False,
        "max_position_embeddings": 512,
        "rms_norm_eps": 1e-5,
        "rope_theta": 5000.0,
        "rope_scaling": {"rope_type": "default", "mrope_section": [1, 2, 3]},
        "tie_word_embeddings": False,
        "bos_token_id": 0,
        "eos_token_id": 0,
        "vision_config": {
            "model_type": "paddleocr_vl",
            "num_hidden_layers": 2,
            "hidden_size": 16,
            "hidden_act": "gelu_pytorch_tanh",
            "intermediate_size": 24,
            "num_attention_heads": 2,
            "num_channels": 3,
            "image_size": 21,
            "patch_size": 4,
            "spatial_merge_size": 2,
            "layer_norm_eps": 1e-6,
        },
    }


def qwen_processor():
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    return Qwen2VLImageProcessorPil


def paddle_processor():
    from transformers.models.paddleocr_vl.image_processing_pil_paddleocr_vl import PaddleOCRVLImageProcessorPil

    return PaddleOCRVLImageProcessorPil


# name -> (configuration, processor, frames of a patch, special tokens, template)
MODELS = {
    "qwen3-vl": (qwen3_vl, qwen_processor, 2, QWEN, QWEN_TEMPLATE),
    "paddleocr-vl": (paddleocr_vl, paddle_processor, 1, PADDLE, PADDLE_TEMPLATE),
}


def pictures():
    """Images of every kind of pixels: inside the bounds of pixels, above and below them."""
    random = numpy.random.default_rng(7)

    def noise(height, width, channels):
        rows = numpy.linspace(0, 200, height)[:, None, None]
        columns = numpy.linspace(0, 50, width)[None, :, None]
        return (rows + columns + random.integers(0, 6, (height, width, channels))).astype(numpy.uint8)

    def image(height, width):
        return Image.fromarray(noise(height, width, 3), "RGB")

    alpha = noise(20, 20, 4)
    return {
        "inside.png": image(23, 37),
        "wide.png": image(31, 130),
        "tall.png": image(90, 41),
        "small.png": image(5, 9),
        "dot.png": Image.new("RGB", (1, 1), (200, 30, 90)),
        "alpha.png": Image.fromarray(alpha, "RGBA"),
        "gray.png": Image.fromarray(noise(25, 18, 1)[..., 0], "L"),
        "palette.png": image(24, 24).quantize(16),
    }


def write_tokenizer(folder, special, template):
    letters = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    added = [
        {"id": token, "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
        for token, text in enumerate(special, IMAGE)
    ]
    vocabulary = {word(token): token for token in range(IMAGE)}
    tokenizer = {
        "version": "1.0",
        "added_tokens": added,
        "pre_tokenizer": letters,
        "decoder": letters,
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": word(0)},
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer, indent=1) + "\n")
    (folder / "chat_template.jinja").write_text(template)


def published_shapes(folder, scratch):
    """What the tensors are called and how large they are where the model is published."""
    from safetensors import safe_open
    from transformers import AutoConfig, AutoModelForImageTextToText

    AutoModelForImageTextToText.from_config(AutoConfig.from_pretrained(folder)).save_pretrained(scratch)
    shapes = {}
    for file in scratch.glob("*.safetensors"):
        with safe_open(file, "numpy") as opened:
            for name in opened.keys():
                shapes[name] = tuple(opened.get_slice(name).get_shape())
    return shapes


def tensors(shapes, seed, config):
    random = numpy.random.default_rng(seed)
    facts = {"model_type": config["model_type"], "tie_word_embeddings": config["tie_word_embeddings"]}
    made = {}
    for name, shape in sorted(shapes.items()):
        flat = (shape[0], int(numpy.prod(shape[1:]))) if len(shape) > 2 else shape
        # The last norm is that of the text.
        known = name.replace("language_model.norm", "model.norm")
        numbers = weight(known, flat, random, facts).reshape(shape)
        made[name] = torch.from_numpy(numbers.astype(numpy.float32)).to(torch.bfloat16).contiguous()
    return made


def in_order_of_tokens(of, frames, merge=2, patch=4):
    """The first frame of each patch, with the patches of a token next to each other."""
    numbers = of["pixel_values"].reshape(-1, 3, frames, patch * patch)[:, :, 0].reshape(-1, 3 * patch * patch)
    if of["pixel_values"].ndim == 2:
        return numbers
    _, rows, columns = of["image_grid_thw"][0]
    blocks = numbers.reshape(rows // merge, merge, columns // merge, merge, -1)
    return blocks.transpose(0, 2, 1, 3, 4).reshape(rows * columns, -1)


def continuation(model, tokens, count, seen):
    inputs = torch.tensor([tokens])
    answer = model.generate(
        input_ids=inputs,
        attention_mask=torch.ones_like(inputs),
        max_new_tokens=count,
        min_new_tokens=count,
        do_sample=False,
        return_dict_in_generate=True,
        output_logits=True,
        eos_token_id=None,
        pad_token_id=0,
        **seen,
    )
    best = torch.stack(answer.logits)[:, 0].topk(2).values
    return answer.sequences[0, len(tokens) :].tolist(), float((best[:, 0] - best[:, 1]).min())


def loaded(folder):
    from transformers import AutoModelForImageTextToText

    model, report = AutoModelForImageTextToText.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
    )
    wrong = {kind: names for kind, names in report.items() if names}
    assert not wrong, f"{folder.name}: {wrong}"
    return model.eval()


def prompts(processed):
    """Prompts of tokens and images: text before, between and after."""

    def seen(names, parts):
        tokens = []
        for part in parts:
            if isinstance(part, str):
                grid = processed[part]["image_grid_thw"][0]
                tokens += [START] + [IMAGE] * int(grid.prod() // 4) + [END]
            else:
                tokens += part
        return {"images": names, "prompt": tokens}

    return [
        seen(["inside.png"], [[5, 9, 33], "inside.png", [7, 21, 40, 8]]),
        seen(["tall.png", "dot.png"], ["tall.png", [11, 12], "dot.png", [13]]),
        seen(["wide.png"], [[17], "wide.png", [3, 4]]),
        seen(["dot.png", "gray.png"], [[5], "dot.png", "gray.png", [6, 50]]),
    ]


@torch.no_grad()
def make(name, folder, scratch):
    described, processor, frames, special, template = MODELS[name]
    config = described()
    settings = {**PROCESSOR, "temporal_patch_size": frames}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    (folder / "preprocessor_config.json").write_text(json.dumps(settings, indent=2) + "\n")
    write_tokenizer(folder, special, template)
    processor = processor()(**settings)
    processed = {}
    for file, picture in pictures().items():
        picture.save(folder / file)
        processed[file] = processor(images=[Image.open(folder / file)], return_tensors="np")
    shapes = published_shapes(folder, scratch)
    prompt = [token % IMAGE for token in prompt_of(name, 64)]
    for seed in range(SEEDS):
        save_torch_file(tensors(shapes, seed, config), folder / "model.safetensors", {"format": "pt"})
        model = loaded(folder)
        greedy, margin = continuation(model, prompt, GREEDY_TOKENS, {})
        if margin < SMALLEST_MARGIN or len(set(greedy)) < 16:
            continue
        cases, rows, margins = [], {}, []
        for nth, case in enumerate(prompts(processed)):
            files = case["images"]
            tokens = torch.tensor([case["prompt"]])
            seen = {
                "pixel_values": torch.from_numpy(numpy.concatenate([processed[file]["pixel_values"] for file in files])),
                "image_grid_thw": torch.from_numpy(numpy.concatenate([processed[file]["image_grid_thw"] for file in files])),
                "mm_token_type_ids": (tokens == IMAGE).int(),
            }
            case["greedy"], smallest = continuation(model, case["prompt"], SEEN_GREEDY_TOKENS, seen)
            margins.append(smallest)
            rows[f"logits_{nth}"] = model(input_ids=tokens, use_cache=False, **seen).logits[0].numpy()
            blank = {**seen, "pixel_values": torch.zeros_like(seen["pixel_values"])}
            unseen = model(input_ids=tokens, use_cache=False, **blank).logits[0, -1].numpy()
            case["seen"] = float(numpy.abs(unseen - rows[f"logits_{nth}"][-1]).max())
            cases.append(case)
        if min(margins) >= SMALLEST_MARGIN and min(case["seen"] for case in cases) > 0.05:
            break
    else:
        raise SystemExit(f"{name}: no seed below {SEEDS} gives clear continuations")
    of_prompt = model(torch.tensor([prompt]), use_cache=False).logits[0].numpy()
    later = model(torch.tensor([prompt + greedy]), use_cache=False).logits[0].numpy()
    positions = list(range(len(prompt) + KEPT_EVERY - 1, len(prompt) + GREEDY_TOKENS, KEPT_EVERY))
    save_file({"logits": of_prompt, "later_logits": numpy.ascontiguousarray(later[positions])}, folder / "expected.safetensors")
    expected = {
        "seed": seed,
        "smallest_margin": round(min([margin, *margins]), 5),
        "logits_spread": round(float(of_prompt.std()), 4),
        "different_tokens": len(set(greedy)),
        "prompt": prompt,
        "greedy": greedy,
        "later_positions": positions,
    }
    lines = [f" {json.dumps(key)}: {json.dumps(value)}" for key, value in expected.items()]
    (folder / "expected.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")
    patches = {file: in_order_of_tokens(of, frames) for file, of in processed.items()}
    pixels = {file: numpy.ascontiguousarray(of, dtype=numpy.float32) for file, of in patches.items()}
    grids = {file: of["image_grid_thw"][0].tolist() for file, of in processed.items()}
    save_file({**pixels, **rows}, folder / "seen.safetensors")
    (folder / "seen.json").write_text(json.dumps({"grids": grids, "prompts": cases}, indent=1) + "\n")
    return expected
