//! Adopts engines of an earlier controller: finds them by the journal and the guardians' sockets, verifies them by process number,
//! start time and token, probes them, and then adopts them, stops them or leaves them alone. The caller decides whether a model
//! still needs its engine.
//!
//! One file because the steps from a found process to its fate follow each other, and each may end it.
//!
//! | in the journal               | found                                      | result                |
//! |------------------------------|--------------------------------------------|-----------------------|
//! | a file that cannot be read   |                                            | left alone, reported  |
//! | another start of the system  |                                            | the file is removed   |
//! | a guardian that is gone      | the engine lives, by start and tag         | swept, reported       |
//! |                              | the number is another process's            | left alone, reported  |
//! | a guardian that lives        | it does not answer within 5 s              | killed with its engine|
//! |                              | another token or number answers            | left alone, reported  |
//! |                              | the engine was not ready or unwanted, or   | stopped, reported     |
//! |                              | slept and is not on a node                 |                       |
//! |                              | the engine has ended                       | reported              |
//! |                              | its health route fails for 5 s             | stopped, reported     |
//! |                              | it is healthy                              | adopted               |
//! | nothing                      | a guardian answers in our folder           | stopped, reported     |

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::time::{sleep, timeout};

use super::application_adoption::AdoptedApplication;
use crate::connection::short_paths::short_path;
use crate::connection::{Endpoint, LONGEST_NAME};
use crate::guardians::group::kill_orphans;
use crate::guardians::link::{connect_guardian, socket_name, talk};
use crate::guardians::{
    Group, Guard, GuardianReader, GuardianWriter, Guardians, Record, RecordedWatch, container,
};
use crate::health::probe::probe;
use crate::launch::{OWN_SOCKETS, TAG};
use crate::ray_serve::{Fate, UnadoptedEngine};
use guardian::protocol::{End, Hello, MARK, News, Order, ProcessId, VERSION};
use guardian::{cgroup, proc};
use pool::ReplicaId;
use ray_api::Hold;

/// Time limit for a guardian's response, and for an engine to prove healthy.
const RESPONSE_TIME_MAX: Duration = Duration::from_secs(5);
/// Time limit for the previous controller's connection to close.
const TAKEN_MAX: Duration = Duration::from_secs(2);
/// Time limit for the guardian of a stopped engine to remove all of its processes.
const STOP_MAX: Duration = Duration::from_secs(15);
const PAUSE: Duration = Duration::from_millis(20);

/// A ready engine that this controller has taken over.
pub struct AdoptedEngine {
    pub(super) guard: Guard,
    pub record: Record,
    /// End of its last request, in Unix milliseconds. If it was serving requests when the last controller left, the time of that.
    pub last_end_ms: Option<u64>,
    /// Unix time in milliseconds at which the last controller left.
    pub alone_since_ms: Option<u64>,
}

impl AdoptedEngine {
    pub fn pid(&self) -> u32 {
        self.guard.group.leader.pid
    }

    pub fn endpoint(&self) -> Endpoint {
        self.guard.reserved.endpoint.clone()
    }
}

impl std::fmt::Debug for AdoptedEngine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AdoptedEngine")
            .field("record", &self.record)
            .finish_non_exhaustive()
    }
}

/// Everything that an earlier controller left behind.
#[derive(Debug, Default)]
pub struct AdoptionResult {
    pub adopted: Vec<AdoptedEngine>,
    /// Found in Ray by `resolve_applications`.
    pub applications: Vec<AdoptedApplication>,
    pub others: Vec<UnadoptedEngine>,
    /// Blocks deployments in the Ray clusters of these applications until dropped.
    pub holds: Vec<Hold>,
}

/// Resolves every remaining engine. `refuse` returns the reason an engine is no longer needed; such an engine is stopped.
pub async fn resolve(
    guardians: &Arc<Guardians>,
    refuse: impl Fn(&Record) -> Option<String>,
) -> AdoptionResult {
    let mut adopted = Vec::new();
    let resolved = resolve_each(guardians, refuse, |engine| adopted.push(engine)).await;
    adopted.sort_by_key(|engine| engine.record.replica);
    AdoptionResult {
        adopted,
        ..resolved
    }
}

