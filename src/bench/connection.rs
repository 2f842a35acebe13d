//! One connection to the endpoint, HTTP/1.1 or HTTP/2. The caller drives it while it waits for a response, without a separate task,
//! which keeps this program's scheduling out of the measurement.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};

use super::target::Target;

enum Sender {
    One(http1::SendRequest<Full<Bytes>>),
    Two(http2::SendRequest<Full<Bytes>>),
}

pub struct Connection {
    sender: Sender,
    driver: Driver,
}

type ConnectionFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Drives a connection; `None` once it has ended.
struct Driver(Option<ConnectionFuture>);

impl Driver {
    async fn during<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        poll_fn(|context| {
            if let Some(moving) = &mut self.0
                && moving.as_mut().poll(context).is_ready()
            {
                self.0 = None;
            }
            // If the work leaves something for the driver, it wakes this task again.
            work.as_mut().poll(context)
        })
        .await
    }
}

impl Connection {
    pub async fn open(target: &Target) -> Result<Connection, String> {
        let stream = target.connect().await.map_err(|error| match error.kind() {
            std::io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
            _ => format!("cannot connect: {error}"),
        })?;
        let io = TokioIo::new(stream);
        let failed = |error: hyper::Error| format!("cannot connect: {}", describe(&error));
        let (sender, driver): (_, ConnectionFuture) = if !target.http2 {
            let (sender, driver) = http1::handshake(io).await.map_err(failed)?;
            (Sender::One(sender), Box::pin(async { drop(driver.await) }))
        } else {
            let executor = TokioExecutor::new();
            let (sender, driver) = http2::handshake(executor, io).await.map_err(failed)?;
            (Sender::Two(sender), Box::pin(async { drop(driver.await) }))
        };
        Ok(Connection {
            sender,
            driver: Driver(Some(driver)),
        })
    }

    /// Drives the connection until the work is done.
    pub async fn during<T>(&mut self, work: impl Future<Output = T>) -> T {
        self.driver.during(work).await
    }

    /// Returns true if another request can be sent. Detects a connection that was closed while idle.
    pub async fn is_usable(&mut self) -> bool {
        self.during(async {}).await;
        let is_closed = match &self.sender {
            Sender::One(sender) => sender.is_closed(),
            Sender::Two(sender) => sender.is_closed(),
        };
        self.driver.0.is_some() && !is_closed
    }

    pub async fn send(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, String> {
        let Connection { sender, driver } = self;
        let sent = async {
            match sender {
                Sender::One(sender) => {
                    sender.ready().await?;
                    sender.send_request(request).await
                }
                Sender::Two(sender) => {
                    sender.ready().await?;
                    sender.send_request(request).await
                }
            }
        };
        driver.during(sent).await.map_err(|error| describe(&error))
    }
}

pub fn describe(error: &hyper::Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
