"""Owns tiny tokenizers of every kind, and what `transformers` makes of 10,000 texts with them.

The texts come from an algorithm (splitmix64 over the tables of `pieces.json`) that the Rust test repeats letter by letter, so
that only hashes of every hundred are kept, and the first few in full.
"""

import json

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

TEXTS = 10_000
GROUP = 100
EXAMPLES = 40
IDS_DECODED = 2_000
PIECES_MOST = 24
MASK = (1 << 64) - 1

PIECES = {
    # Words, contractions and numbers as texts have them.
    "words": (
        "the The of and model tokens don't I'm we'LL They've it's 's 're 2024 3.14 1,000,000 00012 hello Hello HELLO world "
        "naïve café Straße Zürich быстрая лиса γειά σου שלום مرحبا नमस्ते สวัสดี 日本語 テキスト 中文字符 한국어 Việt Nam ﬁne ½ "
        "x² fn main() {} == != -> // /* */ <div> </div> https://example.org/a?b=c&d user@example.org snake_case camelCase "
        "\\n \\t \"quoted\" 'single' (a) [b] {c} ... !!! ??? — – … « » “ ” ’ ‘ ▁ ▁▁ Ġ Ċ ## ##ing un- re- Ⅷ ① ㍿ ﷺ"
    ).split(" "),
    "emoji": ["😀", "👍🏽", "👩‍👩‍👧‍👦", "🇫🇷", "🏴󠁧󠁢󠁥󠁮󠁧󠁿", "☀️", "❤️‍🔥", "1️⃣", "🧑🏿‍🚀", "🫠"],
    # Of all kinds of tokenizers, so that each meets its own and foreign ones; also in pieces.
    "special": [
        "<s>", "</s>", "<unk>", "<pad>", "<|endoftext|>", "<|begin_of_text|>", "<|eot_id|>", "<|im_start|>", "<|im_end|>",
        "<tool_call>", "</tool_call>", "<bos>", "<eos>", "<start_of_turn>", "[CLS]", "[SEP]", "[MASK]", "[UNK]", "<mask>",
        "<|im_", "</", "<0x0A>", "<0xFF>", "[INST]",
    ],
    "spaces": [" ", "  ", "   ", "    ", "\t", "\n", "\n\n", "\r\n", "\u00a0", "\u3000", "\u2003", "\u200b", "\ufeff", "\u2028", "\u0085", "\u000b", "\u000c"],
    # First and last code points: ASCII, Latin, combining marks, Greek and Cyrillic, Hebrew and Arabic, Devanagari, Thai,
    # punctuation, kana, Han, Hangul, compatibility forms, controls, mathematical letters, emoji, everything but surrogates.
    "ranges": [
        [0x20, 0x7E], [0xA0, 0x24F], [0x300, 0x36F], [0x370, 0x52F], [0x5D0, 0x6D3], [0x900, 0x97F], [0xE01, 0xE5B],
        [0x2010, 0x206F], [0x3041, 0x30FF], [0x4E00, 0x9FFF], [0xAC00, 0xD7A3], [0xFB00, 0xFDFF], [0x00, 0x1F],
        [0x1D400, 0x1D7FF], [0x1F300, 0x1F64F], [0xE000, 0x10FFFF], [0x0, 0xD7FF],
    ],
}


class SplitMix:
    """https://prng.di.unimi.it/splitmix64.c"""

    def __init__(self, seed):
        self.state = seed & MASK

    def next(self):
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        mixed = self.state
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & MASK
        return mixed ^ (mixed >> 31)

    def below(self, count):
        return self.next() % count


def text(index):
    random = SplitMix(index)
    made = []
    for _ in range(random.below(PIECES_MOST)):
        kind = random.below(10)
        if kind < 4:
            words = PIECES["words"]
            made.append(words[random.below(len(words))])
            if random.below(3) > 0:
                made.append(" ")
        elif kind == 4:
            made.append(PIECES["emoji"][random.below(len(PIECES["emoji"]))])
        elif kind == 5:
            made.append(PIECES["special"][random.below(len(PIECES["special"]))])
        elif kind == 6:
            space = PIECES["spaces"][random.below(len(PIECES["spaces"]))]
            # One in eight runs is long.
            count = 1 + random.below(40) if random.below(8) == 0 else 1
            made.append(space * count)
        else:
            first, last = PIECES["ranges"][random.below(len(PIECES["ranges"]))]
            for _ in range(1 + random.below(6)):
                made.append(chr(first + random.below(last - first + 1)))
    return "".join(made)


