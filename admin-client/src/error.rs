//! Failures of a command, with message, exit status and advice. Prints nothing.

use std::io;

use serde_json::Value;

use crate::render;
use crate::render::fold::{item, painted, sentence};
use crate::responses::Plan;
use crate::style::{Style, Tint, clean};
use terminal::trust::CertificateProblem;

/// The failure of a command.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The command line or a file it names cannot be used.
    #[error("{0}")]
    Usage(String),
    /// No response from the server.
    #[error("cannot reach the server at {server}")]
    Unreachable {
        server: String,
        /// Nothing listens at the address, in contrast to a server that stopped responding.
        refused: bool,
        #[source]
        source: reqwest::Error,
    },
    /// The server's certificate is not trusted.
    #[error("cannot reach the server at {server}: {} ({})", .problem.what, .problem.detail)]
    Untrusted {
        server: String,
        problem: CertificateProblem,
    },
    /// The server speaks HTTP where TLS was expected, or the other way round.
    #[error("{server} {}", scheme_problem(*.speaks_tls))]
    WrongScheme { server: String, speaks_tls: bool },
    /// The HTTP client cannot be created, or the request is invalid.
    #[error("cannot make a request to {server}")]
    Request {
        server: String,
        #[source]
        source: reqwest::Error,
    },
    /// The server responded with an error object.
    #[error("{}", .0.message)]
    Refused(Box<Refusal>),
    /// The server is not a model pool.
    #[error("{server} is not a model pool: {path} returned status {status}: {excerpt}")]
    NotThePool {
        server: String,
        path: String,
        status: u16,
        excerpt: String,
    },
    /// The response is JSON of an unknown shape.
    #[error("this version of admin-client does not understand the server's response to {path}")]
    Shape {
        path: String,
        #[source]
        source: serde_json::Error,
    },
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

/// An error object of the server.
#[derive(Debug)]
pub struct Refusal {
    pub status: u16,
    pub message: String,
    /// Names similar to the unknown one.
    pub closest: Vec<String>,
    pub plan: Option<Plan>,
    /// The body, unchanged.
    pub body: String,
    pub request_id: Option<String>,
}

impl Refusal {
    /// Reads an error object; `None` if the body is not one.
    pub fn read(status: u16, body: &str, request_id: Option<String>) -> Option<Refusal> {
        let value: Value = serde_json::from_str(body).ok()?;
        let error = value.get("error")?;
        let message = error.get("message")?.as_str()?.to_owned();
        let closest = error
            .get("closest")
            .or_else(|| value.get("closest"))
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect();
        let plan = value
            .get("plan")
            .or_else(|| value.get("refusal"))
            .filter(|plan| plan.is_object())
            .and_then(|plan| serde_json::from_value(plan.clone()).ok());
        Some(Refusal {
            status,
            message,
            closest,
            plan,
            body: body.to_owned(),
            request_id,
        })
    }
}

impl CommandError {
    /// The exit status of this kind of failure.
    pub fn exit_status(&self) -> u8 {
        match self {
            CommandError::Usage(_) => 2,
            CommandError::Unreachable { .. }
            | CommandError::Untrusted { .. }
            | CommandError::WrongScheme { .. }
            | CommandError::StreamEnded { .. } => 3,
            _ => 1,
        }
    }

    /// The full message: the failure, its cause, and advice. `key_story` describes the source of the admin key.
    pub fn explain(&self, style: Style, key_story: Option<&str>) -> String {
        let message = format!("error: {}", clean(&self.to_string()));
        let mut text = painted(&message, &[(Tint::Bad, "error:")], style);
        // The causes in between are the library's own: "error sending request", "client error".
        let causes = std::iter::successors(std::error::Error::source(self), |error| error.source());
        if let Some(root) = causes.last() {
            text.push_str(&item("cause", None, &clean(&root.to_string()), style));
        }
        let mut advise = |advice: &str| text.push_str(&sentence(advice, style));
        match self {
            CommandError::Unreachable { refused: true, .. } => advise(
                "Is it running? Start it with `model-pool serve`, or name another server with --server or MODEL_POOL_SERVER.",
            ),
            CommandError::Untrusted { problem, .. } => advise(problem.advice),
            CommandError::WrongScheme { server, .. } => advise(&format!(
                "Use --server {} (MODEL_POOL_SERVER).",
                clean(&other_scheme(server))
            )),
            CommandError::NotThePool { .. } => advise(
                "Check --server (MODEL_POOL_SERVER): it must be the URL of a model pool, with its base path if that is not /llm.",
            ),
            CommandError::Refused(refusal) => refused(&mut text, refusal, style, key_story),
            _ => {}
        }
        text
    }
}

