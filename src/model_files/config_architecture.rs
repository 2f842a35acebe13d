//! Reads from `config.json` everything that affects the model's memory. An unknown architecture is assumed to have plain attention,
//! and the assumption is recorded.

use std::path::Path;

use serde_json::Value;

use super::architecture::{Architecture, LayerCache, Widths};
use super::config_json::{Keys, shortened};
use super::error::FileError;
use super::families::{LibraryFamily, library_decoder};
use super::layer_kinds;

/// Architectures without attention.
const RECURRENT: [&str; 4] = ["mamba", "mamba2", "falcon_mamba", "xlstm"];

/// Encoders process a complete text in one pass and have no cache.
const ENCODERS: &str = "albert bert camembert clip deberta deberta-v2 distilbert electra ernie esm gte jina_bert \
    modernbert mpnet new nomic_bert roberta siglip xlm-roberta";

/// Architectures whose cache follows from the keys that are read here.
const KNOWN: &str = "afmoe apertus arcee baichuan bamba bitnet bloom chatglm codegen cohere cohere2 dbrx \
    deepseek_v2 deepseek_v3 deepseek_v32 dots1 ernie4_5 ernie4_5_moe exaone exaone4 falcon \
    falcon_h1 falcon_mamba gemma gemma2 gemma3 gemma3_text glm glm4 glm4_moe gpt2 gpt_bigcode gpt_neo \
    gpt_neox gpt_oss gptj granite granitemoe granitemoehybrid hunyuan_v1_dense hunyuan_v1_moe \
    internlm2 internlm3 jamba kimi_k2 kimi_k25 kimi_linear lfm2 llama llama4 llama4_text llava \
    RefinedWebModel mamba mamba2 minicpm minimax ministral mistral mistral3 mixtral mpt nemotron nemotron_h olmo olmo2 \
    olmo3 olmoe opt persimmon phi phi3 phimoe qwen2 qwen2_5_vl qwen2_5_vl_text qwen2_moe \
    qwen2_vl qwen2_vl_text qwen3 qwen3_5 qwen3_5_moe qwen3_5_moe_text qwen3_5_text qwen3_moe \
    qwen3_next qwen3_vl qwen3_vl_moe qwen3_vl_moe_text qwen3_vl_text seed_oss smollm3 stablelm \
    starcoder2";

fn is_listed(kind: &str, words: &str) -> bool {
    words.split_whitespace().any(|word| word == kind)
}

impl Architecture {
    /// Reads `config.json` of a model's folder.
    pub fn of_folder(folder: &Path) -> Result<Architecture, FileError> {
        Architecture::of_config_json(&folder.join("config.json"))
    }

    /// Reads a file in the format of `config.json`.
    pub fn of_config_json(path: &Path) -> Result<Architecture, FileError> {
        let keys = Keys::read(path)?;
        let mut architecture = Architecture::new(path);
        fill(&keys, &mut architecture).map_err(|problem| FileError::Broken {
            path: path.to_owned(),
            problem,
        })?;
        Ok(architecture)
    }
}

/// `model_type` of Whisper models.
const SPEECH: &str = "whisper";
/// Bytes of a number in the keys and values of a window.
const WINDOW_NUMBER_BYTES: u64 = 4;

/// Whisper's keys have other names. The decoder keeps its text, and keys and values of the window.
fn fill_speech(keys: &Keys, architecture: &mut Architecture) -> Result<(), String> {
    let heads = keys.needed(&["decoder_attention_heads"])?;
    let hidden = keys.hidden()?;
    let layers = keys.needed(&["decoder_layers"])?;
    let encoder_layers = keys.needed(&["encoder_layers"])?;
    let positions = keys.needed(&["max_source_positions"])?;
    let wide = keys.needed(&["encoder_ffn_dim"])?;
    architecture.attention_heads = Some(heads);
    architecture.context = keys.number(&["max_target_positions"])?;
    architecture.name = Some(SPEECH.to_owned());
    architecture.widths = Some(Widths {
        hidden,
        wide: wide.max(keys.needed(&["decoder_ffn_dim"])?),
        queries: hidden,
        vocabulary_size: keys.number(&["vocab_size"])?.unwrap_or(0),
        blocks: layers.saturating_add(encoder_layers),
        expert: 0,
        experts_used: 0,
    });
    let head = hidden.div_ceil(heads);
    let text = LayerCache::Heads {
        heads,
        key_size: head,
        value_size: head,
        window: None,
    };
    architecture.push(layers, text);
    let window = [2, positions, hidden, WINDOW_NUMBER_BYTES];
    let bytes = window.into_iter().fold(1, u64::saturating_mul);
    architecture.push(layers, LayerCache::State { bytes });
    Ok(())
}

