//! Engine names as used in files, and the error for an unknown name.

use super::engine_fields::{CANDLE, COMMAND};
use super::ray_serve::RAY_SERVE;
use super::remote::REMOTE;
use crate::engines;
use crate::engines::ENGINES;

/// Names end with `Engine` or a similar word, which does not tell engines apart.
const ENDING: &str = "eng";

/// Refuses an unknown engine name; the error lists the known ones.
pub(crate) fn check(name: &str) -> Result<(), String> {
    let is_own = [CANDLE, COMMAND, REMOTE, RAY_SERVE].contains(&name);
    if is_own || engines::find(name).is_some() {
        Ok(())
    } else {
        Err(not_run(name))
    }
}

pub(super) fn what_is_run() -> String {
    let names: Vec<&str> = ENGINES.iter().map(|engine| engine.name()).collect();
    format!(
        "this version supports {CANDLE} (embedded), {}, {REMOTE} (an endpoint of another server), {RAY_SERVE} (an application in Ray Serve), and {COMMAND} (any program with an OpenAI API, started with engine_config.command)",
        names.join(", ")
    )
}

pub(super) fn not_run(name: &str) -> String {
    let hint = match (meant(name), stem(name).as_str()) {
        (Some(near), _) => format!("; did you mean `{near}`?"),
        (None, "ollama" | "lmstudio") => {
            "; its models are GGUF files, which LlamaCppEngine and CandleEngine read".to_owned()
        }
        (None, "transformers" | "huggingface" | "hf") => {
            "; its models are folders of safetensors, which VLLMEngine and CandleEngine read"
                .to_owned()
        }
        (None, _) => String::new(),
    };
    format!(
        "`{}` is not an engine{hint}; {}",
        name.escape_debug(),
        what_is_run()
    )
}

/// The engine with the most similar name, with or without the ending `Engine`.
fn meant(name: &str) -> Option<&'static str> {
    let known = ENGINES.iter().flat_map(|engine| engine.names).copied();
    let known: Vec<(String, &str)> = [CANDLE, COMMAND, REMOTE, RAY_SERVE]
        .into_iter()
        .chain(known)
        .map(|known| (stem(known), known))
        .collect();
    let near = reading::nearest(&stem(name), known.iter().map(|(stem, _)| stem.as_str()))?;
    let found = known.iter().find(|(stem, _)| stem == near);
    found.map(|(_, name)| *name)
}

fn stem(name: &str) -> String {
    let lower = name.to_lowercase();
    let end = lower.rfind(ENDING).unwrap_or(lower.len());
    let stem = &lower[..end];
    stem.replace(['-', '_', '.', ' '], "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelled_engine_gets_the_nearest_name_suggested() {
        for (written, meant) in [
            ("VLLMEngin", "VLLMEngine"),
            ("vllm", "VLLMEngine"),
            ("llama.cpp", "LlamaCppEngine"),
            ("candle-engine", "CandleEngine"),
            ("SgLang", "SGLangEngine"),
        ] {
            let text = check(written).expect_err(written);
            assert!(text.contains(&format!("did you mean `{meant}`?")), "{text}");
        }
        for engine in ["OllamaEngine", "Foo", "Engine", ""] {
            let text = check(engine).expect_err(engine);
            assert!(!text.contains("did you mean"), "{text}");
            assert!(text.contains("CommandEngine"), "{text}");
        }
        assert!(check("OllamaEngine").expect_err("none").contains("GGUF"));
        assert_eq!(check("CandleEngine"), Ok(()));
    }
}
