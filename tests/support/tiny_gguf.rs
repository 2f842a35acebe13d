//! A language model as a GGUF file that llama.cpp can load and run: Llama's architecture, two layers, random weights from a seed,
//! and a vocabulary of single letters. Its output is meaningless but reproducible: the file recommends temperature 0, without which
//! one response in a hundred would be empty.

use std::path::Path;

const EMBEDDING: u64 = 64;
const FEED_FORWARD: u64 = 128;
const LAYERS: u32 = 2;
const HEADS: u32 = 4;
/// `<unk>`, `<s>`, `</s>`, the ASCII bytes, and the mark for a space. Other bytes would combine to invalid text and end the
/// engine's response.
const VOCABULARY: u64 = 3 + 128 + 1;
const CONTEXT: u32 = 512;
const ALIGNMENT: usize = 32;
const TEMPLATE: &str = "{% for message in messages %}{{ message.content }}\n{% endfor %}";

/// Types of values, as the GGUF specification numbers them.
const U32: u32 = 4;
const I32: u32 = 5;
const F32: u32 = 6;
const TEXT: u32 = 8;
const LIST: u32 = 9;
/// The format of tensors of 32-bit floats.
const TENSOR_F32: u32 = 0;

struct File {
    pairs: Vec<u8>,
    pair_count: u64,
    tensors: Vec<(String, Vec<u64>)>,
}

/// Writes the model; another seed gives other output.
pub fn write(path: &Path, seed: u64) {
    std::fs::write(path, bytes(seed)).expect("written");
}

/// The complete file.
pub fn bytes(seed: u64) -> Vec<u8> {
    with_template(seed, None)
}

/// The file with a chat template that writes one message per line.
pub fn bytes_for_chat(seed: u64) -> Vec<u8> {
    with_template(seed, Some(TEMPLATE))
}

/// The file with this chat template.
pub fn with_template(seed: u64, template: Option<&str>) -> Vec<u8> {
    let mut file = File {
        pairs: Vec::new(),
        pair_count: 0,
        tensors: Vec::new(),
    };
    file.describe();
    if let Some(template) = template {
        file.word("tokenizer.chat_template", template);
    }
    file.name_tensors();
    file.finish(seed)
}

fn text(into: &mut Vec<u8>, value: &str) {
    into.extend((value.len() as u64).to_le_bytes());
    into.extend(value.as_bytes());
}

impl File {
    fn key(&mut self, key: &str, kind: u32) {
        text(&mut self.pairs, key);
        self.pairs.extend(kind.to_le_bytes());
        self.pair_count += 1;
    }

    fn word(&mut self, key: &str, value: &str) {
        self.key(key, TEXT);
        text(&mut self.pairs, value);
    }

    fn number(&mut self, key: &str, value: u32) {
        self.key(key, U32);
        self.pairs.extend(value.to_le_bytes());
    }

    fn list(&mut self, key: &str, kind: u32, values: Vec<Vec<u8>>) {
        self.key(key, LIST);
        self.pairs.extend(kind.to_le_bytes());
        self.pairs.extend((values.len() as u64).to_le_bytes());
        self.pairs.extend(values.concat());
    }

