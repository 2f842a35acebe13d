//! Uploads: the parts of a form are read while they arrive, and the file goes to disk line by line, in constant memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::multipart::{Field, MultipartError};
use axum::extract::{DefaultBodyLimit, FromRequest, Multipart};
use axum::http::{HeaderMap, Request, header};
use futures_util::StreamExt;
use tokio::sync::mpsc;

use super::upload_refusal::{invalid, refusal};
use crate::open_batches::{
    HolderTotals, Reservation, SpaceError, UPLOADS_PER_HOLDER, UploadSlot, store_failed,
};
use crate::state::App;
use api_types::error::{ErrorKind, Failure};
use batch::{GZIP_MAGIC, RequestFileSummary, Upload, UploadError, UploadLimits};
use pool::{Bytes as ByteCount, Span};

/// Pieces between the network and the disk.
const PIECES_MAX: usize = 8;
/// The time for which a client may send nothing.
pub(super) const SILENT_MAX: Duration = Duration::from_secs(60);
/// Largest field other than the file.
const FIELD_MAX: usize = 1 << 10;
const FIELDS_MAX: usize = 16;
const NAME_MAX: usize = 255;
const MODELS_MAX: usize = 100;
/// Bytes of a form outside of its file without a complete field, such as the heads of parts.
const BETWEEN_MAX: usize = 8 << 20;
/// The expiry that a client may set, in seconds.
pub(super) const EXPIRY: std::ops::RangeInclusive<u64> = 3_600..=2_592_000;

/// A file that has arrived.
pub(super) struct Received {
    pub name: String,
    pub expires_after: Option<Span>,
    pub summary: RequestFileSummary,
}

/// The fields of a form so far.
#[derive(Default)]
struct Form {
    purpose: Option<String>,
    anchor: Option<String>,
    seconds: Option<u64>,
    file: Option<(String, RequestFileSummary)>,
}

/// An upload that has begun.
pub(super) struct Begun {
    /// Counts the uploads in progress.
    pub slot: UploadSlot,
    pub space: Reservation,
}

/// Begins an upload of this holder that needs this space, in addition to the bytes of its file.
///
/// # Errors
/// The holder has too many uploads, or a limit of the holder leaves less space. `full` makes the error for the client.
pub(super) async fn begin(
    app: &App,
    holder: &str,
    space: HolderTotals,
    full: impl FnOnce(SpaceError) -> Failure,
) -> Result<Begun, Failure> {
    let batches = &app.batches;
    let slot = batches.begin_upload(holder).ok_or_else(|| {
        let message = format!(
            "this key has {UPLOADS_PER_HOLDER} uploads in progress, the limit; wait until one has ended"
        );
        Failure::new(ErrorKind::TooMany, "too_many_uploads", message)
    })?;
    let space = Reservation::new(batches, holder, space).await;
    let space = space.map_err(full)?;
    Ok(Begun { slot, space })
}

/// The limits of an upload, whose bytes are reserved. `bytes_max`: the most bytes that the file can have, if that is known.
///
/// # Errors
/// The store cannot be read.
pub(super) async fn limits(
    app: &App,
    space: &mut Reservation,
    bytes_max: Option<u64>,
) -> Result<UploadLimits, Failure> {
    let config = app.config();
    let section = &config.batch;
    let most = section.files_max.0.0.min(bytes_max.unwrap_or(u64::MAX));
    // The last line gets its end when it is stored.
    let reserved = space.reserve_bytes(ByteCount(most.saturating_add(1))).await;
    Ok(UploadLimits {
        bytes_max: reserved.map_err(store_failed)?.0.saturating_sub(1),
        line_bytes_max: usize::try_from(section.request_max.0.0).unwrap_or(usize::MAX),
        lines_max: u64::from(section.requests_max),
        models_max: MODELS_MAX,
    })
}

/// The announced length of a body.
pub(super) fn announced(headers: &HeaderMap) -> Option<u64> {
    let length = headers.get(header::CONTENT_LENGTH)?;
    length.to_str().ok()?.parse().ok()
}

/// The error for a client that sends nothing.
pub(super) fn too_slow() -> Failure {
    let message = format!("the client sent nothing for {} s", SILENT_MAX.as_secs());
    Failure::new(ErrorKind::TooSlow, "body_too_slow", message)
}

