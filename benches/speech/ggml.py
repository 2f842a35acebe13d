"""Writes a Whisper model of `transformers` as a file of whisper.cpp, in the form of its own `models/convert-h5-to-ggml.py`, which needs
a copy of OpenAI's repository and the tokenizer's older files."""

import struct

MAGIC = 0x67676D6C
F32, F16 = 0, 1
# Names of whisper.cpp for parts of a name.
PARTS = {
    "layers": "blocks",
    "self_attn_layer_norm": "attn_ln",
    "encoder_attn_layer_norm": "cross_attn_ln",
    "final_layer_norm": "mlp_ln",
    "self_attn": "attn",
    "encoder_attn": "cross_attn",
    "k_proj": "key",
    "q_proj": "query",
    "v_proj": "value",
    "out_proj": "out",
    "fc1": "mlp.0",
    "fc2": "mlp.2",
    "embed_positions.weight": "positional_embedding",
    "embed_tokens": "token_embedding",
}
LAST_NORM = {"encoder": "ln_post", "decoder": "ln"}


def name_in_whisper_cpp(name):
    half, *parts = name.removeprefix("model.").split(".")
    if parts[0] == "layer_norm":
        return ".".join([half, LAST_NORM[half], *parts[1:]])
    if parts[0] == "embed_positions":
        return f"{half}.{PARTS['embed_positions.weight']}"
    return ".".join([half, *(PARTS.get(part, part) for part in parts)])


def write(path, model, words, mel_filters, is_f16):
    """`words` are the bytes of the text tokens in their order, and `mel_filters` has a row for each band."""
    import numpy

    config = model.config
    numbers = [
        MAGIC, config.vocab_size, config.max_source_positions, config.d_model, config.encoder_attention_heads, config.encoder_layers,
        config.max_target_positions, config.d_model, config.decoder_attention_heads, config.decoder_layers, config.num_mel_bins,
        F16 if is_f16 else F32, *mel_filters.shape,
    ]
    with open(path, "wb") as file:
        file.write(struct.pack(f"<{len(numbers)}i", *numbers))
        file.write(numpy.ascontiguousarray(mel_filters, dtype="<f4").tobytes())
        file.write(struct.pack("<i", len(words)))
        for word in words:
            file.write(struct.pack("<i", len(word)) + word)
        for name, weight in model.state_dict().items():
            # The head is the embedding of the tokens.
            if name == "proj_out.weight":
                continue
            own = name_in_whisper_cpp(name)
            # A convolution's bias has a value for each row.
            values = weight.numpy().reshape(-1, 1) if own.endswith(("conv1.bias", "conv2.bias")) else weight.numpy()
            is_small = weight.ndim < 2 or own.endswith("positional_embedding")
            kind = F16 if is_f16 and not is_small else F32
            file.write(struct.pack("<3i", values.ndim, len(own), kind))
            file.write(struct.pack(f"<{values.ndim}i", *reversed(values.shape)))
            file.write(own.encode() + values.astype("<f2" if kind == F16 else "<f4").tobytes())
