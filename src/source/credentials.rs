//! The sources of tokens and keys. None is stored, shown or logged.

use std::collections::BTreeMap;
use std::time::Duration;

use super::error::{SourceError, root_of};
use catalog::{CredentialsUrl, Fetch};

const RESPONSE_TIME_MAX: Duration = Duration::from_secs(30);
const RESPONSE_BYTES_MAX: usize = 64 << 10;

/// The variable that keeps `huggingface_hub` and the pool from sending a token from the environment or a login.
pub const NO_TOKEN: &str = "HF_HUB_DISABLE_IMPLICIT_TOKEN";

/// Returns true if the model itself requests anonymous access.
pub(super) fn is_public(wanted: &Fetch) -> bool {
    wanted.env.contains_key(NO_TOKEN)
}

/// The token from `HF_TOKEN`, `HUGGING_FACE_HUB_TOKEN`, or the file that `huggingface-cli login` writes, in this order.
pub(super) async fn hub_token(wanted: &Fetch) -> Option<String> {
    let is_on = |value: &String| ["1", "true", "yes", "on"].contains(&&*value.to_lowercase());
    if wanted.variable(NO_TOKEN).as_ref().is_some_and(is_on) {
        return None;
    }
    let named = ["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"];
    let token = named.iter().find_map(|name| wanted.variable(name));
    let token = match token {
        Some(token) => token,
        None => {
            let file = wanted.variable("HF_TOKEN_PATH").map(Into::into);
            let file = file.or_else(|| Some(wanted.hub_home()?.join("token")))?;
            tokio::fs::read_to_string(file).await.ok()?
        }
    };
    let token = token.trim();
    // Headers allow no other characters.
    let is_sendable = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
    is_sendable.then(|| token.to_owned())
}

/// Requests variables such as `AWS_ACCESS_KEY_ID` from the address, with a POST without a body. The response is a flat JSON object.
#[cfg_attr(
    not(feature = "s3"),
    expect(dead_code, reason = "only buckets support credentials from an address")
)]
pub(super) async fn by_url(
    source_url: &CredentialsUrl,
    wanted: &Fetch,
    http: &reqwest::Client,
) -> Result<BTreeMap<String, String>, SourceError> {
    let failed = |why: String, lasting| SourceError::Credentials {
        url: source_url.shown(),
        why,
        lasting,
    };
    let fault = |why: String| failed(why, false);
    let mut request = http.post(&source_url.url).timeout(RESPONSE_TIME_MAX);
    if let Some(name) = &source_url.token_variable {
        let token = wanted.variable(name);
        let token = token.ok_or_else(|| failed(format!("the variable {name} is not set"), true))?;
        request = request.bearer_auth(token.trim());
    }
    let response = request.send().await;
    // The client's error text contains the address, which may contain a key.
    let response = response.map_err(|error| fault(root_of(&error.without_url())))?;
    let status = response.status();
    if !status.is_success() {
        return Err(fault(format!("it answers {}", status.as_u16())));
    }
    let body = response.bytes().await;
    let body = body.map_err(|error| fault(root_of(&error.without_url())))?;
    if body.len() > RESPONSE_BYTES_MAX {
        return Err(fault(format!(
            "its response is longer than {RESPONSE_BYTES_MAX} bytes"
        )));
    }
    // The response contains keys, so errors do not quote it.
    serde_json::from_slice(&body)
        .map_err(|_| fault("its response is not a JSON object of strings".to_owned()))
}
