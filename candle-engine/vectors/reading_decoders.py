"""Makes tiny decoders that embed or rank, with random weights, and what `transformers` and `sentence-transformers` compute
with them. `encoders.py` runs it with its own models and keeps what it makes.

Folders are as those on the hub: Qwen3-Embedding as its authors saved it, Qwen3-Reranker in its three forms (a decoder for texts
whose answer is read, one with a row that scores, and one that Sentence Transformers saved with a chat template), and a decoder
of another family for each.
"""

import json

import numpy
import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import CrossEncoder, SentenceTransformer
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer

LONGEST = 512
# As the model card of Qwen3-Reranker has it.
BEFORE = '<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n'
AFTER = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
INSTRUCTION = "Given a web search query, retrieve relevant passages that answer the query"
OTHER_INSTRUCTION = "Find the passage about the capital of a country"
SPLIT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
CHATS = (
    "{%- for message in messages %}{%- if message.role in ['system', 'user', 'assistant'] %}"
    "{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}{%- endif %}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)
PAIRS_OF_ROLES = (
    "<|im_start|>system\nAnswer yes or no.<|im_end|>\n<|im_start|>user\n"
    "<Instruct>: {{ messages | selectattr('role', 'eq', 'system') | map(attribute='content') | first | default('Rank') }}\n"
    "<Query>: {{ messages | selectattr('role', 'eq', 'query') | map(attribute='content') | first }}\n"
    "<Document>: {{ messages | selectattr('role', 'eq', 'document') | map(attribute='content') | first }}<|im_end|>\n"
    "<|im_start|>assistant\n<think>\n\n</think>\n\n"
)

BASE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 48}
QWEN = {**BASE, "head_dim": 16, "tie_word_embeddings": True, "rope_theta": 10000.0}
LAST = {"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": False, "pooling_mode_lasttoken": True, "include_prompt": True}
MEAN = {"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True, "include_prompt": False}
QUERY = f"Instruct: {INSTRUCTION}\nQuery:"
MODELS = {
    "qwen3-embedding": {
        "type": "qwen3", "config": QWEN, "chats": CHATS, "ends": True, "pooling": LAST, "normalise": True,
        "prompts": {"query": QUERY, "document": ""},
    },
    "llama-embedding": {
        "type": "llama", "config": {**BASE, "tie_word_embeddings": False}, "ends": True, "pooling": MEAN, "dense": 24, "normalise": False,
        "prompts": {"query": "What is "},
    },
    "qwen3-reranker": {"type": "qwen3", "config": QWEN, "chats": CHATS, "ranks": "card"},
    "qwen3-reranker-converted": {"type": "qwen3", "config": QWEN, "chats": CHATS, "ranks": "row"},
    "qwen3-reranker-template": {"type": "qwen3", "config": QWEN, "chats": PAIRS_OF_ROLES, "ranks": "template"},
    "llama-ranker": {"type": "llama", "config": {**BASE, "tie_word_embeddings": False}, "ends": True, "ranks": "pair"},
}


def byte_pairs(corpus, ends):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    # The words of the prompt often enough that it is not much longer than with the tokenizer that it was written for.
    prompts = [BEFORE, AFTER, "<Instruct>: ", INSTRUCTION, "\n<Query>: ", "\n<Document>: ", "yes", "no"] * 20
    trainer = trainers.BpeTrainer(
        vocab_size=480, special_tokens=SPECIAL, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False
    )
    tokenizer.train_from_iterator(corpus + prompts, trainer)
    tokenizer.add_tokens([AddedToken(word, normalized=False) for word in ("<think>", "</think>")])
    tokenizer.decoder = decoders.ByteLevel()
    if ends:
        end = SPECIAL[0]
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"$A {end}", pair=f"$A {end} $B:1 {end}:1", special_tokens=[(end, 0)]
        )
    return tokenizer


def write_tokenizer(folder, model, kept, corpus):
    kept = kept / folder.name / "tokenizer.json"
    # Trainers choose among equals by chance: a tokenizer that is kept stays.
    tokenizer = Tokenizer.from_file(str(kept)) if kept.exists() else byte_pairs(corpus, model.get("ends", False))
    if kept.exists():
        (folder / "tokenizer.json").write_bytes(kept.read_bytes())
    else:
        tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "padding_side": "left",
        "model_max_length": LONGEST, "model_input_names": ["input_ids", "attention_mask"],
    }
    if model.get("chats"):
        settings["chat_template"] = model["chats"]
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=1))
    return tokenizer.get_vocab_size(with_added_tokens=True)


def write_model(folder, model, seed, vocabulary, weight):
    fields = {"vocab_size": vocabulary, "max_position_embeddings": LONGEST, "pad_token_id": 0, "eos_token_id": 2, "bos_token_id": None}
    config = AutoConfig.for_model(model["type"], **model["config"], **fields)
    kind = {None: AutoModel, "card": AutoModelForCausalLM, "template": AutoModelForCausalLM}.get(
        model.get("ranks"), AutoModelForSequenceClassification
    )
    if kind is AutoModelForSequenceClassification:
        config.num_labels = 1
    kind.from_config(config).save_pretrained(folder)
    named = load_file(folder / "model.safetensors")
    random = numpy.random.default_rng(seed)
    tensors = {}
    for name in sorted(named):
        numbers = weight(name.replace("embed_tokens", "embeddings"), named[name].shape, random)
        tensors[name] = torch.from_numpy(numbers.astype(numpy.float32)).to(torch.bfloat16).contiguous()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    file = folder / "config.json"
    written = json.loads(file.read_text())
    written.pop("transformers_version", None)
    written["dtype"] = "float32"
    file.write_text(json.dumps(written, indent=1, sort_keys=True) + "\n")
    (folder / "generation_config.json").unlink(missing_ok=True)