/// The length of T5's texts in training, which newer files omit.
const T5_POSITIONS: u64 = 512;

/// T5's and Marian's keys have other names. The decoder keeps keys and values of the text that the model reads and of the text that it
/// writes, each of half the context.
fn fill_translator(keys: &Keys, architecture: &mut Architecture) -> Result<(), String> {
    let hidden = keys.hidden()?;
    let heads = keys.needed(&["num_heads", "decoder_attention_heads"])?;
    let head = keys.number(&["d_kv"])?.unwrap_or(hidden.div_ceil(heads));
    let encoder_layers = keys.needed(&["num_layers", "encoder_layers"])?;
    let layers = keys.number(&["num_decoder_layers", "decoder_layers"])?;
    let layers = layers.unwrap_or(encoder_layers);
    let encoder_wide = keys.needed(&["d_ff", "encoder_ffn_dim"])?;
    let wide = keys.number(&["decoder_ffn_dim"])?.unwrap_or(0);
    let positions = keys.number(&["n_positions", "max_position_embeddings"])?;
    let encoder_heads = keys.number(&["encoder_attention_heads"])?.unwrap_or(0);
    architecture.attention_heads = Some(heads.max(encoder_heads));
    architecture.context = Some(positions.unwrap_or(T5_POSITIONS).saturating_mul(2));
    architecture.name = Some(keys.kind().to_owned());
    architecture.widths = Some(Widths {
        hidden,
        wide: encoder_wide.max(wide),
        queries: heads.saturating_mul(head),
        vocabulary_size: keys.number(&["vocab_size"])?.unwrap_or(0),
        blocks: layers.saturating_add(encoder_layers),
        expert: 0,
        experts_used: 0,
    });
    let cache = LayerCache::Heads {
        heads,
        key_size: head,
        value_size: head,
        window: None,
    };
    architecture.push(layers, cache);
    Ok(())
}

