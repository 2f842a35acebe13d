//! Counts the requests of a file by model and by endpoint. Models have numbers in the order of their first requests.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::endpoint::Endpoint;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelCount {
    pub name: String,
    pub requests: u64,
}

/// The content of a stored request file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestFileSummary {
    /// The length of the stored file of lines.
    pub bytes: u64,
    pub requests: u64,
    /// The index refers to models by their position here.
    pub models: Vec<ModelCount>,
    /// Endpoints with requests.
    pub endpoints: Vec<(Endpoint, u64)>,
}

#[derive(Debug, Default)]
pub struct RequestTally {
    requests: u64,
    models: Vec<ModelCount>,
    numbers: BTreeMap<String, u32>,
    endpoints: BTreeMap<Endpoint, u64>,
    /// The model of the latest request, which often is the model of the next.
    latest: usize,
}

impl RequestTally {
    pub fn requests(&self) -> u64 {
        self.requests
    }

    /// Counts a request and returns the number of its model, or `None` if the model would be more than the limit.
    pub fn add(&mut self, model: &str, endpoint: Endpoint, models_max: usize) -> Option<u32> {
        let same = self.models.get(self.latest);
        if same.is_none_or(|latest| latest.name != model) {
            self.latest = self.number(model, models_max)?;
        }
        self.models[self.latest].requests += 1;
        self.requests += 1;
        *self.endpoints.entry(endpoint).or_default() += 1;
        u32::try_from(self.latest).ok()
    }

    fn number(&mut self, model: &str, models_max: usize) -> Option<usize> {
        if let Some(&number) = self.numbers.get(model) {
            return Some(number as usize);
        }
        let number = self.models.len();
        if number >= models_max {
            return None;
        }
        self.numbers
            .insert(model.to_owned(), u32::try_from(number).ok()?);
        self.models.push(ModelCount {
            name: model.to_owned(),
            requests: 0,
        });
        Some(number)
    }

    pub fn summary(self, bytes: u64) -> RequestFileSummary {
        RequestFileSummary {
            bytes,
            requests: self.requests,
            models: self.models,
            endpoints: self.endpoints.into_iter().collect(),
        }
    }
}
