//! `model-pool batch`: uploads a file of requests, creates a batch, shows its progress, and downloads the results. The batch
//! continues on the server if this program ends.

mod args;
mod progress;

pub use args::{BATCH_EXAMPLES, BatchArgs};

use std::path::{Path, PathBuf};
use std::time::Duration;

use client::ClientError;
use serde::Deserialize;
use serde_json::json;
use tokio::runtime::Runtime;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::control_chars::clean;
use super::error::CommandError;
use super::interrupt::interrupted;
use super::pool_client::PoolClient;
use super::quantity::bytes;
use super::screen::Screen;
use super::status::StatusLine;
use progress::{Batch, Speed};

const POLL_EVERY: Duration = Duration::from_secs(2);
/// The interval of lines without a terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);
/// The time for which the server may be unreachable, for example during its restart.
const UNREACHABLE_MAX: Duration = Duration::from_secs(300);

/// The id of a new file.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Uploaded {
    id: String,
}

pub fn run(runtime: &Runtime, client: &PoolClient, args: &BatchArgs) -> Result<(), CommandError> {
    let results = args.results();
    let mut watch = Watch {
        client,
        args,
        id: args.resume.clone(),
        status: StatusLine::of_stderr(),
    };
    if !args.no_wait && !args.force {
        refuse_existing(&results)?;
    }
    let ended = runtime.block_on(async {
        tokio::select! {
            ended = watch.run(&results) => ended.map(Some),
            () = interrupted() => Ok(None),
        }
    });
    watch.status.erase();
    let outcome = match ended {
        Ok(Some(text)) => return Screen::new().print(&text),
        Ok(None) => CommandError::Interrupted,
        Err(failure) => failure,
    };
    // A refused id may not exist, and an incomplete batch has ended.
    let is_final = matches!(outcome, CommandError::Incomplete { .. });
    if !is_final && outcome.refusal().is_none() {
        watch.explain_resume();
    }
    Err(outcome)
}

fn refuse_existing(results: &[PathBuf; 2]) -> Result<(), CommandError> {
    match results.iter().find(|file| file.exists()) {
        None => Ok(()),
        Some(file) => Err(CommandError::Usage(format!(
            "{} exists already, and no batch was created; name another file with --output and --errors, or replace it with --force",
            file.display()
        ))),
    }
}

/// The batch that this program waits for.
struct Watch<'a> {
    client: &'a PoolClient,
    args: &'a BatchArgs,
    /// `None` until the batch exists.
    id: Option<String>,
    status: StatusLine,
}

impl Watch<'_> {
    /// Returns the text for standard output.
    async fn run(&mut self, results: &[PathBuf; 2]) -> Result<String, CommandError> {
        let id = match self.id.clone() {
            Some(id) => id,
            None => self.create().await?,
        };
        if self.args.no_wait {
            self.explain_resume();
            return Ok(format!("{}\n", clean(&id)));
        }
        let batch = self.wait(&id).await?;
        self.download(&batch, results).await
    }

    /// Uploads the file and creates the batch. Returns its id.
    async fn create(&mut self) -> Result<String, CommandError> {
        let (args, client) = (self.args, self.client.client());
        let file = args.file.as_deref().unwrap_or(Path::new(""));
        let size = tokio::fs::metadata(file).await.map_err(|error| {
            CommandError::Usage(format!("cannot read {}: {error}", file.display()))
        })?;
        let size = bytes(size.len());
        self.say(&format!("uploads {} ({size})", file.display()));
        let uploaded = client.upload("v1/files", "batch", file).await?;
        let uploaded: Uploaded = uploaded.read()?;
        let body = json!({
            "input_file_id": uploaded.id,
            "endpoint": args.endpoint,
            "completion_window": args.window,
        });
        let created: Batch = client.create("v1/batches", &body).await?.read()?;
        self.id = Some(created.id.clone());
        let forecast = created.forecast();
        self.say(&format!("created {}{forecast}", created.id));
        Ok(created.id)
    }

    /// Polls until the batch has ended, and shows its progress.
    async fn wait(&mut self, id: &str) -> Result<Batch, CommandError> {
        let path = format!("v1/batches/{id}");
        let mut ticks = interval(POLL_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut speed = Speed::default();
        let first = ticks.tick().await;
        let (mut at, mut reached, mut printed) = (first, first, None::<Instant>);
        let mut is_warned = false;
        loop {
            let text = match self.client.client().get(&path, &[]).await {
                Ok(response) => {
                    let batch: Batch = response.read()?;
                    if batch.has_ended() {
                        return Ok(batch);
                    }
                    reached = at;
                    speed.add(at - first, batch.done());
                    if let Some(warning) = batch.warning().filter(|_| !is_warned) {
                        is_warned = true;
                        self.say(&format!("warning: {warning}"));
                    }
                    batch.progress(&speed)
                }
                Err(failure) if may_recover(&failure) && at - reached < UNREACHABLE_MAX => {
                    "cannot reach the server; trying again".to_owned()
                }
                Err(failure) => return Err(failure.into()),
            };
            self.status.show(&text);
            let is_due = printed.is_none_or(|before| at - before >= LINE_EVERY);
            if !self.status.is_enabled() && is_due {
                eprintln!("{text}");
                printed = Some(at);
            }
            at = ticks.tick().await;
        }
    }

    /// Downloads the results of a batch that has ended, and describes them.
    ///
    /// # Errors
    /// `Incomplete` if not every request completed, after the download.
    async fn download(
        &mut self,
        batch: &Batch,
        [output, errors]: &[PathBuf; 2],
    ) -> Result<String, CommandError> {
        let files = [
            ("responses", &batch.output_file_id, output),
            ("errors", &batch.error_file_id, errors),
        ];
        let mut text = String::new();
        for (what, id, file) in files {
            let Some(id) = id else { continue };
            self.status.show(&format!("downloads the {what}"));
            let path = format!("v1/files/{id}/content");
            let size = self.client.client().download(&path, file).await?;
            text.push_str(&format!("{what}: {} ({})\n", file.display(), bytes(size)));
        }
        let counts = &batch.request_counts;
        text.push_str(&format!(
            "{} of {} requests completed, {} failed\n",
            counts.completed, counts.total, counts.failed
        ));
        if batch.is_complete() {
            return Ok(text);
        }
        self.status.erase();
        Screen::new().print(&text)?;
        let (id, status) = (&batch.id, &batch.status);
        let message = match batch.problem() {
            Some(problem) => format!("{id} is {status}: {problem}"),
            None if batch.error_file_id.is_some() => {
                format!("{id} is {status}; {} has the errors", errors.display())
            }
            None => format!("{id} is {status}"),
        };
        Err(CommandError::Incomplete { message })
    }

    fn say(&mut self, text: &str) {
        self.status.erase();
        eprintln!("{}", clean(text));
    }

    /// Says how to continue, if a batch exists.
    fn explain_resume(&mut self) {
        let Some(id) = self.id.clone() else { return };
        let file = self.args.file.as_deref().map(Path::display);
        let file = file.map_or_else(String::new, |file| format!("{file} "));
        self.say(&format!(
            "the batch {id} stays on the server; `model-pool batch {file}--resume {id}` waits for it and downloads its results"
        ));
    }
}

/// Returns true for failures that a restart of the server causes.
fn may_recover(failure: &ClientError) -> bool {
    let is_failing = failure
        .refusal()
        .is_some_and(|refusal| refusal.status == 429 || refusal.status >= 500);
    is_failing || matches!(failure, ClientError::Unreachable { .. })
}
