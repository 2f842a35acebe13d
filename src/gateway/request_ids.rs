//! Ids for requests that have none.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::http::HeaderValue;

use edge::header_text::header_text;

/// Generates ids from a random part, chosen at start, and a counter.
#[derive(Debug)]
pub struct RequestIds {
    start: String,
    count: AtomicU64,
}

impl Default for RequestIds {
    fn default() -> RequestIds {
        let start = uuid::Uuid::now_v7().simple().to_string();
        RequestIds {
            start: start[start.len() - 12..].to_owned(),
            count: AtomicU64::new(1),
        }
    }
}

impl RequestIds {
    pub fn next(&self) -> HeaderValue {
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        header_text(format_args!("req-{}-{count}", self.start))
    }
}

pub type SharedIds = Arc<RequestIds>;