/// Like [`resolve`], but passes each adopted engine to `adopt` once it is known to be healthy. A hanging engine delays the result by
/// up to 25 s.
pub async fn resolve_each(
    guardians: &Arc<Guardians>,
    refuse: impl Fn(&Record) -> Option<String>,
    mut adopt: impl FnMut(AdoptedEngine),
) -> AdoptionResult {
    let mut resolved = AdoptionResult::default();
    // Engines' sockets are reached through this link, which a cleanup of temporary files may have removed.
    let folder = std::path::absolute(&guardians.settings.runtime_dir);
    if let Err(error) = folder.and_then(|folder| short_path(&folder, LONGEST_NAME)) {
        tracing::warn!(%error, "cannot make a short path for the sockets of engines");
    }
    let journal = guardians.journal.clone();
    let prepared = tokio::task::spawn_blocking(move || journal.prepare());
    let boot = proc::boot();
    let mut known = Vec::new();
    for (path, record) in guardians.journal.read_all() {
        match record {
            Ok(record) if record.boot == boot => known.push(record),
            // An earlier boot: its processes are gone.
            Ok(_) => drop(std::fs::remove_file(path)),
            Err(error) => resolved.others.push(UnadoptedEngine {
                model: None,
                replica: None,
                fate: Fate::LeftAlone,
                reason: format!(
                    "{} cannot be read ({error}); its engine, if it still runs, is left alone: stop it yourself and remove the file",
                    path.display()
                ),
            }),
        }
    }
    let fates = known.into_iter().map(|record| {
        let refusal = refuse(&record);
        fate_of(guardians, record, refusal)
    });
    let mut fates: FuturesUnordered<_> = fates.collect();
    while let Some(fate) = fates.next().await {
        match fate {
            Ok(adopted) => adopt(*adopted),
            Err(found) => resolved.others.push(found),
        }
    }
    stop_unknown_guardians(guardians, &mut resolved).await;
    let _ = prepared.await;
    if let Some(own) = &guardians.cgroups {
        cgroup::remove_empty(own);
    }
    let orphans = tokio::task::spawn_blocking(kill_orphans).await;
    let orphans = orphans.unwrap_or_default();
    let dead = async {
        while orphans.iter().any(|orphan| proc::is_alive(orphan.pid)) {
            sleep(PAUSE / 10).await;
        }
    };
    let _ = timeout(TAKEN_MAX, dead).await;
    for orphan in orphans {
        resolved.others.push(UnadoptedEngine {
            model: None,
            replica: orphan
                .replica
                .trim_start_matches('r')
                .parse()
                .ok()
                .map(ReplicaId),
            fate: Fate::Stopped,
            reason: format!("process {} of an engine whose guardian is gone", orphan.pid),
        });
    }
    resolved
}

