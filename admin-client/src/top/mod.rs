//! `top`: the pool on one screen, live, with keys for frequent administrative tasks.
//!
//! ```text
//! server ─▶ feed ─▶ app (view, rows, dialog) ─▶ draw ─▶ terminal
//!   ▲                ▲ │
//!  jobs ◀── requests ┼─┘
//!   └──── outcomes ──┘  keys, mouse
//! ```

mod app;
mod colours;
mod dialog;
mod draw;
mod feed;
mod grid;
mod jobs;
mod raw_terminal;
mod rows;
#[cfg(test)]
mod tests;
mod view;

use std::io::stdout;
use std::sync::Arc;
use std::time::Duration;

use crossterm::event::EventStream;
use futures_util::StreamExt;
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{self, Sender};
use tokio::task::{AbortHandle, JoinSet};

use self::app::{App, Request};
use self::colours::Colours;
use self::jobs::Outcome;
use self::raw_terminal::RawTerminal;
use crate::error::CommandError;
use crate::render::quantity::Clock;
use crate::session::Session;
use terminal::window;

/// Interval for updating ages and countdowns.
const TICK: Duration = Duration::from_secs(1);
/// Capacity of the channels of news and outcomes.
const NEWS_MAX: usize = 256;

/// Prints one picture as text, of the terminal's size, or 100 × 40 without a terminal.
///
/// # Errors
/// As of the requests.
pub async fn once(session: &Session) -> Result<(), CommandError> {
    let (_stream, view) = feed::open(&session.client).await?;
    let events = feed::past_events(&session.client).await?;
    let mut app = App::new(view, session.client.server(), Colours(false));
    app.view.add_events(events);
    let (columns, rows) = window();
    let size = |n: usize| u16::try_from(n).unwrap_or(u16::MAX);
    // Leaves one line for the shell's prompt.
    let area = Rect::new(0, 0, size(columns), size(rows.saturating_sub(1)));
    let mut buffer = Buffer::empty(area);
    draw::draw(&mut app, Clock::read(), area, &mut buffer);
    session.screen.print(&text(&buffer))
}

/// The lines of a picture, without the spaces at their ends.
fn text(buffer: &Buffer) -> String {
    let area = buffer.area;
    let mut out = String::new();
    for y in area.top()..area.bottom() {
        let mut line = String::new();
        let mut x = area.left();
        while x < area.right() {
            let symbol = buffer[(x, y)].symbol();
            line.push_str(symbol);
            // The cell behind a wide character is empty.
            x += u16::try_from(crate::style::width(symbol))
                .unwrap_or(1)
                .max(1);
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// Shows the pool until q, Ctrl-C or a signal, or for `times` seconds.
///
/// # Errors
/// As of the first requests, or if the terminal cannot be written.
pub async fn run(session: &Session, times: Option<u32>) -> Result<(), CommandError> {
    let mut signals = JoinSet::new();
    for kind in [
        SignalKind::interrupt(),
        SignalKind::terminate(),
        SignalKind::hangup(),
    ] {
        let mut signal = signal(kind).map_err(CommandError::Runtime)?;
        signals.spawn(async move { signal.recv().await });
    }
    // Connects before the screen is taken over, to report a wrong address or key like every other command.
    let (stream, view) = feed::open(&session.client).await?;
    let colours = Colours(session.screen.style.colour);
    let mut app = App::new(view, session.client.server(), colours);
    let (news, mut from_feed) = mpsc::channel(NEWS_MAX);
    let (outcomes, mut from_jobs) = mpsc::channel(NEWS_MAX);
    let mut tasks = Tasks {
        session,
        outcomes,
        running: JoinSet::new(),
        log: None,
    };
    let client = || Arc::clone(&session.client);
    tasks
        .running
        .spawn(feed::follow_view(client(), stream, news.clone()));
    tasks.running.spawn(feed::follow_events(client(), news));

    let _restored = RawTerminal::enter().map_err(CommandError::Output)?;
    let mut terminal =
        Terminal::new(CrosstermBackend::new(stdout())).map_err(CommandError::Output)?;
    let mut keys = EventStream::new();
    let mut has_keys = true;
    let mut tick = tokio::time::interval(TICK);
    let mut left = times;
    loop {
        let clock = Clock::read();
        let draw = |frame: &mut ratatui::Frame<'_>| {
            draw::draw(&mut app, clock, frame.area(), frame.buffer_mut());
        };
        terminal.draw(draw).map_err(CommandError::Output)?;
        tokio::select! {
            _ = signals.join_next() => return Ok(()),
            event = keys.next(), if has_keys => match event {
                Some(Ok(event)) => match app.input(&event, Clock::read()) {
                    Some(Request::Quit) => return Ok(()),
                    Some(Request::Start(job, dialog)) => tasks.start(job, dialog),
                    None => {}
                },
                // Without a terminal on standard input, only signals end the screen.
                Some(Err(_)) | None => has_keys = false,
            },
            Some(news) = from_feed.recv() => {
                app.take(news, clock.now);
                while let Ok(news) = from_feed.try_recv() {
                    app.take(news, clock.now);
                }
            }
            Some((dialog, outcome)) = from_jobs.recv() => {
                app.finish(dialog, outcome, clock.now);
                while let Ok((dialog, outcome)) = from_jobs.try_recv() {
                    app.finish(dialog, outcome, clock.now);
                }
            }
            Some(ended) = tasks.running.join_next() => if let Err(error) = ended
                && error.is_panic() {
                std::panic::resume_unwind(error.into_panic());
            },
            _ = tick.tick() => {
                if left == Some(0) {
                    return Ok(());
                }
                left = left.map(|left| left - 1);
            }
        }
        tasks.stop_log_unless(app.dialog.as_ref().is_some_and(dialog::Dialog::is_log));
    }
}

/// Tasks that run while the screen is open, and end with it.
struct Tasks<'a> {
    session: &'a Session,
    outcomes: Sender<(u64, Outcome)>,
    running: JoinSet<()>,
    /// The task that follows a log, while the log is shown.
    log: Option<AbortHandle>,
}

impl Tasks<'_> {
    fn start(&mut self, job: jobs::Job, dialog: u64) {
        let is_log = matches!(job, jobs::Job::Logs { .. });
        let client = Arc::clone(&self.session.client);
        let task = jobs::run(client, job, dialog, self.outcomes.clone());
        let handle = self.running.spawn(task);
        if is_log {
            self.stop_log_unless(false);
            self.log = Some(handle);
        }
    }

    fn stop_log_unless(&mut self, is_shown: bool) {
        if let Some(log) = self.log.take_if(|_| !is_shown) {
            log.abort();
        }
    }
}
