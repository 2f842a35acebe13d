//! The records of the files with the results of a batch.

use std::sync::Arc;

use crate::open_batches::{ApiForm, BatchRecord, Batches, MESSAGES, PlacedObject};
use crate::state::App;
use pool::{Bytes, Span, Time};
use store::{StoreError, StoredFile};

/// The two files with results, as parts of their names.
pub(super) const KINDS: [&str; 2] = ["output", "errors"];

/// The place of the results of a batch that has ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ResultsPlace {
    Disk,
    /// The folder in a bucket.
    Bucket(String),
    /// They are being put into a bucket.
    Pending,
}

/// Results that are complete in their bucket.
#[derive(Clone)]
pub(super) struct PlacedResults {
    pub bucket: String,
    /// Keeps the objects until the files have their records.
    _objects: Arc<Vec<PlacedObject>>,
}

impl PlacedResults {
    pub fn new(bucket: String, objects: Vec<PlacedObject>) -> PlacedResults {
        PlacedResults {
            bucket,
            _objects: Arc::new(objects),
        }
    }
}

/// The name on disk of a file with results.
pub(super) fn stored_as(batch_id: &str, kind: &str) -> String {
    format!("{batch_id}.{kind}")
}

/// The length of a file with results; 0 if it does not exist.
pub(super) fn length(batches: &Batches, batch_id: &str, kind: &str) -> u64 {
    let path = batches.path(&stored_as(batch_id, kind));
    std::fs::metadata(path).map_or(0, |found| found.len())
}

/// Stores the records of the files with the results, whose bytes are also in this bucket. Returns the ids of the output and the errors.
///
/// # Errors
/// The store cannot be written.
pub(super) async fn store_files(
    app: &App,
    record: &BatchRecord,
    bucket: Option<&str>,
    now: Time,
) -> Result<(Option<String>, Option<String>), StoreError> {
    let batches = &app.batches;
    let after = record.state.output_expires_after.map(Span);
    let keep = after.unwrap_or(batches.config.get().batch.keep.0);
    let mut ids = [None, None];
    for (id, kind) in ids.iter_mut().zip(KINDS) {
        let bytes = length(batches, &record.id, kind);
        let stored_as = stored_as(&record.id, kind);
        if bytes == 0 {
            batches.remove(&stored_as).await;
            continue;
        }
        let number = record.id.trim_start_matches(record.state.form.id_prefix());
        let file = StoredFile {
            // Derived from the batch, because the end may be stored twice.
            id: format!("file-{number}-{kind}"),
            holder: record.holder.clone(),
            purpose: match record.state.form {
                ApiForm::OpenAi => "batch_output".to_owned(),
                ApiForm::Anthropic => MESSAGES.to_owned(),
            },
            name: format!("{}_{kind}.jsonl", record.id),
            stored_as,
            bytes: Bytes(bytes),
            created: now,
            expires: Some(now + keep),
            summary: None,
            bucket: bucket.map(str::to_owned),
        };
        batches.store.add_file(&file).await?;
        *id = Some(file.id);
    }
    let [output, errors] = ids;
    Ok((output, errors))
}