/// An upload while it arrives.
struct Arriving<'a> {
    app: &'a App,
    /// The id of the file.
    id: &'a str,
    /// The announced length of the form.
    announced: Option<u64>,
    /// Bytes since the last complete field or piece of the file.
    since: &'a AtomicUsize,
    space: &'a mut Reservation,
}

/// Reads an upload and stores its file under this id. Reserves the bytes of the file.
///
/// # Errors
/// The form or a line of the file is wrong, the file is too large, or the disk refuses it. Nothing is left on disk then.
pub(super) async fn receive(
    app: &App,
    id: &str,
    mut request: Request<Body>,
    space: &mut Reservation,
) -> Result<Received, Failure> {
    let announced = announced(request.headers());
    let since = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&since);
    // The form's reader keeps everything up to the next boundary in memory.
    request = request.map(|body| {
        let pieces = body.into_data_stream().map(move |piece| {
            let piece = piece.map_err(std::io::Error::other)?;
            let bytes = counted.fetch_add(piece.len(), Ordering::Relaxed) + piece.len();
            if bytes > BETWEEN_MAX {
                return Err(std::io::Error::other("a head or a field is too long"));
            }
            Ok(piece)
        });
        Body::from_stream(pieces)
    });
    // The size is limited while the file is written.
    DefaultBodyLimit::apply(DefaultBodyLimit::disable(), &mut request);
    let form = Multipart::from_request(request, &()).await;
    let Ok(mut form) = form else {
        let message = "the body must be a form, multipart/form-data with its boundary";
        return Err(Failure::invalid(None, message));
    };
    let mut arriving = Arriving {
        app,
        id,
        announced,
        since: &since,
        space,
    };
    let (mut fields, mut count) = (Form::default(), 0);
    let read = async {
        while let Some(field) = within(form.next_field(), &since).await? {
            count += 1;
            if count > FIELDS_MAX {
                let message = format!("the form has more than {FIELDS_MAX} fields");
                return Err(Failure::invalid(None, message));
            }
            fields.read(&mut arriving, field).await?;
        }
        fields.finish()
    };
    let received = read.await;
    if received.is_err() {
        app.batches.remove(id).await;
    }
    received
}

impl Form {
    async fn read(&mut self, arriving: &mut Arriving<'_>, field: Field<'_>) -> Result<(), Failure> {
        let since = arriving.since;
        let name: String = field.name().unwrap_or_default().chars().take(64).collect();
        match name.as_str() {
            "file" if self.file.is_some() => {
                Err(invalid("file", "the form has more than one `file`"))
            }
            "file" => {
                let file_name = field.file_name().unwrap_or("file");
                let file_name: String = file_name.chars().take(NAME_MAX).collect();
                let summary = store(arriving, field).await?;
                self.file = Some((file_name, summary));
                Ok(())
            }
            "purpose" => {
                self.purpose = Some(text(field, &name, since).await?);
                self.check_purpose()
            }
            "expires_after[anchor]" => {
                self.anchor = Some(text(field, &name, since).await?);
                Ok(())
            }
            "expires_after[seconds]" => {
                let text = text(field, &name, since).await?;
                let seconds = text.trim().parse().ok();
                let seconds = seconds.filter(|seconds| EXPIRY.contains(seconds));
                self.seconds = Some(seconds.ok_or_else(|| {
                    let (least, most) = (EXPIRY.start(), EXPIRY.end());
                    let message =
                        format!("`{name}` must be a number of seconds, {least} to {most}");
                    invalid(&name, &message)
                })?);
                Ok(())
            }
            _ => {
                let message = format!(
                    "`{name}` is not a field of this form; allowed: file, purpose, expires_after[anchor], expires_after[seconds]"
                );
                Err(invalid(&name, &message))
            }
        }
    }

    fn check_purpose(&self) -> Result<(), Failure> {
        match self.purpose.as_deref() {
            Some("batch") => Ok(()),
            Some(other) => {
                let other: String = other.chars().take(64).collect();
                let message = format!("`purpose` is `{other}`; this server accepts `batch`");
                Err(invalid("purpose", &message))
            }
            None => Err(invalid(
                "purpose",
                "the form has no `purpose`; send `batch`",
            )),
        }
    }

