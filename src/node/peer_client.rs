//! Downloads files of weights from another node of the pool, through its listener.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use http_body_util::{BodyDataStream, Empty};
use hyper::header::{AUTHORIZATION, CONTENT_RANGE, HOST, HeaderMap, HeaderValue, RANGE};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::peer_server::ROUTE;
use super::target::drive;
use engine::{Fingerprint, Stream};
use node_link::PeerForm;
use source::{Peer, PeerError, PeerFile};

/// Time limit from the first packet to the head of the response, and so for a node that is gone.
const OPEN_WITHIN: Duration = Duration::from_secs(10);

/// A node that has a model's weights, with the token for them.
pub(super) struct PeerNode {
    node: String,
    address: SocketAddr,
    fingerprint: Option<Fingerprint>,
    token: HeaderValue,
    /// The model's folder in a cache.
    model: String,
}

impl PeerNode {
    /// Returns `None` if the form names no reachable node.
    pub fn new(form: &PeerForm, model: &str) -> Option<PeerNode> {
        let fingerprint = form
            .fingerprint
            .as_deref()
            .map(str::parse::<Fingerprint>)
            .transpose();
        let mut token = HeaderValue::from_str(&format!("Bearer {}", form.token)).ok()?;
        token.set_sensitive(true);
        Some(PeerNode {
            node: form.node.clone(),
            address: form.address,
            fingerprint: fingerprint.ok()?,
            token,
            model: model.to_owned(),
        })
    }

    async fn connect(&self) -> io::Result<Stream> {
        let stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        Ok(match self.fingerprint {
            None => Stream::tcp(stream),
            Some(fingerprint) => {
                let ip = self.address.ip();
                let stream = engine::connect_pinned(stream, fingerprint, ip).await?;
                Stream::tls(stream)
            }
        })
    }

    async fn request(&self, blob: &str, offset: u64) -> Result<PeerFile, PeerError> {
        let failed = |why: String| PeerError::Failed(why);
        let stream = self.connect().await;
        let stream = stream.map_err(|error| failed(format!("cannot connect: {error}")))?;
        let broken = |error: hyper::Error| failed(format!("the connection broke: {error}"));
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(broken)?;
        let driver = drive(async move {
            let _ = connection.await;
        });
        let mut request = Request::get(format!("{ROUTE}{}/{blob}", self.model))
            .header(HOST, self.address.to_string())
            .header(AUTHORIZATION, self.token.clone());
        if offset > 0 {
            request = request.header(RANGE, format!("bytes={offset}-"));
        }
        let request = request.body(Empty::<Bytes>::new());
        let request = request.map_err(|error| failed(error.to_string()))?;
        let response = sender.send_request(request).await.map_err(broken)?;
        let offset = match response.status() {
            StatusCode::OK => 0,
            StatusCode::PARTIAL_CONTENT if begins_at(response.headers(), offset) => offset,
            StatusCode::SERVICE_UNAVAILABLE => return Err(PeerError::Busy),
            StatusCode::NOT_FOUND => {
                return Err(failed("it does not have the file any more".to_owned()));
            }
            StatusCode::UNAUTHORIZED => {
                return Err(failed(
                    "it does not accept the controller's token".to_owned(),
                ));
            }
            status => return Err(failed(format!("it answers {}", status.as_u16()))),
        };
        let body = BodyDataStream::new(response.into_body()).map(move |piece| {
            // The connection must live as long as the body.
            let _held = (&driver, &sender);
            piece.map_err(|error| format!("the connection broke: {error}"))
        });
        Ok(PeerFile {
            offset,
            body: body.boxed(),
        })
    }
}

impl Peer for PeerNode {
    fn node(&self) -> &str {
        &self.node
    }

    fn open<'a>(
        &'a self,
        blob: &'a str,
        offset: u64,
    ) -> BoxFuture<'a, Result<PeerFile, PeerError>> {
        Box::pin(async move {
            match timeout(OPEN_WITHIN, self.request(blob, offset)).await {
                Ok(opened) => opened,
                Err(_) => Err(PeerError::Failed(format!(
                    "it has not answered for {} s",
                    OPEN_WITHIN.as_secs()
                ))),
            }
        })
    }
}

/// Returns true if the response starts at the requested offset.
fn begins_at(headers: &HeaderMap, offset: u64) -> bool {
    let range = headers
        .get(CONTENT_RANGE)
        .and_then(|value| value.to_str().ok());
    let from = range.and_then(|range| range.strip_prefix("bytes ")?.split('-').next());
    from.and_then(|from| from.parse::<u64>().ok()) == Some(offset)
}
