//! `load`, `plan`, `unload`: the commands that move models. While a load is in flight its progress
//! is polled and shown on the standard error; the standard output gets the outcome alone.

use std::convert::Infallible;
use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use reqwest::Method;
use serde_json::{Map, Value, json};

use crate::answers::{ModelList, Plan};
use crate::cli::{LoadArgs, Wish};
use crate::client::Patience;
use crate::commands::Session;
use crate::failure::Failure;
use crate::render::progress::{Progress, progress};
use crate::render::{outcome, plan as plan_text};
use crate::screen::{Screen, note};

/// Between two looks at a model that is being loaded.
const POLL_EVERY: Duration = Duration::from_millis(150);

/// Shows the plan and carries it out.
pub async fn load(session: &Session, args: &LoadArgs) -> Result<(), Failure> {
    if args.dry_run {
        return plan(session, &args.model, &args.wish).await;
    }
    if !session.json {
        let answer = session
            .client
            .post("admin/plan", &body(&args.model, &args.wish, None))
            .await;
        match answer {
            // It may be one of the hub that no file describes: the load itself looks there.
            Err(Failure::Refused(refusal)) if refusal.status == 404 && args.model.contains('/') => {
            }
            answer => {
                let plan: Plan = answer?.read()?;
                // A plan with obstacles is left to the load itself: its refusal brings them.
                if plan.feasible {
                    session
                        .screen
                        .print(&plan_text::plan(&plan, session.screen.style))?;
                }
            }
        }
    }
    let request = body(&args.model, &args.wish, args.no_wait.then_some(false));
    let post = session.client.post("admin/load", &request);
    let answer = if session.json || args.no_wait {
        post.await?
    } else {
        tokio::select! {
            answer = post => answer?,
            never = watch(session, args) => match never {},
            _ = tokio::signal::ctrl_c() => return Err(Failure::Interrupted(format!(
                "stopped watching; the pool may go on loading. `admin-client show {0}` tells, `admin-client unload {0}` undoes it",
                args.model
            ))),
        }
    };
    session.show(&answer, |answer| {
        outcome::load(answer, session.screen.style)
    })
}

/// Shows what a load would do.
pub async fn plan(session: &Session, model: &str, wish: &Wish) -> Result<(), Failure> {
    let answer = session
        .client
        .post("admin/plan", &body(model, wish, None))
        .await?;
    let plan: Plan = answer.read()?;
    session.show(&answer, |plan: &Plan| {
        plan_text::plan(plan, session.screen.style)
    })?;
    if plan.feasible {
        Ok(())
    } else {
        Err(Failure::Infeasible(plan.model))
    }
}

/// Drains and unloads.
pub async fn unload(
    session: &Session,
    model: &str,
    replica: Option<&str>,
    now: bool,
) -> Result<(), Failure> {
    let mut request = json!({ "model": model });
    if let Some(replica) = replica {
        request["replica"] = replica.into();
    }
    if now {
        request["now"] = true.into();
    }
    let answer = session.client.post("admin/unload", &request).await?;
    session.show(&answer, outcome::unload)
}

/// The body of load and plan: what was not said is left out.
fn body(model: &str, wish: &Wish, wait: Option<bool>) -> Value {
    let mut body = Map::new();
    let mut put = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            body.insert(name.to_owned(), value);
        }
    };
    put("model", Some(model.into()));
    put("priority", wish.priority.map(Value::from));
    put("replicas", wish.replicas.map(Value::from));
    put("gpus", wish.gpus.map(Value::from));
    put("keep_hot", wish.keep_hot.clone().map(Value::from));
    put("lease", wish.lease.clone().map(Value::from));
    put("force", wish.force.then_some(Value::from(true)));
    put("wait", wait.map(Value::from));
    Value::Object(body)
}

/// Looks at the model again and again and shows how far it is. Ends only by being dropped, when
/// the load has its answer. A look that fails shows nothing: the load's own answer will tell.
async fn watch(session: &Session, args: &LoadArgs) -> Infallible {
    let model = args.model.as_str();
    let mut shown = Shown::new(model);
    loop {
        tokio::time::sleep(POLL_EVERY).await;
        let look = session
            .client
            .call(
                Method::GET,
                "admin/models",
                &[("model", model)],
                None,
                Patience::Glance,
            )
            .await
            .and_then(|answer| answer.read::<ModelList>());
        if let Some(view) = look.ok().and_then(|list| list.models.into_iter().next()) {
            let wanted = args.wish.replicas.or(view.wished_replicas).unwrap_or(1);
            shown.update(progress(&view, wanted));
        }
    }
}

/// Progress on the standard error: a bar on a terminal, a line a stage otherwise.
struct Shown {
    bar: Option<ProgressBar>,
    model: String,
    /// The last one told where there is no terminal: there a stage is one line.
    stage: String,
}

impl Shown {
    fn new(model: &str) -> Shown {
        let style = Screen::of_stderr().style;
        let bar = std::io::stderr().is_terminal().then(|| {
            let template = if style.colour {
                "  {spinner} {bar:30.green/black.bright} {percent:>3} %  {msg} ({elapsed})"
            } else {
                "  {spinner} {bar:30} {percent:>3} %  {msg} ({elapsed})"
            };
            let bar = ProgressBar::new(100);
            // The template is fixed text; were it wrong, the plain bar would serve.
            if let Ok(look) = ProgressStyle::with_template(template) {
                bar.set_style(look.progress_chars("━━─"));
            }
            bar.set_message("asking");
            bar.enable_steady_tick(Duration::from_millis(100));
            bar
        });
        Shown {
            bar,
            model: model.to_owned(),
            stage: String::new(),
        }
    }

    fn update(&mut self, now: Progress) {
        match &self.bar {
            Some(bar) => {
                bar.set_position(now.percent);
                bar.set_message(now.label);
            }
            None if now.stage != self.stage => {
                note(&format!("{}: {}", self.model, now.label));
                self.stage = now.stage;
            }
            None => {}
        }
    }
}

impl Drop for Shown {
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
    fn a_body_holds_what_was_said_and_nothing_else() {
        assert_eq!(body("m", &Wish::default(), None), json!({"model": "m"}));
        let wish = Wish {
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
