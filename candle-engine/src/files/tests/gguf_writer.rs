//! Writes GGUF files for the tests as llama.cpp's converter makes them from folders in Hugging Face's form.

use crate::files::ModelFiles;
use crate::spec::{FeedForward, Norms, Projections, RopeScaling, Spec};
use crate::stored_tensor::{Encoding, StoredTensor};
use candle_core::quantized::gguf_file::{self, Value};
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{DType, Device, Tensor};
use serde_json::Value as Json;
use std::fs::File;
use std::path::Path;

/// The contents of a GGUF file.
pub struct GgufWriter {
    pub metadata: Vec<(String, Value)>,
    pub tensors: Vec<(String, QTensor)>,
}

/// Decodes a tensor that is not in blocks.
pub fn tensor(stored: &StoredTensor) -> Tensor {
    let dtype = match stored.encoding {
        Encoding::F32 => DType::F32,
        Encoding::F16 => DType::F16,
        Encoding::Bf16 => DType::BF16,
        other => panic!("{other:?} is in blocks"),
    };
    Tensor::from_raw_buffer(stored.bytes(), dtype, &stored.shape, &Device::Cpu)
        .and_then(|tensor| tensor.to_dtype(DType::F32))
        .expect("a tensor")
}

/// Reorders the rows of heads as llama.cpp stores them, with rows that are rotated together adjacent.
pub fn beside_each_other(rows: &Tensor, heads: usize) -> Tensor {
    let shape = rows.dims().to_vec();
    let columns = shape.get(1).copied().unwrap_or(1);
    let width = shape[0] / heads;
    rows.reshape((heads, 2, width / 2, columns))
        .and_then(|rows| rows.transpose(1, 2))
        .and_then(|rows| rows.contiguous())
        .and_then(|rows| rows.reshape(shape))
        .expect("halves of heads")
}

/// The divisors that the converter computes from Llama 3's scaling.
fn divisors(spec: &Spec) -> Option<Vec<f32>> {
    let rope = &spec.ropes[0];
    let RopeScaling::Llama3 {
        factor,
        low_frequency_factor: low,
        high_frequency_factor: high,
        first_context_tokens,
    } = rope.scaling
    else {
        return None;
    };
    let context = first_context_tokens as f32;
    let pairs = 0..rope.turned_width / 2;
    let divisor = |pair: usize| {
        let frequency = rope
            .theta
            .powf(-2.0 * pair as f32 / rope.turned_width as f32);
        let length = std::f32::consts::TAU / frequency;
        if length < context / high {
            1.0
        } else if length > context / low {
            factor
        } else {
            let smooth = (context / length - low) / (high - low);
            1.0 / ((1.0 - smooth) / factor + smooth)
        }
    };
    Some(pairs.map(divisor).collect())
}

impl GgufWriter {
    /// Converts a folder's model, with a generated vocabulary.
    pub fn new(folder: &Path, architecture: &str) -> Self {
        let files = ModelFiles::open(folder).expect("opens");
        let spec = files.spec().expect("a decoder");
        let mut written = Self {
            metadata: vec![(
                "general.architecture".to_owned(),
                Value::String(architecture.to_owned()),
            )],
            tensors: Vec::new(),
        };
        written.describe(architecture, spec, files.config());
        written.words(spec.vocabulary);
        written.weights(architecture, &files, spec);
        written
    }

    pub fn set(&mut self, key: &str, value: Value) {
        self.metadata.retain(|(known, _)| known != key);
        self.metadata.push((key.to_owned(), value));
    }

