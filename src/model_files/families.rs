//! The families of models that the embedded engine computes, by the architectures that `config.json` and GGUF files name.

/// A family of decoders; their common description is where it is built.
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

/// Whose names the tensors have.
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
    /// Whether distances of tokens add to the scores of attention, which are then computed as whole matrices.
    pub fn has_relative_positions(self) -> bool {
        self == EncoderFamily::Mpnet
    }
}

/// How the architectures of models end that tell classes of texts apart, of which a reranker has one.
pub const SCORING: &str = "ForSequenceClassification";

/// Each architecture of a decoder that a `config.json` may name.
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

/// Each family of encoders, by the word before `Model`, `ForMaskedLM` or [`SCORING`].
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
    // The name that GTE's own code on the hub has.
    ("New", EncoderFamily::Gte),
];

/// Each architecture of a GGUF that is known, and the one that its `config.json` names.
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

/// The family of a decoder, and whether it has a head for texts: `Qwen3Model` is `Qwen3ForCausalLM` without one, as models that
/// embed texts are stored, and `Qwen3ForSequenceClassification` has one that scores.
pub fn decoder(architecture: &str) -> Option<(DecoderFamily, bool)> {
    let known = |name: &str| DECODERS.iter().find(|(known, _)| *known == name);
    if let Some((_, family)) = known(architecture) {
        return Some((*family, true));
    }
    let stem = match architecture.strip_suffix(SCORING) {
        Some(stem) => stem,
        None => architecture.strip_suffix("Model")?.trim_end_matches("Text"),
    };
    // GPT-2's head has another word.
    ["ForCausalLM", "LMHeadModel"]
        .into_iter()
        .find_map(|head| known(&format!("{stem}{head}")))
        .map(|(_, family)| (*family, false))
}

/// The family of an encoder, and whether it scores pairs of texts.
pub fn encoder(architecture: &str) -> Option<(EncoderFamily, bool)> {
    ENCODERS.iter().find_map(|(word, family)| {
        let rest = architecture.strip_prefix(word)?;
        if ["Model", "ForMaskedLM"].contains(&rest) {
            Some((*family, false))
        } else {
            // NomicBERT has no published reranker, so its head's names are not known.
            (rest == SCORING && *family != EncoderFamily::NomicBert).then_some((*family, true))
        }
    })
}

/// The names of all architectures of encoders, for a message.
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
        for (form, architecture) in GGUF_FORMS {
            assert!(
                decoder(architecture).is_some_and(|(_, has_head)| has_head),
                "{form}"
            );
        }
    }
}
