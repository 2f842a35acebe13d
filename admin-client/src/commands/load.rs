//! `load`, `plan`, `unload`. During a load, its progress is polled and shown on standard error. Plans
//! and results go to standard output.

use std::convert::Infallible;
use std::io::IsTerminal;
use std::time::Duration;

use client::ClientError;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};

use crate::cli::{LoadArgs, LoadSettings};
use crate::error::CommandError;
use crate::render::fold::sentence;
use crate::render::progress::{Progress, progress};
use crate::render::quantity::{Clock, count};
use crate::render::{outcome, plan as plan_text};
use crate::responses::{LoadResponse, ModelList, Plan};
use crate::screen::{Screen, announced, note};
use crate::session::{Session, present};
use crate::state::LoadState;
use crate::style::clean;

/// Interval between polls of a model that is being loaded.
const POLL_EVERY: Duration = Duration::from_millis(150);

/// Shows the plan, then loads.
pub async fn load(session: &Session, args: &LoadArgs) -> Result<(), CommandError> {
    if args.dry_run {
        return plan(session, &args.model, &args.wish).await;
    }
    let mut obstacle = None;
    if !session.json {
        let response = session
            .client
            .post("admin/plan", &body(&args.model, &args.wish, None))
            .await;
        match response {
            // The model may be on the hub without a model file; the load looks it up there.
            Err(ClientError::Refused(refusal))
                if refusal.status == 404 && args.model.contains('/') => {}
            response => {
                let plan: Plan = response?.read()?;
                // A plan with obstacles is not printed: a refused load includes them, and a waiting load names the obstacle.
                if plan.feasible {
                    session
                        .screen
                        .print(&plan_text::plan(&plan, session.screen.style))?;
                } else {
                    obstacle = plan.reason;
                }
            }
        }
    }
    let request = body(&args.model, &args.wish, args.no_wait.then_some(false));
    let post = session.client.post("admin/load", &request);
    let response = if session.json || args.no_wait {
        post.await?
    } else {
        tokio::select! {
            response = post => response?,
            never = watch(session, args, obstacle) => match never {},
            _ = tokio::signal::ctrl_c() => return Err(CommandError::Interrupted(format!(
                "stopped watching; the pool may continue the load. `admin-client show {0}` shows its state, `admin-client unload {0}` undoes it",
                args.model
            ))),
        }
    };
    session.show(&response, |response| {
        outcome::load(response, session.screen.style)
    })?;
    let response: LoadResponse = response.read()?;
    if !session.json {
        outcome::other_devices(&response, args.wish.gpus)
            .iter()
            .for_each(|text| note(text));
    }
    match response.status.as_str() {
        "partial" => Err(CommandError::Partial(format!(
            "only {} of {} ready",
            response.ready_replicas.len(),
            count(response.wanted_replicas.unwrap_or(0) as usize, "replica")
        ))),
        _ => Ok(()),
    }
}

/// Shows the effect of a load.
pub async fn plan(session: &Session, model: &str, wish: &LoadSettings) -> Result<(), CommandError> {
    let response = session
        .client
        .post("admin/plan", &body(model, wish, None))
        .await?;
    let plan: Plan = response.read()?;
    session.show(&response, |plan: &Plan| {
        plan_text::plan(plan, session.screen.style)
    })?;
    if plan.feasible {
        Ok(())
    } else {
        Err(CommandError::Infeasible(plan.model))
    }
}

/// Drains and unloads.
pub async fn unload(
    session: &Session,
    model: &str,
    replica: Option<&str>,
    now: bool,
) -> Result<(), CommandError> {
    let request = present(json!({
        "model": model,
        "replica": replica,
        "now": now.then_some(true),
    }));
    let waits = !session.json && !now;
    let post = session.client.post("admin/unload", &request);
    let response = announced(
        post,
        waits.then_some("Waiting for the requests in flight to end. Use --now to cut them."),
    )
    .await?;
    session.show(&response, |response| {
        outcome::unload(response, session.screen.style)
    })
}

/// The request body of load and plan.
fn body(model: &str, wish: &LoadSettings, wait: Option<bool>) -> Value {
    present(json!({
        "model": model,
        "priority": wish.priority,
        "replicas": wish.replicas,
        "gpus": wish.gpus,
        "keep_hot": wish.keep_hot,
        "lease": wish.lease,
        "force": wish.force.then_some(true),
        "wait": wait,
    }))
}