    fn describe(&mut self, architecture: &str, spec: &Spec, config: &Json) {
        let mut whole = |key: &str, value: usize| {
            self.metadata
                .push((format!("{architecture}.{key}"), Value::U32(value as u32)));
        };
        whole("context_length", spec.context_tokens);
        whole("embedding_length", spec.hidden);
        whole("block_count", spec.blocks.len());
        whole("attention.head_count", spec.heads);
        whole("attention.head_count_kv", spec.key_value_heads);
        whole("attention.key_length", spec.key_width);
        whole("attention.value_length", spec.value_width);
        whole("rope.dimension_count", spec.ropes[0].turned_width);
        if let Some(window) = spec.blocks.iter().find_map(|block| block.window) {
            whole("attention.sliding_window", window);
        }
        if let Some(pattern) = config["sliding_window_pattern"].as_u64() {
            whole("attention.sliding_window_pattern", pattern as usize);
        }
        for block in &spec.blocks {
            match &block.feed_forward {
                FeedForward::Gated(gated) => whole("feed_forward_length", gated.width),
                FeedForward::Plain(plain) => whole("feed_forward_length", plain.width),
                FeedForward::Experts(experts) => {
                    whole("expert_count", experts.count);
                    whole("expert_used_count", experts.chosen);
                    if architecture == "llama" {
                        whole("feed_forward_length", experts.width);
                    } else {
                        whole("expert_feed_forward_length", experts.width);
                    }
                    if let Some(width) = experts.shared_width {
                        whole("expert_shared_feed_forward_length", width);
                    }
                }
            }
        }
        let mut number = |key: &str, value: f32| {
            self.metadata
                .push((format!("{architecture}.{key}"), Value::F32(value)));
        };
        number("attention.layer_norm_rms_epsilon", spec.norm.epsilon);
        number("rope.freq_base", spec.ropes[0].theta);
        if architecture == "granite" {
            number("attention.scale", spec.attention.score_factor);
            number("embedding_scale", spec.embedding_factor);
            number("residual_scale", spec.residual_factor);
            number("logit_scale", 1.0 / spec.logit_factor);
        }
        if let Some(cap) = spec.attention.score_cap {
            number("attn_logit_softcapping", cap);
        }
        if let Some(cap) = spec.logit_cap {
            number("final_logit_softcapping", cap);
        }
        self.scaling(architecture, &spec.ropes[0].scaling);
    }

    fn scaling(&mut self, architecture: &str, scaling: &RopeScaling) {
        let (kind, factor, first, amplitude) = match scaling {
            RopeScaling::None | RopeScaling::Llama3 { .. } | RopeScaling::Divisors(_) => return,
            RopeScaling::Linear { factor } => ("linear", Some(*factor), None, None),
            RopeScaling::Yarn {
                factor,
                first_context_tokens,
                fast_turns,
                slow_turns,
                ..
            } => {
                for (key, turns) in [("beta_fast", fast_turns), ("beta_slow", slow_turns)] {
                    let key = format!("{architecture}.rope.scaling.yarn_{key}");
                    self.set(&key, Value::F32(*turns));
                }
                ("yarn", Some(*factor), Some(*first_context_tokens), None)
            }
            RopeScaling::Long {
                first_context_tokens,
                amplitude,
                ..
            } => (
                "longrope",
                None,
                Some(*first_context_tokens),
                Some(*amplitude),
            ),
        };
        let key = |name: &str| format!("{architecture}.rope.scaling.{name}");
        self.set(&key("type"), Value::String(kind.to_owned()));
        if let Some(factor) = factor {
            self.set(&key("factor"), Value::F32(factor));
        }
        if let Some(first) = first {
            self.set(&key("original_context_length"), Value::U32(first as u32));
        }
        if let Some(amplitude) = amplitude {
            self.set(&key("attn_factor"), Value::F32(amplitude));
        }
    }

    fn words(&mut self, count: usize) {
        let texts =
            |texts: Vec<String>| Value::Array(texts.into_iter().map(Value::String).collect());
        let tokens = (0..count).map(|id| format!("word{id}")).collect();
        self.set("tokenizer.ggml.model", Value::String("gpt2".to_owned()));
        self.set("tokenizer.ggml.pre", Value::String("default".to_owned()));
        self.set("tokenizer.ggml.tokens", texts(tokens));
        self.set("tokenizer.ggml.merges", texts(vec!["w o".to_owned()]));
        self.set("tokenizer.ggml.eos_token_id", Value::U32(2));
    }

