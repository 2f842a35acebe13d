//! Queries the Ray clusters that have not responded since the start. All are queried concurrently, and the applications of each are
//! judged as soon as it has responded: a cluster that never responds delays no other.

use std::collections::{BTreeSet, VecDeque};
use std::pin::pin;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;

use super::adoption::AdoptionResult;
use super::application_adoption::{RayQueryResult, look, resolve_looks};
use super::pending::end_awaiting;
use crate::ray_serve::ServeWriters;
use catalog::{RayPlace, RayServeRecipe};
use pool::ReplicaId;

pub struct PendingQueries<'a> {
    writers: &'a ServeWriters,
    /// `pool.on_restart: adopt`.
    keep: bool,
    looks: FuturesUnordered<BoxFuture<'a, QueryResult>>,
    /// Queries that have ended while another one was being judged.
    ended: VecDeque<QueryResult>,
    /// Addresses being queried.
    looked_at: BTreeSet<String>,
    /// Applications that have been removed. A Ray cluster may have two addresses, and shows them at both.
    removed: BTreeSet<ReplicaId>,
}

/// Result of a query of one Ray cluster.
pub struct QueryResult {
    place: RayPlace,
    look: RayQueryResult,
}

impl<'a> PendingQueries<'a> {
    pub fn new(writers: &'a ServeWriters, keep: bool) -> PendingQueries<'a> {
        PendingQueries {
            writers,
            keep,
            looks: FuturesUnordered::new(),
            ended: VecDeque::new(),
            looked_at: BTreeSet::new(),
            removed: BTreeSet::new(),
        }
    }

    /// Starts a query of each cluster that is not being queried. For `recipe_of`, see `resolve_applications`.
    pub fn begin(&mut self, recipe_of: &impl Fn(&str, &str) -> Result<RayServeRecipe, String>) {
        end_awaiting(self.writers, recipe_of);
        if self.looks.is_empty() && self.ended.is_empty() {
            self.removed.clear();
        }
        let (writers, keep) = (self.writers, self.keep);
        for place in writers.without_response() {
            if self.looked_at.insert(place.address.clone()) {
                self.looks.push(Box::pin(async move {
                    let look = look(writers, &place, keep).await;
                    QueryResult { place, look }
                }));
            }
        }
    }

    /// Waits for the next cluster that responds or times out. Returns `None` if none is being queried. Cancel safe.
    pub async fn looked(&mut self) -> Option<QueryResult> {
        let look = match self.ended.pop_front() {
            Some(look) => look,
            None => self.looks.next().await?,
        };
        self.looked_at.remove(&look.place.address);
        Some(look)
    }

    /// Judges the applications of the cluster. Must be awaited to completion: adopted applications belong to this process.
    pub async fn judge(
        &mut self,
        QueryResult { place, look }: QueryResult,
        recipe_of: &impl Fn(&str, &str) -> Result<RayServeRecipe, String>,
        is_streaming: &impl Fn(ReplicaId) -> bool,
    ) -> AdoptionResult {
        let (looks, mut resolved) = (vec![(place, look)], AdoptionResult::default());
        {
            let mut judged = pin!(resolve_looks(
                self.writers,
                looks,
                self.keep,
                recipe_of,
                is_streaming,
                &mut resolved,
            ));
            loop {
                tokio::select! {
                    biased;
                    () = judged.as_mut() => break,
                    // The time limits of the other queries continue to run.
                    Some(look) = self.looks.next() => self.ended.push_back(look),
                }
            }
        }
        let mut is_new =
            |replica: Option<ReplicaId>| replica.is_none_or(|replica| self.removed.insert(replica));
        resolved.others.retain(|found| is_new(found.replica));
        resolved
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use support::ray_serve::RayServe;

    use super::*;
    use crate::ray_serve::application;
    use crate::ray_serve::testing::{place, recipe};

    #[tokio::test]
    async fn lookups_continue_while_found_applications_are_removed() {
        let ray = RayServe::start();
        let (here, other) = (place(&ray.address()), place("http://other:8265"));
        let name = "model-pool.lab.r1";
        let config = application::config(&recipe(&here), name, "far", "").expect("JSON");
        ray.deploy(name, config.get());
        let writers = ServeWriters::default();
        writers.expect_response(&here);
        let gone = |_: &str, _: &str| Err("the model is no longer in the catalogue".to_owned());
        let mut looks = PendingQueries::new(&writers, true);
        looks.begin(&gone);
        let look = looks.looked().await.expect("it has answered");

        let has_ended = Arc::new(AtomicBool::new(false));
        let (ends, place) = (Arc::clone(&has_ended), other.clone());
        looks.looked_at.insert(other.address.clone());
        looks.looks.push(Box::pin(async move {
            tokio::task::yield_now().await;
            ends.store(true, Ordering::Relaxed);
            let look = RayQueryResult::Unknown;
            QueryResult { place, look }
        }));
        let resolved = looks.judge(look, &gone, &|_| false).await;
        assert_eq!(resolved.others.len(), 1, "{:?}", resolved.others);
        assert!(has_ended.load(Ordering::Relaxed));
        let next = looks.looked().await.expect("it is not lost");
        assert_eq!(next.place, other);
        assert!(looks.looked_at.is_empty() && looks.looked().await.is_none());
    }
}
