//! `cordon` and `uncordon`: take a device out of service and put it back. Ctrl-C stops the display,
//! not the drain.

use serde_json::{Map, Value, json};

use crate::answers::{CordonAnswer, UncordonAnswer};
use crate::cli::CordonArgs;
use crate::commands::Session;
use crate::failure::Failure;
use crate::render::cordon as text;
use crate::render::quantity::Clock;
use crate::screen::announced;

pub async fn cordon(session: &Session, args: &CordonArgs) -> Result<(), Failure> {
    let request = body(args);
    let waits = !session.json && !args.now && !args.no_wait;
    let post = announced(
        session.client.post("admin/devices/cordon", &request),
        waits.then_some(
            "Waiting for the requests in flight to end. --no-wait returns at once; --now cuts them.",
        ),
    );
    let answer = tokio::select! {
        answer = post => answer?,
        _ = tokio::signal::ctrl_c() => return Err(Failure::Interrupted(format!(
            "stopped watching; {0} is still draining. `admin-client devices` shows its progress, `admin-client uncordon {0}` puts it back into service",
            args.device
        ))),
    };
    session.show(&answer, |answer: &CordonAnswer| {
        text::cordoned(answer, Clock::read(), session.screen.style)
    })
}

pub async fn uncordon(session: &Session, device: &str) -> Result<(), Failure> {
    let answer = session
        .client
        .post("admin/devices/uncordon", &json!({ "device": device }))
        .await?;
    session.show(&answer, |answer: &UncordonAnswer| {
        text::uncordoned(answer, session.screen.style)
    })
}

/// The request body, without absent options.
fn body(args: &CordonArgs) -> Value {
    let mut body = Map::new();
    body.insert("device".to_owned(), args.device.clone().into());
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