def fnv(data):
    """FNV-1a of 64 bits."""
    value = 0xCBF29CE484222325
    for byte in data:
        value = ((value ^ byte) * 0x100000001B3) & MASK
    return f"{value:016x}"


def corpus():
    """What the tokenizers learn from: texts beyond those that are compared."""
    for index in range(1_000_000, 1_003_000):
        yield text(index)
    for word in PIECES["words"]:
        for _ in range(20):
            yield f"{word} {word}"


def words_corpus():
    """Texts of few different letters: Unigram takes every letter that it sees into its vocabulary."""
    words = PIECES["words"]
    for index in range(3_000):
        random = SplitMix(2_000_000 + index)
        yield " ".join(words[random.below(len(words))] for _ in range(1 + random.below(8)))


GPT4_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN_SPLIT = GPT4_SPLIT.replace(r"\p{N}{1,3}", r"\p{N}")
BYTES = pre_tokenizers.ByteLevel.alphabet()


def special(*names):
    return [AddedToken(name, special=True, normalized=False) for name in names]


def byte_level(tokenizer, specials):
    trainer = trainers.BpeTrainer(vocab_size=700, initial_alphabet=sorted(BYTES), show_progress=False)
    tokenizer.train_from_iterator(corpus(), trainer)
    tokenizer.add_special_tokens(special(*specials))
    return tokenizer


def starts_with(tokenizer, *names):
    pieces = [(name, tokenizer.token_to_id(name)) for name in names]
    first = " ".join(f"{name}:0" for name in names)
    tokenizer.post_processor = processors.TemplateProcessing(single=f"{first} $A:0", pair=f"{first} $A:0 {first} $B:1", special_tokens=pieces)


def gpt2():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return byte_level(tokenizer, ["<|endoftext|>"])


def llama3():
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    split = pre_tokenizers.Split(Regex(GPT4_SPLIT), "isolated")
    byte = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, byte])
    tokenizer.decoder = decoders.ByteLevel()
    byte_level(tokenizer, ["<|begin_of_text|>", "<|eot_id|>"])
    starts_with(tokenizer, "<|begin_of_text|>")
    return tokenizer