    /// Copies the vocabulary of a byte-level `tokenizer.json`.
    pub fn words_of(&mut self, folder: &Path, split: &str) {
        let json = |file: &str| -> Json {
            let bytes = std::fs::read(folder.join(file)).expect("a file");
            serde_json::from_slice(&bytes).expect("JSON")
        };
        let (tokenizer, settings) = (json("tokenizer.json"), json("tokenizer_config.json"));
        let words = tokenizer["model"]["vocab"]
            .as_object()
            .expect("a vocabulary");
        let added: Vec<(u64, &str)> = tokenizer["added_tokens"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|token| {
                let id = token["id"].as_u64().expect("an id");
                (id, token["content"].as_str().expect("a text"))
            })
            .collect();
        let mut tokens = vec![String::new(); words.len().max(added.len())];
        for (word, id) in words {
            let id = id.as_u64().expect("an id") as usize;
            tokens.resize(tokens.len().max(id + 1), String::new());
            tokens[id].clone_from(word);
        }
        let mut kinds = vec![1; tokens.len()];
        for (id, content) in &added {
            tokens[*id as usize] = (*content).to_owned();
            kinds[*id as usize] = 3;
        }
        let merges = tokenizer["model"]["merges"].as_array().expect("merges");
        let merges = merges.iter().map(|merge| {
            let pair = [merge[0].as_str(), merge[1].as_str()];
            match pair {
                [Some(left), Some(right)] => format!("{left} {right}"),
                _ => merge.as_str().expect("a pair").to_owned(),
            }
        });
        let id_of = |name: &str| {
            let token = settings[name].as_str().expect("a token");
            let id = tokens
                .iter()
                .position(|known| known == token)
                .expect("is known");
            Value::U32(id as u32)
        };
        let end = id_of("eos_token");
        let texts =
            |texts: Vec<String>| Value::Array(texts.into_iter().map(Value::String).collect());
        let template = settings["chat_template"].as_str().expect("a template");
        self.set(
            "tokenizer.chat_template",
            Value::String(template.to_owned()),
        );
        self.set("tokenizer.ggml.pre", Value::String(split.to_owned()));
        self.set("tokenizer.ggml.eos_token_id", end);
        self.set("tokenizer.ggml.merges", texts(merges.collect()));
        let kinds = kinds.into_iter().map(Value::I32).collect();
        self.set("tokenizer.ggml.token_type", Value::Array(kinds));
        self.set("tokenizer.ggml.tokens", texts(tokens));
    }

    fn weights(&mut self, architecture: &str, files: &ModelFiles, spec: &Spec) {
        let permuted = matches!(architecture, "llama" | "smollm3" | "granite");
        for expected in files.expected().expect("a decoder") {
            let mut numbers = tensor(&files.tensor(&expected.name).expect("is there"));
            for (part, heads) in [("q_proj", spec.heads), ("k_proj", spec.key_value_heads)] {
                if permuted && expected.name.contains(part) {
                    numbers = beside_each_other(&numbers, heads);
                }
            }
            // GGUF files store Gemma's norm weights with one already added.
            if spec.norm.adds_one && expected.name.contains("norm") {
                numbers = (numbers + 1.0).expect("adds");
            }
            let Some(name) = name_in_gguf(&expected.name, spec) else {
                continue;
            };
            if name.contains("shexp") && numbers.dims().first() == Some(&1) {
                numbers = numbers.flatten_all().expect("a row");
            }
            self.add(&name, &numbers, GgmlDType::F32);
        }
        self.stacks(files, spec);
        if let Some(divisors) = divisors(spec) {
            let count = divisors.len();
            let divisors = Tensor::from_vec(divisors, count, &Device::Cpu).expect("a row");
            self.add("rope_freqs.weight", &divisors, GgmlDType::F32);
        }
        if let RopeScaling::Long { short, long, .. } = &spec.ropes[0].scaling {
            for (name, list) in [("short", short), ("long", long)] {
                let list = Tensor::from_vec(list.clone(), list.len(), &Device::Cpu);
                let name = format!("rope_factors_{name}.weight");
                self.add(&name, &list.expect("a row"), GgmlDType::F32);
            }
        }
    }

