//! Ray as a cluster: each node is a job of the Jobs API whose entry point is `model-pool node`. The pool assigns the jobs' ids,
//! which lets it find a job whose response was lost, and its own jobs after a restart.

mod client;
mod inspection;
mod jobs;
mod machines;
mod reasons;
mod start_line;
mod starts;
mod submission;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use config::{ClusterSection, ShapeSection};
use reqwest::Method;
use serde_json::Value;

use super::shape::find_shape;
use super::{Cluster, ClusterError, LeaseId, NodeLease, Release, ShapeRoom};
use client::{JOBS, RayClient};
use jobs::{Job, Jobs};
use machines::{Autoscaler, Machine, Machines};
use starts::Starts;

const NODES: &str = "/api/v0/nodes?detail=1&limit=10000";
const STATUS: &str = "/api/cluster_status";
/// Time after which the records of this pool's ended jobs are deleted. Ray itself keeps records forever.
const KEPT_FOR_SECONDS: u64 = 3600;
/// Limit per request.
const DELETED_MAX: usize = 50;
/// If jobs fail on more machines than this, the machines are not the cause.
const EXCLUDED_MAX: usize = 3;
const MAYBE_SUBMITTED: &str =
    "; the job may have been submitted, which `model-pool cluster status` shows";

pub struct Ray {
    section: ClusterSection,
    /// The id of this pool. Another pool with the same name has another id.
    pub(super) owner: Option<String>,
    client: RayClient,
    starts: Starts,
}

impl Ray {
    pub fn new(section: &ClusterSection) -> Ray {
        Ray {
            client: RayClient::new(&section.ray),
            section: section.clone(),
            owner: None,
            starts: Starts::default(),
        }
    }

    /// The JSON that a request for this shape submits.
    ///
    /// # Errors
    /// If the shape does not exist.
    pub fn submission(&self, shape: &str, demand: Option<u64>) -> Result<Value, ClusterError> {
        let shape = find_shape(&self.section, shape)?;
        let id = self.new_id(demand);
        Ok(submission::body(&self.section, shape, demand, &id, &[]))
    }

    fn new_id(&self, demand: Option<u64>) -> String {
        submission::job_id(&self.section, demand, now().as_micros())
    }

    async fn jobs(&self) -> Result<Jobs, ClusterError> {
        let list = self.client.get(JOBS).await?;
        jobs::of_list(&list, &self.section.name).map_err(|why| self.client.unusable(why))
    }

    async fn machines(&self) -> Result<Vec<Machine>, ClusterError> {
        let response = self.client.get(NODES).await?;
        machines::of_nodes(&response).map_err(|why| self.client.unusable(why))
    }

    /// Ray's report is a hint: without it the autoscaler is unknown.
    async fn autoscaler(&self) -> Autoscaler {
        let response = self.client.get(STATUS).await;
        response.map_or(Autoscaler::Unknown, |status| machines::of_status(&status))
    }

    /// Deletes the records of jobs that ended long ago, including jobs that ended others. A failure costs only space in Ray's list.
    async fn delete_old(&self, jobs: &Jobs) {
        let now = now().as_secs();
        let is_old = |ended: Option<u64>| ended.is_some_and(|ended| ended + KEPT_FOR_SECONDS < now);
        let leases = jobs.leases.iter().filter(|job| job.has_ended());
        let leases = leases.map(|job| (&job.id, job.ended_unix));
        let cancels = jobs.cancels.iter().map(|(id, ended)| (id, *ended));
        let old = leases.chain(cancels).filter(|(_, ended)| is_old(*ended));
        for (id, _) in old.take(DELETED_MAX) {
            let deleted = self
                .client
                .end(Method::DELETE, &format!("{JOBS}{id}"))
                .await;
            if let Err(error) = deleted {
                tracing::debug!("the record of the job {id} stays: {error}");
                return;
            }
        }
    }

    /// Ids of Ray's nodes that this request avoids, from `exclude` and from recently failed jobs. Ray would wait
    /// forever if no other node fits, so the pool's own requests avoid nodes only if another one fits.
    async fn left_out(
        &self,
        shape: &ShapeSection,
        demand: Option<u64>,
        jobs: &Jobs,
        exclude: &[String],
    ) -> Vec<String> {
        let failed = failed_nodes(&jobs.leases, now().as_secs());
        if failed.is_empty() && exclude.is_empty() {
            return Vec::new();
        }
        let Ok(machines) = self.machines().await else {
            return Vec::new();
        };
        let is_named = |machine: &Machine| {
            exclude.contains(&machine.address) || exclude.contains(&machine.node_id)
        };
        let is_out = |machine: &Machine| is_named(machine) || failed.contains(&machine.node_id);
        let mut others = machines.iter().filter(|machine| !is_out(machine));
        let has_other = others.any(|machine| machine.fits(&self.section, shape));
        let out = machines.iter().filter(|machine| {
            if has_other {
                is_out(machine)
            } else {
                demand.is_none() && is_named(machine)
            }
        });
        out.map(|machine| machine.node_id.clone()).collect()
    }

