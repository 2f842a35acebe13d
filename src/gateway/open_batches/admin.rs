//! The batches of all keys, for administrators: listed, paused, ordered and cancelled.

use super::Batches;
use super::record::{BatchRecord, Running, Status};
use super::service::{read, store_failed};
use api_types::dto::{AdminBatch, BatchModel};
use api_types::error::Failure;
use pool::Time;
use store::BatchPage;

/// Longest part of an unknown id that a message repeats.
const SHOWN_LETTERS: usize = 100;

impl Batches {
    /// A page of the batches of all keys, latest first. Returns true if there are more.
    ///
    /// # Errors
    /// The batch `after` does not exist, or the store cannot be read.
    pub async fn page(
        &self,
        after: Option<&str>,
        limit: u32,
    ) -> Result<(Vec<AdminBatch>, bool), Failure> {
        if let Some(after) = after {
            let found = self.find(after).await.map_err(store_failed)?;
            found.ok_or_else(|| unknown(after))?;
        }
        let page = BatchPage {
            holder: None,
            id_prefix: None,
            after,
            limit: limit.saturating_add(1),
        };
        let stored = self.store.batches(page).await.map_err(store_failed)?;
        let has_more = stored.len() > limit as usize;
        let now = self.clock.wall();
        let records = stored.into_iter().take(limit as usize).filter_map(read);
        let batches = records.map(|record| {
            let (record, running) = self.present_with_figures(record);
            shown(&record, running, now)
        });
        Ok((batches.collect(), has_more))
    }

    /// Pauses or resumes a batch, and sets its rank. `None` leaves a value as it is.
    ///
    /// # Errors
    /// The batch does not exist or has ended, or the store cannot be written. Nothing has changed then.
    pub async fn set(
        &self,
        id: &str,
        paused: Option<bool>,
        rank: Option<i64>,
    ) -> Result<AdminBatch, Failure> {
        let changed = self.change(id, |record| {
            let state = &mut record.state;
            state.is_paused = paused.unwrap_or(state.is_paused);
            state.rank = rank.unwrap_or(state.rank);
        });
        let is_open = changed.await.map_err(store_failed)?;
        let (record, running) = self.existing(id).await?;
        if !is_open {
            return Err(ended(&record));
        }
        Ok(shown(&record, running, self.clock.wall()))
    }

    /// Cancels a batch of any key. Requests that run may end.
    ///
    /// # Errors
    /// The batch does not exist or has ended otherwise, or the store cannot be written.
    pub async fn cancel(&self, id: &str) -> Result<AdminBatch, Failure> {
        let now = self.clock.wall();
        let is_open = self.begin_cancel(id).await?;
        let (record, running) = self.existing(id).await?;
        // A repeated request gets the same response.
        if !is_open && record.state.status != Status::Cancelled {
            return Err(ended(&record));
        }
        Ok(shown(&record, running, now))
    }

    async fn existing(&self, id: &str) -> Result<(BatchRecord, Running), Failure> {
        let found = self.find(id).await.map_err(store_failed)?;
        found.ok_or_else(|| unknown(id))
    }
}

fn shown(record: &BatchRecord, running: Running, now: Time) -> AdminBatch {
    let models = record.state.models.iter().map(|model| BatchModel {
        model: model.name.clone(),
        requests: model.requests,
    });
    AdminBatch {
        batch: record.shown(running, now),
        holder: holder_of(record),
        group: None,
        models: models.collect(),
        rank: record.state.rank,
    }
}

/// The holder's id, with the name of a person.
fn holder_of(record: &BatchRecord) -> String {
    match &record.state.person {
        Some(person) => format!("{} {}", record.holder, person.name),
        None => record.holder.clone(),
    }
}

fn unknown(id: &str) -> Failure {
    let id: String = id.chars().take(SHOWN_LETTERS).collect();
    Failure::not_found(format!(
        "no batch has the id {id}; `admin-client batches` shows the ids"
    ))
}

fn ended(record: &BatchRecord) -> Failure {
    let message = format!(
        "the batch {} has ended already ({}), so nothing was changed",
        record.id,
        record.state.status.name()
    );
    Failure::conflict("batch_ended", message)
}
