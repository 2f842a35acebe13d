//! `POST /v1/rerank` and `POST /v1/score`: the requests of Cohere, Jina, Text Embeddings Inference and vLLM, and their responses.
//! Scores come from the model, except the cosine of two vectors, which is computed here.

use super::network::Sequence;
use super::pooling::normalise;
use super::routes::{ParsedRequest, ResponseKind};
use super::service::{OutputKind, Service, TEXTS_MAX, Usage, json_response};
use super::texts::Cut;
use super::wording::Pair;
use crate::api_error::ApiError;
use crate::calendar::unix_seconds;
use crate::fields::{Fields, expected};
use axum::response::Response;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicU64, Ordering};

fn number(score: f32) -> Value {
    // Uses the shortest decimal of the 32-bit float instead of its 64-bit conversion.
    score
        .to_string()
        .parse::<f64>()
        .map_or(Value::Null, Value::from)
}

/// The method that scores two texts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scoring {
    Logit,
    /// A cross-encoder's logit through a sigmoid.
    Probability,
    /// The cosine of vectors from an embedding model: one vector per first text, then one per second text.
    Cosine {
        firsts: usize,
    },
}

impl Scoring {
    fn scores(self, vectors: &[Vec<f32>]) -> Vec<f32> {
        let logits = || vectors.iter().filter_map(|vector| vector.first().copied());
        let Self::Cosine { firsts } = self else {
            return match self {
                Self::Probability => logits().map(sigmoid).collect(),
                _ => logits().collect(),
            };
        };
        let (firsts, seconds) = vectors.split_at(firsts.min(vectors.len()));
        let pairs = seconds.iter().enumerate();
        let first = |index: usize| firsts.get(index).or(firsts.first());
        pairs
            .filter_map(|(index, second)| Some(cosine(first(index)?, second)))
            .collect()
    }
}

fn sigmoid(logit: f32) -> f32 {
    (1.0 / (1.0 + (-f64::from(logit)).exp())) as f32
}

fn cosine(first: &[f32], second: &[f32]) -> f32 {
    let (mut first, mut second) = (first.to_vec(), second.to_vec());
    normalise(&mut first);
    normalise(&mut second);
    let products = first.iter().zip(&second);
    products
        .map(|(first, second)| f64::from(*first) * f64::from(*second))
        .sum::<f64>() as f32
}

/// Reads the fields that select raw or normalised scores, as named by Text Embeddings Inference and vLLM.
fn take_scoring(service: &Service, fields: &mut Fields) -> Result<Scoring, ApiError> {
    let raw = fields.flag("raw_scores")?;
    let mut activates = raw.map(|raw| !raw);
    for word in ["use_activation", "activation"] {
        activates = fields.flag(word)?.or(activates);
    }
    Ok(match &service.model.gives {
        OutputKind::Vectors { .. } => Scoring::Cosine { firsts: 1 },
        OutputKind::Scores {
            shows_probability, ..
        } => {
            if activates.unwrap_or(*shows_probability) {
                Scoring::Probability
            } else {
                Scoring::Logit
            }
        }
    })
}

/// Accepts a text, or an object that contains it.
fn text_of(value: Value, param: &str) -> Result<String, ApiError> {
    match value {
        Value::String(text) => Ok(text),
        Value::Object(mut fields) => match fields.shift_remove("text") {
            Some(Value::String(text)) => Ok(text),
            _ => Err(expected(
                param,
                "a text, or an object with `text`",
                &Value::Object(fields),
            )),
        },
        other => Err(expected(param, "a text, or an object with `text`", &other)),
    }
}

fn texts_of(value: Value, param: &str) -> Result<Vec<String>, ApiError> {
    let list = match value {
        Value::Array(list) => list,
        one => return Ok(vec![text_of(one, param)?]),
    };
    if list.is_empty() || list.len() > TEXTS_MAX {
        let message = format!(
            "`{param}` has {} texts; from 1 to {TEXTS_MAX} are allowed in a request",
            list.len()
        );
        return Err(ApiError::field(param, message));
    }
    let texts = list.into_iter().enumerate();
    texts
        .map(|(index, text)| text_of(text, &format!("{param}[{index}]")))
        .collect()
}

/// Reads the instruction for the prompt, if the model has one.
fn take_instruction(service: &Service, fields: &mut Fields) -> Result<Option<String>, ApiError> {
    let instruction = fields.text("instruction")?;
    match &service.model.gives {
        OutputKind::Scores { wording, .. } if wording.takes_instruction() => Ok(instruction),
        _ if instruction.is_some() => Err(ApiError::field(
            "instruction",
            format!(
                "the model `{}` has no prompt with a place for an `instruction`; leave it out",
                service.model_name
            ),
        )),
        _ => Ok(None),
    }
}

