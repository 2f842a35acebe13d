//! `nodes list|token|revoke|drain|undrain`. A new token is printed once, alone on standard output, so that it can go to
//! a file.

use reqwest::Method;
use serde_json::{Map, Value, json};

use crate::answers::{DrainNodeAnswer, NewNodeToken, NodeList};
use crate::cli::{DrainArgs, NodesCommand};
use crate::client::Patience;
use crate::commands::Session;
use crate::failure::Failure;
use crate::render::nodes as text;
use crate::render::quantity::Clock;
use crate::screen::{announced, note};
use crate::style::clean;

pub async fn run(session: &Session, command: NodesCommand) -> Result<(), Failure> {
    let client = &session.client;
    match command {
        NodesCommand::List => {
            let answer = client.get("admin/nodes", &[]).await?;
            session.show(&answer, |list: &NodeList| {
                text::nodes(list, Clock::read(), session.screen.style)
            })
        }
        NodesCommand::Token { expires } => {
            let mut body = json!({});
            if let Some(expires) = expires {
                body["expires"] = expires.into();
            }
            let answer = client
                .call(
                    Method::POST,
                    "admin/nodes/tokens",
                    &[],
                    Some(&body),
                    Patience::Short,
                )
                .await?;
            session.show(&answer, |token: &NewNodeToken| {
                note(&format!(
                    "token {}, valid until {}; write it to a file with mode 0600, it is not shown again",
                    clean(&token.id),
                    Clock::read().stamp(&token.expires_at)
                ));
                format!("{}\n", clean(&token.token))
            })
        }
        NodesCommand::Revoke { id } => {
            let answer = client
                .call(
                    Method::DELETE,
                    "admin/nodes/tokens",
                    &[("id", &id)],
                    None,
                    Patience::Short,
                )
                .await?;
            session.show(&answer, |_: &Value| {
                format!("token {} is revoked\n", clean(&id))
            })
        }
        NodesCommand::Drain(args) => drain(session, &args).await,
        NodesCommand::Undrain { node } => {
            let answer = client
                .post("admin/nodes/undrain", &json!({ "node": node }))
                .await?;
            session.show(&answer, |_: &Value| {
                format!("{} is back in service\n", clean(&node))
            })
        }
    }
}

async fn drain(session: &Session, args: &DrainArgs) -> Result<(), Failure> {
    let request = body(args);
    let waits = !session.json && !args.now && !args.no_wait;
    let post = announced(
        session.client.post("admin/nodes/drain", &request),
        waits.then_some(
            "Waiting for the requests in flight to end. --no-wait returns at once; --now cuts them.",
        ),
    );
    let answer = tokio::select! {
        answer = post => answer?,
        _ = tokio::signal::ctrl_c() => return Err(Failure::Interrupted(format!(
            "stopped watching; {0} is still draining. `admin-client nodes list` shows its progress, `admin-client nodes undrain {0}` puts it back into service",
            args.node
        ))),
    };
    session.show(&answer, |answer: &DrainNodeAnswer| text::drained(answer))
}

/// The request body, without absent options.
fn body(args: &DrainArgs) -> Value {
    let mut body = Map::new();
    body.insert("node".to_owned(), args.node.clone().into());
    if let Some(reason) = &args.reason {
        body.insert("reason".to_owned(), reason.clone().into());
    }
    if let Some(until) = &args.until {
        body.insert("until".to_owned(), until.clone().into());
    }
    if args.now {
        body.insert("now".to_owned(), true.into());
    }
    if args.no_wait {
        body.insert("wait".to_owned(), false.into());
    }
    Value::Object(body)
}
