//! Model names: normalises hub names as written for other programs, and registers models of the hub in the pool.

use client::ClientError;
use serde_json::Value;

use super::error::CommandError;
use super::pool_client::PoolClient;
use super::request::with_status;
use super::screen::Screen;

/// Removes the hub's address from a model name: `hf.co/org/name:Q4_K_M` becomes `org/name:Q4_K_M`.
pub fn hub_name(text: &str) -> String {
    let text = text.trim();
    let plain = text.strip_prefix("https://").unwrap_or(text);
    let hubs = ["hf.co/", "huggingface.co/", "hf://"];
    let plain = hubs.iter().find_map(|hub| plain.strip_prefix(hub));
    plain.unwrap_or(text).trim_end_matches('/').to_owned()
}

/// Returns true for names that a request may add to the catalogue.
pub fn may_be_of_the_hub(name: &str) -> bool {
    let parts: Vec<&str> = name.split('/').collect();
    parts.len() == 2 && parts.iter().all(|part| !part.is_empty())
}

/// Checks that the pool has the model before the first prompt. Registers a model of the hub if there is an admin key; without one,
/// the pool decides on the first request.
pub async fn ensure(
    client: &PoolClient,
    screen: &mut Screen,
    name: &str,
) -> Result<(), CommandError> {
    let found = with_status(screen, client.find_model(name)).await;
    match found.map_err(CommandError::from) {
        Err(failure) if failure.is_unknown_model() && may_be_of_the_hub(name) => {
            if client.has_admin_key() {
                register(client, screen, name, failure).await
            } else {
                Ok(())
            }
        }
        found => found,
    }
}

/// Registers a model of the hub that the pool does not know. Returns `unknown` if the key does not permit that.
pub async fn register(
    client: &PoolClient,
    screen: &mut Screen,
    name: &str,
    unknown: CommandError,
) -> Result<(), CommandError> {
    if !may_be_of_the_hub(name) || !client.has_admin_key() {
        return Err(advised(unknown, name));
    }
    match with_status(screen, client.register(name)).await {
        Ok(view) => {
            screen.aside(&registered(name, &view));
            Ok(())
        }
        Err(ClientError::Refused(refusal))
            if matches!(refusal.status, 401 | 403) && refusal.code != "registration_off" =>
        {
            // The key does not belong to an administrator.
            Err(advised(unknown, name))
        }
        Err(failure) => Err(failure.into()),
    }
}

/// Adds advice to an unknown model that the hub may have.
pub fn advised(unknown: CommandError, name: &str) -> CommandError {
    if !unknown.is_unknown_model() || !may_be_of_the_hub(name) {
        return unknown;
    }
    unknown.advise(format!(
        "If {name} is a model of the hub, an administrator registers it: `admin-client register {name}`, or run this with MODEL_POOL_ADMIN_KEY."
    ))
}

fn registered(name: &str, view: &Value) -> String {
    let engine = view["engine"].as_str().unwrap_or("the default");
    let weights = &view["weights"];
    let next = match (weights["from"].as_str(), weights["here"].as_bool()) {
        (_, Some(true)) => "its weights are on the server already".to_owned(),
        (Some(from), _) => {
            format!("the server fetches its weights from {from} on the first request")
        }
        (None, _) => "it is loaded on the first request".to_owned(),
    };
    format!("Registered {name} (engine {engine}); {next}.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hubs_url_is_stripped_from_a_model_name() {
        for text in [
            "org/name:Q4_K_M",
            "hf.co/org/name:Q4_K_M",
            "https://huggingface.co/org/name:Q4_K_M/",
            "hf://org/name:Q4_K_M",
        ] {
            assert_eq!(hub_name(text), "org/name:Q4_K_M", "{text}");
        }
        assert_eq!(hub_name("tiny-chat"), "tiny-chat");
        assert!(may_be_of_the_hub("org/name") && !may_be_of_the_hub("tiny-chat"));
        assert!(!may_be_of_the_hub("a/b/c") && !may_be_of_the_hub("/b"));
    }
}