fn fill(keys: &Keys, architecture: &mut Architecture) -> Result<(), String> {
    let kind = keys.kind();
    if kind == SPEECH {
        return fill_speech(keys, architecture);
    }
    let mut names = keys.list("architectures").into_iter().flatten();
    let is_translator = |name: &Value| {
        let family = name.as_str().and_then(library_decoder);
        family.is_some_and(LibraryFamily::encodes)
    };
    if names.any(is_translator) {
        return fill_translator(keys, architecture);
    }
    let is_recurrent = RECURRENT.contains(&kind);
    if !is_recurrent {
        architecture.attention_heads = Some(keys.heads()?);
    }
    architecture.context = keys.context()?;
    if !kind.is_empty() {
        architecture.name = Some(kind.to_owned());
    }
    architecture.widths = widths(keys);
    if is_listed(kind, ENCODERS) && keys.flag("is_decoder") != Some(true) {
        return Ok(());
    }
    if !kind.is_empty() && !is_listed(kind, KNOWN) {
        architecture.guesses.push(format!(
            "the architecture `{}` is unknown; plain attention is assumed",
            shortened(&Value::from(kind))
        ));
    }
    let layers = keys.layers()?;
    if is_recurrent {
        // A state has no limit of tokens.
        architecture.context = architecture
            .context
            .or(Some(layer_kinds::CONTEXT_OF_STATES));
        return match layer_kinds::state_bytes(keys)? {
            Some(bytes) => {
                architecture.push(layers, LayerCache::State { bytes });
                Ok(())
            }
            None => Err(format!(
                "`state_size` is missing, which determines the state of the architecture `{kind}`"
            )),
        };
    }
    let latent = latent(keys)?;
    let (head_size, shared_heads) = match latent {
        Some(_) => (0, 0),
        None => (keys.head_size()?, keys.key_value_heads()?),
    };
    let each = keys.key_value_heads_of_each();
    let state = layer_kinds::state_bytes(keys)?;
    let runs = layer_kinds::layer_kinds(keys, layers, &mut architecture.guesses)?;
    let mut index = 0_u64;
    for (count, kind) in runs {
        let mut attention = kind.attention();
        if kind.has_state() {
            match state {
                Some(bytes) => architecture.push(count, LayerCache::State { bytes }),
                None => {
                    // The cache of attention is larger than any known state.
                    attention = attention.or(Some(None));
                    note_once(
                        architecture,
                        "the state of its layers without attention is unknown; plain attention is assumed, an upper bound",
                    );
                }
            }
        }
        if let Some(window) = attention {
            let group = |heads| match latent {
                Some((numbers, expanded)) => LayerCache::Latent { numbers, expanded },
                None => LayerCache::Heads {
                    heads,
                    key_size: head_size,
                    value_size: head_size,
                    window,
                },
            };
            match &each {
                // The list's length is limited by the file's; runs are cut to the number of layers.
                Some(each) if each.len() as u64 == layers => {
                    let from = usize::try_from(index).unwrap_or(usize::MAX);
                    let here = usize::try_from(count).unwrap_or(usize::MAX);
                    for heads in each.iter().skip(from).take(here) {
                        architecture.push(1, group(*heads));
                    }
                }
                _ => architecture.push(count, group(shared_heads)),
            }
        }
        index = index.saturating_add(count);
    }
    Ok(())
}

/// The widths that are present; errors are reported where a value is needed.
fn widths(keys: &Keys) -> Option<Widths> {
    let number = |names: &[&str]| keys.number(names).ok().flatten();
    let hidden = keys.hidden().ok()?;
    let dense = number(&[
        "intermediate_size",
        "n_inner",
        "ffn_hidden_size",
        "hidden_dim",
    ]);
    let expert = number(&["moe_intermediate_size"]).unwrap_or(0);
    let head = match number(&["qk_nope_head_dim"]).zip(number(&["qk_rope_head_dim"])) {
        Some((plain, turned)) => plain.saturating_add(turned),
        None => keys.head_size().ok()?,
    };
    Some(Widths {
        hidden,
        wide: dense.unwrap_or(hidden.saturating_mul(4)).max(expert),
        queries: keys.heads().ok()?.saturating_mul(head),
        vocabulary_size: number(&["vocab_size"]).unwrap_or(0),
        blocks: keys.layers().ok()?,
        expert,
        experts_used: number(&["num_experts_per_tok", "num_experts_per_token", "moe_top_k"])
            .unwrap_or(0),
    })
}

/// Numbers per token of multi-head latent attention: the compressed keys and values with the positional part (DeepSeek-V2, arXiv
/// 2405.04434, section 2.1.3), and the keys of the indexer in the sparse variant. The second figure is for keys and values stored
/// expanded for each head.
fn latent(keys: &Keys) -> Result<Option<(u64, u64)>, String> {
    let Some(rank) = keys.number(&["kv_lora_rank"])? else {
        return Ok(None);
    };
    let rope = keys.needed(&["qk_rope_head_dim"])?;
    let indexer = keys.number(&["index_head_dim"])?.unwrap_or(0);
    let compressed = rank.saturating_add(rope).saturating_add(indexer);
    let plain = keys.number(&["qk_nope_head_dim"])?.unwrap_or(0);
    let value = keys.number(&["v_head_dim"])?.unwrap_or(0);
    let head = plain.saturating_add(rope).saturating_add(value);
    Ok(Some((compressed, keys.heads()?.saturating_mul(head))))
}

