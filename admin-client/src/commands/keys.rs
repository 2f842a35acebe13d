//! `keys list|create|set|revoke`. A new key is printed once, to standard output only.

use client::{ApiResponse, ClientError, Patience};
use serde_json::{Value, json};

use crate::cli::{Change, KeyArgs, KeysCommand, Role};
use crate::error::CommandError;
use crate::render::outcome;
use crate::render::quantity::Clock;
use crate::responses::{KeyList, KeyView, NewKey};
use crate::screen::{can_ask, confirm, note};
use crate::session::{Session, present};
use crate::style::clean;

pub async fn run(session: &Session, command: KeysCommand) -> Result<(), CommandError> {
    let client = &session.client;
    match command {
        KeysCommand::List => {
            let show = |list: &KeyList, style| outcome::keys(list, Clock::read(), style);
            session.get("admin/keys", &[], show).await
        }
        KeysCommand::Create {
            name,
            role,
            expires,
            group,
            allowed,
        } => {
            refuse_empty(&allowed)?;
            let role = match role {
                Role::User => "user",
                Role::Admin => "admin",
                Role::Viewer => "viewer",
                Role::GroupAdmin => "group-admin",
            };
            let mut body =
                present(json!({"name": name, "role": role, "expires": expires, "group": group}));
            allowed_in(&mut body, allowed);
            let response = client.create("admin/keys", &body).await?;
            session.show(&response, |key: &NewKey| outcome::new_key(key))
        }
        KeysCommand::Set {
            id,
            name,
            expires,
            group,
            allowed,
            default_limits,
        } => {
            let mut body = present(json!({ "name": name }));
            for (field, change) in [("expires", expires), ("group", group)] {
                match change {
                    Some(Change::To(text)) => body[field] = text.into(),
                    Some(Change::Clear) => body[field] = Value::Null,
                    None => {}
                }
            }
            if default_limits {
                body["limits"] = Value::Null;
            }
            allowed_in(&mut body, allowed);
            if body == json!({}) {
                return Err(CommandError::Usage(
                    "no change is specified; see `admin-client keys set --help`".to_owned(),
                ));
            }
            let response = client.patch("admin/keys", &[("id", &id)], &body).await?;
            session.show(&response, |key: &KeyView| {
                let list = KeyList {
                    keys: vec![key.clone()],
                };
                outcome::keys(&list, Clock::read(), session.screen.style)
            })
        }
        KeysCommand::Revoke { id, yes } => {
            let response = match revoke(session, &id, yes).await {
                Err(ClientError::Refused(refusal)) if refusal.code == "own_key" => {
                    confirm_own(&id, &refusal.message)?;
                    revoke(session, &id, true).await?
                }
                other => other?,
            };
            session.show(&response, |_: &Value| {
                format!("key {} is revoked\n", clean(&id))
            })
        }
    }
}

async fn revoke(session: &Session, id: &str, confirmed: bool) -> Result<ApiResponse, ClientError> {
    let query: &[(&str, &str)] = if confirmed {
        &[("id", id), ("confirm", "true")]
    } else {
        &[("id", id)]
    };
    let client = &session.client;
    client.delete("admin/keys", query, Patience::Short).await
}

/// Asks for confirmation at a terminal. A script has to pass `--yes`.
fn confirm_own(id: &str, message: &str) -> Result<(), CommandError> {
    if !can_ask() {
        return Err(CommandError::Usage(format!(
            "{message}. Nothing changed; repeat the command with --yes"
        )));
    }
    note(message);
    confirm(&format!("Revoke {id}, the key that this command uses?"))
}

/// Refuses an empty name for a new key: the server would read an empty list as "everything", and an empty shell variable rarely
/// means that.
fn refuse_empty(allowed: &KeyArgs) -> Result<(), CommandError> {
    let lists = [("models", &allowed.models), ("routes", &allowed.routes)];
    for (name, list) in lists {
        if list.iter().flatten().any(|text| text.trim().is_empty()) {
            return Err(CommandError::Usage(format!(
                "--{name} has an empty name; leave --{name} out if the key may use all {name}"
            )));
        }
    }
    Ok(())
}

/// Adds the options that are present. Empty names are left out, and an empty list allows everything.
fn allowed_in(body: &mut Value, allowed: KeyArgs) {
    let non_empty = |texts: Vec<String>| -> Vec<String> {
        texts.into_iter().filter(|text| !text.is_empty()).collect()
    };
    let more = present(json!({
        "models": allowed.models.map(non_empty),
        "routes": allowed.routes.map(non_empty),
        "log_prompts": allowed.log_prompts,
        "limits": allowed.limits.to_json(),
    }));
    if let (Value::Object(body), Value::Object(more)) = (body, more) {
        body.extend(more);
    }
}
