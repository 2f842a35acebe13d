//! The results of a batch of messages in Anthropic's form, line by line.

use std::io::{self, BufRead, BufReader, Read};

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use super::content;
use super::message_routes::find;
use crate::auth::User;
use crate::open_batches::store_failed;
use crate::openapi::MessageBatchErrors;
use crate::path_params::Path;
use crate::state::App;
use api_types::error::Failure;
use batch::anthropic_line;

/// Pieces between the disk and the network.
const PIECES_MAX: usize = 8;
const PIECE_BYTES: usize = 64 << 10;

/// Read the results of a batch of messages (Anthropic's Message Batches)
///
/// A line for each request, in any order.
///
/// Every key may call this.
#[utoipa::path(get, path = "/v1/messages/batches/{id}/results", tag = "batches", operation_id = "list_message_batch_results",
    security(("user_key" = [])),
    params(("id" = String, Path, description = "The id of a batch.", example = "msgbatch_5c1f8e")),
    responses((status = 200, description = "The results", body = String, content_type = "application/x-jsonl",
        example = json!("{\"custom_id\": \"1\", \"result\": {\"type\": \"canceled\"}}\n")), MessageBatchErrors))]
pub(crate) async fn results(
    State(app): State<App>,
    user: User,
    Path(id): Path<String>,
) -> Result<Response, Failure> {
    let record = find(&app, &user, &id).await?;
    if record.state.status.is_open() {
        let message = format!("the batch {id} has no results yet; they exist once it has ended");
        return Err(Failure::not_found(message));
    }
    let state = &record.state;
    let mut files = Vec::new();
    for id in [&state.output_file, &state.error_file]
        .into_iter()
        .flatten()
    {
        let file = app.batches.store.file(&record.holder, id).await;
        // A file that has expired has no lines.
        files.extend(file.map_err(store_failed)?);
    }
    // The others are opened when their turn comes, because a bucket ends a silent connection.
    let mut first = match files.first() {
        Some(file) => Some(content::open(&app, file).await?),
        None => None,
    };
    let runtime = Handle::current();
    let (sender, pieces) = mpsc::channel::<io::Result<Bytes>>(PIECES_MAX);
    // Ends when the client leaves, because the channel then closes.
    tokio::task::spawn_blocking(move || {
        for file in files {
            let opened = match first.take() {
                Some(opened) => Ok(opened),
                None => runtime.block_on(content::open(&app, &file)),
            };
            let sent = opened
                .map_err(|_| io::Error::other("a file of results cannot be read"))
                .and_then(|opened| translate(opened.into_reader(&runtime), &sender));
            if let Err(error) = sent {
                // The client may have left.
                let _ = sender.blocking_send(Err(error));
                return;
            }
        }
    });
    let kind = [(header::CONTENT_TYPE, "application/x-jsonl")];
    let body = Body::from_stream(ReceiverStream::new(pieces));
    Ok((kind, body).into_response())
}

/// Sends the lines of a file of results in Anthropic's form.
fn translate(results: Box<dyn Read>, sender: &mpsc::Sender<io::Result<Bytes>>) -> io::Result<()> {
    let (mut lines, mut line, mut piece) = (BufReader::new(results), Vec::new(), Vec::new());
    while lines.read_until(b'\n', &mut line)? > 0 {
        piece.extend(anthropic_line(&line)?);
        piece.push(b'\n');
        line.clear();
        if piece.len() >= PIECE_BYTES
            && sender
                .blocking_send(Ok(std::mem::take(&mut piece).into()))
                .is_err()
        {
            return Ok(());
        }
    }
    if !piece.is_empty() {
        // The client may have left.
        let _ = sender.blocking_send(Ok(piece.into()));
    }
    Ok(())
}