/// Tokenizes pairs: element by element, or the first text with all second ones. `names` are the two field names.
fn sequences_of(
    service: &Service,
    firsts: &[String],
    seconds: &[String],
    names: (&str, &str),
    prompts: (&str, &str),
    instruction: Option<&str>,
    cut: Cut,
) -> Result<Vec<Sequence>, ApiError> {
    let texts = &service.model.texts;
    let param = |name: &str, index: usize, all: usize| match all {
        1 => name.to_owned(),
        _ => format!("{name}[{index}]"),
    };
    let second_name = |index| format!("{}[{index}]", names.1);
    let OutputKind::Scores { wording, .. } = &service.model.gives else {
        let each = |list: &[String], name: &str, prompt: &str| {
            let all = list.len();
            let texts = list.iter().enumerate().map(|(index, text)| {
                texts.single(prompt, text, true, cut, &param(name, index, all))
            });
            texts.collect::<Result<Vec<_>, _>>()
        };
        let mut sequences = each(firsts, names.0, prompts.0)?;
        sequences.extend(each(seconds, names.1, prompts.1)?);
        return Ok(sequences);
    };
    if wording.takes_instruction() {
        let pairs = seconds.iter().enumerate().map(|(index, second)| {
            let nth = index.min(firsts.len() - 1);
            let pair = Pair {
                query: (&firsts[nth], &param(names.0, nth, firsts.len())),
                document: (second, &second_name(index)),
                instruction,
            };
            wording.sequence(texts, pair, cut)
        });
        return pairs.filter_map(Result::transpose).collect();
    }
    let firsts = firsts.iter().enumerate().map(|(index, text)| {
        let param = param(names.0, index, firsts.len());
        Ok((texts.first_of_pair(text, &param)?, param))
    });
    let firsts = firsts.collect::<Result<Vec<_>, ApiError>>()?;
    let pairs = seconds.iter().enumerate().map(|(index, second)| {
        let (first, name) = &firsts[index.min(firsts.len() - 1)];
        texts.pair((first, name), second, cut, &second_name(index))
    });
    pairs.collect()
}

fn next_id(kind: &str) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{kind}-{:x}-{number}", unix_seconds())
}

/// The output settings of a rerank request, kept until its scores are computed.
pub(super) struct RerankRequest {
    scoring: Scoring,
    most: usize,
    /// The documents, if the response returns them.
    documents: Option<Vec<String>>,
    /// Use Text Embeddings Inference's response: a bare list.
    is_tei: bool,
}

impl RerankRequest {
    pub fn read(service: &Service, fields: &mut Fields) -> Result<ParsedRequest, ApiError> {
        let scoring = take_scoring(service, fields)?;
        let Some(query) = fields.take("query") else {
            return Err(ApiError::field("query", "`query` is required"));
        };
        let query = vec![text_of(query, "query")?];
        let (name, list) = match (fields.take("documents"), fields.take("texts")) {
            (Some(documents), None) => ("documents", documents),
            (None, Some(texts)) => ("texts", texts),
            (None, None) => {
                let message = "`documents` is required, a list of texts";
                return Err(ApiError::field("documents", message));
            }
            (Some(_), Some(_)) => {
                let message = "`documents` and `texts` cannot be combined";
                return Err(ApiError::field("texts", message));
            }
        };
        if !list.is_array() {
            return Err(expected(name, "a list of texts", &list));
        }
        let is_tei = name == "texts";
        let documents = texts_of(list, name)?;
        let most = fields.integer("top_n", 0..=i64::from(u32::MAX))?;
        // Clients of vLLM and Jina send 0 for all documents.
        let most = most.filter(|most| *most > 0);
        let returns = fields.flag("return_documents")?;
        let returns_text = fields.flag("return_text")?;
        // Names the client's end user; it has no effect.
        fields.text("user")?;
        let cut = service.take_cut(fields)?;
        let instruction = take_instruction(service, fields)?;
        let texts = &service.model.texts;
        let prompts = (
            texts.prompts.of_kind(&["query"]),
            texts.prompts.of_kind(&["document", "passage", "corpus"]),
        );
        let sequences = sequences_of(
            service,
            &query,
            &documents,
            ("query", name),
            prompts,
            instruction.as_deref(),
            cut,
        )?;
        let shows_texts = returns.or(returns_text).unwrap_or(false);
        Ok(ParsedRequest {
            sequences,
            shape: ResponseKind::Rerank(Self {
                scoring,
                most: most.map_or(usize::MAX, |most| most as usize),
                documents: shows_texts.then_some(documents),
                is_tei,
            }),
        })
    }