fn note_once(architecture: &mut Architecture, note: &str) {
    if !architecture.guesses.iter().any(|known| known == note) {
        architecture.guesses.push(note.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_speech_model_has_a_cache_of_its_text_and_of_one_window() {
        let folder = tempfile::tempdir().expect("a folder");
        let config = r#"{"model_type": "whisper", "d_model": 384, "encoder_layers": 4, "decoder_layers": 3,
            "encoder_attention_heads": 6, "decoder_attention_heads": 6, "encoder_ffn_dim": 1536, "decoder_ffn_dim": 1536,
            "max_source_positions": 1500, "max_target_positions": 448, "vocab_size": 51865}"#;
        let file = folder.path().join("config.json");
        std::fs::write(&file, config).expect("written");
        let read = Architecture::of_config_json(&file).expect("read");
        assert_eq!((read.context, read.attention_heads), (Some(448), Some(6)));
        let text = LayerCache::Heads {
            heads: 6,
            key_size: 64,
            value_size: 64,
            window: None,
        };
        let bytes = 2 * 1500 * 384 * 4;
        let groups: Vec<_> = read
            .layers
            .iter()
            .map(|group| (group.count, group.cache))
            .collect();
        assert_eq!(groups, [(3, text), (3, LayerCache::State { bytes })]);
        assert_eq!(read.widths.map(|widths| widths.blocks), Some(7));
        std::fs::write(&file, r#"{"model_type": "whisper", "d_model": 384}"#).expect("written");
        let problem = Architecture::of_config_json(&file).expect_err("it is incomplete");
        assert!(
            problem.to_string().contains("decoder_attention_heads"),
            "{problem}"
        );
    }

    #[test]
    fn a_t5_has_a_cache_of_the_text_it_reads_and_of_the_text_it_writes() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("config.json");
        let config = r#"{"architectures": ["T5ForConditionalGeneration"], "model_type": "t5", "d_model": 512, "d_kv": 64, "d_ff": 1024,
            "num_heads": 6, "num_layers": 8, "num_decoder_layers": 4, "vocab_size": 32128}"#;
        std::fs::write(&file, config).expect("written");
        let read = Architecture::of_config_json(&file).expect("read");
        assert_eq!((read.context, read.attention_heads), (Some(1024), Some(6)));
        let text = LayerCache::Heads {
            heads: 6,
            key_size: 64,
            value_size: 64,
            window: None,
        };
        let groups = read.layers.iter();
        let groups: Vec<_> = groups.map(|group| (group.count, group.cache)).collect();
        assert_eq!(groups, [(4, text)]);
        let widths = read.widths.expect("known");
        assert_eq!(
            (widths.queries, widths.wide, widths.blocks),
            (384, 1024, 12)
        );
        assert!(read.guesses.is_empty(), "{:?}", read.guesses);
    }

    #[test]
    fn a_marian_has_a_cache_of_the_hidden_size() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("config.json");
        let config = r#"{"architectures": ["MarianMTModel"], "model_type": "marian", "d_model": 512, "encoder_layers": 6,
            "decoder_layers": 5, "encoder_attention_heads": 8, "decoder_attention_heads": 4, "encoder_ffn_dim": 2048,
            "decoder_ffn_dim": 1024, "max_position_embeddings": 512, "vocab_size": 59514}"#;
        std::fs::write(&file, config).expect("written");
        let read = Architecture::of_config_json(&file).expect("read");
        assert_eq!((read.context, read.attention_heads), (Some(1024), Some(8)));
        let text = LayerCache::Heads {
            heads: 4,
            key_size: 128,
            value_size: 128,
            window: None,
        };
        let groups = read.layers.iter();
        let groups: Vec<_> = groups.map(|group| (group.count, group.cache)).collect();
        assert_eq!(groups, [(5, text)]);
        let widths = read.widths.expect("known");
        assert_eq!(
            (widths.queries, widths.wide, widths.blocks),
            (512, 2048, 11)
        );
    }
}
