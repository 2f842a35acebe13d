//! The synthetic vocabulary of the random models: byte-level BPE of two letters, then four, in the two formats that engines read.

use serde_json::{Map, Value, json};

pub const VOCABULARY: usize = 32_000;

/// The first ordinary id; lower ids are special.
pub const FIRST_PLAIN: u32 = 3;
const SPECIAL: [&str; FIRST_PLAIN as usize] = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"];
pub const BEGIN: u32 = 0;
pub const END: u32 = 2;

pub const CHAT_TEMPLATE: &str = "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

pub struct Vocabulary {
    /// The token texts, by id.
    pub tokens: Vec<String>,
    pub merges: Vec<(String, String)>,
}

/// The character that represents a byte in GPT-2's tokenizer: printable bytes represent themselves, others map to characters from
/// U+0100 on.
fn character(byte: u8) -> char {
    let stands_for_itself = |byte: u8| matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    if stands_for_itself(byte) {
        return char::from(byte);
    }
    let before = (0..byte).filter(|other| !stands_for_itself(*other)).count();
    char::from_u32(0x100 + before as u32).expect("256 characters from U+0100 on exist")
}

pub fn words() -> Vocabulary {
    let mut tokens: Vec<String> = SPECIAL.iter().map(|&token| token.to_owned()).collect();
    tokens.extend((0..=u8::MAX).map(|byte| character(byte).to_string()));
    let letters = || (b'a'..=b'z').map(|letter| char::from(letter).to_string());
    let mut merges: Vec<(String, String)> = letters()
        .flat_map(|first| letters().map(move |second| (first.clone(), second)))
        .collect();
    let pairs: Vec<String> = merges.iter().map(|(a, b)| format!("{a}{b}")).collect();
    let quads = VOCABULARY - tokens.len() - pairs.len();
    // The stride is coprime to the number of pairs, which gives words with every first letter.
    let chosen = (0..quads).map(|index| {
        let second = (index * 577 + index / pairs.len()) % pairs.len();
        (pairs[index % pairs.len()].clone(), pairs[second].clone())
    });
    merges.extend(chosen);
    tokens.extend(merges.iter().map(|(a, b)| format!("{a}{b}")));
    Vocabulary { tokens, merges }
}

impl Vocabulary {
    /// The contents of `tokenizer.json`.
    pub fn tokenizer(&self) -> Value {
        let vocabulary: Map<String, Value> = (0..)
            .zip(&self.tokens)
            .map(|(id, token)| (token.clone(), Value::from(id)))
            .collect();
        let merges: Vec<Value> = self.merges.iter().map(|(a, b)| json!([a, b])).collect();
        let added: Vec<Value> = (0..)
            .zip(SPECIAL)
            .map(|(id, token)| {
                json!({"id": id, "content": token, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true})
            })
            .collect();
        let bytes = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": true});
        json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": added, "normalizer": null,
            "pre_tokenizer": bytes, "post_processor": null, "decoder": bytes,
            "model": {
                "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null, "end_of_word_suffix": null,
                "fuse_unk": false, "byte_fallback": false, "ignore_merges": false, "vocab": vocabulary, "merges": merges,
            },
        })
    }

    /// The contents of `tokenizer_config.json`.
    pub fn tokenizer_config(context_tokens: usize) -> Value {
        json!({
            "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": SPECIAL[BEGIN as usize], "eos_token": SPECIAL[END as usize],
            "pad_token": SPECIAL[BEGIN as usize], "add_bos_token": false, "model_max_length": context_tokens,
            "clean_up_tokenization_spaces": false, "chat_template": CHAT_TEMPLATE,
        })
    }
}
