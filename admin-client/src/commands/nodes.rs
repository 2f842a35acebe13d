//! `nodes list|token|revoke|drain|undrain`. A new token is printed once, alone on standard output, which allows redirecting it to a
//! file.

use client::Patience;
use serde_json::{Value, json};

use crate::cli::{DrainArgs, NodesArgs, NodesCommand};
use crate::commands::out_of_service::{Removal, remove};
use crate::error::CommandError;
use crate::render::nodes as text;
use crate::render::quantity::Clock;
use crate::responses::{DrainNodeResponse, NewNodeToken, NodeList};
use crate::screen::note;
use crate::session::{Session, present};
use crate::style::clean;

pub async fn run(session: &Session, args: NodesArgs) -> Result<(), CommandError> {
    let client = &session.client;
    match args.command.unwrap_or(NodesCommand::List) {
        NodesCommand::List => {
            let show = |list: &NodeList, style| text::nodes(list, Clock::read(), style);
            session.get("admin/nodes", &[], show).await
        }
        NodesCommand::Token { expires } => {
            let body = present(json!({ "expires": expires }));
            let response = client.create("admin/nodes/tokens", &body).await?;
            session.show(&response, |token: &NewNodeToken| {
                note(&format!(
                    "token {}, valid until {}; write it to a file with mode 0600, it is not shown again",
                    clean(&token.id),
                    Clock::read().stamp(&token.expires_at)
                ));
                format!("{}\n", clean(&token.token))
            })
        }
        NodesCommand::Revoke { id } => {
            let response = client
                .delete("admin/nodes/tokens", &[("id", &id)], Patience::Short)
                .await?;
            session.show(&response, |_: &Value| {
                format!("token {} is revoked\n", clean(&id))
            })
        }
        NodesCommand::Drain(args) => drain(session, &args).await,
        NodesCommand::Undrain { node } => {
            let show = |_: &Value, _| format!("{} is back in service\n", clean(&node));
            let body = json!({ "node": node });
            session.post("admin/nodes/undrain", &body, show).await
        }
    }
}

async fn drain(session: &Session, args: &DrainArgs) -> Result<(), CommandError> {
    let removal = Removal {
        route: "admin/nodes/drain",
        field: "node",
        name: &args.node,
        progress: "nodes list",
        back: "nodes undrain",
    };
    let response = remove(session, &removal, &args.how).await?;
    session.show(&response, |response: &DrainNodeResponse| {
        text::drained(response, session.screen.style)
    })
}
