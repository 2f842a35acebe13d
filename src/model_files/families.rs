//! The model families that the embedded engine supports, by the architecture names in `config.json` and GGUF files.

/// A family of decoders. The code that builds them has the common description.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecoderFamily {
    Llama,
    Mistral,
    Mixtral,
    Qwen2,
    Qwen2Moe,
    Qwen3,
    Qwen3Moe,
    Gemma,
    Gemma2,
    Gemma3,
    Phi3,
    SmolLm3,
    Olmo2,
    Granite,
    DeepseekV2,
    DeepseekV3,
    GptJ,
    GptNeoX,
    Gpt2,
}

/// A family of decoders that the embedded engine computes one sequence at a time, on the operations of candle's library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LibraryFamily {
    Falcon,
    Glm4,
    /// StarCoder and SantaCoder.
    GptBigCode,
    Lfm2,
    Mamba,
    Mamba2,
    /// Marian's translators, such as opus-mt.
    Marian,
    Mpt,
    Olmo,
    /// Reads images too.
    PaddleOcrVl,
    /// Phi 1, 1.5 and 2.
    Phi,
    /// Reads images too.
    Qwen3Vl,
    StableLm,
    Starcoder2,
    /// T5 and FLAN-T5, which encode a text and write another one.
    T5,
}

impl LibraryFamily {
    /// Returns true if the model encodes a text and writes a separate one, each of half the context.
    pub fn encodes(self) -> bool {
        matches!(self, LibraryFamily::Marian | LibraryFamily::T5)
    }
}

/// A family of encoders, which determines the names of the tensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EncoderFamily {
    /// RoBERTa, XLM-RoBERTa and CamemBERT use the same names.
    Bert,
    DistilBert,
    Mpnet,
    ModernBert,
    NomicBert,
    Gte,
}

impl EncoderFamily {
    /// Returns true if attention scores include token distances. Scores are then computed as full matrices.
    pub fn has_relative_positions(self) -> bool {
        self == EncoderFamily::Mpnet
    }
}

/// The suffix of architectures for text classification; rerankers are models with a single class.
pub const SCORING: &str = "ForSequenceClassification";

/// The architecture of models that transcribe speech.
pub const WHISPER: &str = "WhisperForConditionalGeneration";

/// Decoder architectures that a `config.json` may name.
pub const DECODERS: [(&str, DecoderFamily); 21] = [
    ("LlamaForCausalLM", DecoderFamily::Llama),
    ("MistralForCausalLM", DecoderFamily::Mistral),
    ("Mistral3ForConditionalGeneration", DecoderFamily::Mistral),
    ("MixtralForCausalLM", DecoderFamily::Mixtral),
    ("Qwen2ForCausalLM", DecoderFamily::Qwen2),
    ("Qwen2MoeForCausalLM", DecoderFamily::Qwen2Moe),
    ("Qwen3ForCausalLM", DecoderFamily::Qwen3),
    ("Qwen3MoeForCausalLM", DecoderFamily::Qwen3Moe),
    ("GemmaForCausalLM", DecoderFamily::Gemma),
    ("Gemma2ForCausalLM", DecoderFamily::Gemma2),
    ("Gemma3ForCausalLM", DecoderFamily::Gemma3),
    ("Gemma3ForConditionalGeneration", DecoderFamily::Gemma3),
    ("Phi3ForCausalLM", DecoderFamily::Phi3),
    ("SmolLM3ForCausalLM", DecoderFamily::SmolLm3),
    ("Olmo2ForCausalLM", DecoderFamily::Olmo2),
    ("GraniteForCausalLM", DecoderFamily::Granite),
    ("DeepseekV2ForCausalLM", DecoderFamily::DeepseekV2),
    ("DeepseekV3ForCausalLM", DecoderFamily::DeepseekV3),
    ("GPTJForCausalLM", DecoderFamily::GptJ),
    ("GPTNeoXForCausalLM", DecoderFamily::GptNeoX),
    ("GPT2LMHeadModel", DecoderFamily::Gpt2),
];

/// Decoder architectures that the library computes. They generate text; other tasks need the families in [`DECODERS`].
pub const LIBRARY_DECODERS: [(&str, LibraryFamily); 16] = [
    ("FalconForCausalLM", LibraryFamily::Falcon),
    // The name in Falcon's first files.
    ("RWForCausalLM", LibraryFamily::Falcon),
    ("Glm4ForCausalLM", LibraryFamily::Glm4),
    ("GPTBigCodeForCausalLM", LibraryFamily::GptBigCode),
    ("Lfm2ForCausalLM", LibraryFamily::Lfm2),
    ("MambaForCausalLM", LibraryFamily::Mamba),
    ("Mamba2ForCausalLM", LibraryFamily::Mamba2),
    ("MarianMTModel", LibraryFamily::Marian),
    ("MptForCausalLM", LibraryFamily::Mpt),
    ("OlmoForCausalLM", LibraryFamily::Olmo),
    (
        "PaddleOCRVLForConditionalGeneration",
        LibraryFamily::PaddleOcrVl,
    ),
    ("PhiForCausalLM", LibraryFamily::Phi),
    ("Qwen3VLForConditionalGeneration", LibraryFamily::Qwen3Vl),
    ("StableLmForCausalLM", LibraryFamily::StableLm),
    ("Starcoder2ForCausalLM", LibraryFamily::Starcoder2),
    ("T5ForConditionalGeneration", LibraryFamily::T5),
];

