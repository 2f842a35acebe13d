//! Combines a query and a document into the tokens of one text.
//!
//! For cross-encoders, the tokenizer joins the pair. Decoders read a prompt: the chat template applied to a message with the role
//! `query` and one with the role `document`, as in Sentence Transformers, or otherwise the prompt on Qwen3-Reranker's model card.

use super::network::Sequence;
use super::purpose::{ScoreBy, ScorePlan};
use super::texts::{Cut, Texts, check_text};
use crate::api_error::ApiError;
use crate::error::EngineError;
use crate::files::ModelFiles;
use crate::loading::LoadedModel;
use serde_json::{Value, json};
use std::sync::Arc;

const BEFORE: &str = "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct provided. Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n<|im_start|>user\n";
const AFTER: &str = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n";
const INSTRUCTION: &str =
    "Given a web search query, retrieve relevant passages that answer the query";
const MARK: &str = "<|im_start|>";
/// Beginning of a query for which the client has built the prompt itself, as model cards show for other servers.
const WORDED: &str = "<|im_start|>system\n";

/// The way a query and a document become one sequence.
pub(crate) enum Wording {
    /// Joined by the tokenizer.
    Pair,
    /// Wrapped in Qwen3-Reranker's prompt.
    Judge { before: Vec<u32>, after: Vec<u32> },
    /// Wrapped in the model's own chat template.
    Template(Template),
}

/// A chat template with placeholders for a query and a document.
pub(crate) struct Template {
    model: Arc<LoadedModel>,
    begins_response: bool,
    /// The tokens after every document.
    after: Vec<u32>,
}

/// A query and a document, each with its name in errors, and the instruction for the prompt.
#[derive(Clone, Copy)]
pub(crate) struct Pair<'a> {
    pub query: (&'a str, &'a str),
    pub document: (&'a str, &'a str),
    pub instruction: Option<&'a str>,
}

impl Wording {
    /// Chooses the prompt of a decoder.
    ///
    /// # Errors
    /// If the model needs a prompt and has none.
    pub fn of_decoder(
        model: &Arc<LoadedModel>,
        texts: &Texts,
        plan: &ScorePlan,
        files: &ModelFiles,
    ) -> Result<Self, EngineError> {
        let begins_response = plan.begins_response;
        let template = Template {
            model: Arc::clone(model),
            begins_response,
            after: Vec::new(),
        };
        if let Some(after) = template.tokens_after(texts) {
            return Ok(Self::Template(Template { after, ..template }));
        }
        // A converted Qwen3-Reranker has a scoring row and still its chat template. Models trained to score plain pairs need no
        // prompt.
        let is_converted =
            files.spec()?.architecture.starts_with("Qwen3") && model.template.is_some();
        if plan.by == ScoreBy::Row && !is_converted {
            return Ok(Self::Pair);
        }
        if model.tokenizer.special_token(MARK).is_none() {
            return Err(EngineError::model(
                files.description(),
                format!(
                    "its chat template has no places for a query and a document, and its tokenizer has no {MARK}, which the prompt of Qwen3-Reranker needs"
                ),
                "serve a reranker, or leave the option task out",
            ));
        }
        let tokens = |text| {
            let tokens = texts.tokens(text, "prompt");
            tokens.map_err(|error| EngineError::load(error.message))
        };
        Ok(Self::Judge {
            before: tokens(BEFORE)?,
            after: tokens(AFTER)?,
        })
    }

    /// Returns true if the prompt has a place for an instruction.
    pub fn takes_instruction(&self) -> bool {
        !matches!(self, Self::Pair)
    }

    /// Builds the tokens of a pair; returns `None` if the tokenizer joins pairs.
    ///
    /// # Errors
    /// 400 if the texts are empty or too long.
    pub fn sequence(
        &self,
        texts: &Texts,
        pair: Pair<'_>,
        cut: Cut,
    ) -> Result<Option<Sequence>, ApiError> {
        let (query, query_name) = pair.query;
        let (document, document_name) = pair.document;
        check_text(query, query_name)?;
        check_text(document, document_name)?;
        let what = format!("`{query_name}` and `{document_name}` in the model's prompt");
        let own = texts.prompts.named(None)?;
        let own = Some(own).filter(|own| !own.is_empty());
        let instruction = pair.instruction.or(own);
        let (before, tokens, after) = match self {
            Self::Pair => return Ok(None),
            _ if query.starts_with(WORDED) => {
                let text = format!("{query}{document}");
                (&[][..], texts.tokens(&text, document_name)?, &[][..])
            }
            Self::Judge { before, after } => {
                let instruction = instruction.unwrap_or(INSTRUCTION);
                let text =
                    format!("<Instruct>: {instruction}\n<Query>: {query}\n<Document>: {document}");
                let tokens = texts.tokens(&text, document_name)?;
                (before.as_slice(), tokens, after.as_slice())
            }
            Self::Template(template) => {
                let text = template.render(query, document, instruction)?;
                let mut tokens = texts.tokens(&text, document_name)?;
                let after = template.after.as_slice();
                // The document may merge with the text after it; then no trailing tokens are protected from truncation.
                let after = if tokens.ends_with(after) { after } else { &[] };
                tokens.truncate(tokens.len() - after.len());
                (&[][..], tokens, after)
            }
        };
        texts
            .between(before, tokens, after, cut, document_name, &what)
            .map(Some)
    }
}

impl Template {
    fn render(
        &self,
        query: &str,
        document: &str,
        instruction: Option<&str>,
    ) -> Result<String, ApiError> {
        let template = self.model.template.as_ref();
        let template =
            template.ok_or_else(|| ApiError::internal("the model's chat template is missing"))?;
        let message = |role: &str, text: &str| json!({"role": role, "content": text});
        let system = instruction.map(|instruction| message("system", instruction));
        let pair = [message("query", query), message("document", document)];
        let messages: Vec<Value> = system.into_iter().chain(pair).collect();
        template.render_as(&messages, self.begins_response)
    }

    /// Returns the tokens after every document if the template places both texts, otherwise `None`.
    fn tokens_after(&self, texts: &Texts) -> Option<Vec<u32>> {
        // Strings that occur in no template.
        const QUERY: &str = "qzvk";
        const DOCUMENTS: [&str; 2] = ["wxjq", "7 kzyx"];
        self.model.template.as_ref()?;
        let prompts = DOCUMENTS.map(|document| {
            let text = self.render(QUERY, document, None).ok()?;
            let has_both = text.contains(QUERY) && text.contains(document);
            has_both.then(|| texts.tokens(&text, "prompt").ok())?
        });
        let [Some(one), Some(other)] = prompts else {
            return None;
        };
        let same = one.iter().rev().zip(other.iter().rev());
        let count = same.take_while(|(one, other)| one == other).count();
        Some(one[one.len() - count..].to_vec())
    }
}
