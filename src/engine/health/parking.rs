//! Puts an engine to sleep and wakes it with the engine's own routes or commands, and checks the result, each
//! step with a timeout. The pool decides when an engine sleeps.

use std::process::Stdio;
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::{Request, header};
use hyper_util::rt::TokioIo;
use tokio::process::Command;

use super::probe::probe;
use crate::connection::Endpoint;
use crate::connection::endpoint::connect;
use catalog::{Call, Parking};

/// These routes respond with a short text.
const BODY_BYTES_MAX: usize = 64 << 10;

/// The interface by which an engine is put to sleep and woken.
#[derive(Clone, Debug)]
pub enum SleepBy {
    /// The engine's own routes.
    Routes(&'static Parking),
    /// Commands, with all templates already filled in.
    Commands {
        sleep: Vec<String>,
        wake: Vec<String>,
    },
}

/// Returns when the engine confirms that it sleeps. Errors are text for the history: the request and the response.
pub async fn fall_asleep(
    endpoint: &Endpoint,
    by: &SleepBy,
    timeout: Duration,
) -> Result<(), String> {
    let routes = match by {
        SleepBy::Routes(routes) => routes,
        SleepBy::Commands { sleep, .. } => return run(sleep, timeout).await,
    };
    call(endpoint, routes.sleep, timeout).await?;
    confirm_sleep(endpoint, routes, true).await
}

/// Returns when the engine confirms that it is awake and its health route responds.
pub async fn wake(
    endpoint: &Endpoint,
    by: &SleepBy,
    health: &str,
    timeout: Duration,
) -> Result<(), String> {
    match by {
        SleepBy::Routes(routes) => {
            for step in routes.wake {
                call(endpoint, *step, timeout).await?;
            }
            confirm_sleep(endpoint, routes, false).await?;
        }
        SleepBy::Commands { wake, .. } => run(wake, timeout).await?,
    }
    match probe(endpoint, health).await {
        Ok(response) if (200..300).contains(&response.status) => Ok(()),
        Ok(response) => Err(format!("after waking {health} answers {}", response.status)),
        Err(error) => Err(format!("after waking {health} does not answer: {error}")),
    }
}

/// Runs a command; an error contains the last line of its output.
pub async fn run(command: &[String], timeout: Duration) -> Result<(), String> {
    let [program, arguments @ ..] = command else {
        return Err("the command is empty".to_owned());
    };
    let ended = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(timeout, ended)
        .await
        .map_err(|_| format!("{program} did not end within {} s", timeout.as_secs()))?
        .map_err(|error| format!("{program}: {error}; is it installed, and in PATH?"))?;
    if output.status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    let last = stderr.trim().lines().last().unwrap_or("it printed nothing");
    let text: String = last
        .chars()
        .filter(|char| !char.is_control())
        .take(200)
        .collect();
    Err(format!("{program}: {text} ({})", output.status))
}

async fn confirm_sleep(endpoint: &Endpoint, routes: &Parking, asleep: bool) -> Result<(), String> {
    let Some(route) = routes.is_sleeping else {
        return Ok(());
    };
    let response = probe(endpoint, route)
        .await
        .map_err(|error| format!("GET {route}: {error}"))?;
    let body: serde_json::Value = serde_json::from_slice(&response.body).unwrap_or_default();
    match body.get("is_sleeping").and_then(serde_json::Value::as_bool) {
        Some(text) if text == asleep => Ok(()),
        Some(text) => Err(format!("GET {route} says is_sleeping: {text}")),
        None => Err(format!(
            "GET {route} answers {} without is_sleeping",
            response.status
        )),
    }
}

async fn call(endpoint: &Endpoint, call: Call, timeout: Duration) -> Result<(), String> {
    let what = format!("{} {}", call.method, call.path);
    let (status, body) = tokio::time::timeout(timeout, ask(endpoint, call))
        .await
        .map_err(|_| format!("{what}: no response within {} s", timeout.as_secs()))?
        .map_err(|error| format!("{what}: {error}"))?;
    if (200..300).contains(&status) {
        return Ok(());
    }
    let text: String = body
        .chars()
        .filter(|char| !char.is_control())
        .take(200)
        .collect();
    let hint = match status {
        404 | 405 => "; the engine was started without its sleep mode",
        _ => "",
    };
    Err(format!("{what} answers {status}: {text}{hint}"))
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

async fn ask(endpoint: &Endpoint, call: Call) -> Result<(u16, String), BoxError> {
    let stream = TokioIo::new(connect(endpoint).await?);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await?;
    let request = Request::builder()
        .method(call.method)
        .uri(call.path)
        .header(header::HOST, "localhost")
        .header(header::CONNECTION, "close")
        .header(header::CONTENT_TYPE, "application/json")
        .body(Full::new(bytes::Bytes::from_static(
            call.body.unwrap_or_default().as_bytes(),
        )))?;
    let exchange = async {
        let response = sender.send_request(request).await?;
        let status = response.status().as_u16();
        let body = Limited::new(response.into_body(), BODY_BYTES_MAX);
        let body = body.collect().await?.to_bytes();
        Ok((status, String::from_utf8_lossy(&body).into_owned()))
    };
    let drive = async {
        let _ = connection.await;
        std::future::pending::<std::convert::Infallible>().await
    };
    tokio::select! {
        result = exchange => result,
        never = drive => match never {},
    }
}
