//! The endpoints that a batch may send requests to.

use serde::{Deserialize, Serialize};

/// An endpoint; its JSON is its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "&'static str", try_from = "String")]
pub enum Endpoint {
    ChatCompletions,
    Completions,
    Embeddings,
    Responses,
    Messages,
}

impl Endpoint {
    pub const ALL: [Endpoint; 5] = [
        Endpoint::ChatCompletions,
        Endpoint::Completions,
        Endpoint::Embeddings,
        Endpoint::Responses,
        Endpoint::Messages,
    ];

    pub fn path(self) -> &'static str {
        match self {
            Endpoint::ChatCompletions => "/v1/chat/completions",
            Endpoint::Completions => "/v1/completions",
            Endpoint::Embeddings => "/v1/embeddings",
            Endpoint::Responses => "/v1/responses",
            Endpoint::Messages => "/v1/messages",
        }
    }

    /// Returns the endpoint with exactly this path.
    pub fn parse(path: &str) -> Option<Endpoint> {
        Endpoint::ALL
            .into_iter()
            .find(|endpoint| endpoint.path() == path)
    }

    /// Returns all paths for a message.
    pub(crate) fn paths() -> String {
        Endpoint::ALL.map(Endpoint::path).join(", ")
    }
}

impl From<Endpoint> for &'static str {
    fn from(endpoint: Endpoint) -> &'static str {
        endpoint.path()
    }
}

impl TryFrom<String> for Endpoint {
    type Error = String;

    fn try_from(path: String) -> Result<Endpoint, String> {
        Endpoint::parse(&path)
            .ok_or_else(|| format!("`{path}` is not one of {}", Endpoint::paths()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_stored_as_its_path() {
        for endpoint in Endpoint::ALL {
            assert_eq!(Endpoint::parse(endpoint.path()), Some(endpoint));
            let json = serde_json::to_string(&endpoint).expect("JSON");
            assert_eq!(json, format!("\"{}\"", endpoint.path()));
            let read: Endpoint = serde_json::from_str(&json).expect("an endpoint");
            assert_eq!(read, endpoint);
        }
        assert_eq!(Endpoint::parse("/v1/chat/completions/"), None);
        serde_json::from_str::<Endpoint>("\"/v1/audio\"").expect_err("unknown");
    }
}
