//! Sends one request on a connection, reads its response, and records the times and the result.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::{HeaderMap, Method, Request, Response, Uri};

use super::connection::{Connection, describe};
use super::plan::Plan;
use super::prompts::Prompts;
use super::response::{self as responses, Events, RequestError, RequestResult};
use super::target::Target;

/// Maximum size of a non-streaming response, or of a list of models.
const RESPONSE_BYTES_MAX: usize = 256 << 20;

pub struct Client {
    pub target: Target,
    prompts: Prompts,
    uri: Uri,
    headers: HeaderMap,
    stream: bool,
    timeout: Duration,
    /// Idle connections.
    idle: Mutex<Vec<Connection>>,
    opened: std::sync::atomic::AtomicU64,
}

#[expect(
    clippy::disallowed_methods,
    reason = "a load generator measures real time, only here"
)]
pub fn now() -> Instant {
    Instant::now()
}

impl Client {
    pub fn new(plan: Plan, prompts: Prompts) -> Result<Client, String> {
        Ok(Client {
            uri: plan.target.uri(plan.route.path())?,
            headers: plan.target.headers(),
            target: plan.target,
            prompts,
            stream: plan.stream,
            timeout: plan.timeout,
            idle: Mutex::default(),
            opened: std::sync::atomic::AtomicU64::new(0),
        })
    }

    pub fn connections_opened(&self) -> u64 {
        self.opened.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Returns an idle connection, or opens a new one.
    pub async fn connection(&self) -> Result<Connection, String> {
        loop {
            let idle = crate::locking::locked(&self.idle).pop();
            let Some(mut connection) = idle else { break };
            if connection.is_usable().await {
                return Ok(connection);
            }
        }
        self.opened
            .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Connection::open(&self.target).await
    }

    pub fn give_back(&self, connection: Connection) {
        crate::locking::locked(&self.idle).push(connection);
    }

    /// Sends one request. A reusable connection is left in `connection`.
    pub async fn ask(
        &self,
        nth: u64,
        due: Instant,
        connection: &mut Option<Connection>,
    ) -> RequestResult {
        let mut response = RequestResult::default();
        let deadline = tokio::time::Instant::from_std(due + self.timeout);
        let outcome = self.try_ask(nth, due, connection, &mut response);
        match tokio::time::timeout_at(deadline, outcome).await {
            Ok(Ok(())) => {}
            Ok(Err(fault)) => response.fault = Some(fault),
            Err(_) => {
                let message = format!("no complete response within {:?}", self.timeout);
                response.fault = Some(RequestError::new("timeout", message));
                *connection = None;
            }
        }
        response.took = now().saturating_duration_since(due);
        response
    }

    async fn try_ask(
        &self,
        nth: u64,
        due: Instant,
        kept: &mut Option<Connection>,
        result: &mut RequestResult,
    ) -> Result<(), RequestError> {
        let usable = match kept.take() {
            Some(mut connection) => connection.is_usable().await.then_some(connection),
            None => None,
        };
        let mut connection = match usable {
            Some(connection) => connection,
            None => self
                .connection()
                .await
                .map_err(|message| RequestError::new(brief(&message), &message))?,
        };
        let request = self.request(nth);
        result.late = now().saturating_duration_since(due);
        let response = connection
            .send(request)
            .await
            .map_err(|message| no_response(&message))?;
        let status = response.status();
        if !status.is_success() {
            let body = read_complete(&mut connection, response, result).await?;
            *kept = Some(connection);
            return Err(responses::refused(status.as_u16(), &body));
        }
        if self.stream {
            self.read_stream(&mut connection, response, due, result)
                .await?;
        } else {
            let body = read_complete(&mut connection, response, result).await?;
            responses::read_complete(&body, result);
        }
        *kept = Some(connection);
        Ok(())
    }

    fn request(&self, nth: u64) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(self.prompts.body(nth)));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = self.headers.clone();
        request
    }

    async fn read_stream(
        &self,
        connection: &mut Connection,
        response: Response<Incoming>,
        due: Instant,
        result: &mut RequestResult,
    ) -> Result<(), RequestError> {
        let mut body = response.into_body();
        let mut events = Events::default();
        while let Some(frame) = connection.during(body.frame()).await {
            let frame = frame.map_err(|error| no_response(&describe(&error)))?;
            if let Some(data) = frame.data_ref() {
                result.bytes += data.len() as u64;
                events.push(data, now());
            }
        }
        events.finish(due, result);
        Ok(())
    }

    /// Opens a stream and reads until its first token. The stream stays open as long as the caller keeps the connection and the
    /// rest of the response.
    pub async fn open_stream(&self, nth: u64) -> Result<(Connection, Incoming), RequestError> {
        let opened = async {
            let connection = self.connection().await;
            let mut connection =
                connection.map_err(|message| RequestError::new(brief(&message), &message))?;
            let sent = connection.send(self.request(nth)).await;
            let response = sent.map_err(|message| no_response(&message))?;
            let status = response.status();
            if !status.is_success() {
                let body =
                    read_complete(&mut connection, response, &mut RequestResult::default()).await?;
                return Err(responses::refused(status.as_u16(), &body));
            }
            let mut body = response.into_body();
            let mut events = Events::default();
            loop {
                match connection.during(body.frame()).await {
                    Some(Ok(frame)) => {
                        let data = frame.data_ref().map(|data| events.push(data, now()));
                        if let (Some(()), Some(fault)) = (data, events.fault()) {
                            return Err(fault.clone());
                        }
                    }
                    Some(Err(error)) => return Err(no_response(&describe(&error))),
                    None => return Err(RequestError::new("ended", "the stream ended immediately")),
                }
                if events.has_begun() {
                    return Ok((connection, body));
                }
            }
        };
        match tokio::time::timeout(self.timeout, opened).await {
            Ok(opened) => opened,
            Err(_) => Err(RequestError::new(
                "timeout",
                format!("no token within {:?}", self.timeout),
            )),
        }
    }
}