    fn describe(&mut self) {
        self.word("general.architecture", "llama");
        self.word("general.name", "tiny nonsense");
        self.number("llama.block_count", LAYERS);
        self.number("llama.context_length", CONTEXT);
        self.number("llama.embedding_length", EMBEDDING as u32);
        self.number("llama.feed_forward_length", FEED_FORWARD as u32);
        self.number("llama.attention.head_count", HEADS);
        self.number("llama.attention.head_count_kv", HEADS);
        self.number("llama.rope.dimension_count", EMBEDDING as u32 / HEADS);
        self.number("llama.vocab_size", VOCABULARY as u32);
        self.key("llama.attention.layer_norm_rms_epsilon", F32);
        self.pairs.extend(1e-5_f32.to_le_bytes());
        self.key("general.sampling.temp", F32);
        self.pairs.extend(0_f32.to_le_bytes());
        self.word("tokenizer.ggml.model", "llama");
        let special = ["<unk>", "<s>", "</s>"].map(str::to_owned);
        let single = (0..128_u8).map(|byte| format!("<0x{byte:02X}>"));
        let tokens = special.into_iter().chain(single);
        let tokens = tokens.chain(["\u{2581}".to_owned()]).map(|token| {
            let mut value = Vec::new();
            text(&mut value, &token);
            value
        });
        self.list("tokenizer.ggml.tokens", TEXT, tokens.collect());
        let scores = (0..VOCABULARY).map(|nth| (-(nth as f32)).to_le_bytes().to_vec());
        self.list("tokenizer.ggml.scores", F32, scores.collect());
        // Normal 1, unknown 2, control 3, byte 6.
        let kinds = [2_i32, 3, 3].into_iter().chain([6; 128]).chain([1]);
        let kinds = kinds.map(|kind| kind.to_le_bytes().to_vec());
        self.list("tokenizer.ggml.token_type", I32, kinds.collect());
        self.number("tokenizer.ggml.unknown_token_id", 0);
        self.number("tokenizer.ggml.bos_token_id", 1);
        self.number("tokenizer.ggml.eos_token_id", 2);
    }

    /// The innermost dimension comes first.
    fn tensor(&mut self, name: &str, shape: &[u64]) {
        self.tensors.push((name.to_owned(), shape.to_vec()));
    }

    fn name_tensors(&mut self) {
        self.tensor("token_embd.weight", &[EMBEDDING, VOCABULARY]);
        self.tensor("output_norm.weight", &[EMBEDDING]);
        self.tensor("output.weight", &[EMBEDDING, VOCABULARY]);
        for layer in 0..LAYERS {
            let name = |part: &str| format!("blk.{layer}.{part}.weight");
            self.tensor(&name("attn_norm"), &[EMBEDDING]);
            for part in ["attn_q", "attn_k", "attn_v", "attn_output"] {
                self.tensor(&name(part), &[EMBEDDING, EMBEDDING]);
            }
            self.tensor(&name("ffn_norm"), &[EMBEDDING]);
            self.tensor(&name("ffn_gate"), &[EMBEDDING, FEED_FORWARD]);
            self.tensor(&name("ffn_up"), &[EMBEDDING, FEED_FORWARD]);
            self.tensor(&name("ffn_down"), &[FEED_FORWARD, EMBEDDING]);
        }
    }

    fn finish(self, seed: u64) -> Vec<u8> {
        let mut file = b"GGUF".to_vec();
        file.extend(3_u32.to_le_bytes());
        file.extend((self.tensors.len() as u64).to_le_bytes());
        file.extend(self.pair_count.to_le_bytes());
        file.extend(&self.pairs);
        let mut data = Vec::new();
        let mut state = seed | 1;
        for (name, shape) in &self.tensors {
            text(&mut file, name);
            file.extend((shape.len() as u32).to_le_bytes());
            for side in shape {
                file.extend(side.to_le_bytes());
            }
            file.extend(TENSOR_F32.to_le_bytes());
            file.extend((data.len() as u64).to_le_bytes());
            for _ in 0..shape.iter().product::<u64>() {
                let value = if name.contains("norm") {
                    1.0
                } else {
                    next(&mut state)
                };
                data.extend(value.to_le_bytes());
            }
            data.resize(data.len().next_multiple_of(ALIGNMENT), 0);
        }
        file.resize(file.len().next_multiple_of(ALIGNMENT), 0);
        file.extend(data);
        file
    }
}

/// Between -0.1 and 0.1, by xorshift (Marsaglia, 2003).
fn next(state: &mut u64) -> f32 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    ((*state >> 40) as f32 / (1_u64 << 24) as f32 - 0.5) / 5.0
}