    /// The room for each shape, in a Ray without an autoscaler.
    async fn rooms(&self, jobs: &[Job]) -> Result<BTreeMap<String, ShapeRoom>, ClusterError> {
        let machines = Machines {
            held: self.held(jobs),
            autoscaler: self.autoscaler().await,
            alive: self.machines().await?,
        };
        let shapes = self.section.shapes.iter();
        let closed = shapes.filter_map(|shape| {
            let room = reasons::closed(&self.section, shape, &machines)?;
            Some((shape.name.clone(), room))
        });
        Ok(closed.collect())
    }

    /// The reason why the pool does not request this number of nodes: the last of the jobs would wait until the pool itself gives
    /// a node back.
    async fn too_few(&self, shape: &str, nodes: usize, jobs: &[Job]) -> Option<ClusterError> {
        let mut rooms = self.rooms(jobs).await.ok()?;
        let room = rooms.remove(shape)?;
        let message = room.why;
        ((room.nodes as usize) < nodes).then_some(ClusterError::Setup { message })
    }

    async fn submit(
        &self,
        shape: &ShapeSection,
        demand: Option<u64>,
        left_out: &[String],
    ) -> Result<LeaseId, ClusterError> {
        let id = self.new_id(demand);
        let mut body = submission::body(&self.section, shape, demand, &id, left_out);
        if let (Some(owner), Some(_)) = (&self.owner, demand) {
            body["metadata"]["owner"] = owner.as_str().into();
        }
        match self.client.post(JOBS, &body).await {
            Ok(_) => LeaseId::parse(&id),
            // The response to an earlier call for this demand was lost.
            Err(error) if demand.is_some() && is_there_already(&error) => LeaseId::parse(&id),
            Err(ClusterError::Unreachable { program, message }) => Err(ClusterError::Unreachable {
                program,
                message: message + MAYBE_SUBMITTED,
            }),
            Err(ClusterError::Refused {
                program, message, ..
            }) if message.contains("entrypoint_label_selector") => Err(ClusterError::Refused {
                program,
                message: "this version has no label selectors for jobs".to_owned(),
                advice: "; use resources instead of labels, or upgrade Ray".to_owned(),
            }),
            Err(error) => Err(error),
        }
    }

    /// Submits a job that ends another job. Its id is derived from the other's, so a repetition submits no second job.
    async fn cancel(&self, id: &LeaseId) -> Result<(), ClusterError> {
        let body = submission::cancel_body(id.as_str());
        match self.client.post(JOBS, &body).await {
            Err(error) if is_there_already(&error) => Ok(()),
            result => result.map(drop),
        }
    }

    /// The GPUs that running jobs of this pool hold on each of Ray's nodes.
    fn held(&self, jobs: &[Job]) -> BTreeMap<String, u32> {
        let mut held = BTreeMap::new();
        let running = jobs
            .iter()
            .filter(|job| job.has_started() && !job.has_ended());
        for job in running {
            if let Ok(shape) = find_shape(&self.section, &job.shape) {
                *held.entry(job.node_id.clone()).or_default() += shape.gpus;
            }
        }
        held
    }

    fn lease(
        &self,
        job: Job,
        machines: Option<&Machines>,
        starts_unix: Option<u64>,
    ) -> Option<NodeLease> {
        let id = LeaseId::parse(&job.id).ok()?;
        let state = job.lease_state(|job| {
            let shape = find_shape(&self.section, &job.shape).ok();
            match machines.zip(shape) {
                Some((machines, shape)) => reasons::pending(&self.section, shape, machines),
                None => "Ray has not found a node for it yet".to_owned(),
            }
        });
        Some(NodeLease {
            node: submission::node_name(&job.key),
            id,
            shape: job.shape,
            demand: job.demand,
            owner: job.owner,
            set: None,
            state,
            time_limit: job.time_limit,
            starts_unix,
            ends_unix: job.ended_unix,
        })
    }
}

