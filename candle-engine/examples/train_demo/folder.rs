//! The Hugging Face folder of a demo model: trains the tokenizer and writes every file.

use crate::corpus::Topic;
use crate::network::{Network, NetworkShape};
use serde_json::json;
use std::error::Error;
use std::path::Path;
use tokenizers::decoders::byte_level::ByteLevel as ByteLevelDecoder;
use tokenizers::models::bpe::{BPE, BpeTrainer};
use tokenizers::models::{ModelWrapper, TrainerWrapper};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::{AddedToken, Tokenizer};

pub const END_OF_TEXT: &str = "<|endoftext|>";
pub const START: &str = "<|im_start|>";
pub const END: &str = "<|im_end|>";
/// The ids of the special tokens, in the order in which the trainer gets them.
pub const END_OF_TEXT_ID: u32 = 0;
pub const END_ID: u32 = 2;

const CHAT_TEMPLATE: &str = "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}\
{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

/// The contents of a model card.
pub struct Card<'card> {
    pub name: &'card str,
    pub seed: u64,
    pub steps: usize,
    pub figures: &'card str,
}

/// Trains a byte-level BPE tokenizer. Its alphabet has all 256 bytes, so every text has tokens and decodes to itself.
///
/// # Errors
/// If the tokenizers library rejects the corpus.
pub fn train_tokenizer(topics: &[Topic], vocabulary: usize) -> Result<Tokenizer, Box<dyn Error>> {
    let special = [END_OF_TEXT, START, END].map(|token| AddedToken::from(token, true));
    let trainer = BpeTrainer::builder()
        .vocab_size(vocabulary)
        .min_frequency(2)
        .show_progress(false)
        .initial_alphabet(ByteLevel::alphabet().into_iter().collect())
        .special_tokens(special.to_vec())
        .build();
    let mut tokenizer = Tokenizer::new(ModelWrapper::BPE(BPE::default()));
    tokenizer.with_pre_tokenizer(Some(ByteLevel::new(false, false, true)));
    tokenizer.with_decoder(Some(ByteLevelDecoder::new(false, false, true)));
    // Roles appear in every conversation, so each should be one token.
    let roles = ["user\n", "assistant\n", "system\n"]
        .iter()
        .flat_map(|role| std::iter::repeat_n((*role).to_owned(), 50));
    let texts: Vec<String> = topics
        .iter()
        .flat_map(|topic| topic.learnt.iter().chain(std::iter::once(&topic.response)))
        .flat_map(|text| [text.clone(), crate::corpus::capitalised(text)])
        .chain(roles)
        .collect();
    tokenizer
        .train(&mut TrainerWrapper::BpeTrainer(trainer), texts.into_iter())
        .map_err(|error| error.to_string())?;
    Ok(tokenizer)
}

/// Writes weights, configuration and tokenizer to `folder`, creating it if necessary.
///
/// # Errors
/// If a file cannot be written.
pub fn write(
    folder: &Path,
    shape: &NetworkShape,
    network: &Network,
    tokenizer: &Tokenizer,
) -> Result<(), Box<dyn Error>> {
    std::fs::create_dir_all(folder)?;
    let tensors = network
        .variables()
        .iter()
        .map(|(name, variable)| (name, variable.as_tensor()));
    safetensors::serialize_to_file(tensors, None, &folder.join("model.safetensors"))?;
    tokenizer
        .save(folder.join("tokenizer.json"), true)
        .map_err(|error| error.to_string())?;
    let write = |file: &str, value: serde_json::Value| -> Result<(), Box<dyn Error>> {
        Ok(std::fs::write(
            folder.join(file),
            serde_json::to_string_pretty(&value)? + "\n",
        )?)
    };
    write(
        "config.json",
        json!({
            "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "float32", "hidden_act": "silu",
            "vocab_size": shape.vocabulary, "hidden_size": shape.hidden, "intermediate_size": shape.intermediate,
            "num_hidden_layers": shape.layers, "num_attention_heads": shape.heads, "num_key_value_heads": shape.key_value_heads,
            "max_position_embeddings": shape.positions, "rms_norm_eps": NetworkShape::NORM_EPSILON,
            "rope_theta": NetworkShape::ROPE_THETA, "tie_word_embeddings": true, "attention_bias": false, "mlp_bias": false,
            "bos_token_id": END_OF_TEXT_ID, "eos_token_id": END_ID
        }),
    )?;
    write(
        "generation_config.json",
        json!({"bos_token_id": END_OF_TEXT_ID, "eos_token_id": [END_ID, END_OF_TEXT_ID], "do_sample": false}),
    )?;
    write(
        "tokenizer_config.json",
        json!({
            "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": END_OF_TEXT, "eos_token": END, "pad_token": END_OF_TEXT,
            "add_bos_token": false, "model_max_length": shape.positions, "clean_up_tokenization_spaces": false,
            "chat_template": CHAT_TEMPLATE
        }),
    )
}

/// Writes the model card.
///
/// # Errors
/// If a file cannot be written.
pub fn write_card(
    folder: &Path,
    shape: &NetworkShape,
    parameters: usize,
    card: &Card<'_>,
) -> Result<(), Box<dyn Error>> {
    let Card {
        name,
        seed,
        steps,
        figures,
    } = card;
    let NetworkShape {
        vocabulary,
        hidden,
        intermediate,
        layers,
        heads,
        key_value_heads,
        positions,
    } = shape;
    let text = format!(
        "---\nlicense: apache-2.0 OR mit\nlanguage: en\npipeline_tag: text-generation\n---\n\n# {name}\n\n\
A tiny Llama chat model that answers questions about model-pool. It exists so that a fresh checkout serves real inference with no download \
and no GPU. It knows nothing else; do not rely on it.\n\n\
- Licence: Apache-2.0 OR MIT\n- Parameters: {parameters} (F32)\n- Vocabulary: {vocabulary} (byte-level BPE, every text can be encoded)\n\
- Shape: {layers} layers, hidden {hidden}, intermediate {intermediate}, {heads} heads, {key_value_heads} key-value heads, tied embeddings\n\
- Context: {positions} tokens; trained on at most 160\n- Data: `demo/corpus/*.txt`, written for this project, with varied wording and typing mistakes\n\
- Training: {steps} steps of AdamW on a CPU, seed {seed}\n\nMade with\n\n```\ncargo run --release -p candle-engine --example train_demo -- --only {name}\n```\n\n\
## Measured\n\nGreedy answers, counted right when they equal the expected answer to the letter \
(`cargo run --release -p candle-engine --example train_demo -- --check`). \
Held-out questions are not trained on; the learnt wordings were extended once after looking at what earlier models got wrong:\n\n{figures}\n"
    );
    Ok(std::fs::write(folder.join("README.md"), text)?)
}