def expect_vectors(folder, model, texts):
    network = SentenceTransformer(str(folder), device="cpu", model_kwargs={"dtype": torch.float32}).eval()
    plain = AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    answers = []
    for text in texts:
        tokens = network.tokenizer(text, truncation=True, max_length=LONGEST)["input_ids"]
        with torch.no_grad():
            vector = network.encode([text], convert_to_numpy=True)[0]
            last = plain(input_ids=torch.tensor([tokens])).last_hidden_state[0, -1]
        if model["pooling"] is LAST:
            # Whatever sentence-transformers does with texts, it must have computed these tokens.
            last = torch.nn.functional.normalize(last, dim=0).numpy()
            assert abs(last - vector).max() < 1e-5, (folder, text)
        answers.append({"text": text, "tokens": tokens, "vector": [float(number) for number in vector]})
    prompted = []
    for name in model["prompts"]:
        vector = network.encode([texts[0]], prompt_name=name, convert_to_numpy=True)[0]
        prompted.append({"prompt": name, "text": texts[0], "vector": [float(number) for number in vector]})
    return {"vectors": answers, "prompted": prompted}


def ask(network, tokenizer, kind, tokens):
    with torch.no_grad():
        logits = network(input_ids=torch.tensor([tokens])).logits[0]
    if kind == "row":
        return float(logits[0])
    yes, no = (logits[-1, tokenizer.convert_tokens_to_ids(word)] for word in ("yes", "no"))
    return float(yes - no)


def expect_scores(folder, model, pairs):
    """By `transformers` alone, as the model card shows it: the prompt's ends are tokens of their own."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    kind = model["ranks"]
    network = AutoModelForSequenceClassification if kind == "row" else AutoModelForCausalLM
    network = network.from_pretrained(folder, dtype=torch.float32).eval()
    split = lambda text: tokenizer(text, add_special_tokens=False)["input_ids"]
    answers = []
    asked = [(*pair, None) for pair in pairs] + [(*pairs[0], OTHER_INSTRUCTION)]
    for query, document, instruction in asked:
        text = f"<Instruct>: {instruction or INSTRUCTION}\n<Query>: {query}\n<Document>: {document}"
        tokens = split(BEFORE) + split(text) + split(AFTER)
        logit = ask(network, tokenizer, kind, tokens)
        score = float(torch.sigmoid(torch.tensor(logit, dtype=torch.float64)))
        answer = {"query": query, "document": document, "tokens": tokens, "logit": logit, "score": score}
        answers.append({**answer, **({"instruction": instruction} if instruction else {})})
    return {"scores": answers, **({"task": "rerank"} if kind == "card" else {})}


def expect_scores_of_cross_encoder(folder, model, pairs):
    """By `sentence-transformers`, from the folder that it wrote itself."""
    own = {"prompts": {"web": INSTRUCTION}, "default_prompt_name": "web"} if model["ranks"] == "template" else {}
    network = CrossEncoder(str(folder), device="cpu", model_kwargs={"dtype": torch.float32}, **own)
    if own:
        network.activation_fn = torch.nn.Identity()
        network.save_pretrained(str(folder), create_model_card=False)
        file = folder / "config_sentence_transformers.json"
        written = json.loads(file.read_text())
        written.pop("__version__", None)
        file.write_text(json.dumps(written, indent=1))
        network = CrossEncoder(str(folder), device="cpu", model_kwargs={"dtype": torch.float32})
    answers = []
    asked = [(*pair, None) for pair in pairs] + ([(*pairs[0], OTHER_INSTRUCTION)] if own else [])
    for query, document, instruction in asked:
        said = {"prompt": instruction} if instruction else {}
        tokens = network.preprocess([(query, document)], **({"prompt": instruction or INSTRUCTION} if own else {}))["input_ids"][0].tolist()
        score = float(network.predict([(query, document)], **said)[0])
        logit = float(network.predict([(query, document)], activation_fn=torch.nn.Identity(), **said)[0])
        answer = {"query": query, "document": document, "tokens": tokens, "logit": logit, "score": score}
        answers.append({**answer, **({"instruction": instruction} if instruction else {})})
    return {"scores": answers}


def make(model, folder, seed, around):
    """`around`: encoders.py, whose texts, weights and modules these have too."""
    vocabulary = write_tokenizer(folder, model, around.KEPT, around.CORPUS)
    write_model(folder, model, seed, vocabulary, around.weight)
    if "ranks" not in model:
        around.write_modules(folder, model, seed)
        (folder / "sentence_bert_config.json").unlink()
        prompts = {"prompts": model["prompts"], "default_prompt_name": None, "similarity_fn_name": "cosine"}
        (folder / "config_sentence_transformers.json").write_text(json.dumps(prompts, indent=1))
        expected = expect_vectors(folder, model, around.TEXTS)
    elif model["ranks"] in ("card", "row"):
        expected = expect_scores(folder, model, around.PAIRS)
    else:
        expected = expect_scores_of_cross_encoder(folder, model, around.PAIRS)
    return {"longest": LONGEST, **expected}