fn no_response(message: &str) -> RequestError {
    RequestError::new("broken off", message)
}

/// The part of an error message that is the same for all errors of its kind.
fn brief(message: &str) -> &str {
    message.split(':').next().unwrap_or(message)
}

async fn read_complete(
    connection: &mut Connection,
    response: Response<Incoming>,
    result: &mut RequestResult,
) -> Result<Bytes, RequestError> {
    let mut body = Limited::new(response.into_body(), RESPONSE_BYTES_MAX);
    let mut first = Bytes::new();
    let mut more = BytesMut::new();
    while let Some(frame) = connection.during(body.frame()).await {
        let frame = frame.map_err(|error| no_response(&error.to_string()))?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        result.bytes += data.len() as u64;
        match (first.is_empty(), more.is_empty()) {
            (true, _) => first = data,
            (false, true) => {
                more.extend_from_slice(&first);
                more.extend_from_slice(&data);
            }
            (false, false) => more.extend_from_slice(&data),
        }
    }
    Ok(if more.is_empty() {
        first
    } else {
        more.freeze()
    })
}

/// The only model that the endpoint lists.
pub async fn only_model(target: &Target, timeout: Duration) -> Result<String, String> {
    let url = target.url("/models");
    let advice = "choose one with --model";
    let outcome = async {
        let mut connection = Connection::open(target).await?;
        let mut request = Request::new(Full::default());
        *request.uri_mut() = target.uri("/models")?;
        *request.headers_mut() = target.headers();
        let response = connection.send(request).await?;
        let status = response.status();
        let mut read = RequestResult::default();
        let body = read_complete(&mut connection, response, &mut read).await;
        let body = body.map_err(|fault| fault.message)?;
        if !status.is_success() {
            let fault = responses::refused(status.as_u16(), &body);
            return Err(format!("{}: {}", fault.label, fault.message));
        }
        serde_json::from_slice::<serde_json::Value>(&body).map_err(|error| error.to_string())
    };
    let listed = match tokio::time::timeout(timeout, outcome).await {
        Ok(listed) => listed.map_err(|why| format!("{url}: {why}"))?,
        Err(_) => return Err(format!("{url} has not answered within {timeout:?}")),
    };
    let ids = listed["data"].as_array().into_iter().flatten();
    let ids: Vec<&str> = ids.filter_map(|model| model["id"].as_str()).collect();
    match ids.as_slice() {
        [one] => Ok((*one).to_owned()),
        [] => Err(format!("{url} lists no model; {advice}")),
        several => Err(format!(
            "{url} lists {} models, such as {}; {advice}",
            several.len(),
            several[..several.len().min(5)].join(", ")
        )),
    }
}