def qwen2():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    split = pre_tokenizers.Split(Regex(QWEN_SPLIT), "isolated")
    byte = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, byte])
    tokenizer.decoder = decoders.ByteLevel()
    byte_level(tokenizer, ["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    tokenizer.add_tokens([AddedToken(name, special=False, normalized=False) for name in ("<tool_call>", "</tool_call>")])
    return tokenizer


BYTE_TOKENS = [f"<0x{byte:02X}>" for byte in range(256)]


def byte_fallback(normalizer, specials, size):
    """A sentencepiece-like BPE: learned over words that begin with the sign for a space, with a token for each byte."""
    learner = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    learner.normalizer = normalizer
    learner.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    # Rare letters are left to the bytes.
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=[*specials, *BYTE_TOKENS], limit_alphabet=180, show_progress=False
    )
    learner.train_from_iterator(corpus(), trainer)
    model = json.loads(learner.to_str())["model"]
    merges = [tuple(merge) if isinstance(merge, list) else tuple(merge.split(" ")) for merge in model["merges"]]
    made = Tokenizer(models.BPE(vocab=model["vocab"], merges=merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    made.normalizer = normalizer
    made.add_special_tokens(special(*specials))
    return made


def llama2():
    normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer = byte_fallback(normalizer, ["<unk>", "<s>", "</s>"], 800)
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    starts_with(tokenizer, "<s>")
    return tokenizer


def mistral():
    tokenizer = byte_fallback(None, ["<unk>", "<s>", "</s>"], 800)
    tokenizer.normalizer = None
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="first", split=False)
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    starts_with(tokenizer, "<s>")
    return tokenizer


def gemma():
    tokenizer = byte_fallback(normalizers.Replace(" ", "▁"), ["<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>"], 800)
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    starts_with(tokenizer, "<bos>")
    return tokenizer


def unigram(specials, ends):
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="always")
    trainer = trainers.UnigramTrainer(vocab_size=700, unk_token="<unk>", special_tokens=specials, show_progress=False)
    tokenizer.train_from_iterator(words_corpus(), trainer)
    ids = [(name, tokenizer.token_to_id(name)) for name in specials]
    tokenizer.post_processor = processors.TemplateProcessing(single=ends, special_tokens=ids)
    return tokenizer


def xlm_roberta():
    return unigram(["<s>", "<pad>", "</s>", "<unk>", "<mask>"], "<s> $A </s>")


def t5():
    return unigram(["<pad>", "</s>", "<unk>"], "$A </s>")


def bert():
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(vocab_size=900, special_tokens=specials, limit_alphabet=250, show_progress=False)
    tokenizer.train_from_iterator(corpus(), trainer)
    ids = [(name, tokenizer.token_to_id(name)) for name in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=ids
    )
    return tokenizer


KINDS = {
    "gpt2": gpt2, "llama3": llama3, "qwen2": qwen2, "llama2": llama2, "mistral": mistral, "gemma": gemma,
    "xlm-roberta": xlm_roberta, "t5": t5, "bert": bert,
}


# Training these gives another tokenizer each time (ties are broken by chance): one that is kept is used again.
TRAINED_ONCE = {"xlm-roberta", "t5", "bert"}


def expected(file):
    """What `transformers` makes of all texts with a tokenizer."""
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(file), clean_up_tokenization_spaces=False)
    examples, groups, ids_bytes, shown, whole = [], [], b"", b"", b""
    for index in range(TEXTS):
        source = text(index)
        ids = tokenizer(source, add_special_tokens=True)["input_ids"]
        plain = tokenizer.decode(ids, skip_special_tokens=True)
        full = tokenizer.decode(ids, skip_special_tokens=False)
        if index < EXAMPLES:
            examples.append({"text": source, "ids": ids, "shown": plain, "whole": full})
        ids_bytes += b"".join(token.to_bytes(4, "little") for token in ids) + b"\xff\xff\xff\xff"
        shown += plain.encode() + b"\xff"
        whole += full.encode() + b"\xff"
        if (index + 1) % GROUP == 0:
            groups.append([fnv(ids_bytes), fnv(shown), fnv(whole)])
            ids_bytes, shown, whole = b"", b"", b""
    random = SplitMix(77)
    size = len(tokenizer)
    decoded = b""
    for _ in range(IDS_DECODED):
        ids = [random.below(size) for _ in range(1 + random.below(30))]
        decoded += tokenizer.decode(ids, skip_special_tokens=True).encode() + b"\xff"
    return {"vocabulary": size, "random_ids": fnv(decoded), "groups": groups, "examples": examples}


def make(folder, kept):
    """Writes all tokenizers and what is expected of them; `kept` is the folder of those that stand."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pieces.json").write_text(json.dumps(PIECES, ensure_ascii=True) + "\n")
    hashes = [fnv(b"\0".join(text(start + i).encode() for i in range(GROUP))) for start in range(0, TEXTS, GROUP)]
    (folder / "texts.json").write_text(json.dumps(hashes) + "\n")
    for name, build in KINDS.items():
        file = folder / f"{name}.tokenizer.json"
        stands = kept / file.name
        if name in TRAINED_ONCE and stands.exists():
            text_of = stands.read_text()
        else:
            text_of = json.dumps(json.loads(build().to_str()), ensure_ascii=False) + "\n"
        file.write_text(text_of)
        found = expected(file)
        (folder / f"{name}.expected.json").write_text(json.dumps(found, ensure_ascii=True) + "\n")
        print(f"{name:12} {found['vocabulary']} tokens", flush=True)
