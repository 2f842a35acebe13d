"""Makes tiny encoders, cross-encoders, and decoders that embed or rank (`reading_decoders.py`), with random weights, and what `transformers` and `sentence-transformers` compute
with them, or checks (`--check`) that those kept are what it makes. See docs/guides/embeddings.md.

    python3 -m venv VENV && VENV/bin/pip install -r requirements.txt sentence-transformers==6.2.0
    VENV/bin/python encoders.py [--check] [NAME...]

Hidden states come from `transformers`; pooling, dense layers, normalisation and prompts from `sentence-transformers`, which
reads the same files as the engine. `expected.json` has, for each text, its tokens and its vector, or for each pair its logit
and score. Every text is computed alone, so that no padding can play a part.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import numpy
import torch
import transformers
from safetensors.torch import load_file, save_file
from sentence_transformers import CrossEncoder, SentenceTransformer
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification

import reading_decoders

KEPT = Path(__file__).resolve().parent.parent / "tests" / "vectors" / "encoders"
STORED = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
LONGEST = 64

CORPUS = [
    "The pool keeps many models on a few devices and loads the one that is asked for next.",
    "A request waits until its model is ready; the shortest queue is not always the fastest.",
    "Weights are read in the order of the file, and memory is given back when nobody asks any more.",
    "Der Speicher ist knapp, die Anfragen sind es nicht. Größe und Maß zählen überall.",
    "Où est la bibliothèque ? Elle est près de la mairie, à côté du café où l'été ne finit jamais.",
    "Быстрая лиса прыгает через ленивую собаку и бежит дальше по дороге домой.",
    "東京は日本の首都です。人口は約千四百万人です。",
    "What is the capital of Japan? Tokyo is the capital of Japan and its largest city.",
    "fn main() { let x: Vec<u32> = (0..10).map(|n| n * n).collect(); println!(\"{x:?}\"); }",
    "In 2024, 3.14159 was still about pi, and 1,000,000 was still a million.",
]
TEXTS = [
    "What is keep-hot?",
    "A time at which a model stays in memory.",
    "Größe und Maß: 12,5 µm — \"zählen\"!",
    "Où est la bibliothèque, près du café ?",
    "Быстрая лиса прыгает.",
    "東京は日本の首都です。",
    "👩‍👩‍👧 emoji 🙂 and ｆｕｌｌｗｉｄｔｈ",
    "e\u0301 is not \u00e9, or is it?",
    " ",
    ".",
    "\tTabs\nand  two   spaces ",
    "models on a few devices and the one that is asked for next, models on a few devices and then some more, in the order of the file",
    "UPPER lower MiXeD",
]
PAIRS = [
    ("What is the capital of Japan?", "Tokyo is the capital of Japan."),
    ("What is the capital of Japan?", "The pool keeps many models on a few devices."),
    ("What is the capital of Japan?", "東京は日本の首都です。"),
    ("Größe?", "Der Speicher ist knapp, die Anfragen sind es nicht. Größe und Maß zählen überall."),
    ("лиса", "Быстрая лиса прыгает через собаку."),
    ("a", "b"),
    (" ", "."),
    ("emoji 🙂", "👩‍👩‍👧"),
]


def wordpiece():
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=100))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(vocab_size=300, special_tokens=special, limit_alphabet=200)
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    words = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]"}
    return tokenizer, words, 0


def unigram():
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(" {2,}", " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(vocab_size=300, special_tokens=special, unk_token="<unk>")
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    words = {"bos_token": "<s>", "eos_token": "</s>", "sep_token": "</s>", "cls_token": "<s>", "unk_token": "<unk>", "pad_token": "<pad>"}
    return tokenizer, words, 1


def byte_pairs(roberta):
    first, last = ("<s>", "</s>") if roberta else ("[CLS]", "[SEP]")
    padding = "<pad>" if roberta else "[PAD]"
    special = [first, padding, last, "<unk>" if roberta else "[UNK]"]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=340, special_tokens=special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.decoder = decoders.ByteLevel()
    if roberta:
        tokenizer.post_processor = processors.RobertaProcessing((last, 2), (first, 0), add_prefix_space=False)
    else:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]", special_tokens=[(first, 0), (last, 2)]
        )
    words = {"cls_token": first, "sep_token": last, "pad_token": padding, "unk_token": special[3]}
    return tokenizer, words, 1


BASE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
DISTIL = {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48}
CLS = {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}
MEAN = {"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}
# Each tests something of its own. `pooling: None` is a folder without modules.json.
MODELS = {
    "bert-mean": {"type": "bert", "tokenizer": wordpiece, "config": {**BASE, "type_vocab_size": 2}, "pooling": MEAN, "normalise": True, "stored": "F32"},
    "bert-older-names": {"type": "bert", "tokenizer": wordpiece, "config": {**BASE, "hidden_act": "gelu_new"}, "pooling": None, "older": True, "stored": "F16"},
    "bert-all-pools": {
        "type": "bert", "tokenizer": wordpiece, "config": BASE, "stored": "BF16", "normalise": False, "lower": True,
        "pooling": {**CLS, "pooling_mode_max_tokens": True, "pooling_mode_mean_tokens": True, "pooling_mode_mean_sqrt_len_tokens": True, "pooling_mode_weightedmean_tokens": True, "pooling_mode_lasttoken": True},
    },
    "bert-dense": {"type": "bert", "tokenizer": wordpiece, "config": {**BASE, "hidden_act": "relu"}, "pooling": MEAN, "dense": 24, "normalise": True, "stored": "F16"},
    "bert-prompts": {
        "type": "bert", "tokenizer": wordpiece, "config": BASE, "pooling": {**MEAN, "include_prompt": False}, "normalise": True, "stored": "F16",
        "prompts": {"query": "What is ", "document": "The one: "}, "default_prompt": "document",
    },
    "xlm-roberta": {"type": "xlm-roberta", "tokenizer": unigram, "config": BASE, "pooling": CLS, "normalise": True, "stored": "F16"},
    "roberta-last-token": {"type": "roberta", "tokenizer": lambda: byte_pairs(True), "config": BASE, "pooling": {**MEAN, "pooling_mode_mean_tokens": False, "pooling_mode_lasttoken": True}, "normalise": False, "stored": "F16"},
    "distilbert": {"type": "distilbert", "tokenizer": wordpiece, "config": DISTIL, "pooling": MEAN, "normalise": False, "stored": "F16"},
    "mpnet": {"type": "mpnet", "tokenizer": unigram, "config": BASE, "pooling": MEAN, "normalise": True, "stored": "F16"},
    "modernbert": {"type": "modernbert", "tokenizer": lambda: byte_pairs(False), "config": {**BASE, "num_hidden_layers": 4, "local_attention": 8}, "pooling": CLS, "normalise": True, "stored": "F16"},
    "nomic-bert": {"type": "nomic_bert", "tokenizer": wordpiece, "config": BASE, "pooling": MEAN, "normalise": True, "stored": "F16"},
    "gte": {"type": "gte", "tokenizer": unigram, "config": {**BASE, "type_vocab_size": 1}, "pooling": CLS, "normalise": True, "stored": "F16"},
    "bert-ranker": {"type": "bert", "tokenizer": wordpiece, "config": BASE, "ranks": "Identity", "stored": "F16"},
    "xlm-roberta-ranker": {"type": "xlm-roberta", "tokenizer": unigram, "config": BASE, "ranks": "Sigmoid", "stored": "F16"},
    "distilbert-ranker": {"type": "distilbert", "tokenizer": wordpiece, "config": DISTIL, "ranks": None, "stored": "F16"},
    "mpnet-ranker": {"type": "mpnet", "tokenizer": unigram, "config": BASE, "ranks": None, "stored": "F16"},
    "modernbert-ranker": {"type": "modernbert", "tokenizer": lambda: byte_pairs(False), "config": {**BASE, "local_attention": 8, "classifier_pooling": "mean"}, "ranks": None, "stored": "F16"},
    "gte-ranker": {"type": "gte", "tokenizer": unigram, "config": BASE, "ranks": None, "stored": "F16"},
}


def weight(name, shape, random):
    """Random numbers, large enough that texts differ clearly and every tensor plays a part."""
    numbers = random.standard_normal(shape)
    if name.endswith("bias") or name.endswith("beta"):
        return 0.2 * numbers
    if len(shape) == 1:
        return 1.0 + 0.2 * numbers
    if "embeddings" in name:
        return 0.7 * numbers
    return 1.5 * numbers * shape[-1] ** -0.5


def write_tokenizer(folder, model):
    tokenizer, words, padding = model["tokenizer"]()
    # Trainers choose among equals by chance: a tokenizer that is kept stays.
    kept = KEPT / folder.name / "tokenizer.json"
    if kept.exists():
        tokenizer = Tokenizer.from_file(str(kept))
        shutil.copy(kept, folder / "tokenizer.json")
    else:
        tokenizer.save(str(folder / "tokenizer.json"))
    settings = {**words, "tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": LONGEST, "model_input_names": ["input_ids", "attention_mask"]}
    if model["type"] in ("bert", "gte", "nomic_bert"):
        settings["model_input_names"].insert(1, "token_type_ids")
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return tokenizer.get_vocab_size(), padding


def write_model(folder, model, seed):
    vocabulary, padding = write_tokenizer(folder, model)
    rows = LONGEST + (padding + 1 if model["type"] in ("xlm-roberta", "roberta", "mpnet") else 0)
    fields = {**model["config"], "vocab_size": vocabulary, "pad_token_id": padding, "max_position_embeddings": rows}
    if model["type"] == "modernbert":
        fields |= {"bos_token_id": 0, "cls_token_id": 0, "eos_token_id": 2, "sep_token_id": 2}
    config = AutoConfig.for_model(model["type"], **fields)
    if "ranks" in model:
        config.num_labels = 1
        made = AutoModelForSequenceClassification.from_config(config)
    else:
        made = AutoModel.from_config(config)
    # What save_pretrained writes is named as files on the hub are.
    made.save_pretrained(folder)
    named = load_file(folder / "model.safetensors")
    random = numpy.random.default_rng(seed)
    tensors = {}
    for name in sorted(named):
        numbers = weight(name, named[name].shape, random).astype(numpy.float32)
        tensors[name] = torch.from_numpy(numbers).to(STORED[model["stored"]]).contiguous()
    json_file = folder / "config.json"
    written = json.loads(json_file.read_text())
    written.pop("transformers_version", None)
    written["dtype"] = "float32"
    if model.get("ranks"):
        written["sentence_transformers"] = {"activation_fn": f"torch.nn.modules.linear.{model['ranks']}" if model["ranks"] == "Identity" else "torch.nn.modules.activation.Sigmoid"}
    if model.get("older"):
        # As checkpoints are that were converted from TensorFlow, with a head that is not used.
        rename = lambda name: "bert." + name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
        tensors = {rename(name): tensor for name, tensor in tensors.items()}
        tensors["cls.predictions.bias"] = torch.zeros(vocabulary)
        written["architectures"] = ["BertForMaskedLM"]
    json_file.write_text(json.dumps(written, indent=1, sort_keys=True) + "\n")
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def write_modules(folder, model, seed):
    if model.get("pooling") is None:
        return
    kind = "sentence_transformers.models."
    modules = [("", "Transformer"), ("1_Pooling", "Pooling")]
    width = 32
    pooling = folder / "1_Pooling"
    pooling.mkdir()
    fields = {"word_embedding_dimension": width, **model["pooling"]}
    (pooling / "config.json").write_text(json.dumps(fields, indent=1))
    if "dense" in model:
        modules.append(("2_Dense", "Dense"))
        dense = folder / "2_Dense"
        dense.mkdir()
        fields = {"in_features": width, "out_features": model["dense"], "bias": True, "activation_function": "torch.nn.modules.activation.Tanh"}
        (dense / "config.json").write_text(json.dumps(fields, indent=1))
        random = numpy.random.default_rng(seed + 1000)
        shapes = {"linear.weight": (model["dense"], width), "linear.bias": (model["dense"],)}
        tensors = {name: torch.from_numpy(weight(name, shape, random).astype(numpy.float32)) for name, shape in shapes.items()}
        save_file(tensors, dense / "model.safetensors")
    if model["normalise"]:
        path = f"{len(modules)}_Normalize"
        modules.append((path, "Normalize"))
    rows = [{"idx": index, "name": str(index), "path": path, "type": kind + name} for index, (path, name) in enumerate(modules)]
    (folder / "modules.json").write_text(json.dumps(rows, indent=1))
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": LONGEST, "do_lower_case": model.get("lower", False)}))
    if "prompts" in model:
        fields = {"prompts": model["prompts"], "default_prompt_name": model.get("default_prompt")}
        (folder / "config_sentence_transformers.json").write_text(json.dumps(fields, indent=1))


def older_names_undone(folder):
    """transformers reads the older names itself, from a folder whose model is asked for by its bare architecture."""
    return transformers.BertModel.from_pretrained(folder, torch_dtype=torch.float32, add_pooling_layer=False)


def expect_vectors(folder, model):
    if model.get("pooling") is None:
        network = older_names_undone(folder).eval()
        tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(folder)
        answers = []
        for text in TEXTS:
            ids = tokenizer(text, return_tensors="pt", truncation=True, max_length=LONGEST)
            ids.pop("token_type_ids", None)
            with torch.no_grad():
                hidden = network(**ids).last_hidden_state[0]
            vector = hidden.mean(0)
            answers.append({"text": text, "tokens": ids["input_ids"][0].tolist(), "vector": torch.nn.functional.normalize(vector, dim=0).tolist()})
        return {"vectors": answers}
    network = SentenceTransformer(str(folder), device="cpu", model_kwargs={"torch_dtype": torch.float32}).eval()

    def answer(text, **prompt):
        # Sentence Transformers strips texts before the tokenizer sees them; neither `transformers` nor this engine does.
        with torch.no_grad():
            vector = network.encode([text], convert_to_numpy=True, **prompt)[0]
        return [float(number) for number in vector]

    tokenizer = network.tokenizer
    before = model.get("prompts", {}).get(model.get("default_prompt"), "")
    lower = str.lower if model.get("lower") else str
    answers = []
    for text in TEXTS:
        tokens = tokenizer(lower(before + text), truncation=True, max_length=LONGEST)["input_ids"]
        answers.append({"text": text, "tokens": tokens, "vector": answer(text)})
    prompted = [
        {"prompt": name, "text": TEXTS[0], "vector": answer(TEXTS[0], prompt_name=name)} for name in model.get("prompts", {})
    ]
    return {"vectors": answers, **({"prompted": prompted} if prompted else {})}


def expect_scores(folder, model):
    network = CrossEncoder(str(folder), device="cpu", model_kwargs={"torch_dtype": torch.float32})
    answers = []
    for query, document in PAIRS:
        tokens = network.tokenizer(query, document, truncation=True, max_length=LONGEST)["input_ids"]
        score = float(network.predict([(query, document)])[0])
        logit = float(network.predict([(query, document)], activation_fn=torch.nn.Identity())[0])
        answers.append({"query": query, "document": document, "tokens": tokens, "logit": logit, "score": score})
    return {"scores": answers}


def make(name, model, folder):
    seed = [*MODELS, *reading_decoders.MODELS].index(name) + 1
    torch.manual_seed(seed)
    folder.mkdir(parents=True)
    if name in MODELS:
        write_model(folder, model, seed)
        write_modules(folder, model, seed)
        expected = expect_scores(folder, model) if "ranks" in model else expect_vectors(folder, model)
    else:
        expected = reading_decoders.make(model, folder, seed, sys.modules[__name__])
    with (folder / "expected.json").open("w") as file:
        rounded = json.loads(json.dumps(expected), parse_float=lambda text: float(f"{float(text):.9g}"))
        json.dump(rounded, file, ensure_ascii=False, indent=None, separators=(",", ":"))
        file.write("\n")
    for file in ("generation_config.json", "README.md"):
        (folder / file).unlink(missing_ok=True)


def numbers_of(value):
    if isinstance(value, dict):
        return [number for key in sorted(value) for number in numbers_of(value[key])]
    if isinstance(value, list):
        return [number for item in value for number in numbers_of(item)]
    return [value] if isinstance(value, (int, float)) else []


def differences(kept, made):
    files = {file.relative_to(made) for file in made.rglob("*") if file.is_file()}
    wrong = [f"{kept / file}: is not kept" for file in sorted(files) if not (kept / file).is_file()]
    for file in sorted(files):
        if not (kept / file).is_file():
            continue
        if file.name == "expected.json":
            ours, theirs = (numbers_of(json.loads((root / file).read_text())) for root in (kept, made))
            if len(ours) != len(theirs) or any(abs(a - b) > 1e-5 * (1 + abs(b)) for a, b in zip(ours, theirs)):
                wrong.append(f"{kept / file}: other numbers come out")
        elif (kept / file).read_bytes() != (made / file).read_bytes():
            wrong.append(f"{kept / file}: differs")
    return wrong


def share_tokenizer(file):
    """Replaces a tokenizer by a link to an equal one of another model."""
    for other in sorted(KEPT.glob("*/tokenizer.json")):
        if other != file and not other.is_symlink() and other.read_bytes() == file.read_bytes():
            file.unlink()
            file.symlink_to(Path("..") / other.parent.name / other.name)
            return


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare with what is kept, write nothing")
    parser.add_argument("names", nargs="*", help="only these")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    wrong = []
    for name, model in {**MODELS, **reading_decoders.MODELS}.items():
        if asked.names and name not in asked.names:
            continue
        with tempfile.TemporaryDirectory() as scratch:
            made = Path(scratch) / name
            make(name, model, made)
            kept = sum(file.stat().st_size for file in made.rglob("*") if file.is_file())
            print(f"{name:20} {kept // 1024} KiB", flush=True)
            if asked.check:
                wrong += differences(KEPT / name, made)
            else:
                # To train another tokenizer, remove the kept one before.
                shutil.rmtree(KEPT / name, ignore_errors=True)
                shutil.copytree(made, KEPT / name)
                share_tokenizer(KEPT / name / "tokenizer.json")
    for line in wrong:
        print(line, file=sys.stderr)
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