fn refused(text: &mut String, refusal: &Refusal, style: Style, key_story: Option<&str>) {
    if let (401 | 403, Some(story)) = (refusal.status, key_story) {
        text.push_str(&sentence(
            &format!(
                "Admin commands need an admin key; {story}.\n\
                 The key comes from --key, MODEL_POOL_ADMIN_KEY, the file in --key-file or MODEL_POOL_ADMIN_KEY_FILE, or ./data/admin.key."
            ),
            style,
        ));
    }
    let unnamed: Vec<&str> = refusal
        .closest
        .iter()
        .map(String::as_str)
        .filter(|name| !refusal.message.contains(name))
        .collect();
    if !unnamed.is_empty() {
        let names = format!("The closest names: {}", clean(&unnamed.join(", ")));
        text.push_str(&sentence(&names, style));
    }
    if let Some(plan) = &refusal.plan {
        let is_said = |reason: &String| refusal.message.contains(reason.as_str());
        text.push_str(&if plan.reason.as_ref().is_some_and(is_said) {
            render::plan::needs_and_places(plan, style)
        } else {
            render::plan::obstacles(plan, style)
        });
    }
    if let (500.., Some(id)) = (refusal.status, &refusal.request_id) {
        let text_of_id = format!("See the server's log for request {}.", clean(id));
        text.push_str(&sentence(&text_of_id, style));
    }
}

fn scheme_problem(speaks_tls: bool) -> &'static str {
    if speaks_tls {
        "uses TLS, but the URL's scheme is http"
    } else {
        "uses plain HTTP, but the URL's scheme is https"
    }
}

/// The same URL with the other scheme, without the default base path.
fn other_scheme(server: &str) -> String {
    let server = server.strip_suffix("/llm").unwrap_or(server);
    match server.split_once("://") {
        Some(("https", rest)) => format!("http://{rest}"),
        Some((_, rest)) => format!("https://{rest}"),
        None => server.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn explained(status: u16, body: &str) -> String {
        let refusal =
            Refusal::read(status, body, Some("req-9".to_owned())).expect("an error object");
        CommandError::Refused(Box::new(refusal))
            .explain(Style::PLAIN, Some("the key from x was sent"))
    }

    #[test]
    fn a_refused_key_names_the_source_of_the_key() {
        let text = explained(403, r#"{"error":{"message":"not an admin key"}}"#);
        assert!(text.starts_with("error: not an admin key\n"), "{text}");
        assert!(text.contains("the key from x was sent"), "{text}");
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
    fn a_failure_inside_the_server_names_the_request() {
        assert!(explained(500, r#"{"error":{"message":"m"}}"#).contains("req-9"));
        assert!(!explained(404, r#"{"error":{"message":"m"}}"#).contains("req-9"));
    }

    #[test]
    fn a_wrong_scheme_gets_the_right_one_suggested() {
        for (server, right) in [
            (
                "https://gpu.example:8080/llm",
                "--server http://gpu.example:8080 ",
            ),
            (
                "http://gpu.example:8443/pool",
                "--server https://gpu.example:8443/pool ",
            ),
        ] {
            let failure = CommandError::WrongScheme {
                server: server.to_owned(),
                speaks_tls: server.starts_with("http:"),
            };
            let text = failure.explain(Style::PLAIN, None);
            assert!(text.contains(right), "{text}");
            assert_eq!(failure.exit_status(), 3);
        }
    }

    #[test]
    fn a_reason_that_the_message_gives_is_not_repeated() {
        let text = explained(
            409,
            r#"{"error":{"message":"m: no room"},"plan":{"model":"m","reason":"no room",
                "candidates":[{"place":"gpu0","verdict":"held"}]}}"#,
        );
        assert_eq!(text, "error: m: no room\n  gpu0  held\n");
    }

    #[test]
    fn a_body_that_is_not_an_error_object_is_recognized() {
        assert!(Refusal::read(404, "<html>", None).is_none());
        assert!(Refusal::read(404, r#"{"detail":"Not Found"}"#, None).is_none());
    }
}
