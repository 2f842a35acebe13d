//! Searches the hub for models by words, like its website: most downloaded first.

use std::path::Path;
use std::time::Duration;

use reqwest::StatusCode;
use serde::Deserialize;

use super::error::{SourceError, root_of};
use super::hub::{Hub, quoted};

const SEARCH_TIME_MAX: Duration = Duration::from_secs(30);
/// A response about a hundred models takes a few tens of kilobytes.
const RESPONSE_BYTES_MAX: usize = 4 << 20;
/// Longer names are not models of a hub.
const NAME_MAX: usize = 200;

/// A model found on the hub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubModel {
    pub id: String,
    /// Downloads in the last month.
    pub downloads: u64,
    /// The task in the hub's terms, such as `text-generation`.
    pub task: Option<String>,
    /// The format of its weights, if the hub knows it: `gguf`, `safetensors`.
    pub form: Option<&'static str>,
    /// Users must accept a licence first.
    pub is_gated: bool,
}

#[derive(Deserialize)]
struct SearchEntry {
    id: String,
    #[serde(default)]
    downloads: u64,
    pipeline_tag: Option<String>,
    #[serde(default)]
    tags: Vec<String>,
    #[serde(default)]
    gated: serde_json::Value,
}

impl Hub {
    /// Up to `limit` models whose names contain all the words.
    pub async fn search(&self, words: &str, limit: usize) -> Result<Vec<HubModel>, SourceError> {
        let fields = ["downloads", "pipeline_tag", "tags", "gated"];
        let fields: String = fields
            .iter()
            .map(|field| format!("&expand={field}"))
            .collect();
        let url = format!(
            "{}/api/models?search={}&limit={limit}&sort=downloads&direction=-1{fields}",
            self.endpoint,
            quoted(words, "")
        );
        let unreachable = |error: reqwest::Error| SourceError::Unreachable {
            endpoint: self.shown(),
            why: root_of(&error.without_url()),
            cache: self.cache.clone(),
        };
        let response = self.get(&url).timeout(SEARCH_TIME_MAX).send().await;
        let mut response = response.map_err(unreachable)?;
        match response.status() {
            status if status.is_success() => {}
            StatusCode::UNAUTHORIZED => {
                return Err(SourceError::BadToken {
                    endpoint: self.shown(),
                });
            }
            status => {
                return Err(SourceError::Refused {
                    what: format!("{}/api/models", self.shown()),
                    status: status.as_u16(),
                    message: String::new(),
                });
            }
        }
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(unreachable)? {
            body.extend_from_slice(&chunk);
            if body.len() > RESPONSE_BYTES_MAX {
                return Err(self.no_search(format!("it is longer than {RESPONSE_BYTES_MAX} bytes")));
            }
        }
        found(&body, limit).map_err(|why| self.no_search(why))
    }

    fn no_search(&self, why: String) -> SourceError {
        SourceError::NoHub {
            what: format!("{}/api/models", self.shown()),
            why,
        }
    }
}

fn found(body: &[u8], limit: usize) -> Result<Vec<HubModel>, String> {
    let listed: Vec<SearchEntry> =
        serde_json::from_slice(body).map_err(|error| error.to_string())?;
    let models = listed.into_iter().filter(|model| is_name(&model.id));
    Ok(models.take(limit).map(HubModel::from).collect())
}

/// Returns true for `ORG/NAME` without characters that a terminal would interpret.
fn is_name(id: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._/".contains(&byte);
    id.len() <= NAME_MAX && id.bytes().all(is_plain) && Path::new(id).components().count() == 2
}

impl From<SearchEntry> for HubModel {
    fn from(response: SearchEntry) -> HubModel {
        let has = |form: &&'static str| response.tags.iter().any(|tag| tag == form);
        let is_word = |task: &String| {
            task.bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        };
        HubModel {
            form: ["gguf", "safetensors"].into_iter().find(has),
            downloads: response.downloads,
            task: response.pipeline_tag.filter(is_word),
            // `false`, or the way to accept the licence.
            is_gated: !matches!(
                response.gated,
                serde_json::Value::Null | serde_json::Value::Bool(false)
            ),
            id: response.id,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn search_results_with_invalid_model_names_are_skipped() {
        let body = br#"[{"id": "org/one", "downloads": 7, "pipeline_tag": "text-generation", "tags": ["gguf", "x"], "gated": "auto"},
            {"id": "old-style"}, {"id": "a/../../etc"}, {"id": "org/\u001b[31mred"}, {"id": "org/two", "gated": false}]"#;
        let models = found(body, 10).expect("a list");
        let names: Vec<&str> = models.iter().map(|model| &*model.id).collect();
        assert_eq!(names, ["org/one", "org/two"]);
        let one = HubModel {
            id: "org/one".to_owned(),
            downloads: 7,
            task: Some("text-generation".to_owned()),
            form: Some("gguf"),
            is_gated: true,
        };
        assert_eq!(models[0], one);
        assert!(!models[1].is_gated);
        assert_eq!(found(body, 1).expect("a list").len(), 1);
        assert!(found(b"<html>", 1).is_err());
    }
}
