//! One batch in the hands of the runner: its requests by model, its results, and the requests that run or run again. Holds no lock
//! and starts no task.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use batch::{ModelCount, RequestFile, ResultKind, ResultLine, Results};
use pool::Time;

/// Numbers of requests that are read from the index together.
const AHEAD: usize = 1024;
/// Syncs that fail before the files of the results are opened again.
const FAILED_SYNCS_MAX: u32 = 5;
/// A request whose engine ends this many times gets an error.
pub(super) const CRASHES_MAX: u32 = 2;

pub(super) struct Job {
    pub id: String,
    pub requests: Arc<RequestFile>,
    results: Arc<Mutex<Results>>,
    pub models: Vec<ModelWork>,
    crashes: BTreeMap<u64, u32>,
    pub in_flight: u64,
    /// Results have been added since the last sync.
    pub is_unsynced: bool,
    pub synced_at: Time,
    /// The disk has refused results, so the files have to be opened again. No request begins before.
    pub is_broken: bool,
    /// The disk refuses results at present. No request begins.
    is_full: bool,
    failed_syncs: u32,
    /// A request has begun since the last turn.
    pub has_started: bool,
    /// The size of its results.
    pub result_bytes: u64,
}

/// The requests of a batch for one model.
#[derive(Debug)]
pub(super) struct ModelWork {
    pub name: String,
    nth: u32,
    /// Requests without a result, including running ones.
    pub left: u64,
    pub in_flight: u64,
    /// The next request that has not been read from the index.
    cursor: u64,
    ahead: VecDeque<u64>,
    /// Requests that run again because they lost their seat.
    again: VecDeque<u64>,
    /// Requests that ran when their engine ended. They run alone, which finds the cause.
    suspects: VecDeque<u64>,
}

impl Job {
    /// Opens the files of a batch, and finds the requests that have results.
    ///
    /// # Errors
    /// A file is missing or damaged.
    pub fn open(
        dir: &Path,
        id: &str,
        input: &str,
        suffix: u64,
        models: &[ModelCount],
    ) -> std::io::Result<Job> {
        let requests = RequestFile::open(dir, input)?;
        let results = Results::open(dir, id, requests.requests(), suffix)?;
        let recovered = results.recovered();
        if recovered.cut_bytes > 0 || !recovered.duplicates.is_empty() {
            tracing::warn!(
                batch = id,
                cut_bytes = recovered.cut_bytes,
                duplicates = recovered.duplicates.len(),
                "the results of a batch were incomplete on disk; their requests run again"
            );
        }
        let mut work: Vec<ModelWork> = (0..).zip(models).map(ModelWork::new).collect();
        for nth in 0..requests.requests() {
            if results.has(nth)
                && let Some(model) = work.get_mut(requests.place(nth)?.model as usize)
            {
                model.left = model.left.saturating_sub(1);
            }
        }
        Ok(Job {
            result_bytes: results.bytes(),
            id: id.to_owned(),
            requests: Arc::new(requests),
            results: Arc::new(Mutex::new(results)),
            models: work,
            crashes: BTreeMap::new(),
            in_flight: 0,
            is_unsynced: false,
            synced_at: Time::default(),
            is_broken: false,
            is_full: false,
            failed_syncs: 0,
            has_started: false,
        })
    }

    pub fn results(&self) -> MutexGuard<'_, Results> {
        self.results.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the results to disk.
    pub fn sync(&self) {
        if let Err(error) = self.results().sync() {
            tracing::warn!(batch = self.id, %error, "the results of a batch cannot be written");
        }
    }

    pub fn shared_results(&self) -> Arc<Mutex<Results>> {
        Arc::clone(&self.results)
    }

    /// The next request for this model, which then counts as running; `None` if there is none at present.
    ///
    /// # Errors
    /// The index cannot be read.
    pub fn next(&mut self, model: usize) -> std::io::Result<Option<u64>> {
        if self.is_broken || self.is_full {
            return Ok(None);
        }
        let work = &mut self.models[model];
        let next = if work.suspects.is_empty() {
            match work.again.pop_front() {
                Some(again) => Some(again),
                None => work.read_ahead(&self.requests, &self.results)?,
            }
        } else if work.in_flight == 0 {
            work.suspects.pop_front()
        } else {
            None
        };
        if next.is_some() {
            work.in_flight += 1;
            self.in_flight += 1;
            self.has_started = true;
        }
        Ok(next)
    }

    fn leaves(&mut self, model: usize) {
        self.models[model].in_flight -= 1;
        self.in_flight -= 1;
    }

