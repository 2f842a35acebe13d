//! `top`: devices, models and queue on one screen, refreshed every second. If the server cannot be
//! reached, the screen says so and `top` keeps trying.

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
use crate::screen::window;
use crate::style::{Style, Tint};

const REFRESH_EVERY: Duration = Duration::from_secs(1);
const KEYS_EVERY: Duration = Duration::from_millis(50);

/// The responses for one screen.
struct Responses {
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
    // Before the screen is taken over, so that a wrong address or key is reported like in every
    // other command.
    let mut frame = draw(&fetch(session).await?, session.screen.style)?;
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

/// Returns when q is pressed.
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
    match fetch(session)
        .await
        .and_then(|responses| draw(&responses, style))
    {
        Ok(frame) => frame,
        Err(failure) => failure.explain(style, None) + "Retrying every second; press q to exit.\n",
    }
}

/// For pipes and scripts: one screen after the other, with `--json` one object per line.
async fn lines(session: &Session, times: u32) -> Result<(), Failure> {
    for n in 0..times {
        if n > 0 {
            tokio::time::sleep(REFRESH_EVERY).await;
        }
        let responses = fetch(session).await?;
        let text = if session.json {
            object(&responses)?
        } else {
            draw(&responses, session.screen.style)?
        };
        session.screen.print(&text)?;
    }
    Ok(())
}

async fn fetch(session: &Session) -> Result<Responses, Failure> {
    let get = async |path| {
        session
            .client
            .call(Method::GET, path, &[], None, Patience::Glance)
            .await
    };
    Ok(Responses {
        devices: get("admin/devices").await?,
        models: get("admin/models").await?,
        queue: get("admin/queue").await?,
    })
}

fn draw(responses: &Responses, style: Style) -> Result<String, Failure> {
    let devices: DeviceList = responses.devices.read()?;
    let list: ModelList = responses.models.read()?;
    let waiting: QueueView = responses.queue.read()?;
    let clock = Clock::read();
    Ok(format!(
        "{}\n\n{}\n{}\n{}",
        style.paint(Tint::Faint, &clock.stamp(&clock.now.to_rfc3339())),
        bars::devices(&devices, clock, style),
        models::models(&list.models, clock, style),
        queue::queue(&waiting, style),
    ))
}

/// The three responses as one object in one line.
fn object(responses: &Responses) -> Result<String, Failure> {
    let devices: Value = responses.devices.read()?;
    let models: Value = responses.models.read()?;
    let queue: Value = responses.queue.read()?;
    Ok(json!({"devices": devices, "models": models, "queue": queue}).to_string())
}

/// Overwrites the previous screen without flicker, line by line. Lines that do not fit are left out.
fn paint(frame: &str) -> String {
    let rows = window().1.saturating_sub(1);
    let mut out = String::from("\x1b[H");
    for line in frame.lines().take(rows) {
        // Erased first: behind a line that fills the terminal the cursor stands on its last character.
        out.push_str("\x1b[K");
        out.push_str(line);
        out.push('\n');
    }
    out.push_str("\x1b[J");
    out
}
