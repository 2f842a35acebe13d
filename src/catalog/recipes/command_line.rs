//! Looks up options of engines in a command line and its variables.

use std::collections::BTreeMap;

use crate::engines::EngineKind;
use model_files::{NumberWidth, gguf_types};

/// A rendered command with its variables.
#[derive(Default)]
pub(super) struct CommandLine {
    pub(super) argv: Vec<String>,
    pub(super) env: BTreeMap<String, String>,
}

/// The file name of a program.
pub(super) fn base(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

impl CommandLine {
    pub(super) fn kind(&self) -> EngineKind {
        for word in &self.argv {
            let image = word.split(':').next().unwrap_or(word);
            let kind = match base(word) {
                "vllm" => EngineKind::Vllm,
                "llama-server" | "llama-server.exe" => EngineKind::LlamaCpp,
                "sglang" | "sglang_router" => EngineKind::Sglang,
                "text-generation-launcher" | "text-generation-server" => EngineKind::Tgi,
                module if module.starts_with("vllm.entrypoints.") => EngineKind::Vllm,
                module if module.starts_with("sglang.launch_server") => EngineKind::Sglang,
                module if module.starts_with("llama_cpp.server") => EngineKind::LlamaCpp,
                _ if image.ends_with("vllm/vllm-openai") => EngineKind::Vllm,
                _ if image.ends_with("lmsysorg/sglang") => EngineKind::Sglang,
                _ if image.ends_with("huggingface/text-generation-inference") => EngineKind::Tgi,
                _ if image.ends_with("ggml-org/llama.cpp") => EngineKind::LlamaCpp,
                _ => continue,
            };
            return kind;
        }
        EngineKind::Other
    }

    /// The value of the last option with any of these names, written `--name value` or `--name=value`, with `-` or `_` inside; or
    /// else the value of the variable.
    pub(super) fn option(&self, names: &[&str], variable: &str) -> Option<&str> {
        let is_named = |word: &str| names.contains(&Self::canonical(word).as_str());
        let mut found = None;
        for (index, word) in self.argv.iter().enumerate() {
            if is_named(word) {
                found = self.argv.get(index + 1).map(String::as_str);
            } else if let Some((name, value)) = word.split_once('=')
                && is_named(name)
            {
                found = Some(value);
            }
        }
        found.or_else(|| self.env.get(variable).map(String::as_str))
    }

    /// A long option with `-` instead of `_`.
    pub(super) fn canonical(word: &str) -> String {
        if word.starts_with("--") {
            word.replace('_', "-")
        } else {
            word.to_owned()
        }
    }

    /// The value of a switch: the last of its two forms on the command line, or else its variable.
    pub(super) fn switch(
        &self,
        on: &[&str],
        off: &[&str],
        [variable, inverse]: [&str; 2],
        usual: bool,
    ) -> bool {
        let last = self.argv.iter().rev().find_map(|word| {
            let word = Self::canonical(word);
            let is_on = on.contains(&word.as_str());
            (is_on || off.contains(&word.as_str())).then_some(is_on)
        });
        let in_variable = || {
            if self.env.contains_key(inverse) {
                return Some(false);
            }
            let text = self.env.get(variable)?;
            Some(matches!(text.as_str(), "on" | "enabled" | "true" | "1"))
        };
        last.or_else(in_variable).unwrap_or(usual)
    }

    pub(super) fn number(&self, names: &[&str], variable: &str) -> Option<u64> {
        count(self.option(names, variable)?).filter(|number| *number > 0)
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.argv.iter().any(|word| word.replace('_', "-") == name)
    }

    pub(super) fn fraction(&self, names: &[&str], variable: &str) -> Option<u32> {
        let fraction: f64 = self.option(names, variable)?.parse().ok()?;
        // At most 1,000.
        (fraction > 0.0 && fraction <= 1.0).then(|| (fraction * 1000.0).round() as u32)
    }

    pub(super) fn llama_width(&self, names: &[&str], variable: &str) -> NumberWidth {
        let named = self
            .option(names, variable)
            .and_then(gguf_types::bytes_of_256);
        named.map_or(NumberWidth::TWO_BYTES, NumberWidth)
    }

    pub(super) fn width(&self, names: &[&str]) -> NumberWidth {
        match self.option(names, "") {
            Some(name) if name.starts_with("fp8") || name == "int8" => NumberWidth::ONE_BYTE,
            Some(name) if name.starts_with("fp4") || name.starts_with("nvfp4") => NumberWidth(144),
            Some("float32" | "float") => NumberWidth::FOUR_BYTES,
            _ => NumberWidth::TWO_BYTES,
        }
    }
}

/// Parses an integer as engines write it: `4096`, `32k` (thousands), `32K` (1024).
fn count(text: &str) -> Option<u64> {
    let (digits, factor) = match text.char_indices().next_back()? {
        (end, 'k') => (&text[..end], 1000),
        (end, 'K') => (&text[..end], 1 << 10),
        (end, 'm') => (&text[..end], 1_000_000),
        (end, 'M') => (&text[..end], 1 << 20),
        (end, 'g') => (&text[..end], 1_000_000_000),
        (end, 'G') => (&text[..end], 1 << 30),
        _ => (text, 1),
    };
    digits.parse::<u64>().ok()?.checked_mul(factor)
}
