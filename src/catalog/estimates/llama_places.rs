//! Finds the place of every tensor of a llama.cpp model: a GPU of the replica, or the host.

use regex::bytes::{Regex, RegexBuilder};

use crate::recipes::{Offload, Pattern, SplitMode, Target};
use model_files::Architecture;

/// Limit of a compiled pattern. The engine's time is linear in the text whatever the pattern.
const PATTERN_BYTES_MAX: usize = 1 << 18;
/// Longest pattern that is compiled.
const PATTERN_LENGTH_MAX: usize = 8192;
/// Maximum patterns that are named in warnings.
const GUESSES_MAX: usize = 4;

/// Tensors that are only looked up, by the beginning of their names (`LLM_TENSOR_LAYER_INPUT`).
const INPUTS: [&str; 5] = [
    "token_embd.",
    "position_embd.",
    "token_types.",
    "per_layer_token_embd.",
    "masked_embd",
];
/// Tensors after the last layer (`LLM_TENSOR_LAYER_OUTPUT`).
const OUTPUTS: [&str; 6] = ["output", "cls", "dense_", "altup_", "hc_head", "dec.output"];

/// Bytes by place.
#[derive(Clone, Debug, Default)]
pub(super) struct Sums {
    pub devices: Vec<u64>,
    pub host: u64,
    /// The part of `host` that consists of weights.
    pub host_weights: u64,
}

impl Sums {
    pub fn add(&mut self, place: Option<usize>, bytes: u64) {
        let sum = match place {
            Some(device) => &mut self.devices[device],
            None => &mut self.host,
        };
        *sum = sum.saturating_add(bytes);
    }

    pub fn add_weights(&mut self, place: Option<usize>, bytes: u64) {
        self.add(place, bytes);
        if place.is_none() {
            self.host_weights = self.host_weights.saturating_add(bytes);
        }
    }
}

/// The places of a model's layers, and of the tensors that options put in another place.
pub(super) struct Places<'a> {
    pub offload: &'a Offload,
    /// All layers of the file; the output is the layer after them.
    pub blocks: u64,
    /// The layers with a cache; later ones predict additional tokens.
    cached: u64,
    /// All GPUs of the replica, including unused ones.
    pub count: usize,
    /// The usable GPUs, in order, with the end of each part of the layers, from 0 to 1.
    pub parts: Vec<(usize, f64)>,
    /// Compiled patterns, in the order of the options. `None`: the pattern cannot be evaluated.
    patterns: Vec<Option<Regex>>,
    /// Patterns that cannot be evaluated.
    pub guesses: Vec<String>,
}

impl<'a> Places<'a> {
    pub fn new(offload: &'a Offload, architecture: &Architecture, count: usize) -> Places<'a> {
        let mut guesses = Vec::new();
        let patterns = offload.overrides.iter().map(|tensors| {
            let pattern = &tensors.pattern;
            let compiled = compile(pattern);
            compiled
                .map_err(|problem| {
                    guesses.push(format!(
                        "the pattern `{}` of --override-tensor cannot be evaluated ({problem}); its tensors count on both sides",
                        shortened(pattern.regex())
                    ));
                })
                .ok()
        });
        let patterns = patterns.collect();
        guesses.truncate(GUESSES_MAX);
        let usable = offload.devices.map_or(count, |usable| usable.min(count));
        Places {
            offload,
            blocks: architecture.blocks,
            cached: architecture.each_layer.len() as u64,
            count,
            parts: parts(offload, usable),
            patterns,
            guesses,
        }
    }

    /// The GPU of a layer; the output is the layer after the last one.
    pub fn device_of(&self, layer: u64) -> Option<usize> {
        let all = self.blocks + 1;
        let on_gpus = self.offload.gpu_layers.unwrap_or(all).min(all);
        let first = all - on_gpus;
        if self.parts.is_empty() || layer < first {
            return None;
        }
        let position = (layer - first) as f64 / on_gpus as f64;
        let found = self.parts.iter().find(|(_, end)| *end > position);
        found.or(self.parts.last()).map(|(device, _)| *device)
    }

    /// The place of a tensor without overrides: a layer, or `None` for tensors that stay on the host.
    pub fn layer_of(&self, name: &str) -> Option<u64> {
        if INPUTS.iter().any(|prefix| name.starts_with(prefix)) {
            return None;
        }
        if let Some(layer) = layer_in(name) {
            return Some(layer);
        }
        if OUTPUTS.iter().any(|prefix| name.starts_with(prefix)) {
            return Some(self.blocks);
        }
        Some(0)
    }

    /// The place that an override sets. `Err`: it depends on a pattern that cannot be evaluated.
    pub fn overridden(&self, name: &str) -> Result<Option<Target>, ()> {
        let layer = layer_in(name);
        for (tensors, compiled) in self.offload.overrides.iter().zip(&self.patterns) {
            if !tensors.pattern.applies_to(layer) {
                continue;
            }
            match compiled {
                Some(regex) if regex.is_match(name.as_bytes()) => return Ok(Some(tensors.target)),
                Some(_) => {}
                None => return Err(()),
            }
        }
        Ok(None)
    }

    /// Returns true for a layer that predicts additional tokens, unless it is used.
    pub fn is_skipped(&self, layer: u64) -> bool {
        let is_further = (self.cached..self.blocks).contains(&layer);
        !self.offload.predicts && self.cached > 0 && is_further
    }

    /// Divides bytes over the usable GPUs in their proportions.
    pub fn divide(&self, sums: &mut Sums, bytes: u64) {
        let mut begin = 0.0;
        for (device, end) in &self.parts {
            let part = (bytes as f64 * (end - begin)).ceil() as u64;
            sums.add(Some(*device), part);
            begin = *end;
        }
    }
}

/// The usable GPUs with the ends of their parts.
fn parts(offload: &Offload, usable: usize) -> Vec<(usize, f64)> {
    if usable == 0 {
        return Vec::new();
    }
    if offload.split == SplitMode::None {
        return vec![(offload.main_gpu.min(usable - 1), 1.0)];
    }
    let proportion = |device: usize| match offload.proportions.as_slice() {
        [] => 1.0,
        proportions => proportions.get(device).copied().unwrap_or(0.0),
    };
    let sum: f64 = (0..usable).map(proportion).sum();
    if sum <= 0.0 {
        return vec![(0, 1.0)];
    }
    let mut end = 0.0;
    let parts = (0..usable).map(|device| {
        end += proportion(device);
        (device, proportion(device), end / sum)
    });
    parts
        .filter(|(_, proportion, _)| *proportion > 0.0)
        .map(|(device, _, end)| (device, end))
        .collect()
}

/// The number after `blk.`.
fn layer_in(name: &str) -> Option<u64> {
    let (_, rest) = name.split_once("blk.")?;
    rest.split('.').next()?.parse().ok()
}

/// Compiles a pattern, with limits for untrusted text.
fn compile(pattern: &Pattern) -> Result<Regex, String> {
    let text = pattern.regex();
    if text.len() > PATTERN_LENGTH_MAX {
        return Err(format!(
            "it has {} bytes; at most {PATTERN_LENGTH_MAX} are read",
            text.len()
        ));
    }
    RegexBuilder::new(text)
        .size_limit(PATTERN_BYTES_MAX)
        .unicode(false)
        .build()
        .map_err(|error| {
            let text = error.to_string();
            let last = text.lines().last().unwrap_or_default();
            last.trim_start_matches("error: ").to_owned()
        })
}

/// A pattern for a message, on at most one line.
fn shortened(text: &str) -> String {
    match text.char_indices().nth(80) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}