    /// Stacks all experts of a block in one tensor.
    fn stacks(&mut self, files: &ModelFiles, spec: &Spec) {
        for (place, block) in spec.blocks.iter().enumerate() {
            let FeedForward::Experts(experts) = &block.feed_forward else {
                continue;
            };
            let mixtral = experts.naming == crate::spec::ExpertNames::Mixtral;
            for (ours, usual, of_mixtral) in [
                ("gate", "gate_proj", "w1"),
                ("up", "up_proj", "w3"),
                ("down", "down_proj", "w2"),
            ] {
                let each: Vec<Tensor> = (0..experts.count)
                    .map(|expert| {
                        let name = if mixtral {
                            format!("model.layers.{place}.block_sparse_moe.experts.{expert}.{of_mixtral}.weight")
                        } else {
                            format!("model.layers.{place}.mlp.experts.{expert}.{usual}.weight")
                        };
                        tensor(&files.tensor(&name).expect("is there"))
                    })
                    .collect();
                let stack = Tensor::stack(&each, 0).expect("stacks");
                self.add(
                    &format!("blk.{place}.ffn_{ours}_exps.weight"),
                    &stack,
                    GgmlDType::F32,
                );
            }
        }
    }

    pub fn add(&mut self, name: &str, numbers: &Tensor, kind: GgmlDType) {
        let quantised = QTensor::quantize(numbers, kind).expect("quantises");
        self.tensors.retain(|(known, _)| known != name);
        self.tensors.push((name.to_owned(), quantised));
    }

    pub fn save(&self, path: &Path) {
        let mut file = File::create(path).expect("a file");
        let metadata: Vec<(&str, &Value)> = self
            .metadata
            .iter()
            .map(|(key, value)| (key.as_str(), value))
            .collect();
        let tensors: Vec<(&str, &QTensor)> = self
            .tensors
            .iter()
            .map(|(name, tensor)| (name.as_str(), tensor))
            .collect();
        gguf_file::write(&mut file, &metadata, &tensors).expect("written");
    }
}

/// The converter's name of a tensor; `None` for experts, which are stacked.
fn name_in_gguf(name: &str, spec: &Spec) -> Option<String> {
    match name {
        "model.embed_tokens.weight" => return Some("token_embd.weight".to_owned()),
        "model.norm.weight" => return Some("output_norm.weight".to_owned()),
        "lm_head.weight" => return Some("output.weight".to_owned()),
        _ => {}
    }
    let (block, rest) = name.strip_prefix("model.layers.")?.split_once('.')?;
    if rest.contains(".experts.") {
        return None;
    }
    let (part, ending) = rest.rsplit_once('.')?;
    let norms = spec.blocks[block.parse::<usize>().ok()?].norms;
    let fused = spec.attention.projections == Projections::Fused;
    let ours = match part {
        "input_layernorm" => "attn_norm",
        "post_attention_layernorm" if norms == Norms::Before => "ffn_norm",
        "post_attention_layernorm" => "post_attention_norm",
        "pre_feedforward_layernorm" => "ffn_norm",
        "post_feedforward_layernorm" => "post_ffw_norm",
        "self_attn.q_proj" => "attn_q",
        "self_attn.k_proj" => "attn_k",
        "self_attn.v_proj" => "attn_v",
        "self_attn.qkv_proj" => "attn_qkv",
        "self_attn.o_proj" => "attn_output",
        "self_attn.q_norm" => "attn_q_norm",
        "self_attn.k_norm" => "attn_k_norm",
        "mlp.gate_proj" => "ffn_gate",
        "mlp.up_proj" => "ffn_up",
        "mlp.gate_up_proj" if fused => "ffn_up",
        "mlp.down_proj" => "ffn_down",
        "mlp.gate" | "block_sparse_moe.gate" => "ffn_gate_inp",
        "mlp.shared_expert.gate_proj" => "ffn_gate_shexp",
        "mlp.shared_expert.up_proj" => "ffn_up_shexp",
        "mlp.shared_expert.down_proj" => "ffn_down_shexp",
        "mlp.shared_expert_gate" => "ffn_gate_inp_shexp",
        other => panic!("{other} has no name in a GGUF"),
    };
    Some(format!("blk.{block}.{ours}.{ending}"))
}