/// Polls the model and shows its progress until the future is dropped, which happens when the load has its response. Ignores failed
/// polls: the response to the load reports the failure.
///
/// `obstacle`: the reason the plan found no room, shown once while the model waits.
async fn watch(session: &Session, args: &LoadArgs, mut obstacle: Option<String>) -> Infallible {
    let model = args.model.as_str();
    let mut display = ProgressDisplay::new(model);
    let mut seen_loading = None;
    loop {
        tokio::time::sleep(POLL_EVERY).await;
        let polled = session
            .client
            .glance("admin/models", &[("model", model)])
            .await
            .and_then(|response| response.read::<ModelList>());
        if let Some(view) = polled.ok().and_then(|list| list.models.into_iter().next()) {
            let wanted = args.wish.replicas.or(view.wished_replicas).unwrap_or(1);
            let now = Clock::read().now;
            let loading = view
                .replicas
                .iter()
                .any(|replica| replica.state == LoadState::Launching);
            seen_loading = seen_loading.or(loading.then_some(now));
            let waits = !loading
                && view
                    .replicas
                    .iter()
                    .all(|replica| replica.state != LoadState::Ready);
            if let Some(obstacle) = obstacle.take_if(|_| waits) {
                display.note(&format!("{model} waits for room: {}", clean(&obstacle)));
            }
            let watched = seen_loading.map_or(0, |since| (now - since).num_milliseconds());
            let watched_ms = u64::try_from(watched).unwrap_or(0);
            display.update(progress(&view, wanted, watched_ms));
        }
    }
}

/// A terminal with fewer columns gets a shorter bar.
const NARROW: usize = 70;

/// Progress on standard error: a bar on a terminal, otherwise one line per stage.
struct ProgressDisplay {
    bar: Option<ProgressBar>,
    model: String,
    /// The last stage printed, without a terminal.
    stage: String,
}

impl ProgressDisplay {
    fn new(model: &str) -> ProgressDisplay {
        let style = Screen::of_stderr().style;
        let bar = std::io::stderr().is_terminal().then(|| {
            let columns = if style.columns < NARROW { 10 } else { 30 };
            let colours = if style.colour {
                ".green/black.bright"
            } else {
                ""
            };
            let template = format!("  {{spinner}} {{bar:{columns}{colours}}}  {{wide_msg}}");
            let bar = ProgressBar::new(100);
            // The template is fixed text. If it were wrong, the default bar would do.
            if let Ok(bar_style) = ProgressStyle::with_template(&template) {
                bar.set_style(bar_style.progress_chars("━━─"));
            }
            bar.set_message("waiting for the server");
            bar.enable_steady_tick(Duration::from_millis(100));
            bar
        });
        ProgressDisplay {
            bar,
            model: model.to_owned(),
            stage: String::new(),
        }
    }

    /// A line above the progress.
    fn note(&self, text: &str) {
        let text = sentence(text, Screen::of_stderr().style);
        match &self.bar {
            Some(bar) => bar.println(text.trim_end()),
            None => note(text.trim_end()),
        }
    }

    fn update(&mut self, now: Progress) {
        match &self.bar {
            Some(bar) => {
                bar.set_position(now.percent);
                let elapsed = bar.elapsed().as_secs();
                bar.set_message(match now.figure.as_str() {
                    "" => format!("{} ({elapsed} s)", now.label),
                    figure => format!("{figure}  {}", now.label),
                });
            }
            None if now.stage != self.stage => {
                note(&format!("{}: {}", self.model, now.label));
                self.stage = now.stage;
            }
            None => {}
        }
    }
}

impl Drop for ProgressDisplay {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_contains_only_the_given_options() {
        assert_eq!(
            body("m", &LoadSettings::default(), None),
            json!({"model": "m"})
        );
        let wish = LoadSettings {
            priority: Some(0),
            keep_hot: Some("10m".to_owned()),
            lease: Some("2h".to_owned()),
            gpus: Some(2),
            replicas: Some(3),
            force: true,
        };
        assert_eq!(
            body("org/m", &wish, Some(false)),
            json!({"model": "org/m", "priority": 0, "replicas": 3, "gpus": 2, "keep_hot": "10m", "lease": "2h",
                "force": true, "wait": false})
        );
    }
}
