//! Failures of a command, with message, exit status and advice. Prints nothing.

use std::io;

use client::{ClientError, Refusal, root_cause};
use serde_json::Value;

use crate::render;
use crate::render::fold::{item, painted, sentence};
use crate::responses::Plan;
use crate::style::{Style, Tint, clean};

/// The failure of a command.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The command line or a file it names cannot be used.
    #[error("{0}")]
    Usage(String),
    /// A followed stream ended, and reconnecting failed.
    #[error("the server at {server} ended the stream and did not resume it")]
    StreamEnded { server: String },
    /// The plan has obstacles. Standard output has the plan already.
    #[error("a load of {0} would be refused")]
    Infeasible(String),
    /// Fewer replicas became ready than requested. Standard output has the result already.
    #[error("{0}")]
    Partial(String),
    /// The server cannot use some of its model files. Standard output has their names already.
    #[error("{0}; everything else is reloaded")]
    BrokenFiles(String),
    /// The user did not confirm.
    #[error("cancelled; nothing changed")]
    Declined,
    /// Ctrl-C while the server works.
    #[error("{0}")]
    Interrupted(String),
    #[error("cannot write the output")]
    Output(#[source] io::Error),
    #[error("cannot read the confirmation from standard input")]
    Question(#[source] io::Error),
    #[error("cannot start the runtime")]
    Runtime(#[source] io::Error),
}

impl CommandError {
    /// The exit status of this kind of failure.
    pub fn exit_status(&self) -> u8 {
        match self {
            CommandError::Client(failure) => failure.exit_status(),
            CommandError::Usage(_) => 2,
            CommandError::StreamEnded { .. } => 3,
            _ => 1,
        }
    }

    /// The full message: the failure, its cause, and advice.
    pub fn explain(&self, style: Style) -> String {
        let message = format!("error: {}", clean(&self.to_string()));
        let mut text = painted(&message, &[(Tint::Bad, "error:")], style);
        if let Some(cause) = root_cause(self) {
            text.push_str(&item("cause", None, &clean(&cause), style));
        }
        if let CommandError::Client(failure) = self {
            if let Some(refusal) = failure.refusal() {
                explain_refusal(&mut text, refusal, style);
            }
            if let Some(advice) = failure.advice() {
                text.push_str(&sentence(&clean(&advice), style));
            }
        }
        text
    }
}

fn explain_refusal(text: &mut String, refusal: &Refusal, style: Style) {
    if let 401 | 403 = refusal.status {
        text.push_str(&sentence(
            &format!(
                "Admin commands need an admin key. {}\n\
                 The key comes from --key, MODEL_POOL_ADMIN_KEY, the file in --key-file or MODEL_POOL_ADMIN_KEY_FILE, or ./data/admin.key.",
                refusal.key_story
            ),
            style,
        ));
    }
    let body: Value = serde_json::from_str(&refusal.body).unwrap_or_default();
    let find = |names: [&[&str]; 2]| {
        let at = |path: &[&str]| path.iter().try_fold(&body, |value, name| value.get(name));
        names.into_iter().find_map(at)
    };
    let closest = find([&["error", "closest"], &["closest"]]).and_then(Value::as_array);
    let names = closest.into_iter().flatten().filter_map(Value::as_str);
    let unnamed: Vec<&str> = names
        .filter(|name| !refusal.message.contains(name))
        .collect();
    if !unnamed.is_empty() {
        let names = format!("The closest names: {}", clean(&unnamed.join(", ")));
        text.push_str(&sentence(&names, style));
    }
    let plan = find([&["plan"], &["refusal"]]).filter(|plan| plan.is_object());
    let plan: Option<Plan> = plan.and_then(|plan| serde_json::from_value(plan.clone()).ok());
    if let Some(plan) = &plan {
        let is_said = |reason: &String| refusal.message.contains(reason.as_str());
        text.push_str(&if plan.reason.as_ref().is_some_and(is_said) {
            render::plan::needs_and_places(plan, style)
        } else {
            render::plan::obstacles(plan, style)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn explained(status: u16, body: &str) -> String {
        let value: Value = serde_json::from_str(body).expect("JSON");
        let (message, code) = client::error_of(&value).expect("an error object");
        let refusal = Refusal {
            status,
            message,
            code,
            key_story: "The key from x was sent.".to_owned(),
            body: body.to_owned(),
            ..Refusal::default()
        };
        CommandError::from(ClientError::Refused(Box::new(refusal))).explain(Style::PLAIN)
    }

    #[test]
    fn a_refused_key_names_the_source_of_the_key() {
        let text = explained(403, r#"{"error":{"message":"not an admin key"}}"#);
        assert!(text.starts_with("error: not an admin key\n"), "{text}");
        assert!(text.contains("The key from x was sent."), "{text}");
        assert!(text.contains("./data/admin.key"), "{text}");
    }

    #[test]
    fn an_unknown_model_shows_the_closest_names_once() {
        let text = explained(
            404,
            r#"{"error":{"message":"no model \"a\"; did you mean \"ab\"?","closest":["ab","ac"]}}"#,
        );
        assert!(text.contains("The closest names: ac\n"), "{text}");
    }

    #[test]
    fn a_reason_contained_in_the_message_is_not_repeated() {
        let text = explained(
            409,
            r#"{"error":{"message":"m: no room"},"plan":{"model":"m","reason":"no room",
                "candidates":[{"place":"gpu0","verdict":"held"}]}}"#,
        );
        assert_eq!(text, "error: m: no room\n  gpu0  held\n");
    }
}
