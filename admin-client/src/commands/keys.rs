//! `keys list|create|revoke`. A new key goes to the standard output once and nowhere else.

use reqwest::Method;
use serde_json::{Value, json};

use crate::answers::{KeyList, NewKey};
use crate::cli::{KeysCommand, Role};
use crate::client::Patience;
use crate::commands::Session;
use crate::failure::Failure;
use crate::render::outcome;
use crate::render::quantity::Clock;
use crate::screen::clean;

pub async fn run(session: &Session, command: KeysCommand) -> Result<(), Failure> {
    let client = &session.client;
    match command {
        KeysCommand::List => {
            let answer = client.get("admin/keys", &[]).await?;
            session.show(&answer, |list: &KeyList| {
                outcome::keys(list, Clock::read(), session.screen.style)
            })
        }
        KeysCommand::Create {
            name,
            role,
            expires,
        } => {
            let role = match role {
                Role::User => "user",
                Role::Admin => "admin",
            };
            let mut body = json!({"name": name, "role": role});
            if let Some(expires) = expires {
                body["expires"] = expires.into();
            }
            let answer = client
                .call(
                    Method::POST,
                    "admin/keys",
                    &[],
                    Some(&body),
                    Patience::Short,
                )
                .await?;
            session.show(&answer, |key: &NewKey| outcome::new_key(key))
        }
        KeysCommand::Revoke { id } => {
            let answer = client
                .call(
                    Method::DELETE,
                    "admin/keys",
                    &[("id", &id)],
                    None,
                    Patience::Short,
                )
                .await?;
            session.show(&answer, |_: &Value| {
                format!("key {} is revoked\n", clean(&id))
            })
        }
    }
}
