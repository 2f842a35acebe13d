//! `top`: devices, models and queue on one screen, anew every second. A server that goes away is
//! said on the screen and waited for; only somebody who watches ends it.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};

use crate::answers::{DeviceList, ModelList, QueueView};
use crate::client::{Answer, Patience};
use crate::commands::Session;
use crate::commands::terminal::SingleKeys;
use crate::failure::Failure;
use crate::render::quantity::Clock;
use crate::render::{bars, models, queue};
use crate::screen::{Style, Tint, window};

const REFRESH_EVERY: Duration = Duration::from_secs(1);
const KEYS_EVERY: Duration = Duration::from_millis(50);

/// What one screen is made of.
struct Look {
    devices: Answer,
    models: Answer,
    queue: Answer,
}

/// Shows `times` screens. Without a number: until q, Ctrl-C or SIGTERM on a terminal, once
/// otherwise.
pub async fn top(session: &Session, times: Option<u32>) -> Result<(), Failure> {
    if session.json || !session.screen.style.terminal {
        return lines(session, times.unwrap_or(1)).await;
    }
    let mut interrupt = signal(SignalKind::interrupt()).map_err(Failure::Runtime)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(Failure::Runtime)?;
    // The first look happens before the screen is taken, so that a wrong address or key is told
    // like everywhere else.
    let mut frame = draw(&look(session).await?, session.screen.style)?;
    let keys = SingleKeys::start(session.screen)?;
    let mut left = times;
    loop {
        session.screen.print(&paint(&frame))?;
        left = left.map(|left| left.saturating_sub(1));
        if left == Some(0) {
            return Ok(());
        }
        tokio::select! {
            () = pressed(&keys) => return Ok(()),
            _ = interrupt.recv() => return Ok(()),
            _ = terminate.recv() => return Ok(()),
            next = next_frame(session) => frame = next,
        }
    }
}

/// Returns when q is pressed, or after a second.
async fn pressed(keys: &SingleKeys) {
    while !keys.quit_pressed() {
        tokio::time::sleep(KEYS_EVERY).await;
    }
}

async fn next_frame(session: &Session) -> String {
    tokio::time::sleep(REFRESH_EVERY).await;
    let style = Style {
        columns: window().0,
        ..session.screen.style
    };
    match look(session).await.and_then(|look| draw(&look, style)) {
        Ok(frame) => frame,
        Err(failure) => failure.explain(style, None) + "Trying again every second; q ends this.\n",
    }
}

/// For pipes and scripts: screens one after the other, with `--json` one object a line.
async fn lines(session: &Session, times: u32) -> Result<(), Failure> {
    for n in 0..times {
        if n > 0 {
            tokio::time::sleep(REFRESH_EVERY).await;
        }
        let look = look(session).await?;
        let text = if session.json {
            object(&look)?
        } else {
            draw(&look, session.screen.style)?
        };
        session.screen.print(&text)?;
    }
    Ok(())
}

async fn look(session: &Session) -> Result<Look, Failure> {
    let ask = async |path| {
        session
            .client
            .call(Method::GET, path, &[], None, Patience::Glance)
            .await
    };
    Ok(Look {
        devices: ask("admin/devices").await?,
        models: ask("admin/models").await?,
        queue: ask("admin/queue").await?,
    })
}

fn draw(look: &Look, style: Style) -> Result<String, Failure> {
    let devices: DeviceList = look.devices.read()?;
    let list: ModelList = look.models.read()?;
    let waiting: QueueView = look.queue.read()?;
    let clock = Clock::read();
    Ok(format!(
        "{}\n\n{}\n{}\n{}",
        style.paint(Tint::Faint, &clock.stamp(&clock.now.to_rfc3339())),
        bars::devices(&devices, clock, style),
        models::models(&list.models, clock, style),
        queue::queue(&waiting, style),
    ))
}

/// The three answers as one object in one line.
fn object(look: &Look) -> Result<String, Failure> {
    let devices: Value = look.devices.read()?;
    let models: Value = look.models.read()?;
    let queue: Value = look.queue.read()?;
    Ok(json!({"devices": devices, "models": models, "queue": queue}).to_string())
}

/// Draws over the screen before it, without a flicker: each line is written and the rest of the
/// old one erased. What does not fit below is left out.
fn paint(frame: &str) -> String {
    let rows = window().1.saturating_sub(1);
    let mut out = String::from("\x1b[H");
    for line in frame.lines().take(rows) {
        out.push_str(line);
        out.push_str("\x1b[K\n");
    }
    out.push_str("\x1b[J");
    out
}