/// Encoder families, by the word before `Model`, `ForMaskedLM` or [`SCORING`].
pub const ENCODERS: [(&str, EncoderFamily); 10] = [
    ("Bert", EncoderFamily::Bert),
    ("Roberta", EncoderFamily::Bert),
    ("XLMRoberta", EncoderFamily::Bert),
    ("Camembert", EncoderFamily::Bert),
    ("DistilBert", EncoderFamily::DistilBert),
    ("MPNet", EncoderFamily::Mpnet),
    ("ModernBert", EncoderFamily::ModernBert),
    ("NomicBert", EncoderFamily::NomicBert),
    ("Gte", EncoderFamily::Gte),
    // The name in GTE's own code on the hub.
    ("New", EncoderFamily::Gte),
];

/// Supported GGUF architectures, with their equivalents in `config.json`.
pub const GGUF_FORMS: [(&str, &str); 13] = [
    ("llama", "LlamaForCausalLM"),
    ("mistral3", "LlamaForCausalLM"),
    ("qwen2", "Qwen2ForCausalLM"),
    ("qwen2moe", "Qwen2MoeForCausalLM"),
    ("qwen3", "Qwen3ForCausalLM"),
    ("qwen3moe", "Qwen3MoeForCausalLM"),
    ("gemma", "GemmaForCausalLM"),
    ("gemma2", "Gemma2ForCausalLM"),
    ("gemma3", "Gemma3ForCausalLM"),
    ("phi3", "Phi3ForCausalLM"),
    ("smollm3", "SmolLM3ForCausalLM"),
    ("olmo2", "Olmo2ForCausalLM"),
    ("granite", "GraniteForCausalLM"),
];

/// Returns a decoder's family, and whether it has a language-model head. `Qwen3Model` is `Qwen3ForCausalLM` without a head, the
/// form of models that embed texts; `Qwen3ForSequenceClassification` has a head for scores.
pub fn decoder(architecture: &str) -> Option<(DecoderFamily, bool)> {
    let known = |name: &str| DECODERS.iter().find(|(known, _)| *known == name);
    if let Some((_, family)) = known(architecture) {
        return Some((*family, true));
    }
    let stem = match architecture.strip_suffix(SCORING) {
        Some(stem) => stem,
        None => architecture.strip_suffix("Model")?.trim_end_matches("Text"),
    };
    // GPT-2's head has a different suffix.
    ["ForCausalLM", "LMHeadModel"]
        .into_iter()
        .find_map(|head| known(&format!("{stem}{head}")))
        .map(|(_, family)| (*family, false))
}

/// Returns the family of a decoder that the library computes.
pub fn library_decoder(architecture: &str) -> Option<LibraryFamily> {
    let mut known = LIBRARY_DECODERS.iter();
    known
        .find(|(name, _)| *name == architecture)
        .map(|(_, family)| *family)
}

/// The names of all decoder architectures, for a message.
pub fn known_decoders() -> String {
    let own = DECODERS.iter().map(|(name, _)| *name);
    let library = LIBRARY_DECODERS.iter().map(|(name, _)| *name);
    own.chain(library).collect::<Vec<_>>().join(", ")
}

/// Returns an encoder's family, and whether it scores pairs of texts.
pub fn encoder(architecture: &str) -> Option<(EncoderFamily, bool)> {
    ENCODERS.iter().find_map(|(word, family)| {
        let rest = architecture.strip_prefix(word)?;
        if ["Model", "ForMaskedLM"].contains(&rest) {
            Some((*family, false))
        } else {
            // NomicBERT has no published reranker, so the names in its head are unknown.
            (rest == SCORING && *family != EncoderFamily::NomicBert).then_some((*family, true))
        }
    })
}

/// The names of all encoder architectures, for a message.
pub fn known_encoders() -> String {
    let names = ENCODERS.iter().map(|(word, _)| format!("{word}Model"));
    format!(
        "{}; the same with {SCORING} rank",
        names.collect::<Vec<_>>().join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_architecture_belongs_to_one_family_and_has_one_purpose() {
        assert_eq!(
            decoder("Qwen3ForCausalLM"),
            Some((DecoderFamily::Qwen3, true))
        );
        assert_eq!(
            decoder("Gemma3TextModel"),
            Some((DecoderFamily::Gemma3, false))
        );
        assert_eq!(
            decoder("Qwen3ForSequenceClassification"),
            Some((DecoderFamily::Qwen3, false))
        );
        assert_eq!(decoder("GPT2Model"), Some((DecoderFamily::Gpt2, false)));
        assert_eq!(
            encoder("XLMRobertaForSequenceClassification"),
            Some((EncoderFamily::Bert, true))
        );
        assert_eq!(
            encoder("NomicBertModel"),
            Some((EncoderFamily::NomicBert, false))
        );
        assert_eq!(encoder("NomicBertForSequenceClassification"), None);
        for (word, _) in ENCODERS {
            assert_eq!(decoder(&format!("{word}Model")), None, "{word}");
        }
        for (name, family) in LIBRARY_DECODERS {
            assert_eq!(library_decoder(name), Some(family));
            assert_eq!(decoder(name), None, "{name} has two paths");
        }
        for (form, architecture) in GGUF_FORMS {
            assert!(
                decoder(architecture).is_some_and(|(_, has_head)| has_head),
                "{form}"
            );
        }
    }
}