/// Removes the journal's file, unless the engine is adopted or belongs to another controller.
async fn fate_of(
    guardians: &Arc<Guardians>,
    record: Record,
    refusal: Option<String>,
) -> Result<Box<AdoptedEngine>, UnadoptedEngine> {
    let found = |fate, reason: String| UnadoptedEngine {
        model: Some(record.model.clone()),
        replica: Some(record.replica()),
        fate,
        reason,
    };
    let closed = async |fate, reason| {
        // No other process is left to remove the engine's container.
        container::remove_silently(&record.cleanup).await;
        guardians.journal.remove(record.replica());
        Err(found(fate, reason))
    };
    let guardian = record.guardian;
    let marked = proc::variable(guardian.pid, MARK).is_some_and(|mark| mark == record.token);
    if !guardian.lives() || !marked {
        let (fate, reason) = without_guardian(&record).await;
        return closed(fate, reason).await;
    }
    let (hello, mut reader, mut writer) = match greet(guardians, &record).await {
        Greeting::Hello(hello, reader, writer) => (hello, reader, writer),
        Greeting::Taken => {
            let reason = format!("process {} has another controller", guardian.pid);
            return Err(found(Fate::LeftAlone, reason));
        }
        Greeting::Silent => {
            let pid = Pid::from_raw(guardian.pid.cast_signed());
            let _ = kill(pid, Signal::SIGKILL);
            until_gone(guardian).await;
            without_guardian(&record).await;
            let reason = format!("its guardian (process {}) did not answer", guardian.pid);
            return closed(Fate::Stopped, reason).await;
        }
    };
    if hello.token != record.token || hello.guardian != guardian {
        let reason = format!(
            "process {} answers on its guardian's socket but is not that guardian; it is left alone",
            hello.guardian.pid
        );
        return Err(found(Fate::LeftAlone, reason));
    }
    let settings = &guardians.settings;
    let adopt = Order::Adopt {
        version: VERSION,
        keep: settings.keep,
        adopt_within_ms: guardians.adopt_within_ms(),
        grace_ms: record.stop_grace_ms,
    };
    if let Some(End {
        status, last_words, ..
    }) = &hello.end
    {
        // The acknowledgement tells the guardian that its report has arrived, and it exits.
        let _ = writer.send(&adopt).await;
        drop((reader, writer));
        until_gone(guardian).await;
        let reason = format!("{last_words} ({status}), while no controller was running");
        return closed(Fate::Ended, reason.trim_start().to_owned()).await;
    }
    let unwanted = if !settings.keep {
        Some("pool.on_restart is stop".to_owned())
    } else if !hello.ready || hello.stopping {
        Some("it was not ready".to_owned())
    } else if record.asleep && record.watch.is_none() {
        Some("it was asleep".to_owned())
    } else if let Some(refusal) = refusal {
        Some(refusal)
    } else {
        sick(&record).await
    };
    if let Some(reason) = unwanted {
        stop(&mut reader, &mut writer, guardian).await;
        drop((reader, writer));
        until_gone(guardian).await;
        return closed(Fate::Stopped, reason).await;
    }
    let engine = hello.engine.or(record.engine);
    let (Some(leader), Ok(())) = (engine, writer.send(&adopt).await) else {
        return closed(
            Fate::Ended,
            "it ended while it was being adopted".to_owned(),
        )
        .await;
    };
    let group = Group {
        leader,
        tag: record.tag.clone(),
        cgroup: record.cgroup.clone(),
    };
    let last_end_ms = if hello.busy {
        hello.alone_since_ms
    } else {
        hello.last_end_ms
    };
    Ok(Box::new(AdoptedEngine {
        guard: Guard::adopted(guardians, record.clone(), group, (reader, writer)),
        record,
        last_end_ms,
        alone_since_ms: hello.alone_since_ms,
    }))
}

/// Cleans up after a guardian that is gone: the engine died with it, but escaped processes may remain.
async fn without_guardian(record: &Record) -> (Fate, String) {
    let gone = "its guardian is gone".to_owned();
    // The folder's name contains the token, which is unique.
    let has_token = |folder: &&PathBuf| folder.to_string_lossy().contains(&record.token);
    if let Some(folder) = record.cgroup.as_ref().filter(has_token) {
        cgroup::kill(folder);
        cgroup::remove(folder);
    }
    let Some(leader) = record.engine else {
        return (Fate::Ended, gone);
    };
    // A dying process no longer shows its environment and is about to disappear.
    let dying = async {
        while leader.lives() && proc::is_between_programs(leader.pid) {
            sleep(PAUSE / 10).await;
        }
    };
    let _ = timeout(TAKEN_MAX, dying).await;
    let tagged = proc::variable(leader.pid, TAG).is_some_and(|tag| tag == record.tag);
    let is_engine = leader.lives() && tagged;
    if !is_engine && proc::is_alive(leader.pid) {
        let pid = leader.pid;
        return (
            Fate::LeftAlone,
            format!("{gone}, and process number {pid} now belongs to another process"),
        );
    }
    let group = Group {
        leader,
        tag: record.tag.clone(),
        cgroup: record.cgroup.clone(),
    };
    group.sweep().await;
    if is_engine {
        (Fate::Stopped, gone)
    } else {
        (Fate::Ended, gone)
    }
}

enum Greeting {
    Hello(Box<Hello>, GuardianReader, GuardianWriter),
    Taken,
    Silent,
}

/// Connects to the guardian that the journal names. The last controller's connection may still be closing.
async fn greet(guardians: &Guardians, record: &Record) -> Greeting {
    let name = socket_name(record.replica());
    let folder = &guardians.settings.runtime_dir;
    let mut taken = Duration::ZERO;
    let greeting = async {
        loop {
            match greet_once(folder, &name).await {
                Greeting::Taken if taken < TAKEN_MAX => taken += PAUSE,
                // A guardian listens before it starts its engine, and may end at any time.
                Greeting::Silent if record.guardian.lives() => {}
                greeting => return greeting,
            }
            sleep(PAUSE).await;
        }
    };
    let greeting = timeout(RESPONSE_TIME_MAX, greeting).await;
    greeting.unwrap_or(Greeting::Silent)
}

