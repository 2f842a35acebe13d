//! Decides what a decoder serves, from its files and an option: text, vectors or scores.
//!
//! ```text
//!   XForSequenceClassification                                                      ranks, by `score.weight`
//!   a module LogitScore, `classifier_from_token` or `is_original_qwen3_reranker`
//!   in config.json, a CrossEncoder in config_sentence_transformers.json             ranks, by the logits of one or two tokens
//!   modules.json, 1_Pooling/config.json, XModel, a pooling type of a GGUF           vectors
//!   anything else                                                                   texts
//! ```
//!
//! The files of the original Qwen3-Reranker look like a text generator, so it needs the option.

use super::pooling::{PoolingPlan, Reduction};
use crate::error::EngineError;
use crate::files::{HEAD, ModelFiles, read_json};
use crate::options::Task;
use model_files::families::{self, SCORING};
use serde_json::Value;

/// The output a decoder is served for.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Purpose {
    Texts,
    Vectors(PoolingPlan),
    Scores(ScorePlan),
}

/// The computation of a score from a query and a document.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ScorePlan {
    pub by: ScoreBy,
    /// Scores pass through a sigmoid unless the request decides.
    pub shows_probability: bool,
    /// The chat template adds the generation prompt (`add_generation_prompt`).
    pub begins_response: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ScoreBy {
    /// `score.weight`: the product of its row with the last hidden state.
    Row,
    /// The logit of one token, minus that of another if given.
    Tokens {
        yes: NamedToken,
        no: Option<NamedToken>,
    },
}

/// A token as named in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NamedToken {
    Id(u32),
    Text(String),
}

impl std::fmt::Display for NamedToken {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Id(id) => write!(formatter, "{id}"),
            Self::Text(text) => write!(formatter, "{text:?}"),
        }
    }
}

/// The files of a decoder that indicate its purpose.
struct PurposeFiles<'a> {
    files: &'a ModelFiles,
    config: &'a Value,
    /// `modules.json`.
    modules: Option<Value>,
    /// `config_sentence_transformers.json`.
    sentences: Value,
    /// `sentence_bert_config.json`.
    transformer: Value,
}

const MODULES: &str = "modules.json";
const SENTENCES: &str = "config_sentence_transformers.json";
const TRANSFORMER: &str = "sentence_bert_config.json";
const POOLING: &str = "1_Pooling/config.json";

impl Purpose {
    /// Determines what a decoder is served for.
    ///
    /// # Errors
    /// If the files contradict the option or each other, or require something this engine does not compute.
    pub fn new(files: &ModelFiles, task: Option<Task>) -> Result<Self, EngineError> {
        let folder = files.folder();
        let beside = |name: &str| {
            if files.is_gguf() {
                Ok(None)
            } else {
                read_json(&folder.join(name))
            }
        };
        let files_beside = PurposeFiles {
            files,
            config: files.config(),
            modules: beside(MODULES)?,
            sentences: beside(SENTENCES)?.unwrap_or_default(),
            transformer: beside(TRANSFORMER)?.unwrap_or_default(),
        };
        let task = task.map_or_else(|| files_beside.task(), Ok)?;
        match task {
            Task::Generate => files_beside.texts(),
            Task::Embed => files_beside.vectors().map(Self::Vectors),
            Task::Rerank => files_beside.scores().map(Self::Scores),
        }
    }
}