    /// The request has not begun, and is the next one again.
    pub fn put_back(&mut self, model: usize, request: u64) {
        self.leaves(model);
        let is_suspect = self.crashes.contains_key(&request);
        let work = &mut self.models[model];
        if is_suspect {
            work.suspects.push_front(request);
        } else {
            work.again.push_front(request);
        }
    }

    /// The request lost its seat and runs again.
    pub fn runs_again(&mut self, model: usize, request: u64) {
        self.leaves(model);
        let is_suspect = self.crashes.contains_key(&request);
        let work = &mut self.models[model];
        if is_suspect {
            work.suspects.push_back(request);
        } else {
            work.again.push_back(request);
        }
    }

    /// The engine ended while the request ran. Returns true if the request runs again.
    pub fn crashed(&mut self, model: usize, request: u64) -> bool {
        let crashes = self.crashes.entry(request).or_default();
        *crashes += 1;
        if *crashes >= CRASHES_MAX {
            return false;
        }
        self.leaves(model);
        self.models[model].suspects.push_back(request);
        true
    }

    /// Adds a result, and returns its length: 0 if the request has one already.
    ///
    /// # Errors
    /// The result cannot be written, for example because the disk is full.
    pub fn write(
        &mut self,
        request: u64,
        kind: ResultKind,
        line: &ResultLine<'_>,
    ) -> std::io::Result<u64> {
        let (written, bytes) = {
            let mut results = self.results();
            (results.write(request, kind, line), results.bytes())
        };
        let more = bytes.saturating_sub(self.result_bytes);
        self.result_bytes = bytes;
        written?;
        self.is_unsynced = true;
        Ok(more)
    }

    /// Adds the result of a request that ran, and returns its length.
    ///
    /// # Errors
    /// The result cannot be written, for example because the disk is full. The request then runs again.
    pub fn finishes(
        &mut self,
        model: usize,
        request: u64,
        kind: ResultKind,
        line: &ResultLine<'_>,
    ) -> std::io::Result<u64> {
        match self.write(request, kind, line) {
            Ok(bytes) => {
                self.leaves(model);
                self.crashes.remove(&request);
                let work = &mut self.models[model];
                work.left = work.left.saturating_sub(1);
                Ok(bytes)
            }
            Err(error) => {
                self.runs_again(model, request);
                Err(error)
            }
        }
    }

    /// The disk has refused results.
    pub fn has_trouble(&mut self) {
        self.is_full = true;
        self.is_unsynced = true;
    }

    /// Notes the outcome of a sync. After several failures the files are opened again, because a failed sync may break them.
    pub fn synced(&mut self, now: Time, is_on_disk: bool) {
        self.synced_at = now;
        self.is_full = !is_on_disk;
        if is_on_disk {
            self.is_unsynced = false;
            self.failed_syncs = 0;
        } else {
            self.failed_syncs += 1;
            self.is_broken = self.failed_syncs >= FAILED_SYNCS_MAX;
        }
    }

    /// Returns true if no request of the batch runs or has run since the last turn, and its files can be closed without a loss.
    pub fn is_idle(&self) -> bool {
        self.in_flight == 0 && !self.is_unsynced && !self.has_started && self.crashes.is_empty()
    }

    /// Returns true if requests for this model ran when their engine ended.
    pub fn has_suspects(&self, name: &str) -> bool {
        let mut models = self.models.iter();
        models.any(|work| work.name == name && !work.suspects.is_empty())
    }

    pub fn left(&self) -> u64 {
        self.models.iter().map(|model| model.left).sum()
    }
}

impl ModelWork {
    fn new((nth, count): (u32, &ModelCount)) -> ModelWork {
        ModelWork {
            name: count.name.clone(),
            nth,
            left: count.requests,
            in_flight: 0,
            cursor: 0,
            ahead: VecDeque::new(),
            again: VecDeque::new(),
            suspects: VecDeque::new(),
        }
    }

    fn read_ahead(
        &mut self,
        requests: &RequestFile,
        results: &Mutex<Results>,
    ) -> std::io::Result<Option<u64>> {
        loop {
            if let Some(next) = self.ahead.pop_front() {
                return Ok(Some(next));
            }
            let found = requests.of_model(self.nth, self.cursor, AHEAD)?;
            let Some(last) = found.last() else {
                return Ok(None);
            };
            self.cursor = last + 1;
            let results = results.lock().unwrap_or_else(PoisonError::into_inner);
            self.ahead
                .extend(found.into_iter().filter(|nth| !results.has(*nth)));
        }
    }
}

#[cfg(test)]
mod tests;