async fn greet_once(folder: &Path, name: &str) -> Greeting {
    let Ok(socket) = connect_guardian(folder, name).await else {
        return Greeting::Silent;
    };
    let (mut reader, writer) = talk(socket);
    match reader.next_within(RESPONSE_TIME_MAX).await {
        Some(News::Hello(hello)) => Greeting::Hello(hello, reader, writer),
        Some(News::Taken) => Greeting::Taken,
        _ => Greeting::Silent,
    }
}

/// Returns the reason the engine cannot serve, after 5 s of probes.
async fn sick(record: &Record) -> Option<String> {
    // A sleeping engine need not respond.
    if record.asleep || record.watch.as_ref().is_some_and(RecordedWatch::follows) {
        return None;
    }
    let endpoint = Endpoint::from(&record.endpoint);
    let mut problem = String::new();
    let asking = async {
        loop {
            match probe(&endpoint, &record.ready_path).await {
                Ok(response) if (200..300).contains(&response.status) => return,
                Ok(response) => problem = format!("answers {}", response.status),
                Err(error) => problem = error.to_string(),
            }
            sleep(PAUSE).await;
        }
    };
    let healthy = timeout(RESPONSE_TIME_MAX, asking).await.is_ok();
    (!healthy).then(|| {
        let path = &record.ready_path;
        let seconds = RESPONSE_TIME_MAX.as_secs();
        format!("its health route {path} failed for {seconds} s: {problem}")
            .trim_end_matches([':', ' '])
            .to_owned()
    })
}

/// Stops the engine immediately, since it serves no requests any more. Returns when all of its processes are gone.
async fn stop(reader: &mut GuardianReader, writer: &mut GuardianWriter, guardian: ProcessId) {
    let _ = writer.send(&Order::Stop { grace_ms: 0 }).await;
    let ended = async {
        while let Some(news) = reader.next().await {
            if matches!(news, News::Exited(_)) {
                break;
            }
        }
    };
    if timeout(STOP_MAX, ended).await.is_err() {
        tracing::error!(
            guardian = guardian.pid,
            "cannot kill an engine of an earlier controller; its memory is not freed"
        );
    }
}

/// Returns when the guardian is gone. Bounded: a hanging process must not keep the pool from serving.
async fn until_gone(guardian: ProcessId) {
    let gone = async {
        while guardian.lives() {
            sleep(PAUSE / 10).await;
        }
    };
    let _ = timeout(TAKEN_MAX, gone).await;
}

/// Stops guardians in our folder without a journal file, and removes sockets without a listener.
async fn stop_unknown_guardians(guardians: &Guardians, resolved: &mut AdoptionResult) {
    let folder = &guardians.settings.runtime_dir;
    let Ok(entries) = std::fs::read_dir(folder) else {
        return;
    };
    // Engines that are adopted or left alone have kept their file.
    let ours = |replica: ReplicaId| guardians.journal.path_of(replica).exists();
    let mut unknown = Vec::new();
    for name in entries.flatten().map(|entry| entry.file_name()) {
        let number = |text: &str| text.strip_prefix('r')?.parse().ok().map(ReplicaId);
        let own = name.to_str().and_then(|name| name.split_once(OWN_SOCKETS));
        if own.is_some_and(|(stem, _)| number(stem).is_some_and(|replica| !ours(replica))) {
            drop(std::fs::remove_file(folder.join(&name)));
            continue;
        }
        let Some(stem) = name.to_str().and_then(|name| name.strip_suffix(".sock")) else {
            continue;
        };
        match stem.strip_prefix("g-") {
            Some(replica) => {
                let replica = number(replica);
                if !replica.is_some_and(ours) {
                    unknown.push((format!("{stem}.sock"), replica));
                }
            }
            // An engine's socket. Its process has been stopped already.
            None if number(stem).is_some_and(|replica| !ours(replica)) => {
                drop(std::fs::remove_file(folder.join(&name)));
            }
            None => {}
        }
    }
    for (name, replica) in unknown {
        if let Greeting::Hello(hello, mut reader, mut writer) = greet_once(folder, &name).await {
            stop(&mut reader, &mut writer, hello.guardian).await;
            drop((reader, writer));
            until_gone(hello.guardian).await;
            resolved.others.push(UnadoptedEngine {
                model: None,
                replica,
                fate: Fate::Stopped,
                reason: format!(
                    "process {} is a guardian whose engine is not in the journal",
                    hello.guardian.pid
                ),
            });
        }
        let _ = std::fs::remove_file(folder.join(&name));
    }
}
