//! Uploads: the parts of a form are read while they arrive, and the file goes to disk line by line, in constant memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::multipart::{Field, MultipartError};
use axum::extract::{DefaultBodyLimit, FromRequest, Multipart};
use axum::http::Request;
use futures_util::StreamExt;
use tokio::sync::mpsc;

use crate::open_batches::{Batches, UPLOADS_PER_HOLDER, UploadSlot, store_failed};
use crate::state::App;
use api_types::error::{ErrorKind, Failure};
use batch::{RequestFileSummary, Upload, UploadError, UploadLimits};
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

/// Begins an upload of this holder, and returns what is left of its space.
///
/// # Errors
/// The holder has too many uploads or files, or the store cannot be read.
pub(super) async fn begin(app: &App, holder: &str) -> Result<(UploadSlot, ByteCount), Failure> {
    let (batches, section) = (&app.batches, &app.config().batch);
    let slot = batches.begin_upload(holder).ok_or_else(|| {
        let message = format!(
            "this key has {UPLOADS_PER_HOLDER} uploads in progress, the limit; wait until one has ended"
        );
        Failure::new(ErrorKind::TooMany, "too_many_uploads", message)
    })?;
    let totals = batches.totals(holder).await.map_err(store_failed)?;
    let count = totals.files;
    if count >= u64::from(section.per_key) {
        let message = format!(
            "this key has {count} files, with the results of its batches; allowed: {} (batch.per_key); delete some with DELETE /v1/files/ID, or wait for batches to end",
            section.per_key
        );
        return Err(Failure::new(ErrorKind::TooMany, "too_many_files", message));
    }
    let room = section.per_key_size.0.0.saturating_sub(totals.bytes.0);
    Ok((slot, ByteCount(room)))
}

/// Runs an upload to its end even if the client leaves, because bytes on disk need a record.
pub(super) async fn to_its_end<T: Send + 'static>(
    upload: impl Future<Output = Result<T, Failure>> + Send + 'static,
) -> Result<T, Failure> {
    #[expect(
        clippy::disallowed_methods,
        reason = "the request awaits it; without a client its body ends it"
    )]
    let ended = tokio::spawn(upload).await;
    ended.unwrap_or_else(|error| {
        tracing::error!(%error, "an upload could not be completed");
        let message = "the upload could not be completed; see the server log";
        Err(Failure::internal(message))
    })
}

/// The limits of an upload with this space.
pub(super) fn limits(app: &App, room: ByteCount) -> UploadLimits {
    let section = &app.config().batch;
    UploadLimits {
        bytes_max: section.files_max.0.0.min(room.0),
        line_bytes_max: usize::try_from(section.request_max.0.0).unwrap_or(usize::MAX),
        lines_max: u64::from(section.requests_max),
        models_max: MODELS_MAX,
    }
}

/// The error for a client that sends nothing.
pub(super) fn too_slow() -> Failure {
    let message = format!("the client sent nothing for {} s", SILENT_MAX.as_secs());
    Failure::new(ErrorKind::TooSlow, "body_too_slow", message)
}

/// Reads an upload and stores its file under this id.
///
/// # Errors
/// The form or a line of the file is wrong, the file is too large, or the disk refuses it. Nothing is left on disk then.
pub(super) async fn receive(
    batches: &Arc<Batches>,
    id: &str,
    mut request: Request<Body>,
    limits: UploadLimits,
) -> Result<Received, Failure> {
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
    let (mut fields, mut count) = (Form::default(), 0);
    let read = async {
        while let Some(field) = within(form.next_field(), &since).await? {
            count += 1;
            if count > FIELDS_MAX {
                let message = format!("the form has more than {FIELDS_MAX} fields");
                return Err(Failure::invalid(None, message));
            }
            fields.read(batches, id, field, (limits, &since)).await?;
        }
        fields.finish()
    };
    let received = read.await;
    if received.is_err() {
        batches.remove(id).await;
    }
    received
}

impl Form {
    async fn read(
        &mut self,
        batches: &Arc<Batches>,
        id: &str,
        field: Field<'_>,
        (limits, since): (UploadLimits, &AtomicUsize),
    ) -> Result<(), Failure> {
        let name: String = field.name().unwrap_or_default().chars().take(64).collect();
        match name.as_str() {
            "file" if self.file.is_some() => {
                Err(invalid("file", "the form has more than one `file`"))
            }
            "file" => {
                let file_name = field.file_name().unwrap_or("file");
                let file_name: String = file_name.chars().take(NAME_MAX).collect();
                let summary = store(batches, id, field, (limits, since)).await?;
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

fn invalid(field: &str, message: &str) -> Failure {
    Failure::invalid(field.to_owned(), message)
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
    batches: &Arc<Batches>,
    id: &str,
    mut field: Field<'_>,
    (limits, since): (UploadLimits, &AtomicUsize),
) -> Result<RequestFileSummary, Failure> {
    let (pieces, mut received) = mpsc::channel::<Bytes>(PIECES_MAX);
    let (writer, id) = (Arc::clone(batches), id.to_owned());
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

/// The error for a client. `field` is the field with the requests.
pub(super) fn refusal(error: &UploadError, limits: UploadLimits, field: &str) -> Failure {
    match error {
        UploadError::Io(error) => {
            tracing::warn!(%error, "an upload cannot be written");
            let message =
                "the file cannot be stored: the server's disk refuses it; see the server log";
            Failure::new(ErrorKind::Unavailable, "file_not_stored", message)
        }
        UploadError::TooLarge { limit_bytes } => {
            let message = format!(
                "the file is larger than {limit_bytes} bytes, the limit for a file or what is left of the key's space (batch.files_max, batch.per_key_size)"
            );
            Failure::new(ErrorKind::TooLarge, "file_too_large", message)
        }
        UploadError::TooManyLines { limit } => {
            let message =
                format!("the file has more than {limit} requests, the limit (batch.requests_max)");
            Failure::new(ErrorKind::TooLarge, "file_too_large", message)
        }
        UploadError::Stopped => {
            Failure::invalid(None, "the upload ended before the file was complete")
        }
        other => {
            let mut message = other.to_string();
            if message.contains(&limits.line_bytes_max.to_string()) {
                message.push_str(" (batch.request_max)");
            }
            invalid(field, &message)
        }
    }
}