    fn finish(self) -> Result<Received, Failure> {
        self.check_purpose()?;
        let expires_after = match (self.anchor.as_deref(), self.seconds) {
            (None, None) => None,
            (Some("created_at"), Some(seconds)) => Some(Span::from_secs(seconds)),
            _ => {
                let message =
                    "`expires_after` needs `anchor`, which is `created_at`, and `seconds`";
                return Err(invalid("expires_after", message));
            }
        };
        let Some((name, summary)) = self.file else {
            return Err(invalid("file", "the form has no `file`"));
        };
        Ok(Received {
            name,
            expires_after,
            summary,
        })
    }
}

/// Awaits the next part, as long as the client sends something.
async fn within<T>(
    part: impl Future<Output = Result<T, MultipartError>>,
    since: &AtomicUsize,
) -> Result<T, Failure> {
    match tokio::time::timeout(SILENT_MAX, part).await {
        Ok(Ok(part)) => {
            since.store(0, Ordering::Relaxed);
            Ok(part)
        }
        Ok(Err(error)) => {
            let message = format!("the form cannot be read: {}", error.body_text());
            Err(Failure::invalid(None, message))
        }
        Err(_) => Err(too_slow()),
    }
}

async fn text(mut field: Field<'_>, name: &str, since: &AtomicUsize) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    while let Some(piece) = within(field.chunk(), since).await? {
        bytes.extend_from_slice(&piece);
        if bytes.len() > FIELD_MAX {
            let message = format!("`{name}` is longer than {FIELD_MAX} bytes");
            return Err(invalid(name, &message));
        }
    }
    String::from_utf8(bytes).map_err(|_| invalid(name, &format!("`{name}` is not UTF-8")))
}

/// Writes the file to disk while it arrives.
async fn store(
    arriving: &mut Arriving<'_>,
    mut field: Field<'_>,
) -> Result<RequestFileSummary, Failure> {
    let since = arriving.since;
    // The first bytes tell whether the file grows when it is decompressed.
    let (mut start, mut first) = (Vec::<u8>::new(), Vec::new());
    while start.len() < GZIP_MAGIC.len() {
        let Some(piece) = within(field.chunk(), since).await? else {
            break;
        };
        start.extend(piece.iter().take(GZIP_MAGIC.len() - start.len()));
        if !piece.is_empty() {
            first.push(piece);
        }
    }
    let bytes_max = arriving.announced.filter(|_| start != GZIP_MAGIC);
    let limits = limits(arriving.app, arriving.space, bytes_max).await?;
    let (pieces, mut received) = mpsc::channel::<Bytes>(PIECES_MAX);
    let (writer, id) = (Arc::clone(&arriving.app.batches), arriving.id.to_owned());
    let written = tokio::task::spawn_blocking(move || {
        let dir = writer.dir().map_err(UploadError::Io)?;
        let mut upload = Upload::create(dir, &id, limits).map_err(UploadError::Io)?;
        let mut is_complete = false;
        while let Some(piece) = received.blocking_recv() {
            // An empty piece marks the end; without it the client has left.
            if piece.is_empty() {
                is_complete = true;
                break;
            }
            upload.write(&piece)?;
        }
        if is_complete {
            upload.finish()
        } else {
            Err(UploadError::Stopped)
        }
    });
    let sent = async {
        for piece in first {
            // The writer has ended with an error.
            if pieces.send(piece).await.is_err() {
                break;
            }
        }
        while let Some(piece) = within(field.chunk(), since).await? {
            // The writer has ended with an error.
            if !piece.is_empty() && pieces.send(piece).await.is_err() {
                break;
            }
        }
        // The writer has ended with an error.
        let _ = pieces.send(Bytes::new()).await;
        Ok(())
    };
    let sent: Result<(), Failure> = sent.await;
    drop(pieces);
    let written = written.await;
    sent?;
    match written {
        Ok(written) => written.map_err(|error| refusal(&error, limits, "file")),
        Err(error) => {
            tracing::error!(%error, "an upload could not be written");
            Err(Failure::internal(
                "the file could not be written; see the server log",
            ))
        }
    }
}