impl PurposeFiles<'_> {
    /// The task that the files indicate.
    fn task(&self) -> Result<Task, EngineError> {
        let names_tokens = self.config["classifier_from_token"].is_array()
            || self.config["is_original_qwen3_reranker"] == true;
        let is_cross_encoder = self.sentences["model_type"] == "CrossEncoder";
        if self.has_score() || names_tokens || is_cross_encoder || self.logit_score().is_some() {
            return Ok(Task::Rerank);
        }
        if self.modules.is_some() || self.has_pooling() || !self.has_head() {
            return Ok(Task::Embed);
        }
        match self.files.gguf_pooling() {
            None | Some(0) => Ok(Task::Generate),
            Some(1..=3) => Ok(Task::Embed),
            Some(kind) => Err(self.wrong(
                format!("its pooling_type is {kind}; this engine reads 1 (mean), 2 (first token) and 3 (last token) of GGUF files"),
                "serve the model's safetensors",
            )),
        }
    }

    fn architecture(&self) -> &str {
        let spec = self.files.spec();
        spec.map_or("", |spec| &spec.architecture)
    }

    fn has_score(&self) -> bool {
        self.architecture().ends_with(SCORING)
    }

    /// Returns true if the model was saved with a language-model head.
    fn has_head(&self) -> bool {
        // The suffix of the name is not sufficient: `GPT2LMHeadModel` has a head.
        let known = families::decoder(self.architecture());
        let is_headless = known.is_some_and(|(_, has_head)| !has_head);
        !is_headless && !self.has_score() && !self.files.lacks_head()
    }

    /// Returns true if the embedding doubles as the head.
    fn is_tied(&self) -> bool {
        let families_tied = ["Gemma", "SmolLM3"];
        let mut tied = families_tied.iter();
        match self.config["tie_word_embeddings"].as_bool() {
            Some(is_tied) => is_tied,
            None => tied.any(|family| self.architecture().starts_with(family)),
        }
    }

    fn has_pooling(&self) -> bool {
        !self.files.is_gguf() && self.files.folder().join(POOLING).is_file()
    }

    fn wrong(&self, problem: String, remedy: &str) -> EngineError {
        EngineError::model(self.files.description(), problem, remedy)
    }

    /// Finds a module of this kind in `modules.json`.
    fn module(&self, kind: &str) -> Option<&Value> {
        let mut modules = self.modules.as_ref()?.as_array()?.iter();
        modules.find(|module| {
            let name = module["type"].as_str().unwrap_or_default();
            name.rsplit('.').next() == Some(kind)
        })
    }

    fn logit_score(&self) -> Option<&Value> {
        self.module("LogitScore")
    }

    fn texts(&self) -> Result<Purpose, EngineError> {
        if self.has_score() || !(self.has_head() || self.is_tied()) {
            return Err(EngineError::option(
                "task",
                format!(
                    "generate needs a language-model head, but the files of this {} have none; leave the option out",
                    self.architecture()
                ),
            ));
        }
        Ok(Purpose::Texts)
    }

    fn vectors(&self) -> Result<PoolingPlan, EngineError> {
        if self.has_score() || self.logit_score().is_some() {
            return Err(EngineError::option(
                "task",
                "embed contradicts the model's files, which describe a reranker; write rerank, or leave it out",
            ));
        }
        if self.transformer["modality_config"].get("message").is_some() {
            return Err(EngineError::model(
                self.files.folder().join(TRANSFORMER),
                "its texts go through a chat template (modality_config has message), which this engine does not do for vectors",
                "serve another model for embeddings",
            ));
        }
        let pools = |pool, normalises| PoolingPlan {
            pools: vec![pool],
            includes_prompt: true,
            dense: Vec::new(),
            normalises,
        };
        if self.modules.is_some() || self.has_pooling() {
            return if self.modules.is_some() {
                PoolingPlan::read(self.files.folder())
            } else {
                PoolingPlan::read_pooling(&self.files.folder().join(POOLING))
            };
        }
        Ok(match self.files.gguf_pooling() {
            Some(1) => pools(Reduction::Mean, true),
            Some(2) => pools(Reduction::FirstToken, true),
            // The last token has seen all others, and other servers with this route normalise.
            _ => pools(Reduction::LastToken, true),
        })
    }

    fn scores(&self) -> Result<ScorePlan, EngineError> {
        let by = if let Some(module) = self.logit_score() {
            self.by_module(module)?
        } else if self.has_score() && self.has_score_weight() {
            self.one_label()?;
            ScoreBy::Row
        } else {
            self.by_response_tokens()?
        };
        let has_rows =
            self.has_head() || self.is_tied() || self.files.tensor_names().any(|name| name == HEAD);
        if matches!(by, ScoreBy::Tokens { .. }) && !has_rows {
            return Err(self.wrong(
                format!(
                    "this {} has neither a language-model head nor score.weight",
                    self.architecture()
                ),
                "serve a reranker",
            ));
        }
        Ok(ScorePlan {
            by,
            shows_probability: self.shows_probability()?,
            begins_response: self.transformer["processing_kwargs"]["chat_template"]["add_generation_prompt"]
                == true,
        })
    }

    fn has_score_weight(&self) -> bool {
        let mut names = SCORE_WEIGHTS.iter();
        names.any(|name| matches!(self.files.maybe_tensor(name), Ok(Some(_))))
    }

    fn by_module(&self, module: &Value) -> Result<ScoreBy, EngineError> {
        let path = module["path"].as_str().unwrap_or_default();
        let file = self.files.folder().join(path).join("config.json");
        let wrong = |problem: String| {
            EngineError::model(&file, problem, "download the model's folder completely")
        };
        // Modules must lie directly in the model's folder; any other path could point anywhere on the machine.
        if std::path::Path::new(path)
            .file_name()
            .is_none_or(|name| name != path)
        {
            return Err(wrong(format!("{path:?} is not a plain folder name")));
        }
        let json = read_json(&file)?.ok_or_else(|| wrong("the file is missing".to_owned()))?;
        let id = |name: &str| match &json[name] {
            Value::Null => Ok(None),
            value => match value.as_u64().and_then(|id| u32::try_from(id).ok()) {
                Some(id) => Ok(Some(NamedToken::Id(id))),
                None => Err(wrong(format!("{name} is {value}, which is not a token id"))),
            },
        };
        let yes = id("true_token_id")?;
        Ok(ScoreBy::Tokens {
            yes: yes.ok_or_else(|| wrong("true_token_id is missing".to_owned()))?,
            no: id("false_token_id")?,
        })
    }

    /// Reads the words from `config.json`, where vLLM expects them; defaults to the words of Qwen3-Reranker.
    fn by_response_tokens(&self) -> Result<ScoreBy, EngineError> {
        let words = match &self.config["classifier_from_token"] {
            Value::Null => vec!["no".to_owned(), "yes".to_owned()],
            value => {
                let words = value.as_array().into_iter().flatten();
                words
                    .map(|word| word.as_str().unwrap_or_default().to_owned())
                    .collect()
            }
        };
        match <[String; 2]>::try_from(words) {
            Ok([no, yes]) if !no.is_empty() && !yes.is_empty() => Ok(ScoreBy::Tokens {
                yes: NamedToken::Text(yes),
                no: Some(NamedToken::Text(no)),
            }),
            _ => Err(self.wrong(
                format!(
                    "classifier_from_token is {}, which is not a list of two words",
                    self.config["classifier_from_token"]
                ),
                "write the words for no and yes, such as [\"no\", \"yes\"]",
            )),
        }
    }

    fn one_label(&self) -> Result<(), EngineError> {
        let labels = match self.config["id2label"].as_object() {
            Some(labels) => labels.len() as u64,
            // The default of transformers.
            None => self.config["num_labels"].as_u64().unwrap_or(2),
        };
        match labels {
            1 => Ok(()),
            _ => Err(self.wrong(
                format!("it has {labels} classes (id2label); a reranker has one"),
                "serve a reranker",
            )),
        }
    }

    fn shows_probability(&self) -> Result<bool, EngineError> {
        let named = [
            &self.sentences["activation_fn"],
            &self.config["sentence_transformers"]["activation_fn"],
            &self.config["sbert_ce_default_activation_function"],
        ];
        let named = named.into_iter().find_map(Value::as_str);
        match named.map(|name| name.rsplit('.').next().unwrap_or(name)) {
            None | Some("Sigmoid") => Ok(true),
            Some("Identity") => Ok(false),
            Some(other) => Err(self.wrong(
                format!("its scores go through {other}; this engine computes Sigmoid and Identity"),
                "serve another reranker",
            )),
        }
    }
}

/// Names of the scoring row; the second one occurs in folders whose tensors omit `model.`.
pub(super) const SCORE_WEIGHTS: [&str; 2] = ["score.weight", "model.score.weight"];

#[cfg(test)]
mod tests;