    pub fn write(
        self,
        service: &Service,
        vectors: &[Vec<f32>],
        usage: Usage,
    ) -> Result<Response, ApiError> {
        let scores = self.scoring.scores(vectors);
        let mut order: Vec<usize> = (0..scores.len()).collect();
        // A stable sort keeps equal scores in document order.
        order.sort_by(|one, other| scores[*other].total_cmp(&scores[*one]));
        let text = |index: &usize| Some(self.documents.as_ref()?.get(*index)?.clone());
        let best = order.iter().take(self.most);
        if self.is_tei {
            let ranks = best.map(|index| {
                let mut rank = json!({"index": index, "score": number(scores[*index])});
                if let Some(text) = text(index) {
                    rank["text"] = text.into();
                }
                rank
            });
            return Ok(json_response(ranks.collect::<Value>()));
        }
        let results = best.map(|index| {
            let mut result = json!({"index": index, "relevance_score": number(scores[*index])});
            if let Some(text) = text(index) {
                result["document"] = json!({"text": text});
            }
            result
        });
        Ok(json_response(json!({
            "id": next_id("rerank"),
            "object": "list",
            "model": service.model_name,
            "results": results.collect::<Value>(),
            "usage": usage,
        })))
    }
}

/// The output settings of a score request, kept until its scores are computed.
pub(super) struct ScoreRequest {
    scoring: Scoring,
}

impl ScoreRequest {
    pub fn read(service: &Service, fields: &mut Fields) -> Result<ParsedRequest, ApiError> {
        let mut scoring = take_scoring(service, fields)?;
        let names = [
            ("text_1", "text_2"),
            ("queries", "documents"),
            ("data_1", "data_2"),
        ];
        let known_names = names.into_iter().find(|names| fields.has(names.0));
        let (first_name, second_name) = known_names.unwrap_or(names[0]);
        let mut list = |name: &'static str| {
            let value = fields.take(name);
            let value =
                value.ok_or_else(|| ApiError::field(name, format!("`{name}` is required")))?;
            texts_of(value, name)
        };
        let (firsts, seconds) = (list(first_name)?, list(second_name)?);
        if firsts.len() != 1 && firsts.len() != seconds.len() {
            let message = format!(
                "`{first_name}` has {} texts and `{second_name}` {}; give as many of both, or one `{first_name}`",
                firsts.len(),
                seconds.len()
            );
            return Err(ApiError::field(second_name, message));
        }
        if let Scoring::Cosine { firsts: count } = &mut scoring {
            *count = firsts.len();
        }
        fields.text("user")?;
        let cut = service.take_cut(fields)?;
        let instruction = take_instruction(service, fields)?;
        let prompt = service.model.texts.prompts.named(None)?;
        let sequences = sequences_of(
            service,
            &firsts,
            &seconds,
            (first_name, second_name),
            (prompt, prompt),
            instruction.as_deref(),
            cut,
        )?;
        Ok(ParsedRequest {
            sequences,
            shape: ResponseKind::Score(Self { scoring }),
        })
    }

    pub fn write(
        self,
        service: &Service,
        vectors: &[Vec<f32>],
        usage: Usage,
    ) -> Result<Response, ApiError> {
        let scores = self.scoring.scores(vectors);
        let data = scores.iter().enumerate().map(
            |(index, score)| json!({"index": index, "object": "score", "score": number(*score)}),
        );
        Ok(json_response(json!({
            "id": next_id("score"),
            "object": "list",
            "created": unix_seconds(),
            "model": service.model_name,
            "data": data.collect::<Value>(),
            "usage": usage,
        })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_cosines_of_one_with_all_or_pairwise() {
        let vectors = vec![vec![1.0, 0.0], vec![2.0, 0.0], vec![0.0, 3.0]];
        let one = Scoring::Cosine { firsts: 1 }.scores(&vectors);
        assert_eq!(one, [1.0, 0.0]);
        let mut more = vec![vec![0.0, 1.0]];
        more.extend(vectors);
        let each = Scoring::Cosine { firsts: 2 }.scores(&more);
        assert_eq!(each, [0.0, 0.0]);
    }

    #[test]
    fn a_score_is_written_with_f32_precision() {
        assert_eq!(number(0.1).to_string(), "0.1");
        assert_eq!(number(sigmoid(0.0)).to_string(), "0.5");
        assert_eq!(sigmoid(-200.0), 0.0);
    }
}