impl Cluster for Ray {
    async fn request(
        &self,
        shape: &str,
        demand: Option<u64>,
        exclude: &[String],
    ) -> Result<LeaseId, ClusterError> {
        // A wrong shape is refused before Ray is called.
        let shape = find_shape(&self.section, shape)?;
        let jobs = self.jobs().await?;
        self.delete_old(&jobs).await;
        // A person may want the job to wait.
        if demand.is_some()
            && let Some(error) = self.too_few(&shape.name, 1, &jobs.leases).await
        {
            return Err(error);
        }
        let left_out = self.left_out(shape, demand, &jobs, exclude).await;
        match self.submit(shape, demand, &left_out).await {
            // An older Ray cannot avoid machines, and may have no labels at all.
            Err(ClusterError::Refused { .. })
                if !left_out.is_empty() && submission::labels(&self.section, shape).is_empty() =>
            {
                self.submit(shape, demand, &[]).await
            }
            result => result,
        }
    }

    /// Ray has no jobs of several nodes. A set that Ray cannot bring is refused before a part of it is requested.
    async fn request_set(
        &self,
        shape: &str,
        demands: &[u64],
        _exclude: &[String],
    ) -> Option<Result<LeaseId, ClusterError>> {
        let jobs = self.jobs().await.ok()?.leases;
        self.too_few(shape, demands.len(), &jobs).await.map(Err)
    }

    async fn status(&self) -> Result<Vec<NodeLease>, ClusterError> {
        let jobs = self.jobs().await?.leases;
        let waits = jobs.iter().any(|job| job.is_pending() && !job.is_cancelled);
        // Only needed to explain pending jobs.
        let machines = if !waits {
            None
        } else {
            match self.machines().await {
                Err(_) => None,
                Ok(alive) => Some(Machines {
                    held: self.held(&jobs),
                    autoscaler: self.autoscaler().await,
                    alive,
                }),
            }
        };
        let starts = self.starts.lookup(&jobs, &self.client).await;
        let leases = jobs.into_iter().filter_map(|job| {
            let start = starts.get(&job.id).copied();
            self.lease(job, machines.as_ref(), start)
        });
        Ok(leases.collect())
    }

    async fn release(&self, id: &LeaseId, how: Release) -> Result<(), ClusterError> {
        let jobs = self.jobs().await?.leases;
        let Some(job) = jobs.iter().find(|job| job.id == id.as_str()) else {
            return Err(ClusterError::WrongId { id: id.to_string() });
        };
        if job.has_ended() {
            return Ok(());
        }
        // Ray remembers the stop of a pending job until the job starts.
        let path = format!("{JOBS}{id}/stop");
        self.client.end(Method::POST, &path).await?;
        if how == Release::Now || job.is_pending() {
            self.cancel(id).await
        } else {
            Ok(())
        }
    }

    fn shows_room(&self) -> bool {
        true
    }

    async fn closed(&self) -> Result<BTreeMap<String, ShapeRoom>, ClusterError> {
        let jobs = self.jobs().await?.leases;
        self.rooms(&jobs).await
    }

    fn names_node(&self, node: &str) -> bool {
        submission::is_node_name(node)
    }

    async fn log_end(&self, id: &LeaseId) -> Option<String> {
        let path = format!("{JOBS}{id}/logs");
        let response = self.client.get(&path).await.ok()?;
        let job = self.client.get(&format!("{JOBS}{id}")).await.ok()?;
        let entrypoint = job["entrypoint"].as_str().unwrap_or_default();
        reasons::log_end(response["logs"].as_str()?, id.as_str(), entrypoint)
    }
}

fn is_there_already(error: &ClusterError) -> bool {
    matches!(error, ClusterError::Refused { message, .. } if message.contains("already exists"))
}

/// Nodes on which a job has failed recently; empty above `EXCLUDED_MAX`, because then the nodes are not the cause.
fn failed_nodes(jobs: &[Job], now_unix: u64) -> BTreeSet<String> {
    let is_late =
        |job: &&Job| job.has_failed() && job.ended_unix.unwrap_or(0) + KEPT_FOR_SECONDS > now_unix;
    let nodes: BTreeSet<String> = jobs
        .iter()
        .filter(is_late)
        .map(|job| job.node_id.clone())
        .collect();
    if nodes.len() > EXCLUDED_MAX {
        BTreeSet::new()
    } else {
        nodes
    }
}

fn now() -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or(Duration::ZERO)
}

#[cfg(test)]
mod tests;
