//! Names of repositories on the hub: `organisation/name`, and `organisation/name:Q4_K_M` for the GGUF file of one
//! quantization.

use crate::documents::{CatalogError, Diagnostics};

pub(crate) const ID: &str = "engine_config.hf_model_id";
/// The hub allows no longer names.
pub(crate) const ID_MAX: usize = 96;
const QUANTIZATION_MAX: usize = 40;

/// Other settings of the model's file that a quantization must agree with.
pub(crate) struct HubNameContext {
    /// The engine's name in files.
    pub engine: &'static str,
    /// The pool fetches a single GGUF file for the engine.
    pub reads_one_gguf: bool,
    pub is_mirrored: bool,
    pub has_gguf_file: bool,
}

/// The name on the hub, and the quantization from a suffix such as `:Q4_K_M`, in upper case.
pub(crate) fn read<'a>(
    id: &'a str,
    around: &HubNameContext,
    notes: &Diagnostics,
) -> Result<(&'a str, Option<String>), CatalogError> {
    let Some((plain, name)) = id.split_once(':') else {
        check_id(id, notes)?;
        return Ok((id, None));
    };
    check_id(plain, notes)?;
    let refuse = |problem: String| Err(notes.refuse(ID, problem));
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let shown = name.escape_debug();
    if name.is_empty() || name.len() > QUANTIZATION_MAX || !name.bytes().all(is_plain) {
        return refuse(format!(
            "`{shown}` after the `:` is not a quantization; write one such as {plain}:Q4_K_M"
        ));
    }
    if !around.reads_one_gguf {
        return refuse(format!(
            "has `:{shown}`, which chooses a GGUF file, and the pool fetches none for {}; use CandleEngine or LlamaCppEngine, or remove it",
            around.engine
        ));
    }
    if around.is_mirrored {
        return refuse(format!(
            "has `:{shown}`, and the weights come from a mirror; name the file in engine_config.gguf_file instead"
        ));
    }
    if around.has_gguf_file {
        return refuse(format!(
            "has `:{shown}`, and engine_config.gguf_file names a file; write one of them"
        ));
    }
    Ok((plain, Some(name.to_ascii_uppercase())))
}

fn check_id(id: &str, notes: &Diagnostics) -> Result<(), CatalogError> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let is_part = |part: &str| {
        !part.is_empty()
            && !part.starts_with(['.', '-'])
            && !part.contains("..")
            && !part.contains("--")
            && !part.ends_with(['.', '-'])
            && part.bytes().all(is_plain)
    };
    if id.len() <= ID_MAX && id.split('/').count() <= 2 && id.split('/').all(is_part) {
        return Ok(());
    }
    Err(notes.refuse(ID, format!("`{}` is not a name on the hub: organisation/name, of at most {ID_MAX} letters, digits and `-_.`, without `--` and `..`; a folder is named in engine_config.model_path", id.escape_debug())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(id: &str, around: &HubNameContext) -> Result<(String, Option<String>), String> {
        let notes = Diagnostics::new("m.yaml".to_owned());
        let read = read(id, around, &notes);
        let read = read.map(|(plain, name)| (plain.to_owned(), name));
        read.map_err(|error| error.to_string())
    }

    fn candle() -> HubNameContext {
        HubNameContext {
            engine: "CandleEngine",
            reads_one_gguf: true,
            is_mirrored: false,
            has_gguf_file: false,
        }
    }

    #[test]
    fn a_quantization_follows_a_colon() {
        let both = |name: Option<&str>| Ok(("org/m".to_owned(), name.map(str::to_owned)));
        assert_eq!(one("org/m", &candle()), both(None));
        assert_eq!(one("org/m:q4_k_m", &candle()), both(Some("Q4_K_M")));
        for wrong in ["org/m:", "org/m:a b", "org/m:a:b", "a b:Q8_0", ":Q8_0"] {
            assert!(one(wrong, &candle()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_quantization_suffix_that_conflicts_with_other_keys_is_refused() {
        let refused = |around: HubNameContext| one("org/m:Q8_0", &around).expect_err("refused");
        let vllm = refused(HubNameContext {
            engine: "VLLMEngine",
            reads_one_gguf: false,
            ..candle()
        });
        assert!(
            vllm.contains("VLLMEngine") && vllm.contains("hf_model_id"),
            "{vllm}"
        );
        let mirrored = refused(HubNameContext {
            is_mirrored: true,
            ..candle()
        });
        assert!(mirrored.contains("mirror"), "{mirrored}");
        let twice = refused(HubNameContext {
            has_gguf_file: true,
            ..candle()
        });
        assert!(twice.contains("gguf_file"), "{twice}");
    }
}
